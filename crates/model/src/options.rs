//! Options: named, documented, validated when set, recorded with every result.
//!
//! [`options!`](crate::options!) makes a struct of documented fields out of a list of names,
//! defaults and ranges.

/// An option's description, as `contend list options` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionSpec {
    /// The full name, as in `--set NAME=VALUE`.
    pub name: &'static str,
    /// The default value, as a user would write it.
    pub default: String,
    /// The valid values, in words.
    pub range: String,
    /// One line that says what the option does, with the unit.
    pub doc: &'static str,
}

impl OptionSpec {
    /// Returns the valid values besides the default, if they are a few choices. Returns nothing for
    /// a number.
    pub fn other_choices(&self) -> impl Iterator<Item = &str> {
        let is_choice = !self.range.contains("number") && !self.range.contains("fraction");
        self.range.split(", ").filter(move |value| is_choice && **value != *self.default)
    }
}

/// The reason why an option could not be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionError {
    /// No option has this name; the valid ones follow.
    UnknownName {
        /// The name that was given.
        name: String,
        /// The names of all options.
        valid: Vec<&'static str>,
    },
    /// The value is not one of the valid values.
    InvalidValue {
        /// The option.
        name: &'static str,
        /// The value that was given.
        value: String,
        /// The valid values, in words.
        range: String,
    },
}

impl std::fmt::Display for OptionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OptionError::UnknownName { name, valid } if valid.is_empty() => {
                write!(f, "unknown option '{name}': there are no options here")
            }
            OptionError::UnknownName { name, valid } => {
                write!(f, "unknown option '{name}'; valid options: {}", valid.join(", "))
            }
            OptionError::InvalidValue { name, value, range } => {
                write!(f, "invalid value '{value}' for option '{name}'; valid: {range}")
            }
        }
    }
}

impl std::error::Error for OptionError {}

/// A group of options: plain data with defaults, whose fields can be set by name.
/// [`options!`](crate::options!) makes such a group.
pub trait Options: Clone + Default + std::fmt::Debug + Send + Sync + 'static {
    /// Returns all options of the group.
    fn specs() -> Vec<OptionSpec>;

    /// Sets the option of this name.
    ///
    /// # Errors
    /// The group has no option of this name, or the value is not valid. Nothing is changed.
    fn set(&mut self, name: &str, value: &str) -> Result<(), OptionError>;

    /// Returns the names of all options with their values, in the form that `set` takes.
    fn values(&self) -> Vec<(&'static str, String)>;
}

/// Two groups as one.
impl<A: Options, B: Options> Options for (A, B) {
    fn specs() -> Vec<OptionSpec> {
        [A::specs(), B::specs()].concat()
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), OptionError> {
        match self.0.set(name, value) {
            Err(OptionError::UnknownName { .. }) => self.1.set(name, value).map_err(|error| match error {
                OptionError::UnknownName { name, .. } => {
                    OptionError::UnknownName { name, valid: Self::specs().iter().map(|spec| spec.name).collect() }
                }
                error => error,
            }),
            outcome => outcome,
        }
    }

    fn values(&self) -> Vec<(&'static str, String)> {
        [self.0.values(), self.1.values()].concat()
    }
}

/// A type that an option may have.
pub trait OptionValue: Sized {
    /// The description of the valid values.
    type Range;
    /// Returns the value written as `text`, or `None` if it is not valid.
    fn parse(text: &str, range: &Self::Range) -> Option<Self>;
    /// Returns the valid values, in words.
    fn describe(range: &Self::Range) -> String;
    /// Returns the value in the form that `parse` takes.
    fn show(&self) -> String;
}

/// Parses a whole number: digits with `_` between them. They may be followed by k, M or G, for a
/// factor of 1,000, 1,000,000 or 1,000,000,000. A power of ten is allowed, too, as in `1e6` and
/// `2.5e3`.
fn parse_whole(text: &str) -> Option<u64> {
    let (digits, factor) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 1_000),
        b'm' | b'M' => (&text[..text.len() - 1], 1_000_000),
        b'g' | b'G' => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    if !digits.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let digits = digits.replace('_', "");
    match digits.split_once(['e', 'E']) {
        Some((mantissa, exponent)) if factor == 1 && !exponent.starts_with('+') => {
            parse_power(mantissa, exponent.parse().ok()?)
        }
        _ => digits.parse::<u64>().ok()?.checked_mul(factor),
    }
}

/// Returns `mantissa` times ten to the `exponent`, if that is a whole number. The result is exact,
/// which a floating-point number would not be.
fn parse_power(mantissa: &str, exponent: u32) -> Option<u64> {
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let part = part.trim_end_matches('0');
    let zeros = exponent.checked_sub(u32::try_from(part.len()).ok()?)?;
    // The part behind the point must have no sign.
    if !part.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    format!("{whole}{part}").parse::<u64>().ok()?.checked_mul(10u64.checked_pow(zeros)?)
}

