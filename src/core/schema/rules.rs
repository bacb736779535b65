//! The keywords of one subschema, ready to be checked.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde_json::{Map, Value};

use super::effort::{Effort, Unfinished, reading};
use super::pattern::Pattern;
use super::value::{Numeric, weight};

/// Limit of the automata of all patterns of a schema, in bytes.
const MAX_AUTOMATA: usize = 16 << 20;

/// Limit of the schemas of schemas that are kept.
const MAX_METASCHEMAS: usize = 32;

/// The types of JSON, a bit each.
pub(super) type Types = u8;
pub(super) const NULL: Types = 1;
pub(super) const BOOLEAN: Types = 1 << 1;
pub(super) const INTEGER: Types = 1 << 2;
pub(super) const NUMBER: Types = 1 << 3;
pub(super) const STRING: Types = 1 << 4;
pub(super) const ARRAY: Types = 1 << 5;
pub(super) const OBJECT: Types = 1 << 6;
pub(super) const EVERY: Types = NULL | BOOLEAN | INTEGER | NUMBER | STRING | ARRAY | OBJECT;

const NAMES: [(&str, Types); 7] = [
    ("array", ARRAY),
    ("boolean", BOOLEAN),
    ("integer", INTEGER),
    ("null", NULL),
    ("number", NUMBER | INTEGER),
    ("object", OBJECT),
    ("string", STRING),
];

/// Reads `type`; `None` if it names no type of JSON.
pub(super) fn types(rule: &Value) -> Option<Types> {
    let one = |name: &Value| {
        NAMES
            .iter()
            .find(|(known, _)| name.as_str() == Some(known))
            .map(|(_, bits)| *bits)
    };
    match rule {
        Value::Array(all) => all
            .iter()
            .try_fold(0, |types, name| Some(types | one(name)?)),
        name => one(name),
    }
}

/// Returns the type of a value.
pub(super) fn type_of(value: &Value) -> Types {
    match value {
        Value::Null => NULL,
        Value::Bool(_) => BOOLEAN,
        Value::Number(number)
            if number.is_i64() || number.is_u64() || Numeric::of(number).is_integer() =>
        {
            INTEGER
        }
        Value::Number(_) => NUMBER,
        Value::String(_) => STRING,
        Value::Array(_) => ARRAY,
        Value::Object(_) => OBJECT,
    }
}

/// Returns the names of types, for messages.
pub(super) fn type_names(types: Types) -> impl Iterator<Item = &'static str> {
    NAMES
        .iter()
        .filter(move |(_, bits)| {
            types & bits == *bits && !(*bits == INTEGER && types & NUMBER != 0)
        })
        .map(|(name, _)| *name)
}

/// Reads a limit: a whole number from 0.
pub(super) fn limit(object: &Map<String, Value>, keyword: &str) -> Result<Option<u64>, String> {
    let Some(rule) = object.get(keyword) else {
        return Ok(None);
    };
    let whole = rule.as_number().map(Numeric::of);
    match whole {
        Some(Numeric::Whole(whole)) if whole >= 0 => {
            Ok(Some(u64::try_from(whole).unwrap_or(u64::MAX)))
        }
        Some(Numeric::Float(large)) if large > 0.0 && large.fract() == 0.0 => Ok(Some(u64::MAX)),
        _ => Err(format!("\"{keyword}\" is not a whole number from 0")),
    }
}

/// Reads a list of texts.
pub(super) fn texts(rule: Option<&Value>, keyword: &str) -> Result<Vec<String>, String> {
    let Some(rule) = rule else {
        return Ok(Vec::new());
    };
    let read = || {
        rule.as_array()?
            .iter()
            .map(|text| text.as_str().map(str::to_owned))
            .collect::<Option<_>>()
    };
    read().ok_or_else(|| format!("\"{keyword}\" is not a list of texts"))
}

/// The patterns of one schema: each is read once.
#[derive(Default, Clone)]
pub(super) struct Patterns {
    known: HashMap<String, Arc<Pattern>>,
    automata: usize,
}

impl Patterns {
    /// Returns the size of the automata of all of them, in bytes.
    pub(super) const fn size(&self) -> usize {
        self.automata
    }

    pub(super) fn read(&mut self, source: &str) -> Result<Arc<Pattern>, String> {
        if let Some(known) = self.known.get(source) {
            return Ok(Arc::clone(known));
        }
        let pattern = Arc::new(Pattern::new(source)?);
        self.automata += pattern.size();
        if self.automata > MAX_AUTOMATA {
            return Err(format!(
                "its patterns take more than {} MiB together",
                MAX_AUTOMATA >> 20
            ));
        }
        self.known.insert(source.to_owned(), Arc::clone(&pattern));
        Ok(pattern)
    }
}

