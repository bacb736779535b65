use super::*;
use serde_json::json;

fn schema(value: Value) -> Schema {
    Schema::compile(value).unwrap()
}

#[test]
fn defaults_are_filled_in_and_the_rest_stays_as_written() {
    let schema = schema(json!({
        "type": "object",
        "properties": {
            "state": {"type": "string", "default": "open"},
            "page": {"type": "object", "properties": {"size": {"type": "integer", "default": 30}}},
            "list": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer", "default": 1}}}},
            "kind": {"$ref": "#/$defs/kind"},
        },
        "$defs": {"kind": {"type": "string", "default": "k"}},
    }));
    assert_eq!(
        schema.fill(r#"{ "n": 9007199254740993 }"#).unwrap(),
        r#"{"n":9007199254740993,"kind":"k","state":"open"}"#
    );
    assert_eq!(
        schema
            .fill(r#"{"state":"all","kind":"x","page":{ },"list":[{},{"n":2}]}"#)
            .unwrap(),
        r#"{"state":"all","kind":"x","page":{"size":30},"list":[{"n":1},{"n":2}]}"#
    );
    assert!(matches!(
        schema.fill(r#"{"state":"all","kind":"x"}"#).unwrap(),
        Cow::Borrowed(_)
    ));
    assert_eq!(schema.fill("[1]").unwrap(), "[1]");
}

#[test]
fn a_recursive_schema_with_defaults_compiles_and_fills() {
    let schema = schema(json!({
        "$ref": "#/$defs/node",
        "$defs": {"node": {"type": "object", "properties": {"v": {"type": "integer", "default": 0}, "next": {"$ref": "#/$defs/node"}}}},
    }));
    assert_eq!(
        schema.fill(r#"{"next":{}}"#).unwrap(),
        r#"{"next":{"v":0},"v":0}"#
    );
}

#[test]
fn violations_name_the_place_and_never_the_value() {
    let schema = schema(
        json!({"type": "object", "properties": {"n": {"type": "integer"}, "e": {"enum": ["a"]}}, "required": ["r"], "additionalProperties": false}),
    );
    let violations = schema
        .validate(&json!({"n": "canary-value", "e": "canary-value"}))
        .unwrap_err();
    let text = format!("{violations:?}");
    assert!(text.contains("/n") && text.contains("\\\"r\\\""), "{text}");
    assert!(!text.contains("canary-value"), "{text}");
}

#[test]
fn unknown_members_get_suggestions() {
    let inner = json!({"type": "object", "properties": {"path": {}, "depth": {}}, "additionalProperties": false});
    let schema =
        schema(json!({"properties": {"in": {"$ref": "#/$defs/in"}}, "$defs": {"in": inner}}));
    let told = |document: &Value| schema.validate(document).unwrap_err().remove(0);
    let one = told(&json!({"in": {"pth": "canary"}}));
    let expected = "\"pth\" is not known; did you mean \"path\"?";
    assert_eq!(
        (one.pointer.as_str(), one.detail.as_str()),
        ("/in", expected)
    );
}

#[test]
fn bad_schemas_are_refused() {
    assert!(Schema::compile(json!({"type": "nonsense"})).is_err());
    assert!(Schema::compile(json!({"$ref": "http://example.com/x.json"})).is_err());
    assert!(Schema::compile(json!({"pattern": "(?=a)b"})).is_err());
    let error = Schema::compile(json!({"properties": {"n": {"type": "integer", "default": "x"}}}))
        .unwrap_err();
    assert!(error.contains("/properties/n"), "{error}");
}

#[test]
fn a_trusted_schema_does_the_same_and_a_bad_one_accepts_nothing() {
    let rules = json!({"type": "object", "properties": {"n": {"type": "integer", "default": 3}}});
    let (now, later) = (schema(rules.clone()), Schema::trusted(rules));
    assert!(later.compiled.get().is_none());
    assert_eq!(later.fill("{}").unwrap(), r#"{"n":3}"#);
    assert!(later.compiled.get().is_some());
    for document in [json!({}), json!({"n": 1}), json!({"n": "x"}), json!([])] {
        let told = |schema: &Schema| {
            schema
                .validate(&document)
                .map_err(|violations| format!("{violations:?}"))
        };
        assert_eq!(told(&now), told(&later));
    }
    let bad = Schema::trusted(json!({"type": "nonsense"}));
    assert!(bad.fill("{}").unwrap() == "{}");
    assert!(
        bad.validate(&json!(1)).unwrap_err()[0]
            .detail
            .contains("the schema is not valid")
    );
}

#[test]
fn formats_are_checked() {
    let schema = schema(json!({"type": "string", "format": "date-time"}));
    assert!(schema.validate(&json!("2026-11-21T00:00:00Z")).is_ok());
    assert!(schema.validate(&json!("yesterday")).is_err());
}

#[test]
fn plain_shapes_are_accepted_unread() {
    assert!(Schema::anything().accepts_unread(b"1"));
    assert!(schema(json!({"type": "object", "description": "x"})).accepts_unread(b" {}"));
    assert!(!schema(json!({"type": "object"})).accepts_unread(b"[]"));
    assert!(!schema(json!({"type": "object", "required": ["a"]})).accepts_unread(b"{}"));
}

#[test]
fn common_schemas_accept_unread() {
    let issues = schema(json!({
        "type": "object", "required": ["issues", "next"], "additionalProperties": false,
        "properties": {
            "issues": {"type": "array", "maxItems": 2, "items": {"$ref": "#/$defs/issue"}},
            "next": {"type": ["string", "null"], "format": "uri"},
        },
        "$defs": {"issue": {
            "type": "object", "required": ["number"],
            "properties": {
                "number": {"type": "integer", "minimum": 1, "maximum": 9}, "size": {"type": "number"},
                "state": {"enum": ["open", "closed"]}, "at": {"type": "string", "pattern": "^[0-9]+$", "maxLength": 3},
            },
        }},
    }));
    for valid in [
        r#"{"issues":[],"next":null}"#,
        r#" {"next":"https://example.com/2","issues":[{"number":1},{"number":9,"more":[{}]}]} "#,
        r#"{"issues":[{"st\u0061te":"open","at":"123","number":3,"size":1.5}],"next":null}"#,
    ] {
        assert!(issues.accepts_unread(valid.as_bytes()), "{valid}");
        assert!(
            issues
                .validate(&serde_json::from_str(valid).unwrap())
                .is_ok()
        );
    }
    for invalid in [
        r#"{"issues":[]}"#,
        r#"{"issues":[],"next":null,"more":1}"#,
        r#"{"issues":[],"next":3}"#,
        r#"{"issues":[],"next":"no uri"}"#,
        r#"{"issues":[{"number":0}],"next":null}"#,
        r#"{"issues":[{"number":10}],"next":null}"#,
        r#"{"issues":[{"number":1,"state":"o"}],"next":null}"#,
        r#"{"issues":[{"number":1,"at":"x"}],"next":null}"#,
        r#"{"issues":[{"number":1,"at":"1234"}],"next":null}"#,
        r#"{"issues":[{"number":1},{"number":1},{"number":1}],"next":null}"#,
        r#"{"issues":[],"next":null"#,
        r#"{"issues":[],"next":null} {}"#,
        r"[]",
    ] {
        assert!(!issues.accepts_unread(invalid.as_bytes()), "{invalid}");
    }
    // It is a valid number, but only the evaluator knows that it is an integer.
    let spelled = r#"{"issues":[{"number":1.0}],"next":null}"#;
    assert!(!issues.accepts_unread(spelled.as_bytes()));
    assert!(
        issues
            .validate(&serde_json::from_str(spelled).unwrap())
            .is_ok()
    );
}

#[test]
fn other_schemas_accept_nothing_unread() {
    for other in [
        json!({"anyOf": [{"type": "object"}]}),
        json!({"not": {"type": "string"}}),
        json!({"type": "array", "uniqueItems": true}),
        json!({"type": "array", "prefixItems": [true]}),
        json!({"type": "object", "minProperties": 0}),
        json!({"type": "object", "patternProperties": {"a": true}}),
        json!({"$ref": "#/$defs/a", "type": "object", "$defs": {"a": {"type": "object"}}}),
        json!({"properties": {"a": {"$ref": "#"}}}),
        json!({"minimum": 0.5}),
        json!({"enum": [1]}),
        json!({"required": ["a"], "additionalProperties": {"type": "string"}}),
    ] {
        let other = Schema::trusted(other);
        for text in ["{}", "[]", "1", "\"a\"", r#"{"a":"b"}"#] {
            assert!(!other.accepts_unread(text.as_bytes()), "{other:?} {text}");
        }
    }
}

/// Makes schemas and documents by chance, from a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn schema(&mut self, depth: u64) -> Value {
        let mut made = serde_json::Map::new();
        if self.below(4) > 0 {
            let types = [
                "null", "boolean", "integer", "number", "string", "array", "object",
            ];
            let mut one = || types[usize::try_from(self.below(7)).unwrap()];
            let (first, second) = (one(), one());
            made.insert(
                "type".into(),
                if first == second {
                    json!(first)
                } else {
                    json!([first, second])
                },
            );
        }
        for (keyword, rule) in [
            ("minimum", json!(1)),
            ("maximum", json!(2)),
            ("maxItems", json!(1)),
            ("minItems", json!(1)),
            ("enum", json!(["a", "é"])),
            ("pattern", json!("^a")),
            ("minLength", json!(1)),
            ("required", json!(["a"])),
            ("additionalProperties", json!(false)),
        ] {
            if self.below(7) == 0 {
                made.insert(keyword.into(), rule);
            }
        }
        if depth > 0 && self.below(2) == 0 {
            made.insert(
                "properties".into(),
                json!({"a": self.schema(depth - 1), "é": self.schema(depth - 1)}),
            );
        }
        if depth > 0 && self.below(2) == 0 {
            made.insert("items".into(), self.schema(depth - 1));
        }
        Value::Object(made)
    }

    fn document(&mut self, depth: u64) -> String {
        match self.below(if depth == 0 { 8 } else { 12 }) {
            0 => "null".into(),
            1 => "true".into(),
            2 => "1".into(),
            3 => "-3".into(),
            4 => "1.5".into(),
            5 => "2.0".into(),
            6 => r#""a""#.into(),
            7 => r#""\u00e9""#.into(),
            8 | 9 => {
                let items: Vec<String> = (0..self.below(3))
                    .map(|_| self.document(depth - 1))
                    .collect();
                format!("[{}]", items.join(","))
            }
            _ => {
                let names = [r#""a""#, r#""\u00e9""#, r#""b""#];
                let count = self.below(4);
                let member = |chance: &mut Self| {
                    let name = names[usize::try_from(chance.below(3)).unwrap()];
                    format!("{name}:{}", chance.document(depth - 1))
                };
                let members: Vec<String> = (0..count).map(|_| member(self)).collect();
                format!("{{{}}}", members.join(","))
            }
        }
    }
}

#[test]
fn what_is_accepted_unread_is_valid() {
    let mut chance = Chance(1);
    let (mut accepted, mut valid) = (0, 0);
    for _ in 0..3000 {
        let schema = schema(chance.schema(2));
        for _ in 0..20 {
            let text = chance.document(2);
            let is_valid = schema
                .validate(&serde_json::from_str(&text).unwrap())
                .is_ok();
            if schema.accepts_unread(text.as_bytes()) {
                assert!(is_valid, "{schema:?} {text}");
                accepted += 1;
            }
            valid += u32::from(is_valid);
        }
    }
    assert!(
        accepted * 10 > valid * 8,
        "it is of use: {accepted} of {valid}"
    );
}

#[test]
fn a_member_can_be_taken_off() {
    assert_eq!(
        take_member(r#"{"a":1.0,"_session_id":"s","b":2}"#, "_session_id").unwrap(),
        ("\"s\"".into(), r#"{"a":1.0,"b":2}"#.into())
    );
    assert_eq!(take_member("{}", "x"), None);
}

/// Everything of 2020-12 that says something about a document, by chance.
impl Chance {
    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }

    /// Makes a schema of `keywords` keywords; its subschemas may refer to `$defs/a` and `$defs/b`.
    pub(super) fn any_schema(&mut self, depth: u64) -> Value {
        if self.below(12) == 0 {
            return json!(self.below(3) > 0);
        }
        let mut made = serde_json::Map::new();
        for _ in 0..=self.below(3) {
            let (keyword, rule) = self.keyword(depth);
            made.insert(keyword.to_owned(), rule);
        }
        Value::Object(made)
    }

    fn keyword(&mut self, depth: u64) -> (&'static str, Value) {
        let leaf = depth == 0;
        let sub = |chance: &mut Self| chance.any_schema(depth.saturating_sub(1));
        match self.below(if leaf { 21 } else { 38 }) {
            0 => {
                let types = [
                    "null", "boolean", "integer", "number", "string", "array", "object",
                ];
                let (one, other) = (*self.one_of(&types), *self.one_of(&types));
                (
                    "type",
                    if one == other {
                        json!(one)
                    } else {
                        json!([one, other])
                    },
                )
            }
            1 => (
                "minimum",
                self.one_of(&[json!(1), json!(1.5), json!(-2), json!(1e20)])
                    .clone(),
            ),
            2 => (
                "maximum",
                self.one_of(&[json!(1), json!(0.5), json!(9_007_199_254_740_993_u64)])
                    .clone(),
            ),
            3 => (
                "exclusiveMinimum",
                self.one_of(&[json!(1), json!(1.0), json!(0.5)]).clone(),
            ),
            4 => (
                "exclusiveMaximum",
                self.one_of(&[json!(2), json!(1.5), json!(1e300)]).clone(),
            ),
            5 => (
                "multipleOf",
                self.one_of(&[json!(2), json!(0.5), json!(0.1), json!(1.0), json!(3)])
                    .clone(),
            ),
            6 => ("minLength", json!(self.below(3))),
            7 => ("maxLength", json!(self.below(3))),
            8 => {
                let patterns = [
                    "^a", "b$", r"^\w+$", r"^\S*$", "^(a|b)$", "[^a-c]", r"\d", "é", "^$", "a{2}",
                ];
                ("pattern", json!(self.one_of(&patterns)))
            }
            9 => {
                let formats = [
                    "date",
                    "date-time",
                    "ipv4",
                    "email",
                    "uri",
                    "uuid",
                    "regex",
                    "none",
                    "json-pointer",
                ];
                ("format", json!(self.one_of(&formats)))
            }
            10 => ("minItems", json!(self.below(3))),
            11 => ("maxItems", json!(self.below(3))),
            12 => ("uniqueItems", json!(self.below(4) > 0)),
            13 => ("minProperties", json!(self.below(3))),
            14 => ("maxProperties", json!(self.below(3))),
            15 => ("required", json!([*self.one_of(&["a", "b"])])),
            16 => (
                "dependentRequired",
                json!({*self.one_of(&["a", "b"]): ["é"]}),
            ),
            17 => ("const", self.any_value(1)),
            18 => {
                let mut all = vec![self.any_value(1), json!("a"), self.any_value(1)];
                if self.below(3) == 0 {
                    all.extend((0..12).map(|n| json!(n.to_string())));
                }
                all.sort_by_key(Value::to_string);
                all.dedup();
                ("enum", Value::Array(all))
            }
            19 => ("$ref", json!(*self.one_of(&["#/$defs/a", "#/$defs/b"]))),
            20 => ("$dynamicRef", json!("#here")),
            21 => (
                "properties",
                json!({"a": sub(self), *self.one_of(&["b", "é"]): sub(self)}),
            ),
            22 => (
                "patternProperties",
                json!({*self.one_of(&["^a", "b|é", "."]): sub(self)}),
            ),
            23 => ("additionalProperties", sub(self)),
            24 => ("propertyNames", sub(self)),
            25 => ("items", sub(self)),
            26 => ("prefixItems", json!([sub(self), sub(self)])),
            27 => ("contains", sub(self)),
            28 => ("minContains", json!(self.below(3))),
            29 => ("maxContains", json!(self.below(3))),
            30 => ("allOf", json!([sub(self), sub(self)])),
            31 => ("anyOf", json!([sub(self), sub(self)])),
            32 => ("oneOf", json!([sub(self), sub(self)])),
            33 => ("not", sub(self)),
            34 => ("if", sub(self)),
            35 => (*self.one_of(&["then", "else"]), sub(self)),
            36 => (
                "dependentSchemas",
                json!({*self.one_of(&["a", "b"]): sub(self)}),
            ),
            _ => (
                *self.one_of(&["unevaluatedProperties", "unevaluatedItems"]),
                sub(self),
            ),
        }
    }

    pub(super) fn any_value(&mut self, depth: u64) -> Value {
        match self.below(if depth == 0 { 14 } else { 20 }) {
            0 => Value::Null,
            1 => json!(true),
            2..=5 => self
                .one_of(&[
                    json!(0),
                    json!(1),
                    json!(1.0),
                    json!(2),
                    json!(-3),
                    json!(1.5),
                    json!(0.3),
                    json!(1e300),
                    json!(9_007_199_254_740_993_u64),
                    json!(u64::MAX),
                ])
                .clone(),
            6..=13 => json!(*self.one_of(&[
                "",
                "a",
                "b",
                "ab",
                "é",
                "aé",
                "abc",
                " ",
                "2020-02-30",
                "2020-02-03",
                "1.2.3.4",
                "x@y.org",
                "a:b",
                "(",
                "7",
            ])),
            14..=16 => (0..self.below(4))
                .map(|_| self.any_value(depth - 1))
                .collect(),
            _ => {
                let names = ["a", "b", "é", "ab"];
                (0..self.below(4))
                    .map(|_| (self.one_of(&names).to_string(), self.any_value(depth - 1)))
                    .collect()
            }
        }
    }
}

/// The crate `jsonschema` passes the official test suite, so what it says of a document is right.
#[test]
fn documents_are_judged_as_the_crate_jsonschema_judges_them() {
    let mut chance = Chance(7);
    let (mut judged, mut fit) = (0_u32, 0_u32);
    for _ in 0..12_000 {
        let Value::Object(mut made) = chance.any_schema(3) else {
            continue;
        };
        let mut inner = chance.any_schema(1);
        if let Value::Object(inner) = &mut inner {
            inner.insert("$dynamicAnchor".into(), "here".into());
        } else {
            inner = json!({"$dynamicAnchor": "here"});
        }
        // A property named $defs is in no schema that is made.
        made.insert(
            "$defs".into(),
            json!({"a": inner, "b": chance.any_schema(1)}),
        );
        let source = Value::Object(made);
        let Ok(schema) = Schema::compile(source.clone()) else {
            continue;
        };
        let other = jsonschema::options()
            .with_draft(jsonschema::Draft::Draft202012)
            .should_validate_formats(true)
            .with_pattern_options(jsonschema::PatternOptions::regex())
            .build(&source)
            .unwrap();
        for _ in 0..12 {
            let document = chance.any_value(3);
            let ours = schema.validate(&document);
            assert_eq!(
                ours.is_ok(),
                other.is_valid(&document),
                "{source} {document} {ours:?}"
            );
            assert!(
                ours.as_ref().err().is_none_or(|told| !told.is_empty()),
                "{source} {document}"
            );
            let text = document.to_string();
            assert!(
                !schema.accepts_unread(text.as_bytes()) || ours.is_ok(),
                "{source} {document}"
            );
            judged += 1;
            fit += u32::from(ours.is_ok());
        }
    }
    assert!(
        judged > 50_000 && fit > judged / 10 && fit < judged * 9 / 10,
        "{fit} of {judged}"
    );
}

/// What the first violation says, for each keyword; the texts are those of the crate `jsonschema`.
#[test]
fn each_keyword_says_what_is_wrong_and_where() {
    for (rule, value, detail) in [
        (
            json!({"type": "integer"}),
            json!("x"),
            "the value is not of type \"integer\"",
        ),
        (
            json!({"type": ["null", "object"]}),
            json!(1),
            "the value is not of types \"null\", \"object\"",
        ),
        (json!({"const": [1]}), json!(1), "[1] was expected"),
        (json!({"enum": [1]}), json!(2), "the value is not one of 1"),
        (
            json!({"enum": [1, "a", null]}),
            json!(2),
            "the value is not one of 1, \"a\" or null",
        ),
        (
            json!({"enum": [1, 2, 3, 4]}),
            json!(5),
            "the value is not one of 1, 2 or 2 other candidates",
        ),
        (
            json!({"minimum": 1.5}),
            json!(1),
            "the value is less than the minimum of 1.5",
        ),
        (
            json!({"exclusiveMaximum": 1}),
            json!(1),
            "the value is greater than or equal to the maximum of 1",
        ),
        (
            json!({"multipleOf": 2}),
            json!(3),
            "the value is not a multiple of 2",
        ),
        (
            json!({"minLength": 2}),
            json!("é"),
            "the value is shorter than 2 characters",
        ),
        (
            json!({"maxLength": 1}),
            json!("éé"),
            "the value is longer than 1 character",
        ),
        (
            json!({"pattern": "^a"}),
            json!("b"),
            "the value does not match \"^a\"",
        ),
        (
            json!({"format": "ipv4"}),
            json!("b"),
            "the value is not a \"ipv4\"",
        ),
        (
            json!({"minItems": 1}),
            json!([]),
            "the value has less than 1 item",
        ),
        (
            json!({"uniqueItems": true}),
            json!([1, 1.0]),
            "the value has non-unique elements",
        ),
        (
            json!({"contains": {"type": "null"}}),
            json!([1]),
            "None of the value are valid under the given schema",
        ),
        (
            json!({"maxProperties": 0}),
            json!({"a": 1}),
            "the value has more than 0 properties",
        ),
        (json!({"required": ["a"]}), json!({}), "\"a\" is missing"),
        (
            json!({"dependentRequired": {"a": ["b"]}}),
            json!({"a": 1}),
            "\"b\" is missing",
        ),
        (
            json!({"propertyNames": {"maxLength": 1}}),
            json!({"ab": 1}),
            "the name \"ab\" does not fit: the value is longer than 1 character",
        ),
        (
            json!({"anyOf": [false]}),
            json!(1),
            "not valid under any of the schemas listed in the 'anyOf' keyword",
        ),
        (
            json!({"oneOf": [true, true]}),
            json!(1),
            "valid under more than one of the schemas listed in the 'oneOf'",
        ),
        (
            json!({"not": {"type": "null"}}),
            json!(null),
            "{\"type\":\"null\"} is not allowed for the value",
        ),
        (
            json!({"unevaluatedItems": false}),
            json!([1, 2]),
            "Unevaluated items are not allowed (2 items)",
        ),
        (
            json!({"unevaluatedProperties": false}),
            json!({"a": 1}),
            "\"a\" is not known",
        ),
        (
            json!(false),
            json!(1),
            "False schema does not allow the value",
        ),
    ] {
        let inside = schema(json!({"properties": {"x/y": {"items": rule}}}));
        let told = inside.validate(&json!({"x/y": [value]})).unwrap_err();
        assert!(
            told[0].detail.contains(detail) && told[0].pointer == "/x~1y/0",
            "{rule}: {told:?}"
        );
    }
}

#[test]
fn refused_schemas_name_the_place() {
    for (source, place) in [
        (
            json!({"properties": {"a": {"pattern": "(?=a)b"}}}),
            "at /properties/a: the pattern \"(?=a)b\" cannot be used",
        ),
        (
            json!({"items": {"type": "objekt"}}),
            "at /items: \"type\" names no type",
        ),
        (
            json!({"items": {"minItems": -1}}),
            "at /items: \"minItems\" is not a whole number",
        ),
        (json!({"items": {"title": 1}}), "at /items/title: "),
    ] {
        let told = Schema::compile(source).unwrap_err();
        assert!(
            told.starts_with("the schema is not valid: ") && told.contains(place),
            "{told}"
        );
    }
}

/// A schema whose check takes very long, and its document: the keyword under 90 x 90 references, or
/// once.
fn expensive() -> Vec<(Value, Value)> {
    let wide = |rule: Value| {
        let of = |next: &str| json!({"allOf": vec![json!({"$ref": next}); 90]});
        json!({"$ref": "#/$defs/d0", "$defs": {"d0": of("#/$defs/d1"), "d1": of("#/$defs/d2"), "d2": rule}})
    };
    let text: String = (0..800_000_u32)
        .map(|n| char::from(b'c' + (n.wrapping_mul(n) >> 7) as u8 % 13))
        .collect();
    let text = Value::String(text);
    let numbers: Value = (0..200_000).map(Value::from).collect();
    let arrays: Value = (0..20_000).map(|n| json!([n])).collect();
    let members: Value = (0..50_000)
        .map(|n| (format!("m{n}"), json!(n)))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let pattern = r"(\w|[a-c]x|\d)[^b]{1,60}$|q";
    let long = "n".repeat(100_000);
    let named = json!({long.as_str(): 1, "o": 2});
    let unevaluated =
        json!({"properties": {"a": true}, "unevaluatedProperties": {"type": "integer"}});
    vec![
        (wide(json!({"pattern": pattern})), text.clone()),
        (wide(json!({"minLength": 1})), text.clone()),
        (
            wide(json!({"not": {"const": format!("{}x", text.as_str().unwrap())}})),
            text.clone(),
        ),
        (wide(json!({"enum": [0, text]})), text.clone()),
        (
            wide(json!({"format": "uri"})),
            json!(format!("a:{}", text.as_str().unwrap())),
        ),
        (wide(json!({"not": {"format": "regex"}})), text),
        (wide(json!({"uniqueItems": true})), arrays.clone()),
        (wide(json!({"const": numbers})), numbers.clone()),
        (
            wide(json!({"contains": {"const": -1}, "minContains": 0, "maxContains": 1})),
            numbers.clone(),
        ),
        (wide(json!({"items": {"multipleOf": 0.5}})), numbers.clone()),
        (
            wide(json!({"anyOf": [{"unevaluatedItems": false}, true]})),
            numbers,
        ),
        (
            wide(json!({"anyOf": [{"unevaluatedProperties": false}, true]})),
            members.clone(),
        ),
        (
            wide(json!({"not": {"required": [format!("{long}x")]}})),
            named.clone(),
        ),
        (
            wide(json!({"properties": {format!("{long}x"): false}})),
            named.clone(),
        ),
        (
            wide(json!({"dependentRequired": {format!("{long}x"): ["a"]}})),
            named.clone(),
        ),
        (
            wide(json!({"dependentSchemas": {format!("{long}x"): false}})),
            named,
        ),
        (
            wide(json!({"prefixItems": [true], "unevaluatedItems": {"type": "array"}})),
            arrays,
        ),
        (
            wide(json!({"patternProperties": {pattern: true}})),
            members.clone(),
        ),
        (
            wide(json!({"propertyNames": {"pattern": pattern}})),
            members.clone(),
        ),
        (wide(unevaluated), members.clone()),
        (
            wide(json!({"additionalProperties": {"anyOf": [{"type": "null"}, {"minimum": 0}]}})),
            members.clone(),
        ),
        (
            wide(json!({"$ref": "https://json-schema.org/draft/2020-12/schema"})),
            members,
        ),
    ]
}

#[test]
fn every_keyword_pays_for_large_values() {
    for (source, document) in expensive() {
        let rule = source["$defs"]["d2"].to_string();
        let rule = crate::text::escaped(&rule, 100);
        let schema = Schema::compile(source).unwrap();
        assert_eq!(
            schema.check(&document, &mut Effort::light()),
            Err(Unfinished::TooMuch),
            "{rule}"
        );
        // The clock says at the third look that the time is over, and nothing is looked at after
        // that.
        let looks = std::cell::Cell::new(0);
        let stop = || {
            looks.set(looks.get() + 1);
            looks.get() >= 3
        };
        let ended = schema.check(&document, &mut Effort::full(&stop));
        assert!(looks.get() <= 3, "{rule}: {}", looks.get());
        let too_much = matches!(&ended, Ok(Err(told)) if told[0].detail.contains("too many steps"));
        assert!(
            ended == Err(Unfinished::Stopped) || too_much || ended == Ok(Ok(())),
            "{rule}: {ended:?}"
        );
        assert!(ended != Ok(Ok(())) || looks.get() < 3, "{rule}");
    }
}

#[test]
fn telling_what_is_wrong_pays_too() {
    // Names that are like hundreds of others, and long.
    let name = |n: usize| format!("{}{n:03}", "a".repeat(61));
    let known: serde_json::Map<_, _> = (0..500).map(|n| (name(n), json!(true))).collect();
    let known = schema(json!({"items": {"properties": known, "additionalProperties": false}}));
    let unknown: serde_json::Map<_, _> = (500..505).map(|n| (name(n), json!(1))).collect();
    let unknown = Value::Array(vec![Value::Object(unknown); 20]);
    let told = known
        .check(&unknown, &mut Effort::light())
        .unwrap()
        .unwrap_err();
    assert_eq!(told.len(), 20);
    assert!(
        told[0].detail.contains("is not known"),
        "{}",
        told[0].detail
    );
    let one = json!([{"a".repeat(61) + "00": 1}]);
    let told = known
        .check(&one, &mut Effort::full(&|| false))
        .unwrap()
        .unwrap_err();
    assert!(
        told[0].detail.contains("did you mean"),
        "{}",
        told[0].detail
    );
    // Places far in, below long names.
    let deep = (0..100).fold(json!(1), |inner, _| json!({"n".repeat(8_000): inner}));
    let never = schema(json!({"additionalProperties": {"$ref": "#"}, "type": "object"}));
    let told = never
        .check(&deep, &mut Effort::full(&|| false))
        .unwrap()
        .unwrap_err();
    assert!(
        told[0].pointer.len() < 1_100 && told[0].pointer.starts_with("/..."),
        "{}",
        told[0].pointer
    );
    // Large values of the schema.
    let large = schema(json!({"const": vec!["x"; 100_000]}));
    let told = large.validate(&json!(1)).unwrap_err();
    assert!(
        told[0].detail.len() < 300
            && told[0].detail.starts_with("[\"x\",\"x\"")
            && told[0].detail.contains("...")
    );
}

#[test]
fn references_with_escapes_mean_the_same_unread() {
    let schema = schema(json!({"properties": {"p": {"$ref": "#/$defs/a%25b"}},
        "$defs": {"a%b": {"type": "string"}, "a%25b": true}}));
    assert!(schema.validate(&json!({"p": 1})).is_err());
    assert!(!schema.accepts_unread(br#"{"p":1}"#));
}

#[test]
fn deep_documents_are_not_read_again_and_again() {
    let schema = schema(json!({"properties": {"v": {"default": 0}, "n": {"$ref": "#"}}}));
    let nested = |levels: usize, inner: &str| {
        format!("{}{inner}{}", "{\"n\":".repeat(levels), "}".repeat(levels))
    };
    assert_eq!(
        schema.fill(&nested(2, "{}")).unwrap(),
        r#"{"n":{"n":{"v":0},"v":0},"v":0}"#
    );
    let large = format!("{{\"x\":[{}0]}}", "0,".repeat(500_000));
    assert!(schema.fill(&nested(10, &large)).is_ok());
    assert_eq!(schema.fill(&nested(100, &large)).unwrap_err(), TooLarge);
}

#[test]
fn texts_of_streams_pay_too() {
    let schema = schema(
        json!({"type": "object", "properties": {"a": {"pattern": r"(\w|[a-c]x|\d)[^b]{1,60}$|q"}}}),
    );
    let short = r#"{"a":"q"}"#;
    assert!(schema.accepts_unread(short.as_bytes()));
    let long = format!("{{\"a\":\"{}\"}}", "cdefghij".repeat(100_000));
    let value: Value = serde_json::from_str(&long).unwrap();
    assert!(
        !schema.accepts_unread(long.as_bytes())
            || schema.check(&value, &mut Effort::light()).is_ok()
    );
}

#[test]
fn defaults_do_not_explode() {
    let large = json!({"items": {"properties": {"a": {"default": "x".repeat(10_000)}}}});
    let text = format!("[{}]", vec!["{}"; 10_000].join(","));
    assert_eq!(schema(large).fill(&text).unwrap_err(), TooLarge);
    // A default that is filled in with itself, sixty times in each.
    let names: serde_json::Map<_, _> = (0..60)
        .map(|n| (format!("p{n}"), json!({"$ref": "#", "default": {}})))
        .collect();
    assert_eq!(
        schema(json!({"properties": names})).fill("{}").unwrap_err(),
        TooLarge
    );
    let names: serde_json::Map<_, _> = (0..5_000)
        .map(|n| (format!("p{n}"), json!({"$ref": "#"})))
        .collect();
    let mut names = names;
    names.insert("z".into(), json!({"default": 1}));
    let recursive = schema(json!({"properties": names}));
    assert_eq!(
        recursive.fill(r#"{"p1":{"p2":{"z":2}}}"#).unwrap(),
        r#"{"p1":{"p2":{"z":2},"z":1},"z":1}"#
    );
    let text = format!(
        "{{{}}}",
        (0..100_000)
            .map(|n| format!("\"q{n}\":1"))
            .collect::<Vec<_>>()
            .join(",")
    );
    assert!(recursive.fill(&text).unwrap().ends_with("\"z\":1}"));
}

#[test]
fn deep_documents_are_checked_on_a_small_stack() {
    let schema = schema(json!({"$ref": "#/$defs/n", "$defs": {"n": {
        "anyOf": [{"type": "integer"}, {"allOf": [{"type": "array", "items": {"$ref": "#/$defs/n"}}]}]}}}));
    let deep = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
    assert!(schema.validate(&deep(60)).is_ok());
    assert_eq!(
        schema.check(&deep(126), &mut Effort::light()),
        Err(Unfinished::TooMuch)
    );
    let own = std::thread::Builder::new().stack_size(STACK_BYTES);
    let deepest = deep(126);
    own.spawn(move || {
        assert_eq!(
            schema.check(&deepest, &mut Effort::full(&|| false)),
            Ok(Ok(()))
        )
    })
    .unwrap()
    .join()
    .unwrap();
}
