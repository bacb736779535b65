//! A schema as a graph: its subschemas, how they reach each other, and its unfolded size.
//!
//! Validation is exponential in the worst case: `anyOf` of four references, fourteen levels deep,
//! is 268 million steps for one number, in less than 1 KiB. So a schema is bounded when it is read;
//! what the check of one document may cost is in `effort.rs`.

use std::collections::HashMap;
use std::sync::Arc;

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

use super::pattern::Pattern;
use super::rules::{
    Choice, EVERY, Foreign, NumberRules, Patterns, TextRules, Types, limit, metaschema, texts,
    types,
};
use crate::text;

/// Limit of subschemas that all paths through a schema reach, each path counted separately.
pub(super) const MAX_UNFOLDED: u64 = 100_000;
/// The longest chain of subschemas.
const MAX_DEPTH: usize = 512;
/// Schemas that the crate `jsonschema` carries along.
const METASCHEMAS: &[&str] = &["https://json-schema.org/", "http://json-schema.org/"];

/// The subschemas of a schema and how they reach each other.
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
}

/// One subschema. Others are named by their place in the list of all.
pub(super) struct Node {
    /// Whether it has nothing but types and rules for texts, numbers, arrays and objects, without
    /// `unevaluated*`.
    pub(super) simple: bool,
    /// Whether it is `false`.
    pub(super) never: bool,
    pub(super) types: Types,
    pub(super) choice: Option<Box<Choice>>,
    pub(super) constant: Option<Box<Choice>>,
    pub(super) text: Option<Box<TextRules>>,
    pub(super) number: Option<Box<NumberRules>>,
    pub(super) array: Option<Box<ArrayRules>>,
    pub(super) object: Option<Box<ObjectRules>>,
    pub(super) same: Option<Box<SameRules>>,
    /// The schema of schemas that it refers to.
    pub(super) metaschema: Option<Arc<Foreign>>,
}

/// Keywords whose subschemas look at the same value.
#[derive(Default)]
pub(super) struct SameRules {
    /// `$ref`, `$dynamicRef` and `allOf`.
    pub(super) all: Vec<usize>,
    pub(super) any: Option<Vec<usize>>,
    pub(super) one: Option<Vec<usize>>,
    /// With its text, for messages.
    pub(super) not: Option<(usize, String)>,
    pub(super) condition: Option<usize>,
    pub(super) then: Option<usize>,
    pub(super) otherwise: Option<usize>,
    /// A subschema for objects with a certain member.
    pub(super) dependent: Vec<(String, usize)>,
    /// Units for looking up the names of `dependent`.
    pub(super) dependent_units: u64,
}

/// Keywords about arrays.
#[derive(Default)]
pub(super) struct ArrayRules {
    pub(super) prefix: Vec<usize>,
    pub(super) items: Option<usize>,
    pub(super) contains: Option<usize>,
    pub(super) min_contains: Option<u64>,
    pub(super) max_contains: Option<u64>,
    pub(super) min: Option<u64>,
    pub(super) max: Option<u64>,
    pub(super) unique: bool,
    pub(super) unevaluated: Option<usize>,
}

/// Keywords about objects.
#[derive(Default)]
pub(super) struct ObjectRules {
    /// In the order of names.
    pub(super) properties: Vec<(Box<str>, usize)>,
    pub(super) patterns: Vec<(Arc<Pattern>, usize)>,
    pub(super) additional: Option<usize>,
    pub(super) names: Option<usize>,
    pub(super) required: Vec<String>,
    /// Members that have to be there if another one is.
    pub(super) dependent: Vec<(String, Vec<String>)>,
    pub(super) min: Option<u64>,
    pub(super) max: Option<u64>,
    pub(super) unevaluated: Option<usize>,
    /// Units for looking up the names of `properties`.
    pub(super) name_units: u64,
    /// Units for looking up the names of `required`, and those that `dependent` is about.
    pub(super) needed_units: u64,
}

/// Returns the units for looking up names in a large object. Comparisons of long names cost as much
/// as reading them.
fn looking_up<'a>(names: impl Iterator<Item = &'a str>) -> u64 {
    names.map(|name| 1 + name.len() as u64 / 4).sum()
}

