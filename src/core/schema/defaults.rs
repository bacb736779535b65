//! Fills in omitted members: the defaults under `properties`, `items`, `allOf` and local `$ref`.
//!
//! The caller's text is kept digit for digit. What is written is bounded: an element of two bytes
//! may stand for a default of many, again and again.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::Value;
use serde_json::value::RawValue;

use super::graph::Read;
use crate::json::members;

/// Limit of members with a default, over all subschemas.
const MAX_ENTRIES: usize = 100_000;
/// Limit of the bytes that defaults add to a document.
const MAX_ADDED: usize = 8 << 20;
/// Limit of the bytes that are read, beside 16 times the document: each level of nesting is read
/// again.
const MAX_READ: usize = 8 << 20;
/// How deep the default of a member is filled in itself.
const MAX_DEPTH: usize = 8;

/// Defaults of a schema, by subschema. Empty without defaults, so that such a schema costs nothing.
#[derive(Debug, Default)]
pub(super) struct Defaults {
    nodes: HashMap<usize, Node>,
}

/// What one subschema fills in.
#[derive(Debug, Default)]
struct Node {
    /// In the order of names.
    properties: Vec<(String, Property)>,
    /// Those with a default, by their place in `properties`.
    with_default: Vec<usize>,
    items: Option<usize>,
}

#[derive(Debug)]
struct Property {
    /// As JSON text.
    default: Option<String>,
    /// The member's own subschema, if it has defaults inside.
    inner: Option<usize>,
}

/// What filling in may still do, in bytes.
struct Left {
    added: usize,
    read: usize,
}

impl Left {
    fn take(of: &mut usize, bytes: usize) -> Result<(), TooLarge> {
        *of = of.checked_sub(bytes).ok_or(TooLarge)?;
        Ok(())
    }
}

/// The defaults add too much to a document, or it is too deep to fill them in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLarge;

impl std::fmt::Display for TooLarge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let added = MAX_ADDED >> 20;
        write!(
            f,
            "with the defaults of the schema it is more than {added} MiB longer, or it is nested too deep for them; send less at once"
        )
    }
}

impl Defaults {
    /// Collects the defaults of a schema.
    ///
    /// # Errors
    /// That there are too many.
    pub(super) fn collect(root: &Value, read: &Read<'_>) -> Result<Self, String> {
        let mut collector = Collector {
            read,
            has: vec![false; read.graph.nodes.len()],
            entries: 0,
        };
        if !mentions_default(root) {
            return Ok(Self::default());
        }
        collector.find();
        let mut nodes = HashMap::new();
        let mut queue = vec![0];
        while let Some(at) = queue.pop() {
            if !collector.has[at] || nodes.contains_key(&at) {
                continue;
            }
            let mut properties = HashMap::new();
            let items = collector.merge(at, &mut properties)?;
            let mut properties: Vec<(String, Property)> = properties.into_iter().collect();
            properties.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
            queue.extend(properties.iter().filter_map(|(_, property)| property.inner));
            queue.extend(items);
            let with_default = (0..properties.len())
                .filter(|index| properties[*index].1.default.is_some())
                .collect();
            nodes.insert(
                at,
                Node {
                    properties,
                    with_default,
                    items,
                },
            );
        }
        Ok(Self { nodes })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Fills in what a document omits.
    ///
    /// # Errors
    /// That it becomes too large.
    pub(super) fn fill<'a>(&self, text: &'a str) -> Result<Cow<'a, str>, TooLarge> {
        let mut left = Left {
            added: MAX_ADDED,
            read: MAX_READ + 16 * text.len(),
        };
        self.value(0, text, 0, &mut left)
    }

    fn value<'a>(
        &self,
        at: usize,
        text: &'a str,
        depth: usize,
        left: &mut Left,
    ) -> Result<Cow<'a, str>, TooLarge> {
        let Some(node) = self.nodes.get(&at) else {
            return Ok(Cow::Borrowed(text));
        };
        match (text.trim_ascii_start().as_bytes().first(), node.items) {
            (Some(b'{'), _) if !node.properties.is_empty() => self.object(node, text, depth, left),
            (Some(b'['), Some(items)) => self.array(items, text, depth, left),
            _ => Ok(Cow::Borrowed(text)),
        }
    }

    fn object<'a>(
        &self,
        node: &Node,
        text: &'a str,
        depth: usize,
        left: &mut Left,
    ) -> Result<Cow<'a, str>, TooLarge> {
        Left::take(&mut left.read, text.len())?;
        let Some(members) = members(text) else {
            return Ok(Cow::Borrowed(text));
        };
        let mut changed = false;
        let mut there = Vec::new();
        let mut filled: Vec<(Cow<'_, str>, Cow<'_, str>)> = Vec::with_capacity(members.len());
        for (key, value) in &members {
            let value = match node
                .properties
                .binary_search_by(|(name, _)| name.as_str().cmp(key))
            {
                Ok(index) => {
                    there.push(index);
                    match node.properties[index].1.inner {
                        Some(inner) => self.value(inner, value.get(), depth, left)?,
                        None => Cow::Borrowed(value.get()),
                    }
                }
                Err(_) => Cow::Borrowed(value.get()),
            };
            changed |= matches!(value, Cow::Owned(_));
            filled.push((Cow::Borrowed(key), value));
        }
        there.sort_unstable();
        for index in node
            .with_default
            .iter()
            .filter(|index| there.binary_search(index).is_err())
        {
            let (name, property) = &node.properties[*index];
            let Some(default) = &property.default else {
                continue;
            };
            Left::take(&mut left.added, name.len() + default.len() + 4)?;
            let value = match property.inner {
                Some(inner) if depth < MAX_DEPTH => self.value(inner, default, depth + 1, left)?,
                _ => Cow::Borrowed(default.as_str()),
            };
            changed = true;
            filled.push((Cow::Borrowed(name), value));
        }
        Ok(if changed {
            Cow::Owned(write_object(&filled))
        } else {
            Cow::Borrowed(text)
        })
    }

    fn array<'a>(
        &self,
        items: usize,
        text: &'a str,
        depth: usize,
        left: &mut Left,
    ) -> Result<Cow<'a, str>, TooLarge> {
        Left::take(&mut left.read, text.len())?;
        let Ok(elements) = serde_json::from_str::<Vec<&RawValue>>(text) else {
            return Ok(Cow::Borrowed(text));
        };
        let filled: Vec<Cow<'_, str>> = elements
            .iter()
            .map(|element| self.value(items, element.get(), depth, left))
            .collect::<Result<_, _>>()?;
        if filled
            .iter()
            .all(|element| matches!(element, Cow::Borrowed(_)))
        {
            return Ok(Cow::Borrowed(text));
        }
        Ok(Cow::Owned(format!("[{}]", filled.join(","))))
    }
}

