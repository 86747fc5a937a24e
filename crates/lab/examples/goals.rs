//! Measures the goals of speed, and writes the table in docs/speed.md.
//!
//! Each goal of docs/goals.toml is a ratio of two throughputs. The two run in turns, a process with
//! two windows each, in nine rounds. The table has the median of the rounds' ratios, and the
//! interval that covers the true median with 96 %: the second smallest and second largest of nine.
//!
//! ```sh
//! cargo run --release -p contend-lab --example goals -- NOW BEFORE [PART_OF_A_NAME]
//! ```
//!
//! NOW is the binary `contend` of this tree, BEFORE that of commit 05905ac. With a part of a name
//! only those goals are measured, and shown instead of written.

use std::error::Error;
use std::process::Command;

use serde::Deserialize;

const ROUNDS: usize = 9;
const GOALS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/goals.toml");
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/speed.md");
/// The lines of the page between which the table stands.
const BEGIN: &str = "<!-- goals: written by the example goals -->";
const END: &str = "<!-- end of goals -->";

#[derive(Deserialize)]
struct Goals {
    goal: Vec<Goal>,
}

#[derive(Deserialize)]
struct Goal {
    name: String,
    peer: Option<String>,
    /// The protocols for which `{}` stands in `now`.
    #[serde(default)]
    protocols: Vec<String>,
    base: String,
    now: String,
    of_peer: Option<f64>,
    want: f64,
}

/// Returns the throughput of a run: the mean of two windows, by two threads unless the goal says
/// otherwise.
fn throughput(binary: &str, arguments: &str) -> Result<f64, Box<dyn Error>> {
    let mut command = Command::new(binary);
    command.arg("run").args(arguments.split_whitespace());
    command.args("--windows 2 --seconds 0.3 --warmup 0.2 --json -".split(' '));
    if !arguments.contains("--threads") {
        command.args(["--threads", "2"]);
    }
    let output = command.output().map_err(|error| format!("{binary}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{binary} run {arguments}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    // A result of another version has other fields, but this one.
    let json: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let median = &json["protocols"][0]["measured"]["throughput_tps"]["median"];
    median.as_f64().ok_or_else(|| format!("{binary} run {arguments}: no throughput").into())
}

/// Returns a row of the table.
fn row(goal: &Goal, protocol: Option<&str>, now: &str, before: &str) -> Result<String, Box<dyn Error>> {
    let arguments = goal.now.replace("{}", protocol.unwrap_or_default());
    let base = if goal.of_peer.is_some() { before } else { now };
    let mut ratios = Vec::new();
    for round in 0..ROUNDS {
        let of_base = || throughput(base, &goal.base);
        let of_now = || throughput(now, &arguments);
        let (base, now) = if round % 2 == 0 {
            let base = of_base()?;
            (base, of_now()?)
        } else {
            let now = of_now()?;
            (of_base()?, now)
        };
        ratios.push(now / base * goal.of_peer.unwrap_or(1.0));
    }
    ratios.sort_by(f64::total_cmp);
    let (median, low, high) = (ratios[ROUNDS / 2], ratios[1], ratios[ROUNDS - 2]);
    let met = if median >= goal.want { "met" } else { "missed" };
    let name = protocol.map_or(goal.name.clone(), |protocol| format!("`{protocol}`: {}", goal.name));
    let beside = goal.peer.clone().unwrap_or_else(|| format!("`{}`", goal.base));
    let row = format!(
        "| {name} | `contend run {arguments}` | {beside} | {median:.2} ({low:.2} to {high:.2}) | {} | {met} |\n",
        goal.want
    );
    eprint!("{row}");
    Ok(row)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (now, before) = match &arguments[..] {
        [now, before, ..] => (now, before),
        _ => return Err("goals NOW BEFORE [PART_OF_A_NAME]: two binaries".into()),
    };
    let part = arguments.get(2);
    let goals: Goals = toml::from_str(&std::fs::read_to_string(GOALS)?)?;
    let mut table =
        String::from("| goal | command | beside | ratio | wanted | |\n| --- | --- | --- | --- | --- | --- |\n");
    for goal in goals.goal.iter().filter(|goal| part.is_none_or(|part| goal.name.contains(part))) {
        if goal.protocols.is_empty() {
            table += &row(goal, None, now, before)?;
        }
        for protocol in &goal.protocols {
            table += &row(goal, Some(protocol), now, before)?;
        }
    }
    if part.is_some() {
        print!("{table}");
        return Ok(());
    }
    let page = std::fs::read_to_string(PAGE)?;
    let (head, rest) = page.split_once(BEGIN).ok_or("docs/speed.md has no place for the table")?;
    let (_, tail) = rest.split_once(END).ok_or("docs/speed.md has no end of the table")?;
    std::fs::write(PAGE, format!("{head}{BEGIN}\n\n{table}\n{END}{tail}"))?;
    Ok(())
}
