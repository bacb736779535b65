use super::*;
use serde_json::json;

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "repo": {"type": "string"},
            "number": {"type": "integer"},
            "ratio": {"type": "number"},
            "draft": {"type": "boolean"},
            "labels": {"type": "array", "items": {"type": "string"}},
            "ids": {"type": "array", "items": {"type": "integer"}},
            "body": {"type": ["string", "null"]},
            "since": {"type": ["integer", "string"]},
            "page": {"type": "object", "properties": {"size": {"type": "integer"}, "by": {"type": "string"}}},
            "a.b": {"type": "integer"},
            "free": {},
            "state": {"enum": ["open", "closed", 5]},
            "states": {"type": "array", "items": {"enum": ["open", "closed"]}},
        },
        "additionalProperties": false,
    })
}

fn env() -> ProcessEnvironment {
    ProcessEnvironment::of(&[])
}

fn input(pairs: &[&str]) -> String {
    of_pairs(
        &schema(),
        &pairs
            .iter()
            .map(|pair| (*pair).to_owned())
            .collect::<Vec<_>>(),
        &env(),
    )
    .unwrap()
}

fn refusal(pair: &str) -> Failure {
    of_pairs(&schema(), &[pair.to_owned()], &env()).unwrap_err()
}

#[test]
fn values_get_the_types_of_the_schema() {
    for (pair, expected) in [
        ("repo=123", r#"{"repo":"123"}"#),
        ("repo=true", r#"{"repo":"true"}"#),
        ("repo={}", r#"{"repo":"{}"}"#),
        ("repo=a=b", r#"{"repo":"a=b"}"#),
        ("repo=", r#"{"repo":""}"#),
        ("repo=\"q\"", r#"{"repo":"\"q\""}"#),
        ("number=9007199254740993", r#"{"number":9007199254740993}"#),
        (
            "number=123456789012345678901234567890",
            r#"{"number":123456789012345678901234567890}"#,
        ),
        ("number=1.5e1", r#"{"number":1.5e1}"#),
        ("number=-1", r#"{"number":-1}"#),
        ("number=1.0", r#"{"number":1.0}"#),
        ("ratio=1.50", r#"{"ratio":1.50}"#),
        ("draft=false", r#"{"draft":false}"#),
        ("body=text", r#"{"body":"text"}"#),
        ("body=null", r#"{"body":null}"#),
        ("since=5", r#"{"since":5}"#),
        ("since=5d", r#"{"since":"5d"}"#),
        ("free=5", r#"{"free":5}"#),
        ("free=five", r#"{"free":"five"}"#),
        ("a.b=1", r#"{"a.b":1}"#),
        ("_session_id=17", r#"{"_session_id":"17"}"#),
    ] {
        assert_eq!(input(&[pair]), expected, "{pair}");
    }
}

#[test]
fn arrays_are_repeated_separated_by_commas_or_json() {
    assert_eq!(
        input(&["labels=a,b", "labels=c"]),
        r#"{"labels":["a","b","c"]}"#
    );
    assert_eq!(input(&["labels=1"]), r#"{"labels":["1"]}"#);
    assert_eq!(input(&["labels=[\"a,b\"]"]), r#"{"labels":["a,b"]}"#);
    assert_eq!(input(&["labels="]), r#"{"labels":[]}"#);
    assert_eq!(input(&["ids=1,2"]), r#"{"ids":[1,2]}"#);
    assert_eq!(refusal("ids=1,x").message(), "ids must be an integer");
}

#[test]
fn objects_are_built_member_by_member_or_json() {
    assert_eq!(
        input(&["page.size=10", "page.by=5"]),
        r#"{"page":{"by":"5","size":10}}"#
    );
    assert_eq!(input(&["page={\"size\":1}"]), r#"{"page":{"size":1}}"#);
    let twice = of_pairs(
        &schema(),
        &["page={}".to_owned(), "page.size=1".to_owned()],
        &env(),
    )
    .unwrap_err();
    assert!(twice.message().contains("twice"), "{}", twice.message());
    assert!(refusal("page=x").text().contains("page.member=value"));
}

#[test]
fn raw_json_goes_in_as_it_is_even_for_unknown_keys() {
    assert_eq!(
        input(&["repo:=null", "new:={\"a\":1.0}"]),
        r#"{"new":{"a":1.0},"repo":null}"#
    );
    assert!(refusal("repo:=nope").message().contains("takes JSON"));
}

#[test]
fn slips_are_answered_with_what_would_be_right() {
    assert_eq!(
        refusal("numbr=1").message(),
        "the pack takes no \"numbr\"; did you mean \"number\"?"
    );
    assert!(
        refusal("zzzzzzzz=1")
            .text()
            .contains("it takes a.b, body, draft")
    );
    assert_eq!(
        refusal("page.sise=1").message(),
        "the pack takes no \"page.sise\"; did you mean \"size\"?"
    );
    assert_eq!(refusal("number=ten").message(), "number must be an integer");
    assert_eq!(refusal("number=1.5").message(), "number must be an integer");
    assert_eq!(
        refusal("number=15e-1").message(),
        "number must be an integer"
    );
    assert_eq!(
        refusal("draft=yes").message(),
        "draft must be true or false"
    );
    assert!(refusal("lonely").message().contains("is not key=value"));
    assert!(refusal("=x").message().contains("no key"));
    let twice = of_pairs(
        &schema(),
        &["repo=a".to_owned(), "repo=b".to_owned()],
        &env(),
    )
    .unwrap_err();
    assert_eq!(twice.message(), "repo is given twice");
}

#[test]
fn a_pack_without_a_schema_takes_everything() {
    let pairs = ["x=1".to_owned(), "y.z=a".to_owned()];
    assert_eq!(
        of_pairs(&json!(true), &pairs, &env()).unwrap(),
        r#"{"x":1,"y":{"z":"a"}}"#
    );
}

#[test]
fn listed_values_are_named_in_errors() {
    assert_eq!(
        input(&["state=open", "states=open,closed"]),
        r#"{"state":"open","states":["open","closed"]}"#
    );
    assert_eq!(input(&["state=5"]), r#"{"state":5}"#);
    assert_eq!(
        refusal("state=opne").message(),
        "state must be one of open, closed, 5; did you mean \"open\"?"
    );
    assert_eq!(
        refusal("states=open,zzzzzz").message(),
        "states must be one of open, closed"
    );
}

#[test]
fn text_and_json_come_from_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    std::fs::write(&path, "{\"a\":1.0}\n").unwrap();
    let (text, json) = (
        format!("repo=@{}", path.display()),
        format!("page:=@{}", path.display()),
    );
    assert_eq!(
        input(&[&text, &json]),
        r#"{"page":{"a":1.0},"repo":"{\"a\":1.0}\n"}"#
    );
    let member = format!("page.by=@{}", path.display());
    assert_eq!(input(&[&member]), r#"{"page":{"by":"{\"a\":1.0}\n"}}"#);
    assert_eq!(input(&["repo=@@me"]), r#"{"repo":"@me"}"#);
    let number = folder.path().join("number");
    std::fs::write(&number, "5\n").unwrap();
    let limit = format!("number=@{}", number.display());
    assert_eq!(input(&[&limit]).replace('\n', ""), r#"{"number":5}"#);
}
