//! Cost of a schema: its subschema graph, its unfolded size, and the steps of validating one document.
//!
//! Validation is exponential in the worst case: `anyOf` of four references, fourteen levels deep, is 268 million steps
//! for one number, in less than 1 KiB. So a schema is bounded when it is compiled ([`Graph::read`]), and a document
//! before it is checked ([`Graph::steps`]). Both count and take no time of their own worth mentioning.

use std::collections::HashMap;

use crate::text;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

/// Limit of subschemas that all paths through a schema reach, each path counted separately.
pub(super) const MAX_UNFOLDED: u64 = 100_000;
/// The longest chain of subschemas.
const MAX_DEPTH: usize = 512;
/// Step limit of one validation.
pub(super) const MAX_STEPS: u64 = 20_000_000;
/// What `unevaluated*` is taken to repeat: it looks at the other subschemas again for each member.
const UNEVALUATED_FACTOR: u64 = 8;
/// Schemas that validators carry along themselves.
const METASCHEMAS: &[&str] = &["https://json-schema.org/", "http://json-schema.org/"];
/// What one value costs against such a schema.
const METASCHEMA_STEPS: u64 = 100;

/// Keywords with one subschema for the same value.
const SAME: &[&str] = &["not", "if", "then", "else"];
/// Keywords with a list of subschemas for the same value.
const SAME_LISTS: &[&str] = &["anyOf", "oneOf", "allOf"];
/// Keywords with named subschemas for the same value.
const SAME_MAPS: &[&str] = &["dependentSchemas", "dependencies"];
const REFERENCES: &[&str] = &["$ref", "$dynamicRef", "$recursiveRef"];

/// The subschemas of a schema and how they reach each other.
#[derive(Debug)]
pub(super) struct Graph {
    nodes: Vec<Node>,
    /// Paths through the schema, a reference back to an open subschema counted once.
    unfolded: u64,
    /// Whether a subschema reaches itself.
    recursive: bool,
}

/// One subschema.
#[derive(Debug, Default)]
struct Node {
    /// Its own keywords: one step, and one for each word of a list that is searched.
    weight: u64,
    /// Subschemas that look at the same value.
    same: Vec<usize>,
    /// Whether `unevaluated*` looks at them again.
    again: bool,
    properties: HashMap<String, usize>,
    /// Subschemas of members whose names match; taken as matching all.
    patterns: Vec<usize>,
    /// Subschemas of all other members.
    others: Vec<usize>,
    names: Option<usize>,
    prefix: Vec<usize>,
    /// Subschemas of all other elements.
    items: Vec<usize>,
    contains: Option<usize>,
    /// Whether it stands for a schema that the validator carries along.
    metaschema: bool,
}

impl Node {
    fn children(&self) -> impl Iterator<Item = usize> + '_ {
        let one = self.names.iter().chain(&self.contains);
        let lists = self.patterns.iter().chain(&self.others).chain(&self.prefix).chain(&self.items);
        self.properties.values().chain(lists).chain(one).copied()
    }
}

impl Graph {
    /// Reads a schema.
    ///
    /// # Errors
    /// Why it is refused: its unfolded size is over the limit, it refers to itself without a step into the document, or
    /// it has a reference that cannot be followed here.
    pub(super) fn read(root: &Value) -> Result<Self, String> {
        let mut reader = Reader { root, nodes: Vec::new(), known: HashMap::new(), queue: Vec::new(), anchors: None };
        reader.node(root);
        while let Some((at, schema)) = reader.queue.pop() {
            reader.fill(at, schema)?;
        }
        let mut graph = Self { nodes: reader.nodes, unfolded: 0, recursive: false };
        let mut walk = Walk { state: vec![VisitState::New; graph.nodes.len()], recursive: false };
        graph.acyclic(0, &mut vec![VisitState::New; graph.nodes.len()], 0)?;
        graph.unfolded = graph.unfold(0, &mut walk, 0)?;
        graph.recursive = walk.recursive;
        if graph.unfolded > MAX_UNFOLDED {
            return Err(format!(
                "the schema unfolds to more than {MAX_UNFOLDED} subschemas; use fewer alternatives or references"
            ));
        }
        Ok(graph)
    }

