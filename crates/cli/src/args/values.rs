//! The values that flags take, and what `--set` puts into a configuration.

use std::collections::BTreeMap;

use contend_engine::OptionValue;
use contend_runner::RunConfig;
use contend_runner::config::{PRECISION_MAX, PRECISION_MIN};
use contend_runner::units::parse_percent;

use crate::UserError;

/// Parses a whole number in the notations that options take.
pub(super) fn whole<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let number = u64::parse(text, &(0..=u64::MAX)).and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| match text.strip_prefix('-').map(str::parse::<f64>) {
        Some(Ok(_)) => "it is below 0; valid: a whole number, such as 8, 10k or 1e6".into(),
        _ => "it is no whole number, or too large a one; valid: digits, such as 8, 10k or 1e6".into(),
    })
}

/// Parses how much slower an entry may be: a percentage below 100 %, as a fraction.
pub(super) fn slowdown(text: &str) -> Result<f64, String> {
    let fraction = parse_percent(text).filter(|fraction| (0.0..1.0).contains(fraction));
    fraction.ok_or_else(|| "valid: a percentage from 0% on, below 100%, as in 5%".into())
}

/// Parses a precision: a percentage, as a fraction.
pub(super) fn precision(text: &str) -> Result<f64, String> {
    let fraction = parse_percent(text).filter(|fraction| (PRECISION_MIN..=PRECISION_MAX).contains(fraction));
    fraction.ok_or_else(|| {
        let (least, most) = (PRECISION_MIN * 100.0, PRECISION_MAX * 100.0);
        format!("a precision is a percentage, as in 3%; valid: {least}% to {most}%")
    })
}

/// Puts the settings of `--set` into a configuration.
///
/// # Errors
/// A setting is not `NAME=VALUE`, or one name has two values.
pub(super) fn add_settings(config: &mut RunConfig, settings: &[String]) -> Result<(), UserError> {
    let mut said: BTreeMap<&str, &str> = BTreeMap::new();
    for setting in settings {
        let Some((name, value)) = setting.split_once('=') else {
            return Err(UserError::refused(format!("--set takes NAME=VALUE, not '{setting}'")));
        };
        let (name, value) = (name.trim(), value.trim());
        if let Some(other) = said.insert(name, value).filter(|other| *other != value) {
            return Err(UserError::refused(format!(
                "--set {name} is given twice, with {other} and with {value}; valid: once"
            )));
        }
        config.settings.insert(name.into(), value.into());
    }
    Ok(())
}

/// Returns the first name that a list has twice. An empty one is none: its mistake is another.
pub(super) fn chosen_twice(list: &[String]) -> Option<&String> {
    list.iter().enumerate().find(|(at, name)| !name.is_empty() && list[..*at].contains(name)).map(|(_, name)| name)
}

/// Returns the names of a list without the blanks around them.
pub(super) fn names(list: &[String]) -> Vec<String> {
    list.iter().map(|name| name.trim().to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_of_a_precision_are_valid() {
        assert_eq!(precision("0.1%"), Ok(PRECISION_MIN));
        assert_eq!(precision("50%"), Ok(PRECISION_MAX));
        assert!(precision("0.09%").is_err() && precision("50.1%").is_err() && precision("3").is_err());
    }

    #[test]
    fn a_slowdown_is_below_all() {
        assert_eq!(slowdown("0%"), Ok(0.0));
        assert_eq!(slowdown("11 %"), Ok(0.11));
        assert!(slowdown("100%").is_err() && slowdown("-5%").is_err() && slowdown("nan%").is_err());
    }
}
