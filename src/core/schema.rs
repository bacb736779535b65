//! JSON Schema 2020-12: validation and default values.
//!
//! Schemas come from anybody. So one is bounded when it is read, and a check of a document by it
//! ends when it should: each keyword pays for its work before it does it ([`Effort`]).

mod defaults;
mod effort;
mod evaluate;
mod graph;
mod pattern;
mod rules;
mod stream;
mod value;

use std::borrow::Cow;
use std::fmt;
use std::sync::OnceLock;

use serde_json::{Map, Value};

pub use self::defaults::TooLarge;
use self::defaults::{Defaults, write_object};
pub use self::effort::{Effort, STACK_BYTES, Unfinished};
use self::evaluate::Evaluation;
use self::graph::{Graph, Read};
use self::rules::Patterns;
use self::stream::Stream;
use crate::error::Violation;
use crate::json::members;
use crate::text;

/// Limit of violations in one answer.
const MAX_VIOLATIONS: usize = 20;

/// The deepest chain of `$ref` that is followed for the list of properties.
const MAX_REF_DEPTH: usize = 8;

/// A compiled schema.
///
/// References may only point into the schema itself; nothing is ever fetched. `format` is checked,
/// not only noted. Patterns run on an engine that is linear in the text, so look-around and
/// back-references are refused at compile time.
pub struct Schema {
    source: Value,
    shape: Shape,
    /// Made at first use, with the reason if the schema cannot be used.
    compiled: OnceLock<Result<Compiled, String>>,
    /// Made at first use; `None` if only the evaluator knows the schema.
    stream: OnceLock<Option<Stream>>,
}

/// What a schema is checked with.
struct Compiled {
    graph: Graph,
    defaults: Defaults,
    patterns: Patterns,
}

impl Compiled {
    fn new(source: &Value) -> Result<Self, String> {
        Self::of(source, Graph::read(source).map_err(invalid)?)
    }

    fn of(source: &Value, read: Read<'_>) -> Result<Self, String> {
        let defaults = Defaults::collect(source, &read).map_err(invalid)?;
        Ok(Self {
            graph: read.graph,
            defaults,
            patterns: read.patterns,
        })
    }
}

fn invalid(why: impl fmt::Display) -> String {
    format!("the schema is not valid: {why}")
}

/// What is known of a schema without asking the validator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Accepts everything.
    Anything,
    /// Accepts every object and nothing else.
    AnyObject,
    /// Needs the evaluator.
    Ruled,
}

impl Schema {
    /// Compiles a schema.
    ///
    /// Cost: tens of microseconds; done once per pack.
    ///
    /// # Errors
    /// A message that names the place in the schema, or why a check by it would take too long: more
    /// than 100,000 subschemas when it is unfolded, references that go round in place, references
    /// that cannot be followed, patterns that are too large.
    pub fn compile(source: Value) -> Result<Self, String> {
        // Bounded first: the schema of schemas follows what it finds.
        let read = Graph::read(&source).map_err(invalid)?;
        jsonschema::draft202012::meta::validate(&source).map_err(|error| {
            let at = error.instance_path().to_string();
            let at = if at.is_empty() {
                at
            } else {
                format!("at {at}: ")
            };
            invalid(format_args!(
                "{at}{}",
                text::escaped(&error.to_string(), 300)
            ))
        })?;
        check_defaults(&source, &read)?;
        let compiled = Compiled::of(&source, read)?;
        let schema = Self::trusted(source);
        let _ = schema.compiled.set(Ok(compiled));
        Ok(schema)
    }

    /// Returns a schema that is compiled when it is first needed.
    ///
    /// For the built-in packs, whose schemas a test compiles: a server starts with dozens, and uses
    /// few. If one cannot be compiled after all, it accepts nothing and says why.
    #[must_use]
    pub fn trusted(source: Value) -> Self {
        Self {
            shape: shape_of(&source),
            source,
            compiled: OnceLock::new(),
            stream: OnceLock::new(),
        }
    }

    /// Returns the schema that accepts every JSON document.
    #[must_use]
    pub fn anything() -> Self {
        Self::trusted(Value::Bool(true))
    }

    fn compiled(&self) -> Result<&Compiled, &String> {
        self.compiled
            .get_or_init(|| Compiled::new(&self.source))
            .as_ref()
    }

    /// Returns the schema as it was written.
    #[must_use]
    pub const fn source(&self) -> &Value {
        &self.source
    }

    /// Returns the size of what the patterns were compiled to, in bytes: most of the memory that a
    /// hostile schema can take.
    #[must_use]
    pub fn patterns_size(&self) -> usize {
        self.compiled.get().map_or(0, |compiled| {
            compiled
                .as_ref()
                .map_or(0, |compiled| compiled.patterns.size())
        })
    }

    /// Returns whether a JSON text is known to be valid without building its value.
    ///
    /// `false` says nothing: the value has to be validated. If a value is needed anyway, validate
    /// it at once.
    #[must_use]
    pub fn accepts_unread(&self, text: &[u8]) -> bool {
        match self.shape {
            Shape::Anything => true,
            Shape::AnyObject => text.trim_ascii_start().first() == Some(&b'{'),
            Shape::Ruled => {
                let patterns = || match self.compiled.get() {
                    Some(Ok(compiled)) => compiled.patterns.clone(),
                    _ => Patterns::default(),
                };
                let stream = self
                    .stream
                    .get_or_init(|| Stream::read(&self.source, patterns()));
                stream.as_ref().is_some_and(|known| known.accepts(text))
            }
        }
    }

