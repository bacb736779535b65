//! Check of a JSON text while it is parsed, without building its value.
//!
//! It knows the part of JSON Schema that most outputs are described with: types, properties, items,
//! limits of numbers and lists, lists of texts, rules for texts, and references into `$defs`. It
//! only ever says that a text is valid. What it refuses, and every schema with something else in
//! it, is for the evaluator, which also says why.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::effort::Effort;
use super::rules::{
    ARRAY, BOOLEAN, EVERY, INTEGER, NULL, NUMBER, OBJECT, Patterns, STRING, TextRules, Types, types,
};

/// Limit of nodes: a schema whose references unfold to more is for the evaluator.
const MAX_NODES: usize = 4096;
/// Limit of nested nodes.
const MAX_DEPTH: usize = 64;
/// Limit of the properties of one object: a bit each.
const MAX_MEMBERS: usize = 64;
/// Limit of the texts of one `enum`.
const MAX_TEXTS: usize = 64;

/// Keywords that say nothing about a document.
const NOTES: [&str; 12] = [
    "contentMediaType",
    "$comment",
    "$defs",
    "$schema",
    "definitions",
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
];
/// Keywords about texts alone.
const OF_TEXTS: [&str; 4] = ["pattern", "format", "minLength", "maxLength"];

/// A schema for this check.
pub(super) struct Stream(Node);

/// What is known of the values at one place.
enum Node {
    /// Accepts everything.
    Any,
    Ruled(Box<Rules>),
}

struct Rules {
    types: Types,
    /// The texts that are accepted.
    texts: Option<Vec<String>>,
    /// Rules for texts.
    text: Option<TextRules>,
    minimum: Option<i64>,
    maximum: Option<i64>,
    items: Node,
    min_items: usize,
    max_items: usize,
    members: Vec<(String, Node)>,
    /// The members that must be there, a bit each.
    required: u64,
    /// Members that are not named; `None` = there may be none.
    others: Option<Node>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            types: EVERY,
            texts: None,
            text: None,
            minimum: None,
            maximum: None,
            items: Node::Any,
            min_items: 0,
            max_items: usize::MAX,
            members: Vec::new(),
            required: 0,
            others: Some(Node::Any),
        }
    }
}

impl Stream {
    /// Reads a schema; `None` if it is for the evaluator.
    ///
    /// `patterns` are those that were read already.
    pub(super) fn read(source: &Value, patterns: Patterns) -> Option<Self> {
        let mut reader = Reader {
            root: source,
            nodes: 0,
            patterns,
        };
        reader.node(source, 0).map(Self)
    }

    /// Returns whether a text is JSON and valid. `false` says nothing.
    pub(super) fn accepts(&self, text: &[u8]) -> bool {
        let mut deserializer = serde_json::Deserializer::from_slice(text);
        let effort = RefCell::new(Effort::light());
        let check = Check {
            node: &self.0,
            effort: &effort,
        };
        check
            .deserialize(&mut deserializer)
            .and_then(|()| deserializer.end())
            .is_ok()
    }
}

struct Reader<'a> {
    root: &'a Value,
    nodes: usize,
    patterns: Patterns,
}

impl Reader<'_> {
    fn node(&mut self, schema: &Value, depth: usize) -> Option<Node> {
        self.nodes += 1;
        if self.nodes > MAX_NODES || depth > MAX_DEPTH {
            return None;
        }
        match schema {
            Value::Bool(true) => Some(Node::Any),
            Value::Object(object) => self.object(object, depth),
            _ => None,
        }
    }

    fn object(&mut self, object: &Map<String, Value>, depth: usize) -> Option<Node> {
        let rules = || {
            object
                .iter()
                .filter(|(keyword, _)| !NOTES.contains(&keyword.as_str()))
        };
        if let Some(reference) = object.get("$ref") {
            // With rules beside it, all of them hold.
            let alone = rules().count() == 1;
            // One with escapes is for the evaluator.
            let pointer = reference
                .as_str()?
                .strip_prefix('#')
                .filter(|pointer| !pointer.contains('%'))?;
            let target = self.root.pointer(pointer)?;
            return if alone {
                self.node(target, depth + 1)
            } else {
                None
            };
        }
        if rules().next().is_none() {
            return Some(Node::Any);
        }
        let mut read = Rules::default();
        for (keyword, rule) in rules() {
            match keyword.as_str() {
                "type" => read.types = types(rule)?,
                "enum" => {
                    let texts = rule
                        .as_array()?
                        .iter()
                        .map(|text| text.as_str().map(str::to_owned));
                    read.texts = Some(texts.collect::<Option<_>>()?)
                        .filter(|texts: &Vec<_>| texts.len() <= MAX_TEXTS);
                    read.texts.as_ref()?;
                }
                "minimum" => read.minimum = Some(rule.as_i64()?),
                "maximum" => read.maximum = Some(rule.as_i64()?),
                "items" => read.items = self.node(rule, depth + 1)?,
                "minItems" => read.min_items = usize::try_from(rule.as_u64()?).ok()?,
                "maxItems" => read.max_items = usize::try_from(rule.as_u64()?).ok()?,
                "properties" => {
                    for (name, schema) in rule.as_object()? {
                        read.members
                            .push((name.clone(), self.node(schema, depth + 1)?));
                    }
                }
                "additionalProperties" => {
                    read.others = if *rule == Value::Bool(false) {
                        None
                    } else {
                        Some(self.node(rule, depth + 1)?)
                    };
                }
                // Needs the properties.
                "required" => {}
                text if OF_TEXTS.contains(&text) => {}
                _ => return None,
            }
        }
        for name in object
            .get("required")
            .map(Value::as_array)
            .unwrap_or_default()
            .into_iter()
            .flatten()
        {
            let name = name.as_str()?;
            let known = read.members.iter().position(|(known, _)| known == name);
            let at = match (known, &read.others) {
                (Some(at), _) => at,
                (None, Some(Node::Any)) => {
                    read.members.push((name.to_owned(), Node::Any));
                    read.members.len() - 1
                }
                (None, _) => return None,
            };
            read.required |= 1_u64.checked_shl(u32::try_from(at).ok()?)?;
        }
        if read.members.len() > MAX_MEMBERS {
            return None;
        }
        if read.texts.is_some() {
            read.types &= STRING;
        }
        read.text = TextRules::read(object, &mut self.patterns).ok()?;
        Some(Node::Ruled(Box::new(read)))
    }
}

