//! Name of a checkpoint: `<KEY>-v<N>`. It is the last part of its tag.
//!
//! The file of its manifest has the beginning of the commit as well, `<KEY>-v<N>-<8 HEX>.json`: two
//! clones may give one name.

use std::collections::BTreeSet;
use std::fmt;

use helmdeck_forge_files::error::{Error, Result};
use helmdeck_forge_files::layout;

/// What every tag of a checkpoint starts with.
pub const PREFIX: &str = "checkpoint/";
/// The key of a checkpoint that belongs to no issue.
pub const NO_KEY: &str = "session";
/// The highest number. A tag with a larger one is not a checkpoint, and does not block later ones.
const LAST: u32 = 999_999;
/// The longest text that is read as a name, in bytes.
const LONGEST: usize = 64;

/// Name of a checkpoint.
///
/// A key has no slash, because `checkpoint/X` and `checkpoint/X/y` cannot both be tags.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// The issue, like `SX9-123`, or `session`.
    pub key: String,
    /// Which checkpoint of that issue it is, from 1.
    pub number: u32,
    /// The first 8 digits of its commit, where these tell it from one of another clone.
    pub mark: Option<String>,
}

/// Number of digits of a commit in a name.
const MARK: usize = 8;

impl Name {
    /// Makes a name.
    ///
    /// # Errors
    /// `Usage` if the key or the number is invalid.
    pub fn new(key: &str, number: u32) -> Result<Self> {
        if is_key(key) && (1..=LAST).contains(&number) {
            return Ok(Self {
                key: key.to_owned(),
                number,
                mark: None,
            });
        }
        Err(Error::usage(format!(
            "{key:?} is no key of an issue: letters and digits in capitals, a hyphen, a number, like SX9-123"
        )))
    }

    /// Parses a name, with or without `checkpoint/` or `refs/tags/checkpoint/` before it.
    ///
    /// Returns `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix("refs/tags/").unwrap_or(text);
        let text = text.strip_prefix(PREFIX).unwrap_or(text);
        if text.len() > LONGEST {
            return None;
        }
        let (key, rest) = text.rsplit_once("-v")?;
        let (number, mark) = rest
            .split_once('-')
            .map_or((rest, None), |(number, mark)| (number, Some(mark)));
        let is_hex = |mark: &str| {
            mark.len() == MARK && mark.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        };
        if !mark.is_none_or(is_hex) {
            return None;
        }
        if !is_key(key)
            || number.starts_with('0')
            || !number.bytes().all(|byte| byte.is_ascii_digit())
        {
            return None;
        }
        let number = number.parse().ok().filter(|number| *number <= LAST)?;
        Some(Self {
            key: key.to_owned(),
            number,
            mark: mark.map(str::to_owned),
        })
    }

    /// Parses a name that a caller passed.
    ///
    /// # Errors
    /// `Usage` if it is not the name of a checkpoint.
    pub fn asked(text: &str) -> Result<Self> {
        Self::parse(text).ok_or_else(|| {
            Error::usage(format!(
                "{text:?} is no checkpoint: give it like SX9-123-v1"
            ))
        })
    }

    /// Reads the tag of a checkpoint: what stands before its name, and the name.
    ///
    /// The former is `checkpoint/`, with the project's folder if that is below the root of the
    /// repository.
    #[must_use]
    pub fn of_tag(tag: &str) -> Option<(&str, Self)> {
        let name = tag.rfind('/')? + 1;
        let (prefix, name) = tag.split_at(name);
        let well_formed = prefix.starts_with(PREFIX) && !prefix.contains("//") && prefix.is_ascii();
        Some((
            prefix,
            Self::parse(name).filter(|name| well_formed && name.mark.is_none())?,
        ))
    }

    /// Returns the name with the beginning of a commit, in hex.
    #[must_use]
    pub fn at(&self, commit: &str) -> Self {
        Self {
            mark: commit.get(..MARK).map(str::to_owned),
            ..self.clone()
        }
    }

    /// Returns the name as tags have it.
    #[must_use]
    pub fn plain(&self) -> Self {
        Self {
            mark: None,
            ..self.clone()
        }
    }

    /// Returns the path of its manifest, below the root.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{}/{self}.json", layout::CHECKPOINTS)
    }

    /// Returns the next free number of a key.
    ///
    /// That is one more than the highest taken number, or the first free one if the last is taken.
    pub fn next<'a>(key: &str, taken: impl IntoIterator<Item = &'a Self>) -> Result<Self> {
        let taken: BTreeSet<u32> = taken
            .into_iter()
            .filter(|name| name.key == key)
            .map(|name| name.number)
            .collect();
        let after = taken.last().map_or(1, |last| last.saturating_add(1));
        let first = || (1..LAST).find(|free| !taken.contains(free)).unwrap_or(LAST);
        Self::new(key, if after <= LAST { after } else { first() })
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-v{}", self.key, self.number)?;
        self.mark.iter().try_for_each(|mark| write!(f, "-{mark}"))
    }
}

