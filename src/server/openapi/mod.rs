//! The `OpenAPI` 3.1 document: the declared routes, and one path with schemas for every pack
//! version.
//!
//! It is built for each request, from the packs that are registered at that moment.

mod answers;
mod parameters;
mod rewrite;
mod verbs;

use std::collections::HashSet;

use axum::response::{IntoResponse, Response};
use helmdeck_core::Permissions;
use helmdeck_engine::{Engine, PackInfo};
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use serde_json::{Map, Value, json};
use utoipa::OpenApi;

use crate::rest::verbs::ADDRESSES;

/// Schemas of request and response bodies, by name.
const SHAPES: [&str; 4] = [
    include_str!("shapes.json"),
    include_str!("conversations.json"),
    include_str!("statistics.json"),
    include_str!("operator.json"),
];

/// Title and tags of the document. The routes are declared beside their handlers.
#[derive(OpenApi)]
#[openapi(
    info(title = "helmdeck", description = "Packs: typed JSON tools behind one pipeline."),
    tags(
        (name = "packs", description = "List, show and run packs"),
        (name = "jobs", description = "Calls that go on by themselves"),
        (name = "artifacts", description = "Files that packs wrote"),
        (name = "sessions", description = "Folders that packs run commands in"),
        (name = "memory", description = "What is stored, facts about the caller, and removing them"),
        (name = "conversations", description = "Turns of conversations, and what a model is shown of them"),
        (name = "project", description = "The memory of a project: the folder `.forge/` of its repository"),
        (name = "tokens", description = "API tokens, never their texts"),
        (name = "credentials", description = "The vault: grants and uses, never values"),
        (name = "operations", description = "Health and counters"),
    ),
)]
struct OpenApiHead;

/// Returns the document without operations.
pub(crate) fn head() -> utoipa::openapi::OpenApi {
    OpenApiHead::openapi()
}

/// Answers with the document: `routes`, and the packs that the caller may run.
pub(crate) fn answer(
    routes: &Value,
    engine: &Engine,
    permissions: &Permissions,
    authenticates: bool,
) -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    (
        headers,
        build(routes, engine, permissions, authenticates).to_string(),
    )
        .into_response()
}

fn build(routes: &Value, engine: &Engine, permissions: &Permissions, authenticates: bool) -> Value {
    let mut document = routes.clone();
    let headers = header_parameters(&document);
    let mut packs = Packs {
        headers,
        paths: Map::new(),
        schemas: Map::new(),
        ids: HashSet::new(),
    };
    for latest in engine.packs() {
        if !permissions.allow_run(latest.name.as_str()) {
            continue;
        }
        packs.add(&latest, None);
        for version in latest
            .versions
            .iter()
            .filter(|version| **version != latest.version)
        {
            // A pack that was unregistered a moment ago is left out.
            if let Ok(info) = engine.pack(latest.name.as_str(), Some(*version)) {
                packs.add(&info, Some(version.to_string()));
            }
        }
    }
    for address in ADDRESSES {
        if permissions.allow_run(address.pack)
            && let Ok(info) = engine.pack(address.pack, None)
        {
            verbs::add(address, &info, &mut packs);
        }
    }
    extend(&mut document["paths"], packs.paths);
    extend(&mut document["components"]["schemas"], packs.schemas);
    answers::complete(&mut document, authenticates);
    document
}

