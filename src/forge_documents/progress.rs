//! The text of `progress.txt`: writing its lines, and parsing any text.

use std::str::FromStr as _;

use jiff::civil::{Date, Time as Clock};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use schemars::JsonSchema;
use serde::Serialize;

use helmdeck_forge_files::error::{Error, Result};
use helmdeck_forge_files::time::Time;

/// The longest text of a line, in characters.
pub const TEXT_MAX: usize = 500;
const CHECKPOINT: &str = "CHECKPOINT: ";
const NEXT: &str = "NEXT: ";
const HEADER: &str = "=== FORGE Session ";

/// Content of a `progress.txt`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Log {
    /// The day of the last header: `YYYY-MM-DD`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
    /// The session, from the line `# session: …`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The zone of the times, from the line `# zone: …`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The entries, in the order of the file.
    pub entries: Vec<ProgressEntry>,
    /// The next step: the last such line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Number of unknown lines. They stay in the file.
    pub malformed_lines: usize,
}

/// One entry: something that was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ProgressEntry {
    /// The line in the file, from 1.
    pub line: usize,
    /// The time as the file has it: `HH:MM`.
    pub time: String,
    /// The time of the entry, computed from the header and the time zone. `None` without a header.
    ///
    /// A time earlier than the one before it is on the next day. The exact time is in the journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
    /// What was done, without `CHECKPOINT: `.
    pub text: String,
    /// Whether a checkpoint was made.
    pub checkpoint: bool,
}

/// The beginning of the first line that a session's start writes; the branch follows.
pub const STARTED: &str = "Started - branch: ";
/// The beginning of the second line that a session's start writes; the number of open issues
/// follows.
pub const ISSUES: &str = "Active issues: ";
/// The line that a session's end writes.
pub const ENDING: &str = "Session ending";

impl Log {
    /// Says whether the session's start, checkpoints and end wrote every entry, and its agent none.
    pub fn is_automatic(&self) -> bool {
        let automatic = |entry: &ProgressEntry| {
            entry.checkpoint
                || entry.text == ENDING
                || [STARTED, ISSUES]
                    .iter()
                    .any(|begins| entry.text.starts_with(begins))
        };
        self.next.is_none() && self.malformed_lines == 0 && self.entries.iter().all(automatic)
    }

    /// Parses any text. Malformed lines are counted, and nothing fails.
    ///
    /// Times are in the time zone that the text names, else in `zone`.
    #[must_use]
    pub fn parse(text: &str, zone: &TimeZone) -> Self {
        let mut log = Self::default();
        let mut zone = zone.clone();
        let (mut day, mut last): (Option<Date>, Option<Timestamp>) = (None, None);
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for (at, line) in text.lines().enumerate() {
            let line = line.trim_end();
            if line.is_empty() {
            } else if let Some(date) = header(line) {
                (log.date, day, last) = (Some(date.to_string()), Some(date), None);
            } else if let Some(note) = line.strip_prefix('#') {
                match note
                    .trim()
                    .split_once(':')
                    .map(|(name, value)| (name, value.trim()))
                {
                    Some(("session", value)) if !value.is_empty() => {
                        log.session = Some(value.to_owned())
                    }
                    Some(("zone", value)) => {
                        if let Some(named) = zone_named(value) {
                            zone = named;
                            log.zone = Some(value.to_owned());
                        }
                    }
                    _ => {}
                }
            } else if let Some(next) = line
                .strip_prefix(NEXT.trim_end())
                .map(str::trim)
                .filter(|next| fits(next))
            {
                log.next = Some(next.to_owned());
            } else if let Some((clock, text)) = entry(line) {
                last = day.and_then(|date| instant(date, clock, last, &zone));
                let checkpoint = text.strip_prefix(CHECKPOINT).map(str::trim);
                log.entries.push(ProgressEntry {
                    line: at + 1,
                    time: clock.strftime("%H:%M").to_string(),
                    at: last.map(Time),
                    text: checkpoint.unwrap_or(text).to_owned(),
                    checkpoint: checkpoint.is_some(),
                });
            } else {
                log.malformed_lines += 1;
            }
        }
        log
    }

