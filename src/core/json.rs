//! Well-formed JSON text that is cheap to clone, and a strict parser for untrusted JSON.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use bytes::Bytes;
use serde::de::{DeserializeOwned, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

use crate::error::{Code, Error, Result};

/// Well-formed JSON text, kept byte for byte. Cloning copies a pointer, never the text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Json(Bytes);

impl Json {
    /// Checks that the bytes are one JSON document in UTF-8 and wraps them.
    ///
    /// # Errors
    /// The parser's message, with line and column.
    pub fn parse(bytes: impl Into<Bytes>) -> Result<Self, serde_json::Error> {
        let bytes = bytes.into();
        serde_json::from_slice::<&RawValue>(&bytes)?;
        Ok(Self(bytes))
    }

    /// Wraps bytes that are known to be JSON: bytes that this process wrote, or that a seal vouches
    /// for.
    #[must_use]
    pub const fn from_trusted(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// Writes a value as JSON.
    ///
    /// # Errors
    /// If the value cannot be written, for example a map with keys that are not text.
    pub fn from_serialize<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::to_vec(value).map(|bytes| Self(bytes.into()))
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // The constructors checked it; a caller that broke its promise gets an empty document, not
        // undefined behaviour.
        std::str::from_utf8(&self.0).unwrap_or("null")
    }

    /// Returns the bytes.
    #[must_use]
    pub const fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// Reads the text as `T`.
    ///
    /// JSON Schema counts `1.0` and `1e2` as integers and serde does not; an input spelled that way
    /// is read from its canonical form, so that all spellings of one value reach a handler alike.
    ///
    /// # Errors
    /// `invalid_input`.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T> {
        match serde_json::from_slice(&self.0) {
            Ok(value) => Ok(value),
            Err(first) => crate::canonical::canonical(self.as_str())
                .ok()
                .and_then(|text| serde_json::from_slice(&text).ok())
                .ok_or_else(|| {
                    Error::new(
                        Code::InvalidInput,
                        "the input does not have the expected form",
                    )
                    .with_source(first)
                }),
        }
    }

    /// Reads the text as a JSON value.
    #[must_use]
    pub fn to_value(&self) -> Value {
        serde_json::from_slice(&self.0).unwrap_or(Value::Null)
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Json({} bytes)", self.0.len())
    }
}

impl Serialize for Json {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_slice(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self(
            Box::<str>::from(raw).into_string().into_bytes().into(),
        ))
    }
}

impl From<Value> for Json {
    fn from(value: Value) -> Self {
        Self(value.to_string().into_bytes().into())
    }
}

/// Reads one JSON document strictly.
///
/// It must be UTF-8, at most 128 levels deep, without duplicate keys (I-JSON, RFC 7493 section
/// 2.3), and without numbers beyond the range of a 64-bit float.
///
/// # Errors
/// The parser's message, with line and column.
pub fn read_strict(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Strict.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// As [`read_strict`], for validation by a schema.
///
/// A number that a float would round to an integer stays a non-integer
/// ([`crate::numbers::with_exact_integers`]).
///
/// # Errors
/// The parser's message, with line and column.
pub fn read_exact(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    let value = read_strict(bytes)?;
    match std::str::from_utf8(bytes).map(crate::numbers::with_exact_integers) {
        Ok(Cow::Owned(exact)) => read_strict(exact.as_bytes()),
        _ => Ok(value),
    }
}

/// Checks the same as [`read_strict`] without building the value: for text that is passed on
/// unchanged.
///
/// Use it on every answer from another program (an HTTP response, a tool of an MCP server) before
/// it becomes an output.
///
/// # Errors
/// The parser's message, with line and column.
pub fn check_strict(bytes: &[u8]) -> Result<(), serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    Checked.deserialize(&mut deserializer)?;
    deserializer.end()
}

fn same_key_twice<E: serde::de::Error>() -> E {
    E::custom("an object has the same key twice")
}

/// As [`Strict`], and keeps nothing but the keys of the objects that are open.
struct Checked;

impl<'de> DeserializeSeed<'de> for Checked {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Checked {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut keys = Keys::default();
        while let Some(key) = members.next_key::<Key<'_>>()? {
            members.next_value_seed(Self)?;
            if !keys.insert(key) {
                return Err(same_key_twice());
            }
        }
        Ok(())
    }
}

