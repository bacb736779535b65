//! JSON Schema 2020-12: validation and default values.

mod cost;
mod stream;

use std::borrow::Cow;
use std::fmt;
use std::sync::OnceLock;

use serde_json::{Map, Value};

use self::cost::Graph;
use self::stream::Stream;
use crate::error::Violation;
use crate::json::members;
use crate::suggest;

/// Limit of violations in one answer.
const MAX_VIOLATIONS: usize = 20;

/// Step limit of a validation that collects every violation: collecting costs memory.
const MAX_TOLD_STEPS: u64 = 50_000;

/// Step limit of a validation on the caller's thread; a longer one runs on a separate thread.
const MAX_LIGHT_STEPS: u64 = 20_000;

/// The deepest chain of `$ref` that is followed when defaults are collected.
const MAX_REF_DEPTH: usize = 8;

/// A compiled schema.
///
/// References may only point into the schema itself; nothing is ever fetched. `format` is checked, not only noted.
/// Patterns run on an engine that is linear in the text, so look-around and back-references are refused at compile
/// time.
pub struct Schema {
    source: Value,
    shape: Shape,
    /// Made at first use, with the reason if the schema cannot be used.
    compiled: OnceLock<Result<Compiled, String>>,
    /// Made at first use; `None` if only the validator knows the schema.
    stream: OnceLock<Option<Stream>>,
}

/// What a schema is checked with.
struct Compiled {
    validator: jsonschema::Validator,
    defaults: Defaults,
    graph: Graph,
}

impl Compiled {
    fn new(source: &Value) -> Result<Self, String> {
        // Before anything follows the references: the compiler and the search for defaults do too.
        let graph = Graph::read(source).map_err(|why| format!("the schema is not valid: {why}"))?;
        let validator = options().build(source).map_err(|error| {
            let at = error.instance_path().to_string();
            format!(
                "the schema is not valid{}: {error}",
                if at.is_empty() { String::new() } else { format!(" at {at}") }
            )
        })?;
        Ok(Self { validator, defaults: collect(source, source, 0), graph })
    }
}

fn options() -> jsonschema::ValidationOptions<'static> {
    jsonschema::options()
        .with_draft(jsonschema::Draft::Draft202012)
        .should_validate_formats(true)
        .with_pattern_options(jsonschema::PatternOptions::regex())
}

/// What is known of a schema without asking the validator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Accepts everything.
    Anything,
    /// Accepts every object and nothing else.
    AnyObject,
    /// Needs the validator.
    Ruled,
}

/// Locations of defaults in a schema. Empty without defaults, so that such a schema costs nothing.
#[derive(Debug, Default)]
struct Defaults {
    /// Property, its default as JSON text, and the defaults inside it.
    properties: Vec<(String, Option<String>, Self)>,
    items: Option<Box<Self>>,
}

impl Defaults {
    fn is_empty(&self) -> bool {
        self.properties.is_empty() && self.items.is_none()
    }
}

impl Schema {
    /// Compiles a schema.
    ///
    /// Cost: tens of microseconds; done once per pack.
    ///
    /// # Errors
    /// A message that names the place in the schema, or why a check by it would take too long: more than 100,000
    /// subschemas when it is unfolded, references that go round in place, references that cannot be followed.
    pub fn compile(source: Value) -> Result<Self, String> {
        let compiled = Compiled::new(&source)?;
        let schema = Self::trusted(source);
        schema.check_defaults()?;
        let _ = schema.compiled.set(Ok(compiled));
        Ok(schema)
    }

    /// Returns a schema that is compiled when it is first needed.
    ///
    /// For the built-in packs, whose schemas a test compiles: a server starts with dozens, and uses few. If one cannot
    /// be compiled after all, it accepts nothing and says why.
    #[must_use]
    pub fn trusted(source: Value) -> Self {
        Self { shape: shape_of(&source), source, compiled: OnceLock::new(), stream: OnceLock::new() }
    }

    /// Returns the schema that accepts every JSON document.
    #[must_use]
    pub fn anything() -> Self {
        Self::trusted(Value::Bool(true))
    }

