//! Limits of parameters that their types do not express.

use serde_json::{Map, Value, json};

/// Adds the limits to every operation of these paths.
pub(super) fn complete(paths: &mut Value) {
    for (path, item) in paths.as_object_mut().into_iter().flatten() {
        for operation in item.as_object_mut().into_iter().flat_map(Map::values_mut) {
            let Some(parameters) = operation.get_mut("parameters") else {
                continue;
            };
            if parameters.is_null() {
                operation
                    .as_object_mut()
                    .and_then(|operation| operation.remove("parameters"));
                continue;
            }
            for parameter in parameters.as_array_mut().into_iter().flatten() {
                let enforced = enforced(path, parameter["name"].as_str().unwrap_or_default());
                let Some(schema) = parameter.get_mut("schema") else {
                    continue;
                };
                not_null(schema);
                if let (Value::Object(schema), Value::Object(enforced)) = (schema, enforced) {
                    schema.extend(enforced);
                }
            }
        }
    }
}

fn enforced(path: &str, name: &str) -> Value {
    match (path, name) {
        ("/api/v1/conversations" | "/api/v1/conversations/{session}/turns", "limit") => {
            json!({ "minimum": 1, "maximum": 200, "default": 50 })
        }
        ("/api/v1/jobs", "limit") => json!({ "minimum": 0, "default": 50 }),
        ("/api/v1/jobs", "state") => {
            json!({ "enum": ["queued", "running", "succeeded", "failed", "cancelled"] })
        }
        (_, "limit") => json!({ "minimum": 1, "maximum": 1000, "default": 100 }),
        ("/api/v1/memory/namespaces", "kind") => {
            json!({ "enum": ["cache", "note", "fact", "audit", "conversation", "head"] })
        }
        ("/api/v1/memory/entries", "kind") => {
            json!({ "enum": ["cache", "note", "fact", "audit", "conversation", "head"], "default": "cache" })
        }
        (_, "session") if path.contains("{session}") => json!({ "minLength": 1, "maxLength": 256 }),
        (_, "Helmdeck-After") => {
            json!({ "minLength": 4, "maxLength": 512, "pattern": "^p[0-9]+(-[0-9]+)+-[0-9a-f]{32}$" })
        }
        (_, "Idempotency-Key") => {
            json!({ "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$" })
        }
        _ => Value::Null,
    }
}

/// Removes `null` from the type of an optional parameter: URLs and headers have no `null`.
fn not_null(schema: &mut Value) {
    if let Some([kind, Value::String(null)]) = schema["type"].as_array().map(Vec::as_slice)
        && null == "null"
    {
        schema["type"] = kind.clone();
    }
}
