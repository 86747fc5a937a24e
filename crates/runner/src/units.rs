//! The format of figures for people: three or four digits, and a unit.

use contend_model::counted;

/// Formats a rate per second, as in "1.23 M". Prefixes end at G; larger ones are not read at a
/// glance.
pub fn show_rate(per_second: f64) -> String {
    match per_second {
        rate if rate >= 1e9 => format!("{:.2} G", rate / 1e9),
        rate if rate >= 1e6 => format!("{:.2} M", rate / 1e6),
        rate if rate >= 1e3 => format!("{:.1} k", rate / 1e3),
        rate => format!("{rate:.1}"),
    }
}

/// Formats bytes in the largest binary unit that is not above them.
pub fn show_bytes(bytes: u64) -> String {
    let units = [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.into_iter().find(|(_, size)| bytes >= *size) {
        Some((unit, size)) => format!("{:.1} {unit}", bytes as f64 / size as f64),
        None => counted(bytes, "byte"),
    }
}

/// Formats nanoseconds in the largest unit that is not above them.
pub fn show_ns(nanoseconds: u64) -> String {
    match nanoseconds as f64 {
        ns if ns >= 1e9 => format!("{:.2} s", ns / 1e9),
        ns if ns >= 1e6 => format!("{:.1} ms", ns / 1e6),
        ns if ns >= 1e3 => format!("{:.1} µs", ns / 1e3),
        ns => format!("{ns:.0} ns"),
    }
}

/// Formats a latency. 0 stands for "not timed" and is shown as `-`, because no transaction takes no
/// time.
pub fn show_latency(nanoseconds: u64) -> String {
    if nanoseconds == 0 { "-".into() } else { show_ns(nanoseconds) }
}

/// Formats a number with three significant digits, as in "0.000123".
pub fn show_digits(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return number.to_string();
    }
    let digits = 2 - number.abs().log10().floor() as i32;
    match digits {
        1..=15 => {
            let text = format!("{number:.*}", digits as usize);
            text.trim_end_matches('0').trim_end_matches('.').into()
        }
        _ => format!("{number:.0}"),
    }
}

/// Formats a number as a user would write it: one of many digits with an exponent, as in "1e300".
pub fn show_given(number: f64) -> String {
    if number.abs() < 1e9 { number.to_string() } else { format!("{number:e}") }
}

/// Formats a fraction as a percentage, as in "12.3 %".
pub fn show_percent(fraction: f64) -> String {
    format!("{:.1} %", fraction * 100.0)
}

/// Parses a percentage such as "3%" or "0.5 %", and returns it as a fraction. Returns `None` if the
/// text is not a number and a percent sign.
pub fn parse_percent(text: &str) -> Option<f64> {
    let number = text.trim().strip_suffix('%')?.trim_end().parse::<f64>().ok()?;
    Some(number / 100.0)
}

/// The longest time that [`parse_time`] takes, in seconds: some 30 years.
const TIME_MAX: f64 = 1e9;

/// Parses a time: a number of seconds, or a number with one of the units `ms`, `s`, `m` (or `min`)
/// and `h`.
///
/// # Errors
/// The unit is unknown, or the number is none, below 0 or too large. The message names what is
/// valid.
pub fn parse_time(text: &str) -> Result<std::time::Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        unit => return Err(format!("unknown unit '{unit}'; valid: ms, s, m, h")),
    };
    match digits.parse::<f64>() {
        Ok(number) if (0.0..=TIME_MAX).contains(&(number * unit)) => {
            Ok(std::time::Duration::from_secs_f64(number * unit))
        }
        _ => Err(format!("'{digits}' is no time; valid: a number from 0, as in 60s or 10m")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_percentages_are_parsed() {
        let times = ["90", "60s", "1.5m", "2min", "1h", "250ms", "0"].map(|text| parse_time(text).expect("a time"));
        assert_eq!(times.map(|time| time.as_millis()), [90_000, 60_000, 90_000, 120_000, 3_600_000, 250, 0]);
        for (text, part) in
            [("10 parsecs", "parsecs"), ("-1s", "'-1' is no time"), ("", "'' is no time"), ("1e99", "no time")]
        {
            assert!(parse_time(text).is_err_and(|message| message.contains(part)), "{text}");
        }
        assert_eq!(["3%", " 0.5 % ", "50%"].map(parse_percent), [Some(0.03), Some(0.005), Some(0.5)]);
        assert_eq!(["3", "%", "x%", ""].map(parse_percent), [None; 4]);
    }

    #[test]
    fn units_suit() {
        assert_eq!([999, 1500, 2_000_000, 3_000_000_000].map(show_ns), ["999 ns", "1.5 µs", "2.0 ms", "3.00 s"]);
        assert_eq!([12, 1536, 5 << 30].map(show_bytes), ["12 bytes", "1.5 KiB", "5.0 GiB"]);
        assert_eq!([0.5, 1500.0, 2e6, 3e9, 4e12].map(show_rate), ["0.5", "1.5 k", "2.00 M", "3.00 G", "4000.00 G"]);
        assert_eq!([0, 7].map(show_latency), ["-", "7 ns"]);
        assert_eq!(show_percent(0.1234), "12.3 %");
        assert_eq!([0.0, 0.000_123_4, 0.05, 12.34, 1234.0].map(show_digits), ["0", "0.000123", "0.05", "12.3", "1234"]);
    }
}