impl ObjectRules {
    /// Returns the subschema of a property.
    #[inline]
    pub(super) fn property(&self, name: &str) -> Option<usize> {
        /// In a list that is not longer, each is compared.
        const FEW: usize = 12;
        if self.properties.len() <= FEW {
            return self
                .properties
                .iter()
                .find(|(known, _)| **known == *name)
                .map(|(_, at)| *at);
        }
        let found = self
            .properties
            .binary_search_by(|(known, _)| (**known).cmp(name))
            .ok()?;
        Some(self.properties[found].1)
    }
}

impl Node {
    /// The subschema that accepts everything.
    const fn anything() -> Self {
        Self {
            simple: true,
            never: false,
            types: EVERY,
            choice: None,
            constant: None,
            text: None,
            number: None,
            array: None,
            object: None,
            same: None,
            metaschema: None,
        }
    }

    /// Subschemas that look at the same value.
    fn same(&self) -> impl Iterator<Item = usize> + '_ {
        self.same.iter().flat_map(|same| {
            let lists = same
                .all
                .iter()
                .chain(same.any.iter().flatten())
                .chain(same.one.iter().flatten());
            let named = same
                .dependent
                .iter()
                .map(|(_, at)| at)
                .chain(same.not.iter().map(|(at, _)| at));
            lists
                .chain(named)
                .chain(&same.condition)
                .chain(&same.then)
                .chain(&same.otherwise)
                .copied()
        })
    }

    /// Subschemas of members and elements.
    fn children(&self) -> impl Iterator<Item = usize> + '_ {
        let object = self.object.iter().flat_map(|object| {
            let named = object
                .properties
                .iter()
                .map(|(_, at)| at)
                .chain(object.patterns.iter().map(|(_, at)| at));
            named
                .chain(&object.additional)
                .chain(&object.names)
                .chain(&object.unevaluated)
                .copied()
        });
        let array = self.array.iter().flat_map(|array| {
            array
                .prefix
                .iter()
                .chain(&array.items)
                .chain(&array.contains)
                .chain(&array.unevaluated)
                .copied()
        });
        object.chain(array)
    }

    /// Whether it has to know what the subschemas for the same value have looked at.
    fn looks_again(&self) -> bool {
        self.object
            .as_ref()
            .is_some_and(|object| object.unevaluated.is_some())
            || self
                .array
                .as_ref()
                .is_some_and(|array| array.unevaluated.is_some())
    }
}

/// A schema that was read, and where its subschemas are in the graph.
pub(super) struct Read<'a> {
    pub(super) graph: Graph,
    pub(super) patterns: Patterns,
    /// The subschema of each node.
    pub(super) schemas: Vec<&'a Value>,
    /// The node of each subschema, by its place in memory.
    places: HashMap<*const Value, usize>,
}

impl Read<'_> {
    /// Returns the node of a subschema.
    pub(super) fn node(&self, schema: &Value) -> Option<usize> {
        self.places.get(&std::ptr::from_ref(schema)).copied()
    }
}

impl Graph {
    /// Reads a schema.
    ///
    /// # Errors
    /// Why it is refused: its unfolded size is over the limit, it refers to itself without a step
    /// into the document, or it has a reference that cannot be followed here.
    pub(super) fn read(root: &Value) -> Result<Read<'_>, String> {
        let mut reader = Reader {
            root,
            nodes: Vec::new(),
            schemas: Vec::new(),
            known: HashMap::new(),
            queue: Vec::new(),
            anchors: None,
            patterns: Patterns::default(),
        };
        reader.node(root);
        while let Some((at, schema)) = reader.queue.pop() {
            reader
                .fill(at, schema)
                .map_err(|why| match place(root, schema) {
                    Some(place) if !place.is_empty() => format!("at {place}: {why}"),
                    _ => why,
                })?;
        }
        let graph = Self {
            nodes: reader.nodes,
        };
        let mut visited = vec![VisitState::New; graph.nodes.len()];
        // Every subschema is the start of a chain, so that those behind a step into the document
        // are looked at too.
        for start in 0..graph.nodes.len() {
            graph.acyclic(start, &mut visited, 0)?;
        }
        let unfolded = graph.unfold(0, &mut vec![VisitState::New; graph.nodes.len()], 0)?;
        if unfolded > MAX_UNFOLDED {
            return Err(format!(
                "the schema unfolds to more than {MAX_UNFOLDED} subschemas; use fewer alternatives or references"
            ));
        }
        Ok(Read {
            graph,
            patterns: reader.patterns,
            schemas: reader.schemas,
            places: reader.known,
        })
    }

    /// Refuses references that go round without a step into the document: checking them would never
    /// end.
    fn acyclic(&self, at: usize, state: &mut [VisitState], depth: usize) -> Result<(), String> {
        match state[at] {
            VisitState::Open => {
                return Err(
                    "the schema refers to itself without a step into the document".to_owned(),
                );
            }
            VisitState::Known(_) => return Ok(()),
            VisitState::New => {}
        }
        too_deep(depth)?;
        state[at] = VisitState::Open;
        for next in self.nodes[at].same() {
            self.acyclic(next, state, depth + 1)?;
        }
        state[at] = VisitState::Known(0);
        Ok(())
    }

    fn unfold(&self, at: usize, state: &mut [VisitState], depth: usize) -> Result<u64, String> {
        match state[at] {
            VisitState::Open => return Ok(1),
            VisitState::Known(size) => return Ok(size),
            VisitState::New => {}
        }
        too_deep(depth)?;
        state[at] = VisitState::Open;
        let node = &self.nodes[at];
        let mut size = 1_u64;
        for next in node.same().chain(node.children()) {
            size = size.saturating_add(self.unfold(next, state, depth + 1)?);
        }
        state[at] = VisitState::Known(size);
        Ok(size)
    }
}

