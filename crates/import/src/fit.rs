//! Fits: for each parameter of each statement, the expression that draws it.
//!
//! In this order: a constant, equal to an earlier parameter, sequential, uniform, zipfian by
//! maximum likelihood, else empirical. Beside each fit stands its Kolmogorov-Smirnov distance.

use contend_model::counted;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::domain::{Domain, Domains};
use crate::spectrum::Spectrum;
use crate::trace::{INTERNED, NULL, Template, Trace, UNKNOWN};
use crate::translate::{ColumnAt, Role, Verb};
use crate::types::TransactionType;

/// Distances from uniform, in standard deviations, up to which a sample is uniform.
const UNIFORM_DEVIATIONS: f64 = 4.0;
/// The skew below which a distribution is called uniform.
const UNIFORM_THETA: f64 = 0.05;
/// The Kolmogorov-Smirnov distance up to which a fit is taken.
const DISTANCE_MAX: f64 = 0.05;
/// The ranks that an empirical distribution tells one by one.
const SINGLE_RANKS: u64 = 31;
/// The rows of a range whose width is unknown.
const UNKNOWN_WIDTH: i64 = 10;

/// How a parameter gets its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum How {
    /// It is written as it is, and needs no variable.
    Plain(String),
    /// It is the value of an earlier parameter: of this statement and of this number.
    Equal(usize, usize),
    /// It is drawn by this expression.
    Draw(String),
    /// It is drawn in two steps. `\u{3}` stands for the variable of the first.
    Steps(String, String),
    /// It counts the rounds of its loop, from 1.
    Counter,
    /// It is a parameter of the same statement plus this expression.
    Above(usize, String),
}

/// A fitted parameter.
#[derive(Clone, Debug)]
pub(crate) struct Fit {
    pub(crate) how: How,
    /// What the fit is, for a comment; empty if there is nothing to say.
    pub(crate) comment: String,
}

impl Fit {
    fn plain(text: impl Into<String>) -> Fit {
        Fit { how: How::Plain(text.into()), comment: String::new() }
    }

    fn draw(expression: impl Into<String>, comment: impl Into<String>) -> Fit {
        Fit { how: How::Draw(expression.into()), comment: comment.into() }
    }
}

/// What a user chooses of the fits.
#[derive(Clone, Debug, Default)]
pub(crate) struct FitOptions {
    /// Whether values may be written.
    pub(crate) values: bool,
    /// The rows of tables.
    pub(crate) rows: BTreeMap<usize, u64>,
    /// The rows that each call of a template returns, if the trace has nothing but that.
    pub(crate) widths: HashMap<usize, f64>,
}

/// All fits of a trace.
#[derive(Clone, Debug)]
pub(crate) struct Fits {
    pub(crate) domains: Domains,
    /// By type, statement and parameter.
    pub(crate) of: Vec<Vec<Vec<Fit>>>,
    /// By type, the rounds of each loop.
    pub(crate) rounds: Vec<Vec<Fit>>,
    pub(crate) notes: Vec<String>,
    pub(crate) read: BTreeSet<usize>,
    pub(crate) used: BTreeSet<usize>,
    /// Columns that are given new numbers, which grow.
    pub(crate) fresh: BTreeSet<ColumnAt>,
}

/// A parameter: a type, a statement and its number.
type At = (usize, usize, usize);

/// What is known of parameters before the sizes of domains.
struct Relations {
    equal: HashMap<At, (usize, usize)>,
    fresh: HashSet<At>,
    /// Parameters that count the rounds of a loop.
    counting: HashSet<At>,
}