    /// Refuses references that go round without a step into the document: checking them would never end.
    fn acyclic(&self, at: usize, state: &mut [VisitState], depth: usize) -> Result<(), String> {
        // Every subschema is the start of a chain, so that those behind a step into the document are looked at too.
        for start in std::iter::once(at).chain(0..self.nodes.len()) {
            self.acyclic_from(start, state, depth)?;
        }
        Ok(())
    }

    fn acyclic_from(&self, at: usize, state: &mut [VisitState], depth: usize) -> Result<(), String> {
        match state[at] {
            VisitState::Open => return Err("the schema refers to itself without a step into the document".to_owned()),
            VisitState::Known(_) => return Ok(()),
            VisitState::New => {}
        }
        too_deep(depth)?;
        state[at] = VisitState::Open;
        for next in &self.nodes[at].same {
            self.acyclic_from(*next, state, depth + 1)?;
        }
        state[at] = VisitState::Known(0);
        Ok(())
    }

    fn unfold(&self, at: usize, walk: &mut Walk, depth: usize) -> Result<u64, String> {
        match walk.state[at] {
            VisitState::Open => {
                walk.recursive = true;
                return Ok(1);
            }
            VisitState::Known(size) => return Ok(size),
            VisitState::New => {}
        }
        too_deep(depth)?;
        walk.state[at] = VisitState::Open;
        let node = &self.nodes[at];
        let mut same = 0_u64;
        for next in &node.same {
            same = same.saturating_add(self.unfold(*next, walk, depth + 1)?);
        }
        let mut size =
            node.weight.saturating_add(if node.again { same.saturating_mul(UNEVALUATED_FACTOR) } else { same });
        for next in node.children() {
            size = size.saturating_add(self.unfold(next, walk, depth + 1)?);
        }
        walk.state[at] = VisitState::Known(size);
        Ok(size)
    }

    /// Returns whether a document of this many bytes is checked in no time, whatever is in it.
    pub(super) fn is_quick(&self, bytes: usize) -> bool {
        const QUICK: u64 = 1_000_000;
        !self.recursive && self.unfolded.saturating_mul(bytes as u64) <= QUICK
    }

    /// Counts the steps that a check of the document takes at most; `None` if they are more than `limit`.
    pub(super) fn steps(&self, document: &Value, limit: u64) -> Option<u64> {
        let mut left = limit;
        self.count(0, document, 1, &mut left, 0)?;
        Some(limit - left)
    }

    fn count(&self, at: usize, value: &Value, times: u64, left: &mut u64, depth: usize) -> Option<()> {
        // A validator goes as deep as this does, on a stack of the same size.
        if depth > MAX_DEPTH * 2 {
            return None;
        }
        let node = &self.nodes[at];
        *left = left.checked_sub(node.weight.saturating_mul(times))?;
        if node.metaschema {
            *left = left.checked_sub(values(value).saturating_mul(METASCHEMA_STEPS).saturating_mul(times))?;
            return Some(());
        }
        let members = match value {
            Value::Object(members) => members.len(),
            Value::Array(items) => items.len(),
            _ => 0,
        };
        let again = if node.again { times.saturating_mul(members as u64 + 1) } else { times };
        for next in &node.same {
            self.count(*next, value, again, left, depth + 1)?;
        }
        let depth = depth + 1;
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    let property = node.properties.get(name);
                    let others = node.others.iter().filter(|_| property.is_none());
                    for next in property.into_iter().chain(others).chain(&node.patterns) {
                        self.count(*next, member, times, left, depth)?;
                    }
                    if let Some(names) = node.names {
                        self.count(names, &Value::Null, times, left, depth)?;
                    }
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    let prefix = node.prefix.get(index);
                    let others = node.items.iter().filter(|_| prefix.is_none());
                    for next in prefix.into_iter().chain(others).chain(&node.contains) {
                        self.count(*next, item, times, left, depth)?;
                    }
                }
            }
            _ => {}
        }
        Some(())
    }
}

fn too_deep(depth: usize) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Err(format!("the schema is nested more than {MAX_DEPTH} subschemas deep"));
    }
    Ok(())
}

fn values(value: &Value) -> u64 {
    match value {
        Value::Array(items) => 1 + items.iter().map(values).sum::<u64>(),
        Value::Object(members) => 1 + members.values().map(values).sum::<u64>(),
        _ => 1,
    }
}

#[derive(Clone, Copy)]
enum VisitState {
    New,
    Open,
    Known(u64),
}

struct Walk {
    state: Vec<VisitState>,
    recursive: bool,
}

