//! Test: `config/helmdeck.schema.json`, for editors, matches the defaults and their comments.

use helmdeck_core::duration::parse_size;
use serde_json::{Map, Value as Json, json};
use toml::{Table, Value};

use super::layers::DEFAULTS;

/// Generates the schema of the defaults.
///
/// A key's type and default come from its value, its description from the comment above it.
fn generate() -> Json {
    let defaults: Table = DEFAULTS.parse().unwrap();
    let mut schema = object("Every setting of helmdeck");
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    let (mut at, mut comment): (Vec<String>, Vec<&str>) = (Vec::new(), Vec::new());
    for line in DEFAULTS.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix('#') {
            comment.push(text.trim());
        } else if let Some(name) = line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
        {
            at = name.split('.').map(str::to_owned).collect();
            for depth in 1..at.len() {
                let outer = place(&mut schema, &at[..depth]);
                if outer.is_null() {
                    *outer = object("");
                }
            }
            let table = place(&mut schema, &at);
            *table = match at.as_slice() {
                [only] if only == "credentials" => {
                    json!({"additionalProperties": {"type": "string", "pattern": "^env:."}})
                }
                [.., last] if last == "forbid_directives" => {
                    let directives = ["default", "bypass", "refresh", "only_if_cached"];
                    json!({
                        "propertyNames": {"enum": ["caller", "session", "shared"]},
                        "additionalProperties": {"type": "array", "items": {"enum": directives}},
                    })
                }
                [.., last] if last == "min_age" => {
                    json!({
                        "propertyNames": {"enum": ["caller", "session", "shared"]},
                        "additionalProperties": {"type": "string"},
                    })
                }
                [first, kind] if first == "forge" => {
                    let text = json!({"type": "string"});
                    let (required, properties) = match kind.as_str() {
                        "events" => (
                            "url",
                            json!({"url": text, "credentials": text, "certificates": text}),
                        ),
                        _ => ("endpoint", json!({"endpoint": text, "credential": text})),
                    };
                    json!({
                        "additionalProperties": {
                            "type": "object",
                            "additionalProperties": false,
                            "required": [required],
                            "properties": properties,
                        },
                    })
                }
                [only] if only == "prices" => {
                    json!({"additionalProperties": {"type": "number", "minimum": 0, "maximum": 1_000_000}})
                }
                [.., last] if last == "prices" => {
                    let usd = json!({"type": "number", "minimum": 0});
                    json!({
                        "additionalProperties": {
                            "type": "object",
                            "additionalProperties": false,
                            "required": ["input", "output"],
                            "properties": {"input": usd, "output": usd, "cached": usd},
                        },
                    })
                }
                _ => object(""),
            };
            table["type"] = "object".into();
            if !comment.is_empty() {
                table["description"] = comment.join(" ").into();
            }
            comment.clear();
        } else if let Some((key, _)) = line.split_once(" = ") {
            let table = at.iter().fold(&defaults, |table, name| {
                table[name.as_str()].as_table().unwrap()
            });
            at.push(key.to_owned());
            *place(&mut schema, &at) = setting(&table[key], &comment.join(" "));
            if at.iter().eq(super::servers::KEY) {
                place(&mut schema, &at)["items"] = server();
            }
            at.pop();
            comment.clear();
        } else {
            comment.clear();
        }
    }
    schema
}

fn server() -> Json {
    let texts = |description: &str| json!({"type": "object", "additionalProperties": {"type": "string"}, "description": description});
    let duration = |default: &str, description: &str| json!({"type": "string", "default": default, "description": description});
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["name"],
        "oneOf": [{"required": ["command"]}, {"required": ["url"]}],
        "properties": {
            "name": {"type": "string", "pattern": "^[a-z0-9_]{1,40}$", "description": "Its tools become the packs mcp.<name>.<tool>."},
            "command": {"type": "array", "minItems": 1, "items": {"type": "string"}, "description": "The program and its arguments."},
            "cwd": {"type": "string", "description": "The program's working folder; relative to this file."},
            "env": texts("Variables added to the program's short environment; values may name env:NAME or credential:NAME."),
            "url": {"type": "string", "pattern": "^https?://", "description": "The address of a server over streamable HTTP."},
            "headers": texts("Headers of every request; values may hold {env:NAME} or {credential:NAME}."),
            "timeout": duration("60s", "How long a call of an imported tool may take."),
            "start_timeout": duration("60s", "How long starting, the handshake and the list of tools may take."),
            "idle_timeout": duration("10m", "How long the server is kept without a call."),
            "tools": {"type": "array", "items": {"type": "string"}, "default": ["*"], "description": "The tools that are taken; * stands for any characters."},
            "read_only_trust": {"type": "boolean", "default": false, "description": "Whether the server is believed when it says that a tool only reads."},
            "max_output_bytes": {"type": ["string", "integer"], "default": "4MiB", "description": "The largest answer of a tool."},
        },
    })
}

fn object(description: &str) -> Json {
    let mut schema =
        json!({"type": "object", "additionalProperties": false, "properties": Map::new()});
    if !description.is_empty() {
        schema["description"] = description.into();
    }
    schema
}

fn place<'a>(schema: &'a mut Json, at: &[String]) -> &'a mut Json {
    at.iter().fold(schema, |schema, name| {
        &mut schema["properties"][name.as_str()]
    })
}

fn setting(value: &Value, description: &str) -> Json {
    let (kind, default) = match value {
        // A size may be written as a number of bytes.
        Value::String(text) if parse_size(text).is_ok() => {
            (json!(["string", "integer"]), json!(text))
        }
        Value::String(text) => (json!("string"), json!(text)),
        Value::Integer(number) => (json!("integer"), json!(number)),
        Value::Float(number) => (json!("number"), json!(number)),
        Value::Boolean(flag) => (json!("boolean"), json!(flag)),
        Value::Array(_) => {
            let default = json_of(value.clone());
            return json!({"type": "array", "items": {"type": "string"}, "default": default, "description": description});
        }
        other => panic!("{other:?} has no schema"),
    };
    assert!(!description.is_empty(), "{value} has no comment");
    json!({"type": kind, "default": default, "description": description})
}

fn json_of(toml: Value) -> Json {
    match toml {
        Value::Table(table) => Json::Object(
            table
                .into_iter()
                .map(|(key, value)| (key, json_of(value)))
                .collect(),
        ),
        Value::Array(items) => items.into_iter().map(json_of).collect(),
        Value::String(text) => text.into(),
        Value::Integer(number) => number.into(),
        Value::Float(number) => number.into(),
        Value::Boolean(flag) => flag.into(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_schema_file_is_in_step_with_the_defaults() {
    let expected = serde_json::to_string_pretty(&generate()).unwrap();
    let found = include_str!("../../../config/helmdeck.schema.json");
    assert!(
        found.trim_end() == expected,
        "config/helmdeck.schema.json is out of step; it should be:\n{expected}"
    );
}

#[test]
fn the_defaults_and_the_example_fit_the_schema_and_a_slip_does_not() {
    let schema = helmdeck_core::Schema::compile(generate()).unwrap();
    let check = |text: &str| schema.validate(&json_of(Value::Table(text.parse().unwrap())));
    assert_eq!(check(DEFAULTS), Ok(()));
    assert_eq!(check(include_str!("../../../config/example.toml")), Ok(()));
    assert!(check("[server]\nlisen = \"x\"").is_err());
    assert!(check("[memory.kinds.notes]\nrows = 1").is_err());
    assert!(check("[credentials]\ngithub-token = \"ghp_secret\"").is_err());
}