    fn compiled(&self) -> Result<&Compiled, &String> {
        self.compiled.get_or_init(|| Compiled::new(&self.source)).as_ref()
    }

    /// Returns the schema as it was written.
    #[must_use]
    pub const fn source(&self) -> &Value {
        &self.source
    }

    /// Returns whether a JSON text is known to be valid without building its value.
    ///
    /// `false` says nothing: the value has to be validated. If a value is needed anyway, validate it at once.
    #[must_use]
    pub fn accepts_unread(&self, text: &[u8]) -> bool {
        match self.shape {
            Shape::Anything => true,
            Shape::AnyObject => text.trim_ascii_start().first() == Some(&b'{'),
            Shape::Ruled => {
                self.stream.get_or_init(|| Stream::read(&self.source)).as_ref().is_some_and(|known| known.accepts(text))
            }
        }
    }

    /// Returns whether validation of a document of this many bytes takes at most about a millisecond.
    ///
    /// Validate a heavier one on a separate thread.
    #[must_use]
    pub fn is_light(&self, document: &Value, bytes: usize) -> bool {
        if self.shape != Shape::Ruled {
            return true;
        }
        self.compiled().map_or(true, |Compiled { graph, .. }| {
            graph.is_quick(bytes) || graph.steps(document, MAX_LIGHT_STEPS).is_some()
        })
    }

    /// Checks a document, in at most 20 million steps.
    ///
    /// # Errors
    /// What breaks the schema and where, without the values (they may be secret), at most 20 places; or that the check
    /// would take too many steps.
    pub fn validate(&self, document: &Value) -> Result<(), Vec<Violation>> {
        self.validate_sized(document, usize::MAX)
    }

    /// As [`Schema::validate`], for a document of at most this many bytes.
    ///
    /// The steps of a small document need not be counted.
    ///
    /// # Errors
    /// As [`Schema::validate`].
    pub fn validate_sized(&self, document: &Value, bytes: usize) -> Result<(), Vec<Violation>> {
        let whole = |detail: &str| Err(vec![Violation { pointer: String::new(), detail: detail.to_owned() }]);
        if self.shape == Shape::Anything {
            return Ok(());
        }
        let Compiled { validator, graph, .. } = match self.compiled() {
            Ok(compiled) => compiled,
            Err(why) => return whole(why),
        };
        let steps = if graph.is_quick(bytes) { Some(0) } else { graph.steps(document, cost::MAX_STEPS) };
        let Some(steps) = steps else {
            return whole("checking it by the schema takes too many steps; send less at once");
        };
        if validator.is_valid(document) {
            return Ok(());
        }
        if steps > MAX_TOLD_STEPS {
            return whole("it does not fit the schema; it is too large to say where");
        }
        let mut violations: Vec<Violation> = validator
            .iter_errors(document)
            .take(MAX_VIOLATIONS)
            .map(|error| Violation {
                pointer: error.instance_path().to_string(),
                detail: match error.kind() {
                    jsonschema::error::ValidationErrorKind::Required { property } => format!("{property} is missing"),
                    jsonschema::error::ValidationErrorKind::AdditionalProperties { unexpected } => {
                        self.unknown(unexpected, &error.schema_path().to_string())
                    }
                    _ => error.masked_with("the value").to_string(),
                },
            })
            .collect();
        violations.dedup();
        Err(violations)
    }

    /// Says which members the object at a path of the schema does not know.
    fn unknown(&self, unexpected: &[String], path: &str) -> String {
        let object = path.rsplit_once('/').and_then(|(object, _)| self.source.pointer(object));
        let known = object.and_then(|object| object["properties"].as_object());
        let known: Vec<&str> = known.into_iter().flat_map(|known| known.keys().map(String::as_str)).collect();
        suggest::unknown(unexpected, &known)
    }

