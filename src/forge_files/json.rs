//! JSON that keeps the order of its members, and the one way to print it.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::ops::Range;

use indexmap::IndexMap;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Maximum width of a list of plain values on one line, in characters.
const WIDTH: usize = 80;

/// Any JSON value; objects keep the order of their members.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(untagged)]
pub enum Json {
    /// `null`.
    #[default]
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(serde_json::Number),
    /// A text.
    String(String),
    /// A list.
    Array(Vec<Self>),
    /// An object.
    Object(Members),
}

/// The members of an object, in their order.
///
/// A typed object keeps its unknown members in one: `#[serde(flatten)] other: Members`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Members(pub IndexMap<String, Json>);

impl Members {
    /// Says whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Formats a value in the format of every JSON file of a project.
///
/// Two spaces for each level, one member on each line, lists of plain values on one line if they
/// fit, and a line feed at the end.
///
/// # Errors
/// The errors of the value's `Serialize`.
pub fn print<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, serde_json::Error> {
    let tree: Json = serde_json::from_slice(&serde_json::to_vec(value)?)?;
    Ok(text_of(&tree, false))
}

/// Formats a value like [`print()`], with every item on a line and an empty line between
/// neighbours.
///
/// Git merges changes of two members as text, because an unchanged line stands between them.
#[must_use]
pub fn print_apart(value: &Json) -> Vec<u8> {
    text_of(value, true)
}

fn text_of(value: &Json, apart: bool) -> Vec<u8> {
    let mut text = String::new();
    write(&mut text, value, 0, 0, apart);
    text.push('\n');
    text.into_bytes()
}

/// Writes a value that begins after `used` characters of its line.
fn write(text: &mut String, value: &Json, level: usize, used: usize, apart: bool) {
    let indent = |text: &mut String, level: usize| {
        text.push('\n');
        text.extend(std::iter::repeat_n("  ", level));
    };
    let between = if apart { ",\n" } else { "," };
    match value {
        Json::Array(items) if !items.is_empty() => {
            let plain = items.iter().all(|item| match item {
                Json::Array(items) => items.is_empty(),
                Json::Object(members) => members.is_empty(),
                _ => true,
            });
            if plain && !apart {
                let line = items.iter().map(compact).collect::<Vec<_>>().join(", ");
                // With the brackets, and a comma that may follow.
                if used + line.chars().count() + 3 <= WIDTH {
                    text.push('[');
                    text.push_str(&line);
                    text.push(']');
                    return;
                }
            }
            text.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    text.push_str(between);
                }
                indent(text, level + 1);
                write(text, item, level + 1, 2 * (level + 1), apart);
            }
            indent(text, level);
            text.push(']');
        }
        Json::Object(members) if !members.is_empty() => {
            text.push('{');
            for (at, (name, value)) in members.0.iter().enumerate() {
                if at > 0 {
                    text.push_str(between);
                }
                indent(text, level + 1);
                let name = format!("{}: ", compact(&Json::String(name.clone())));
                text.push_str(&name);
                write(
                    text,
                    value,
                    level + 1,
                    2 * (level + 1) + name.chars().count(),
                    apart,
                );
            }
            indent(text, level);
            text.push('}');
        }
        plain => text.push_str(&compact(plain)),
    }
}

/// The numbers of a file whose text differs from what this program would write.
///
/// Such as numbers with more digits than a Rust number keeps, `1.10`, `1e3`.
#[derive(Debug, Default)]
pub(crate) struct Numbers(HashMap<String, VecDeque<String>>);

impl Numbers {
    /// Finds them in the text of a file.
    pub(crate) fn of(text: &str) -> Self {
        let mut all: HashMap<String, VecDeque<String>> = HashMap::new();
        let mut odd = HashSet::new();
        for range in numbers(text) {
            let raw = &text[range];
            let Ok(number) = serde_json::from_str::<serde_json::Number>(raw) else {
                continue;
            };
            let ours = number.to_string();
            if ours != raw {
                odd.insert(ours.clone());
            }
            all.entry(ours).or_default().push_back(raw.to_owned());
        }
        all.retain(|ours, _| odd.contains(ours));
        Self(all)
    }

    /// Puts them back into a text that we wrote: each number that is still there, in the order of
    /// those that we write alike.
    pub(crate) fn put_back(mut self, bytes: Vec<u8>) -> Vec<u8> {
        let text = match String::from_utf8(bytes) {
            Ok(text) if !self.0.is_empty() => text,
            Ok(text) => return text.into_bytes(),
            Err(error) => return error.into_bytes(),
        };
        let mut all = String::with_capacity(text.len());
        let mut end = 0;
        for range in numbers(&text) {
            all.push_str(&text[end..range.start]);
            end = range.end;
            let ours = &text[range];
            let raw = self.0.get_mut(ours).and_then(VecDeque::pop_front);
            all.push_str(raw.as_deref().unwrap_or(ours));
        }
        all.push_str(&text[end..]);
        all.into_bytes()
    }
}

