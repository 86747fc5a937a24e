//! Trends as expressions over the points, in the language of Rhai.
//!
//! | in an expression | means |
//! | --- | --- |
//! | `T(s, x)` | throughput of series `s` at `x` |
//! | `A(s, x)` | abort ratio, 0 to 1 |
//! | `M(s, x)` | last-level miss ratio, in percent |
//! | `L(s, x)` | median latency in nanoseconds |
//! | `F(s, k)` | share of time in component `k` at the largest x; `F("s@x", k)` at `x` |
//! | `X`, `S` | the x values, the names of the source's series (without those that the file marks `extra`) |
//! | `peak(s)`, `tmax(s)` | the x of the largest throughput, and that throughput |
//! | `near(a, b, r)` | whether `a` and `b` differ by no more than `r` of the larger |
//! | `mono(f, s, dir, tol)` | whether `f` (`"T"`, `"A"`, `"M"`) of `s` goes `"up"` or `"down"`, each step within a factor `tol` |
//! | `rank_corr(u, v)` | Spearman's correlation of two lists |
//! | `median(u)` | the median of a list |
//!
//! If points have several seeds, an expression is also judged by the points of each seed. The
//! verdict is "not told" if it holds for one seed and not for another. It is "not told" as well if
//! a throughput of fewer than [`COMMITS_MIN`] commits decides it: if the outcome changes when that
//! throughput is replaced by nothing, or by that of [`COMMITS_MIN`] commits.
//!
//! `S.all(|s| T(s, 64) > T(s, 1))` and `X.some(|x| ...)` quantify over series and x values. A call
//! for a missing point is an error, and the assertion is not judged.

use contend_model::counted;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rhai::module_resolvers::DummyModuleResolver;
use rhai::{
    ASTNode, Array, Dynamic, Engine, EvalAltResult, Expr, FnCallExpr, OptimizationLevel, Position, Scope, Stmt,
};

use super::{Assertion, Curves, Experiment, Measurement, X};
use crate::result::Spread;

/// The verdict on an assertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It holds.
    Holds,
    /// It does not.
    Fails,
    /// Seeds disagree about it, or too few commits decide it.
    NotTold,
    /// It is about series that do not exist yet.
    Waits,
    /// It could not be evaluated.
    Unclear,
}

impl Verdict {
    /// Returns the verdict in words.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::Fails => "FAILS",
            Verdict::NotTold => "not told",
            Verdict::Waits => "waits",
            Verdict::Unclear => "UNCLEAR",
        }
    }
}

/// A judged assertion.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Judgement {
    /// The assertion's id.
    pub id: String,
    /// The claim of the source.
    pub paper: String,
    /// The expression.
    pub expression: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The numbers that the expression read, or the reason why it was not judged.
    pub numbers: String,
    /// The reason for the failure, if the file gives one.
    pub why: String,
}

/// The number of commits below which a throughput is too uncertain to decide an assertion. With
/// this many commits its standard deviation is 7 %.
pub const COMMITS_MIN: u64 = 200;
/// The largest number of weak throughputs that are varied, in all combinations.
const WEAK_MAX: usize = 6;
/// The largest number of numbers that are shown.
const NUMBERS_MAX: usize = 12;

type Value = Result<f64, Box<EvalAltResult>>;

/// The points, and a record of the numbers that an expression reads.
struct Looked {
    curves: Curves,
    numbers: RefCell<Vec<(String, f64)>>,
    /// The throughputs that were read and have too few commits, as places in the curves.
    weak: RefCell<Vec<(String, usize)>>,
}

impl Looked {
    fn new(curves: Curves) -> Rc<Looked> {
        Rc::new(Looked { curves, numbers: RefCell::default(), weak: RefCell::default() })
    }

    fn point(&self, series: &str, x: &Dynamic) -> Result<&Measurement, Box<EvalAltResult>> {
        let curve = self.curves.get(series).ok_or_else(|| format!("there is no series '{series}'"))?;
        let wanted = x.as_float().ok().or_else(|| x.as_int().ok().map(|x| x as f64));
        let is_it = |point: &&Measurement| match (&point.x, wanted) {
            (X::Text(text), _) => x.clone().into_string().is_ok_and(|x| x == *text),
            (at, Some(wanted)) => at.number().is_some_and(|at| is_same(at, wanted)),
            _ => false,
        };
        curve.iter().find(is_it).ok_or_else(|| format!("series '{series}' has no point at {x}").into())
    }

