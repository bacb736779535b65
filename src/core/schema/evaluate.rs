//! Checks a document by a schema that was read.
//!
//! One walk over both: each keyword pays ([`Effort`]) before it works. Without a list for
//! violations the walk ends at the first one; with a list it goes on until the list is full.

use serde_json::{Map, Number, Value};

use super::MAX_VIOLATIONS;
use super::effort::{Effort, Unfinished, reading};
use super::graph::{ArrayRules, Graph, Node, ObjectRules, SameRules, pointer_step, shown};
use super::rules::{
    Bound, EVERY, NumberRules, TextFault, TextRules, metaschema_units, type_names, type_of,
};
use super::value::{Numeric, are_unique};
use crate::error::Violation;
use crate::suggest;

/// Limit of known members that an unknown one is compared with.
const MAX_KNOWN: usize = 500;

/// Limit of the pointer to a violation, in bytes: the names come from the document.
const MAX_POINTER: usize = 1 << 10;

/// Whether a value fits, or why that is not known.
type Fits = Result<bool, Unfinished>;

/// A check of one document.
pub(super) struct Evaluation<'a, 'e> {
    graph: &'a Graph,
    effort: &'a mut Effort<'e>,
    depth: usize,
    /// What is wrong, if somebody wants to know.
    violations: Option<Vec<Violation>>,
}

/// The place of a value in the document.
#[derive(Clone, Copy)]
enum Place<'p> {
    Root,
    Member(&'p Self, &'p str),
    Element(&'p Self, usize),
}

impl Place<'_> {
    /// Returns the place as a JSON pointer. Of a very long one, the end.
    fn pointer(&self) -> String {
        let (mut steps, mut length, mut at) = (Vec::new(), 0, *self);
        loop {
            let (up, step) = match at {
                Self::Root => break,
                Self::Member(up, name) => (
                    up,
                    pointer_step(&name[..name.floor_char_boundary(MAX_POINTER)]),
                ),
                Self::Element(up, index) => (up, index.to_string()),
            };
            length += step.len();
            if length > MAX_POINTER {
                steps.push("...".to_owned());
                break;
            }
            steps.push(step);
            at = *up;
        }
        steps.iter().rev().flat_map(|step| ["/", step]).collect()
    }
}

/// Members or elements that some keyword has looked at, by their position: for `unevaluated*`.
struct Seen {
    all: bool,
    marks: Vec<bool>,
}

impl Seen {
    fn none() -> Self {
        Self {
            all: false,
            marks: Vec::new(),
        }
    }

    fn mark(&mut self, at: usize) {
        if self.marks.len() <= at {
            self.marks.resize(at + 1, false);
        }
        self.marks[at] = true;
    }

    fn has(&self, at: usize) -> bool {
        self.all || self.marks.get(at).copied().unwrap_or(false)
    }

    fn add(&mut self, other: &Self) {
        self.all |= other.all;
        if self.marks.len() < other.marks.len() {
            self.marks.resize(other.marks.len(), false);
        }
        for (mark, other) in self.marks.iter_mut().zip(&other.marks) {
            *mark |= other;
        }
    }
}

impl<'a, 'e> Evaluation<'a, 'e> {
    /// Returns whether a document fits the subschema at a place of the graph.
    pub(super) fn fits(
        graph: &'a Graph,
        at: usize,
        document: &Value,
        effort: &'a mut Effort<'e>,
    ) -> Fits {
        let mut evaluation = Self {
            graph,
            effort,
            depth: 0,
            violations: None,
        };
        evaluation.check(at, document, &Place::Root, None)
    }

    /// Returns what is wrong with a document: the first violations.
    pub(super) fn violations(
        graph: &'a Graph,
        document: &Value,
        effort: &'a mut Effort<'e>,
    ) -> Result<Vec<Violation>, Unfinished> {
        let mut evaluation = Self {
            graph,
            effort,
            depth: 0,
            violations: Some(Vec::new()),
        };
        evaluation.check(0, document, &Place::Root, None)?;
        Ok(evaluation.violations.unwrap_or_default())
    }