/// Fits all parameters.
pub(crate) fn fits_of(trace: &Trace, types: &[TransactionType], options: &FitOptions) -> Fits {
    let mut domains = Domains::of(&trace.schema);
    let roles: Vec<Vec<Role>> = trace.templates.iter().map(|template| roles_of(trace, template)).collect();
    let relations = relations_of(trace, types, &roles, &mut domains);
    let (mut used, mut read) = (BTreeSet::new(), BTreeSet::new());
    for (number, of) in types.iter().enumerate() {
        for (at, statement) in of.statements.iter().enumerate() {
            let Some(known) = trace.templates[statement.template].statement() else { continue };
            used.insert(known.table);
            if known.verb != Verb::Insert || known.text.contains("on conflict") {
                read.insert(known.table);
            }
            for (parameter, role) in roles[statement.template].iter().enumerate() {
                let place = (number, at, parameter);
                if let Role::Key(column) | Role::Low(column) | Role::High(column, None) = *role
                    && !relations.equal.contains_key(&place)
                {
                    let values = &statement.values[parameter];
                    let is_unread = relations.fresh.contains(&place) || relations.counting.contains(&place);
                    // A constant says nothing of how often other keys are accessed.
                    let count = if constant_of(values).is_some() { 1 } else { values.len() };
                    domains.see(column, if is_unread { &[] } else { &values[..count.min(values.len())] });
                }
            }
        }
    }
    let fresh = relations
        .fresh
        .iter()
        .filter_map(|&(number, at, parameter)| key_of(roles[types[number].statements[at].template][parameter]));
    let fresh = fresh.collect();
    let notes = domains.size(&trace.schema, &used, &read, &options.rows);
    let mut work = Work { trace, types, options, roles, domains, relations };
    let of = (0..types.len()).map(|number| work.of_type(number)).collect();
    let rounds = types.iter().map(|of| of.groups.iter().map(|group| count(&group.rounds)).collect()).collect();
    Fits { domains: work.domains, of, rounds, notes, read, used, fresh }
}

/// Whether a parameter is one of a key.
fn key_of(role: Role) -> Option<ColumnAt> {
    match role {
        Role::Key(at) | Role::Low(at) | Role::High(at, _) => Some(at),
        _ => None,
    }
}

/// Returns the only value that is not null.
fn constant_of(values: &[i64]) -> Option<i64> {
    let first = *values.first()?;
    values.iter().all(|value| *value == first).then_some(first)
}

/// Returns the roles of a template's parameters. A column of an index that no statement uses is a
/// number like others.
fn roles_of(trace: &Trace, template: &Template) -> Vec<Role> {
    let role = |role: &Role| match *role {
        Role::Key(at) if !trace.finds_rows(at) => Role::Stored(at),
        other => other,
    };
    template.statement().map_or(Vec::new(), |known| known.roles.iter().map(role).collect())
}

fn relations_of(trace: &Trace, types: &[TransactionType], roles: &[Vec<Role>], domains: &mut Domains) -> Relations {
    let mut relations = Relations { equal: HashMap::new(), fresh: HashSet::new(), counting: HashSet::new() };
    for (number, of) in types.iter().enumerate() {
        let mut earlier: Vec<(usize, usize, Role)> = Vec::new();
        for (at, statement) in of.statements.iter().enumerate() {
            let Some(known) = trace.templates[statement.template].statement() else { continue };
            let roles = &roles[statement.template];
            for (parameter, &role) in roles.iter().enumerate() {
                if matches!(role, Role::Unused | Role::Text(_) | Role::Count) {
                    continue;
                }
                let values = &statement.values[parameter];
                if constant_of(values).is_none() {
                    let same = earlier.iter().find(|(other, place, other_role)| {
                        // A few numbers of two kinds may be equal by chance.
                        let is_alike = key_of(*other_role).is_some() == key_of(role).is_some();
                        (is_alike || values.len() >= 8) && is_equal(of, (*other, *place), (at, parameter))
                    });
                    if let Some(&(other, place, other_role)) = same {
                        relations.equal.insert((number, at, parameter), (other, place));
                        if let (Some(a), Some(b)) = (key_of(role), key_of(other_role)) {
                            domains.join(a, b);
                        }
                        continue;
                    }
                    if statement.group.is_some_and(|group| is_counting(values, &of.groups[group].rounds)) {
                        relations.counting.insert((number, at, parameter));
                    }
                }
                earlier.push((at, parameter, role));
            }
            if known.verb == Verb::Insert && !known.text.contains("on conflict") {
                let key: Vec<usize> = (0..roles.len())
                    .filter(|&parameter| match roles[parameter] {
                        Role::Key(column) => trace.schema.tables[known.table].key.contains(&column.column),
                        _ => false,
                    })
                    .collect();
                let free = |parameter: &usize| !relations.equal.contains_key(&(number, at, *parameter));
                // The rounds of a loop differ already, if another column is that of the
                // transaction.
                let is_of = |set: &HashSet<At>, parameter: &usize| set.contains(&(number, at, *parameter));
                let counts = key.iter().any(|parameter| is_of(&relations.counting, parameter));
                let belongs = key.iter().any(|parameter| !free(parameter));
                if let Some(parameter) = fresh_of(&statement.values, &key, free).filter(|_| !(counts && belongs)) {
                    relations.counting.remove(&(number, at, parameter));
                    relations.fresh.insert((number, at, parameter));
                }
            }
        }
    }
    relations
}

