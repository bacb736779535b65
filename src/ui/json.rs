//! Reads answers of the REST routes into the types of the pages.
//!
//! A text is parsed once, into a [`Value`], and each type is read from that by [`answer!`]. Of a
//! hundred types, only the names of the members are code of their own; what `serde` derives for
//! them was a fifth of the pages' code.

use std::collections::BTreeMap;
use std::fmt;

use helmdeck_core::PackName;
use serde_json::{Map, Value};

/// Declares types that are read from JSON objects. Members that a type does not name are skipped.
///
/// A member that is missing is an error, except for an `Option`. After a field may stand `=
/// default`, for a member that may be missing, or `= "name"`, for a member with another name than
/// its field.
macro_rules! answer {
    ($(
        $(#[$meta:meta])*
        $vis:vis struct $name:ident $(<$of:ident>)? {
            $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $type:ty $(= $how:tt)?),* $(,)?
        }
    )+) => {$(
        $(#[$meta])*
        $vis struct $name $(<$of>)? {
            $($(#[$field_meta])* $field_vis $field: $type),*
        }

        impl $(<$of: $crate::json::Read>)? $crate::json::Read for $name $(<$of>)? {
            fn read(value: &serde_json::Value) -> Result<Self, $crate::json::Unreadable> {
                let members = $crate::json::object(value)?;
                Ok(Self { $($field: $crate::json::answer!(@ members $field $($how)?)),* })
            }
        }
    )+};
    (@ $members:ident $field:ident) => { $crate::json::member($members, stringify!($field))? };
    (@ $members:ident $field:ident default) => { $crate::json::member_or_default($members, stringify!($field))? };
    (@ $members:ident $field:ident $name:literal) => { $crate::json::member($members, $name)? };
}
pub(crate) use answer;

/// A type that is read from JSON.
pub(crate) trait Read: Sized {
    /// Reads a value.
    ///
    /// # Errors
    /// If it has another form.
    fn read(value: &Value) -> Result<Self, Unreadable>;

    /// Returns what a missing member is; `None` = an error.
    fn missing() -> Option<Self> {
        None
    }
}

/// What is wrong with an answer, and in which member.
#[derive(Debug)]
pub(crate) struct Unreadable(String);

impl fmt::Display for Unreadable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl From<serde_json::Error> for Unreadable {
    fn from(error: serde_json::Error) -> Self {
        Self(error.to_string())
    }
}

/// Reads a JSON text.
///
/// # Errors
/// If it is no JSON, or has another form than the type.
pub(crate) fn from_slice<T: Read>(text: &[u8]) -> Result<T, Unreadable> {
    T::read(&parse(text)?)
}

/// Parses a JSON text.
///
/// # Errors
/// If it is none.
pub(crate) fn parse(text: &[u8]) -> Result<Value, Unreadable> {
    Ok(serde_json::from_slice(text)?)
}

#[cold]
fn wrong(value: &Value, expected: &str) -> Unreadable {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    Unreadable(format!("{expected} was expected, and there is {found}"))
}

#[cold]
fn within(name: &str, error: &Unreadable) -> Unreadable {
    Unreadable(format!("{name}: {error}"))
}

#[cold]
fn missing(name: &str) -> Unreadable {
    Unreadable(format!("the member `{name}` is missing"))
}

/// Returns the members of an object.
///
/// # Errors
/// If it is none.
pub(crate) fn object(value: &Value) -> Result<&Map<String, Value>, Unreadable> {
    value.as_object().ok_or_else(|| wrong(value, "an object"))
}

/// Returns a text.
///
/// # Errors
/// If it is none.
pub(crate) fn text(value: &Value) -> Result<&str, Unreadable> {
    value.as_str().ok_or_else(|| wrong(value, "a text"))
}

/// Reads a member.
///
/// # Errors
/// If it has another form; if it is missing, and is no `Option`.
#[inline(never)]
pub(crate) fn member<T: Read>(members: &Map<String, Value>, name: &str) -> Result<T, Unreadable> {
    match members.get(name) {
        Some(value) => T::read(value).map_err(|error| within(name, &error)),
        None => T::missing().ok_or_else(|| missing(name)),
    }
}

/// Reads a member that may be missing.
///
/// # Errors
/// If it has another form.
#[inline(never)]
pub(crate) fn member_or_default<T: Read + Default>(
    members: &Map<String, Value>,
    name: &str,
) -> Result<T, Unreadable> {
    match members.get(name) {
        Some(value) => T::read(value).map_err(|error| within(name, &error)),
        None => Ok(T::default()),
    }
}

/// Reads a whole number of a type that need not hold it.
macro_rules! whole_numbers {
    ($($type:ty)*) => {$(
        impl Read for $type {
            fn read(value: &Value) -> Result<Self, Unreadable> {
                let fits = value.as_i64().and_then(|number| Self::try_from(number).ok());
                let fits = fits.or_else(|| value.as_u64().and_then(|number| Self::try_from(number).ok()));
                fits.ok_or_else(|| wrong(value, concat!("a number of the type ", stringify!($type))))
            }
        }
    )*};
}
whole_numbers! { u8 u16 u64 usize i64 }

impl Read for f64 {
    fn read(value: &Value) -> Result<Self, Unreadable> {
        value.as_f64().ok_or_else(|| wrong(value, "a number"))
    }
}

impl Read for bool {
    fn read(value: &Value) -> Result<Self, Unreadable> {
        value.as_bool().ok_or_else(|| wrong(value, "true or false"))
    }
}

impl Read for String {
    fn read(value: &Value) -> Result<Self, Unreadable> {
        text(value).map(str::to_owned)
    }
}

impl Read for Value {
    fn read(value: &Value) -> Result<Self, Unreadable> {
        Ok(value.clone())
    }
}

impl Read for helmdeck_forge::view::SeenCommit {
    fn read(value: &Value) -> Result<Self, Unreadable> {
        Ok(serde::Deserialize::deserialize(value)?)
    }
}

impl Read for PackName {
    fn read(value: &Value) -> Result<Self, Unreadable> {
        Self::new(text(value)?).map_err(Unreadable)
    }
}

impl<T: Read> Read for Option<T> {
    fn read(value: &Value) -> Result<Self, Unreadable> {
        if value.is_null() {
            Ok(None)
        } else {
            T::read(value).map(Some)
        }
    }

    fn missing() -> Option<Self> {
        Some(None)
    }
}

impl<T: Read> Read for Vec<T> {
    fn read(value: &Value) -> Result<Self, Unreadable> {
        let items = value.as_array().ok_or_else(|| wrong(value, "a list"))?;
        // Half the code of `collect`, for each of fifty types.
        let mut all = Self::with_capacity(items.len());
        for item in items {
            all.push(T::read(item)?);
        }
        Ok(all)
    }
}

impl<T: Read> Read for BTreeMap<String, T> {
    fn read(value: &Value) -> Result<Self, Unreadable> {
        let mut all = Self::new();
        for (name, value) in object(value)? {
            all.insert(
                name.clone(),
                T::read(value).map_err(|error| within(name, &error))?,
            );
        }
        Ok(all)
    }
}

impl Read for Map<String, Value> {
    fn read(value: &Value) -> Result<Self, Unreadable> {
        object(value).cloned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    answer! {
        #[derive(Debug, PartialEq)]
        struct Inner {
            number: i64,
        }

        #[derive(Debug, PartialEq)]
        struct All {
            text: String,
            count: u64,
            small: u8,
            share: f64,
            yes: bool,
            absent: Option<String>,
            null: Option<u8>,
            given: Option<Inner>,
            list: Vec<Inner>,
            named: BTreeMap<String, Inner>,
            any: Value,
            members: Map<String, Value>,
            default: u8 = default,
            kind: String = "type",
        }
    }

    #[test]
    fn every_form_that_routes_send_is_read() {
        let value = json!({
            "text": "a\u{202e}b", "count": u64::MAX, "small": 255, "share": 1, "yes": true, "null": null,
            "given": {"number": i64::MIN}, "list": [{"number": 1, "unknown": []}, {"number": 2}],
            "named": {"a": {"number": 3}}, "any": {"deep": [1, null, {"x": 1.5}]}, "members": {"a": 1}, "type": "t",
            "of a newer server": {"unknown": []},
        });
        let read: All = from_slice(value.to_string().as_bytes()).unwrap();
        let inner = |number| Inner { number };
        let expected = All {
            text: "a\u{202e}b".to_owned(),
            count: u64::MAX,
            small: 255,
            share: 1.0,
            yes: true,
            absent: None,
            null: None,
            given: Some(inner(i64::MIN)),
            list: vec![inner(1), inner(2)],
            named: [("a".to_owned(), inner(3))].into(),
            any: value["any"].clone(),
            members: value["members"].as_object().unwrap().clone(),
            default: 0,
            kind: "t".to_owned(),
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn an_error_says_where_and_what() {
        let error = |value: Value| {
            from_slice::<BTreeMap<String, Vec<Inner>>>(value.to_string().as_bytes())
                .unwrap_err()
                .to_string()
        };
        let number = "a: number: a number of the type i64 was expected, and there is ";
        assert_eq!(
            error(json!({"a": [{"number": "x"}]})),
            [number, "a text"].concat()
        );
        assert_eq!(
            error(json!({"a": [{"number": 1.5}]})),
            [number, "a number"].concat()
        );
        assert_eq!(
            error(json!({"a": [{}]})),
            "a: the member `number` is missing"
        );
        assert_eq!(
            error(json!({"a": {}})),
            "a: a list was expected, and there is an object"
        );
        assert!(
            from_slice::<Inner>(b"{")
                .unwrap_err()
                .to_string()
                .contains("EOF")
        );
        for wrong in [json!(256), json!(-1), json!(null)] {
            assert!(u8::read(&wrong).is_err(), "{wrong}");
        }
    }
}
