//! Embeds a pack's schema as a component of the `OpenAPI` document, and adjusts its references.

use serde_json::{Map, Value, json};

/// Keywords whose value is a schema or a list of schemas.
const SCHEMAS: [&str; 16] = [
    "items",
    "prefixItems",
    "additionalItems",
    "contains",
    "additionalProperties",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema",
    "not",
    "if",
    "then",
    "else",
    "allOf",
    "anyOf",
    "oneOf",
];
/// Keywords whose members become components.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];
/// Keywords whose value maps names to schemas.
const MAPS: [&str; 6] = [
    "properties",
    "patternProperties",
    "dependentSchemas",
    "dependencies",
    "$defs",
    "definitions",
];

/// Adds the schema to the components of the document as `<component>`.
///
/// Each of its definitions (`$defs`, `definitions`) becomes a component `<component>.<definition>`,
/// because most generators follow no reference into a component. Only places where JSON Schema
/// expects a schema are visited: a `$ref` in a `const`, an `example` or as the name of a property
/// is data.
pub(super) fn embed(schema: &Value, component: &str, components: &mut Map<String, Value>) {
    let mut schema = match schema {
        // As components, most generators do not understand `true` and `false`.
        Value::Bool(true) => json!({}),
        Value::Bool(false) => json!({ "not": {} }),
        schema => schema.clone(),
    };
    // A schema with `$id` is a document itself: its references already resolve within it.
    if schema.get("$id").is_none() {
        visit(&mut schema, &format!("#/components/schemas/{component}"));
        for keyword in DEFINITIONS {
            let taken = schema
                .as_object_mut()
                .and_then(|members| members.remove(keyword));
            for (name, definition) in taken
                .as_ref()
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
            {
                components.insert(format!("{component}.{}", plain(name)), definition.clone());
            }
        }
    }
    components.insert(component.to_owned(), schema);
}

pub(super) fn visit(schema: &mut Value, root: &str) {
    match schema {
        Value::Object(members) => visit_members(members, root),
        Value::Array(list) => list.iter_mut().for_each(|schema| visit(schema, root)),
        _ => {}
    }
}

fn visit_members(members: &mut Map<String, Value>, root: &str) {
    for (keyword, value) in members {
        match keyword.as_str() {
            "$ref" | "$dynamicRef" => {
                if let Some(moved) = value.as_str().and_then(|target| moved(target, root)) {
                    *value = moved.into();
                }
            }
            keyword if SCHEMAS.contains(&keyword) => nested(value, root),
            keyword if MAPS.contains(&keyword) => {
                value
                    .as_object_mut()
                    .into_iter()
                    .flatten()
                    .for_each(|(_, schema)| nested(schema, root));
            }
            _ => {}
        }
    }
}

fn nested(schema: &mut Value, root: &str) {
    if schema.get("$id").is_none() {
        visit(schema, root);
    }
}

/// Moves pointers only (`#`, `#/...`); an anchor (`#name`) is found by its name anywhere.
fn moved(target: &str, root: &str) -> Option<String> {
    let pointer = target.strip_prefix('#')?;
    let definition = DEFINITIONS.iter().find_map(|keyword| {
        pointer
            .strip_prefix('/')?
            .strip_prefix(keyword)?
            .strip_prefix('/')
    });
    if let Some(rest) = definition {
        let (name, below) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        // RFC 6901, section 4.
        return Some(format!(
            "{root}.{}{below}",
            plain(&name.replace("~1", "/").replace("~0", "~"))
        ));
    }
    (pointer.is_empty() || pointer.starts_with('/')).then(|| format!("{root}{pointer}"))
}

/// Returns a definition's name in the characters that a component name may have.
///
/// `OpenAPI` 3.1, section 4.8.7.
fn plain(name: &str) -> String {
    name.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') {
                c
            } else {
                '_'
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_move_with_the_schema_and_data_stays() {
        let schema = json!({
            "$ref": "#/$defs/a",
            "properties": {
                "self": {"$ref": "#"},
                "$ref": {"type": "string", "const": {"$ref": "#/x"}},
                "list": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "https://x.example/#/y"}]}},
                "named": {"$ref": "#anchor"},
                "own": {"$id": "https://x.example/own", "$ref": "#/z"},
            },
            "examples": [{"$ref": "#/x"}],
            "$defs": {"a": {"not": {"$ref": "#/$defs/b~1b/items"}}, "b/b": {"items": true}},
        });
        let expected = json!({
            "c": {
                "$ref": "#/components/schemas/c.a",
                "properties": {
                    "self": {"$ref": "#/components/schemas/c"},
                    "$ref": {"type": "string", "const": {"$ref": "#/x"}},
                    "list": {"type": "array", "items": {"anyOf": [{"$ref": "#/components/schemas/c.a"}, {"$ref": "https://x.example/#/y"}]}},
                    "named": {"$ref": "#anchor"},
                    "own": {"$id": "https://x.example/own", "$ref": "#/z"},
                },
                "examples": [{"$ref": "#/x"}],
            },
            "c.a": {"not": {"$ref": "#/components/schemas/c.b_b/items"}},
            "c.b_b": {"items": true},
        });
        let mut components = Map::new();
        embed(&schema, "c", &mut components);
        assert_eq!(Value::Object(components), expected);
        let mut components = Map::new();
        embed(&json!(true), "c", &mut components);
        assert_eq!(Value::Object(components), json!({"c": {}}));
    }
}