    fn note(&self, what: String, value: f64) -> f64 {
        let mut numbers = self.numbers.borrow_mut();
        if !numbers.iter().any(|(known, _)| *known == what) {
            numbers.push((what, value));
        }
        value
    }

    fn metric(&self, metric: &str, series: &str, x: &Dynamic) -> Value {
        let point = self.point(series, x)?;
        if metric == "T" && point.commits.is_some_and(|commits| commits < COMMITS_MIN) {
            let place = self.curves[series].iter().position(|other| std::ptr::eq(other, point));
            let place = (series.to_string(), place.expect("it is one of them"));
            let mut weak = self.weak.borrow_mut();
            if !weak.contains(&place) {
                weak.push(place);
            }
        }
        let value = match metric {
            "T" => point.throughput.median,
            "A" => point.abort_rate,
            "M" => point.last_level_misses.ok_or_else(|| format!("'{series}' has no last-level misses"))? * 100.0,
            "L" => point.latency_ns_p50 as f64,
            _ => return Err(format!("unknown metric '{metric}'; valid: T, A, M, L").into()),
        };
        Ok(self.note(format!("{metric}({series},{x})"), value))
    }

    /// Returns the curve's x values with the values of the metric.
    fn curve(&self, metric: &str, series: &str) -> Result<Vec<(Dynamic, f64)>, Box<EvalAltResult>> {
        let curve = self.curves.get(series).ok_or_else(|| format!("there is no series '{series}'"))?;
        curve
            .iter()
            .map(|point| {
                let x = dynamic(&point.x);
                let value = self.metric(metric, series, &x)?;
                Ok((x, value))
            })
            .collect()
    }

    fn peak(&self, metric: &str, series: &str) -> Result<(Dynamic, f64), Box<EvalAltResult>> {
        let best = self.curve(metric, series)?.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        best.ok_or_else(|| format!("series '{series}' has no point").into())
    }

    fn share(&self, series: &str, component: &str) -> Value {
        let (name, x) = match series.split_once('@') {
            Some((name, x)) => {
                let number = x.parse::<f64>().map_err(|_| format!("'{x}' is not a number"))?;
                (name, Dynamic::from(number))
            }
            None => {
                let last = self.curves.get(series).and_then(|curve| curve.last());
                (series, dynamic(&last.ok_or_else(|| format!("there is no series '{series}'"))?.x))
            }
        };
        let point = self.point(name, &x)?;
        let breakdown = point.breakdown.as_ref().ok_or_else(|| format!("'{name}' has no breakdown"))?;
        let wanted = component.to_lowercase();
        let categories = breakdown.categories();
        let found = categories.iter().find(|(category, _)| *category == wanted).map(|(_, share)| *share);
        let share = found.or_else(|| breakdown.operations.get(&wanted).copied());
        let share = share.ok_or_else(|| {
            let names: Vec<&str> = categories.iter().map(|(name, _)| *name).collect();
            format!("unknown component '{component}'; valid: {}", names.join(", "))
        })?;
        Ok(self.note(format!("F({series},{component})"), share))
    }
}

fn dynamic(x: &X) -> Dynamic {
    match x {
        X::Whole(number) => Dynamic::from(*number),
        X::Number(number) => Dynamic::from(*number),
        X::Text(text) => Dynamic::from(text.clone()),
    }
}

fn number(value: &Dynamic) -> Value {
    value
        .as_float()
        .or_else(|_| value.as_int().map(|value| value as f64))
        .map_err(|kind| format!("{kind} is not a number").into())
}

/// Judges all assertions of an experiment by its points.
pub fn judge(experiment: &Experiment, curves: &Curves) -> Vec<Judgement> {
    let is_extra = |name: &str| experiment.series.iter().any(|series| series.extra && series.name == name);
    let series: Vec<&str> = curves.keys().map(String::as_str).filter(|name| !is_extra(name)).collect();
    experiment.assertion.iter().map(|assertion| judge_one(assertion, &series, curves)).collect()
}

