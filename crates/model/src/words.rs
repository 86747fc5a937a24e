//! Numbers in sentences.

use std::fmt::Display;

/// Returns a number with its noun, as in `1 round`, `2 rounds` and `0 entries`. The noun is given
/// in the singular, and its plural is regular.
///
/// ```
/// use contend_model::counted;
///
/// assert_eq!(counted(1, "round"), "1 round");
/// assert_eq!(counted(3_u64, "entry"), "3 entries");
/// ```
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    if count == N::from(1) {
        return format!("{count} {noun}");
    }
    let is_vowel = |letter: char| "aeiou".contains(letter);
    match noun.strip_suffix('y') {
        Some(stem) if !stem.ends_with(is_vowel) => format!("{count} {stem}ies"),
        _ if ["s", "x", "ch", "sh"].iter().any(|end| noun.ends_with(end)) => format!("{count} {noun}es"),
        _ => format!("{count} {noun}s"),
    }
}

/// Returns the verb of a number of things: `is` of one, `are` of others.
pub fn is_or_are<N: PartialEq + From<u8>>(count: N) -> &'static str {
    if count == N::from(1) { "is" } else { "are" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_has_no_plural() {
        let of = |noun: &str| [0, 1, 2].map(|count| counted(count, noun));
        assert_eq!(of("round"), ["0 rounds", "1 round", "2 rounds"]);
        assert_eq!(of("anomaly"), ["0 anomalies", "1 anomaly", "2 anomalies"]);
        assert_eq!(of("key"), ["0 keys", "1 key", "2 keys"]);
        assert_eq!(of("switch"), ["0 switches", "1 switch", "2 switches"]);
        assert_eq!(of("miss"), ["0 misses", "1 miss", "2 misses"]);
        assert_eq!((counted(1.0, "second"), counted(1.5, "second")), ("1 second".into(), "1.5 seconds".into()));
        assert_eq!([0, 1, 2].map(is_or_are), ["are", "is", "are"]);
    }
}
