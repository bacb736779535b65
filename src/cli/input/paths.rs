//! Makes paths in an input absolute, so that a call from another folder gets another cache key.
//!
//! A call that pins a session keeps its paths: they are the session's. Only members that the schema
//! marks with `"x-helmdeck-path": true` are touched; the rest stays byte for byte.

use std::path::{Component, Path, PathBuf};

use helmdeck_core::json::members;
use serde_json::Value;
use serde_json::value::RawValue;

use super::quoted;
use super::shape::Shape;
use crate::env::ProcessEnvironment;
use crate::exit::Result;

/// Returns the input with absolute paths, `None` if nothing changes (or if it is not JSON).
///
/// # Errors
/// A failure if a path is relative and there is no working directory.
pub(crate) fn absolute_paths(
    schema: &Value,
    input: &str,
    env: &ProcessEnvironment,
) -> Result<Option<String>> {
    // A relative path in a session's call is one of the session, not of this shell.
    if members(input).is_some_and(|members| members.iter().any(|(name, _)| name == "_session_id")) {
        return Ok(None);
    }
    walk(Shape::of(schema), input, env)
}

fn walk(shape: Shape<'_>, text: &str, env: &ProcessEnvironment) -> Result<Option<String>> {
    match text.trim_start().as_bytes().first() {
        Some(b'"') if shape.is_path() => match serde_json::from_str::<String>(text) {
            Ok(path) => absolute(&path, env),
            Err(_) => Ok(None),
        },
        Some(b'{') => object(shape, text, env),
        Some(b'[') => array(shape.items(), text, env),
        _ => Ok(None),
    }
}

fn object(shape: Shape<'_>, text: &str, env: &ProcessEnvironment) -> Result<Option<String>> {
    let Some(members) = members(text) else {
        return Ok(None);
    };
    let mut changed = false;
    let mut written = Vec::with_capacity(members.len());
    for (name, value) in &members {
        let new = match shape.property(name) {
            Some(inner) => walk(inner, value.get(), env)?,
            None => None,
        };
        changed |= new.is_some();
        written.push(format!(
            "{}:{}",
            quoted(name),
            new.as_deref().unwrap_or_else(|| value.get())
        ));
    }
    for name in shape.names() {
        let Some(inner) = shape.property(name).filter(|inner| inner.is_path()) else {
            continue;
        };
        if members.iter().all(|(given, _)| given != name)
            && let Some(new) = inner
                .default_text()
                .map(|path| absolute(path, env))
                .transpose()?
                .flatten()
        {
            changed = true;
            written.push(format!("{}:{new}", quoted(name)));
        }
    }
    Ok(changed.then(|| format!("{{{}}}", written.join(","))))
}

fn array(items: Shape<'_>, text: &str, env: &ProcessEnvironment) -> Result<Option<String>> {
    let Ok(elements) = serde_json::from_str::<Vec<&RawValue>>(text) else {
        return Ok(None);
    };
    let new = elements
        .iter()
        .map(|element| walk(items, element.get(), env))
        .collect::<Result<Vec<_>>>()?;
    if new.iter().all(Option::is_none) {
        return Ok(None);
    }
    let written: Vec<&str> = new
        .iter()
        .zip(&elements)
        .map(|(new, old)| new.as_deref().unwrap_or_else(|| old.get()))
        .collect();
    Ok(Some(format!("[{}]", written.join(","))))
}

/// Returns the path as JSON text, absolute and without `.`.
///
/// The file system resolves `..` where the path exists, because `a/..` need not be the folder of
/// `a` when `a` is a link.
fn absolute(path: &str, env: &ProcessEnvironment) -> Result<Option<String>> {
    if path.is_empty() {
        return Ok(None);
    }
    let mut full: PathBuf = env
        .absolute(Path::new(path))?
        .components()
        .filter(|component| !matches!(component, Component::CurDir))
        .collect();
    if full
        .components()
        .any(|component| component == Component::ParentDir)
    {
        full = full.canonicalize().unwrap_or(full);
    }
    Ok(full.to_str().filter(|full| *full != path).map(quoted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn changed(input: &str) -> Option<String> {
        let schema = json!({"properties": {
            "path": {"type": "string", "x-helmdeck-path": true},
            "text": {"type": "string"},
            "more": {"type": "array", "items": {"type": "string", "x-helmdeck-path": true}},
            "inner": {"properties": {"dir": {"type": "string", "x-helmdeck-path": true}}},
        }});
        absolute_paths(&schema, input, &ProcessEnvironment::of(&[])).unwrap()
    }

    #[test]
    fn marked_members_become_absolute_and_the_rest_stays_as_written() {
        assert_eq!(
            changed(r#"{"text": "a/b", "path": "./x/.", "n":1.0, "inner": {"dir":"d"}}"#).unwrap(),
            r#"{"text":"a/b","path":"/work/x","n":1.0,"inner":{"dir":"/work/d"}}"#
        );
        assert_eq!(
            changed(r#"{"more":["a","/b"]}"#).unwrap(),
            r#"{"more":["/work/a","/b"]}"#
        );
        assert_eq!(changed(r#"{"path":"."}"#).unwrap(), r#"{"path":"/work"}"#);
    }

    #[test]
    fn nothing_to_change_means_no_change() {
        for input in [
            r#"{ "path": "/a" }"#,
            "{}",
            "[1]",
            "nope",
            r#"{"path":5}"#,
            r#"{"path":""}"#,
        ] {
            assert_eq!(changed(input), None, "{input}");
        }
    }

    #[test]
    fn an_absent_path_with_a_relative_default_is_filled_in() {
        let schema = json!({"properties": {"path": {"type": "string", "default": ".", "x-helmdeck-path": true}}});
        let new = absolute_paths(&schema, "{}", &ProcessEnvironment::of(&[])).unwrap();
        assert_eq!(new.unwrap(), r#"{"path":"/work"}"#);
    }
}