    /// Notes a violation and returns whether the walk goes on.
    fn report(&mut self, place: &Place<'_>, detail: impl FnOnce() -> String) -> bool {
        note(&mut self.violations, place, detail)
    }

    /// Whether the walk goes on after a violation that was noted further in.
    fn continues(&self) -> bool {
        self.violations
            .as_ref()
            .is_some_and(|violations| violations.len() < MAX_VIOLATIONS)
    }

    /// As [`Self::check`], without noting violations: for alternatives.
    fn probe(
        &mut self,
        at: usize,
        value: &Value,
        place: &Place<'_>,
        seen: Option<&mut Seen>,
    ) -> Fits {
        let violations = self.violations.take();
        let fits = self.check(at, value, place, seen);
        self.violations = violations;
        fits
    }

    fn check(
        &mut self,
        at: usize,
        value: &Value,
        place: &Place<'_>,
        seen: Option<&mut Seen>,
    ) -> Fits {
        self.effort.spend(2)?;
        if self.depth >= self.effort.depth {
            return Err(Unfinished::TooMuch);
        }
        let graph = self.graph;
        let node = &graph.nodes[at];
        self.depth += 1;
        let fits = if node.simple {
            self.simple(node, value, place, seen)
        } else {
            self.node(node, value, place, seen)
        };
        self.depth -= 1;
        fits
    }

    /// Checks the type, and the rules of the type.
    #[inline]
    fn simple(
        &mut self,
        node: &'a Node,
        value: &Value,
        place: &Place<'_>,
        seen: Option<&mut Seen>,
    ) -> Fits {
        let mut fits = true;
        if node.types != EVERY && type_of(value) & node.types == 0 {
            fits = false;
            if !self.report(place, || wrong_type(node)) {
                return Ok(false);
            }
        }
        let ruled = match (value, &node.text, &node.number, &node.array, &node.object) {
            (Value::String(text), Some(rules), ..) => self.text(rules, text, value, place)?,
            (Value::Number(number), _, Some(rules), ..) => {
                self.number(rules, number, value, place)?
            }
            (Value::Array(items), _, _, Some(rules), _) => self.array(rules, items, place, seen)?,
            (Value::Object(members), .., Some(rules)) => {
                self.object(rules, members, place, seen)?
            }
            _ => true,
        };
        Ok(fits && ruled)
    }

    fn node(
        &mut self,
        node: &'a Node,
        value: &Value,
        place: &Place<'_>,
        mut outer: Option<&mut Seen>,
    ) -> Fits {
        if node.never {
            self.report(place, || "False schema does not allow the value".to_owned());
            return Ok(false);
        }
        let mut own = Seen::none();
        let unevaluated = match value {
            Value::Array(_) => node.array.as_ref().and_then(|rules| rules.unevaluated),
            Value::Object(_) => node.object.as_ref().and_then(|rules| rules.unevaluated),
            _ => None,
        };
        let mut seen = if unevaluated.is_some() {
            Some(&mut own)
        } else {
            outer.as_deref_mut()
        };
        let ended = |this: &Self, fits: bool| !fits && !this.continues();
        let mut fits = self.simple(node, value, place, seen.as_deref_mut())?;
        if ended(self, fits) {
            return Ok(false);
        }
        if let Some(constant) = &node.constant
            && !constant.accepts(value, self.effort)?
        {
            fits = false;
            if !self.report(place, || {
                format!("{} was expected", shown(&constant.all[0]))
            }) {
                return Ok(false);
            }
        }
        if let Some(choice) = &node.choice
            && !choice.accepts(value, self.effort)?
        {
            fits = false;
            if !self.report(place, || not_one_of(&choice.all)) {
                return Ok(false);
            }
        }
        if let Some(rules) = &node.same {
            fits &= self.same(rules, value, place, seen)?;
            if ended(self, fits) {
                return Ok(false);
            }
        }
        if let Some(metaschema) = &node.metaschema {
            self.effort.spend_piece(metaschema_units(value))?;
            if !metaschema.accepts(value) {
                fits = false;
                if !self.report(place, || "the value is not a JSON Schema".to_owned()) {
                    return Ok(false);
                }
            }
        }
        if let Some(unevaluated) = unevaluated {
            fits &= self.unevaluated(unevaluated, value, place, &own)?;
            if let Some(outer) = outer {
                outer.all = true;
            }
        }
        Ok(fits)
    }

