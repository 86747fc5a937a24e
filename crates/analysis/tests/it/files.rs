//! Transactions in TOML files.

use contend_analysis::{AnalysisOptions, Application, Chopping, Plan};

use crate::support::shown;

const SHOP: &str = r#"
name = "shop"

[table.items]
groups = [["name", "price"], ["stock"]]

[[procedure]]
name = "notify"
steps = ["insert messages"]

[[transaction]]
name = "checkout"
steps = [
  "read users.name",
  { loop = ["read items.price", "modify items.stock"] },
  { either = [["insert coupons"], ["modify coupons.used"]] },
  { piece = ["insert orders", "insert order_lines"], name = "order" },
  { call = "notify" },
  "cancel",
]

[[transaction]]
name = "restock"
steps = ["add items.stock"]

[[transaction]]
name = "report"
read_only = true
steps = ["scan orders", "scan order_lines"]
"#;

#[test]
fn a_shop() {
    let shop = Application::from_toml(SHOP).expect("valid");
    assert_eq!(
        shown(&shop.types, AnalysisOptions::default()),
        ["checkout -users 1:items 2:coupons+coupons2 -order -messages -cancel", "restock 1:items"]
    );
    let plan = Plan::new(&shop.types, AnalysisOptions::default()).expect("valid");
    let chopping = Chopping::new(&shop.types, AnalysisOptions::default()).expect("valid");
    assert_eq!(
        shop.study(&plan).describe(),
        "shop: 3 transactions, 2 on more than one table, 0 in a deadlock-prone SC-cycle, 1 gain by IC3"
    );
    assert_eq!(
        shop.notes_on(&plan, &chopping),
        [
            "no transaction writes table 'users'",
            "checkout may cancel in cancel, after items was shown to others: those that saw it abort too"
        ]
    );
    let dot = plan.to_dot(&shop.types);
    assert!(dot.contains("t0g1 -> t1g0 [dir=none, color=red, constraint=false, label=\"items/1\"];"), "{dot}");
    let text = plan.describe(&shop.types, &chopping);
    assert!(text.contains("checkout can't be chopped: it may cancel in cancel"), "{text}");
}

/// Two transactions that cross are merged, and counted.
#[test]
fn transactions_that_cross() {
    let text = "name = \"x\"\n[[transaction]]\nname = \"a\"\nsteps = [\"write t\", \"write u\"]\n[[transaction]]\nname = \"b\"\nsteps = [\"write u\", \"write t\"]\n";
    let crossing = Application::from_toml(text).expect("valid");
    let plan = Plan::new(&crossing.types, AnalysisOptions::default()).expect("valid");
    assert_eq!(
        crossing.study(&plan).describe(),
        "x: 2 transactions, 2 on more than one table, 2 in a deadlock-prone SC-cycle, 0 gain by IC3"
    );
}

#[test]
fn mistakes_have_a_place() {
    let with = |old: &str, new: &str| {
        assert!(SHOP.contains(old));
        Application::from_toml(&SHOP.replace(old, new)).expect_err("a mistake").to_string()
    };
    for (old, new, message) in [
        ("read users.name", "raed users", "line 14, column 3: 'raed users' begins with no mode; valid: read, scan"),
        ("read users.name", "read", "line 14, column 3: 'read' names no table"),
        (
            "items.price\"",
            "items.prize\"",
            "line 15, column 3: table 'items' has no column 'prize'; valid: name, price",
        ),
        ("call = \"notify\"", "call = \"notyfi\"", "unknown procedure 'notyfi'; valid: notify"),
        ("\"insert messages\"", "{ call = \"notify\" }", "procedure 'notify' calls itself: notify -> notify"),
        ("loop =", "lopp =", "line 15, column 3: { lopp } is no step; valid: "),
        ("  \"cancel\",", "  7,", "line 19, column 3: a value of type integer is no step"),
        ("\"scan orders\"", "\"write orders\"", "report, piece orders: writes 'orders', and its type is declared"),
        ("[\"stock\"]", "[\"price\"]", "line 5, column 10: column 'price' of table 'items' is in two groups"),
        ("name = \"restock\"", "name = \"report\"", "line 27, column 8: there are two transactions 'report'"),
        ("steps = [\"add items.stock\"]", "steps = []", "line 23, column 8: transaction 'restock' has no step"),
        ("{ loop = [\"read items.price\", \"modify items.stock\"] }", "{ loop = [] }", "a piece has no step"),
        ("name = \"restock\"", "name = \"a\\u001b[31m\"", "the name \"a\\u{1b}[31m\" has control characters"),
        ("read users.name", "read users.", "line 14, column 3: 'read users.' names no column behind the point"),
        ("[\"stock\"]", "[]", "line 5, column 10: table 'items' has a group without a column"),
        ("read_only = true", "readonly = true", "unknown field `readonly`"),
    ] {
        let error = with(old, new);
        assert!(error.contains(message), "{new}: '{message}' is not in: {error}");
    }
    assert_eq!(
        Application::from_toml("name = \"x\"").expect_err("empty").to_string(),
        "line 1, column 1: there is no [[transaction]]"
    );
}

/// Procedures that call each other twice double the steps at each level.
#[test]
fn a_file_from_a_stranger_ends() {
    let mut text = String::from("name = \"x\"\n");
    for level in 0..40 {
        let next = level + 1;
        text += &format!(
            "[[procedure]]\nname = \"p{level}\"\nsteps = [{{ call = \"p{next}\" }}, {{ call = \"p{next}\" }}]\n"
        );
    }
    text += "[[procedure]]\nname = \"p40\"\nsteps = []\n[[transaction]]\nname = \"a\"\nsteps = [{ call = \"p0\" }]\n";
    let error = Application::from_toml(&text).expect_err("too many").to_string();
    assert!(error.contains("more than 100000 steps"), "{error}");
    let chain: String = (0..70)
        .map(|level| format!("[[procedure]]\nname = \"p{level}\"\nsteps = [{{ call = \"p{}\" }}]\n", level + 1))
        .collect();
    let text = format!("name = \"x\"\n{chain}[[transaction]]\nname = \"a\"\nsteps = [{{ call = \"p0\" }}]\n");
    let error = Application::from_toml(&text).expect_err("too deep").to_string();
    assert!(error.contains("nested more than 64 deep"), "{error}");
    let many = "\"write t\", \"settled u\", ".repeat(49_000);
    let text = format!("name = \"x\"\n[[transaction]]\nname = \"a\"\nsteps = [{many}]\n");
    let large = Application::from_toml(&text).expect("valid").types;
    Plan::new(&large, AnalysisOptions::default()).expect("valid");
    // Time grows with the number of tables and steps, not with its square.
    let tables: String = (0..99_000).map(|number| format!("\"write t{number}\", ")).collect();
    let text = format!("name = \"x\"\n[[transaction]]\nname = \"a\"\nsteps = [{tables}]\n");
    let wide = Application::from_toml(&text).expect("valid").types;
    let plan = Plan::new(&wide, AnalysisOptions::default()).expect("valid");
    let waits = plan.waits(&wide, &plan.conflicts(&wide)).expect("one type");
    assert_eq!(waits.until_partners, 98_999);
    let deep = "{ loop = [".repeat(200) + "\"read t\"" + &"] }".repeat(200);
    let text = format!("name = \"x\"\n[[transaction]]\nname = \"a\"\nsteps = [{deep}]\n");
    let error = Application::from_toml(&text).expect_err("too deep").to_string();
    assert!(error.contains("recursion depth"), "{error}");
}
