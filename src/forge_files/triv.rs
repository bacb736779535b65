//! Three-part names, "triv/1": content, context and id.
//!
//! `M(d, s)` is `MurmurHash3_x64_128` of the bytes `d` with the seed `s`, read as the 128 bit
//! number `h2 << 64 | h1`. `B36(n, w)` is `n` in base 36 (`0-9a-z`), the most significant digit
//! first, padded with `0` to `w` digits.
//!
//! - SCH = `B36(M(bytes, 0xC7A5_0000), 25)`: what it is.
//! - CUID = `B36(low 64 bits of M(context, 0xC7A5_0001), 13)`: where it was made.
//! - UUID = a `UUIDv7`: which one it is.
//!
//! The hash detects copies and accidental damage. It is not collision-resistant against an
//! attacker: no decision about trust may depend on it.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use uuid::Uuid;

use crate::error::{Error, Result};

const SCH_SEED: u32 = 0xC7A5_0000;
const CUID_SEED: u32 = 0xC7A5_0001;
/// Characters of an SCH.
pub const SCH_LEN: usize = 25;
/// Characters of a CUID.
pub const CUID_LEN: usize = 13;
/// Number of characters of an SCH in a file name, as written.
const SHORT_LEN: usize = 12;
/// The fewest characters of an SCH in a file name.
const SHORTEST: usize = 6;
/// The longest slug that is written, in bytes; with the rest it is less than any file system's
/// limit.
const SLUG_MAX: usize = 120;

/// Returns the SCH of bytes exactly as they are stored: 25 characters. Also the etag of a file.
#[must_use]
pub fn sch(bytes: &[u8]) -> String {
    base36(murmur(bytes, SCH_SEED), SCH_LEN)
}

/// The context in which a thing was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context<'a> {
    /// What kind of thing it is: `code`.
    pub kind: &'a str,
    /// The session.
    pub session: &'a str,
    /// The agent that made it.
    pub agent: &'a str,
    /// The issue: `SX9-123`.
    pub key: Option<&'a str>,
    /// The commit that was checked out, in hex.
    pub head: Option<&'a str>,
    /// The name its maker gave it.
    pub name: &'a str,
}

/// Returns the CUID of a context: 13 characters.
///
/// # Errors
/// `Usage` if a part contains a line feed, because two contexts would then be written alike.
pub fn cuid(context: &Context<'_>) -> Result<String> {
    let Context {
        kind,
        session,
        agent,
        key,
        head,
        name,
    } = *context;
    let (key, head) = (key.unwrap_or("-"), head.unwrap_or("-"));
    if [kind, session, agent, key, head, name]
        .iter()
        .any(|part| part.contains('\n'))
    {
        return Err(Error::usage(
            "no part of an artifact's context may hold a line feed",
        ));
    }
    let text = format!("helmdeck-triv/1\n{kind}\n{session}\n{agent}\n{key}\n{head}\n{name}");
    Ok(base36(
        murmur(text.as_bytes(), CUID_SEED) & u128::from(u64::MAX),
        CUID_LEN,
    ))
}

fn murmur(mut bytes: &[u8], seed: u32) -> u128 {
    // Reading from memory does not fail.
    murmur3::murmur3_x64_128(&mut bytes, seed).unwrap_or_default()
}

fn base36(mut number: u128, width: usize) -> String {
    let mut digits = vec![b'0'; width];
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdefghijklmnopqrstuvwxyz"
            [usize::try_from(number % 36).unwrap_or_default()];
        number /= 36;
    }
    digits.into_iter().map(char::from).collect()
}

fn is_base36(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase())
}

/// A whole name: `triv:<SCH>_<CUID>_<UUID>`, 81 characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Triv {
    sch: String,
    cuid: String,
    uuid: Uuid,
}

impl Triv {
    /// Names a thing by its bytes, its context and a unique id.
    ///
    /// # Errors
    /// `Usage` if a part of the context holds a line feed, or the id is no `UUIDv7`.
    pub fn new(bytes: &[u8], context: &Context<'_>, uuid: Uuid) -> Result<Self> {
        if !is_v7(&uuid) {
            return Err(Error::usage(format!("{uuid} is no UUIDv7")));
        }
        Ok(Self {
            sch: sch(bytes),
            cuid: cuid(context)?,
            uuid,
        })
    }

    /// Reads a whole name.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let name = || {
            let (sch, rest) = text.strip_prefix("triv:")?.split_once('_')?;
            let (cuid, id) = rest.split_once('_')?;
            let whole =
                sch.len() == SCH_LEN && cuid.len() == CUID_LEN && is_base36(sch) && is_base36(cuid);
            let uuid = Uuid::try_parse(id).ok().filter(is_v7)?;
            // Upper case, braces and the form without hyphens are not accepted.
            (whole && uuid.hyphenated().to_string() == id).then(|| Self {
                sch: sch.into(),
                cuid: cuid.into(),
                uuid,
            })
        };
        name().ok_or_else(|| {
            format!("{text:?} is no whole name: triv:<25 characters>_<13 characters>_<UUIDv7>")
        })
    }

    /// What it is: 25 characters.
    #[must_use]
    pub fn sch(&self) -> &str {
        &self.sch
    }

    /// The context it was made in: 13 characters.
    #[must_use]
    pub fn cuid(&self) -> &str {
        &self.cuid
    }

    /// Which one it is.
    #[must_use]
    pub const fn uuid(&self) -> Uuid {
        self.uuid
    }
}

