//! Times, sizes and JSON as people read them.

use std::fmt::Write;
use std::time::Duration;

use helmdeck_core::Timestamp;
use helmdeck_core::text::is_hidden;
use serde_json::Value;

use crate::json::{Read, Unreadable};

/// Time of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Time(pub(crate) Timestamp);

impl Read for Time {
    fn read(value: &Value) -> Result<Self, Unreadable> {
        helmdeck_core::clock::rfc3339::deserialize(value)
            .map(Self)
            .map_err(Unreadable::from)
    }
}

impl From<helmdeck_forge::Time> for Time {
    fn from(time: helmdeck_forge::Time) -> Self {
        Self(Timestamp(time.0.as_microsecond()))
    }
}

/// A time of a verb's output in a page.
pub(crate) trait TimeHtml {
    /// As [`Time::html`].
    fn html(&self, now: &Timestamp) -> String;
    /// As [`Time::exact`].
    fn exact(&self) -> String;
}

impl TimeHtml for helmdeck_forge::Time {
    fn html(&self, now: &Timestamp) -> String {
        Time::from(*self).html(now)
    }

    fn exact(&self) -> String {
        Time::from(*self).exact()
    }
}

impl Time {
    /// Returns a `time` element: how long ago in words, the exact time for machines and as a
    /// tooltip.
    pub(crate) fn html(self, now: &Timestamp) -> String {
        let exact = self.exact();
        format!(
            "<time datetime=\"{exact}\" title=\"{exact}\">{}</time>",
            self.relative(*now)
        )
    }

    /// Returns the time to the second, in UTC.
    pub(crate) fn exact(self) -> String {
        let text = self.0.to_rfc3339();
        // "2026-11-21T22:34:00.000000Z"
        text.split_once('.')
            .map_or_else(|| text.clone(), |(seconds, _)| format!("{seconds}Z"))
    }

    fn relative(self, now: Timestamp) -> String {
        if self.0 > now {
            return format!("in {}", rough(self.0.since(now)));
        }
        match now.since(self.0) {
            past if past < Duration::from_secs(1) => "now".to_owned(),
            past => format!("{} ago", rough(past)),
        }
    }
}

/// Returns a duration with its largest unit only.
fn rough(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..=89 => format!("{seconds} s"),
        90..=5_399 => format!("{} min", (seconds + 30) / 60),
        5_400..=172_799 => format!("{} h", (seconds + 1_800) / 3_600),
        _ => format!("{} days", (seconds + 43_200) / 86_400),
    }
}

/// Returns a duration of a call.
///
/// # Examples
/// 7 is `7 ms`, 1500 is `1.5 s`, 90000 is `90 s`.
pub(crate) fn millis(millis: u64) -> String {
    match millis {
        0..=999 => format!("{millis} ms"),
        1_000..=9_999 => format!("{}.{} s", millis / 1_000, millis % 1_000 / 100),
        _ => format!("{} s", millis / 1_000),
    }
}

/// Returns a short duration of a call.
///
/// # Examples
/// 7 is `7 µs`, 1500 is `1.5 ms`, 90000 is `90 ms`, 1500000 is `1.5 s`.
pub(crate) fn micros(micros: u64) -> String {
    match micros {
        0..=999 => format!("{micros} µs"),
        1_000..=9_999 => format!("{}.{} ms", micros / 1_000, micros % 1_000 / 100),
        _ => millis(micros / 1_000),
    }
}

/// Returns a long time that was spent or saved, with one unit.
pub(crate) fn span(millis: u64) -> String {
    if millis < 10_000 {
        self::millis(millis)
    } else {
        rough(Duration::from_millis(millis))
    }
}

/// Returns a number with a comma between thousands.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// Line of a diff.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DiffLine<'a> {
    /// Class of the line; empty for what stays.
    pub(crate) class: &'static str,
    pub(crate) text: &'a str,
}