/// Returns the pointer to a value inside another, by its place in memory.
pub(super) fn place(root: &Value, wanted: &Value) -> Option<String> {
    if std::ptr::eq(root, wanted) {
        return Some(String::new());
    }
    match root {
        Value::Object(members) => members.iter().find_map(|(name, member)| {
            place(member, wanted).map(|rest| format!("/{}{rest}", pointer_step(name)))
        }),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(at, item)| place(item, wanted).map(|rest| format!("/{at}{rest}"))),
        _ => None,
    }
}

/// Returns the beginning of a value of the schema as JSON, for messages.
pub(super) fn shown(value: &Value) -> String {
    const MAX: usize = 200;
    /// Takes the beginning, and then refuses more, so that no more is written.
    struct Beginning(Vec<u8>);
    impl std::io::Write for Beginning {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let taken = bytes.len().min((MAX + 4).saturating_sub(self.0.len()));
            self.0.extend(&bytes[..taken]);
            Ok(taken)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut beginning = Beginning(Vec::new());
    let whole = serde_json::to_writer(&mut beginning, value).is_ok();
    let mut text = String::from_utf8_lossy(&beginning.0).into_owned();
    if !whole || text.len() > MAX {
        text.truncate(text.floor_char_boundary(MAX));
        text.push_str("...");
    }
    text
}

/// Escapes a name for a JSON pointer.
pub(super) fn pointer_step(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn too_deep(depth: usize) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Err(format!(
            "the schema is nested more than {MAX_DEPTH} subschemas deep"
        ));
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum VisitState {
    New,
    Open,
    Known(u64),
}

/// Makes a [`Graph`] of a schema.
struct Reader<'a> {
    root: &'a Value,
    nodes: Vec<Node>,
    schemas: Vec<&'a Value>,
    /// The node of each subschema, by its place in memory.
    known: HashMap<*const Value, usize>,
    queue: Vec<(usize, &'a Value)>,
    anchors: Option<HashMap<&'a str, &'a Value>>,
    patterns: Patterns,
}

impl<'a> Reader<'a> {
    fn node(&mut self, schema: &'a Value) -> usize {
        let next = self.nodes.len();
        let at = *self.known.entry(std::ptr::from_ref(schema)).or_insert(next);
        if at == next {
            self.nodes.push(Node::anything());
            self.schemas.push(schema);
            self.queue.push((at, schema));
        }
        at
    }

    fn fill(&mut self, at: usize, schema: &'a Value) -> Result<(), String> {
        let object = match schema {
            Value::Object(object) => object,
            Value::Bool(accepts) => {
                self.nodes[at].never = !accepts;
                self.nodes[at].simple = *accepts;
                return Ok(());
            }
            _ => return Err("a schema is an object, true or false".to_owned()),
        };
        if at != 0 && object.get("$id").is_some_and(Value::is_string) {
            return Err(
                "the schema has an \"$id\" below its root; write references as \"#/$defs/name\""
                    .to_owned(),
            );
        }
        let mut node = Node::anything();
        if let Some(rule) = object.get("type") {
            node.types = types(rule).ok_or("\"type\" names no type of JSON")?;
        }
        node.constant = object
            .get("const")
            .map(|value| Box::new(Choice::new(vec![value.clone()])));
        node.choice = match object.get("enum") {
            None => None,
            Some(Value::Array(all)) => Some(Box::new(Choice::new(all.clone()))),
            Some(_) => return Err("\"enum\" is not a list".to_owned()),
        };
        node.text = TextRules::read(object, &mut self.patterns)?.map(Box::new);
        node.number = NumberRules::read(object)?.map(Box::new);
        node.array = self.array(object)?.map(Box::new);
        node.object = self.object(object)?.map(Box::new);
        self.same(object, &mut node)?;
        let values = node.constant.is_some() || node.choice.is_some();
        node.simple =
            !values && node.same.is_none() && node.metaschema.is_none() && !node.looks_again();
        self.nodes[at] = node;
        Ok(())
    }

    /// Reads the keywords whose subschemas look at the same value.
    fn same(&mut self, object: &'a Map<String, Value>, node: &mut Node) -> Result<(), String> {
        let mut same = SameRules::default();
        for keyword in ["$ref", "$dynamicRef"] {
            let Some(reference) = object.get(keyword) else {
                continue;
            };
            let reference = reference
                .as_str()
                .ok_or_else(|| format!("\"{keyword}\" is not a text"))?;
            if METASCHEMAS.iter().any(|start| reference.starts_with(start)) {
                node.metaschema = Some(metaschema(reference)?);
                continue;
            }
            let target = self.target(reference)?;
            same.all.push(self.node(target));
        }
        same.all
            .extend(self.list(object, "allOf")?.into_iter().flatten());
        same.any = self.list(object, "anyOf")?;
        same.one = self.list(object, "oneOf")?;
        same.not = object
            .get("not")
            .map(|inner| (self.node(inner), shown(inner)));
        same.condition = self.one(object, "if");
        same.then = self.one(object, "then");
        same.otherwise = self.one(object, "else");
        for (name, inner) in named(object, "dependentSchemas")? {
            same.dependent.push((name.clone(), self.node(inner)));
        }
        for (name, inner) in named(object, "dependencies")?.filter(|(_, inner)| !inner.is_array()) {
            same.dependent.push((name.clone(), self.node(inner)));
        }
        same.dependent_units = looking_up(same.dependent.iter().map(|(name, _)| name.as_str()));
        let SameRules {
            all,
            any,
            one,
            not,
            condition,
            then,
            otherwise,
            dependent,
            ..
        } = &same;
        let single = condition.is_some() || then.is_some() || otherwise.is_some() || not.is_some();
        let used =
            single || any.is_some() || one.is_some() || !all.is_empty() || !dependent.is_empty();
        node.same = used.then(|| Box::new(same));
        Ok(())
    }

    fn array(&mut self, object: &'a Map<String, Value>) -> Result<Option<ArrayRules>, String> {
        const KEYWORDS: [&str; 7] = [
            "prefixItems",
            "items",
            "contains",
            "minItems",
            "maxItems",
            "uniqueItems",
            "unevaluatedItems",
        ];
        if !KEYWORDS.iter().any(|keyword| object.contains_key(*keyword)) {
            return Ok(None);
        }
        Ok(Some(ArrayRules {
            prefix: self.list(object, "prefixItems")?.unwrap_or_default(),
            items: self.one(object, "items"),
            contains: self.one(object, "contains"),
            min_contains: limit(object, "minContains")?,
            max_contains: limit(object, "maxContains")?,
            min: limit(object, "minItems")?,
            max: limit(object, "maxItems")?,
            unique: object.get("uniqueItems") == Some(&Value::Bool(true)),
            unevaluated: self.one(object, "unevaluatedItems"),
        }))
    }

    fn object(&mut self, object: &'a Map<String, Value>) -> Result<Option<ObjectRules>, String> {
        const KEYWORDS: [&str; 10] = [
            "properties",
            "patternProperties",
            "additionalProperties",
            "propertyNames",
            "required",
            "dependentRequired",
            "dependencies",
            "minProperties",
            "maxProperties",
            "unevaluatedProperties",
        ];
        if !KEYWORDS.iter().any(|keyword| object.contains_key(*keyword)) {
            return Ok(None);
        }
        let mut rules = ObjectRules {
            additional: self.one(object, "additionalProperties"),
            names: self.one(object, "propertyNames"),
            required: texts(object.get("required"), "required")?,
            min: limit(object, "minProperties")?,
            max: limit(object, "maxProperties")?,
            unevaluated: self.one(object, "unevaluatedProperties"),
            ..ObjectRules::default()
        };
        for (name, inner) in named(object, "properties")? {
            rules
                .properties
                .push((name.as_str().into(), self.node(inner)));
        }
        rules.properties.sort_unstable();
        for (pattern, inner) in named(object, "patternProperties")? {
            rules
                .patterns
                .push((self.patterns.read(pattern)?, self.node(inner)));
        }
        for (name, inner) in named(object, "dependentRequired")? {
            rules
                .dependent
                .push((name.clone(), texts(Some(inner), "dependentRequired")?));
        }
        for (name, inner) in named(object, "dependencies")?.filter(|(_, inner)| inner.is_array()) {
            rules
                .dependent
                .push((name.clone(), texts(Some(inner), "dependencies")?));
        }
        rules.name_units = looking_up(rules.properties.iter().map(|(name, _)| &**name));
        let needed = rules
            .required
            .iter()
            .chain(rules.dependent.iter().map(|(name, _)| name));
        rules.needed_units = looking_up(needed.map(String::as_str));
        Ok(Some(rules))
    }

    fn one(&mut self, object: &'a Map<String, Value>, keyword: &str) -> Option<usize> {
        object.get(keyword).map(|inner| self.node(inner))
    }

    fn list(
        &mut self,
        object: &'a Map<String, Value>,
        keyword: &str,
    ) -> Result<Option<Vec<usize>>, String> {
        match object.get(keyword) {
            None => Ok(None),
            Some(Value::Array(all)) => Ok(Some(all.iter().map(|inner| self.node(inner)).collect())),
            Some(_) => Err(format!("\"{keyword}\" is not a list of schemas")),
        }
    }

    fn target(&mut self, reference: &str) -> Result<&'a Value, String> {
        let own = self
            .root
            .get("$id")
            .and_then(Value::as_str)
            .map(|id| id.trim_end_matches('#'))
            .unwrap_or_default();
        let fragment = reference.strip_prefix(own).unwrap_or(reference);
        let found = match fragment.strip_prefix('#') {
            Some("") => Some(self.root),
            Some(pointer) if pointer.starts_with('/') => self
                .root
                .pointer(&percent_decode_str(pointer).decode_utf8_lossy()),
            Some(anchor) => self.anchor(anchor),
            None if fragment.is_empty() => Some(self.root),
            None => None,
        };
        found.ok_or_else(|| {
            let shown = text::escaped(reference, 80);
            format!("the reference \"{shown}\" cannot be followed; write it as \"#/$defs/name\"")
        })
    }

    fn anchor(&mut self, name: &str) -> Option<&'a Value> {
        let root = self.root;
        let anchors = self.anchors.get_or_insert_with(|| anchors(root));
        anchors.get(name).copied()
    }
}

