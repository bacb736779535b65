//! Schemas and documents by chance: every keyword, nested, and values that are large.
//!
//! The bytes decide. What must hold: a schema is read or refused, a check pays for its work, so
//! that it looks at the clock again and again and ends at the first look that says so, and what is
//! known to fit without a value fits.

use std::cell::Cell;
use std::time::{Duration, Instant};

use helmdeck_core::Schema;
use helmdeck_core::schema::{Effort, STACK_BYTES, Unfinished};
use serde_json::{Map, Value, json};

/// The longest time between two looks at the clock. The code aims at a thousandth of it; a build
/// for tests on a busy machine is slow.
const LONGEST_GAP: Duration = Duration::from_secs(20);
/// Limit of the values of a document: each level multiplies those of the one below.
const MOST: usize = 1 << 19;
/// Limit of the values of a repeated subschema. No schema that is taken in has more than some
/// megabytes.
const MOST_RULES: usize = 1 << 14;
/// Looks after which a check is told to end.
const LOOKS: u32 = 40;

/// Makes things of bytes; zeros when they have run out.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> usize {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        usize::from(*first)
    }

    fn one_of<'v, T>(&mut self, all: &'v [T]) -> &'v T {
        &all[self.next() % all.len()]
    }

    /// A count that is small most of the time.
    fn count(&mut self) -> usize {
        match self.next() {
            small @ 0..240 => small % 4,
            large => 1 << (large - 236),
        }
    }

    fn pattern(&mut self) -> String {
        let pieces = [
            "a",
            r"\w",
            r"\d+",
            "[^b]{1,60}",
            "(x|y)*",
            "$",
            "^",
            r"[a-c\s]",
            "(a{1,20}){1,20}",
            ".*",
            r"\p{L}",
            "|q",
            r"\b",
            "é",
        ];
        (0..=self.next() % 6)
            .map(|_| *self.one_of(&pieces))
            .collect()
    }

    fn reference(&mut self) -> Value {
        let places = [
            "#/$defs/a",
            "#/$defs/b",
            "#/$defs/c",
            "#",
            "#here",
            "https://json-schema.org/draft/2020-12/schema",
        ];
        json!(self.one_of(&places))
    }

    fn schema(&mut self, depth: usize) -> Value {
        if depth == 0 || self.0.is_empty() {
            return self
                .one_of(&[
                    json!(true),
                    json!(false),
                    json!({"type": "integer"}),
                    json!({"$ref": "#/$defs/c"}),
                ])
                .clone();
        }
        let mut made = Map::new();
        for _ in 0..=self.next() % 3 {
            let (keyword, rule) = self.keyword(depth - 1);
            made.insert(keyword.to_owned(), rule);
        }
        Value::Object(made)
    }

    /// Many of one subschema, or some of several.
    fn schemas(&mut self, depth: usize) -> Value {
        let first = self.schema(depth);
        match self.next() % 4 {
            0 => {
                let count = (1 + self.next() % 100).min(MOST_RULES / nodes(&first));
                json!(vec![first; count.max(1)])
            }
            _ => json!([first, self.schema(depth)]),
        }
    }

    fn named(&mut self, depth: usize) -> Value {
        json!({"a": self.schema(depth), "m7": self.schema(depth)})
    }

    fn keyword(&mut self, depth: usize) -> (&'static str, Value) {
        const TYPES: [&str; 7] = [
            "null", "boolean", "integer", "number", "string", "array", "object",
        ];
        const FORMATS: [&str; 18] = [
            "date",
            "date-time",
            "time",
            "duration",
            "email",
            "hostname",
            "ipv4",
            "ipv6",
            "uri",
            "uri-reference",
            "iri",
            "iri-reference",
            "uuid",
            "uri-template",
            "json-pointer",
            "relative-json-pointer",
            "regex",
            "other",
        ];
        const NUMBERS: [f64; 6] = [1.0, 0.1, 2.0, 1e-300, 1e300, 3.5];
        match self.next() % 42 {
            0 => ("type", json!([self.one_of(&TYPES), "null"])),
            1 => ("minimum", json!(self.one_of(&NUMBERS))),
            2 => ("maximum", json!(self.one_of(&NUMBERS))),
            3 => ("exclusiveMinimum", json!(self.one_of(&NUMBERS))),
            4 => ("exclusiveMaximum", json!(self.one_of(&NUMBERS))),
            5 => ("multipleOf", json!(self.one_of(&NUMBERS))),
            6 => ("minLength", json!(self.count())),
            7 => ("maxLength", json!(self.count() * 1000)),
            8 => ("pattern", json!(self.pattern())),
            9 => ("format", json!(self.one_of(&FORMATS))),
            10 => ("minItems", json!(self.count())),
            11 => ("maxItems", json!(self.count() * 1000)),
            12 => ("uniqueItems", json!(true)),
            13 => ("minProperties", json!(self.count())),
            14 => ("maxProperties", json!(self.count() * 1000)),
            15 => ("required", json!(["a"])),
            16 => ("dependentRequired", json!({"a": ["m7"]})),
            17 => ("const", self.value(2)),
            18 => ("enum", json!([self.value(1), self.value(2)])),
            19 => ("$ref", self.reference()),
            20 => ("$dynamicRef", self.reference()),
            21 => ("properties", self.named(depth)),
            22 => (
                "patternProperties",
                json!({self.pattern(): self.schema(depth)}),
            ),
            23 => ("additionalProperties", self.schema(depth)),
            24 => ("propertyNames", self.schema(depth)),
            25 => ("items", self.schema(depth)),
            26 => ("prefixItems", self.schemas(depth)),
            27 => ("contains", self.schema(depth)),
            28 => ("minContains", json!(self.count())),
            29 => ("maxContains", json!(self.count())),
            30 => ("allOf", self.schemas(depth)),
            31 => ("anyOf", self.schemas(depth)),
            32 => ("oneOf", self.schemas(depth)),
            33 => ("not", self.schema(depth)),
            34 => ("if", self.schema(depth)),
            35 => ("then", self.schema(depth)),
            36 => ("else", self.schema(depth)),
            37 => ("dependentSchemas", self.named(depth)),
            38 => ("unevaluatedProperties", self.schema(depth)),
            39 => ("unevaluatedItems", self.schema(depth)),
            40 => ("default", self.value(1)),
            _ => ("$defs", json!({})),
        }
    }

    fn value(&mut self, depth: usize) -> Value {
        match self.next() % if depth == 0 { 5 } else { 8 } {
            0 => json!(self.next()),
            1 => json!(self.one_of(&[0.5, 1e300, -0.0, 3.0])),
            2 => Value::Null,
            3 | 4 => {
                let piece = *self.one_of(&["a", "cdefghij", "é", "7", "a:b/", "(?<a>x)", "\n"]);
                json!(piece.repeat(self.count() * 50))
            }
            5 => {
                let inner = self.value(depth - 1);
                let count = self.count().min(MOST / nodes(&inner));
                json!(vec![inner; count])
            }
            6 => (0..self.count()).map(|n| json!([n])).collect(),
            _ => {
                let inner = self.value(depth - 1);
                (0..self.count().min(MOST / nodes(&inner)))
                    .map(|n| (format!("m{n}"), inner.clone()))
                    .chain([("a".to_owned(), json!(1))])
                    .collect()
            }
        }
    }
}