/// Makes a [`Graph`] of a schema.
struct Reader<'a> {
    root: &'a Value,
    nodes: Vec<Node>,
    /// The node of each subschema, by its place in memory.
    known: HashMap<*const Value, usize>,
    queue: Vec<(usize, &'a Value)>,
    anchors: Option<HashMap<&'a str, &'a Value>>,
}

impl<'a> Reader<'a> {
    fn node(&mut self, schema: &'a Value) -> usize {
        let next = self.nodes.len();
        let at = *self.known.entry(std::ptr::from_ref(schema)).or_insert(next);
        if at == next {
            self.nodes.push(Node { weight: 1, ..Node::default() });
            self.queue.push((at, schema));
        }
        at
    }

    fn fill(&mut self, at: usize, schema: &'a Value) -> Result<(), String> {
        let Value::Object(object) = schema else { return Ok(()) };
        if at != 0 && object.get("$id").is_some_and(Value::is_string) {
            return Err("the schema has an \"$id\" below its root; write references as \"#/$defs/name\"".to_owned());
        }
        let mut node = Node { weight: weight(object), ..Node::default() };
        for keyword in REFERENCES {
            let Some(reference) = object.get(*keyword).and_then(Value::as_str) else { continue };
            if METASCHEMAS.iter().any(|start| reference.starts_with(start)) {
                node.metaschema = true;
                continue;
            }
            let target = self.target(reference)?;
            node.same.push(self.node(target));
        }
        for keyword in SAME {
            node.same.extend(object.get(*keyword).map(|inner| self.node(inner)));
        }
        for keyword in SAME_LISTS {
            self.all(object.get(*keyword), &mut node.same);
        }
        for keyword in SAME_MAPS {
            let named = object.get(*keyword).and_then(Value::as_object).into_iter().flat_map(Map::values);
            // `dependencies` may name properties instead.
            node.same.extend(named.filter(|inner| !inner.is_array()).map(|inner| self.node(inner)));
        }
        for (name, inner) in object.get("properties").and_then(Value::as_object).into_iter().flatten() {
            node.properties.insert(name.clone(), self.node(inner));
        }
        for inner in object.get("patternProperties").and_then(Value::as_object).into_iter().flat_map(Map::values) {
            node.patterns.push(self.node(inner));
        }
        for keyword in ["additionalProperties", "unevaluatedProperties"] {
            node.others.extend(object.get(keyword).map(|inner| self.node(inner)));
        }
        for keyword in ["additionalItems", "unevaluatedItems"] {
            node.items.extend(object.get(keyword).map(|inner| self.node(inner)));
        }
        match object.get("items") {
            Some(Value::Array(_)) => self.all(object.get("items"), &mut node.prefix),
            Some(inner) => node.items.push(self.node(inner)),
            None => {}
        }
        self.all(object.get("prefixItems"), &mut node.prefix);
        node.names = object.get("propertyNames").map(|inner| self.node(inner));
        node.contains = object.get("contains").map(|inner| self.node(inner));
        node.again = ["unevaluatedProperties", "unevaluatedItems"].iter().any(|keyword| object.contains_key(*keyword));
        self.nodes[at] = node;
        Ok(())
    }

    fn all(&mut self, list: Option<&'a Value>, out: &mut Vec<usize>) {
        out.extend(list.and_then(Value::as_array).into_iter().flatten().map(|inner| self.node(inner)));
    }

    fn target(&mut self, reference: &str) -> Result<&'a Value, String> {
        let own = self.root.get("$id").and_then(Value::as_str).map(|id| id.trim_end_matches('#')).unwrap_or_default();
        let fragment = reference.strip_prefix(own).unwrap_or(reference);
        let found = match fragment.strip_prefix('#') {
            Some("") => Some(self.root),
            Some(pointer) if pointer.starts_with('/') => {
                self.root.pointer(&percent_decode_str(pointer).decode_utf8_lossy())
            }
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
        let anchors = self.anchors.get_or_insert_with(|| {
            let (mut found, mut queue) = (HashMap::new(), vec![root]);
            while let Some(value) = queue.pop() {
                match value {
                    Value::Object(object) => {
                        for keyword in ["$anchor", "$dynamicAnchor"] {
                            if let Some(name) = object.get(keyword).and_then(Value::as_str) {
                                found.insert(name, value);
                            }
                        }
                        queue.extend(object.values());
                    }
                    Value::Array(items) => queue.extend(items),
                    _ => {}
                }
            }
            found
        });
        anchors.get(name).copied()
    }
}

