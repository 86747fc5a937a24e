//! What is said about a plan: conflicts, cycles, waits, cancels, last accesses, hints, the picture.

use std::collections::BTreeSet;

use contend_analysis::{AnalysisOptions, Application, Change, Chopping, Conflict, Hints, Plan, Until, Wait};

/// Two transactions that cross, and a third that starts late.
const CROSSING: &str = r#"
name = "crossing"
[[transaction]]
name = "order"
steps = ["cancel", "modify stock", "modify orders", "insert history", "modify queue", "cancel", "modify lines"]
[[transaction]]
name = "deliver"
steps = ["modify queue", "modify orders", "modify lines", "add balance"]
[[transaction]]
name = "pay"
steps = ["modify balance"]
"#;

struct Analysed {
    application: Application,
    plan: Plan,
    chopping: Chopping,
}

impl Analysed {
    fn new(text: &str) -> Analysed {
        let application = Application::from_toml(text).expect("valid");
        let plan = Plan::new(&application.types, AnalysisOptions::default()).expect("valid");
        let chopping = Chopping::new(&application.types, AnalysisOptions::default()).expect("valid");
        Analysed { application, plan, chopping }
    }

    fn described(&self) -> String {
        self.plan.describe(&self.application.types, &self.chopping)
    }

    /// Returns the lines about a topic.
    fn lines(&self, title: &str) -> Vec<String> {
        let text = self.described();
        let from = text.lines().skip_while(|line| !line.starts_with(&format!("{title} ")));
        let own = from.enumerate().take_while(|(number, line)| *number == 0 || line.starts_with(' '));
        own.map(|(_, line)| line[11..].to_owned()).collect()
    }
}

#[test]
fn each_topic_has_its_lines() {
    let crossing = Analysed::new(CROSSING);
    assert_eq!(
        crossing.lines("ranks"),
        [
            "1 order.stock",
            "2 order.orders+history+queue, deliver.queue+orders",
            "3 order.lines, deliver.lines",
            "4 deliver.balance, pay.balance"
        ],
        "{}",
        crossing.described()
    );
    assert_eq!(crossing.lines("C-edges")[1], "orders: changed by order.orders+history+queue, deliver.queue+orders");
    assert_eq!(
        crossing.lines("SC-cycles"),
        [
            "order: stock..lines, ordered by ranks; orders+history+queue had to be merged",
            "deliver: queue..balance, ordered by ranks; queue+orders had to be merged",
        ]
    );
    assert_eq!(
        crossing.lines("waits"),
        [
            "deliver.balance after order: until its end (it has nothing of rank 4 or later)",
            "all others: until the partner is shown"
        ]
    );
    assert_eq!(
        crossing.lines("cancels"),
        [
            "order in cancel: before anything is shown",
            "order in cancel2: after stock was shown to others; those that saw it abort too"
        ]
    );
    assert_eq!(
        crossing.lines("hints"),
        [
            "order: do queue before orders, if it needs nothing of what it passes. Then order.orders+history+queue \
             becomes queue | orders; deliver.queue+orders becomes queue | orders",
            "deliver: do orders before queue, if it needs nothing of what it passes. Then order.orders+history+queue \
             becomes orders | queue; deliver.queue+orders becomes orders | queue",
        ]
    );
}

/// A step can have its first wait at a later step of the other transaction, and none before the
/// two types conflict.
#[test]
fn waits_end_at_a_partner_a_later_step_or_the_end() {
    let chain = Analysed::new(
        "name = \"x\"\n[[transaction]]\nname = \"long\"\nsteps = [\"modify a\", \"modify b\", \"modify c\", \"modify d\"]\n\
         [[transaction]]\nname = \"gap\"\nsteps = [\"modify a\", \"modify c\"]\n",
    );
    let conflicts = chain.plan.conflicts(&chain.application.types);
    let waits = chain.plan.waits(&chain.application.types, &conflicts).expect("small");
    assert_eq!(
        waits.beyond_partners,
        [Wait { step: (0, 1), after: 1, until: Until::Shown(1) }, Wait { step: (0, 3), after: 1, until: Until::End },]
    );
    // After another `long` its steps 2 to 4 wait; after `gap`, its step 3. The second step of `gap`
    // waits after both.
    assert_eq!(waits.until_partners, 3 + 1 + 2);
}

