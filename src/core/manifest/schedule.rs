//! Schedules of packs: an interval or a cron expression, in UTC.

use std::fmt;
use std::time::Duration;

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

use crate::clock::Timestamp;
use crate::duration::parse_duration;

/// Shortest interval between two runs.
const SHORTEST: Duration = Duration::from_secs(1);
/// Days within which an expression must have a time. Between two leap days are at most eight years.
const DAYS: u32 = 8 * 366 + 1;

/// When a pack runs by itself, and with which input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleSpec {
    /// The times.
    pub timing: Timing,
    /// The input, as JSON.
    pub input: String,
}

/// Due times of a schedule, in UTC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Timing {
    /// Every so often, counted from 1970.
    Every(Duration),
    /// A cron expression.
    Cron(Cron),
}

impl Timing {
    /// Parses an interval.
    ///
    /// # Errors
    /// A message if it is no duration, or less than a second.
    pub fn every(text: &str) -> Result<Self, String> {
        let every = parse_duration(text)?;
        if every < SHORTEST {
            return Err(format!(
                "every = \"{text}\" is too often; the shortest interval is 1s"
            ));
        }
        Ok(Self::Every(every))
    }

    /// Parses a cron expression.
    ///
    /// # Errors
    /// A message with the wrong field.
    pub fn cron(text: &str) -> Result<Self, String> {
        let cron = Cron::parse(text)?;
        if cron.days.is_empty() {
            return Err(format!(
                "cron = \"{text}\" never comes: no month of it has such a day"
            ));
        }
        Ok(Self::Cron(cron))
    }

    /// Returns the latest due time that has come.
    #[must_use]
    pub fn last(&self, now: Timestamp) -> Timestamp {
        match self {
            Self::Every(every) => Timestamp(now.0 - now.0.rem_euclid(micros(*every))),
            Self::Cron(cron) => cron.last(now).unwrap_or(Timestamp(0)),
        }
    }

    /// Returns the next due time.
    #[must_use]
    pub fn next(&self, now: Timestamp) -> Timestamp {
        match self {
            Self::Every(every) => self.last(now).saturating_add(*every),
            Self::Cron(cron) => cron.next(now).unwrap_or(Timestamp::MAX),
        }
    }
}

/// Writes it as in a manifest.
impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every(every) => write!(f, "every {}", crate::duration::format_duration(*every)),
            Self::Cron(cron) => write!(f, "cron {}", cron.text),
        }
    }
}

/// A cron expression: minute, hour, day of the month, month, day of the week.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cron {
    text: String,
    minutes: u64,
    hours: u64,
    days: Days,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Days {
    of_month: u64,
    months: u64,
    of_week: u64,
    /// Whether a day of the month or of the week is enough, because both are restricted.
    either: bool,
}

/// A field: its name and its range.
const FIELDS: [(&str, u32, u32); 5] = [
    ("minute", 0, 59),
    ("hour", 0, 23),
    ("day of the month", 1, 31),
    ("month", 1, 12),
    ("day of the week", 0, 7),
];

impl Cron {
    fn parse(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split_ascii_whitespace().collect();
        if parts.len() != FIELDS.len() {
            return Err(format!(
                "cron = \"{}\" has {} fields; it needs 5: minute, hour, day of the month, month, day of the week",
                text.escape_debug(),
                parts.len()
            ));
        }
        let mut sets = [0; 5];
        for ((set, part), field) in sets.iter_mut().zip(&parts).zip(FIELDS) {
            *set = read_field(part, field)?;
        }
        let [minutes, hours, of_month, months, mut of_week] = sets;
        // Sunday is 0 and 7.
        of_week = (of_week | (of_week >> 7)) & 0x7f;
        let either = !parts[2].starts_with('*') && !parts[4].starts_with('*');
        Ok(Self {
            text: parts.join(" "),
            minutes,
            hours,
            days: Days {
                of_month,
                months,
                of_week,
                either,
            },
        })
    }

    fn last(&self, now: Timestamp) -> Option<Timestamp> {
        let now = time(now)?;
        let mut date = now.date();
        let mut limit = (now.hour(), now.minute());
        for _ in 0..DAYS {
            if self.days.has(date)
                && let Some((hour, minute)) = self.times().rev().find(|time| *time <= limit)
            {
                return at(date, hour, minute);
            }
            date = date.yesterday().ok()?;
            limit = (23, 59);
        }
        None
    }

    fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let now = time(now)?;
        let mut date = now.date();
        let mut after = Some((now.hour(), now.minute()));
        for _ in 0..DAYS {
            if self.days.has(date)
                && let Some((hour, minute)) = self
                    .times()
                    .find(|time| after.is_none_or(|after| *time > after))
            {
                return at(date, hour, minute);
            }
            date = date.tomorrow().ok()?;
            after = None;
        }
        None
    }

    /// Returns the times of a day, in order.
    fn times(&self) -> impl DoubleEndedIterator<Item = (i8, i8)> {
        let within = |set: u64, end: i8| (0..end).filter(move |number| set >> number & 1 == 1);
        let minutes = self.minutes;
        within(self.hours, 24)
            .flat_map(move |hour| within(minutes, 60).map(move |minute| (hour, minute)))
    }
}

impl Days {
    fn has(&self, date: Date) -> bool {
        let has = |set: u64, number: i8| set >> number & 1 == 1;
        let (of_month, of_week) = (
            has(self.of_month, date.day()),
            has(self.of_week, date.weekday().to_sunday_zero_offset()),
        );
        has(self.months, date.month())
            && if self.either {
                of_month || of_week
            } else {
                of_month && of_week
            }
    }

    /// Returns whether no day fits.
    fn is_empty(&self) -> bool {
        const LONGEST: [u32; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let comes = |(month, days): (usize, &u32)| {
            // The lowest day of the month that is wanted.
            self.months >> (month + 1) & 1 == 1 && self.of_month.trailing_zeros() <= *days
        };
        !self.either && !LONGEST.iter().enumerate().any(comes)
    }
}

/// Reads a field as a set of bits.
fn read_field(text: &str, (name, low, high): (&str, u32, u32)) -> Result<u64, String> {
    let wrong = |part: &str, why: &str| format!("cron: {name} \"{}\": {why}", part.escape_debug());
    let number = |part: &str, text: &str| match text.parse::<u32>() {
        Ok(number)
            if (low..=high).contains(&number) && text.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            Ok(number)
        }
        _ => Err(wrong(
            part,
            &format!("{low} to {high} is allowed, with `*`, `-`, `,` and `/`"),
        )),
    };
    let mut set = 0;
    for part in text.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => match step.parse::<u32>() {
                Ok(step) if step > 0 => (range, step),
                _ => return Err(wrong(part, "a step is a number from 1")),
            },
            None => (part, 1),
        };
        let (from, to) = match range.split_once('-') {
            _ if range == "*" => (low, high),
            Some((from, to)) => (number(part, from)?, number(part, to)?),
            // `5/15` begins at 5.
            None if part.contains('/') => (number(part, range)?, high),
            None => (number(part, range)?, number(part, range)?),
        };
        if from > to {
            return Err(wrong(part, "the range ends before it begins"));
        }
        for value in (from..=to).step_by(step as usize) {
            set |= 1_u64 << value;
        }
    }
    Ok(set)
}

fn time(now: Timestamp) -> Option<DateTime> {
    Some(TimeZone::UTC.to_datetime(jiff::Timestamp::from_microsecond(now.0).ok()?))
}