/// One keyword that the crate `jsonschema` checks, on values whose work is known before: formats of
/// texts, divisors of numbers, and schemas of schemas.
pub(super) struct Foreign(jsonschema::Validator);

impl Foreign {
    pub(super) fn new(keyword: &str, rule: &Value) -> Result<Self, String> {
        let mut alone = Map::new();
        alone.insert(keyword.to_owned(), rule.clone());
        jsonschema::options()
            .with_draft(jsonschema::Draft::Draft202012)
            .should_validate_formats(true)
            .with_pattern_options(jsonschema::PatternOptions::regex())
            .build(&Value::Object(alone))
            .map(Self)
            .map_err(|error| error.to_string())
    }

    pub(super) fn accepts(&self, value: &Value) -> bool {
        self.0.is_valid(value)
    }
}

/// The schemas of schemas, by their address: all schemas share them, and each is large.
pub(super) fn metaschema(reference: &str) -> Result<Arc<Foreign>, String> {
    static KNOWN: Mutex<BTreeMap<String, Arc<Foreign>>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = known.get(reference) {
        return Ok(Arc::clone(known));
    }
    let made = Arc::new(Foreign::new("$ref", &reference.into())?);
    // There are a few dozen; with fragments there is no end of them.
    if known.len() < MAX_METASCHEMAS {
        known.insert(reference.to_owned(), Arc::clone(&made));
    }
    Ok(made)
}

/// A format of texts. All schemas share them; one is made when it is first needed.
pub(super) struct Format {
    name: &'static str,
    made: OnceLock<Option<Foreign>>,
}

/// The formats that are checked; others are notes.
static FORMATS: [Format; 17] = [
    Format::new("date"),
    Format::new("date-time"),
    Format::new("duration"),
    Format::new("email"),
    Format::new("hostname"),
    Format::new("ipv4"),
    Format::new("ipv6"),
    Format::new("iri"),
    Format::new("iri-reference"),
    Format::new("json-pointer"),
    Format::new("regex"),
    Format::new("relative-json-pointer"),
    Format::new("time"),
    Format::new("uri"),
    Format::new("uri-reference"),
    Format::new("uri-template"),
    Format::new("uuid"),
];

impl Format {
    const fn new(name: &'static str) -> Self {
        Self {
            name,
            made: OnceLock::new(),
        }
    }

    fn find(name: &str) -> Option<&'static Self> {
        FORMATS.iter().find(|format| format.name == name)
    }

    /// Units for a text of this many bytes.
    fn units(&self, bytes: usize) -> u64 {
        if self.name == "regex" {
            regex_units(bytes)
        } else {
            8 + bytes as u64
        }
    }

    fn accepts(&self, value: &Value) -> bool {
        let made = self
            .made
            .get_or_init(|| Foreign::new("format", &self.name.into()).ok());
        made.as_ref().is_none_or(|made| made.accepts(value))
    }
}

/// Keywords about texts.
#[derive(Default)]
pub(super) struct TextRules {
    min: Option<u64>,
    max: Option<u64>,
    pattern: Option<Arc<Pattern>>,
    format: Option<&'static Format>,
}

/// What is wrong with a text.
pub(super) enum TextFault<'a> {
    Short(u64),
    Long(u64),
    Pattern(&'a str),
    Format(&'a str),
}

impl TextRules {
    /// Reads the keywords of a subschema; `None` without any.
    ///
    /// # Errors
    /// Why one of them cannot be used.
    pub(super) fn read(
        object: &Map<String, Value>,
        patterns: &mut Patterns,
    ) -> Result<Option<Self>, String> {
        let text = |keyword: &str| match object.get(keyword) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(format!("\"{keyword}\" is not a text")),
        };
        let rules = Self {
            min: limit(object, "minLength")?,
            max: limit(object, "maxLength")?,
            pattern: text("pattern")?
                .map(|source| patterns.read(source))
                .transpose()?,
            format: text("format")?.and_then(|name| Format::find(name)),
        };
        let none = rules.min.is_none()
            && rules.max.is_none()
            && rules.pattern.is_none()
            && rules.format.is_none();
        Ok((!none).then_some(rules))
    }

    /// Calls `found` with each fault of a text, until it returns `false`.
    ///
    /// `value` is the same text as a value, if there is one.
    pub(super) fn check<'a>(
        &'a self,
        text: &str,
        value: Option<&Value>,
        effort: &mut Effort<'_>,
        mut found: impl FnMut(TextFault<'a>) -> bool,
    ) -> Result<(), Unfinished> {
        if self.min.is_some() || self.max.is_some() {
            effort.spend(reading(text.len()))?;
            let length = text.chars().count() as u64;
            if let Some(min) = self.min.filter(|min| length < *min)
                && !found(TextFault::Short(min))
            {
                return Ok(());
            }
            if let Some(max) = self.max.filter(|max| length > *max)
                && !found(TextFault::Long(max))
            {
                return Ok(());
            }
        }
        if let Some(pattern) = &self.pattern
            && !pattern.is_match(text, effort)?
            && !found(TextFault::Pattern(pattern.source()))
        {
            return Ok(());
        }
        if let Some(format) = self.format {
            effort.spend_piece(format.units(text.len()))?;
            let accepted = match value {
                Some(value) => format.accepts(value),
                None => format.accepts(&Value::String(text.to_owned())),
            };
            if !accepted {
                found(TextFault::Format(format.name));
            }
        }
        Ok(())
    }
}