fn judge_one(assertion: &Assertion, series: &[&str], curves: &Curves) -> Judgement {
    let judgement = |verdict, numbers| Judgement {
        id: assertion.id.clone(),
        paper: assertion.paper.clone(),
        expression: assertion.holds.clone(),
        verdict,
        numbers,
        why: if verdict == Verdict::Fails { assertion.why.clone() } else { String::new() },
    };
    let missing: Vec<&str> =
        assertion.waits_for.iter().map(String::as_str).filter(|series| !curves.contains_key(*series)).collect();
    if !missing.is_empty() {
        return judgement(Verdict::Waits, format!("for {}", missing.join(", ")));
    }
    let looked = Looked::new(curves.clone());
    let outcome = evaluate(&assertion.holds, series, &looked);
    let numbers = looked.numbers.borrow();
    let shown: Vec<String> =
        numbers.iter().take(NUMBERS_MAX).map(|(what, value)| format!("{what} = {}", show_number(*value))).collect();
    let more =
        if numbers.len() > NUMBERS_MAX { format!(", and {} more", numbers.len() - NUMBERS_MAX) } else { String::new() };
    let shown = format!("{}{more}", shown.join(", "));
    let holds = match outcome {
        Ok(holds) => holds,
        Err(error) => return judgement(Verdict::Unclear, error.to_string()),
    };
    match doubt(&assertion.holds, series, curves, &looked.weak.borrow(), holds) {
        Some(doubt) => judgement(Verdict::NotTold, format!("{doubt}: {shown}")),
        None if holds => judgement(Verdict::Holds, shown),
        None => judgement(Verdict::Fails, shown),
    }
}

/// Returns the reason why the verdict `holds` is not certain, or `None` if it is.
fn doubt(expression: &str, series: &[&str], curves: &Curves, weak: &[(String, usize)], holds: bool) -> Option<String> {
    let is_same =
        |curves: Curves| matches!(evaluate(expression, series, &Looked::new(curves)), Ok(same) if same == holds);
    let seeds = curves.values().flatten().map(|point| point.seeds.len()).max().unwrap_or(0);
    let agree = (0..seeds).filter(|seed| is_same(of_seed(curves, *seed))).count();
    if agree < seeds {
        let holding = if holds { agree } else { seeds - agree };
        return Some(format!("it holds from {holding} of {}", counted(seeds, "seed")));
    }
    let (name, place) = weak.first()?;
    let point = &curves[name][*place];
    let few = || {
        let commits = point.commits.unwrap_or(0);
        format!("T({name},{}) rests on {}, and {COMMITS_MIN} are needed", point.x, counted(commits, "commit"))
    };
    if weak.len() > WEAK_MAX {
        return Some(format!("{}, as {} more", few(), weak.len() - 1));
    }
    let otherwise = |choice: u32| {
        let mut curves = curves.clone();
        for (number, (name, place)) in weak.iter().enumerate() {
            let point = &mut curves.get_mut(name).expect("it was looked at")[*place];
            let is_many = choice >> number & 1 == 1;
            point.throughput.median = if is_many { point.throughput_of_one * COMMITS_MIN as f64 } else { 0.0 };
        }
        !is_same(curves)
    };
    (0..1u32 << weak.len()).any(otherwise).then(few)
}

/// Returns the points of one seed. A point with fewer seeds is returned as it is.
fn of_seed(curves: &Curves, seed: usize) -> Curves {
    let point = |point: &Measurement| point.seeds.get(seed).unwrap_or(point).clone();
    curves.iter().map(|(name, points)| (name.clone(), points.iter().map(point).collect())).collect()
}

/// Formats a number with four digits, whatever its size.
fn show_number(value: f64) -> String {
    if value == 0.0 || (1e-3..1e4).contains(&value.abs()) { format!("{value:.4}") } else { format!("{value:.3e}") }
}

/// Checks an expression for mistakes that do not depend on measurements: of syntax, unknown names,
/// and series or points that no curve will have. `curves` are the planned points; `waits_for` names
/// series that do not exist yet. An error has the position in the expression, and a message.
pub(super) fn check(
    expression: &str,
    curves: &BTreeMap<String, Vec<X>>,
    waits_for: &[String],
) -> Result<(), (Position, String)> {
    let mut engine = engine(&Looked::new(Curves::new()));
    engine.set_optimization_level(OptimizationLevel::None).set_strict_variables(true);
    let mut scope = Scope::new();
    scope.push("S", Array::new()).push("X", Array::new());
    let ast = engine
        .compile_with_scope(&scope, expression)
        .map_err(|error| (error.position(), error.err_type().to_string()))?;
    let signatures = engine.gen_fn_signatures(true);
    let name_of = |signature: &str| signature.split('(').next().unwrap_or_default().trim().to_owned();
    let known: HashSet<String> = signatures.iter().map(|signature| name_of(signature)).collect();
    let mut wrong = None;
    ast.walk(&mut |path| {
        let (call, at) = match path.last() {
            Some(ASTNode::Expr(Expr::FnCall(call, at) | Expr::MethodCall(call, at))) => (call, *at),
            Some(ASTNode::Stmt(Stmt::FnCall(call, at))) => (call, *at),
            _ => return true,
        };
        wrong = check_call(call, curves, waits_for, &known).err().map(|message| (at, message));
        wrong.is_none()
    });
    wrong.map_or(Ok(()), Err)
}