fn at(date: Date, hour: i8, minute: i8) -> Option<Timestamp> {
    let time = TimeZone::UTC
        .to_timestamp(date.at(hour, minute, 0, 0))
        .ok()?;
    Some(Timestamp(time.as_microsecond()))
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros())
        .unwrap_or(i64::MAX)
        .max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ts(text: &str) -> Timestamp {
        Timestamp(text.parse::<jiff::Timestamp>().unwrap().as_microsecond())
    }

    #[track_caller]
    fn comes(cron: &str, now: &str, last: &str, next: &str) {
        let timing = Timing::cron(cron).unwrap();
        assert_eq!(
            (timing.last(ts(now)), timing.next(ts(now))),
            (ts(last), ts(next)),
            "{cron}"
        );
    }

    #[test]
    fn cron_finds_the_times_around_now() {
        comes(
            "0 3 * * *",
            "2026-11-26T07:30:05Z",
            "2026-11-26T03:00:00Z",
            "2026-11-27T03:00:00Z",
        );
        comes(
            "0 3 * * *",
            "2026-11-26T03:00:00Z",
            "2026-11-26T03:00:00Z",
            "2026-11-27T03:00:00Z",
        );
        comes(
            "*/15 * * * *",
            "2026-11-26T07:44:59Z",
            "2026-11-26T07:30:00Z",
            "2026-11-26T07:45:00Z",
        );
        comes(
            "5/20 9-17 * * 1-5",
            "2026-11-28T00:00:00Z",
            "2026-11-27T17:45:00Z",
            "2026-11-30T09:05:00Z",
        );
        comes(
            "0 0 1,15 * *",
            "2026-12-31T23:59:59Z",
            "2026-12-15T00:00:00Z",
            "2027-01-01T00:00:00Z",
        );
        comes(
            "30 12 29 2 *",
            "2026-11-26T00:00:00Z",
            "2024-02-29T12:30:00Z",
            "2028-02-29T12:30:00Z",
        );
        comes(
            "0 0 29 2 *",
            "2098-01-01T00:00:00Z",
            "2096-02-29T00:00:00Z",
            "2104-02-29T00:00:00Z",
        );
    }

    #[test]
    fn either_day_is_enough_if_both_are_named() {
        // Fridays, and the 13th.
        comes(
            "0 0 13 * 5",
            "2026-11-26T00:00:00Z",
            "2026-11-20T00:00:00Z",
            "2026-11-27T00:00:00Z",
        );
        comes(
            "0 0 13 * 5",
            "2026-12-12T00:00:00Z",
            "2026-12-11T00:00:00Z",
            "2026-12-13T00:00:00Z",
        );
        for sunday in ["0", "7", "0-0,7"] {
            comes(
                &format!("0 0 * * {sunday}"),
                "2026-11-26T00:00:00Z",
                "2026-11-22T00:00:00Z",
                "2026-11-29T00:00:00Z",
            );
        }
    }

    #[test]
    fn intervals_are_counted_from_1970() {
        let hour = Timing::every("1h").unwrap();
        let now = ts("2026-11-26T07:30:05Z");
        assert_eq!(
            (hour.last(now), hour.next(now)),
            (ts("2026-11-26T07:00:00Z"), ts("2026-11-26T08:00:00Z"))
        );
        assert_eq!(
            hour.last(ts("2026-11-26T07:00:00Z")),
            ts("2026-11-26T07:00:00Z")
        );
        assert_eq!(hour.to_string(), "every 1h");
        assert_eq!(
            Timing::cron(" 0  3 * * * ").unwrap().to_string(),
            "cron 0 3 * * *"
        );
    }

    #[test]
    fn wrong_times_are_named() {
        for (cron, why) in [
            ("0 3 * *", "has 4 fields; it needs 5"),
            ("", "has 0 fields"),
            ("60 3 * * *", "minute \"60\": 0 to 59"),
            ("0 24 * * *", "hour \"24\": 0 to 23"),
            ("0 0 0 * *", "day of the month \"0\": 1 to 31"),
            ("0 0 * 13 *", "month \"13\": 1 to 12"),
            ("0 0 * * 8", "day of the week \"8\": 0 to 7"),
            ("0 0 * * mon", "day of the week \"mon\""),
            (
                "5-1 * * * *",
                "minute \"5-1\": the range ends before it begins",
            ),
            ("*/0 * * * *", "minute \"*/0\": a step is a number from 1"),
            ("1,,2 * * * *", "minute \"\": 0 to 59"),
            ("+1 * * * *", "minute \"+1\": 0 to 59"),
            ("0 0 30,31 2 *", "never comes"),
            ("0 0 31 4,6 *", "never comes"),
        ] {
            let error = Timing::cron(cron).unwrap_err();
            assert!(error.contains(why), "{cron}: {error}");
        }
        assert!(
            Timing::every("999ms")
                .unwrap_err()
                .contains("the shortest interval is 1s")
        );
        assert!(
            Timing::every("soon")
                .unwrap_err()
                .contains("is not a duration")
        );
    }
}