/// Returns whether a schema has the keyword somewhere; most have not.
fn mentions_default(value: &Value) -> bool {
    match value {
        Value::Object(members) => {
            members.contains_key("default") || members.values().any(mentions_default)
        }
        Value::Array(items) => items.iter().any(mentions_default),
        _ => false,
    }
}

struct Collector<'a> {
    read: &'a Read<'a>,
    /// Subschemas that have something to fill in.
    has: Vec<bool>,
    entries: usize,
}

impl<'a> Collector<'a> {
    /// Finds the subschemas that have something to fill in: those with a property that has a
    /// default, and those that lead to one.
    fn find(&mut self) {
        let nodes = &self.read.graph.nodes;
        let mut leads: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
        let mut queue = Vec::new();
        for (at, node) in nodes.iter().enumerate() {
            let parts = node.same.iter().flat_map(|same| &same.all);
            let properties = node
                .object
                .iter()
                .flat_map(|object| object.properties.iter().map(|(_, next)| next));
            let items = node.array.iter().flat_map(|array| &array.items);
            parts
                .chain(properties)
                .chain(items)
                .for_each(|next| leads[*next].push(at));
            let mut direct = node.object.iter().flat_map(|object| &object.properties);
            if direct.any(|(_, next)| self.default(*next).is_some()) {
                queue.push(at);
            }
        }
        while let Some(at) = queue.pop() {
            if !std::mem::replace(&mut self.has[at], true) {
                queue.extend(&leads[at]);
            }
        }
    }

    /// Returns the default of a subschema: its own, or that of the one that it refers to.
    fn default(&self, at: usize) -> Option<&'a Value> {
        let mut at = at;
        // References do not go round: the graph refuses that.
        loop {
            let object = self.read.schemas[at].as_object()?;
            if let Some(default) = object.get("default") {
                return Some(default);
            }
            let node = &self.read.graph.nodes[at];
            if !object.contains_key("$ref") || node.metaschema.is_some() {
                return None;
            }
            at = *node.same.as_ref()?.all.first()?;
        }
    }

    /// Returns the subschema that one stands for if it is nothing but a reference.
    fn target(&self, mut at: usize) -> usize {
        loop {
            let node = &self.read.graph.nodes[at];
            match &node.same {
                Some(same)
                    if node.object.is_none() && node.array.is_none() && same.all.len() == 1 =>
                {
                    at = same.all[0]
                }
                _ => return at,
            }
        }
    }

    fn count(&mut self, entries: usize) -> Result<(), String> {
        self.entries += entries;
        if self.entries > MAX_ENTRIES {
            return Err(format!(
                "the schema unfolds to more than {MAX_ENTRIES} members with defaults"
            ));
        }
        Ok(())
    }

    /// Adds what a subschema and its parts fill in; what is nearer wins. Returns the subschema of
    /// the elements.
    fn merge(
        &mut self,
        at: usize,
        out: &mut HashMap<String, Property>,
    ) -> Result<Option<usize>, String> {
        self.count(1)?;
        let read = self.read;
        let node = &read.graph.nodes[at];
        for (name, next) in node.object.iter().flat_map(|object| &object.properties) {
            let inner = Some(self.target(*next)).filter(|next| self.has[*next]);
            let default = self.default(*next);
            if (inner.is_none() && default.is_none()) || out.contains_key(&**name) {
                continue;
            }
            let default = default.map(Value::to_string);
            self.count(1 + default.as_ref().map_or(0, |text| text.len() / 256))?;
            out.insert(name.to_string(), Property { default, inner });
        }
        let items = node.array.as_ref().and_then(|array| array.items);
        let mut items = items
            .map(|next| self.target(next))
            .filter(|next| self.has[*next]);
        for part in node.same.iter().flat_map(|same| &same.all) {
            if self.has[*part] {
                let more = self.merge(*part, out)?;
                items = items.or(more);
            }
        }
        Ok(items)
    }
}

/// Writes an object.
pub(super) fn write_object(members: &[(Cow<'_, str>, Cow<'_, str>)]) -> String {
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