/// Functions of the language that are in no list of functions.
const KEYWORDS: [&str; 5] = ["call", "curry", "Fn", "type_of", "is_shared"];

fn check_call(
    call: &FnCallExpr,
    curves: &BTreeMap<String, Vec<X>>,
    waits_for: &[String],
    known: &HashSet<String>,
) -> Result<(), String> {
    let name = call.name.as_str();
    let is_word = name.chars().all(|c| c.is_alphanumeric() || c == '_');
    if is_word && !known.contains(name) && !KEYWORDS.contains(&name) {
        return Err(format!(
            "there is no function '{name}'; valid: T, A, M, L, F, peak, tmax, peak_of, near, mono, rank_corr, median, and those of Rhai"
        ));
    }
    let text = |number: usize| match call.args.get(number) {
        Some(Expr::StringConstant(text, _)) => Some(text.as_str()),
        _ => None,
    };
    let (metric, series) = match name {
        "T" | "A" | "M" | "L" | "F" | "peak" | "tmax" => (None, text(0)),
        "peak_of" | "mono" => (text(0), text(1)),
        _ => return Ok(()),
    };
    if let Some(metric) = metric.filter(|metric| !METRICS.contains(metric)) {
        return Err(format!("unknown metric '{metric}'; valid: {}", METRICS.join(", ")));
    }
    let Some(series) = series else { return Ok(()) };
    let series = if name == "F" { series.split('@').next().unwrap_or_default() } else { series };
    if waits_for.iter().any(|waited| waited == series) {
        return Ok(());
    }
    let Some(xs) = curves.get(series) else {
        let valid: Vec<&str> = curves.keys().map(String::as_str).collect();
        return Err(format!("there is no series '{series}'; valid: {}", valid.join(", ")));
    };
    if METRICS.contains(&name)
        && let Some(at) = call.args.get(1)
    {
        let is_there = |x: &X| match (at, x) {
            (Expr::StringConstant(at, _), X::Text(x)) => at.as_str() == x,
            (Expr::IntegerConstant(at, _), x) => x.number().is_some_and(|x| is_same(x, *at as f64)),
            (Expr::FloatConstant(at, _), x) => x.number().is_some_and(|x| is_same(x, **at)),
            // A computed argument is known only at evaluation.
            (Expr::StringConstant(..), _) => false,
            _ => true,
        };
        if !xs.iter().any(is_there) {
            let valid: Vec<String> = xs.iter().map(X::to_string).collect();
            return Err(format!("series '{series}' does not have the point of this call; valid: {}", valid.join(", ")));
        }
    }
    Ok(())
}

/// The metrics of a point.
const METRICS: [&str; 4] = ["T", "A", "M", "L"];

/// Returns whether two places on an axis are the same.
fn is_same(at: f64, wanted: f64) -> bool {
    (at - wanted).abs() <= 1e-9 * at.abs().max(1.0)
}

fn evaluate(expression: &str, series: &[&str], looked: &Rc<Looked>) -> Result<bool, Box<EvalAltResult>> {
    let mut scope = Scope::new();
    let series: Array = series.iter().map(|name| Dynamic::from(name.to_string())).collect();
    let longest = looked.curves.values().max_by_key(|curve| curve.len());
    let xs: Array = longest.into_iter().flatten().map(|point| dynamic(&point.x)).collect();
    scope.push("S", series);
    scope.push("X", xs);
    engine(looked).eval_with_scope::<bool>(&mut scope, expression)
}

/// The longest time that one expression may take. A limit on operations alone is not enough,
/// because one operation may copy a long list.
const TIME_MAX: Duration = Duration::from_secs(2);