/// Finds the subschemas that have a name of their own.
fn anchors(root: &Value) -> HashMap<&str, &Value> {
    /// Keywords with named subschemas: the names are no keywords.
    const NAMED: [&str; 6] = [
        "properties",
        "patternProperties",
        "$defs",
        "definitions",
        "dependentSchemas",
        "dependencies",
    ];
    /// Keywords with values, which are no schemas.
    const VALUES: [&str; 4] = ["enum", "const", "default", "examples"];
    let (mut found, mut queue) = (HashMap::new(), vec![root]);
    while let Some(value) = queue.pop() {
        match value {
            Value::Object(object) => {
                for keyword in ["$anchor", "$dynamicAnchor"] {
                    if let Some(name) = object.get(keyword).and_then(Value::as_str) {
                        found.insert(name, value);
                    }
                }
                for (keyword, inner) in object
                    .iter()
                    .filter(|(keyword, _)| !VALUES.contains(&keyword.as_str()))
                {
                    match inner {
                        Value::Object(named) if NAMED.contains(&keyword.as_str()) => {
                            queue.extend(named.values())
                        }
                        inner => queue.push(inner),
                    }
                }
            }
            Value::Array(items) => queue.extend(items),
            _ => {}
        }
    }
    found
}

/// Returns the named subschemas of a keyword.
fn named<'a>(
    object: &'a Map<String, Value>,
    keyword: &str,
) -> Result<impl Iterator<Item = (&'a String, &'a Value)> + use<'a>, String> {
    match object.get(keyword) {
        None => Ok(None.into_iter().flatten()),
        Some(Value::Object(named)) => Ok(Some(named).into_iter().flatten()),
        Some(_) => Err(format!("\"{keyword}\" is not an object of schemas")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Schema with `levels` levels of `{keyword: [next; wide]}` around an integer.
    pub(crate) fn tower(keyword: &str, wide: usize, levels: usize) -> Value {
        let mut defs = Map::new();
        for level in 0..levels {
            let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
            defs.insert(format!("d{level}"), json!({keyword: vec![next; wide]}));
        }
        defs.insert(format!("d{levels}"), json!({"type": "integer"}));
        json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": defs})
    }

    fn refused(schema: &Value) -> String {
        Graph::read(schema).err().unwrap()
    }

    #[test]
    fn towers_of_alternatives_are_refused() {
        for keyword in ["anyOf", "oneOf", "allOf", "prefixItems"] {
            assert!(tower(keyword, 4, 14).to_string().len() < 3 << 10);
            assert!(
                refused(&tower(keyword, 4, 14)).contains("unfolds to more than 100000"),
                "{keyword}"
            );
            assert!(
                refused(&tower(keyword, 4, 200)).contains("unfolds"),
                "saturates: {keyword}"
            );
            assert!(Graph::read(&tower(keyword, 4, 6)).is_ok(), "{keyword}");
        }
    }

    #[test]
    fn properties_that_fan_out_are_refused() {
        let mut defs = Map::new();
        for level in 0..4 {
            let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
            let properties: Map<_, _> = (0..60).map(|n| (format!("p{n}"), next.clone())).collect();
            defs.insert(format!("d{level}"), json!({"properties": properties}));
        }
        defs.insert("d4".into(), json!({"default": 1}));
        assert!(refused(&json!({"$ref": "#/$defs/d0", "$defs": defs})).contains("unfolds"));
    }

    #[test]
    fn references_that_go_round_in_place_are_refused() {
        for schema in [
            json!({"$ref": "#"}),
            json!({"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"anyOf": [{"$ref": "#/$defs/x"}, true]}}}),
        ] {
            assert!(
                refused(&schema).contains("refers to itself without a step"),
                "{schema}"
            );
        }
        assert!(Graph::read(&json!({"properties": {"next": {"$ref": "#"}}})).is_ok());
    }

    #[test]
    fn references_are_followed_or_refused() {
        for reference in [
            "#",
            "#/$defs/a%20b",
            "#/$defs/a~1b",
            "#here",
            "x.json#/$defs/a%20b",
            "x.json",
        ] {
            let schema = json!({"$id": "x.json", "properties": {"p": {"$ref": reference}},
                "$defs": {"a b": {"type": "string"}, "a/b": true, "c": {"$anchor": "here"}}});
            assert!(Graph::read(&schema).is_ok(), "{reference}");
        }
        let named = json!({"$ref": "#here", "properties": {"enum": {"$anchor": "here", "type": "null"}},
            "enum": [{"$anchor": "here"}], "const": {"$anchor": "here"}});
        let read = Graph::read(&named).unwrap();
        assert_eq!(
            read.graph.nodes[0].same.as_ref().unwrap().all,
            [read.node(&named["properties"]["enum"]).unwrap()]
        );
        assert!(
            refused(&json!({"$ref": "#/$defs/none"}))
                .contains("\"#/$defs/none\" cannot be followed")
        );
        assert!(refused(&json!({"$ref": "other.json"})).contains("cannot be followed"));
        assert!(
            refused(&json!({"properties": {"a": {"$id": "y", "$ref": "#/x"}}}))
                .contains("\"$id\" below its root")
        );
        assert!(Graph::read(&json!({"properties": {"$id": {"type": "string"}}})).is_ok());
        assert!(
            Graph::read(&json!({"$ref": "https://json-schema.org/draft/2020-12/schema"})).is_ok()
        );
    }

    #[test]
    fn long_chains_are_refused() {
        let mut defs = Map::new();
        for level in 0..5000 {
            defs.insert(
                format!("d{level}"),
                json!({"$ref": format!("#/$defs/d{}", level + 1)}),
            );
        }
        defs.insert("d5000".into(), json!(true));
        assert!(
            refused(&json!({"$ref": "#/$defs/d0", "$defs": defs})).contains("nested more than 512")
        );
    }
}
