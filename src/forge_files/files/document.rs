//! Typed JSON files: checked when read, with the position of any damage.

use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Entries;
use crate::json::{self, Json};

/// Default limit for the size of one file: 16 MiB.
pub const MAX_FILE: u64 = 16 << 20;

/// A JSON file of the project.
pub trait Document: Serialize + DeserializeOwned + JsonSchema + Clone {
    /// Its path below the root; for a type with many files, the folder.
    const PATH: &'static str;
    /// The major version this program reads and writes.
    const MAJOR: u32 = 1;
    /// How it is kept, if each of its entries is a file. Then its path is that of the document that
    /// is made from them.
    const ENTRIES: Option<Entries<Self>> = None;

    /// Parses it from a text, which has this tree.
    ///
    /// # Errors
    /// Where it has another form.
    fn parse(text: &str, _: &Json) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }

    /// Returns the file a new project begins with.
    fn skeleton() -> Self;

    /// Checks what the types cannot express.
    ///
    /// # Errors
    /// What is wrong.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// Formats it for its file.
    ///
    /// # Errors
    /// The errors of its `Serialize`.
    fn print(&self) -> Result<Vec<u8>, serde_json::Error> {
        json::print(self)
    }
}

/// What a file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded<D> {
    /// The value.
    pub value: D,
    /// The etag of these bytes: see [`etag`](crate::files::etag).
    pub etag: String,
    /// A newer program wrote it (`schema_newer`): it is read and never written.
    pub read_only: bool,
}

/// Where and how a file is damaged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in bytes.
    pub column: usize,
    /// What was found, and what was expected.
    pub what: String,
}

/// Why a file cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unreadable {
    /// It is damaged.
    Damaged(Damage),
    /// A newer program wrote it, in a form that this one cannot read. Holds the version.
    Newer(String),
}

/// Parses a document. The flag is set if a newer program wrote it.
///
/// # Errors
/// See [`Unreadable`].
pub fn decode<D: Document>(bytes: &[u8]) -> Result<(D, bool), Unreadable> {
    let text = text(bytes).map_err(Unreadable::Damaged)?;
    let tree: Json =
        serde_json::from_str(text).map_err(|error| Unreadable::Damaged(syntax(text, &error)))?;
    let damage = |what: String| {
        Unreadable::Damaged(Damage {
            line: 1,
            column: 1,
            what,
        })
    };
    // A bare list has no version: the type decides whether it accepts one.
    let members = if let Json::Object(members) = &tree {
        Some(members)
    } else {
        None
    };
    let version = match members.and_then(|members| members.0.get("schema_version")) {
        None => None,
        Some(Json::String(version)) => Some(version),
        Some(_) => {
            return Err(damage(
                "expected \"schema_version\" to be a text as \"1.0\"".into(),
            ));
        }
    };
    let mut newer = false;
    if let Some(version) = version {
        let major = version_major(version)
            .filter(|major| *major >= D::MAJOR)
            .ok_or_else(|| {
                damage(format!(
                    "expected \"schema_version\" {}.x, found {version:?}",
                    D::MAJOR
                ))
            })?;
        newer = major > D::MAJOR;
    }
    let value: D = match D::parse(text, &tree) {
        Ok(value) => value,
        Err(_) if newer => return Err(Unreadable::Newer(version.cloned().unwrap_or_default())),
        Err(error) => return Err(Unreadable::Damaged(place(&error, &error.to_string()))),
    };
    if !newer {
        value.check().map_err(damage)?;
    }
    Ok((value, newer))
}

/// Returns bytes as text, if they are valid text for a file of the project.
///
/// That is UTF-8, not empty, without byte order mark, NUL or conflict markers.
///
/// # Errors
/// Where they are not.
pub fn text(bytes: &[u8]) -> Result<&str, Damage> {
    let at = |offset: usize, what: &str| {
        let before = &bytes[..offset];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        let column = 1 + offset
            - before
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |at| at + 1);
        Damage {
            line,
            column,
            what: what.to_owned(),
        }
    };
    if bytes.is_empty() {
        return Err(at(0, "expected text, found an empty file"));
    }
    if bytes.starts_with(b"\xef\xbb\xbf") {
        return Err(at(0, "expected text, found a byte order mark before it"));
    }
    if let Some(offset) = bytes.iter().position(|byte| *byte == 0) {
        return Err(at(offset, "expected text, found a NUL byte"));
    }
    let text =
        std::str::from_utf8(bytes).map_err(|error| at(error.valid_up_to(), "expected UTF-8"))?;
    if let Some(offset) = merge_marker(text) {
        return Err(at(
            offset,
            "found the marks of an unfinished merge: settle it first",
        ));
    }
    Ok(text)
}