fn is_v7(uuid: &Uuid) -> bool {
    uuid.get_version_num() == 7 && uuid.get_variant() == uuid::Variant::RFC4122
}

impl fmt::Display for Triv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "triv:{}_{}_{}",
            self.sch,
            self.cuid,
            self.uuid.hyphenated()
        )
    }
}

/// Reference to names, as a person may write it: `triv:abc_def_ghi`. Each part may be shortened.
///
/// It matches every full name whose parts begin with its parts, and may match none.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference(String);

impl Reference {
    /// Reads a reference.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parts = text
            .strip_prefix("triv:")
            .map(|names| names.splitn(3, '_').collect::<Vec<_>>());
        let part = |text: &str, most: usize| (3..=most).contains(&text.len()) && is_base36(text);
        match parts.as_deref() {
            Some([sch, cuid, uuid])
                if part(sch, SCH_LEN)
                    && part(cuid, CUID_LEN)
                    && (3..=36).contains(&uuid.len())
                    && is_base36(&uuid.replace('-', "")) =>
            {
                Ok(Self(text.to_owned()))
            }
            _ => Err(format!(
                "{text:?} is no reference: triv:<3 to 25>_<3 to 13>_<3 to 36 characters>"
            )),
        }
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Says whether it matches a name.
    #[must_use]
    pub fn matches(&self, name: &Triv) -> bool {
        let mut parts = self.0.trim_start_matches("triv:").splitn(3, '_');
        let mut begins = |whole: &str| parts.next().is_some_and(|part| whole.starts_with(part));
        begins(&name.sch) && begins(&name.cuid) && begins(&name.uuid.hyphenated().to_string())
    }

    /// Says whether it matches the content of a name, wherever that was made.
    #[must_use]
    pub fn matches_content(&self, name: &Triv) -> bool {
        self.0
            .trim_start_matches("triv:")
            .split('_')
            .next()
            .is_some_and(|part| name.sch.starts_with(part))
    }
}

impl From<&Triv> for Reference {
    fn from(name: &Triv) -> Self {
        Self(name.to_string())
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of an artifact's file: `triv_<short>_<slug>`, where short is the beginning of the SCH.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FileName {
    short: String,
    slug: String,
}

impl FileName {
    /// Makes the file name for an SCH.
    ///
    /// `taken` says whether the file of another SCH has that short form: then it is made longer.
    pub fn new(sch: &str, name: &str, taken: impl Fn(&str) -> bool) -> Self {
        let short = (SHORT_LEN..=SCH_LEN)
            .filter_map(|len| sch.get(..len))
            .find(|short| !taken(short))
            .unwrap_or(sch);
        Self {
            short: short.to_owned(),
            slug: slug(name),
        }
    }

    /// Reads a file name; 6 to 25 characters of the SCH are fine.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        text.strip_prefix("triv_")
            .and_then(|rest| rest.split_once('_'))
            .filter(|(short, slug)| {
                (SHORTEST..=SCH_LEN).contains(&short.len())
                    && is_base36(short)
                    && is_slug(slug.as_bytes())
            })
            .map(|(short, slug)| Self {
                short: short.to_owned(),
                slug: slug.to_owned(),
            })
            .ok_or_else(|| {
                format!("{text:?} is no artifact's file name: triv_<6 to 25 characters>_<name>")
            })
    }

    /// The beginning of the SCH.
    #[must_use]
    pub fn short(&self) -> &str {
        &self.short
    }

    /// The name within it, with its ending.
    #[must_use]
    pub fn slug(&self) -> &str {
        &self.slug
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "triv_{}_{}", self.short, self.slug)
    }
}

fn in_slug(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'_' | b'-')
}

fn is_slug(text: &[u8]) -> bool {
    text.first().is_some_and(u8::is_ascii_alphanumeric) && text.iter().copied().all(in_slug)
}

/// Converts a name for use in a file name.
///
/// The result is in lower case, with `-` for every byte that is not a letter, a digit, `.`, `_` or
/// `-`. It begins with a letter or digit, and has at most 120 bytes.
#[must_use]
pub fn slug(name: &str) -> String {
    let text: String = name
        .bytes()
        .map(|byte| byte.to_ascii_lowercase())
        .map(|byte| char::from(if in_slug(byte) { byte } else { b'-' }))
        .collect();
    let rest = text.trim_start_matches(['.', '_', '-']);
    let cut = &text[..text.len() - rest.len()];
    let slug = match rest {
        "" => "file".to_owned(),
        // Nothing is left before the file extension.
        ending if cut.len() > 1 && cut.ends_with('.') => format!("file.{ending}"),
        rest => rest.to_owned(),
    };
    if slug.len() <= SLUG_MAX {
        return slug;
    }
    let ending = slug
        .rfind('.')
        .map(|at| &slug[at..])
        .filter(|ending| ending.len() <= 16)
        .unwrap_or_default();
    format!("{}{ending}", &slug[..SLUG_MAX - ending.len()])
}

macro_rules! as_text {
    ($type:ty, $name:literal, $pattern:literal) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = Cow::<'de, str>::deserialize(deserializer)?;
                Self::parse(&text).map_err(de::Error::custom)
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "pattern": $pattern })
            }
        }
    };
}

as_text!(
    Triv,
    "Triv",
    "^triv:[0-9a-z]{25}_[0-9a-z]{13}_[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"
);
as_text!(
    Reference,
    "Reference",
    "^triv:[0-9a-z]{3,25}_[0-9a-z]{3,13}_[0-9a-z-]{3,36}$"
);

#[cfg(test)]
mod tests;
