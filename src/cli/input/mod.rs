//! Input of a pack from the command line: `key=value`, typed by the pack's schema, or raw JSON.
//!
//! It writes JSON text and never goes through a float, so every digit of a number arrives.
//! Validation is the engine's.

mod paths;
mod shape;
mod source;

use std::collections::BTreeMap;

use helmdeck_core::canonical::canonical;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::env::ProcessEnvironment;
use crate::exit::{Failure, Result};
use helmdeck_core::suggest::did_you_mean;

pub(crate) use paths::absolute_paths;
pub(crate) use shape::Shape;
pub(crate) use source::read;

/// The engine's own member, which every pack with a session takes.
const SESSION: &str = "_session_id";

/// A value under construction.
#[derive(Debug)]
enum Node {
    /// JSON text, complete.
    Done(String),
    /// An array that more values may be added to, each JSON text.
    List(Vec<String>),
    /// An object, member by member.
    Object(BTreeMap<String, Self>),
}

impl Node {
    fn write(&self, out: &mut String) {
        match self {
            Self::Done(text) => out.push_str(text),
            Self::List(items) => {
                out.push('[');
                out.push_str(&items.join(","));
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (index, (name, node)) in members.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    out.push_str(&quoted(name));
                    out.push(':');
                    node.write(out);
                }
                out.push('}');
            }
        }
    }
}

/// Makes a JSON object of `key=value` pairs.
///
/// `key=value` is read as the schema's type for `key` (an array takes several, repeated or with
/// commas); `a.b=value` sets a member of an object; `key:=json` takes JSON as it is, also for a key
/// that the schema does not declare.
///
/// `@file` in place of a value takes the text of the file, `@-` that of stdin; a value that begins
/// with `@@` is text that begins with `@`.
///
/// # Errors
/// A usage failure that names the key and what it takes; exit 3 for a file that does not exist.
pub(crate) fn of_pairs(
    schema: &Value,
    pairs: &[String],
    env: &ProcessEnvironment,
) -> Result<String> {
    let mut root = BTreeMap::new();
    let mut of_stdin: Option<&str> = None;
    for pair in pairs {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(Failure::usage(format!("\"{pair}\" is not key=value"))
                .with_hint("write key=value, key:=json, or give the whole input with --input"));
        };
        let (key, raw) = key
            .strip_suffix(':')
            .map_or((key, false), |key| (key, true));
        if key.is_empty() {
            return Err(Failure::usage(format!(
                "\"{pair}\" has no key before the ="
            )));
        }
        if value == "@-"
            && let Some(first) = of_stdin.replace(key)
        {
            return Err(Failure::usage(format!(
                "stdin can be read once, and {first} and {key} are both @-"
            )));
        }
        let value = source::value(key, value, env)?;
        place(Shape::of(schema), key, key, &value, raw, &mut root)?;
    }
    let mut text = String::new();
    Node::Object(root).write(&mut text);
    Ok(text)
}

/// Puts a value at its place. `whole` is the key as it was typed, for messages.
fn place(
    shape: Shape<'_>,
    key: &str,
    whole: &str,
    value: &str,
    raw: bool,
    members: &mut BTreeMap<String, Node>,
) -> Result<()> {
    let declared = shape.property(key);
    if let (None, Some((head, rest))) = (declared, key.split_once('.'))
        && let Some(inner) = shape.property(head).or_else(|| shape.others())
        && !head.is_empty()
        && (inner.kinds().is_empty() || inner.kinds().contains("object"))
    {
        let node = members
            .entry(head.to_owned())
            .or_insert_with(|| Node::Object(BTreeMap::new()));
        let Node::Object(members) = node else {
            return Err(Failure::usage(format!(
                "{whole} is given twice: {head} has a value already"
            )));
        };
        return place(inner, rest, whole, value, raw, members);
    }
    if raw {
        let json: &RawValue = serde_json::from_str(value).map_err(|error| {
            Failure::usage(format!("{whole}:= takes JSON, and this is not: {error}"))
        })?;
        return set(members, key, whole, Node::Done(json.get().to_owned()));
    }
    let inner = match declared.or_else(|| shape.others()) {
        Some(inner) => inner,
        None if key == SESSION && whole == SESSION => {
            return set(members, key, whole, Node::Done(quoted(value)));
        }
        None => return Err(unknown(shape, key, whole)),
    };
    let kinds = inner.kinds();
    if kinds.contains("array") && !kinds.contains("string") && !value.starts_with(['[', '{']) {
        let items = inner.items();
        let list = match members
            .entry(key.to_owned())
            .or_insert_with(|| Node::List(Vec::new()))
        {
            Node::List(list) => list,
            _ => {
                return Err(Failure::usage(format!(
                    "{whole} is given twice, once as JSON"
                )));
            }
        };
        for item in value.split(',').filter(|_| !value.is_empty()) {
            list.push(scalar(items, item, whole)?);
        }
        return Ok(());
    }
    let text = scalar(inner, value, whole)?;
    set(members, key, whole, Node::Done(text))
}

