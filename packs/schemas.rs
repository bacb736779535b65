//! The schemas of a family of packs, made of the types of its verbs. They are committed, so that a
//! change on the wire is seen: `HELMDECK_TEST_SCHEMAS=write` writes them anew.

use std::path::Path;

use schemars::JsonSchema;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value};

/// Schemas of packs, by their names.
#[derive(Default)]
pub(crate) struct Schemas(Map<String, Value>);

impl Schemas {
    /// Adds a pack.
    pub(crate) fn add<I: JsonSchema, O: JsonSchema>(&mut self, name: &str) {
        let settings = SchemaSettings::draft2020_12();
        let mut input = made::<I>(settings.clone().into_generator());
        tidy(&mut input, true);
        input["additionalProperties"] = false.into();
        let mut output = made::<O>(settings.for_serialize().into_generator());
        tidy(&mut output, false);
        let both = [("input".to_owned(), input), ("output".to_owned(), output)];
        self.0
            .insert(name.to_owned(), Value::Object(both.into_iter().collect()));
    }

    /// Checks that the file `schemas.json` of a family has these schemas.
    pub(crate) fn check(&self, family: &str) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let file = root.join(family).join("schemas.json");
        let text = print(&Value::Object(self.0.clone()), 0);
        if option_env!("HELMDECK_TEST_SCHEMAS") == Some("write") {
            std::fs::write(&file, text).unwrap();
            return;
        }
        assert!(
            std::fs::read_to_string(&file).unwrap() == text,
            "{} is not what the types say; HELMDECK_TEST_SCHEMAS=write writes it",
            file.display()
        );
    }
}

fn made<T: JsonSchema>(generator: SchemaGenerator) -> Value {
    let mut schema = generator.into_root_schema_for::<T>().to_value();
    let members = schema.as_object_mut().unwrap();
    for name in ["$schema", "description"] {
        members.remove(name);
    }
    schema
}

/// Leaves out what says nothing: titles of types, formats of numbers, defaults that are empty, and
/// `null` where a member can be left out.
fn tidy(schema: &mut Value, input: bool) {
    let Some(members) = schema.as_object_mut() else {
        return;
    };
    members.remove("title");
    if members
        .get("type")
        .is_some_and(|kind| has(kind, "integer") || has(kind, "number"))
    {
        members.remove("format");
    }
    if let Some(Value::String(text)) = members.get_mut("description") {
        *text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(all) => all.is_empty(),
        _ => false,
    };
    if members.get("default").is_some_and(is_empty) {
        members.remove("default");
    }
    // An enum whose variants have descriptions.
    let words = members
        .get("oneOf")
        .and_then(Value::as_array)
        .and_then(|all| {
            all.iter()
                .map(|one| one.get("const").cloned())
                .collect::<Option<Vec<Value>>>()
        });
    if let Some(words) = words {
        members.remove("oneOf");
        members.insert("type".to_owned(), "string".into());
        members.insert("enum".to_owned(), words.into());
    }
    let required = members.get("required").cloned().unwrap_or_default();
    if let Some(properties) = members.get_mut("properties").and_then(Value::as_object_mut) {
        for (name, property) in properties {
            if input || !has(&required, name) {
                without_null(property);
            }
        }
    }
    for (name, part) in members.iter_mut() {
        match (name.as_str(), part) {
            ("properties" | "$defs", Value::Object(parts)) => {
                parts.values_mut().for_each(|part| tidy(part, input));
            }
            ("items" | "additionalProperties", part) => tidy(part, input),
            ("anyOf" | "oneOf" | "allOf", Value::Array(parts)) => {
                parts.iter_mut().for_each(|part| tidy(part, input));
            }
            _ => {}
        }
    }
}

fn has(list: &Value, word: &str) -> bool {
    match list {
        Value::String(only) => only == word,
        Value::Array(all) => all.iter().any(|one| one == word),
        _ => false,
    }
}

fn without_null(schema: &mut Value) {
    let Some(members) = schema.as_object_mut() else {
        return;
    };
    if let Some(Value::Array(kinds)) = members.get_mut("type") {
        kinds.retain(|kind| kind != "null");
        if let [only] = &kinds[..] {
            let only = only.clone();
            members.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(parts)) = members.get_mut("anyOf") {
        parts.retain(|part| part.get("type") != Some(&Value::from("null")));
        if let [Value::Object(only)] = &parts[..] {
            let only = only.clone();
            members.remove("anyOf");
            for (name, part) in only {
                members.entry(name).or_insert(part);
            }
        }
    }
    if let Some(Value::Array(words)) = members.get_mut("enum") {
        words.retain(|word| !word.is_null());
    }
}

/// Prints a value with a line for each property.
fn print(value: &Value, depth: usize) -> String {
    match value {
        Value::Object(members) if depth < 4 && !members.is_empty() => {
            let indent = "  ".repeat(depth + 1);
            let lines: Vec<String> = members
                .iter()
                .map(|(name, part)| {
                    let part = match name.as_str() {
                        "properties" | "$defs" => print(part, 3),
                        _ if depth == 3 => part.to_string(),
                        _ => print(part, depth + 1),
                    };
                    format!("{indent}{}: {part}", Value::from(name.as_str()))
                })
                .collect();
            let end = if depth == 0 { "\n" } else { "" };
            format!("{{\n{}\n{}}}{end}", lines.join(",\n"), "  ".repeat(depth))
        }
        other => other.to_string(),
    }
}