    /// Checks a document to the end: about a second of work at most.
    ///
    /// For schemas that are trusted, and where nobody else waits. Use [`Schema::check`] for
    /// documents of callers.
    ///
    /// # Errors
    /// What breaks the schema and where, without the values (they may be secret), at most 20
    /// places; or that the check would take too many steps.
    pub fn validate(&self, document: &Value) -> Result<(), Vec<Violation>> {
        self.check(document, &mut Effort::patient())
            .unwrap_or_else(|_| whole(TOO_MUCH))
    }

    /// Checks a document with limited work.
    ///
    /// The result is as that of [`Schema::validate`].
    ///
    /// # Errors
    /// Why it is not known whether the document fits.
    pub fn check(
        &self,
        document: &Value,
        effort: &mut Effort<'_>,
    ) -> Result<Result<(), Vec<Violation>>, Unfinished> {
        match self.shape {
            Shape::Anything => return Ok(Ok(())),
            Shape::AnyObject if document.is_object() => return Ok(Ok(())),
            _ => {}
        }
        let graph = match self.compiled() {
            Ok(compiled) => &compiled.graph,
            Err(why) => return Ok(whole(why)),
        };
        match Evaluation::fits(graph, 0, document, effort) {
            Ok(true) => return Ok(Ok(())),
            Ok(false) => {}
            // Nobody else will try it with more.
            Err(Unfinished::TooMuch) if !effort.is_light() => return Ok(whole(TOO_MUCH)),
            Err(unfinished) => return Err(unfinished),
        }
        match Evaluation::violations(graph, document, effort) {
            Ok(mut violations) => {
                violations.dedup();
                Ok(Err(violations))
            }
            Err(unfinished) if effort.is_light() => Err(unfinished),
            Err(_) => Ok(whole(
                "it does not fit the schema; it is too large to say where",
            )),
        }
    }

    /// Fills in omitted defaults: those under `properties`, `items`, `allOf` and local `$ref`.
    ///
    /// The caller's text is kept digit for digit; `Cow::Borrowed` if nothing was missing.
    ///
    /// # Errors
    /// That the document becomes too large.
    pub fn fill<'a>(&self, text: &'a str) -> Result<Cow<'a, str>, TooLarge> {
        if self.shape != Shape::Ruled {
            return Ok(Cow::Borrowed(text));
        }
        match self.compiled() {
            Ok(Compiled { defaults, .. }) if !defaults.is_empty() => defaults.fill(text),
            _ => Ok(Cow::Borrowed(text)),
        }
    }
}

/// What is told of a document that takes more work than any may.
const TOO_MUCH: &str = "checking it by the schema takes too many steps; send less at once";

fn whole(detail: &str) -> Result<(), Vec<Violation>> {
    Err(vec![Violation {
        pointer: String::new(),
        detail: detail.to_owned(),
    }])
}

/// Refuses a default that breaks its own schema.
///
/// With such a default an omitted member would be an error that no caller understands.
fn check_defaults(source: &Value, read: &Read<'_>) -> Result<(), String> {
    fn walk(
        read: &Read<'_>,
        value: &Value,
        at: &str,
        effort: &mut Effort<'_>,
    ) -> Result<(), String> {
        let Value::Object(object) = value else {
            return Ok(());
        };
        let rule = object.get("type").or_else(|| object.get("enum"));
        if let (Some(default), Some(_), Some(node)) =
            (object.get("default"), rule, read.node(value))
            && !matches!(
                Evaluation::fits(&read.graph, node, default, effort),
                Ok(true)
            )
        {
            return Err(format!("the default at {at} does not fit its own schema"));
        }
        for (name, inner) in object
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            walk(read, inner, &format!("{at}/properties/{name}"), effort)?;
        }
        object.get("items").map_or(Ok(()), |inner| {
            walk(read, inner, &format!("{at}/items"), effort)
        })
    }
    walk(read, source, "", &mut Effort::patient())
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Schema").field(&self.source).finish()
    }
}

fn shape_of(source: &Value) -> Shape {
    const NOTES: &[&str] = &[
        "$schema",
        "$id",
        "$comment",
        "title",
        "description",
        "examples",
        "default",
        "deprecated",
    ];
    match source {
        Value::Bool(true) => Shape::Anything,
        Value::Object(object) => {
            let mut rules = object.iter().filter(|(key, value)| {
                let open = key.as_str() == "additionalProperties" && **value == Value::Bool(true);
                !open && !NOTES.contains(&key.as_str())
            });
            match (rules.next(), rules.next()) {
                (None, _) => Shape::Anything,
                (Some((key, Value::String(kind))), None) if key == "type" && kind == "object" => {
                    Shape::AnyObject
                }
                _ => Shape::Ruled,
            }
        }
        _ => Shape::Ruled,
    }
}

/// Removes one member from a JSON object and keeps the rest unchanged. `None` if it is missing.
#[must_use]
pub fn take_member(text: &str, name: &str) -> Option<(String, String)> {
    let members = members(text)?;
    let taken = members
        .iter()
        .find(|(key, _)| key == name)?
        .1
        .get()
        .to_owned();
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
        for (name, property) in schema
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            out.entry(name.clone()).or_insert_with(|| property.clone());
        }
        if depth >= MAX_REF_DEPTH {
            return;
        }
        if let Some(target) = schema
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|r| root.pointer(r.strip_prefix('#')?))
        {
            gather(root, target, depth + 1, out);
        }
        for part in schema
            .get("allOf")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            gather(root, part, depth + 1, out);
        }
    }
    let mut out = Map::new();
    gather(schema, schema, 0, &mut out);
    out
}

#[cfg(test)]
mod tests;
