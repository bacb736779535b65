//! Names that are one component of a path.

use std::fmt;
use std::path::Path;

use helmdeck_core::text::is_hidden;
use serde::Serialize;

/// Maximum length of a name, in bytes: with its prefix and suffix it is still a file name.
const LONGEST: usize = 200;

/// A name that is one part of a path: it leads neither up nor down, and has one line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Name(String);

/// Why a name is not safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsafe(&'static str);

impl Name {
    /// Parses a name without trimming it.
    ///
    /// # Errors
    /// Why it is not one part of a path: it is empty, longer than 200 bytes, `.` or `..`, holds
    /// `/`, `\`, or a character that is [hidden](is_hidden), or a joiner where it joins nothing.
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
        if hides(name) {
            return Err(Unsafe(
                "it holds a control character, or one that is not seen",
            ));
        }
        Ok(Self(name.to_owned()))
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns whether a name holds something that is not seen: another name would look the same.
fn hides(name: &str) -> bool {
    let mut before = None;
    let mut characters = name.chars().peekable();
    while let Some(character) = characters.next() {
        let after = characters.peek();
        let joins =
            matches!(character, '\u{200c}' | '\u{200d}') && after.is_none_or(char::is_ascii);
        // What belongs to a script or an emoji follows a part of it.
        let belongs = matches!(character, '\u{200c}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}');
        if is_hidden(character)
            || joins
            || (belongs && before.is_none_or(|before: char| before.is_ascii()))
        {
            return true;
        }
        before = Some(character);
    }
    false
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
        for good in [
            "foo",
            "foo-bar",
            "foo.bar",
            "v2",
            "a b",
            ".hidden",
            "a:b",
            "größe",
            "...",
            "می\u{200c}خواهم",
            "❤\u{fe0f}",
            &"x".repeat(200),
        ] {
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
            "foo\u{200b}",
            "foo\u{200d}",
            "記\u{200d}",
            "foo\u{fe0f}",
            "\u{feff}foo",
            "f\u{ad}oo",
            "foo\u{61c}",
            "foo\u{e0041}",
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