    /// Fills in omitted defaults: those under `properties`, `items`, `allOf` and local `$ref`.
    ///
    /// The caller's text is kept digit for digit; `Cow::Borrowed` if nothing was missing.
    #[must_use]
    pub fn fill<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.shape != Shape::Ruled {
            return Cow::Borrowed(text);
        }
        match self.compiled() {
            Ok(Compiled { defaults, .. }) if !defaults.is_empty() => fill(defaults, text),
            _ => Cow::Borrowed(text),
        }
    }

    /// Refuses a default that breaks its own schema.
    ///
    /// With such a default an omitted member would be an error that no caller understands.
    fn check_defaults(&self) -> Result<(), String> {
        fn walk(schema: &Schema, value: &Value, at: &str) -> Result<(), String> {
            let Value::Object(object) = value else { return Ok(()) };
            if let (Some(default), Some(_)) = (object.get("default"), object.get("type").or_else(|| object.get("enum")))
            {
                let mut alone = object.clone();
                let refers =
                    object.values().any(|inner| inner.to_string().contains("\"$ref\"")) || object.contains_key("$ref");
                if let Some(definitions) = schema.source.get("$defs").filter(|_| refers) {
                    alone.insert("$defs".to_owned(), definitions.clone());
                }
                let alone = Value::Object(alone);
                let bounded = Graph::read(&alone).is_ok_and(|graph| graph.steps(default, MAX_LIGHT_STEPS).is_some());
                let valid = bounded
                    && jsonschema::options()
                        .with_pattern_options(jsonschema::PatternOptions::regex())
                        .build(&alone)
                        .is_ok_and(|validator| validator.is_valid(default));
                if !valid {
                    return Err(format!("the default at {at} does not fit its own schema"));
                }
            }
            for (name, inner) in object.get("properties").and_then(Value::as_object).into_iter().flatten() {
                walk(schema, inner, &format!("{at}/properties/{name}"))?;
            }
            object.get("items").map_or(Ok(()), |inner| walk(schema, inner, &format!("{at}/items")))
        }
        walk(self, &self.source, "")
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Schema").field(&self.source).finish()
    }
}

fn shape_of(source: &Value) -> Shape {
    const NOTES: &[&str] = &["$schema", "$id", "$comment", "title", "description", "examples", "default", "deprecated"];
    match source {
        Value::Bool(true) => Shape::Anything,
        Value::Object(object) => {
            let mut rules = object.iter().filter(|(key, value)| {
                let open = key.as_str() == "additionalProperties" && **value == Value::Bool(true);
                !open && !NOTES.contains(&key.as_str())
            });
            match (rules.next(), rules.next()) {
                (None, _) => Shape::Anything,
                (Some((key, Value::String(kind))), None) if key == "type" && kind == "object" => Shape::AnyObject,
                _ => Shape::Ruled,
            }
        }
        _ => Shape::Ruled,
    }
}

fn collect(root: &Value, schema: &Value, depth: usize) -> Defaults {
    let mut defaults = Defaults::default();
    let Value::Object(object) = schema else { return defaults };
    if let Some(target) =
        object.get("$ref").and_then(Value::as_str).and_then(|reference| root.pointer(reference.strip_prefix('#')?))
        && depth < MAX_REF_DEPTH
    {
        defaults = collect(root, target, depth + 1);
    }
    for (name, property) in object.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let inner = collect(root, property, depth + 1);
        let default = default_of(root, property, depth).map(Value::to_string);
        if default.is_some() || !inner.is_empty() {
            defaults.properties.push((name.clone(), default, inner));
        }
    }
    if let Some(items) = object.get("items").filter(|_| depth < MAX_REF_DEPTH * 4) {
        let inner = collect(root, items, depth + 1);
        if !inner.is_empty() {
            defaults.items = Some(Box::new(inner));
        }
    }
    for part in object.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        let part = collect(root, part, depth + 1);
        for property in part.properties {
            if defaults.properties.iter().all(|(name, ..)| *name != property.0) {
                defaults.properties.push(property);
            }
        }
        if defaults.items.is_none() {
            defaults.items = part.items;
        }
    }
    defaults
}

