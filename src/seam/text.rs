//! Reading short texts, and showing texts on one line.

use std::io;
use std::path::{Path, PathBuf};

pub(crate) use helmdeck_core::text::one_line;
use helmdeck_git::discover;
use serde::{Serialize as _, Serializer};

use crate::readers::{Contents, Kind, Look};

/// A short text file, as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Short {
    /// The file is missing.
    Absent,
    /// A text.
    Text(String),
    /// Bytes that are no UTF-8: those are replaced by `U+FFFD`.
    Lossy(String),
    /// It exists and is not a readable file: why.
    Wrong(String),
}

/// Reads a short text file.
///
/// A missing file is distinct from one that exists and is not readable. A byte order mark, which
/// some editors put before a text, is dropped.
pub(crate) fn read(look: &dyn Look, path: &Path, most: usize) -> Short {
    short(look, path, most, look.read(path, most))
}

/// Reads a file below a folder, as [`read`] does.
///
/// A file that a link leads outside of the folder is wrong, and nothing of it is read.
pub(crate) fn read_within(look: &dyn Look, folder: &Path, path: &Path, most: usize) -> Short {
    short(look, path, most, look.read_within(folder, path, most))
}

fn short(look: &dyn Look, path: &Path, most: usize, read: io::Result<Option<Contents>>) -> Short {
    match read {
        Ok(Some(contents)) if !contents.whole => {
            Short::Wrong(format!("it is larger than {most} bytes"))
        }
        Ok(Some(contents)) => match std::str::from_utf8(unmarked(&contents.bytes)) {
            Ok(text) => Short::Text(text.to_owned()),
            Err(_) => Short::Lossy(String::from_utf8_lossy(unmarked(&contents.bytes)).into_owned()),
        },
        Err(error) => Short::Wrong(error.to_string()),
        Ok(None) => match look.about(path) {
            Ok(None) => Short::Absent,
            Ok(Some(about)) if about.kind == Kind::Link => {
                Short::Wrong("it is a link that leads nowhere".to_owned())
            }
            Ok(Some(_)) => Short::Wrong("it is no file that can be read".to_owned()),
            Err(error) => Short::Wrong(error.to_string()),
        },
    }
}

/// The files of a [`Look`], for the discovery of repositories.
pub(crate) struct LookedAt<'a>(pub(crate) &'a dyn Look);

impl discover::Files for LookedAt<'_> {
    fn kind(&self, path: &Path) -> io::Result<Option<discover::Kind>> {
        let about = self.0.behind(path)?;
        Ok(about.map(|about| match about.kind {
            Kind::File => discover::Kind::File,
            Kind::Folder => discover::Kind::Folder,
            Kind::Link | Kind::Other => discover::Kind::Other,
        }))
    }

    fn is_foreign(&self, path: &Path) -> io::Result<bool> {
        Ok(self.0.about(path)?.is_some_and(|about| about.foreign))
    }

    fn text(&self, path: &Path, limit: usize) -> Result<Option<String>, String> {
        match read(self.0, path, limit) {
            Short::Text(text) | Short::Lossy(text) => Ok(Some(text)),
            Short::Absent => Ok(None),
            Short::Wrong(why) => Err(why),
        }
    }
}

fn unmarked(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

/// Writes a path as JSON. What of it is no UTF-8 is replaced by `U+FFFD`.
///
/// # Errors
/// What the serializer says.
pub(crate) fn lossy<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

/// Serializes an optional path, as [`lossy`] does.
///
/// # Errors
/// The serializer's error.
pub(crate) fn lossy_or_none<S: Serializer>(
    path: &Option<PathBuf>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    path.as_ref()
        .map(|path| path.to_string_lossy())
        .serialize(serializer)
}

/// Returns the start of a text in quotes, on one line.
pub(crate) fn quoted(text: &str) -> String {
    const LONGEST: usize = 60;
    let cut: String = text.chars().take(LONGEST).collect();
    let more = if text.chars().nth(LONGEST).is_some() {
        "…"
    } else {
        ""
    };
    format!("'{}{more}'", one_line(&cut))
}

#[cfg(test)]
mod tests {
    use crate::readers::Disk;

    use super::*;

    #[test]
    fn what_is_there_and_no_file_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("text"), "é").unwrap();
        std::fs::write(at("lossy"), b"a\xff").unwrap();
        std::fs::write(at("marked"), b"\xef\xbb\xbfa").unwrap();
        std::fs::write(at("marked lossy"), b"\xef\xbb\xbf\xff").unwrap();
        std::os::unix::fs::symlink("nowhere", at("dangling")).unwrap();
        let read = |name: &str, most| read(&Disk, &at(name), most);
        assert_eq!(read("absent", 9), Short::Absent);
        assert_eq!(read("absent/below", 9), Short::Absent);
        assert_eq!(read("text", 9), Short::Text("é".into()));
        assert_eq!(read("lossy", 9), Short::Lossy("a\u{fffd}".into()));
        assert_eq!(read("marked", 9), Short::Text("a".into()));
        assert_eq!(read("marked lossy", 9), Short::Lossy("\u{fffd}".into()));
        for (name, most) in [("text", 1), ("dangling", 9), ("", 9)] {
            assert!(matches!(read(name, most), Short::Wrong(_)), "{name}");
        }
    }

    #[test]
    fn every_text_is_shown_on_one_line() {
        assert_eq!(
            one_line("a\nb\u{1b}[2J\u{2028}é"),
            "a\\nb\\u{1b}[2J\\u{2028}é"
        );
        assert_eq!(quoted(&"x".repeat(61)), format!("'{}…'", "x".repeat(60)));
    }
}
