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
fn a_member_can_be_taken_off() {
    assert_eq!(
        take_member(r#"{"a":1.0,"_session_id":"s","b":2}"#, "_session_id").unwrap(),
        ("\"s\"".into(), r#"{"a":1.0,"b":2}"#.into())
    );
    assert_eq!(take_member("{}", "x"), None);
}