fn default_of<'a>(root: &'a Value, property: &'a Value, depth: usize) -> Option<&'a Value> {
    property.get("default").or_else(|| {
        let reference = property.get("$ref")?.as_str()?.strip_prefix('#')?;
        if depth < MAX_REF_DEPTH { default_of(root, root.pointer(reference)?, depth + 1) } else { None }
    })
}

fn fill<'a>(defaults: &Defaults, text: &'a str) -> Cow<'a, str> {
    let trimmed = text.trim_ascii();
    match trimmed.as_bytes().first() {
        Some(b'{') if !defaults.properties.is_empty() => fill_object(defaults, text),
        Some(b'[') => match &defaults.items {
            Some(items) => fill_array(items, text),
            None => Cow::Borrowed(text),
        },
        _ => Cow::Borrowed(text),
    }
}

fn fill_object<'a>(defaults: &Defaults, text: &'a str) -> Cow<'a, str> {
    let Some(members) = members(text) else { return Cow::Borrowed(text) };
    let mut changed = false;
    let mut filled: Vec<(Cow<'_, str>, Cow<'_, str>)> = Vec::with_capacity(members.len() + defaults.properties.len());
    for (key, value) in &members {
        let value = match defaults.properties.iter().find(|(name, ..)| name == key) {
            Some((.., inner)) => fill(inner, value.get()),
            None => Cow::Borrowed(value.get()),
        };
        changed |= matches!(value, Cow::Owned(_));
        filled.push((Cow::Borrowed(key), value));
    }
    for (name, default, inner) in &defaults.properties {
        if let Some(default) = default
            && members.iter().all(|(key, _)| key != name)
        {
            changed = true;
            filled.push((Cow::Borrowed(name), fill(inner, default)));
        }
    }
    if changed { Cow::Owned(write_object(&filled)) } else { Cow::Borrowed(text) }
}

fn fill_array<'a>(items: &Defaults, text: &'a str) -> Cow<'a, str> {
    let Ok(elements) = serde_json::from_str::<Vec<&serde_json::value::RawValue>>(text) else {
        return Cow::Borrowed(text);
    };
    let filled: Vec<_> = elements.iter().map(|element| fill(items, element.get())).collect();
    if filled.iter().all(|element| matches!(element, Cow::Borrowed(_))) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("[{}]", filled.join(",")))
}

fn write_object(members: &[(Cow<'_, str>, Cow<'_, str>)]) -> String {
    let mut text = String::from("{");
    for (index, (key, value)) in members.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        text.push_str(&Value::from(key.as_ref()).to_string());
        text.push(':');
        text.push_str(value);
    }
    text.push('}');
    text
}

/// Removes one member from a JSON object and keeps the rest unchanged. `None` if it is missing.
#[must_use]
pub fn take_member(text: &str, name: &str) -> Option<(String, String)> {
    let members = members(text)?;
    let taken = members.iter().find(|(key, _)| key == name)?.1.get().to_owned();
    let rest: Vec<_> = members
        .iter()
        .filter(|(key, _)| key != name)
        .map(|(key, value)| (Cow::Borrowed(key.as_str()), Cow::Borrowed(value.get())))
        .collect();
    Some((taken, write_object(&rest)))
}

/// Returns the top-level properties of a schema with their own schemas.
///
/// Follows local `$ref` and `allOf`.
#[must_use]
pub fn properties(schema: &Value) -> Map<String, Value> {
    fn gather(root: &Value, schema: &Value, depth: usize, out: &mut Map<String, Value>) {
        for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            out.entry(name.clone()).or_insert_with(|| property.clone());
        }
        if depth >= MAX_REF_DEPTH {
            return;
        }
        if let Some(target) =
            schema.get("$ref").and_then(Value::as_str).and_then(|r| root.pointer(r.strip_prefix('#')?))
        {
            gather(root, target, depth + 1, out);
        }
        for part in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            gather(root, part, depth + 1, out);
        }
    }
    let mut out = Map::new();
    gather(schema, schema, 0, &mut out);
    out
}

#[cfg(test)]
mod tests;
