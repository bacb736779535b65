use serde_json::json;

use super::super::{HandlerSpec, Manifest, ManifestError};
use super::*;

const GOOD: &str = r#"
name = "shop.items"
version = "v1"
description = "Finds items"
read_only = true
credentials = ["{input.credential|shop-key}", "plain"]

[handler.http]
method = "GET"
url = "https://api.example.com/v1/{shop}/items/{id}.json?q={query}&fixed=a'b"
query = { page = "{page}", tag = "{tags}", limit = 20, sort = "{sort|newest first}" }
headers = { Accept = "application/json", Authorization = "Bearer {credential:shop-key}", X-Trace = "t-{trace}" }

[input]
type = "object"
[input.properties]
shop = { type = "string" }
id = {}
query = { type = "string" }
page = { type = "integer" }
tags = { type = "array" }
sort = { type = "string" }
trace = { type = "string" }
credential = { type = "string" }
nested = { type = "object" }
"#;

fn parse(text: &str) -> Result<Manifest, ManifestError> {
    Manifest::parse("p.toml", text, &|_| Err("no files".into()))
}

#[track_caller]
fn spec(text: &str) -> HttpSpec {
    match parse(text).unwrap().handler {
        HandlerSpec::Http(spec) => *spec,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn refusal(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    parse(&GOOD.replace(from, to)).unwrap_err().to_string()
}

/// A POST with this body.
fn posting(body: &str) -> HttpSpec {
    let text = GOOD.replace(
        "method = \"GET\"",
        &format!("method = \"POST\"\nbody = {body}"),
    );
    spec(&text)
}

fn sent(spec: &HttpSpec, input: serde_json::Value) -> String {
    let mut input = input;
    input["shop"] = json!("s");
    input["id"] = json!(1);
    let (_, body) = spec.request(&input.to_string()).unwrap().body.unwrap();
    String::from_utf8(body.to_vec()).unwrap()
}

#[test]
fn a_request_is_filled_from_the_input() {
    let spec = spec(GOOD);
    let input = json!({"shop": "a b", "id": 7, "query": "x&y=1#z", "page": 2, "tags": ["p", "q r"], "trace": "ok"});
    let request = spec.request(&input.to_string()).unwrap();
    assert_eq!(
        request.url.as_str(),
        "https://api.example.com/v1/a%20b/items/7.json?q=x%26y%3D1%23z&fixed=a%27b&limit=20&page=2&sort=newest%20first&tag=p&tag=q%20r"
    );
    let text = |text: &str| HeaderPiece::Text(text.to_owned());
    assert_eq!(
        request.headers,
        [
            ("accept".to_owned(), vec![text("application/json")]),
            (
                "authorization".to_owned(),
                vec![text("Bearer "), HeaderPiece::Credential(0)]
            ),
            ("x-trace".to_owned(), vec![text("t-"), text("ok")]),
        ]
    );
    assert_eq!(request.body, None);
    assert_eq!(
        (spec.url.host(), spec.url.origin(), spec.url.segments()),
        ("api.example.com", "https://api.example.com/", 4)
    );
}

#[test]
fn what_is_absent_and_optional_is_left_out() {
    let request = spec(GOOD)
        .request(r#"{"shop":"s","id":true,"page":null}"#)
        .unwrap();
    assert_eq!(
        request.url.as_str(),
        "https://api.example.com/v1/s/items/true.json?fixed=a%27b&limit=20&sort=newest%20first"
    );
    assert_eq!(request.headers.len(), 2, "no trace, no header");
    let error = spec(GOOD).request(r#"{"shop":"s"}"#).unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        (
            Code::InvalidInput,
            "the URL needs \"id\" as a text, a number or a boolean"
        )
    );
    for id in ["null", "[1]", "{}"] {
        assert!(
            spec(GOOD)
                .request(&format!("{{\"shop\":\"s\",\"id\":{id}}}"))
                .is_err(),
            "{id}"
        );
    }
}

#[test]
fn all_spellings_of_a_number_make_one_request_and_no_digit_is_lost() {
    let spec = spec(GOOD);
    let url = |id: &str| {
        spec.request(&format!("{{\"shop\":\"s\",\"id\":{id}}}"))
            .unwrap()
            .url
            .path()
            .to_owned()
    };
    assert_eq!(url("100"), "/v1/s/items/100.json");
    assert_eq!((url("1e2"), url("100.0")), (url("100"), url("100")));
    assert_eq!(
        url("98765432109876543210"),
        "/v1/s/items/98765432109876543210.json"
    );
}

#[test]
fn an_input_never_leaves_its_segment() {
    let spec = spec(&GOOD.replace("/{id}.json", "/{id}/x"));
    let path = |id: &str| spec.request(&json!({"shop": "s", "id": id}).to_string());
    for (id, expected) in [
        ("a/../../b", "a%2F..%2F..%2Fb"),
        ("a?b=c", "a%3Fb%3Dc"),
        ("a#b", "a%23b"),
        ("..\\..", "..%5C.."),
        ("%2e%2e", "%252e%252e"),
        ("%2f", "%252f"),
        ("...", "..."),
        ("@evil.example", "%40evil.example"),
        ("http://evil.example", "http%3A%2F%2Fevil.example"),
        ("\r\nHost: x", "%0D%0AHost%3A%20x"),
        ("\u{ff0f}ä\0", "%EF%BC%8F%C3%A4%00"),
        ("{shop}", "%7Bshop%7D"),
    ] {
        let url = path(id).unwrap().url;
        assert_eq!(url.path(), format!("/v1/s/items/{expected}/x"), "{id}");
        assert_eq!(
            (url.host_str(), url.fragment()),
            (Some("api.example.com"), None)
        );
    }
    for id in [".", "..", ""] {
        let error = path(id).unwrap_err();
        assert_eq!(error.code(), Code::InvalidInput, "{id:?}");
        assert!(
            error.message().contains("names another resource"),
            "{error}"
        );
    }
    // Dots that only become two together with the text around them.
    let joined = super::tests::spec(&GOOD.replace("/{id}.json", "/{id}."));
    for id in [".", "%2e", ""] {
        let filled = joined.request(&json!({"shop": "s", "id": id}).to_string());
        assert_eq!(filled.is_ok(), id == "%2e", "{id:?}: {filled:?}");
    }
    assert_eq!(path(&"x".repeat(9000)).unwrap_err().code(), Code::TooLarge);
}

#[test]
fn a_header_holds_no_line_break_and_nothing_beyond_ascii() {
    for trace in ["a\r\nX-Evil: 1", "a\nb", "a\0", "ä", "a\u{7f}", "\t"] {
        let error = spec(GOOD)
            .request(&json!({"shop": "s", "id": 1, "trace": trace}).to_string())
            .unwrap_err();
        assert_eq!(error.code(), Code::InvalidInput, "{trace:?}");
        assert!(error.message().contains("\"x-trace\""), "{error}");
    }
}

#[test]
fn a_json_body_keeps_types_and_drops_what_is_absent() {
    let spec = posting(
        "{ id = \"{id}\", q = \"say {query}!\", deep = { n = \"{nested.n}\", list = [\"{tags}\", \"{query}\", 1, true] }, fix = 1.5, graph = \"a {{ b }}\" }",
    );
    assert_eq!(
        sent(
            &spec,
            json!({"query": "\"x\"", "tags": [1, {"a": null}], "nested": {"n": 12345678901234567890_u64}})
        ),
        r#"{"deep":{"list":[[1,{"a":null}],"\"x\"",1,true],"n":12345678901234567890},"fix":1.5,"graph":"a { b }","id":1,"q":"say \"x\"!"}"#
    );
    assert_eq!(
        sent(&spec, json!({})),
        r#"{"deep":{"list":[1,true]},"fix":1.5,"graph":"a { b }","id":1}"#
    );
    assert_eq!(
        sent(&posting("\"{input}\""), json!({"page": 1})),
        r#"{"id":1,"page":1,"shop":"s"}"#
    );
    assert_eq!(
        posting("\"{nested}\"")
            .request(r#"{"shop":"s","id":1}"#)
            .unwrap()
            .body,
        None
    );
}

#[test]
fn a_form_is_encoded_and_flat() {
    let form = posting(
        "{ a = \"{query}\", b = [\"{tags}\", \"x\"], n = 3, gone = \"{page}\" }\nbody_type = \"form\"",
    );
    assert_eq!(
        sent(&form, json!({"query": "1&b=2 ü", "tags": ["p", "q"]})),
        "a=1%26b%3D2%20%C3%BC&b=p&b=q&b=x&n=3"
    );
    let nested = posting("{ a = \"{nested}\" }\nbody_type = \"form\"");
    assert!(
        nested
            .request(r#"{"shop":"s","id":1,"nested":{"x":1}}"#)
            .unwrap_err()
            .message()
            .contains("nested")
    );
    assert_eq!(
        sent(
            &posting("\"{input}\"\nbody_type = \"form\""),
            json!({"page": 1})
        ),
        "id=1&page=1&shop=s"
    );
}

#[test]
fn scheme_host_and_credentials_are_fixed() {
    let url = "https://api.example.com/v1/{shop}/items/{id}.json?q={query}&fixed=a'b";
    for (to, why) in [
        (
            "{shop}://api.example.com/",
            ":10: url must begin with https://",
        ),
        ("ftp://api.example.com/", "must begin with https://"),
        ("api.example.com/x", "must be in full"),
        ("https://{shop}/", "template in its host"),
        ("https://{shop}.example.com/", "template in its host"),
        ("https://api.example.com{shop}/", "template in its host"),
        ("https://api.example.com:{id}/", "template in its host"),
        ("https://user:pass@api.example.com/", "has a user name"),
        ("https://{shop}@api.example.com/", "template in its host"),
        ("https:///x", "no host"),
        ("https://api.example.com:99999/", "no host"),
        ("https://①②⑦.⓪.⓪.①/", "odd characters"),
        ("https://ex%61mple.com/", "odd characters"),
        ("https://api.example.com\\\\{shop}", "has a '\\\\'"),
        ("https://api.example.com/a/../b", "a segment `.` or `..`"),
        ("https://api.example.com/%2E%2e/b", "a segment `.` or `..`"),
        ("https://api.example.com/a b", "percent-encoded"),
        ("https://api.example.com/a#b", "percent-encoded"),
        ("https://api.example.com/a%zz", "percent-encoded"),
        (
            "https://api.example.com/?{shop}=1",
            "name of a query parameter",
        ),
        (
            "https://api.example.com/?a{shop}=1",
            "name of a query parameter",
        ),
        ("https://api.example.com/{shpo}", "did you mean `shop`?"),
        (
            "https://api.example.com/{credential:shop-key}",
            "can stand in a header only",
        ),
    ] {
        let message = refusal(url, to);
        assert!(message.contains(why), "{to}: {message}");
    }
    assert!(
        refusal("{page}", "{credential:shop-key}")
            .contains(":11: the credential \"shop-key\" can stand in a header only")
    );
    assert!(
        refusal("{credential:shop-key}", "{credential:shop-kee}")
            .contains("did you mean `shop-key`?")
    );
    assert!(refusal("{credential:shop-key}", "{credential:plain|x}").contains("no fallback"));
    assert!(refusal("t-{trace}", "t-{credential:plain}{trcae}").contains("did you mean `trace`?"));
}

#[test]
fn what_makes_no_sense_is_refused_with_line_and_suggestion() {
    let method = "method = \"GET\"";
    for (from, to, why) in [
        (
            "url = ",
            "ulr = ",
            ":10: unknown key `ulr`; did you mean `url`?",
        ),
        (method, "method = \"get\"", ":9: \"get\" is not a method"),
        (method, "method = \"GTE\"", "did you mean `GET`?"),
        (
            method,
            "method = \"DELETE\"",
            ":9: method DELETE changes something",
        ),
        (method, "method = \"HEAD\"", "output = \"full\""),
        (method, "body = {}", ":9: a GET has no body"),
        (method, "body_type = \"json\"", "no meaning without a body"),
        (
            method,
            "method = \"POST\"\nbody = { a = { b = 1 } }\nbody_type = \"form\"",
            ":10: a form is a table",
        ),
        (
            method,
            "method = \"POST\"\nbody = { a = \"{pgae}\" }",
            "did you mean `page`?",
        ),
        (
            method,
            "method = \"POST\"\nbody = { a = \"{credential:plain}\" }",
            "can stand in a header only",
        ),
        (method, "output = \"all\"", "it is \"body\" or \"full\""),
        (method, "ok = [99]", "ok is a list"),
        (method, "ok = []", "ok is a list"),
        (method, "ok = [\"300-200\"]", "ok is a list"),
        (method, "max_response_bytes = \"1GiB\"", "over 64MiB"),
        (method, "max_response_bytes = \"0\"", "is 0"),
        ("Accept = ", "Host = ", "\"Host\" is set by the engine"),
        ("Accept = ", "accept-ENCODING = ", "is set by the engine"),
        ("Accept = ", "\"A b\" = ", "is not the name of a header"),
        ("Accept = ", "x-trace = \"1\", Accept = ", "is there twice"),
        ("t-{trace}", "t\\r\\nX: 1", "visible ASCII"),
        ("limit = 20", "limit = 2.5", "a query parameter is"),
        (
            "[handler.http]",
            "[handler]\nenv = { A = \"b\" }\n[handler.http]",
            "only for handlers of kind `command`",
        ),
        (
            "[handler.http]",
            "[handler]\nbuiltin = \"x\"\n[handler.http]",
            "exactly one of",
        ),
        (
            "[input]\n",
            "[memory]\nrevalidate = true\ncache = true\nttl = \"1s\"\n[input]\nx = 1\n",
            "",
        ),
    ] {
        if why.is_empty() {
            assert!(parse(&GOOD.replace(from, to)).is_ok());
            continue;
        }
        let message = refusal(from, to);
        assert!(message.contains(why), "{to}: {message}");
    }
    let posting = GOOD.replace(method, "method = \"POST\"");
    assert!(parse(&posting).is_ok(), "a search may be a POST");
    let revalidate = posting.replace(
        "[input]\n",
        "[memory]\nrevalidate = true\ncache = true\nttl = \"1s\"\n[input]\n",
    );
    assert!(
        parse(&revalidate)
            .unwrap_err()
            .message
            .contains("revalidate needs method GET or HEAD")
    );
}

#[test]
fn examples_are_filled_when_the_manifest_is_read() {
    let example =
        |input: &str| parse(&format!("{GOOD}\n[[examples]]\ninput = {input}\n")).map(|_| ());
    assert_eq!(example("{ shop = \"s\", id = 1 }"), Ok(()));
    let error = example("{ shop = \"s\" }").unwrap_err().to_string();
    assert!(
        error.contains("the example makes no request: the URL needs \"id\""),
        "{error}"
    );
}

#[test]
fn every_part_of_the_request_is_part_of_the_contract() {
    let base = parse(GOOD).unwrap().contract(b"");
    for (from, to) in [
        ("/v1/", "/v2/"),
        ("limit = 20", "limit = 21"),
        ("application/json", "text/plain"),
        ("\"GET\"", "\"GET\"\noutput = \"full\""),
        ("\"GET\"", "\"GET\"\nok = [200]"),
        ("\"GET\"", "\"GET\"\nmax_response_bytes = \"1MiB\""),
        ("{credential:shop-key}", "{credential:plain}"),
        ("\"GET\"", "\"POST\"\nbody = { a = 1 }"),
    ] {
        assert_ne!(
            base,
            parse(&GOOD.replace(from, to)).unwrap().contract(b""),
            "{to}"
        );
    }
}

#[test]
fn statuses_are_ranges() {
    let spec = spec(&GOOD.replace("method = \"GET\"", "ok = [200, \"202-204\", 404]"));
    let accepted: Vec<u16> = (200..600).filter(|status| spec.accepts(*status)).collect();
    assert_eq!(accepted, [200, 202, 203, 204, 404]);
}