/// Returns the language, confined so that an untrusted expression does no harm: it ends, its values
/// stay small, and it reads no file.
fn confined() -> Engine {
    let mut engine = Engine::new();
    engine.set_max_operations(1_000_000);
    engine.set_max_string_size(64 << 10);
    engine.set_max_array_size(10_000);
    engine.set_max_map_size(1_000);
    engine.set_max_variables(1_000);
    engine.set_max_functions(100);
    engine.set_max_call_levels(16);
    engine.set_max_expr_depths(64, 32);
    engine.set_module_resolver(DummyModuleResolver::new());
    let begun = Instant::now();
    engine.on_progress(move |_| (begun.elapsed() > TIME_MAX).then(|| "it takes too long".into()));
    engine.on_print(|_| {}).on_debug(|_, _, _| {});
    let refuse = || -> Result<(), Box<EvalAltResult>> { Err("an expression can't sleep".into()) };
    engine.register_fn("sleep", move |_: i64| refuse());
    engine.register_fn("sleep", move |_: f64| refuse());
    engine
}

/// Returns the language with the functions of the module's table.
fn engine(looked: &Rc<Looked>) -> Engine {
    let mut engine = confined();
    for metric in ["T", "A", "M", "L"] {
        let at = Rc::clone(looked);
        engine.register_fn(metric, move |series: &str, x: Dynamic| -> Value { at.metric(metric, series, &x) });
        let only = Rc::clone(looked);
        engine.register_fn(metric, move |series: &str| -> Value {
            let curve = only.curve(metric, series)?;
            match &curve[..] {
                [(_, value)] => Ok(*value),
                _ => Err(format!("series '{series}' has {}: say which", counted(curve.len(), "point")).into()),
            }
        });
    }
    let of = Rc::clone(looked);
    engine.register_fn("F", move |series: &str, component: &str| -> Value { of.share(series, component) });
    let of = Rc::clone(looked);
    engine.register_fn("peak", move |series: &str| -> Result<Dynamic, Box<EvalAltResult>> {
        Ok(of.peak("T", series)?.0)
    });
    let of = Rc::clone(looked);
    engine.register_fn("tmax", move |series: &str| -> Value { Ok(of.peak("T", series)?.1) });
    let of = Rc::clone(looked);
    engine.register_fn("peak_of", move |metric: &str, series: &str| -> Result<Dynamic, Box<EvalAltResult>> {
        Ok(of.peak(metric, series)?.0)
    });
    engine.register_fn("near", |a: Dynamic, b: Dynamic, ratio: f64| -> Result<bool, Box<EvalAltResult>> {
        let (a, b) = (number(&a)?, number(&b)?);
        Ok((a - b).abs() <= ratio * a.max(b))
    });
    let of = Rc::clone(looked);
    engine.register_fn(
        "mono",
        move |metric: &str, series: &str, direction: &str, tolerance: f64| -> Result<bool, Box<EvalAltResult>> {
            let curve = of.curve(metric, series)?;
            let step = |pair: &[(Dynamic, f64)]| match direction {
                "up" => pair[1].1 * tolerance >= pair[0].1,
                _ => pair[1].1 <= pair[0].1 * tolerance,
            };
            Ok(curve.windows(2).all(step))
        },
    );
    engine.register_fn("rank_corr", |u: Array, v: Array| -> Value {
        let numbers = |list: &Array| list.iter().map(number).collect::<Result<Vec<f64>, _>>();
        spearman(&numbers(&u)?, &numbers(&v)?)
            .ok_or_else(|| "rank_corr takes two lists of the same length, two or more numbers each".into())
    });
    engine.register_fn("median", |list: Array| -> Value {
        let numbers = list.iter().map(number).collect::<Result<Vec<f64>, _>>()?;
        Spread::of(numbers).map(|spread| spread.median).ok_or_else(|| "median takes a non-empty list".into())
    });
    engine
}