fn set(members: &mut BTreeMap<String, Node>, key: &str, whole: &str, node: Node) -> Result<()> {
    match members.insert(key.to_owned(), node) {
        None => Ok(()),
        Some(_) => Err(Failure::usage(format!("{whole} is given twice"))),
    }
}

fn unknown(shape: Shape<'_>, key: &str, whole: &str) -> Failure {
    let names = shape.names();
    let near = did_you_mean(key, names.iter().copied());
    let failure = Failure::usage(format!("the pack takes no \"{whole}\"{near}"));
    if near.is_empty() {
        let names: Vec<&str> = names.into_iter().collect();
        return failure.with_hint(format!("it takes {}", names.join(", ")));
    }
    failure
}

/// Reads one value as the first allowed type whose syntax it has, and checks it against the values
/// that are listed.
fn scalar(shape: Shape<'_>, text: &str, whole: &str) -> Result<String> {
    let read = typed(shape, text, whole)?;
    let choices = shape.choices();
    let one_of_them = |value: &Value| choices.contains(&value);
    if choices.is_empty()
        || serde_json::from_str::<Value>(&read).is_ok_and(|value| one_of_them(&value))
    {
        return Ok(read);
    }
    let words: Vec<String> = choices
        .iter()
        .map(|value| {
            value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned)
        })
        .collect();
    let near = did_you_mean(text, words.iter().map(String::as_str));
    Err(Failure::usage(format!(
        "{whole} must be one of {}{near}",
        words.join(", ")
    )))
}

/// Reads one value as the first allowed type whose syntax it has.
///
/// Text stays text where only text is allowed.
fn typed(shape: Shape<'_>, text: &str, whole: &str) -> Result<String> {
    let kinds = shape.kinds();
    let allowed = |kind: &str| kinds.is_empty() || kinds.contains(kind);
    let is_json = || serde_json::from_str::<&RawValue>(text).is_ok();
    let fits = match text.as_bytes().first() {
        Some(b'{') => allowed("object") && is_json(),
        Some(b'[') => allowed("array") && is_json(),
        Some(b'-' | b'0'..=b'9') if is_json() => {
            allowed("number") || (allowed("integer") && is_integral(text))
        }
        _ => match text {
            "true" | "false" => allowed("boolean"),
            "null" => allowed("null"),
            _ => false,
        },
    };
    if fits {
        return Ok(text.to_owned());
    }
    if allowed("string") {
        return Ok(quoted(text));
    }
    let wanted: Vec<&str> = kinds
        .iter()
        .map(|kind| match *kind {
            "integer" => "an integer",
            "number" => "a number",
            "boolean" => "true or false",
            "object" => "a JSON object",
            "array" => "a JSON array",
            other => other,
        })
        .collect();
    let failure = Failure::usage(format!("{whole} must be {}", wanted.join(" or ")));
    if kinds.contains("object") {
        return Err(failure.with_hint(format!("write {whole}.member=value, or {whole}:='{{...}}'")));
    }
    Err(failure)
}

/// Says whether a number is an integer: JSON Schema counts `1.0` and `1e2` as integers.
///
/// See section 6.1.1 of its validation vocabulary. The canonical form has no trailing zeros, so a
/// number is whole if its exponent moves the point past the last digit.
fn is_integral(number: &str) -> bool {
    let form = canonical(number).unwrap_or_default();
    let form = String::from_utf8_lossy(&form);
    let (mantissa, exponent) = form.split_once('e').unwrap_or((&form, "0"));
    let decimals = mantissa
        .split_once('.')
        .map_or(0, |(_, decimals)| decimals.len());
    exponent
        .parse::<i64>()
        .is_ok_and(|exponent| exponent >= i64::try_from(decimals).unwrap_or(i64::MAX))
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests;
