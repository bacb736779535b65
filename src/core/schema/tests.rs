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
    assert_eq!(schema.fill(r#"{ "n": 9007199254740993 }"#), r#"{"n":9007199254740993,"kind":"k","state":"open"}"#);
    assert_eq!(
        schema.fill(r#"{"state":"all","kind":"x","page":{ },"list":[{},{"n":2}]}"#),
        r#"{"state":"all","kind":"x","page":{"size":30},"list":[{"n":1},{"n":2}]}"#
    );
    assert!(matches!(schema.fill(r#"{"state":"all","kind":"x"}"#), Cow::Borrowed(_)));
    assert_eq!(schema.fill("[1]"), "[1]");
}

#[test]
fn a_recursive_schema_with_defaults_compiles_and_fills() {
    let schema = schema(json!({
        "$ref": "#/$defs/node",
        "$defs": {"node": {"type": "object", "properties": {"v": {"type": "integer", "default": 0}, "next": {"$ref": "#/$defs/node"}}}},
    }));
    assert_eq!(schema.fill(r#"{"next":{}}"#), r#"{"next":{"v":0},"v":0}"#);
}

#[test]
fn violations_name_the_place_and_never_the_value() {
    let schema = schema(
        json!({"type": "object", "properties": {"n": {"type": "integer"}, "e": {"enum": ["a"]}}, "required": ["r"], "additionalProperties": false}),
    );
    let violations = schema.validate(&json!({"n": "canary-value", "e": "canary-value"})).unwrap_err();
    let text = format!("{violations:?}");
    assert!(text.contains("/n") && text.contains("\\\"r\\\""), "{text}");
    assert!(!text.contains("canary-value"), "{text}");
}

#[test]
fn unknown_members_get_suggestions() {
    let inner = json!({"type": "object", "properties": {"path": {}, "depth": {}}, "additionalProperties": false});
    let schema = schema(json!({"properties": {"in": {"$ref": "#/$defs/in"}}, "$defs": {"in": inner}}));
    let told = |document: &Value| schema.validate(document).unwrap_err().remove(0);
    let one = told(&json!({"in": {"pth": "canary"}}));
    let expected = "\"pth\" is not known; did you mean \"path\"?";
    assert_eq!((one.pointer.as_str(), one.detail.as_str()), ("/in", expected));
}

#[test]
fn bad_schemas_are_refused() {
    assert!(Schema::compile(json!({"type": "nonsense"})).is_err());
    assert!(Schema::compile(json!({"$ref": "http://example.com/x.json"})).is_err());
    assert!(Schema::compile(json!({"pattern": "(?=a)b"})).is_err());
    let error = Schema::compile(json!({"properties": {"n": {"type": "integer", "default": "x"}}})).unwrap_err();
    assert!(error.contains("/properties/n"), "{error}");
}

#[test]
fn a_trusted_schema_does_the_same_and_a_bad_one_accepts_nothing() {
    let rules = json!({"type": "object", "properties": {"n": {"type": "integer", "default": 3}}});
    let (now, later) = (schema(rules.clone()), Schema::trusted(rules));
    assert!(later.compiled.get().is_none());
    assert_eq!(later.fill("{}"), r#"{"n":3}"#);
    assert!(later.compiled.get().is_some());
    for document in [json!({}), json!({"n": 1}), json!({"n": "x"}), json!([])] {
        let told = |schema: &Schema| schema.validate(&document).map_err(|violations| format!("{violations:?}"));
        assert_eq!(told(&now), told(&later));
        assert_eq!(now.is_light(&document, 10), later.is_light(&document, 10));
    }
    let bad = Schema::trusted(json!({"type": "nonsense"}));
    assert!(bad.is_light(&json!(1), 1) && bad.fill("{}") == "{}");
    assert!(bad.validate(&json!(1)).unwrap_err()[0].detail.contains("the schema is not valid"));
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
        assert!(issues.validate(&serde_json::from_str(valid).unwrap()).is_ok());
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
    // It is a valid number, but only the validator knows that it is an integer.
    let spelled = r#"{"issues":[{"number":1.0}],"next":null}"#;
    assert!(!issues.accepts_unread(spelled.as_bytes()));
    assert!(issues.validate(&serde_json::from_str(spelled).unwrap()).is_ok());
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
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn schema(&mut self, depth: u64) -> Value {
        let mut made = serde_json::Map::new();
        if self.below(4) > 0 {
            let types = ["null", "boolean", "integer", "number", "string", "array", "object"];
            let mut one = || types[usize::try_from(self.below(7)).unwrap()];
            let (first, second) = (one(), one());
            made.insert("type".into(), if first == second { json!(first) } else { json!([first, second]) });
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
            made.insert("properties".into(), json!({"a": self.schema(depth - 1), "é": self.schema(depth - 1)}));
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
                let items: Vec<String> = (0..self.below(3)).map(|_| self.document(depth - 1)).collect();
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
            let is_valid = schema.validate(&serde_json::from_str(&text).unwrap()).is_ok();
            if schema.accepts_unread(text.as_bytes()) {
                assert!(is_valid, "{schema:?} {text}");
                accepted += 1;
            }
            valid += u32::from(is_valid);
        }
    }
    assert!(accepted * 10 > valid * 8, "it is of use: {accepted} of {valid}");
}

#[test]
fn a_member_can_be_taken_off() {
    assert_eq!(
        take_member(r#"{"a":1.0,"_session_id":"s","b":2}"#, "_session_id").unwrap(),
        ("\"s\"".into(), r#"{"a":1.0,"b":2}"#.into())
    );
    assert_eq!(take_member("{}", "x"), None);
}
