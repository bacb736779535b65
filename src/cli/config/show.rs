//! `helmdeck config show`: prints every setting, with its origin on request. Secrets are redacted.

use helmdeck_engine::S3Location;
use serde_json::{Value as Json, json};
use toml::Value;

use super::layers::{Layers, Setting};

/// Writes the settings as JSON and as rows of a table: `key = value`, with the origin behind it.
pub(crate) fn show(
    layers: &Layers,
    origin: bool,
    extra: &[(&str, String)],
) -> (Json, Vec<Vec<String>>) {
    let mut values = serde_json::Map::new();
    let mut rows = Vec::new();
    for (key, setting) in layers.iter() {
        let name = key.join(".");
        let shown = safe(key, setting);
        let mut row = vec![name.clone(), "=".to_owned(), shown.to_string()];
        let mut value = json!({"value": plain(&shown)});
        if origin {
            row.push(format!("# {}", setting.origin));
            value["origin"] = setting.origin.to_string().into();
        }
        rows.push(row);
        values.insert(name, value);
    }
    for (name, state) in extra {
        rows.push(vec![(*name).to_owned(), "=".to_owned(), state.clone()]);
        values.insert((*name).to_owned(), json!({"value": state}));
    }
    (Json::Object(values), rows)
}

/// A store's address can hold a password.
fn safe(key: &[String], setting: &Setting) -> Value {
    if key.iter().eq(super::servers::KEY) {
        // Headers and environment of a server may hold secrets, so only server names are shown.
        let names = setting
            .value
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|server| server.get("name").cloned());
        return Value::Array(names.collect());
    }
    let text = setting.value.as_str().unwrap_or_default();
    let authority = text
        .split_once("://")
        .map_or("", |(_, rest)| rest.split('/').next().unwrap_or_default());
    let misplaced = key[0] == "credentials" && !text.starts_with("env:");
    if key == ["artifacts", "url"] && !text.is_empty() && S3Location::parse(text).is_err() {
        return Value::String("(set)".to_owned());
    }
    // PostgreSQL's may hold one anywhere: after the user, and as a parameter.
    if misplaced || authority.contains('@') || text.starts_with("postgres") {
        return Value::String("(set)".to_owned());
    }
    setting.value.clone()
}

fn plain(value: &Value) -> Json {
    match value {
        Value::String(text) => Json::from(text.as_str()),
        Value::Integer(number) => Json::from(*number),
        Value::Float(number) => Json::from(*number),
        Value::Boolean(flag) => Json::from(*flag),
        Value::Array(items) => Json::Array(items.iter().map(plain).collect()),
        other => Json::from(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::origin::Origin;
    use helmdeck_core::text::columns;

    #[test]
    fn origins_are_shown_and_passwords_are_not() {
        let mut layers = Layers::defaults();
        let mut set = |key: &[&str], value: &str| {
            let key = key.iter().map(|part| (*part).to_owned()).collect();
            layers
                .set(
                    key,
                    Value::String(value.to_owned()),
                    Origin::Env("X".to_owned()),
                )
                .unwrap();
        };
        set(&["memory", "url"], "postgres://user:canary@host/db");
        set(&["artifacts", "url"], "s3://bucket?secret=canary");
        set(&["credentials", "a"], "canary");
        set(&["credentials", "b"], "env:B");
        let (value, rows) = show(
            &layers,
            true,
            &[("HELMDECK_MEMORY_KEY", "(set)".to_owned())],
        );
        let text = columns(&rows);
        assert!(
            !text.contains("canary") && !value.to_string().contains("canary"),
            "{text}"
        );
        assert_eq!(
            value["memory.url"],
            json!({"value": "(set)", "origin": "X"})
        );
        assert_eq!(value["credentials.b"]["value"], "env:B");
        assert_eq!(
            value["server.listen"],
            json!({"value": "127.0.0.1:7700", "origin": "default"})
        );
        assert!(
            text.lines()
                .any(|line| line.starts_with("HELMDECK_MEMORY_KEY") && line.ends_with("(set)")),
            "{text}"
        );
    }
}