    fn text(&mut self, rules: &'a TextRules, text: &str, value: &Value, place: &Place<'_>) -> Fits {
        let (violations, mut fits) = (&mut self.violations, true);
        rules.check(text, Some(value), self.effort, |fault| {
            fits = false;
            note(violations, place, || wrong_text(&fault))
        })?;
        Ok(fits)
    }

    fn number(
        &mut self,
        rules: &NumberRules,
        number: &Number,
        value: &Value,
        place: &Place<'_>,
    ) -> Fits {
        let (number, mut fits) = (Numeric::of(number), true);
        for (bound, limit, written) in &rules.bounds {
            if !bound.accepts(number, *limit) {
                fits = false;
                if !self.report(place, || wrong_number(*bound, written)) {
                    return Ok(false);
                }
            }
        }
        if let Some((divisor, written, foreign)) = &rules.multiple_of {
            let multiple = match (number, divisor) {
                (Numeric::Whole(number), Numeric::Whole(divisor)) if *divisor != 0 => {
                    number % divisor == 0
                }
                _ => {
                    self.effort.spend_piece(500)?;
                    foreign.accepts(value)
                }
            };
            if !multiple {
                fits = false;
                self.report(place, || {
                    format!("the value is not a multiple of {written}")
                });
            }
        }
        Ok(fits)
    }

    fn array(
        &mut self,
        rules: &ArrayRules,
        items: &[Value],
        place: &Place<'_>,
        mut seen: Option<&mut Seen>,
    ) -> Fits {
        let (mut fits, count) = (true, items.len() as u64);
        if let Some(min) = rules.min.filter(|min| count < *min) {
            fits = false;
            if !self.report(place, || {
                format!("the value has less than {min} item{}", many(min))
            }) {
                return Ok(false);
            }
        }
        if let Some(max) = rules.max.filter(|max| count > *max) {
            fits = false;
            if !self.report(place, || {
                format!("the value has more than {max} item{}", many(max))
            }) {
                return Ok(false);
            }
        }
        if rules.unique && !are_unique(items, self.effort)? {
            fits = false;
            if !self.report(place, || "the value has non-unique elements".to_owned()) {
                return Ok(false);
            }
        }
        if !rules.prefix.is_empty() || rules.items.is_some() {
            for (at, item) in items.iter().enumerate() {
                let Some(rule) = rules.prefix.get(at).copied().or(rules.items) else {
                    break;
                };
                if let Some(seen) = &mut seen {
                    seen.mark(at);
                }
                if !self.check(rule, item, &Place::Element(place, at), None)? {
                    fits = false;
                    if !self.continues() {
                        return Ok(false);
                    }
                }
            }
        }
        if let Some(rule) = rules.contains {
            fits &= self.contains(rules, rule, items, place, seen)?;
        }
        Ok(fits)
    }

    fn contains(
        &mut self,
        rules: &ArrayRules,
        rule: usize,
        items: &[Value],
        place: &Place<'_>,
        mut seen: Option<&mut Seen>,
    ) -> Fits {
        let (min, mut found) = (rules.min_contains.unwrap_or(1), 0_u64);
        for (at, item) in items.iter().enumerate() {
            if seen.is_none() && rules.max_contains.is_none() && found >= min {
                break;
            }
            if self.probe(rule, item, &Place::Element(place, at), None)? {
                found += 1;
                if let Some(seen) = &mut seen {
                    seen.mark(at);
                }
                if rules.max_contains.is_some_and(|max| found > max) {
                    self.report(place, || {
                        "more of the value are valid under the given schema than allowed".to_owned()
                    });
                    return Ok(false);
                }
            }
        }
        if found < min {
            self.report(place, || match min {
                1 => "None of the value are valid under the given schema".to_owned(),
                _ => format!("less than {min} of the value are valid under the given schema"),
            });
        }
        Ok(found >= min)
    }