/// Whether two parameters of a type are always equal. The first is earlier.
fn is_equal(of: &TransactionType, first: (usize, usize), second: (usize, usize)) -> bool {
    let (a, b) = (&of.statements[first.0], &of.statements[second.0]);
    let (left, right) = (&a.values[first.1], &b.values[second.1]);
    let is_known = |value: i64| value != UNKNOWN && value != NULL;
    match (a.group, b.group) {
        (a, b) if a == b => left.len() == right.len() && left.iter().zip(right).all(|(a, b)| a == b && is_known(*a)),
        (None, Some(group)) => {
            let mut rest = &right[..];
            left.iter().zip(&of.groups[group].rounds).all(|(value, &rounds)| {
                let (own, behind) = rest.split_at((rounds as usize).min(rest.len()));
                rest = behind;
                own.iter().all(|other| other == value && is_known(*value))
            })
        }
        _ => false,
    }
}

/// Whether values count the rounds of each transaction.
fn is_counting(values: &[i64], rounds: &[i64]) -> bool {
    let mut rest = values;
    let counts = rounds.iter().all(|&rounds| {
        let (own, behind) = rest.split_at((rounds.max(0) as usize).min(rest.len()));
        rest = behind;
        own.windows(2).all(|pair| pair[0].checked_add(1) == Some(pair[1]))
    });
    counts && rest.is_empty() && rounds.iter().any(|rounds| *rounds > 1)
}

/// Returns the parameter of an insert's key that makes each key new, if all keys are new.
fn fresh_of(values: &[Vec<i64>], key: &[usize], free: impl Fn(&usize) -> bool) -> Option<usize> {
    let count = values.get(*key.first()?)?.len();
    let mut seen = HashSet::new();
    let is_new = (0..count).all(|sample| {
        let tuple: Vec<i64> = key.iter().filter_map(|&parameter| values[parameter].get(sample).copied()).collect();
        tuple.contains(&UNKNOWN) || seen.insert(tuple)
    });
    if !is_new {
        return None;
    }
    let candidates: Vec<usize> = key.iter().copied().filter(free).collect();
    let sequential = candidates.iter().rev().find(|&&parameter| is_sequential(&values[parameter]));
    let varying = candidates.iter().rev().find(|&&parameter| constant_of(&values[parameter]).is_none());
    sequential.or(varying).or(candidates.last()).copied()
}

/// Whether values count upwards, but for a few that sessions exchange.
fn is_sequential(values: &[i64]) -> bool {
    if values.len() < 8 || values.iter().any(|value| *value == NULL || *value == UNKNOWN) {
        return false;
    }
    let up = values.windows(2).filter(|pair| pair[0] < pair[1]).count();
    let distinct: HashSet<i64> = values.iter().copied().collect();
    let (least, most) = (values.iter().min().copied().unwrap_or(0), values.iter().max().copied().unwrap_or(0));
    distinct.len() == values.len()
        && up as f64 >= 0.9 * (values.len() - 1) as f64
        && most.wrapping_sub(least) as u64 <= 4 * values.len() as u64
}

/// The work of fitting.
struct Work<'a> {
    trace: &'a Trace,
    types: &'a [TransactionType],
    options: &'a FitOptions,
    /// By template and parameter.
    roles: Vec<Vec<Role>>,
    domains: Domains,
    relations: Relations,
}

