//! Session ids, as the RFC prints them: `2025-12-24-session-001`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;

/// The highest number of a day.
///
/// A commit that names this number or a larger one must not stop the sessions of that day.
const LAST: u32 = 999_999;
/// The text between the day and the number.
const MIDDLE: &str = "-session-";

/// Id of a session: its day, and its number on that day.
///
/// The number counts within one clone, so two clones may give the same id. The UUID of the session
/// is unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    /// The day on which it began, in the project's zone.
    pub date: Date,
    /// Its number on that day, from 1.
    pub number: u32,
}

impl SessionId {
    /// Returns the id after all known ones of that day, or the first free one if the last is taken.
    ///
    /// Texts that are not session ids, and ids of another day, do not count.
    pub fn next<'a>(date: Date, known: impl IntoIterator<Item = &'a str>) -> Self {
        let taken = known
            .into_iter()
            .filter_map(|id| id.parse::<Self>().ok())
            .filter(|id| id.date == date);
        let taken: BTreeSet<u32> = taken.map(|id| id.number).collect();
        let after = taken.last().map_or(1, |last| last + 1);
        let number = if after <= LAST {
            after
        } else {
            (1..LAST).find(|free| !taken.contains(free)).unwrap_or(LAST)
        };
        Self { date, number }
    }
}

impl FromStr for SessionId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no name of a session such as 2025-12-24-session-001");
        let (day, number) = text.split_once(MIDDLE).ok_or_else(wrong)?;
        let form = day.len() == 10
            && number.len() >= 3
            && number.bytes().all(|byte| byte.is_ascii_digit());
        // A number of more digits than three has no zero in front: each session has one name.
        let form = form && (number.len() == 3 || !number.starts_with('0'));
        let id = Self {
            date: day.parse().ok().filter(|_| form).ok_or_else(wrong)?,
            number: number.parse().map_err(|_| wrong())?,
        };
        if id.number == 0 || id.number > LAST {
            Err(wrong())
        } else {
            Ok(id)
        }
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{MIDDLE}{:03}", self.date, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_as_they_are_written() {
        for name in [
            "2025-12-24-session-001",
            "2025-12-24-session-999",
            "2025-12-24-session-1000",
        ] {
            assert_eq!(name.parse::<SessionId>().unwrap().to_string(), name);
        }
        for no in [
            "",
            "2025-12-24",
            "2025-12-24-session-",
            "2025-12-24-session-01",
            "2025-12-24-session-000",
            "2025-12-24-session-0001",
            "2025-13-24-session-001",
            "25-12-24-session-001",
            "2025-12-24-session-001x",
            "2025-12-24-session-1000000",
            "2025-12-24-session-99999999999",
            "../2025-12-24-session-001",
        ] {
            assert!(no.parse::<SessionId>().is_err(), "{no}");
        }
    }

    #[test]
    fn a_name_is_after_all_of_its_day() {
        let day: Date = "2025-12-24".parse().unwrap();
        let next = |known: &[&str]| SessionId::next(day, known.iter().copied()).to_string();
        assert_eq!(next(&[]), "2025-12-24-session-001");
        assert_eq!(
            next(&[
                "2025-12-23-session-007",
                "README.md",
                "2025-12-24-session-x"
            ]),
            "2025-12-24-session-001"
        );
        assert_eq!(
            next(&["2025-12-24-session-002", "2025-12-24-session-001"]),
            "2025-12-24-session-003"
        );
        assert_eq!(next(&["2025-12-24-session-999"]), "2025-12-24-session-1000");
    }

    #[test]
    fn no_name_that_somebody_made_up_is_the_last_of_a_day() {
        let day: Date = "2025-12-24".parse().unwrap();
        for made_up in ["999999", "1000000", "999999999", "4294967295"] {
            let known = [
                format!("{day}-session-{made_up}"),
                format!("{day}-session-001"),
            ];
            let next = SessionId::next(day, known.iter().map(String::as_str)).to_string();
            assert_eq!(next, format!("{day}-session-002"), "{made_up}");
            assert!(next.parse::<SessionId>().is_ok());
        }
    }
}