#[test]
fn conflicts_and_last_accesses_name_units_and_ranks() {
    let text = "name = \"x\"\n[table.t]\ngroups = [[\"a\"], [\"b\"]]\n[[transaction]]\nname = \"one\"\n\
         steps = [\"modify t.a\", \"read t.b\", \"read t.b\", \"modify u\"]\n[[transaction]]\nname = \"two\"\nsteps = [\"modify t.b\"]\n";
    let two = Analysed::new(text);
    let conflicts = two.plan.conflicts(&two.application.types);
    let of_t_b = Conflict { table: 0, cell: 1, rank: 2, changed_by: vec![(1, 0)], read_by: vec![(0, 1)] };
    assert_eq!(conflicts[1], of_t_b);
    assert_eq!(two.lines("C-edges")[1], "t/1: changed by two.t; read by one.t2+t3");
    assert_eq!(two.lines("SC-cycles"), ["one: t..u, ordered by ranks; t2+t3 joined by common conflicts"]);
    let last = two.plan.last_accesses(&two.application.types);
    let shown: Vec<_> = last[0].iter().map(|access| (access.table, access.cell, access.piece, access.rank)).collect();
    assert_eq!(shown, [(0, 0, 0, 1), (0, 1, 2, 2), (1, 0, 3, 3)]);
}

/// A step is shown when its last piece has ended.
#[test]
fn a_cancel_within_the_first_step_comes_before_anything_is_shown() {
    let text =
        "name = \"x\"\n[[transaction]]\nname = \"a\"\nsteps = [\"modify t\", \"cancel\", \"modify t\", \"cancel\"]\n";
    let twice = Analysed::new(text);
    assert_eq!(
        twice.lines("cancels"),
        [
            "a in cancel: before anything is shown",
            "a in cancel2: after t+cancel+t2 was shown to others; those that saw it abort too"
        ]
    );
    let notes = twice.application.notes_on(&twice.plan, &twice.chopping);
    assert_eq!(notes, ["a may cancel in cancel2, after t+cancel+t2 was shown to others: those that saw it abort too"]);
}

/// A loop over two tables joins what others do apart. Divided by tables it does not.
#[test]
fn a_division_by_tables_is_a_hint() {
    let apart = "name = \"x\"\n[[transaction]]\nname = \"both\"\nsteps = [{ loop = [\"modify t\", \"modify u\"] }]\n\
        [[transaction]]\nname = \"each\"\nsteps = [\"modify t\", \"modify u\"]\n";
    let divided = Analysed::new(apart);
    let hints = Hints::new(&divided.application.types, &divided.plan).hints;
    assert_eq!((hints[0].of, hints[0].change), (0, Change::Divide { piece: 0 }));
    assert_eq!(
        divided.lines("hints"),
        ["both: divide t by tables into t.t, t.u, if they can follow each other. Then both.t becomes t.t | t.u; \
          each.t+u becomes t | u"]
    );
}

/// What large or wide applications get is short, and takes no time.
#[test]
fn large_applications_are_told_in_few_lines() {
    let steps: String = (0..3000).map(|number| format!("\"modify t{number}\", ")).collect();
    let backwards: String = (0..3000).rev().map(|number| format!("\"modify t{number}\", ")).collect();
    let mut text = format!("name = \"x\"\n[[transaction]]\nname = \"a\"\nsteps = [{steps}]\n");
    text += &format!("[[transaction]]\nname = \"b\"\nsteps = [{backwards}]\n");
    let wide = Analysed::new(&text);
    assert_eq!(wide.lines("ranks"), ["1 a.t0+..+t2999 (3000 pieces), b.t2999+..+t0 (3000 pieces)"]);
    assert_eq!(wide.lines("C-edges").len(), 21);
    assert_eq!(wide.lines("C-edges")[20], "and 2980 more");
    assert_eq!(wide.lines("hints"), ["there are none for 12000 pieces and accesses; valid: up to 2000"]);
    let many: String = (0..3000)
        .map(|number| format!("[[transaction]]\nname = \"a{number}\"\nsteps = [\"modify t\", \"modify u\"]\n"))
        .collect();
    let many = Analysed::new(&format!("name = \"x\"\n{many}"));
    assert_eq!(many.lines("waits"), ["there are too many pairs of types and steps to tell"]);
    assert!(many.lines("ranks")[0].ends_with("a7.t, and 2992 more"), "{:?}", many.lines("ranks"));
    let pairs = "\"modify t\", \"modify u\", ".repeat(300);
    let tried = Analysed::new(&format!("name = \"x\"\n[[transaction]]\nname = \"a\"\nsteps = [{pairs}]\n"));
    assert_eq!(tried.lines("hints"), ["the first 500 of 599 changes were tried, the others were not"]);
}

