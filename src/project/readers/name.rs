//! Names that become one part of a path.

use std::fmt;
use std::path::Path;

use serde::Serialize;

/// The longest name, in bytes: with what is put before and after it, it is still the name of a file.
const LONGEST: usize = 200;

/// A name that is one part of a path: it leads neither up nor down, and has one line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Name(String);

/// Why a name is not safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsafe(&'static str);

impl Name {
    /// Takes a name as it is: nothing is trimmed.
    ///
    /// # Errors
    /// Why it is not one part of a path: it is empty, longer than 200 bytes, `.` or `..`, holds `/`, `\`, a control character, an end of
    /// a line, or a character that changes the order in which others are shown.
    pub fn parse(name: &str) -> Result<Self, Unsafe> {
        if name.trim().is_empty() {
            return Err(Unsafe("it is blank"));
        }
        if name.len() > LONGEST {
            return Err(Unsafe("it is longer than 200 bytes"));
        }
        if matches!(name, "." | "..") || name.contains(['/', '\\']) {
            return Err(Unsafe("it must be one name, not a path"));
        }
        if name.chars().any(is_hidden) {
            return Err(Unsafe("it holds a control character"));
        }
        Ok(Self(name.to_owned()))
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Says whether a character ends a line, moves a cursor, or changes the order in which others are shown.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

impl AsRef<Path> for Name {
    fn as_ref(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Unsafe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Unsafe {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_is_one_part_of_a_path() {
        for good in ["foo", "foo-bar", "foo.bar", "v2", "a b", ".hidden", "a:b", "größe", "...", &"x".repeat(200)] {
            assert_eq!(Name::parse(good).unwrap().as_str(), good);
        }
        let long = "x".repeat(201);
        for bad in [
            "",
            " ",
            ".",
            "..",
            "a/b",
            "/",
            "a\\b",
            "a\0",
            "a\nb",
            "\u{1b}[2J",
            "a\u{85}b",
            "a\u{2028}b",
            "a\u{202e}b",
            &long,
        ] {
            assert!(Name::parse(bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn no_name_leads_out_of_a_folder(text in any::<String>()) {
            if let Ok(name) = Name::parse(&text) {
                let path = Path::new("/a").join(&name);
                prop_assert_eq!(path.parent(), Some(Path::new("/a")));
                prop_assert_eq!(path.file_name().and_then(|name| name.to_str()), Some(name.as_str()));
            }
        }
    }
}
