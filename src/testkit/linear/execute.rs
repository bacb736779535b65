//! Execution of GraphQL requests against Linear's schema.

use std::sync::OnceLock;

use apollo_compiler::resolvers::{Execution, FieldError, ObjectValue, ResolveInfo, ResolvedValue};
use apollo_compiler::response::{JsonMap, JsonValue};
use apollo_compiler::validation::Valid;
use apollo_compiler::{ExecutableDocument, Schema};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::http::error;
use super::store::Store;
use super::{Linear, Shared};

#[allow(clippy::expect_used, reason = "a test without the schema fails")]
fn schema() -> &'static Valid<Schema> {
    static PARSED: OnceLock<Valid<Schema>> = OnceLock::new();
    PARSED.get_or_init(|| {
        Schema::parse_and_validate(super::schema::text(), "linear.graphql")
            .expect("Linear's schema")
    })
}

/// Executes a request. Returns the answer, or the error of a request that the schema does not
/// allow.
pub(super) fn execute(linear: &Linear, body: &Value) -> Result<String, Value> {
    let query = body["query"].as_str().unwrap_or_default();
    let refuse = |why: String| {
        linear.shared.lock().violations.push(why.clone());
        error("GRAPHQL_VALIDATION_FAILED", "graphql error", &why)
    };
    let document = ExecutableDocument::parse_and_validate(schema(), query, "query.graphql")
        .map_err(|errors| refuse(errors.to_string()))?;
    let variables: JsonMap = serde_json::from_value(body["variables"].clone()).unwrap_or_default();
    let root = Root {
        shared: &linear.shared,
        refused: Mutex::default(),
    };
    let execution = Execution::new(schema(), &document)
        .operation_name(body["operationName"].as_str())
        .map_err(|error| refuse(error.message().to_string()))?
        .raw_variable_values(&variables);
    let done = execution
        .execute_sync(&root)
        .map_err(|error| refuse(error.message().to_string()))?;
    if let Some(refused) = root.refused.into_inner() {
        return Ok(refused.to_string());
    }
    if !done.errors.is_empty() {
        return Err(refuse(format!("{:?}", done.errors)));
    }
    Ok(serde_json::to_string(&done).unwrap_or_default())
}

/// The root of queries and mutations.
struct Root<'a> {
    shared: &'a Mutex<Shared>,
    /// The error of Linear, if a field was refused.
    refused: Mutex<Option<Value>>,
}

impl ObjectValue for Root<'_> {
    fn type_name(&self) -> &str {
        "Query"
    }

    fn resolve_field<'a>(
        &'a self,
        info: &'a ResolveInfo<'a>,
    ) -> Result<ResolvedValue<'a>, FieldError> {
        let arguments = serde_json::to_value(info.arguments()).unwrap_or_default();
        let store: &mut Store = &mut self.shared.lock().store;
        match store.resolve(info.field_name(), &arguments) {
            Some(Ok(value)) => Ok(resolved(value)),
            Some(Err((code, message))) => {
                *self.refused.lock() = Some(error(code, "invalid input", &message));
                Err(FieldError { message })
            }
            None => Err(self.unknown_field_error(info)),
        }
    }
}

/// An object of JSON, with its type in `__typename`.
struct Object(Map<String, Value>);

impl ObjectValue for Object {
    fn type_name(&self) -> &str {
        self.0
            .get("__typename")
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    fn resolve_field<'a>(
        &'a self,
        info: &'a ResolveInfo<'a>,
    ) -> Result<ResolvedValue<'a>, FieldError> {
        match self.0.get(info.field_name()) {
            Some(value) => Ok(resolved(value.clone())),
            None => Err(self.unknown_field_error(info)),
        }
    }
}

fn resolved<'a>(value: Value) -> ResolvedValue<'a> {
    match value {
        Value::Object(members) if members.contains_key("__typename") => {
            ResolvedValue::object(Object(members))
        }
        Value::Array(items) => ResolvedValue::list(items.into_iter().map(resolved)),
        leaf => ResolvedValue::leaf(
            serde_json::from_value::<JsonValue>(leaf).unwrap_or(JsonValue::Null),
        ),
    }
}

/// Makes a connection of nodes: one whole page.
pub(super) fn whole(kind: &str, nodes: Vec<Value>) -> Value {
    page(kind, nodes, None)
}

/// Makes a connection of nodes, with the cursor of the next page.
pub(super) fn page(kind: &str, nodes: Vec<Value>, next: Option<String>) -> Value {
    let page = json!({"__typename": "PageInfo", "hasNextPage": next.is_some(), "endCursor": next,
                      "hasPreviousPage": false, "startCursor": null});
    json!({"__typename": kind, "nodes": nodes, "pageInfo": page})
}