impl Work<'_> {
    fn of_type(&mut self, number: usize) -> Vec<Vec<Fit>> {
        let statements = &self.types[number].statements;
        let mut fits = Vec::new();
        for (at, statement) in statements.iter().enumerate() {
            let roles = self.roles[statement.template].clone();
            let mut own = Vec::new();
            for (parameter, &role) in roles.iter().enumerate() {
                let place = (number, at, parameter);
                let values = &statement.values[parameter];
                let fit = match role {
                    Role::Unused => Fit::plain("0"),
                    Role::Text(bytes) => Fit::plain(text(values, bytes)),
                    Role::Count => self.limit(statement.template, values),
                    Role::High(column, Some(low)) => {
                        let domain = self.domains.at(column);
                        let width = self.options.widths.get(&statement.template).copied();
                        above(low, &statement.values[low], values, domain.density, width)
                    }
                    _ if self.relations.equal.contains_key(&place) => {
                        let (other, parameter) = self.relations.equal[&place];
                        Fit { how: How::Equal(other, parameter), comment: String::new() }
                    }
                    _ if self.relations.counting.contains(&place) => {
                        Fit { how: How::Counter, comment: "counts the rounds".into() }
                    }
                    _ if self.relations.fresh.contains(&place) => Fit::draw("unique()", "a new key"),
                    Role::Low(column) | Role::High(column, None)
                        if !roles.iter().any(|role| matches!(role, Role::High(_, Some(low)) if *low == parameter)) =>
                    {
                        bound(self.domains.at(column), values, matches!(role, Role::Low(_)))
                    }
                    Role::Key(column) | Role::Low(column) | Role::High(column, None) => {
                        key(self.domains.at(column), values)
                    }
                    Role::Stored(column) | Role::Number(column) => {
                        let is_time = self.trace.schema.tables[column.table].columns[column.column].kind
                            == crate::schema::Kind::Time;
                        if is_time { Fit::plain("current_timestamp") } else { number_of(values, self.options.values) }
                    }
                };
                own.push(fit);
            }
            fits.push(own);
        }
        fits
    }

    fn limit(&self, template: usize, values: &[i64]) -> Fit {
        match self.options.widths.get(&template) {
            Some(&width) => Fit::plain(format!("{}", (width.round() as i64).clamp(1, 1000))),
            None => count(values),
        }
    }
}

/// Fits a text that is stored: its mean length.
fn text(values: &[i64], bytes: u32) -> String {
    let known: Vec<i64> = values.iter().copied().filter(|&value| value >= 0).collect();
    if known.is_empty() {
        let is_null = values.first() == Some(&NULL);
        return if is_null { "null".into() } else { format!("random_text({bytes})") };
    }
    let mean = known.iter().sum::<i64>() as f64 / known.len() as f64;
    format!("random_text({})", mean.round() as i64)
}

/// Fits a number of rows or rounds, which is written as it is.
fn count(values: &[i64]) -> Fit {
    let known: Vec<i64> = values.iter().filter(|&&value| value >= 0).map(|&value| value.min(1000)).collect();
    let (Some(&least), Some(&most)) = (known.iter().min(), known.iter().max()) else { return Fit::plain("10") };
    if least == most {
        return Fit::plain(least.to_string());
    }
    let distance = from_range(&known, least, most);
    if distance <= DISTANCE_MAX {
        return Fit::draw(format!("random({least}, {most})"), comment("uniform", distance, known.len()));
    }
    let mut counts: BTreeMap<i64, u64> = BTreeMap::new();
    known.iter().for_each(|value| *counts.entry(*value).or_default() += 1);
    if counts.len() <= 128 {
        let pairs: Vec<String> = counts.iter().map(|(value, count)| format!("{value}:{count}")).collect();
        return Fit::draw(format!("empirical('{}')", pairs.join(",")), comment("empirical", 0.0, known.len()));
    }
    Fit::draw(format!("random({least}, {most})"), comment("uniform, which fits badly", distance, known.len()))
}

/// Returns the distance of a sample from the uniform distribution over a range.
fn from_range(values: &[i64], least: i64, most: i64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let (count, range) = (sorted.len() as f64, most.wrapping_sub(least) as u64 as f64 + 1.0);
    let mut distance: f64 = 0.0;
    let mut at = 0;
    while at < sorted.len() {
        let end = sorted.partition_point(|value| *value <= sorted[at]);
        let offset = sorted[at].wrapping_sub(least) as u64 as f64;
        distance = distance.max((end as f64 / count - (offset + 1.0) / range).abs());
        distance = distance.max((at as f64 / count - offset / range).abs());
        at = end;
    }
    distance
}

fn comment(what: &str, distance: f64, values: usize) -> String {
    format!("{what}, KS {distance:.3}, {}", counted(values, "value"))
}