/// Returns the positions of the numbers in a JSON text.
fn numbers(text: &str) -> Vec<Range<usize>> {
    let bytes = text.as_bytes();
    let mut all = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                at += 1;
                while at < bytes.len() && bytes[at] != b'"' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            b'-' | b'0'..=b'9' => {
                let begin = at;
                while at < bytes.len()
                    && matches!(bytes[at], b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')
                {
                    at += 1;
                }
                all.push(begin..at);
            }
            _ => at += 1,
        }
    }
    all
}

fn compact(value: &Json) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(&self.0)
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Json, E> {
        serde_json::Number::from_f64(value)
            .map(Json::Number)
            .ok_or_else(|| E::custom("no JSON number"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element()? {
            all.push(item);
        }
        Ok(Json::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Json, A::Error> {
        let mut all = IndexMap::new();
        while let Some((name, value)) = members.next_entry::<String, Json>()? {
            if all.contains_key(&name) {
                return Err(de::Error::custom(format!("duplicate member {name:?}")));
            }
            all.insert(name, value);
        }
        Ok(Json::Object(Members(all)))
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any)
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Json::deserialize(deserializer)? {
            Json::Object(members) => Ok(members),
            _ => Err(de::Error::custom("expected a JSON object")),
        }
    }
}

macro_rules! any_schema {
    ($type:ty, $name:literal, $schema:tt) => {
        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

any_schema!(Json, "Json", {});
any_schema!(Members, "Members", { "type": "object" });

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Serialize, serde::Deserialize)]
    struct Known {
        a: u8,
        #[serde(flatten)]
        other: Members,
    }

    #[test]
    fn unknown_members_are_kept_in_their_order() {
        let text = r#"{"z":1,"a":2,"y":{"d":1,"c":[null,1.5,"t"]},"b":-3}"#;
        let known: Known = serde_json::from_str(text).unwrap();
        assert_eq!(
            serde_json::to_string(&known).unwrap(),
            r#"{"a":2,"z":1,"y":{"d":1,"c":[null,1.5,"t"]},"b":-3}"#
        );
        for twice in [
            r#"{"a":1,"b":1,"b":2}"#,
            r#"{"a":1,"a":2}"#,
            r#"{"a":1,"b":{"c":1,"c":1}}"#,
        ] {
            assert!(serde_json::from_str::<Known>(twice).is_err(), "{twice}");
        }
        assert!(Members::deserialize(serde_json::json!([])).is_err());
    }

    #[test]
    fn files_are_written_as_people_write_them() {
        let text = "{\n  \"name\": \"é\",\n  \"empty\": [],\n  \"none\": {},\n  \"short\": [\"cargo test\", \"cargo check\"],\n  \
                    \"long\": [\n    \"crates/sx9-atlas-daemon/src/main.rs\",\n    \"crates/sx9-harness/src/nats/subjects.rs\"\n  ],\n  \
                    \"objects\": [\n    {\n      \"a\": 1\n    }\n  ]\n}\n";
        let tree: Json = serde_json::from_str(text).unwrap();
        assert_eq!(String::from_utf8(print(&tree).unwrap()).unwrap(), text);
    }

    #[test]
    fn an_empty_line_separates_neighbours() {
        let tree: Json =
            serde_json::from_str(r#"{"a": [1, 2], "b": {"c": null, "d": []}}"#).unwrap();
        let text = "{\n  \"a\": [\n    1,\n\n    2\n  ],\n\n  \"b\": {\n    \"c\": null,\n\n    \"d\": []\n  }\n}\n";
        assert_eq!(String::from_utf8(print_apart(&tree)).unwrap(), text);
        assert_eq!(serde_json::from_str::<Json>(text).unwrap(), tree);
    }

    #[test]
    fn numbers_are_put_back_as_they_were_written() {
        let text = r#"{"a":123456789012345678901234567890,"b":[1.10,1.1,-0.5e2,7],"c":"1.10 \" 1e3","d":3.14159265358979323846264338327950288}"#;
        let again =
            |text: &str| serde_json::to_vec(&serde_json::from_str::<Json>(text).unwrap()).unwrap();
        assert_ne!(
            again(text),
            text.as_bytes(),
            "they are written in another way"
        );
        assert_eq!(
            String::from_utf8(Numbers::of(text).put_back(again(text))).unwrap(),
            text
        );
        let changed = text
            .replace("\"a\":123456789012345678901234567890,", "")
            .replace(",7]", ",8,1.1]");
        assert_eq!(
            String::from_utf8(Numbers::of(text).put_back(again(&changed))).unwrap(),
            changed
        );
        let plain = r#"{"a":1,"b":-2.5,"c":"\\"}"#;
        assert!(Numbers::of(plain).0.is_empty());
        assert_eq!(Numbers::of(plain).put_back(again(plain)), plain.as_bytes());
    }
}
