//! Types of transactions: paths through templates, where rounds of the same statements are a loop.
//!
//! A path is a type of its own, unless it differs from others only in how often a group of
//! statements is repeated. Such paths become one type with a loop.

use std::collections::BTreeMap;

use crate::trace::{Path, SAMPLES_MAX, Shape, Trace};

/// The most statements of a group that is repeated.
const GROUP_MAX: usize = 16;

/// A statement of a type.
#[derive(Clone, Debug, Default)]
pub(crate) struct StatementOf {
    pub(crate) template: usize,
    /// The loop that it is in.
    pub(crate) group: Option<usize>,
    /// The values of each parameter: one for each transaction, or one for each round.
    pub(crate) values: Vec<Vec<i64>>,
}

/// A loop: its statements, and the rounds of each transaction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    pub(crate) first: usize,
    pub(crate) end: usize,
    pub(crate) rounds: Vec<i64>,
}

/// A type of transactions.
#[derive(Clone, Debug, Default)]
pub(crate) struct TransactionType {
    pub(crate) statements: Vec<StatementOf>,
    pub(crate) groups: Vec<Group>,
    pub(crate) is_cancelled: bool,
    pub(crate) count: u64,
    /// The logged statements of all its transactions.
    pub(crate) logged: u64,
}

/// A path as groups of templates, each with its rounds.
type Reduced = Vec<(Vec<usize>, usize)>;

/// Finds groups of statements that follow themselves.
fn reduced(templates: &[usize]) -> Reduced {
    let mut result: Reduced = Vec::new();
    let mut at = 0;
    while at < templates.len() {
        let rest = &templates[at..];
        let rounds = |length: usize| rest.chunks_exact(length).take_while(|chunk| *chunk == &rest[..length]).count();
        let lengths = 1..=GROUP_MAX.min(rest.len() / 2);
        let best = lengths.map(|length| (length, rounds(length))).filter(|(_, rounds)| *rounds > 1);
        // The group that covers most, and of those the shortest.
        let (length, rounds) =
            best.max_by_key(|(length, rounds)| (length * rounds, usize::MAX - length)).unwrap_or((1, 1));
        result.push((rest[..length].to_vec(), rounds));
        at += length * rounds;
    }
    result
}

/// Returns the types of a trace, the most frequent first.
pub(crate) fn types_of(trace: &mut Trace) -> Vec<TransactionType> {
    let mut families: BTreeMap<Shape, Vec<(Shape, Path)>> = BTreeMap::new();
    for (shape, path) in std::mem::take(&mut trace.paths) {
        let flat = reduced(&shape.0).into_iter().flat_map(|(group, _)| group).collect();
        families.entry((flat, shape.1)).or_default().push((shape, path));
    }
    let mut types = Vec::new();
    for ((flat, _), mut paths) in families {
        // Paths that are equal in number would come in the order of a hash.
        paths.sort_by(|a, b| a.0.cmp(&b.0));
        match joined(&flat, &paths) {
            Some(joined) if paths.len() > 1 => types.push(joined),
            _ => types.extend(paths.into_iter().map(|(shape, path)| plain(shape, path))),
        }
    }
    types.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| first_templates(a).cmp(&first_templates(b))));
    types
}

fn first_templates(of: &TransactionType) -> Vec<usize> {
    of.statements.iter().map(|statement| statement.template).collect()
}

fn plain(shape: Shape, path: Path) -> TransactionType {
    let statements = shape.0.into_iter().zip(path.values);
    TransactionType {
        statements: statements.map(|(template, values)| StatementOf { template, group: None, values }).collect(),
        groups: Vec::new(),
        is_cancelled: shape.1,
        count: path.count,
        logged: path.statements,
    }
}

