//! A pack's schema as a component of the `OpenAPI` document: its references to itself are made to point to where it stands.

use serde_json::{Map, Value};

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
/// Keywords whose value maps names to schemas.
const MAPS: [&str; 6] = ["properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"];

/// Returns the schema as it stands under `#/components/schemas/<component>`.
///
/// Only places where JSON Schema has a schema are looked at: a `$ref` in a `const`, an `example` or as the name of a
/// property is data.
pub(super) fn embed(schema: &Value, component: &str) -> Value {
    let mut schema = schema.clone();
    // A schema that names itself is a document of its own: its references already mean itself.
    if schema.get("$id").is_none() {
        visit(&mut schema, &format!("#/components/schemas/{component}"));
    }
    schema
}

fn visit(schema: &mut Value, root: &str) {
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
                value.as_object_mut().into_iter().flatten().for_each(|(_, schema)| nested(schema, root));
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

/// Only pointers (`#`, `#/...`) move; an anchor (`#name`) is found by its name wherever it stands.
fn moved(target: &str, root: &str) -> Option<String> {
    let pointer = target.strip_prefix('#')?;
    (pointer.is_empty() || pointer.starts_with('/')).then(|| format!("{root}{pointer}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
            "$defs": {"a": {"not": {"$ref": "#/$defs/b"}}, "b": true},
        });
        let expected = json!({
            "$ref": "#/components/schemas/c/$defs/a",
            "properties": {
                "self": {"$ref": "#/components/schemas/c"},
                "$ref": {"type": "string", "const": {"$ref": "#/x"}},
                "list": {"type": "array", "items": {"anyOf": [{"$ref": "#/components/schemas/c/$defs/a"}, {"$ref": "https://x.example/#/y"}]}},
                "named": {"$ref": "#anchor"},
                "own": {"$id": "https://x.example/own", "$ref": "#/z"},
            },
            "examples": [{"$ref": "#/x"}],
            "$defs": {"a": {"not": {"$ref": "#/components/schemas/c/$defs/b"}}, "b": true},
        });
        assert_eq!(embed(&schema, "c"), expected);
        assert_eq!(embed(&json!(true), "c"), json!(true));
    }
}
