//! Parts of the document that are the same for every operation: server, security, error responses.

use serde_json::{Map, Value, json};

/// Public paths.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// Adds the common parts to the document.
pub(super) fn complete(document: &mut Value, authenticates: bool) {
    document["servers"] = json!([{ "url": "/", "description": "This server" }]);
    document["security"] = if authenticates {
        json!([{ "bearer": [] }])
    } else {
        json!([])
    };
    if authenticates {
        document["components"]["securitySchemes"] = json!({
            "bearer": { "type": "http", "scheme": "bearer", "description": "An API token or a JSON Web Token" },
        });
    }
    document["components"]["responses"] = json!({
        "BadRequest": problem("The request is wrong"),
        "Unauthenticated": problem("There is no token, or it proves nothing"),
        "Forbidden": problem("The caller, its page or the name of the server is refused"),
        "NotFound": problem("What the path names is not there"),
        "Limited": problem("Too many requests a second"),
    });
    for (path, item) in document["paths"].as_object_mut().into_iter().flatten() {
        let open = OPEN.contains(&path.as_str());
        for operation in item.as_object_mut().into_iter().flat_map(Map::values_mut) {
            let Some(responses) = operation
                .get_mut("responses")
                .and_then(Value::as_object_mut)
            else {
                continue;
            };
            for (status, response) in responses.iter_mut() {
                // An error without a declared body is a problem document.
                if (status.starts_with(['4', '5']) || status == "default")
                    && response.get("content").is_none()
                {
                    response["content"] = problem_content();
                }
            }
            let mut add = |status: &str, name: &str| {
                let reference = json!({ "$ref": format!("#/components/responses/{name}") });
                responses.entry(status).or_insert(reference);
            };
            add("400", "BadRequest");
            add("403", "Forbidden");
            if authenticates {
                add("401", "Unauthenticated");
            }
            if path.starts_with("/api/v1/packs/") || path.contains('{') {
                add("404", "NotFound");
            }
            if !open {
                add("429", "Limited");
            } else if authenticates {
                operation["security"] = json!([]);
            }
        }
    }
}

fn problem(description: &str) -> Value {
    json!({ "description": description, "content": problem_content() })
}

pub(super) fn problem_content() -> Value {
    json!({ "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } } })
}