macro_rules! whole_number_option {
    ($($type:ty)*) => {$(
        impl OptionValue for $type {
            type Range = std::ops::RangeInclusive<$type>;

            fn parse(text: &str, range: &Self::Range) -> Option<Self> {
                parse_whole(text).and_then(|value| <$type>::try_from(value).ok()).filter(|value| range.contains(value))
            }

            fn describe(range: &Self::Range) -> String {
                format!("a whole number from {} to {} (k, M, G, 1e6 allowed)", range.start(), range.end())
            }

            fn show(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

whole_number_option!(u32 u64 usize);

impl OptionValue for f64 {
    type Range = std::ops::Range<f64>;

    fn parse(text: &str, range: &Self::Range) -> Option<Self> {
        text.parse().ok().filter(|value| range.contains(value))
    }

    fn describe(range: &Self::Range) -> String {
        format!("a number from {}, below {}", range.start, range.end)
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl OptionValue for bool {
    type Range = ();

    fn parse(text: &str, (): &()) -> Option<Self> {
        match text {
            "on" | "true" => Some(true),
            "off" | "false" => Some(false),
            _ => None,
        }
    }

    fn describe((): &()) -> String {
        "on, off".into()
    }

    fn show(&self) -> String {
        (if *self { "on" } else { "off" }).into()
    }
}

/// A fraction, 0 to 1 inclusive.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Fraction(pub f64);

impl OptionValue for Fraction {
    type Range = ();

    fn parse(text: &str, (): &()) -> Option<Self> {
        text.parse().ok().filter(|value| (0.0..=1.0).contains(value)).map(Fraction)
    }

    fn describe((): &()) -> String {
        "a fraction from 0 to 1".into()
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}

/// Gives an enum of named choices the trait [`OptionValue`].
///
/// ```
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// enum Wait { Wait, NoWait }
/// contend_model::option_choices!(Wait { Wait => "wait", NoWait => "nowait" });
/// # use contend_model::OptionValue;
/// assert_eq!(Wait::parse("nowait", &()), Some(Wait::NoWait));
/// assert_eq!(Wait::describe(&()), "wait, nowait");
/// ```
#[macro_export]
macro_rules! option_choices {
    ($type:ident { $($variant:ident => $name:literal),+ $(,)? }) => {
        impl $crate::OptionValue for $type {
            type Range = ();

            fn parse(text: &str, (): &()) -> Option<Self> {
                match text {
                    $($name => Some($type::$variant),)+
                    _ => None,
                }
            }

            fn describe((): &()) -> String {
                [$($name),+].join(", ")
            }

            fn show(&self) -> String {
                match self {
                    $($type::$variant => $name.into(),)+
                }
            }
        }
    };
}

/// Makes a group of options: a struct with documented fields, their defaults and ranges, that
/// implements [`Options`](crate::Options).
///
/// ```
/// contend_model::options! {
///     /// Options of an example.
///     pub struct ExampleOptions {
///         /// How many records there are.
///         "example.records" records: u64 = 1_000, in 1..=1_000_000;
///     }
/// }
/// # use contend_model::Options;
/// let mut options = ExampleOptions::default();
/// options.set("example.records", "20k").unwrap();
/// assert_eq!(options.records, 20_000);
/// assert!(options.set("example.records", "0").unwrap_err().to_string().contains("from 1 to 1000000"));
/// assert!(options.set("example.record", "5").unwrap_err().to_string().contains("example.records"));
/// ```
///
/// A group may contain other groups as fields, by `flatten`, after its own options. Their options
/// are set by their own names, and listed after the group's own. A value after `=` replaces the
/// defaults of the inner group.
///
/// ```
/// # contend_model::options! {
/// #     /// Options of an example.
/// #     pub struct ExampleOptions {
/// #         /// How many records there are.
/// #         "example.records" records: u64 = 1_000, in 1..=1_000_000;
/// #     }
/// # }
/// contend_model::options! {
///     /// Options of an example, and some more.
///     pub struct OuterOptions {
///         /// Whether it is one.
///         "outer.example" example: bool = true, in ();
///         flatten inner: ExampleOptions;
///         flatten other: contend_model::options::NoOptions = Default::default();
///     }
/// }
/// # use contend_model::Options;
/// let mut options = OuterOptions::default();
/// options.set("example.records", "7").unwrap();
/// assert_eq!(options.inner.records, 7);
/// assert_eq!(OuterOptions::specs().len(), 2);
/// assert_eq!(options.values()[1], ("example.records", "7".to_string()));
/// let error = options.set("example.record", "7").unwrap_err().to_string();
/// assert!(error.contains("outer.example, example.records"), "{error}");
/// ```
#[macro_export]
macro_rules! options {
    (
        $(#[doc = $group_doc:literal])+
        pub struct $group:ident {
            $(
                #[doc = $first_doc:literal]
                $(#[doc = $more_doc:literal])*
                $name:literal $field:ident: $type:ty = $default:expr, in $range:expr;
            )*
            $(flatten $inner:ident: $inner_type:ty $(= $inner_default:expr)?;)*
        }
    ) => {
        $(#[doc = $group_doc])+
        #[derive(Clone, Debug, PartialEq)]
        pub struct $group {
            $(
                #[doc = $first_doc]
                $(#[doc = $more_doc])*
                pub $field: $type,
            )*
            $(
                #[doc = concat!("The options of [`", stringify!($inner_type), "`].")]
                pub $inner: $inner_type,
            )*
        }

        impl Default for $group {
            fn default() -> Self {
                $group {
                    $($field: $default,)*
                    $($inner: $crate::first_of!($($inner_default,)? <$inner_type as Default>::default()),)*
                }
            }
        }

        impl $crate::Options for $group {
            fn specs() -> Vec<$crate::OptionSpec> {
                let own: Vec<$crate::OptionSpec> = vec![$($crate::OptionSpec {
                    name: $name,
                    default: <$type as $crate::OptionValue>::show(&$default),
                    range: <$type as $crate::OptionValue>::describe(&$range),
                    doc: concat!($first_doc, $($more_doc,)*).trim_ascii(),
                },)*];
                let inner: [Vec<$crate::OptionSpec>; _] = [$({
                    // The defaults are the outer group's, which may differ from the inner group's
                    // own.
                    let values = $crate::Options::values(&<Self as Default>::default().$inner);
                    let specs = <$inner_type as $crate::Options>::specs();
                    specs.into_iter().zip(values).map(|(spec, (_, default))| $crate::OptionSpec { default, ..spec }).collect()
                },)*];
                own.into_iter().chain(inner.into_iter().flatten()).collect()
            }

            fn set(&mut self, name: &str, value: &str) -> Result<(), $crate::OptionError> {
                match name {
                    $(
                        $name => match <$type as $crate::OptionValue>::parse(value, &$range) {
                            Some(parsed) => self.$field = parsed,
                            None => {
                                return Err($crate::OptionError::InvalidValue {
                                    name: $name,
                                    value: value.to_string(),
                                    range: <$type as $crate::OptionValue>::describe(&$range),
                                });
                            }
                        },
                    )*
                    _ => {
                        $(match $crate::Options::set(&mut self.$inner, name, value) {
                            Err($crate::OptionError::UnknownName { .. }) => {}
                            outcome => return outcome,
                        })*
                        let valid = <Self as $crate::Options>::specs().into_iter().map(|spec| spec.name).collect();
                        let (name, _) = (name.to_string(), value);
                        return Err($crate::OptionError::UnknownName { name, valid });
                    }
                }
                #[allow(unreachable_code, reason = "a group may have no options")]
                Ok(())
            }

            fn values(&self) -> Vec<(&'static str, String)> {
                let own: Vec<(&'static str, String)> =
                    vec![$(($name, <$type as $crate::OptionValue>::show(&self.$field)),)*];
                let inner: [Vec<(&'static str, String)>; _] = [$($crate::Options::values(&self.$inner),)*];
                own.into_iter().chain(inner.into_iter().flatten()).collect()
            }
        }
    };
}

/// The first of two expressions, or the only one: a default, if one is given.
#[doc(hidden)]
#[macro_export]
macro_rules! first_of {
    ($first:expr, $second:expr) => {
        $first
    };
    ($only:expr) => {
        $only
    };
}

options! {
    /// No options: for a group that has none.
    pub struct NoOptions {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_take_factors_and_refuse_the_rest() {
        assert_eq!(parse_whole("10M"), Some(10_000_000));
        assert_eq!(parse_whole("1_000"), Some(1000));
        for (text, value) in
            [("1e6", 1_000_000), ("1E0", 1), ("2.5e3", 2500), ("2.50e1", 25), ("18e18", 18_000_000_000_000_000_000)]
        {
            assert_eq!(parse_whole(text), Some(value), "{text:?}");
        }
        assert_eq!(u64::parse("1e6", &(0..=u64::MAX)), u64::parse("1M", &(0..=u64::MAX)));
        let strange = ["1e", "e6", "1e-3", "1.5e0", "1e20", "1e+3", "1.-5e3", "1.e", "1e6k", "1e99999999999"];
        for text in ["", "k", "-1", "+1", "1.5", "1x", "_1", "99999999999G"].into_iter().chain(strange) {
            assert_eq!(parse_whole(text), None, "{text:?}");
        }
    }

    #[test]
    fn fractions_include_both_ends() {
        assert_eq!(Fraction::parse("1", &()), Some(Fraction(1.0)));
        assert_eq!(Fraction::parse("1.01", &()), None);
        assert_eq!(Fraction::parse("NaN", &()), None);
        assert_eq!(f64::parse("1", &(0.0..1.0)), None);
    }
}
