//! Types from a JSON Schema, to parse `key=value`. It validates nothing.

use std::collections::BTreeSet;

use serde_json::Value;

/// Limit of subschemas that one lookup visits; it ends the walk of a recursive schema.
const MAX_PARTS: usize = 64;

/// A schema seen from a command line. References point into the document `root`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape<'a> {
    root: &'a Value,
    schema: &'a Value,
}

impl<'a> Shape<'a> {
    /// Looks at a whole schema.
    pub(crate) const fn of(root: &'a Value) -> Self {
        Self { root, schema: root }
    }

    const fn at(self, schema: &'a Value) -> Self {
        Self {
            root: self.root,
            schema,
        }
    }

    /// Returns the schema and all that it is made of: local `$ref`, `allOf`, `anyOf`, `oneOf`.
    fn parts(self) -> Vec<&'a Value> {
        let mut parts = vec![self.schema];
        let mut next = 0;
        while next < parts.len() && parts.len() < MAX_PARTS {
            let part = parts[next];
            next += 1;
            let target = part
                .get("$ref")
                .and_then(Value::as_str)
                .and_then(|text| text.strip_prefix('#'));
            parts.extend(target.and_then(|pointer| self.root.pointer(pointer)));
            for word in ["allOf", "anyOf", "oneOf"] {
                parts.extend(
                    part.get(word)
                        .and_then(Value::as_array)
                        .into_iter()
                        .flatten(),
                );
            }
        }
        parts
    }

    /// Returns the shape of a member that the schema declares.
    pub(crate) fn property(self, name: &str) -> Option<Self> {
        self.parts()
            .into_iter()
            .find_map(|part| part.get("properties")?.get(name))
            .map(|schema| self.at(schema))
    }

    /// Returns the names of all members that the schema declares, sorted.
    pub(crate) fn names(self) -> BTreeSet<&'a str> {
        let objects = self
            .parts()
            .into_iter()
            .filter_map(|part| part.get("properties")?.as_object());
        objects
            .flat_map(|properties| properties.keys().map(String::as_str))
            .collect()
    }

    /// Returns the shape of members that the schema does not declare, `None` if it accepts none.
    ///
    /// A schema that lists members and says nothing of others is taken to accept no others: on a
    /// command line an unknown name is nearly always a typo.
    pub(crate) fn others(self) -> Option<Self> {
        static ANYTHING: Value = Value::Bool(true);
        let said = self
            .parts()
            .into_iter()
            .find_map(|part| part.get("additionalProperties"));
        match said {
            Some(Value::Bool(false)) => None,
            Some(schema) => Some(self.at(schema)),
            None => self.names().is_empty().then(|| self.at(&ANYTHING)),
        }
    }

    /// Returns the shape of an array's elements.
    pub(crate) fn items(self) -> Self {
        static ANYTHING: Value = Value::Bool(true);
        let items = self.parts().into_iter().find_map(|part| part.get("items"));
        self.at(items.unwrap_or(&ANYTHING))
    }

    /// Returns the types that a value may have (`string`, `integer`, ...); empty = any.
    pub(crate) fn kinds(self) -> BTreeSet<&'a str> {
        let mut kinds = BTreeSet::new();
        for part in self.parts() {
            match part.get("type") {
                Some(Value::String(kind)) => {
                    kinds.insert(kind.as_str());
                }
                Some(Value::Array(several)) => {
                    kinds.extend(several.iter().filter_map(Value::as_str))
                }
                _ => {
                    let named = part
                        .get("enum")
                        .and_then(Value::as_array)
                        .into_iter()
                        .flatten();
                    kinds.extend(
                        named
                            .chain(part.get("const"))
                            .map(|value| -> &'a str { kind_of(value) }),
                    );
                    if part.get("properties").is_some() {
                        kinds.insert("object");
                    }
                    if part.get("items").is_some() {
                        kinds.insert("array");
                    }
                }
            }
        }
        kinds
    }

    /// Returns the names of members that must be given.
    pub(crate) fn required(self) -> BTreeSet<&'a str> {
        let lists = self
            .parts()
            .into_iter()
            .filter_map(|part| part.get("required")?.as_array());
        lists.flatten().filter_map(Value::as_str).collect()
    }

    /// Returns the values that the schema lists; empty = it lists none.
    pub(crate) fn choices(self) -> Vec<&'a Value> {
        let of = |part: &'a Value| {
            part.get("enum")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .chain(part.get("const"))
        };
        self.parts().into_iter().flat_map(of).collect()
    }

    /// Returns the description.
    pub(crate) fn description(self) -> Option<&'a str> {
        self.parts()
            .into_iter()
            .find_map(|part| part.get("description")?.as_str())
    }

    /// Says whether the value is a path on the caller's machine (`"x-helmdeck-path": true`).
    pub(crate) fn is_path(self) -> bool {
        self.parts()
            .iter()
            .any(|part| part.get("x-helmdeck-path") == Some(&Value::Bool(true)))
    }

    /// Returns the default value's text.
    pub(crate) fn default_text(self) -> Option<&'a str> {
        self.parts()
            .into_iter()
            .find_map(|part| part.get("default")?.as_str())
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_are_found_through_references_and_combinations() {
        let schema = json!({
            "allOf": [{"properties": {"a": {"$ref": "#/$defs/n"}}}, {"oneOf": [{"properties": {"b": {"enum": ["x", 1]}}}]}],
            "$defs": {"n": {"type": ["integer", "null"]}},
        });
        let shape = Shape::of(&schema);
        assert_eq!(shape.names().into_iter().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(
            shape.property("a").unwrap().kinds(),
            ["integer", "null"].into()
        );
        assert_eq!(
            shape.property("b").unwrap().kinds(),
            ["integer", "string"].into()
        );
        assert!(shape.property("c").is_none());
        assert!(shape.others().is_none());
    }

    #[test]
    fn a_recursive_schema_comes_to_an_end() {
        let schema =
            json!({"allOf": [{"$ref": "#"}, {"$ref": "#"}], "properties": {"a": {"$ref": "#"}}});
        assert_eq!(
            Shape::of(&schema).property("a").unwrap().names(),
            ["a"].into()
        );
    }

    #[test]
    fn other_members_are_open_only_where_the_schema_says_so_or_says_nothing_at_all() {
        assert!(Shape::of(&json!(true)).others().is_some());
        assert!(Shape::of(&json!({"type": "object"})).others().is_some());
        assert!(
            Shape::of(&json!({"properties": {"a": true}}))
                .others()
                .is_none()
        );
        let typed = json!({"properties": {"a": true}, "additionalProperties": {"type": "integer"}});
        assert_eq!(
            Shape::of(&typed).others().unwrap().kinds(),
            ["integer"].into()
        );
    }
}