/// Returns Spearman's rank correlation: Pearson's correlation of the ranks, where ties share a
/// rank.
pub(crate) fn spearman(u: &[f64], v: &[f64]) -> Option<f64> {
    if u.len() != v.len() || u.len() < 2 {
        return None;
    }
    let ranks = |values: &[f64]| -> Vec<f64> {
        let rank = |value: &f64| {
            let below = values.iter().filter(|other| *other < value).count();
            let same = values.iter().filter(|other| *other == value).count();
            below as f64 + (same as f64 - 1.0) / 2.0
        };
        values.iter().map(rank).collect()
    };
    let (u, v) = (ranks(u), ranks(v));
    let mean = |ranks: &[f64]| ranks.iter().sum::<f64>() / ranks.len() as f64;
    let (mean_u, mean_v) = (mean(&u), mean(&v));
    let sum = |of: &dyn Fn(f64, f64) -> f64| u.iter().zip(&v).map(|(u, v)| of(u - mean_u, v - mean_v)).sum::<f64>();
    let spread = (sum(&|u, _| u * u) * sum(&|_, v| v * v)).sqrt();
    Some(if spread == 0.0 { 0.0 } else { sum(&|u, v| u * v) / spread })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curves() -> Curves {
        let point = |series: &str, x: i64, throughput: f64| Measurement {
            series: series.into(),
            x: X::Whole(x),
            abort_rate: 1.0 / throughput,
            latency_ns_p50: 5,
            latency_ns_p99: 9,
            last_level_misses: Some(0.25),
            breakdown: Some(crate::result::Breakdown { wait: 0.75, ..Default::default() }),
            throughput_of_one: 1.0,
            ..Measurement::of(Spread { median: throughput, min: throughput, max: throughput })
        };
        let curve = |name: &str, values: [f64; 3]| {
            let points = [1, 2, 4].into_iter().zip(values).map(|(x, value)| point(name, x, value)).collect();
            (name.to_string(), points)
        };
        Curves::from([curve("up", [10.0, 20.0, 40.0]), curve("hump", [10.0, 30.0, 15.0])])
    }

    fn verdict(expression: &str) -> (Verdict, String) {
        verdict_of(expression, &curves())
    }

    fn verdict_of(expression: &str, curves: &Curves) -> (Verdict, String) {
        let assertion = Assertion {
            id: "a".into(),
            paper: String::new(),
            holds: expression.into(),
            waits_for: Vec::new(),
            why: String::new(),
        };
        let judged = judge_one(&assertion, &["hump", "up"], curves);
        (judged.verdict, judged.numbers)
    }

    #[test]
    fn what_seeds_differ_about_is_not_told() {
        let mut curves = curves();
        // T(up,2) is 20 in the middle, and 10 from the third seed; T(hump,1) is 10 and has no
        // seeds.
        let of = |throughput: f64| {
            let point = curves["up"][1].clone();
            Measurement { throughput: Spread { median: throughput, min: throughput, max: throughput }, ..point }
        };
        let seeds = vec![of(20.0), of(30.0), of(10.0)];
        curves.get_mut("up").expect("a curve")[1].seeds = seeds;
        let (told, why) = verdict_of(r#"T("up",2) > T("hump",1)"#, &curves);
        assert_eq!(told, Verdict::NotTold);
        assert!(why.starts_with("it holds from 2 of 3 seeds: T(up,2) = 20"), "{why}");
        let (told, why) = verdict_of(r#"T("up",2) <= T("hump",1)"#, &curves);
        assert!(told == Verdict::NotTold && why.starts_with("it holds from 1 of 3 seeds: "), "{why}");
        assert_eq!(verdict_of(r#"T("up",2) < T("hump",1)"#, &curves).0, Verdict::Fails, "from no seed");
        assert_eq!(verdict_of(r#"T("up",2) >= T("hump",1)"#, &curves).0, Verdict::Holds);
        assert_eq!(verdict_of(r#"T("up",2) > 2*T("up",4)"#, &curves).0, Verdict::Fails);
    }

    #[test]
    fn an_expression_of_a_stranger_ends_and_stays_small() {
        let (looked, deep) = (Looked::new(curves()), format!("{}true{}", "(".repeat(10_000), ")".repeat(10_000)));
        for (hostile, why) in [
            ("loop { }", "too many operations"),
            ("let n = 0; while n >= 0 { n += 1; } true", "too many operations"),
            (r#"let s = "xxxxxxxx"; loop { s += s; }"#, "length of string"),
            (r#"let s = "x"; s.pad(1000000000000, "y"); true"#, "length of string"),
            ("let a = [1]; loop { a += a; }", "size of array"),
            ("let a = []; a.pad(1000000000000, 1); true", "size of array"),
            ("let b = blob(1000000000000); true", "size of"),
            ("let a = []; loop { a = [a]; }", ""),
            (r#"let m = #{}; let n = 0; loop { m["k" + n] = n; n += 1; }"#, "too many operations"),
            ("fn f(n) { f(n + 1) } f(0)", "stack overflow"),
            (&deep, "exceeds maximum complexity"),
            (r#"import "/etc/passwd" as p; true"#, "module"),
            ("sleep(1000000); true", "can't sleep"),
            ("sleep(1000000.0); true", "can't sleep"),
            (r#"eval("loop { }")"#, "too many operations"),
            ("let a = []; a.pad(9999, 1); loop { a == a; }", ""),
        ] {
            let said = evaluate(hostile, &[], &looked).expect_err(hostile).to_string();
            assert!(said.to_lowercase().contains(why), "{}: {said}", &hostile[..hostile.len().min(80)]);
        }
        assert!(evaluate("let n = 0; while n < 1000 { n += 1; } n == 1000", &[], &looked).expect("it is small"));
    }

    #[test]
    fn few_commits_decide_nothing() {
        let mut curves = curves();
        // Ten commits were a throughput of 10; 200 would be one of 200.
        curves.get_mut("up").expect("a curve")[0].commits = Some(10);
        let (told, why) = verdict_of(r#"T("up",1) < T("up",2)"#, &curves);
        assert_eq!(told, Verdict::NotTold);
        assert!(why.starts_with("T(up,1) rests on 10 commits, and 200 are needed: "), "{why}");
        assert_eq!(verdict_of(r#"T("up",1) < T("up",2)*20.0"#, &curves).0, Verdict::Holds, "it does not decide this");
        assert_eq!(verdict_of(r#"T("up",1) > T("up",2)*20.0"#, &curves).0, Verdict::Fails);
        assert_eq!(verdict_of(r#"T("up",2) < T("up",4)"#, &curves).0, Verdict::Holds, "it is not looked at");
        curves.get_mut("up").expect("a curve")[0].commits = Some(200);
        assert_eq!(verdict_of(r#"T("up",1) < T("up",2)"#, &curves).0, Verdict::Holds);
    }

    #[test]
    fn the_language_of_the_catalogue_is_there() {
        for holds in [
            r#"T("up",4) >= 0.8*4*T("up",1) && T("hump",4) < tmax("hump")"#,
            r#"peak("hump") == 2 && peak("up") == 4"#,
            r#"S.all(|s| T(s,2) > T(s,1))"#,
            r#"X.all(|x| near(T("up",x), 10.0*x, 0.01))"#,
            r#"mono("T","up","up",1.0) && !mono("T","hump","up",1.0) && mono("A","up","down",1.0)"#,
            r#"F("up","WAIT") >= 0.7 && F("hump@2","wait") == 0.75"#,
            r#"M("up",1) == 25.0 && L("up",1) == 5.0"#,
            r#"rank_corr([1,2,3],[10,20,30]) == 1.0 && rank_corr([1,2,3],[3,2,1]) == -1.0"#,
        ] {
            assert_eq!(verdict(holds).0, Verdict::Holds, "{holds}: {}", verdict(holds).1);
        }
    }

    #[test]
    fn what_fails_says_the_numbers_and_what_is_unclear_says_why() {
        let (failed, numbers) = verdict(r#"T("up",1) > T("up",4)"#);
        assert_eq!(failed, Verdict::Fails);
        assert_eq!(numbers, "T(up,1) = 10.0000, T(up,4) = 40.0000");
        for (expression, part) in
            [(r#"T("up",3) > 1"#, "no point at 3"), (r#"T("x",1) > 1"#, "no series 'x'"), ("T(", ""), ("1 + 1", "")]
        {
            let (unclear, why) = verdict(expression);
            assert_eq!(unclear, Verdict::Unclear, "{expression}");
            assert!(why.contains(part), "{part} is not in: {why}");
        }
    }

    #[test]
    fn an_assertion_about_what_is_not_there_waits() {
        let assertion = Assertion {
            id: "a".into(),
            paper: String::new(),
            holds: r#"T("OCC",1) > 0"#.into(),
            why: "because".into(),
            waits_for: vec!["OCC".into(), "up".into()],
        };
        let judged = judge_one(&assertion, &["hump", "up"], &curves());
        assert_eq!((judged.verdict, judged.numbers.as_str()), (Verdict::Waits, "for OCC"));
    }
}