/// Fits the upper end of a range: the lower end and a width.
fn above(low: usize, lows: &[i64], highs: &[i64], density: f64, rows: Option<f64>) -> Fit {
    let widths: Vec<i64> = lows
        .iter()
        .zip(highs)
        .filter(|&(&low, &high)| ![low, high].iter().any(|value| [NULL, UNKNOWN].contains(value) || *value >= INTERNED))
        .map(|(&low, &high)| ((high.saturating_sub(low) as f64 * density).round() as i64).clamp(0, 1000))
        .collect();
    if widths.is_empty() {
        let rows = rows.map_or(UNKNOWN_WIDTH, |rows| (rows.round() as i64).clamp(1, 1000));
        let comment = format!("a range whose width is unknown: {}", counted(rows as u64, "row"));
        return Fit { how: How::Above(low, (rows - 1).to_string()), comment };
    }
    let fit = match constant_of(&widths) {
        Some(width) => Fit::plain(width.to_string()),
        // A width of 0 is valid here.
        None => {
            let shifted: Vec<i64> = widths.iter().map(|width| width + 1).collect();
            let fit = count(&shifted);
            match fit.how {
                How::Draw(text) => Fit { how: How::Draw(format!("{text} - 1")), ..fit },
                _ => fit,
            }
        }
    };
    let expression = match &fit.how {
        How::Plain(text) | How::Draw(text) => text.clone(),
        _ => "0".into(),
    };
    let comment = if fit.comment.is_empty() { String::new() } else { format!("the width of a range: {}", fit.comment) };
    Fit { how: How::Above(low, expression), comment }
}

/// Fits a bound of a range without another bound: places between the ends of the domain.
fn bound(domain: &mut Domain, values: &[i64], is_low: bool) -> Fit {
    let name = domain.name.clone();
    let known = values.iter().filter(|&&value| value != NULL && value != UNKNOWN);
    let places: Option<Vec<f64>> = known.map(|&value| domain.place(value)).collect();
    let mut places = match places {
        Some(places) if !places.is_empty() => places,
        _ => {
            let end = if is_low { "0".into() } else { format!(":{name}") };
            return Fit { how: How::Plain(end), comment: "a bound whose place is unknown: all rows".into() };
        }
    };
    places.sort_by(f64::total_cmp);
    let at = |part: f64| (places[((places.len() - 1) as f64 * part) as usize] * 1000.0).round() as i64;
    // The middle nine tenths.
    let (low, high) = (at(0.05), at(0.95));
    let of = |part: i64| match part {
        0 => "0".into(),
        1000 => format!(":{name}"),
        part => format!(":{name} * {part} / 1000"),
    };
    if low == high {
        return Fit { how: How::Plain(of(low)), comment: "a bound that hardly moves".into() };
    }
    let comment = format!("a bound, uniform between its 5 % and 95 % quantiles, {}", counted(places.len(), "value"));
    Fit::draw(format!("random({}, {})", of(low), of(high)), comment)
}

/// Fits a key.
fn key(domain: &mut Domain, values: &[i64]) -> Fit {
    let known: Vec<i64> = values.iter().copied().filter(|&value| value != NULL && value != UNKNOWN).collect();
    let name = domain.name.clone();
    if known.is_empty() {
        return if values.first() == Some(&NULL) {
            Fit::plain("0")
        } else {
            Fit::draw(format!("zipf(:{name}, :theta)"), "unknown: the trace has no keys")
        };
    }
    if let Some(value) = constant_of(&known) {
        return Fit { how: How::Plain(domain.constant(value).to_string()), comment: "a constant".into() };
    }
    if is_sequential(&known) {
        return Fit::draw(format!("mod(unique(), :{name})"), format!("sequential, {}", counted(known.len(), "value")));
    }
    let spectrum = Spectrum::of(known);
    let draws = spectrum.draws;
    let keys = domain.keys.max(1);
    let uniform = || {
        let distance = spectrum.distance_from_zipf(keys, 0.0);
        Fit::draw(format!("random(0, :{name} - 1)"), comment("uniform", distance, draws))
    };
    if spectrum.excess_over_uniform(keys) < UNIFORM_DEVIATIONS {
        return uniform();
    }
    let theta = (spectrum.theta(keys) * 1e4).round() / 1e4;
    if theta < UNIFORM_THETA {
        return uniform();
    }
    // The functions of a file have no skew between 0.999 and 1.001.
    let theta = if (0.999..1.001).contains(&theta) { 0.999 } else { theta };
    let distance = spectrum.distance_from_zipf(keys, theta);
    if distance <= spectrum.tolerance() {
        let expression = if theta < 1.0 {
            format!("zipf(:{name}, {theta})")
        } else {
            format!("permute(random_zipfian(0, :{name} - 1, {theta}), :{name})")
        };
        return Fit::draw(expression, comment("zipf by maximum likelihood", distance, draws));
    }
    empirical(&spectrum, &name, keys)
}