    fn object(
        &mut self,
        rules: &'a ObjectRules,
        members: &Map<String, Value>,
        place: &Place<'_>,
        mut seen: Option<&mut Seen>,
    ) -> Fits {
        let mut fits = self.members(rules, members, place)?;
        if !fits && !self.continues() {
            return Ok(false);
        }
        let few = rules.patterns.is_empty()
            && rules.additional.is_none()
            && rules.names.is_none()
            && seen.is_none();
        // Violations are reported in the order of the members.
        if few && self.violations.is_none() && rules.properties.len() <= members.len() {
            self.effort.spend(rules.name_units)?;
            for (name, rule) in &rules.properties {
                let Some(member) = members.get(&**name) else {
                    continue;
                };
                if !self.check(*rule, member, &Place::Member(place, name), None)? {
                    fits = false;
                    if !self.continues() {
                        return Ok(false);
                    }
                }
            }
            return Ok(fits);
        }
        let mut unknown = Unknown::default();
        for (at, (name, member)) in members.iter().enumerate() {
            self.effort.spend(reading(name.len()))?;
            let here = Place::Member(place, name);
            if let Some(rule) = rules.names {
                fits &= self.name(rule, name, place)?;
            }
            let mut known = false;
            if let Some(rule) = rules.property(name) {
                known = true;
                fits &= self.check(rule, member, &here, None)?;
            }
            for (pattern, rule) in &rules.patterns {
                if pattern.is_match(name, self.effort)? {
                    known = true;
                    fits &= self.check(*rule, member, &here, None)?;
                }
            }
            if !known && let Some(rule) = rules.additional {
                known = true;
                if self.graph.nodes[rule].never {
                    fits = false;
                    unknown.add(name);
                } else {
                    fits &= self.check(rule, member, &here, None)?;
                }
            }
            if let Some(seen) = seen.as_mut().filter(|_| known) {
                seen.mark(at);
            }
            if !fits && !self.continues() {
                return Ok(false);
            }
        }
        if unknown.count > 0 {
            self.unknown(rules, &unknown, place)?;
        }
        Ok(fits)
    }

    /// Checks the name of a member.
    fn name(&mut self, rule: usize, name: &str, place: &Place<'_>) -> Fits {
        let value = Value::from(name);
        let violations = self.violations.take();
        self.violations = violations.is_some().then(Vec::new);
        let fits = self.check(rule, &value, &Place::Root, None);
        let why = std::mem::replace(&mut self.violations, violations)
            .into_iter()
            .flatten()
            .next();
        let fits = fits?;
        if !fits {
            let why = why.map(|why| why.detail).unwrap_or_default();
            self.report(place, || {
                format!("the name {} does not fit: {why}", shown(&value))
            });
        }
        Ok(fits)
    }

    /// Checks which members there are, and how many.
    fn members(
        &mut self,
        rules: &'a ObjectRules,
        members: &Map<String, Value>,
        place: &Place<'_>,
    ) -> Fits {
        let (mut fits, count) = (true, members.len() as u64);
        if let Some(min) = rules.min.filter(|min| count < *min) {
            fits = false;
            if !self.report(place, || {
                format!("the value has less than {min} propert{}", ies(min))
            }) {
                return Ok(false);
            }
        }
        if let Some(max) = rules.max.filter(|max| count > *max) {
            fits = false;
            if !self.report(place, || {
                format!("the value has more than {max} propert{}", ies(max))
            }) {
                return Ok(false);
            }
        }
        if rules.required.is_empty() && rules.dependent.is_empty() {
            return Ok(fits);
        }
        self.effort.spend(rules.needed_units)?;
        let needed = rules
            .dependent
            .iter()
            .filter(|(name, _)| members.contains_key(name))
            .flat_map(|(_, all)| all);
        for name in rules.required.iter().chain(needed) {
            self.effort.spend(reading(name.len()))?;
            if !members.contains_key(name) {
                fits = false;
                if !self.report(place, || {
                    format!("{} is missing", shown(&Value::from(name.as_str())))
                }) {
                    return Ok(false);
                }
            }
        }
        Ok(fits)
    }

