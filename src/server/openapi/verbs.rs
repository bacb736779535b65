//! The addresses of verbs in the document: made of the table and of the schemas of their packs.

use helmdeck_core::schema;
use helmdeck_engine::PackInfo;
use serde_json::{Value, json};

use super::{Packs, answers, rewrite};
use crate::rest::verbs::{Address, names};

/// Adds the operation of an address of a pack that the caller may run, also of one that waits for
/// something.
pub(super) fn add(address: &Address, info: &PackInfo, packs: &mut Packs) {
    for (what, schema) in [("input", &info.input), ("output", &info.output)] {
        let name = format!("{}.{}.{what}", info.name, info.version);
        if !packs.schemas.contains_key(&name) {
            rewrite::embed(schema, &name, &mut packs.schemas);
        }
    }
    let in_path: Vec<&str> = names(address.path).collect();
    let members = schema::properties(&info.input);
    let parameter = |name: &str, place: &str| {
        let mut schema = members.get(name).cloned().unwrap_or_else(|| json!({}));
        let description = schema
            .as_object_mut()
            .and_then(|schema| schema.remove("description"));
        rewrite::visit(&mut schema, &component(info, "input"));
        json!({ "name": name, "in": place, "required": place == "path",
            "description": description.unwrap_or_default(), "schema": schema })
    };
    let mut parameters: Vec<Value> = in_path.iter().map(|name| parameter(name, "path")).collect();
    let output = json!({ "$ref": component(info, "output") });
    let mut operation = json!({
        "tags": [tag(address.path)],
        "operationId": info.name.as_str().replace('.', "_"),
        "summary": info.description,
        "responses": {
            "200": { "description": "The output", "content": { "application/json": { "schema": output } } },
            "default": { "description": "What went wrong", "content": answers::problem_content() },
        },
    });
    if address.method == http::Method::GET {
        let others = members
            .keys()
            .filter(|name| !in_path.contains(&name.as_str()));
        parameters.extend(others.map(|name| parameter(name, "query")));
    } else {
        let mut body = info.input.clone();
        if let Some(properties) = body.get_mut("properties").and_then(Value::as_object_mut) {
            properties.retain(|name, _| !in_path.contains(&name.as_str()));
        }
        if let Some(required) = body.get_mut("required").and_then(Value::as_array_mut) {
            required.retain(|name| !in_path.iter().any(|known| name == known));
        }
        let name = format!("{}.{}.body", info.name, info.version);
        rewrite::embed(&body, &name, &mut packs.schemas);
        let reference = json!({ "$ref": format!("#/components/schemas/{name}") });
        operation["requestBody"] =
            json!({ "content": { "application/json": { "schema": reference } } });
        parameters.extend(packs.headers.iter().cloned());
    }
    operation["parameters"] = parameters.into();
    let item = packs.paths.entry(address.path).or_insert_with(|| json!({}));
    item[address.method.as_str().to_lowercase()] = operation;
}

fn component(info: &PackInfo, what: &str) -> String {
    format!("#/components/schemas/{}.{}.{what}", info.name, info.version)
}

/// Returns the tag of a path: its first part after the version.
fn tag(path: &str) -> &str {
    path.split('/').nth(3).unwrap_or_default()
}