/// A key, borrowed from the text unless it has escapes.
#[derive(Deserialize, PartialEq, Eq, Hash)]
#[serde(transparent)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

/// Keys that were seen. Few are compared with each other, which is faster than to hash them.
#[derive(Default)]
struct Keys<'a> {
    few: Vec<Key<'a>>,
    many: HashSet<Key<'a>>,
}

impl<'a> Keys<'a> {
    const FEW: usize = 16;

    /// Adds a key; `false` if it was there.
    fn insert(&mut self, key: Key<'a>) -> bool {
        if self.many.is_empty() {
            if self.few.contains(&key) {
                return false;
            }
            if self.few.len() < Self::FEW {
                self.few.push(key);
                return true;
            }
            self.many.extend(self.few.drain(..));
        }
        self.many.insert(key)
    }
}

struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(Self)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            let value = members.next_value_seed(Self)?;
            if object.insert(key, value).is_some() {
                return Err(same_key_twice());
            }
        }
        Ok(Value::Object(object))
    }
}

/// Returns the members of a JSON object as (key, raw text), in text order.
///
/// `None` if the text is not an object.
pub fn members(text: &str) -> Option<Vec<(String, &RawValue)>> {
    struct Members;

    impl<'de> Visitor<'de> for Members {
        type Value = Vec<(String, &'de RawValue)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a JSON object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some(member) = access.next_entry()? {
                members.push(member);
            }
            Ok(members)
        }
    }

    let mut deserializer = serde_json::Deserializer::from_str(text);
    serde::Deserializer::deserialize_map(&mut deserializer, Members).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_reading_refuses_what_two_readers_could_read_differently() {
        assert_eq!(
            read_strict(br#"{"a":[1,-2,1.5,"x",null,true]}"#).unwrap(),
            serde_json::json!({"a":[1,-2,1.5,"x",null,true]})
        );
        assert!(
            read_strict(br#"{"a":1,"a":2}"#)
                .unwrap_err()
                .to_string()
                .contains("same key twice")
        );
        assert!(read_strict(br#"{"a":{"b":1,"\u0062":2}}"#).is_err());
        assert!(read_strict(b"{} {}").is_err());
        assert!(read_strict(b"\"\xff\"").is_err());
        assert!(read_strict("[".repeat(100_000).as_bytes()).is_err());
        assert!(read_strict(b"1e999").is_err());
    }

    #[test]
    fn checking_refuses_what_strict_reading_refuses() {
        let object = |members: usize, again: Option<usize>| {
            let members: Vec<String> = (0..members)
                .chain(again)
                .map(|number| format!("\"{number}\":0"))
                .collect();
            format!("{{{}}}", members.join(",")).into_bytes()
        };
        let deep =
            |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels)).into_bytes();
        for (text, accepted) in [
            (
                br#"{"a":[1,-2,1.5,"x\n",null,true],"b":{"a":{}}}"#.to_vec(),
                true,
            ),
            (br#"{"a":1,"a":2}"#.to_vec(), false),
            (br#"[{"a":{"b":1,"\u0062":2}}]"#.to_vec(), false),
            (object(100, None), true),
            (object(100, Some(3)), false),
            (object(17, Some(16)), false),
            (object(16, Some(15)), false),
            (b"{} {}".to_vec(), false),
            (b"\"\xff\"".to_vec(), false),
            (b"1e999".to_vec(), false),
            (deep(127), true),
            (deep(128), false),
            (deep(2_000_000), false),
        ] {
            let shown = String::from_utf8_lossy(&text[..text.len().min(40)]).into_owned();
            assert_eq!(check_strict(&text).is_ok(), accepted, "{shown}");
            assert_eq!(read_strict(&text).is_ok(), accepted, "{shown}");
        }
    }

    #[test]
    fn reading_takes_every_spelling_of_an_integer() {
        #[derive(Deserialize)]
        struct Input {
            n: u32,
        }
        for text in [r#"{"n":100}"#, r#"{"n":100.0}"#, r#"{"n":1e2}"#] {
            assert_eq!(Json::parse(text).unwrap().read::<Input>().unwrap().n, 100);
        }
        assert!(
            Json::parse(r#"{"n":1.5}"#)
                .unwrap()
                .read::<Input>()
                .is_err()
        );
    }
}