#[test]
fn the_picture_is_xml_and_has_every_step_once() {
    let names = ["<b>", "a&b", "\"quoted\"", "it's", "\u{202e}\u{fffe}"];
    let mut text = CROSSING.replace("name = \"pay\"", "name = 'p<a>&\"y'");
    text += "[[transaction]]\nname = \"report\"\nread_only = true\nsteps = [\"scan orders\", \"scan lines\"]\n";
    for (number, name) in names.iter().enumerate() {
        text += &format!(
            "[[transaction]]\nname = \"n{number}\"\nsteps = [{{ piece = [\"modify stock\"], name = {} }}]\n",
            toml_string(name)
        );
    }
    let drawn = Analysed::new(&text);
    let svg = drawn.plan.to_svg(&drawn.application.types);
    let document = roxmltree::Document::parse(&svg).unwrap_or_else(|error| panic!("{error}\n{svg}"));
    let steps =
        document.descendants().filter(|node| node.attribute("class").is_some_and(|class| class.starts_with("step")));
    let ids: Vec<&str> = steps.clone().filter_map(|node| node.attribute("id")).collect();
    let groups = drawn.plan.types.iter().enumerate();
    let expected: Vec<String> =
        groups.flat_map(|(of, planned)| (0..planned.groups.len()).map(move |group| format!("t{of}g{group}"))).collect();
    assert_eq!(ids, expected);
    let texts: BTreeSet<&str> = document.descendants().filter_map(|node| node.text()).collect();
    for name in ["<b>", "a&b", "\"quoted\"", "it's", "\u{202e}\u{fffd}", "p<a>&\"y", "orders+history+queue"] {
        assert!(texts.contains(name), "{name} is not in {texts:?}");
    }
    let merged = steps.clone().filter(|node| node.attribute("class") == Some("step merged"));
    assert_eq!(merged.count(), 2);
    let edges = |class: &str| document.descendants().filter(|node| node.attribute("class") == Some(class)).count();
    let in_order: usize = drawn.plan.types.iter().map(|of| of.groups.len() - 1).sum();
    assert_eq!(edges("s"), in_order);
    let conflicts = drawn.plan.conflicts(&drawn.application.types);
    assert_eq!((edges("c"), edges("unit")), (conflicts.len(), conflicts.len()));
    assert_eq!(edges("write"), conflicts.iter().map(|unit| unit.changed_by.len()).sum::<usize>());
    assert_eq!(edges("read"), conflicts.iter().map(|unit| unit.read_by.len()).sum::<usize>());
    assert_eq!(edges("band"), drawn.plan.vertices.iter().filter(|vertex| vertex.rank.is_some()).count());
    // Steps of one rank are in one row, and no two steps of a type are.
    let row = |node: roxmltree::Node<'_, '_>| node.children().find_map(|child| child.attribute("y").map(str::to_owned));
    let rows: BTreeSet<_> = steps.map(|node| (node.attribute("id").map(|id| id[..2].to_owned()), row(node))).collect();
    assert_eq!(rows.len(), expected.len());
}

/// A step that accesses many units has no more lines than can be read.
#[test]
fn the_picture_of_many_units_is_bounded() {
    let steps: String = (0..5000).map(|number| format!("\"modify t{number}\", ")).collect();
    let text =
        format!("name = \"x\"\n[[transaction]]\nname = \"a\"\nsteps = [{{ piece = [{steps}], name = \"all\" }}]\n");
    let large = Analysed::new(&text);
    let svg = large.plan.to_svg(&large.application.types);
    assert!(svg.contains(">and 4970 more units</text>") && svg.len() < 10_000, "{}", svg.len());
    let nothing = Analysed::new("name = \"x\"\n[[transaction]]\nname = \"a\"\nsteps = [\"cancel\"]\n");
    roxmltree::Document::parse(&nothing.plan.to_svg(&nothing.application.types)).expect("XML");
}

/// An edge of the graph names its first units, and says how many there are more.
#[test]
fn the_graph_names_the_first_units() {
    let steps: Vec<String> = (0..6).map(|number| format!("\"modify t{number}\"")).collect();
    let text = format!("name = \"x\"\n[[transaction]]\nname = \"a\"\nsteps = [{{ piece = [{}] }}]\n", steps.join(", "));
    let six = Analysed::new(&text);
    let dot = six.plan.to_dot(&six.application.types);
    assert!(dot.contains("label=\"t0, t1, t2, t3, 2 more\""), "{dot}");
}

fn toml_string(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