/// Builds the document without packs, from the declared routes.
pub(crate) fn routes(declared: utoipa::openapi::OpenApi) -> Value {
    let mut document = serde_json::to_value(declared).unwrap_or_default();
    let paths = document["paths"]
        .as_object_mut()
        .map(std::mem::take)
        .unwrap_or_default();
    // A parameter with slashes is written `{*key}` in the router, and `{key}` in the document.
    document["paths"] = paths
        .into_iter()
        .map(|(path, item)| (path.replace("{*", "{"), item))
        .collect();
    let shapes = SHAPES
        .iter()
        .filter_map(|text| serde_json::from_str::<Map<String, Value>>(text).ok());
    let mut components: Map<String, Value> = shapes.flatten().collect();
    for (name, schema) in crate::rest::project::schemas() {
        rewrite::embed(&schema, name, &mut components);
    }
    document["components"] = json!({ "schemas": components });
    parameters::complete(&mut document["paths"]);
    // The same operations at a named version; a path of the document has one handler only.
    let mut item = document["paths"]["/api/v1/packs/{name}"].clone();
    for operation in item.as_object_mut().into_iter().flat_map(Map::values_mut) {
        let id = format!(
            "{}_version",
            operation["operationId"].as_str().unwrap_or_default()
        );
        operation["operationId"] = id.into();
        if let Some(parameters) = operation
            .get_mut("parameters")
            .and_then(Value::as_array_mut)
        {
            parameters.push(json!({
                "name": "version", "in": "path", "required": true, "description": "`v1`, `v2`, ... or `latest`",
                "schema": { "type": "string", "pattern": "^(v[1-9][0-9]*|latest)$" },
            }));
        }
    }
    document["paths"]["/api/v1/packs/{name}/{version}"] = item;
    document
}

/// Returns the headers that a call of a pack accepts.
fn header_parameters(document: &Value) -> Vec<Value> {
    let run = &document["paths"]["/api/v1/packs/{name}"]["post"]["parameters"];
    run.as_array()
        .into_iter()
        .flatten()
        .filter(|parameter| parameter["in"] == "header")
        .cloned()
        .collect()
}

/// Paths and components of the packs.
struct Packs {
    headers: Vec<Value>,
    paths: Map<String, Value>,
    schemas: Map<String, Value>,
    ids: HashSet<String>,
}

impl Packs {
    /// Adds a pack: the latest version under the pack's name, another one under name and version.
    fn add(&mut self, info: &PackInfo, version: Option<String>) {
        let component = |what: &str| format!("{}.{}.{what}", info.name, info.version);
        let (input, output) = (component("input"), component("output"));
        rewrite::embed(&info.input, &input, &mut self.schemas);
        rewrite::embed(&info.output, &output, &mut self.schemas);
        let (mut path, mut id) = (
            format!("/api/v1/packs/{}", info.name),
            format!("run_{}", info.name),
        );
        if let Some(version) = version {
            path = format!("{path}/{version}");
            id = format!("{id}_{version}");
        }
        let reference = |name: &str| json!({ "$ref": format!("#/components/schemas/{name}") });
        let mut body = json!({ "schema": reference(&input) });
        if !info.examples.is_empty() {
            let examples = info.examples.iter().enumerate().map(|(index, example)| {
                let mut shown = json!({ "value": example.input });
                if let Some(description) = &example.description {
                    shown["summary"] = description.as_str().into();
                }
                (format!("example{}", index + 1), shown)
            });
            body["examples"] = Value::Object(examples.collect());
        }
        let outcome = json!({ "allOf": [reference("Outcome"), { "properties": { "output": reference(&output) } }] });
        let mut responses = json!({
            "200": { "description": "The outcome", "content": { "application/json": { "schema": outcome } } },
            "default": { "description": "What went wrong", "content": answers::problem_content() },
        });
        if info.asynchronous {
            let job = json!({ "application/json": { "schema": reference("Job") } });
            responses["202"] =
                json!({ "description": "The job that the call became", "content": job });
        }
        let id = self.id(&id);
        self.paths.insert(
            path,
            json!({ "post": {
                "tags": [info.name.family()],
                "operationId": id,
                "summary": info.description,
                "parameters": self.headers,
                "requestBody": { "content": { "application/json": body } },
                "responses": responses,
            }}),
        );
    }

    /// Makes a unique id that is an identifier in every language.
    fn id(&mut self, wanted: &str) -> String {
        let plain: String = wanted
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .collect();
        let mut id = plain.clone();
        let mut count = 1;
        while !self.ids.insert(id.clone()) {
            count += 1;
            id = format!("{plain}_{count}");
        }
        id
    }
}

/// Adds members to an object.
fn extend(target: &mut Value, members: Map<String, Value>) {
    if let Value::Object(target) = target {
        target.extend(members);
    }
}

#[cfg(test)]
mod tests;
