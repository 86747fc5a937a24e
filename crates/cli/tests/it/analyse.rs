//! `contend analyse`.

use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{contend, refuses, text};

const SHOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/shop.toml");

#[test]
fn the_example_is_analysed_in_every_form() {
    let folder = TempDir::new().expect("a folder");
    let run = |arguments: &[&str]| {
        let output = contend(folder.path(), &[&["analyse", SHOP], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let shown = run(&[]);
    // docs/pieces.md quotes the output.
    let document = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/pieces.md")).expect("it");
    let quoted = document.split("$ contend analyse docs/shop.toml\n").nth(1).and_then(|rest| rest.split("```").next());
    assert_eq!(Some(&*shown), quoted);
    let json: Value = serde_json::from_str(&run(&["--format", "json"])).expect("JSON");
    assert_eq!(json[0]["study"]["transactions"], 5);
    assert_eq!(json[0]["plan"]["types"][0]["groups"][2]["rank"], 1);
    assert_eq!(json[0]["conflicts"][0]["changed_by"], serde_json::json!([[0, 2], [3, 0]]));
    assert_eq!(json[0]["last_accesses"][0][0]["piece"], 2);
    assert_eq!(json[0]["hints"]["hints"][0]["change"]["before"]["piece"], 1);
    assert_eq!(json[0]["waits"]["beyond_partners"], serde_json::json!([]));
    let csv = run(&["--format", "csv"]);
    assert_eq!(csv.lines().collect::<Vec<_>>().len(), 2, "{csv}");
    assert!(run(&["--format", "dot"]).starts_with("digraph plan {"));
    let svg = run(&["--format", "svg"]);
    assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n") && svg.contains("id=\"t0g2\""), "{svg}");
    let coarse = run(&["--ts", "off", "--cu", "off", "--snapshots", "off"]);
    assert!(coarse.contains("(ts=off, cu=off)") && !coarse.contains("sum  "), "{coarse}");
}

#[test]
fn workloads_are_analysed_by_what_they_declare() {
    let folder = TempDir::new().expect("a folder");
    let run = |arguments: &[&str]| {
        let output = contend(folder.path(), &[&["analyse"], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let tpcc = run(&["tpcc"]);
    for part in ["[1 stocks] [2 number] [3 queue] [4 order] by_customer [5 lines]", "order_status  on a snapshot"] {
        assert!(tpcc.contains(part), "'{part}' is not in:\n{tpcc}");
    }
    let pieces = run(&["pieces", "--set", "pieces.pieces=3"]);
    assert!(pieces.contains("chain  [1 1] [2 2] [3 3]"), "{pieces}");
    let all = run(&["tpcc", "tatp", "bank", "--format", "csv"]);
    assert_eq!(all.lines().count(), 4, "{all}");
    refuses(&["analyse", "litmus-random"], &["litmus-random declares no pieces; valid: a workload that does"]);
    refuses(&["analyse", "pieces", "--set", "pieces.pieces=0"], &["pieces.pieces", "1"]);
    refuses(&["analyse", "tpc"], &["tpc: No such file"]);
}

/// docs/pieces.md shows pictures, and quotes what is learned. `UPDATE_DOCS=1` writes the pictures.
#[test]
fn the_pictures_and_quotations_of_the_document_are_what_the_program_says() {
    let (docs, folder) = (Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs")), TempDir::new().expect("it"));
    let document = std::fs::read_to_string(docs.join("pieces.md")).expect("the document");
    let run = |arguments: &[&str]| {
        let output = contend(folder.path(), &[&["analyse"], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    for (picture, application) in [("pieces-tpcc.svg", "tpcc"), ("pieces-shop.svg", SHOP)] {
        let (drawn, path) = (run(&[application, "--format", "svg"]), docs.join(picture));
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, &drawn).expect("written");
        }
        let committed = std::fs::read_to_string(&path).expect("a picture of the document");
        assert_eq!(committed, drawn, "{picture}; draw it anew by UPDATE_DOCS=1");
        assert!(document.contains(&format!("({picture})")), "{picture} is shown");
    }
    let quoted =
        document.split("$ contend analyse bank --learn 100\n").nth(1).and_then(|rest| rest.split("```").next());
    assert_eq!(quoted, Some(&*run(&["bank", "--learn", "100"])));
}

#[test]
fn declarations_are_learned_from_samples() {
    let folder = TempDir::new().expect("a folder");
    let run = |arguments: &[&str]| {
        let output = contend(folder.path(), &[&["analyse"], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let tpcc = run(&["tpcc", "--learn", "300"]);
    for part in [
        "// tpcc: last_order_status ran 0 times\n",
        "// all that is declared was used, and nothing else\n",
        "    pub const STOCKS: Piece = Piece::new(2, \"stocks\");\n",
        "        .piece(new_order::NUMBER, |piece| piece.modify(&tables.district, District::NEXT_O_ID))\n",
        "    types.leave_out(\"last_order_status\");\n",
        "        .add_read_only(\"stock_level\")\n",
    ] {
        assert!(tpcc.contains(part), "'{part}' is not in:\n{tpcc}");
    }
    // Without roll-backs, a cancel is declared in vain.
    let declared = run(&["tpcc-ic3-no", "--learn", "50", "--set", "tpcc.rollback=0"]);
    assert!(declared.contains("// never used: new_order, piece items: cancels\n"), "{declared}");
    // A workload without pieces gets some proposed.
    let guessed = run(&["litmus-random", "--learn", "100"]);
    assert!(guessed.contains("// nothing is declared\n") && guessed.contains("Piece::new(0, "), "{guessed}");
    for wrong in ["0", "100001"] {
        let sentence = format!("--learn {wrong} is no number of transactions; valid: 1 to 100000");
        refuses(&["analyse", "tpcc", "--learn", wrong], &[&sentence]);
    }
    refuses(&["analyse", "tpcc", "--learn", "many"], &["many", "--learn", "digits"]);
    refuses(
        &["analyse", SHOP, "--learn", "5"],
        &["--learn runs transactions, and this file has none to run; valid: a workload file"],
    );
    refuses(&["analyse", "tpcc", "--learn", "5", "--format", "json"], &["valid: --format text"]);
}

#[test]
fn files_that_are_no_application_are_refused() {
    refuses(&["analyse"], &["FILE.toml"]);
    refuses(&["analyse", "nowhere.toml"], &["nowhere.toml: No such file"]);
    refuses(&["analyse", "/dev/null"], &["/dev/null: ", "missing field `name`"]);
    refuses(&["analyse", "/dev/zero"], &["/dev/zero: an application has at most 4 MiB"]);
    refuses(&["analyse", SHOP, "--ts", "maybe"], &["'maybe'", "on, off"]);
    refuses(&["analyse", SHOP, "--format", "png"], &["'png'", "text, json, csv, dot, svg"]);
    refuses(&["analyse", SHOP, SHOP, "--format", "svg"], &["--format svg has 2 applications; valid: one"]);
    let folder = TempDir::new().expect("a folder");
    let steps = "\"write t\", ".repeat(600);
    let wide: String = (0..2)
        .map(|number| format!("[[transaction]]\nname = \"a{number}\"\nsteps = [{}]\n", steps.replace("write", "read")))
        .collect();
    std::fs::write(folder.path().join("wide.toml"), format!("name = \"x\"\n{wide}")).expect("written");
    for (format, what) in [("dot", "a graph"), ("svg", "a picture")] {
        let output = contend(folder.path(), &["analyse", "wide.toml", "--format", format]);
        assert_eq!(output.status.code(), Some(2));
        let (message, stderr) = (format!("x has 1200 steps; valid for {what}: up to 500"), text(&output.stderr));
        assert!(stderr.contains(&message), "{stderr}");
    }
    let both = "{ piece = [\"modify t\", \"modify u\"], name = \"both\" }";
    let many: String =
        (0..400).map(|number| format!("[[transaction]]\nname = \"a{number}\"\nsteps = [{both}]\n")).collect();
    std::fs::write(folder.path().join("dense.toml"), format!("name = \"x\"\n{many}")).expect("written");
    let output = contend(folder.path(), &["analyse", "dense.toml", "--format", "dot"]);
    let stderr = text(&output.stderr);
    assert!(stderr.contains("x has 320000 conflicts; valid for a graph: up to 200000"), "{stderr}");
}