/// Returns the lines of a unified diff, with what each is.
///
/// The sign in front of a line says the same without colour.
pub(crate) fn diff(text: &str) -> Vec<DiffLine<'_>> {
    let class = |line: &str| match line.as_bytes().first() {
        _ if line.starts_with("diff ") || line.starts_with("+++ ") || line.starts_with("--- ") => {
            "file"
        }
        Some(b'+') => "added",
        Some(b'-') => "removed",
        Some(b'@') => "place",
        _ => "",
    };
    text.lines()
        .map(|text| DiffLine {
            class: class(text),
            text,
        })
        .collect()
}

/// Returns a size with a binary unit.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut tenths = bytes.saturating_mul(10) / 1024;
    let mut unit = 0;
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

/// Returns a count with its noun, which gets an `s` unless there is one of it.
pub(crate) fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Returns JSON on several lines, with hidden characters as escapes, so that a copy of it is the
/// same value.
pub(crate) fn json(value: &Value) -> String {
    let text = format!("{value:#}");
    if !text.contains(hidden) {
        return text;
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if !hidden(character) {
            shown.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            // Writing to a string cannot fail.
            let _ = write!(shown, "\\u{unit:04x}");
        }
    }
    shown
}

fn hidden(character: char) -> bool {
    is_hidden(character) && !matches!(character, '\n' | '\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_relative_and_exact() {
        let time = Time(Timestamp(1_795_599_838_588_909));
        let at = |seconds| time.html(&time.0.saturating_add(Duration::from_secs(seconds)));
        assert!(at(0).ends_with(">now</time>"), "{}", at(0));
        assert!(
            at(0).starts_with("<time datetime=\"2026-11-25T09:43:58Z\""),
            "{}",
            at(0)
        );
        assert!(at(59).contains("59 s ago") && at(3_600).contains("60 min ago"));
        assert!(at(86_400).contains("24 h ago") && at(345_600).contains("4 days ago"));
        assert_eq!(time.relative(Timestamp(time.0.0 - 60_000_000)), "in 60 s");
    }

    #[test]
    fn sizes_and_durations_have_one_unit() {
        assert_eq!(
            [size(0), size(1023), size(1024), size(1536)],
            ["0 B", "1023 B", "1.0 KiB", "1.5 KiB"]
        );
        assert_eq!(
            [size(5 << 20), size(u64::MAX)],
            ["5.0 MiB", "1677721.5 TiB"]
        );
        assert_eq!(
            [millis(7), millis(1_500), millis(90_000)],
            ["7 ms", "1.5 s", "90 s"]
        );
        assert_eq!([count(1, "turn"), count(0, "turn")], ["1 turn", "0 turns"]);
        assert_eq!(
            [micros(7), micros(1_500), micros(90_000), micros(1_500_000)],
            ["7 µs", "1.5 ms", "90 ms", "1.5 s"]
        );
    }

    #[test]
    fn large_numbers_are_grouped_and_long_times_rough() {
        assert_eq!(
            [
                grouped(0),
                grouped(999),
                grouped(1_000),
                grouped(12_345_678)
            ],
            ["0", "999", "1,000", "12,345,678"]
        );
        assert_eq!(
            [span(1_500), span(12_000), span(984_000)],
            ["1.5 s", "12 s", "16 min"]
        );
    }

    #[test]
    fn lines_of_a_diff_have_their_kind() {
        let classes: Vec<&str> = diff("--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n z")
            .iter()
            .map(|line| line.class)
            .collect();
        assert_eq!(classes, ["file", "file", "place", "removed", "added", ""]);
    }

    #[test]
    fn shown_json_is_the_same_value() {
        let value = serde_json::json!({ "a\u{202e}": "\u{e0041}\u{1}\nß" });
        let text = json(&value);
        assert!(
            !text.contains('\u{202e}') && !text.contains('\u{e0041}'),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }
}