/// A value at one place.
#[derive(Clone, Copy)]
struct Check<'a> {
    node: &'a Node,
    /// For the rules of texts, the only work beside that of the parser.
    effort: &'a RefCell<Effort<'static>>,
}

impl<'a> Check<'a> {
    /// The same check for a value inside.
    const fn at(self, node: &'a Node) -> Self {
        Self {
            node,
            effort: self.effort,
        }
    }

    /// Returns the rules if values of this type are accepted; `None` = there are none.
    fn rules<E: Error>(self, of: Types) -> Result<Option<&'a Rules>, E> {
        match self.node {
            Node::Any => Ok(None),
            Node::Ruled(rules) if rules.types & of != 0 => Ok(Some(rules)),
            Node::Ruled(_) => Err(unknown()),
        }
    }

    fn integer<E: Error>(self, number: i128) -> Result<(), E> {
        let Some(rules) = self.rules(INTEGER)? else {
            return Ok(());
        };
        let small = rules
            .minimum
            .is_some_and(|minimum| number < i128::from(minimum));
        let large = rules
            .maximum
            .is_some_and(|maximum| number > i128::from(maximum));
        if small || large {
            Err(unknown())
        } else {
            Ok(())
        }
    }
}

/// The text may be invalid, which the evaluator finds out.
fn unknown<E: Error>() -> E {
    E::custom("not known to be valid")
}

impl<'de> DeserializeSeed<'de> for Check<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Check<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.rules(NULL).map(drop)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.rules(BOOLEAN).map(drop)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        self.integer(number.into())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        self.integer(number.into())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        match self.rules::<E>(NUMBER)? {
            Some(rules) if rules.minimum.is_some() || rules.maximum.is_some() => Err(unknown()),
            _ => Ok(()),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        let Some(rules) = self.rules(STRING)? else {
            return Ok(());
        };
        if rules
            .texts
            .as_ref()
            .is_some_and(|texts| !texts.iter().any(|known| known == text))
        {
            return Err(unknown());
        }
        let Some(rules) = &rules.text else {
            return Ok(());
        };
        let mut fits = true;
        let checked = rules.check(text, None, &mut self.effort.borrow_mut(), |_| {
            fits = false;
            false
        });
        if fits && checked.is_ok() {
            Ok(())
        } else {
            Err(unknown())
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let rules = self.rules(ARRAY)?;
        let item = self.at(rules.map_or(&Node::Any, |rules| &rules.items));
        let mut count = 0;
        while items.next_element_seed(item)?.is_some() {
            count += 1;
        }
        match rules {
            Some(rules) if count < rules.min_items || count > rules.max_items => Err(unknown()),
            _ => Ok(()),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let Some(rules) = self.rules(OBJECT)? else {
            while members
                .next_key_seed(Name {
                    members: &[],
                    next: 0,
                })?
                .is_some()
            {
                members.next_value_seed(self.at(&Node::Any))?;
            }
            return Ok(());
        };
        let (mut seen, mut next) = (0_u64, 0);
        while let Some(at) = members.next_key_seed(Name {
            members: &rules.members,
            next,
        })? {
            let node = match at {
                Some(at) => {
                    seen |= 1 << at;
                    next = at + 1;
                    &rules.members[at].1
                }
                None => rules.others.as_ref().ok_or_else(unknown)?,
            };
            members.next_value_seed(self.at(node))?;
        }
        if seen & rules.required == rules.required {
            Ok(())
        } else {
            Err(unknown())
        }
    }
}

/// The name of a member; becomes its place among those that are known.
struct Name<'a> {
    members: &'a [(String, Node)],
    /// Where the name is expected, since most programs write members in the order of the schema.
    next: usize,
}

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = Option<usize>;

    fn deserialize<D: serde::Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a member")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        let (before, after) = self.members.split_at(self.next.min(self.members.len()));
        let found = after
            .iter()
            .position(|(known, _)| known == name)
            .map(|at| at + before.len());
        Ok(found.or_else(|| before.iter().position(|(known, _)| known == name)))
    }
}
