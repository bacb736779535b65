//! The form of a pack: fields made of its input schema, and an input made of the fields.
//!
//! Only simple properties become fields of their own kind; any other is a field for JSON. The
//! server checks the input against the schema, as it checks every call.

use serde_json::{Map, Value};

use crate::request::Sent;
use crate::shown;

/// Start of the name of each field, so that no property collides with other fields of the page.
const PREFIX: &str = "input.";

/// Field of a form.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Field {
    /// Name of the property.
    pub(crate) name: String,
    /// Name of the field in the form.
    pub(crate) id: String,
    pub(crate) help: String,
    pub(crate) required: bool,
    pub(crate) kind: Kind,
    pub(crate) value: String,
}

/// How a property is entered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A text on one line.
    Text,
    /// A text that may be long.
    LongText,
    /// A number; true for whole ones only.
    Number { whole: bool },
    /// One of a few values.
    Choice(Vec<String>),
    /// A list of texts, one a line.
    Lines,
    /// JSON of any kind.
    Json,
}

impl Field {
    // Askama can compare with a function more easily than match.
    pub(crate) fn is_text(&self) -> bool {
        self.kind == Kind::Text
    }

    pub(crate) fn is_number(&self) -> bool {
        matches!(self.kind, Kind::Number { .. })
    }

    pub(crate) fn step(&self) -> &'static str {
        if self.kind == (Kind::Number { whole: true }) {
            "1"
        } else {
            "any"
        }
    }

    pub(crate) fn choices(&self) -> &[String] {
        if let Kind::Choice(choices) = &self.kind {
            choices
        } else {
            &[]
        }
    }

    /// Returns what a large field takes, for its label.
    pub(crate) fn form(&self) -> &'static str {
        match self.kind {
            Kind::Lines => "one value a line",
            Kind::Json => "JSON",
            _ => "",
        }
    }
}

/// Returns the fields of a schema, required ones first, with the values of an input.
///
/// A schema without properties has no fields: its input is entered as JSON.
pub(crate) fn fields(schema: &Value, input: &Value) -> Vec<Field> {
    let Some(properties) = schema["properties"].as_object() else {
        return Vec::new();
    };
    let required = |name: &str| {
        schema["required"]
            .as_array()
            .is_some_and(|all| all.iter().any(|one| one == name))
    };
    let mut fields: Vec<Field> = properties
        .iter()
        .map(|(name, property)| {
            let property = resolved(schema, property);
            let kind = kind(property);
            let value = input
                .get(name)
                .map(|value| text(value, &kind))
                .unwrap_or_default();
            let (id, required) = (format!("{PREFIX}{name}"), required(name));
            Field {
                name: name.clone(),
                id,
                help: help(property),
                required,
                kind,
                value,
            }
        })
        .collect();
    fields.sort_by_key(|field| !field.required);
    fields
}

/// Follows a reference to a definition of the same schema.
fn resolved<'a>(schema: &'a Value, property: &'a Value) -> &'a Value {
    let pointer = property["$ref"]
        .as_str()
        .and_then(|reference| reference.strip_prefix('#'));
    pointer
        .and_then(|pointer| schema.pointer(pointer))
        .unwrap_or(property)
}

fn kind(property: &Value) -> Kind {
    if let Some(choices) = property["enum"].as_array() {
        let texts: Option<Vec<String>> = choices
            .iter()
            .map(|choice| choice.as_str().map(str::to_owned))
            .collect();
        return texts.map_or(Kind::Json, Kind::Choice);
    }
    match property["type"].as_str() {
        Some("string") if property["maxLength"].as_u64().is_none_or(|max| max > 4096) => {
            Kind::LongText
        }
        Some("string") => Kind::Text,
        Some("integer") => Kind::Number { whole: true },
        Some("number") => Kind::Number { whole: false },
        Some("boolean") => Kind::Choice(vec!["true".to_owned(), "false".to_owned()]),
        Some("array") if property["items"]["type"] == "string" => Kind::Lines,
        _ => Kind::Json,
    }
}

/// Returns the description of a property, with its default.
fn help(property: &Value) -> String {
    let description = property["description"].as_str().unwrap_or_default();
    match property.get("default") {
        Some(default) if description.is_empty() => format!("Default: {default}"),
        Some(default) => format!("{description}. Default: {default}"),
        None => description.to_owned(),
    }
}

fn text(value: &Value, kind: &Kind) -> String {
    match (kind, value) {
        (Kind::Json, value) => shown::json(value),
        (Kind::Lines, Value::Array(items)) => items
            .iter()
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join("\n"),
        (_, Value::String(text)) => text.clone(),
        (_, value) => value.to_string(),
    }
}

/// Fills fields with what was sent, so that a person can correct it.
pub(crate) fn refill(fields: &mut [Field], sent: &Sent) {
    for field in fields {
        sent.value(&field.id).clone_into(&mut field.value);
    }
}