/// Returns the offset of the first conflict markers, if all three kinds are there.
///
/// Each must be at the start of a line.
fn merge_marker(text: &str) -> Option<usize> {
    let mut offset = 0;
    let mut found = [None; 3];
    for line in text.split_inclusive('\n') {
        for (mark, found) in ["<<<<<<< ", "=======", ">>>>>>> "].iter().zip(&mut found) {
            let here = if *mark == "=======" {
                line.trim_end() == *mark
            } else {
                line.starts_with(mark)
            };
            if here && found.is_none() {
                *found = Some(offset);
            }
        }
        offset += line.len();
    }
    found
        .iter()
        .all(Option::is_some)
        .then(|| found[0].unwrap_or_default())
}

fn version_major(version: &str) -> Option<u32> {
    let (major, minor) = version.split_once('.')?;
    let number = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| text.parse::<u32>().ok())
            .flatten()
    };
    number(minor)?;
    number(major)
}

fn syntax(text: &str, error: &serde_json::Error) -> Damage {
    if error.is_eof() {
        return place(
            error,
            &format!(
                "expected more JSON, the file ends after {} bytes",
                text.len()
            ),
        );
    }
    place(error, &error.to_string())
}

fn place(error: &serde_json::Error, what: &str) -> Damage {
    // serde repeats the position at the end.
    let what = what.rsplit_once(" at line ").map_or(what, |(what, _)| what);
    // It quotes the value that it found, which may be anything.
    let what = crate::secrets::shown(in_words_of_json(what));
    Damage {
        line: error.line().max(1),
        column: error.column().max(1),
        what,
    }
}

/// Rewrites an error of serde in terms of JSON, because the names of Rust types do not help a
/// reader.
pub fn in_words_of_json(what: &str) -> String {
    let mut words = what
        .replace("invalid type: sequence", "invalid type: list")
        .replace("invalid type: map", "invalid type: object");
    for (kind, said) in [
        ("tuple struct ", "a list"),
        ("struct ", "an object"),
        ("internally tagged enum ", "an object"),
        ("enum ", "one of its words"),
    ] {
        let Some((before, rest)) = words.split_once(&format!("expected {kind}")) else {
            continue;
        };
        let after = rest.trim_start_matches(|letter: char| {
            letter.is_alphanumeric() || letter == '_' || letter == ':'
        });
        words = format!("{before}expected {said}{after}");
    }
    words
        .replace("expected a sequence", "expected a list")
        .replace("expected a map", "expected an object")
}

/// A type of document, without the type: for all that is done with any of them.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// Its name, such as `knowledge`.
    pub name: &'static str,
    /// See [`Document::PATH`].
    pub path: &'static str,
    schema: fn() -> Schema,
    check: fn(&[u8]) -> Result<(), Unreadable>,
    skeleton: fn() -> Vec<u8>,
}

impl Kind {
    /// Returns the kind of a type.
    #[must_use]
    pub const fn of<D: Document>(name: &'static str) -> Self {
        Self {
            name,
            path: D::PATH,
            schema: || schemars::schema_for!(D),
            check: |bytes| decode::<D>(bytes).map(drop),
            skeleton: || D::skeleton().print().unwrap_or_default(),
        }
    }

    /// Returns its JSON Schema, draft 2020-12.
    #[must_use]
    pub fn schema(&self) -> Schema {
        (self.schema)()
    }

    /// Checks a file.
    ///
    /// # Errors
    /// See [`decode`].
    pub fn check(&self, bytes: &[u8]) -> Result<(), Unreadable> {
        (self.check)(bytes)
    }

    /// Returns the bytes a new project begins with.
    #[must_use]
    pub fn skeleton(&self) -> Vec<u8> {
        (self.skeleton)()
    }
}