/// Counts what a subschema's own keywords cost: lists that are searched count each of their words.
fn weight(object: &Map<String, Value>) -> u64 {
    let lists = ["enum", "required"].iter().filter_map(|keyword| object.get(*keyword)?.as_array()).map(Vec::len);
    1 + lists.map(|length| length as u64).sum::<u64>()
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
        Graph::read(schema).unwrap_err()
    }

    #[test]
    fn towers_of_alternatives_are_refused() {
        for keyword in ["anyOf", "oneOf", "allOf", "prefixItems"] {
            assert!(tower(keyword, 4, 14).to_string().len() < 3 << 10);
            assert!(refused(&tower(keyword, 4, 14)).contains("unfolds to more than 100000"), "{keyword}");
            assert!(refused(&tower(keyword, 4, 200)).contains("unfolds"), "saturates: {keyword}");
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
            assert!(refused(&schema).contains("refers to itself without a step"), "{schema}");
        }
        assert!(Graph::read(&json!({"properties": {"next": {"$ref": "#"}}})).unwrap().recursive);
    }

    #[test]
    fn references_are_followed_or_refused() {
        for reference in ["#", "#/$defs/a%20b", "#/$defs/a~1b", "#here", "x.json#/$defs/a%20b", "x.json"] {
            let schema = json!({"$id": "x.json", "properties": {"p": {"$ref": reference}},
                "$defs": {"a b": {"type": "string"}, "a/b": true, "c": {"$anchor": "here"}}});
            assert!(Graph::read(&schema).is_ok(), "{reference}");
        }
        assert!(refused(&json!({"$ref": "#/$defs/none"})).contains("\"#/$defs/none\" cannot be followed"));
        assert!(refused(&json!({"$ref": "other.json"})).contains("cannot be followed"));
        assert!(refused(&json!({"properties": {"a": {"$id": "y", "$ref": "#/x"}}})).contains("\"$id\" below its root"));
        assert!(Graph::read(&json!({"properties": {"$id": {"type": "string"}}})).is_ok());
        assert!(Graph::read(&json!({"$ref": "https://json-schema.org/draft/2020-12/schema"})).is_ok());
    }

    #[test]
    fn long_chains_are_refused() {
        let mut defs = Map::new();
        for level in 0..5000 {
            defs.insert(format!("d{level}"), json!({"$ref": format!("#/$defs/d{}", level + 1)}));
        }
        defs.insert("d5000".into(), json!(true));
        assert!(refused(&json!({"$ref": "#/$defs/d0", "$defs": defs})).contains("nested more than 512"));
    }

    #[test]
    fn steps_are_bounded_for_recursive_schemas() {
        let node = json!({"$ref": "#/$defs/n"});
        let alternatives: Vec<Value> = (0..4).map(|_| json!({"properties": {"a": node}})).collect();
        let graph = Graph::read(&json!({"$ref": "#/$defs/n", "$defs": {"n": {"anyOf": alternatives}}})).unwrap();
        let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!({"a": inner}));
        assert!(graph.steps(&nested(3), MAX_STEPS).is_some());
        assert_eq!(graph.steps(&nested(60), MAX_STEPS), None);
        assert!(!graph.is_quick(10));
        let list =
            Graph::read(&json!({"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#"}}]})).unwrap();
        let deep = (0..120).fold(json!("x"), |inner, _| json!([inner]));
        assert!(list.steps(&deep, 10_000).is_some(), "a list of lists is no trouble");
    }

    #[test]
    fn words_and_unevaluated_members_count() {
        let words: Vec<u32> = (0..50_000).collect();
        let graph = Graph::read(&json!({"items": {"enum": words}})).unwrap();
        assert_eq!(graph.steps(&json!(vec![1; 1000]), MAX_STEPS), None);
        let again = |inner: Value| json!({"allOf": [inner], "unevaluatedProperties": false});
        let graph = Graph::read(&(0..5).fold(json!({"type": "object"}), |inner, _| again(inner))).unwrap();
        let members: Map<_, _> = (0..1000).map(|n| (format!("m{n}"), json!(1))).collect();
        assert_eq!(graph.steps(&Value::Object(members), MAX_STEPS), None);
    }
}