/// Says whether a text is the key of an issue, or the key for no issue.
fn is_key(text: &str) -> bool {
    text == NO_KEY || crate::issues::is_key(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_with_or_without_what_stands_before_it() {
        for text in [
            "SX9-123-v1",
            "checkpoint/SX9-123-v1",
            "refs/tags/checkpoint/SX9-123-v1",
        ] {
            assert_eq!(
                Name::parse(text),
                Some(Name {
                    key: "SX9-123".into(),
                    number: 1,
                    mark: None
                }),
                "{text}"
            );
        }
        assert_eq!(
            Name::of_tag("checkpoint/session-v12"),
            Some(("checkpoint/", Name::parse("session-v12").unwrap()))
        );
        assert_eq!(
            Name::of_tag("checkpoint/a/b%20c/A-1-v1"),
            Some(("checkpoint/a/b%20c/", Name::parse("A-1-v1").unwrap()))
        );
        for no in [
            "A-1-v1",
            "release/A-1-v1",
            "checkpoint/../x",
            "checkpoint//A-1-v1",
            "checkpoint/a",
        ] {
            assert_eq!(Name::of_tag(no), None, "{no}");
        }
        let name = Name::parse("SX9-123-v1").unwrap();
        let marked = name.at("0123456789abcdef");
        assert_eq!(
            marked.path(),
            ".forge/git/checkpoints/SX9-123-v1-01234567.json"
        );
        assert_eq!(
            (Name::parse("SX9-123-v1-01234567"), marked.plain()),
            (Some(marked), name)
        );
        assert_eq!(Name::of_tag("checkpoint/SX9-123-v1-01234567"), None);
    }

    #[test]
    fn no_tag_that_somebody_made_up_is_the_last() {
        for made_up in ["999999", "1000000", "4294967295"] {
            let tags = [
                format!("checkpoint/SX9-1-v{made_up}"),
                "checkpoint/SX9-1-v1".to_owned(),
            ];
            let taken: Vec<_> = tags.iter().filter_map(|tag| Name::parse(tag)).collect();
            assert_eq!(
                Name::next("SX9-1", &taken).unwrap().to_string(),
                "SX9-1-v2",
                "{made_up}"
            );
        }
    }

    #[test]
    fn what_could_leave_the_folder_or_the_namespace_is_no_name() {
        for text in [
            "",
            "-v1",
            "SX9-123",
            "SX9-123-v",
            "SX9-123-v0",
            "SX9-123-v01",
            "SX9-123-v+1",
            "SX9-123-v-1",
            "SX9-123-v99999999999",
            "SX9-123-v1-0123456g",
            "SX9-123-v1-012345678",
            "sx9-123-v1",
            "9SX-1-v1",
            "SX9-0-v1",
            "SX9-1/x-v1",
            "../SX9-1-v1",
            "SX9-1-v1.lock",
            "SX9-1-v1\n",
            "Session-v1",
            "ABCDEFGHIJK-1-v1",
            "SX9-12345678901-v1",
        ] {
            assert_eq!(Name::parse(text), None, "{text:?}");
        }
        assert!(Name::new("SX9", 1).is_err());
        assert!(Name::new("SX9-1", 0).is_err());
    }

    #[test]
    fn the_next_number_is_one_more_than_the_highest_of_that_key() {
        let taken: Vec<_> = ["A-1-v1", "A-1-v7", "A-2-v9"]
            .iter()
            .filter_map(|text| Name::parse(text))
            .collect();
        assert_eq!(Name::next("A-1", &taken).unwrap().to_string(), "A-1-v8");
        assert_eq!(Name::next("A-3", &taken).unwrap().to_string(), "A-3-v1");
    }
}