    /// Returns the time of the last entry, computed from the header and the time zone.
    #[must_use]
    pub fn last_at(&self) -> Option<Time> {
        self.entries.last().and_then(|entry| entry.at)
    }
}

/// Reads `=== FORGE Session YYYY-MM-DD ===`; more may follow the day, as the RFC's own code writes
/// it.
fn header(line: &str) -> Option<Date> {
    let rest = line.strip_prefix(HEADER)?.strip_suffix("===")?;
    let (day, more) = rest.split_at_checked(10)?;
    let apart = more.starts_with([' ', 'T']);
    Date::from_str(day).ok().filter(|_| apart)
}

/// Reads `[HH:MM] text`.
fn entry(line: &str) -> Option<(Clock, &str)> {
    let (clock, text) = line.strip_prefix('[')?.split_at_checked(5)?;
    let text = text.strip_prefix("] ")?.trim();
    let digits = |at: usize| {
        clock
            .get(at..at + 2)
            .filter(|two| two.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let (hour, minute) = (digits(0)?, digits(3)?);
    let clock = Clock::new(hour.parse().ok()?, minute.parse().ok()?, 0, 0)
        .ok()
        .filter(|_| clock.as_bytes()[2] == b':')?;
    fits(text).then_some((clock, text))
}

fn fits(text: &str) -> bool {
    let text = text.strip_prefix(CHECKPOINT).unwrap_or(text).trim();
    !text.is_empty() && text.chars().count() <= TEXT_MAX && !text.chars().any(char::is_control)
}

/// Returns the instant of a clock time: the first one at or after the previous instant.
///
/// It starts at the day of the header. An hour that a time zone has twice is tried both ways before
/// the next day.
fn instant(
    date: Date,
    clock: Clock,
    last: Option<Timestamp>,
    zone: &TimeZone,
) -> Option<Timestamp> {
    let first = last.map_or(date, |last| zone.to_datetime(last).date().max(date));
    [first, first.checked_add(1.day()).ok()?]
        .into_iter()
        .find_map(|day| {
            let either = zone.to_ambiguous_timestamp(day.to_datetime(clock));
            [either.earlier().ok(), either.later().ok()]
                .into_iter()
                .flatten()
                .find(|at| last.is_none_or(|last| *at >= last))
        })
}

/// Finds a zone by the name that a file may have: `Europe/Berlin`, `UTC`, `+02`, `+05:30`.
fn zone_named(name: &str) -> Option<TimeZone> {
    let offset = || {
        let (sign, rest) = name.split_at_checked(1)?;
        let (hours, minutes) = rest.split_once(':').unwrap_or((rest, "0"));
        let seconds =
            hours.parse::<u16>().ok()? as i32 * 3600 + minutes.parse::<u16>().ok()? as i32 * 60;
        let seconds = match sign {
            "+" => seconds,
            "-" => -seconds,
            _ => return None,
        };
        jiff::tz::Offset::from_seconds(seconds)
            .ok()
            .map(TimeZone::fixed)
    };
    offset().or_else(|| TimeZone::get(name).ok())
}

/// Writes the beginning of a session's file, with the blank line before its entries.
#[must_use]
pub fn opening(now: Time, zone: &TimeZone, session: Option<&str>) -> String {
    let day = zone.to_datetime(now.0).date();
    let mut text = format!("{HEADER}{day} ===\n");
    if let Some(session) = session {
        let zone = zone
            .iana_name()
            .map_or_else(|| zone.to_offset(now.0).to_string(), str::to_owned);
        text.push_str(&format!("# session: {session}\n# zone: {zone}\n"));
    }
    text.push('\n');
    text
}

/// Writes the line of something that was done, without a line feed.
///
/// # Errors
/// `Usage` if the text does not fit on a line: 1 to 500 characters, none of them a control
/// character.
pub fn line(now: Time, zone: &TimeZone, text: &str) -> Result<String> {
    Ok(format!(
        "[{}] {}",
        zone.to_datetime(now.0).strftime("%H:%M"),
        one_line(text)?
    ))
}

/// Writes the line of a checkpoint, without a line feed.
///
/// # Errors
/// As [`line()`].
pub fn checkpoint(now: Time, zone: &TimeZone, text: &str) -> Result<String> {
    line(now, zone, &format!("{CHECKPOINT}{}", one_line(text)?))
}

/// Formats the line for the next step, without a line feed. A blank line comes before it.
///
/// # Errors
/// As [`line()`].
pub fn next(text: &str) -> Result<String> {
    Ok(format!("{NEXT}{}", one_line(text)?))
}

fn one_line(text: &str) -> Result<&str> {
    let text = text.trim();
    if fits(text) {
        return Ok(text);
    }
    let error = Error::usage(format!(
        "a line of the progress has 1 to {TEXT_MAX} characters and no line feed"
    ));
    Err(error.hint("say it in one line; longer notes belong in the scratch folder"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SAMPLE: &str = include_str!("fixtures/progress.txt");

    fn at(text: &str) -> Time {
        Time::parse(text).unwrap()
    }

    #[test]
    fn the_sample_of_the_rfc_is_read_and_written_alike() {
        let log = Log::parse(SAMPLE, &TimeZone::UTC);
        assert_eq!(log.date.as_deref(), Some("2025-12-24"));
        assert_eq!(log.malformed_lines, 0);
        assert_eq!(log.entries.len(), 6);
        assert_eq!(
            log.next.as_deref(),
            Some("Wire ATLAS daemon to NATS (see Linear SX9-xxx)")
        );
        assert_eq!(log.last_at(), Some(at("2025-12-24T11:30:00Z")));
        let checkpoint = &log.entries[5];
        assert_eq!(
            (checkpoint.line, checkpoint.text.as_str()),
            (8, "sx9-harness compiles, tests pass")
        );
        assert!(checkpoint.checkpoint && !log.entries[4].checkpoint);

        let mut text = opening(at("2025-12-24T11:00:00Z"), &TimeZone::UTC, None);
        for entry in &log.entries {
            let write = if entry.checkpoint {
                super::checkpoint
            } else {
                line
            };
            text.push_str(&write(entry.at.unwrap(), &TimeZone::UTC, &entry.text).unwrap());
            text.push('\n');
        }
        text.push_str(&format!(
            "\n{}\n",
            next(log.next.as_deref().unwrap()).unwrap()
        ));
        assert_eq!(text, SAMPLE);
    }

    #[test]
    fn the_session_and_the_zone_stand_in_lines_of_their_own() {
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        let text = opening(
            at("2025-12-24T23:30:00Z"),
            &zone,
            Some("2025-12-25-session-001"),
        );
        assert_eq!(
            text,
            "=== FORGE Session 2025-12-25 ===\n# session: 2025-12-25-session-001\n# zone: +02\n\n"
        );
        let text = text + &line(at("2025-12-24T23:31:00Z"), &zone, " Started ").unwrap();
        let log = Log::parse(&text, &TimeZone::UTC);
        assert_eq!(log.session.as_deref(), Some("2025-12-25-session-001"));
        assert_eq!(
            (log.entries[0].time.as_str(), log.last_at()),
            ("01:31", Some(at("2025-12-24T23:31:00Z")))
        );
    }

    #[test]
    fn a_time_before_the_last_is_of_the_next_day() {
        let log = |text: &str, zone: &TimeZone| {
            let log = Log::parse(&format!("=== FORGE Session 2025-10-26 ===\n{text}"), zone);
            log.entries
                .iter()
                .map(|entry| entry.at.unwrap().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            log(
                "[23:50] a\n[23:50] b\n[00:10] c\n[23:59] d\n[00:00] e\n",
                &TimeZone::UTC
            ),
            [
                "2025-10-26T23:50:00Z",
                "2025-10-26T23:50:00Z",
                "2025-10-27T00:10:00Z",
                "2025-10-27T23:59:00Z",
                "2025-10-28T00:00:00Z"
            ]
        );
        // The hour that Berlin has twice on that day.
        let berlin = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        assert_eq!(
            log("[02:50] a\n[02:10] b\n[02:40] c\n[02:05] d\n", &berlin),
            [
                "2025-10-26T00:50:00Z",
                "2025-10-26T01:10:00Z",
                "2025-10-26T01:40:00Z",
                "2025-10-27T01:05:00Z"
            ]
        );
    }

    #[test]
    fn lines_that_make_no_sense_are_counted_and_nothing_fails() {
        let long = format!("[10:00] {}", "x".repeat(TEXT_MAX + 1));
        for bad in [
            "free text",
            "[1:00] a",
            "[24:00] a",
            "[10:60] a",
            "[10:00]a",
            "[10:00] ",
            "[+1:00] a",
            "[10.00] a",
            "NEXT:",
            "=== FORGE Session soon ===",
            "=== FORGE Session 2025-12-24",
            "<<<<<<< ours",
            &long,
            "[10:00] a\u{1b}[31m",
            "[éé:é] x",
        ] {
            let log = Log::parse(bad, &TimeZone::UTC);
            assert_eq!((log.malformed_lines, log.entries.len()), (1, 0), "{bad:?}");
        }
        for fine in [
            "",
            "\n\n",
            "# a note",
            "#",
            "# zone: Nowhere/Land",
            "[10:00] a\r\n",
            "\u{feff}[10:00] a",
            "NEXT:go on",
        ] {
            assert_eq!(
                Log::parse(fine, &TimeZone::UTC).malformed_lines,
                0,
                "{fine:?}"
            );
        }
        let without_header = Log::parse("[10:00] a", &TimeZone::UTC);
        assert_eq!(
            (without_header.entries.len(), without_header.last_at()),
            (1, None)
        );
        let of_the_code = Log::parse(
            "=== FORGE Session 2025-12-24 10:00:00.123456 ===\n[10:01] a",
            &TimeZone::UTC,
        );
        assert_eq!(of_the_code.last_at(), Some(at("2025-12-24T10:01:00Z")));
    }

    #[test]
    fn the_last_next_counts() {
        let log = Log::parse("NEXT: one\n[10:00] a\n\nNEXT: two\n", &TimeZone::UTC);
        assert_eq!(log.next.as_deref(), Some("two"));
    }

    #[test]
    fn texts_that_do_not_fit_on_a_line_are_refused() {
        let now = at("2025-12-24T11:00:00Z");
        let longest = "é".repeat(TEXT_MAX);
        assert!(line(now, &TimeZone::UTC, &longest).is_ok());
        assert!(checkpoint(now, &TimeZone::UTC, &longest).is_ok());
        for bad in ["", "  ", "a\nb", "a\rb", "a\0b", &format!("{longest}x")] {
            assert!(line(now, &TimeZone::UTC, bad).is_err(), "{bad:?}");
            assert!(next(bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "(?s).{0,300}|(=== FORGE Session 2025-1[0-9]-[0-3][0-9] ===\n|\\[[0-2][0-9]:[0-6][0-9]\\] .{0,9}\n|NEXT: ?a?\n|#.{0,9}\n){0,20}") {
            let log = Log::parse(&text, &TimeZone::UTC);
            prop_assert!(log.entries.len() + log.malformed_lines <= text.lines().count());
            prop_assert!(log.entries.windows(2).all(|two| two[0].at.is_none() || two[1].at.is_none() || two[0].line < two[1].line));
        }

        #[test]
        fn what_is_written_is_read_back(texts in prop::collection::vec("[^\\x00-\\x1f\\x7f-\\x9f]{1,40}", 0..12), start in 0_i64..4_000_000_000, step in 0_i64..80_000) {
            let zone = TimeZone::UTC;
            let time = |n: usize| Time(Timestamp::from_second((start + step * n as i64) / 60 * 60).unwrap());
            let mut text = opening(time(0), &zone, Some("s"));
            let mut written = Vec::new();
            for said in &texts {
                if let Ok(line) = line(time(written.len()), &zone, said) {
                    text.push_str(&(line + "\n"));
                    written.push(said);
                }
            }
            let log = Log::parse(&text, &zone);
            prop_assert_eq!(log.malformed_lines, 0);
            prop_assert_eq!(log.entries.len(), written.len());
            for (n, entry) in log.entries.iter().enumerate() {
                prop_assert_eq!(entry.at, Some(time(n)));
            }
        }
    }
}
