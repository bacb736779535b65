//! The body of a request: a JSON value whose texts are templates.

use bytes::Bytes;
use serde_json::Value;

use super::url::encode;
use super::values::Values;
use crate::error::{Code, Error, Result};
use crate::template::{Template, TemplatePart};

/// A JSON value whose texts are templates over the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyTemplate {
    /// The whole input.
    Whole,
    /// A single placeholder: the value keeps its type. Left out if absent.
    Place(Vec<String>),
    /// Text with placeholders. Left out if one of them is absent.
    Text(Template),
    /// A number, a boolean or null, as JSON text.
    Literal(String),
    /// A list.
    List(Vec<Self>),
    /// An object.
    Object(Vec<(String, Self)>),
}

impl BodyTemplate {
    /// Reads a template; `accept` refuses placeholders that are not allowed there.
    pub(super) fn parse(
        value: &Value,
        accept: &dyn Fn(Template) -> Result<Template, String>,
        input_is_declared: bool,
    ) -> Result<Self, String> {
        Ok(match value {
            Value::String(text) if text == "{input}" && !input_is_declared => Self::Whole,
            Value::String(text) => {
                let template = accept(Template::parse(text)?)?;
                match template.parts() {
                    [
                        TemplatePart::Place {
                            path,
                            fallback: None,
                        },
                    ] => Self::Place(path.clone()),
                    _ => Self::Text(template),
                }
            }
            Value::Array(items) => Self::List(
                items
                    .iter()
                    .map(|item| Self::parse(item, accept, input_is_declared))
                    .collect::<Result<_, _>>()?,
            ),
            Value::Object(members) => Self::Object(
                members
                    .iter()
                    .map(|(name, value)| {
                        Ok((name.clone(), Self::parse(value, accept, input_is_declared)?))
                    })
                    .collect::<Result<_, String>>()?,
            ),
            literal => Self::Literal(literal.to_string()),
        })
    }

    /// Returns why this cannot be a form, if so.
    pub(super) fn no_form(&self) -> Option<&'static str> {
        let scalar =
            |value: &Self| matches!(value, Self::Place(_) | Self::Text(_) | Self::Literal(_));
        match self {
            Self::Whole => None,
            Self::Object(members)
                if members.iter().all(|(_, value)| match value {
                    Self::List(items) => items.iter().all(scalar),
                    value => scalar(value),
                }) =>
            {
                None
            }
            _ => Some("a form is a table of texts, numbers, booleans and lists of them"),
        }
    }

    /// Writes JSON; `None` if it is a single absent value.
    pub(super) fn json(&self, values: &Values<'_>) -> Option<Bytes> {
        let mut out = String::new();
        self.write(values, &mut out)
            .then(|| out.into_bytes().into())
    }

    fn write(&self, values: &Values<'_>, out: &mut String) -> bool {
        match self {
            Self::Whole => out.push_str(values.whole()),
            Self::Place(path) => match values.json(path) {
                Some(json) => out.push_str(json),
                None => return false,
            },
            Self::Text(template) => match values.text(template, |value, text| text.push_str(value))
            {
                Some(text) => out.push_str(&Value::String(text).to_string()),
                None => return false,
            },
            Self::Literal(text) => out.push_str(text),
            Self::List(items) => {
                out.push('[');
                let mut first = true;
                for item in items {
                    let before = out.len();
                    if !first {
                        out.push(',');
                    }
                    if item.write(values, out) {
                        first = false;
                    } else {
                        out.truncate(before);
                    }
                }
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                let mut first = true;
                for (name, value) in members {
                    let before = out.len();
                    if !first {
                        out.push(',');
                    }
                    out.push_str(&Value::from(name.as_str()).to_string());
                    out.push(':');
                    if value.write(values, out) {
                        first = false;
                    } else {
                        out.truncate(before);
                    }
                }
                out.push('}');
            }
        }
        true
    }

    /// Writes a form. A list repeats its name for each element.
    ///
    /// # Errors
    /// `invalid_input` if a value is an object, or the whole input is meant and it is none.
    pub(super) fn form(&self, values: &Values<'_>) -> Result<Bytes> {
        let mut out = String::new();
        let mut add = |name: &str, value: &str| {
            if !out.is_empty() {
                out.push('&');
            }
            encode(name, &mut out);
            out.push('=');
            encode(value, &mut out);
        };
        match self {
            Self::Whole => {
                for name in values.names() {
                    let path = [name.to_owned()];
                    flat(values, &path)?.iter().for_each(|text| add(name, text));
                }
            }
            Self::Object(members) => {
                for (name, value) in members {
                    let items = if let Self::List(items) = value {
                        items.as_slice()
                    } else {
                        std::slice::from_ref(value)
                    };
                    for item in items {
                        match item {
                            Self::Place(path) => {
                                flat(values, path)?.iter().for_each(|text| add(name, text))
                            }
                            Self::Text(template) => {
                                let text =
                                    values.text(template, |value, text| text.push_str(value));
                                text.iter().for_each(|text| add(name, text));
                            }
                            Self::Literal(text) => add(name, text),
                            _ => {}
                        }
                    }
                }
            }
            _ => {}
        }
        Ok(out.into_bytes().into())
    }
}

/// Returns the texts of a value in a form.
fn flat(values: &Values<'_>, path: &[String]) -> Result<Vec<String>> {
    let nested = |json: &str| {
        json.starts_with('{')
            || json.starts_with('[')
                && serde_json::from_str::<Vec<Value>>(json)
                    .is_ok_and(|items| items.iter().any(|item| item.is_object() || item.is_array()))
    };
    if values.json(path).is_some_and(nested) {
        let message = format!(
            "\"{}\" is nested; a form holds texts, numbers, booleans and lists of them",
            path.join(".")
        );
        return Err(Error::new(Code::InvalidInput, message));
    }
    Ok(values.texts(path))
}