/// Fits by frequencies: the first ranks one by one, then groups that double in size.
fn empirical(spectrum: &Spectrum, name: &str, keys: u64) -> Fit {
    let draws = spectrum.draws as f64;
    // Keys that were seen once stand for all others: they share what is left of the accesses.
    let mut shares: Vec<f64> =
        spectrum.counts().take_while(|count| *count > 1).map(|count| count as f64 / draws).collect();
    shares.truncate(keys as usize);
    let rest = (1.0 - shares.iter().sum::<f64>()).max(0.0);
    let others = keys - shares.len() as u64;
    let each = if others > 0 { rest / others as f64 } else { 0.0 };
    let share_of = |first: u64, end: u64| -> f64 {
        let seen = shares.len() as u64;
        let head: f64 = shares[first.min(seen) as usize..end.min(seen) as usize].iter().sum();
        head + each * (end.max(seen) - first.max(seen)) as f64
    };
    let mut groups = Vec::new();
    let mut pairs = Vec::new();
    let mut first = 0;
    while first < keys {
        let end = if first < SINGLE_RANKS { first + 1 } else { (2 * first + 1).min(keys) };
        let share = share_of(first, end);
        groups.push((share, (end - first) as f64));
        if share > 1e-6 {
            pairs.push(format!("{first}:{share:.6}"));
        }
        first = end;
    }
    let distance = spectrum.distance_from_groups(&groups);
    let width = format!("case when \u{3} < {SINGLE_RANKS} then \u{3} else \u{3} * 2 end");
    Fit {
        how: How::Steps(
            format!("empirical('{}')", pairs.join(",")),
            format!("permute(mod(random(\u{3}, {width}), :{name}), :{name})"),
        ),
        comment: comment("empirical, by rank", distance, spectrum.draws),
    }
}

/// Fits a number that is no key.
fn number_of(values: &[i64], is_written: bool) -> Fit {
    let known: Vec<i64> = values.iter().copied().filter(|&value| value != NULL && value != UNKNOWN).collect();
    let (Some(&least), Some(&most)) = (known.iter().min(), known.iter().max()) else {
        let is_null = values.first() == Some(&NULL);
        return Fit::plain(if is_null { "null" } else { "1" });
    };
    if most >= INTERNED && least < most {
        let distinct: HashSet<i64> = known.iter().copied().collect();
        return Fit::draw(
            format!("random(0, {})", distinct.len() - 1),
            format!("{}, by rank", counted(distinct.len(), "value")),
        );
    }
    if least == most {
        return Fit::plain(if is_written && most < INTERNED { least.to_string() } else { "1".into() });
    }
    if is_sequential(&known) {
        return Fit::draw("unique()", format!("sequential, {}", counted(known.len(), "value")));
    }
    let (low, high) = if is_written { (least, most) } else { (0, most.saturating_sub(least)) };
    let distance = from_range(&known, least, most);
    let range = format!("random({low}, {high})");
    if distance <= DISTANCE_MAX {
        return Fit::draw(range, comment("uniform", distance, known.len()));
    }
    let mut counts: BTreeMap<i64, u64> = BTreeMap::new();
    known.iter().for_each(|value| *counts.entry(*value).or_default() += 1);
    if counts.len() <= 64 {
        let of = |(rank, (value, count)): (usize, (&i64, &u64))| {
            format!("{}:{count}", if is_written { *value } else { rank as i64 })
        };
        let pairs: Vec<String> = counts.iter().enumerate().map(of).collect();
        return Fit::draw(format!("empirical('{}')", pairs.join(",")), comment("empirical", 0.0, known.len()));
    }
    Fit::draw(range, comment("uniform, which fits badly; no key depends on it", distance, known.len()))
}