/// Returns the number of values in a value, a long text counted as several.
fn nodes(value: &Value) -> usize {
    1 + match value {
        Value::String(text) => text.len() / 64,
        Value::Array(items) => items.iter().map(nodes).sum(),
        Value::Object(members) => members.values().map(nodes).sum(),
        _ => 0,
    }
}

/// A schema with three subschemas that it may refer to, and a document; the bytes decide.
pub fn schema(data: &[u8]) {
    let mut bytes = Bytes(data);
    let mut source = bytes.schema(4);
    let mut inner = bytes.schema(2);
    if let (Value::Object(root), Value::Object(inner)) = (&mut source, &mut inner) {
        inner.insert("$dynamicAnchor".into(), "here".into());
        let defs = json!({"a": inner, "b": bytes.schema(3), "c": bytes.schema(1)});
        root.insert("$defs".into(), defs);
    }
    let document = bytes.value(3);
    match Schema::compile(source) {
        Ok(schema) => check(schema, document),
        Err(why) => assert!(!why.trim().is_empty()),
    }
}

fn check(schema: Schema, document: Value) {
    let began = Instant::now();
    let light = schema.check(&document, &mut Effort::light());
    assert!(began.elapsed() < LONGEST_GAP, "{schema:?}");
    let text = document.to_string();
    let unread = schema.accepts_unread(text.as_bytes());
    let filled = schema
        .fill(&text)
        .map(|filled| serde_json::from_str::<Value>(&filled));
    assert!(
        filled.is_err() || filled.is_ok_and(|filled| filled.is_ok()),
        "{schema:?}"
    );
    // As a server does it: on a thread whose stack is large.
    let thread = std::thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(move || {
            let (looks, last, longest) = (
                Cell::new(0),
                Cell::new(Instant::now()),
                Cell::new(Duration::ZERO),
            );
            let stop = || {
                looks.set(looks.get() + 1);
                longest.set(longest.get().max(last.replace(Instant::now()).elapsed()));
                looks.get() >= LOOKS
            };
            let full = schema.check(&document, &mut Effort::full(&stop));
            assert!(
                longest.get().max(last.get().elapsed()) < LONGEST_GAP,
                "{schema:?}"
            );
            assert!(
                looks.get() <= LOOKS,
                "it went on after it was told to end: {schema:?}"
            );
            match &full {
                Err(Unfinished::TooMuch) => panic!("nobody could do it with more: {schema:?}"),
                Err(Unfinished::Stopped) => assert!(light.is_err(), "{schema:?}"),
                Ok(verdict) => {
                    assert!(
                        light.as_ref().is_err() || light.as_ref() == Ok(verdict),
                        "{schema:?}"
                    );
                    assert!(!unread || verdict.is_ok(), "{schema:?}");
                }
            }
        });
    thread.unwrap().join().unwrap();
}