/// Returns the input that a form has: of its fields, or of its field for JSON. An empty field is
/// left out.
///
/// # Errors
/// Which field is wrong, and how.
pub(crate) fn input(schema: &Value, sent: &Sent) -> Result<Value, String> {
    if let Some(json) = sent.get("json") {
        return serde_json::from_str(json)
            .map_err(|error| format!("the input is not JSON: {error}"));
    }
    let mut input = Map::new();
    let Some(properties) = schema["properties"].as_object() else {
        return Ok(Value::Object(input));
    };
    for (name, property) in properties {
        if let Some(text) = sent.get(&format!("{PREFIX}{name}")) {
            let value = value(text, resolved(schema, property))
                .map_err(|error| format!("{name}: {error}"))?;
            input.insert(name.clone(), value);
        }
    }
    Ok(Value::Object(input))
}

/// Returns the change that a form has of the properties that it shows: all but `elsewhere`. An
/// empty field empties what it stands for, if that can be empty.
///
/// # Errors
/// As [`input`].
pub(crate) fn edit(schema: &Value, sent: &Sent, elsewhere: &[&str]) -> Result<Value, String> {
    let mut edit = input(schema, sent)?;
    for field in fields(schema, &Value::Null) {
        if elsewhere.contains(&field.name.as_str()) || edit.get(&field.name).is_some() {
            continue;
        }
        match field.kind {
            Kind::Text | Kind::LongText => edit[&field.name] = "".into(),
            Kind::Lines => edit[&field.name] = Value::Array(Vec::new()),
            _ => {}
        }
    }
    Ok(edit)
}

fn value(text: &str, property: &Value) -> Result<Value, String> {
    // Browsers send the end of a line as two characters (WHATWG HTML, 4.10.21.8).
    let text = text.replace("\r\n", "\n");
    let json = |text: &str| {
        serde_json::from_str::<Value>(text).map_err(|error| format!("not JSON: {error}"))
    };
    Ok(match kind(property) {
        Kind::Choice(_) if property["type"] == "boolean" => Value::Bool(text == "true"),
        Kind::Text | Kind::LongText | Kind::Choice(_) => Value::String(text),
        Kind::Number { .. } => match json(text.trim()) {
            Ok(number) if number.is_number() => number,
            _ => return Err("not a number".to_owned()),
        },
        Kind::Lines => text
            .lines()
            .filter(|line| !line.is_empty())
            .map(|line| Value::String(line.to_owned()))
            .collect(),
        Kind::Json => json(&text)?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({
            "type": "object",
            "required": ["path"],
            "properties": {
                "budget": { "type": "integer", "default": 2000, "description": "Tokens" },
                "deep": { "type": "boolean" },
                "focus": { "type": "array", "items": { "type": "string" } },
                "kind": { "enum": ["a", "b"] },
                "path": { "type": "string", "maxLength": 100 },
                "rest": { "$ref": "#/$defs/rest" },
                "weight": { "type": "number" },
            },
            "$defs": { "rest": { "type": "object" } },
        })
    }

    #[test]
    fn properties_become_fields_by_type() {
        let input =
            json!({ "path": "src", "focus": ["x", "y"], "rest": { "a": 1 }, "deep": false });
        let fields = fields(&schema(), &input);
        let kinds: Vec<_> = fields
            .iter()
            .map(|field| (field.name.as_str(), &field.kind, field.value.as_str()))
            .collect();
        let booleans = Kind::Choice(vec!["true".to_owned(), "false".to_owned()]);
        let letters = Kind::Choice(vec!["a".to_owned(), "b".to_owned()]);
        assert_eq!(
            kinds,
            [
                ("path", &Kind::Text, "src"),
                ("budget", &Kind::Number { whole: true }, ""),
                ("deep", &booleans, "false"),
                ("focus", &Kind::Lines, "x\ny"),
                ("kind", &letters, ""),
                ("rest", &Kind::Json, "{\n  \"a\": 1\n}"),
                ("weight", &Kind::Number { whole: false }, ""),
            ]
        );
        assert!(fields[0].required && !fields[1].required);
        assert_eq!(fields[1].help, "Tokens. Default: 2000");
    }

    #[test]
    fn fields_become_values_of_their_type() {
        let schema = schema();
        let of =
            |text: &str, name: &str| value(text, resolved(&schema, &schema["properties"][name]));
        assert_eq!(of("7", "budget"), Ok(json!(7)));
        assert_eq!(of("true", "deep"), Ok(json!(true)));
        assert_eq!(of("x\r\n\r\ny z\r\n", "focus"), Ok(json!(["x", "y z"])));
        assert_eq!(of("a", "kind"), Ok(json!("a")));
        assert_eq!(of("{\"a\": 1}", "rest"), Ok(json!({ "a": 1 })));
        assert_eq!(of("7; x", "budget"), Err("not a number".to_owned()));
        assert!(of("{", "rest").unwrap_err().starts_with("not JSON"));
    }
}