    /// Tells which members an object does not know.
    fn unknown(
        &mut self,
        rules: &ObjectRules,
        unknown: &Unknown,
        place: &Place<'_>,
    ) -> Result<(), Unfinished> {
        if self.violations.is_none() {
            return Ok(());
        }
        let mut known: Vec<&str> = rules
            .properties
            .iter()
            .take(MAX_KNOWN)
            .map(|(name, _)| &**name)
            .collect();
        match self.effort.spend(suggest::units(&unknown.names, &known)) {
            // That it does not fit is known already: it is reported without a suggestion.
            Err(Unfinished::TooMuch) => known.clear(),
            other => other?,
        }
        self.report(place, || {
            suggest::unknown(&unknown.names, unknown.count, &known)
        });
        Ok(())
    }

    fn same(
        &mut self,
        rules: &SameRules,
        value: &Value,
        place: &Place<'_>,
        mut seen: Option<&mut Seen>,
    ) -> Fits {
        let mut fits = true;
        for at in &rules.all {
            if !self.check(*at, value, place, seen.as_deref_mut())? {
                fits = false;
                if !self.continues() {
                    return Ok(false);
                }
            }
        }
        if let Some((at, text)) = &rules.not
            && self.probe(*at, value, place, None)?
        {
            fits = false;
            if !self.report(place, || format!("{text} is not allowed for the value")) {
                return Ok(false);
            }
        }
        if let Some(any) = &rules.any
            && self.alternatives(any, value, place, seen.as_deref_mut(), usize::MAX)? == 0
        {
            fits = false;
            let message = || {
                "the value is not valid under any of the schemas listed in the 'anyOf' keyword"
                    .to_owned()
            };
            if !self.report(place, message) {
                return Ok(false);
            }
        }
        if let Some(one) = &rules.one {
            let found = self.alternatives(one, value, place, seen.as_deref_mut(), 2)?;
            if found != 1 {
                fits = false;
                let how = if found == 0 {
                    "not valid under any"
                } else {
                    "valid under more than one"
                };
                let message =
                    || format!("the value is {how} of the schemas listed in the 'oneOf' keyword");
                if !self.report(place, message) {
                    return Ok(false);
                }
            }
        }
        if let Some(condition) = rules.condition {
            let mut inner = seen.is_some().then(Seen::none);
            let branch = if self.probe(condition, value, place, inner.as_mut())? {
                self.add(seen.as_deref_mut(), inner.as_ref())?;
                rules.then
            } else {
                rules.otherwise
            };
            if let Some(branch) = branch {
                fits &= self.check(branch, value, place, seen.as_deref_mut())?;
                if !fits && !self.continues() {
                    return Ok(false);
                }
            }
        }
        if let Value::Object(members) = value {
            self.effort.spend(rules.dependent_units)?;
            for (_, at) in rules
                .dependent
                .iter()
                .filter(|(name, _)| members.contains_key(name))
            {
                if !self.check(*at, value, place, seen.as_deref_mut())? {
                    fits = false;
                    if !self.continues() {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(fits)
    }

    /// Counts the alternatives that a value fits: all if somebody has to know what they looked at,
    /// else up to the first, or to `enough`.
    fn alternatives(
        &mut self,
        all: &[usize],
        value: &Value,
        place: &Place<'_>,
        mut seen: Option<&mut Seen>,
        enough: usize,
    ) -> Result<usize, Unfinished> {
        let mut found = 0;
        for at in all {
            let mut inner = seen.is_some().then(Seen::none);
            if self.probe(*at, value, place, inner.as_mut())? {
                found += 1;
                self.add(seen.as_deref_mut(), inner.as_ref())?;
                let first = seen.is_none() && enough == usize::MAX;
                if first || found >= enough {
                    break;
                }
            }
        }
        Ok(found)
    }

    fn add(&mut self, seen: Option<&mut Seen>, inner: Option<&Seen>) -> Result<(), Unfinished> {
        if let (Some(seen), Some(inner)) = (seen, inner) {
            self.effort.spend(reading(inner.marks.len()))?;
            seen.add(inner);
        }
        Ok(())
    }

    /// Checks the members or elements that no other keyword has looked at.
    fn unevaluated(&mut self, rule: usize, value: &Value, place: &Place<'_>, seen: &Seen) -> Fits {
        let never = self.graph.nodes[rule].never;
        let mut fits = true;
        match value {
            Value::Array(items) => {
                self.effort.spend(reading(8 * items.len()))?;
                let mut count = 0;
                for (at, item) in items.iter().enumerate().filter(|(at, _)| !seen.has(*at)) {
                    if never {
                        fits &= self.violations.is_some();
                        count += 1;
                    } else {
                        fits &= self.check(rule, item, &Place::Element(place, at), None)?;
                    }
                    if !fits && !self.continues() {
                        return Ok(false);
                    }
                }
                if count > 0 {
                    fits = false;
                    self.report(place, || {
                        format!(
                            "Unevaluated items are not allowed ({count} item{})",
                            many(count)
                        )
                    });
                }
            }
            Value::Object(members) => {
                self.effort.spend(reading(64 * members.len()))?;
                let mut unknown = Unknown::default();
                for (_, (name, member)) in
                    members.iter().enumerate().filter(|(at, _)| !seen.has(*at))
                {
                    if never {
                        fits &= self.violations.is_some();
                        unknown.add(name);
                    } else {
                        fits &= self.check(rule, member, &Place::Member(place, name), None)?;
                    }
                    if !fits && !self.continues() {
                        return Ok(false);
                    }
                }
                if unknown.count > 0 {
                    fits = false;
                    self.report(place, || {
                        suggest::unknown(&unknown.names, unknown.count, &[])
                    });
                }
            }
            _ => {}
        }
        Ok(fits)
    }
}

/// Notes a violation, if there is a list for them. Returns whether it has room for more.
fn note(
    violations: &mut Option<Vec<Violation>>,
    place: &Place<'_>,
    detail: impl FnOnce() -> String,
) -> bool {
    let Some(violations) = violations else {
        return false;
    };
    if violations.len() < MAX_VIOLATIONS {
        violations.push(Violation {
            pointer: place.pointer(),
            detail: detail(),
        });
    }
    violations.len() < MAX_VIOLATIONS
}

/// Members that an object does not know.
#[derive(Default)]
struct Unknown {
    /// The first ones.
    names: Vec<String>,
    count: usize,
}

impl Unknown {
    fn add(&mut self, name: &str) {
        self.count += 1;
        if self.names.len() < suggest::NAMED {
            self.names.push(name.to_owned());
        }
    }
}

fn many(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

fn ies(count: u64) -> &'static str {
    if count == 1 { "y" } else { "ies" }
}

fn wrong_type(node: &Node) -> String {
    let names: Vec<String> = type_names(node.types)
        .map(|name| format!("\"{name}\""))
        .collect();
    match names.as_slice() {
        [one] => format!("the value is not of type {one}"),
        all => format!("the value is not of types {}", all.join(", ")),
    }
}

fn not_one_of(all: &[Value]) -> String {
    const NAMED: usize = 3;
    let texts: Vec<String> = all.iter().take(NAMED).map(shown).collect();
    let (last, first) = match texts.split_last() {
        Some(split) if all.len() <= NAMED => (split.0.clone(), split.1),
        Some(_) => (
            format!("{} other candidates", all.len() - (NAMED - 1)),
            &texts[..NAMED - 1],
        ),
        None => (String::new(), &texts[..]),
    };
    let first = first.join(", ");
    let joined = if first.is_empty() {
        last
    } else {
        format!("{first} or {last}")
    };
    format!("the value is not one of {joined}")
}

fn wrong_text(fault: &TextFault<'_>) -> String {
    match fault {
        TextFault::Short(min) => format!("the value is shorter than {min} character{}", many(*min)),
        TextFault::Long(max) => format!("the value is longer than {max} character{}", many(*max)),
        TextFault::Pattern(pattern) => format!("the value does not match \"{pattern}\""),
        TextFault::Format(format) => format!("the value is not a \"{format}\""),
    }
}

fn wrong_number(bound: Bound, limit: &Value) -> String {
    let how = match bound {
        Bound::Minimum => "less than the minimum of",
        Bound::Maximum => "greater than the maximum of",
        Bound::ExclusiveMinimum => "less than or equal to the minimum of",
        Bound::ExclusiveMaximum => "greater than or equal to the maximum of",
    };
    format!("the value is {how} {limit}")
}
