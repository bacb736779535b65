//! Reads answers of the REST routes into the types of the pages.
//!
//! The text is parsed once, into a [`Value`], and each type is read from that. `serde_json` would parse the text anew for each of
//! a hundred types, in code of its own for each; it also reads each struct from an array, which no route sends. This
//! code is a third smaller.

use serde::de::value::{Error, StrDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use serde_json::{Map, Number, Value};

/// Reads a JSON text.
///
/// # Errors
/// If it is no JSON, or has another form than the type.
pub(crate) fn from_slice<T: DeserializeOwned>(text: &[u8]) -> Result<T, Error> {
    T::deserialize(Json(&parse(text)?))
}

fn parse(text: &[u8]) -> Result<Value, Error> {
    serde_json::from_slice(text).map_err(Error::custom)
}

#[derive(Clone, Copy)]
struct Json<'a>(&'a Value);

impl Json<'_> {
    #[cold]
    fn wrong(self, expected: &str) -> Error {
        let found = match self.0 {
            Value::Null => "null",
            Value::Bool(_) => "true or false",
            Value::Number(_) => "a number",
            Value::String(_) => "a text",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        };
        Error::custom(format_args!("{expected} was expected, and there is {found}"))
    }

    fn text(&self) -> Result<&str, Error> {
        self.0.as_str().ok_or_else(|| self.wrong("a text"))
    }

    fn number(&self) -> Result<&Number, Error> {
        self.0.as_number().ok_or_else(|| self.wrong("a number"))
    }
}

/// Reads a number of any type.
macro_rules! numbers {
    ($($deserialize:ident)*) => {
        $(fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.deserialize_u64(visitor)
        })*
    };
}

impl<'de> Deserializer<'de> for Json<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(yes) => visitor.visit_bool(*yes),
            Value::Number(_) => self.deserialize_u64(visitor),
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(items) => visitor.visit_seq(Items(items.iter())),
            Value::Object(members) => visitor.visit_map(Members::new(members)),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(self.0.as_bool().ok_or_else(|| self.wrong("true or false"))?)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let number = self.number()?;
        match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => visitor.visit_u64(number),
            (_, Some(number)) => visitor.visit_i64(number),
            _ => visitor.visit_f64(number.as_f64().unwrap_or_default()),
        }
    }

    numbers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128 deserialize_u8 deserialize_u16
        deserialize_u32 deserialize_u128 deserialize_f32 deserialize_f64
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::String(text) => visitor.visit_borrowed_str(text),
            _ => Err(self.wrong("a text")),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(Items(self.0.as_array().ok_or_else(|| self.wrong("a list"))?.iter()))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(Members::new(self.0.as_object().ok_or_else(|| self.wrong("an object"))?))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_map(visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let name: StrDeserializer<'_, Error> = self.text()?.into_deserializer();
        visitor.visit_enum(name)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! { char bytes byte_buf unit unit_struct tuple_struct }
}

struct Items<'a>(std::slice::Iter<'a, Value>);

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        self.0.next().map(|item| seed.deserialize(Json(item))).transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

struct Members<'a> {
    rest: serde_json::map::Iter<'a>,
    /// Name and value of the member whose name was read last.
    member: (&'a str, &'a Value),
}

impl<'a> Members<'a> {
    fn new(members: &'a Map<String, Value>) -> Self {
        Self { rest: members.iter(), member: ("", &Value::Null) }
    }
}

impl<'de> MapAccess<'de> for Members<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((name, value)) = self.rest.next() else { return Ok(None) };
        self.member = (name, value);
        let name: StrDeserializer<'_, Error> = name.as_str().into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let (name, value) = self.member;
        seed.deserialize(Json(value)).map_err(|error| within(name, &error))
    }
}

/// Says in which member something is wrong.
#[cold]
fn within(name: &str, error: &Error) -> Error {
    Error::custom(format_args!("{name}: {error}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Word {
        Hit,
        Miss,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(tag = "kind", rename_all = "lowercase")]
    enum Tagged {
        Text { text: String },
        Number { number: i64 },
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Inner(u32);

    #[derive(Debug, PartialEq, Deserialize)]
    struct All {
        text: String,
        count: u64,
        change: i32,
        share: f64,
        yes: bool,
        absent: Option<String>,
        null: Option<u8>,
        given: Option<Inner>,
        word: Word,
        list: Vec<Tagged>,
        named: BTreeMap<String, Word>,
        pair: (String, u64),
        any: Value,
        #[serde(default)]
        default: u8,
    }

    #[test]
    fn every_form_that_routes_send_is_read_as_serde_json_reads_it() {
        let value = json!({
            "text": "a\u{202e}b", "count": u64::MAX, "change": -3, "share": 1, "yes": true, "null": null, "given": 4,
            "word": "miss", "list": [{"kind": "text", "text": "x"}, {"kind": "number", "number": -1}],
            "named": {"a": "hit", "b": "miss"}, "pair": ["x", 2], "any": {"deep": [1, null, {"x": 1.5}]},
            "of a newer server": {"unknown": []},
        });
        let read: All = from_slice(value.to_string().as_bytes()).unwrap();
        assert_eq!(read, serde_json::from_value(value.clone()).unwrap());
        assert_eq!(read.any, value["any"]);
    }

    #[test]
    fn an_error_says_where_and_what() {
        let error = |value: Value| {
            from_slice::<BTreeMap<String, Vec<Inner>>>(value.to_string().as_bytes()).unwrap_err().to_string()
        };
        assert_eq!(error(json!({"a": [1, "x"]})), "a: a number was expected, and there is a text");
        assert_eq!(error(json!({"a": {}})), "a: a list was expected, and there is an object");
        assert!(
            error(json!({"a": [-1]})).starts_with("a: invalid value: integer `-1`"),
            "{}",
            error(json!({"a": [-1]}))
        );
        assert!(from_slice::<Word>(b"\"gone\"").unwrap_err().to_string().contains("unknown variant `gone`"));
        assert!(from_slice::<Word>(b"{").is_err());
        assert!(from_slice::<All>(b"{}").unwrap_err().to_string().contains("missing field `text`"));
    }
}