/// Joins paths whose groups are the same, and whose rounds differ. `None` if their groups overlap.
fn joined(flat: &[usize], paths: &[(Shape, Path)]) -> Option<TransactionType> {
    let mut groups: Vec<(usize, usize)> = Vec::new();
    for (shape, _) in paths {
        let mut at = 0;
        for (group, rounds) in reduced(&shape.0) {
            let span = (at, at + group.len());
            at = span.1;
            if rounds == 1 || groups.contains(&span) {
                continue;
            }
            if groups.iter().any(|other| span.0 < other.1 && other.0 < span.1) {
                return None;
            }
            groups.push(span);
        }
    }
    groups.sort_unstable();
    let mut joined = TransactionType {
        groups: groups.iter().map(|&(first, end)| Group { first, end, rounds: Vec::new() }).collect(),
        is_cancelled: paths[0].0.1,
        ..TransactionType::default()
    };
    for (at, &template) in flat.iter().enumerate() {
        let group = groups.iter().position(|(first, end)| (*first..*end).contains(&at));
        joined.statements.push(StatementOf { template, group, values: Vec::new() });
    }
    for (shape, path) in paths {
        joined.count += path.count;
        joined.logged += path.statements;
        let rounds = rounds_of(&shape.0, flat, &groups)?;
        append(&mut joined, path, &rounds);
    }
    Some(joined)
}

/// Returns the rounds of each group in a path.
fn rounds_of(templates: &[usize], flat: &[usize], groups: &[(usize, usize)]) -> Option<Vec<usize>> {
    let (mut at, mut rest, mut rounds) = (0, templates, Vec::new());
    for &(first, end) in groups {
        rest = rest.strip_prefix(&flat[at..first])?;
        let mut count = 0;
        while let Some(behind) = rest.strip_prefix(&flat[first..end]) {
            (rest, count) = (behind, count + 1);
        }
        if count == 0 {
            return None;
        }
        rounds.push(count);
        at = end;
    }
    (rest == &flat[at..]).then_some(rounds)
}

/// Adds the values of a path's transactions.
fn append(joined: &mut TransactionType, path: &Path, rounds: &[usize]) {
    let samples =
        path.values.first().map_or(0, |first| first.first().map_or(path.count.min(SAMPLES_MAX) as usize, Vec::len));
    for (group, &rounds) in joined.groups.iter_mut().zip(rounds) {
        group.rounds.extend(std::iter::repeat_n(rounds as i64, samples));
    }
    let groups = joined.groups.clone();
    let mut before = 0;
    let mut at = 0;
    while at < joined.statements.len() {
        let (end, count) = match joined.statements[at].group {
            Some(group) => (groups[group].end, rounds[group]),
            None => (at + 1, 1),
        };
        let length = end - at;
        for (offset, statement) in joined.statements[at..end].iter_mut().enumerate() {
            let of_rounds: Vec<&Vec<Vec<i64>>> =
                (0..count).map(|round| &path.values[before + round * length + offset]).collect();
            let parameters = of_rounds[0].len();
            statement.values.resize(parameters, Vec::new());
            for (parameter, values) in statement.values.iter_mut().enumerate() {
                for sample in 0..of_rounds[0][parameter].len() {
                    values.extend(of_rounds.iter().filter_map(|round| round[parameter].get(sample)));
                }
            }
        }
        before += length * count;
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_that_follow_themselves_are_found() {
        let one = |templates: &[usize]| reduced(templates);
        assert_eq!(one(&[1, 2, 3]), [(vec![1], 1), (vec![2], 1), (vec![3], 1)]);
        assert_eq!(one(&[1, 2, 2, 2, 3]), [(vec![1], 1), (vec![2], 3), (vec![3], 1)]);
        assert_eq!(one(&[1, 2, 3, 2, 3]), [(vec![1], 1), (vec![2, 3], 2)]);
        assert_eq!(one(&[1, 1, 2, 1, 1, 2]), [(vec![1, 1, 2], 2)]);
    }

    #[test]
    fn paths_that_differ_in_rounds_are_one_type() {
        let path = |count: usize, first: i64| Path {
            count: 1,
            statements: count as u64 + 1,
            values: std::iter::once(vec![vec![first]])
                .chain((0..count).map(|round| vec![vec![first * 10 + round as i64]]))
                .collect(),
        };
        let paths = vec![((vec![7, 8], false), path(1, 1)), ((vec![7, 8, 8], false), path(2, 2))];
        let joined = joined(&[7, 8], &paths).expect("one type");
        assert_eq!(joined.groups[0].rounds, [1, 2]);
        assert_eq!(joined.statements[0].values, [vec![1, 2]]);
        assert_eq!(joined.statements[1].values, [vec![10, 20, 21]]);
        assert_eq!((joined.count, joined.logged), (2, 5));
    }
}