/// Units for the check of a regular expression, which looks at the names of its groups again and
/// again.
const fn regex_units(bytes: usize) -> u64 {
    let bytes = bytes as u64;
    8 + bytes + bytes.saturating_mul(bytes) / 256
}

/// Returns the units for checking a value by the schema of schemas.
pub(super) fn metaschema_units(value: &Value) -> u64 {
    400 + match value {
        Value::String(text) => regex_units(text.len()),
        Value::Array(items) => items.iter().map(metaschema_units).sum(),
        Value::Object(members) => members
            .iter()
            .map(|(name, member)| regex_units(name.len()) + metaschema_units(member))
            .sum(),
        _ => 0,
    }
}

/// The comparison of a limit of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bound {
    Minimum,
    Maximum,
    ExclusiveMinimum,
    ExclusiveMaximum,
}

const BOUNDS: [(&str, Bound); 4] = [
    ("minimum", Bound::Minimum),
    ("maximum", Bound::Maximum),
    ("exclusiveMinimum", Bound::ExclusiveMinimum),
    ("exclusiveMaximum", Bound::ExclusiveMaximum),
];

/// Keywords about numbers.
#[derive(Default)]
pub(super) struct NumberRules {
    pub(super) bounds: Vec<(Bound, Numeric, Value)>,
    pub(super) multiple_of: Option<(Numeric, Value, Foreign)>,
}

impl NumberRules {
    pub(super) fn read(object: &Map<String, Value>) -> Result<Option<Self>, String> {
        let mut rules = Self::default();
        for (keyword, bound) in BOUNDS {
            let Some(rule) = object.get(keyword) else {
                continue;
            };
            let number = rule
                .as_number()
                .ok_or_else(|| format!("\"{keyword}\" is not a number"))?;
            rules
                .bounds
                .push((bound, Numeric::of(number), rule.clone()));
        }
        if let Some(rule) = object.get("multipleOf") {
            let number = rule.as_number().map(Numeric::of);
            let positive = number.filter(|number| number.compare(Numeric::Whole(0)).is_gt());
            let positive = positive.ok_or("\"multipleOf\" is not a number above 0")?;
            rules.multiple_of = Some((positive, rule.clone(), Foreign::new("multipleOf", rule)?));
        }
        let none = rules.bounds.is_empty() && rules.multiple_of.is_none();
        Ok((!none).then_some(rules))
    }
}

impl Bound {
    pub(super) fn accepts(self, number: Numeric, limit: Numeric) -> bool {
        let order = number.compare(limit);
        match self {
            Self::Minimum => order.is_ge(),
            Self::Maximum => order.is_le(),
            Self::ExclusiveMinimum => order.is_gt(),
            Self::ExclusiveMaximum => order.is_lt(),
        }
    }
}

/// The values of `enum` or `const`.
pub(super) struct Choice {
    pub(super) all: Vec<Value>,
    /// The texts among them; a search in a few is faster than a table.
    texts: HashSet<String>,
    others: u64,
}

/// Values that are compared one by one.
const FEW: usize = 8;

impl Choice {
    pub(super) fn new(all: Vec<Value>) -> Self {
        let texts = all.iter().filter_map(Value::as_str).map(str::to_owned);
        let texts = if all.len() > FEW {
            texts.collect()
        } else {
            HashSet::new()
        };
        let others = all
            .iter()
            .filter(|value| texts.is_empty() || !value.is_string())
            .map(weight)
            .sum();
        Self { all, texts, others }
    }

    pub(super) fn accepts(
        &self,
        value: &Value,
        effort: &mut Effort<'_>,
    ) -> Result<bool, Unfinished> {
        if let Some(text) = value.as_str() {
            if !self.texts.is_empty() {
                effort.spend(reading(text.len() * 4))?;
                return Ok(self.texts.contains(text));
            }
            effort.spend(self.all.len() as u64 + reading(text.len()))?;
            return Ok(self.all.iter().any(|known| known.as_str() == Some(text)));
        }
        effort.spend(self.others)?;
        Ok(self
            .all
            .iter()
            .any(|known| super::value::equal(known, value)))
    }
}
