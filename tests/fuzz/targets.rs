//! What is fuzzed: functions that take any bytes and panic if something that must hold does not.
//!
//! One file for both who run them: `fuzz/` with libFuzzer, and the tests here with the seeds and
//! with mutations of them.

#[path = "json_rpc.rs"]
pub mod json_rpc;
#[path = "schema.rs"]
pub mod schema;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::body::Body;
use helmdeck_core::manifest::HandlerSpec;
use helmdeck_core::manifest::http::{HeaderPiece, HttpSpec};
use helmdeck_core::{Code, Json, Manifest, Reply};
use helmdeck_egress::{Egress, refused_kind};
use helmdeck_engine::Engine;
use helmdeck_server::{Server, ServerConfig};
use helmdeck_testkit::{ManualClock, function, manifest as manifest_of, memory, patient};
use http::{HeaderName, HeaderValue, Method, Request, Response};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tower::ServiceExt;
use url::{Host, Url};

/// A function that takes anything.
pub type Target = fn(&[u8]);

/// Every target by its name.
pub const TARGETS: &[(&str, Target)] = &[
    ("rest", rest),
    ("json_rpc", json_rpc::json_rpc),
    ("manifest", manifest),
    ("url_guard", url_guard),
    ("template", template),
    ("schema", schema::schema),
];

/// The real router over an engine with two small packs and a store in memory.
struct Fixture {
    runtime: Runtime,
    engine: Engine,
    router: Router,
}

thread_local! {
    // Tests of one process run in threads: what one sends must not change what another gets.
    // Leaked, because a runtime cannot be dropped while its thread ends.
    static FIXTURE: &'static Fixture = Box::leak(Box::new(make()));
}

/// Returns the fixture of this thread.
fn fixture() -> &'static Fixture {
    FIXTURE.with(|fixture| *fixture)
}

fn make() -> Fixture {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (engine, router) = runtime.block_on(async {
        let input = "[input]\ntype = \"object\"\nadditionalProperties = false\n[input.properties]\nrepo = { type = \"string\", maxLength = 20 }\nn = { type = \"number\", default = 1 }\nlist = { type = \"array\", items = { type = \"integer\" } }\n";
        let cached = format!("{input}[memory]\ncache = true\nttl = \"5m\"\ntags = [\"repo:{{repo}}\"]");
        let echo = |_, input: Json| async move { Ok(Reply::json(input)) };
        // An unusual spelling: it shows whether an answer was parsed on its way out.
        let write = |_, input: Json| async move { Ok(Reply::json(Json::parse(format!("{{\"ran\": 1.50, \"input\": {}}}", input.as_str())).unwrap())) };
        let packs = vec![
            function(&manifest_of("fuzz.cached", "read_only = true", &cached), echo).0,
            function(&manifest_of("fuzz.write", "read_only = false", input), write).0,
            function(&manifest_of("fuzz.long", "async = true", input), write).0,
        ];
        let clock = Arc::new(ManualClock::default());
        let engine = Engine::builder(patient())
            .builtins(packs)
            .memory(memory(Arc::clone(&clock) as _).await)
            .clock(Arc::clone(&clock) as _)
            .build();
        assert!(engine.refused().is_empty(), "{:?}", engine.refused());
        (engine.clone(), Server::new(engine, ServerConfig::default()).clock(clock).router())
    });
    Fixture {
        runtime,
        engine,
        router,
    }
}

/// A request to the REST transport, spelled like HTTP: `METHOD path`, lines of headers, an empty
/// line, the body. What HTTP itself does not allow is refused before us and skipped here.
pub fn rest(data: &[u8]) {
    rest_status(data);
}

/// Does what [`rest`] does, and returns the status; `None` if it was no request.
pub fn rest_status(data: &[u8]) -> Option<u16> {
    let (head, body) = split(data, b"\n\n");
    let head = String::from_utf8_lossy(head);
    let mut lines = head.lines();
    let (method, path) = lines
        .next()
        .unwrap_or_default()
        .split_once(' ')
        .unwrap_or_default();
    let method = Method::from_bytes(method.as_bytes()).ok()?;
    let mut request = Request::builder().method(method).uri(path);
    let mut with_host = false;
    for line in lines {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        let (Ok(name), Ok(value)) = (
            HeaderName::from_bytes(name.trim().as_bytes()),
            HeaderValue::from_str(value.trim()),
        ) else {
            continue;
        };
        with_host |= name == http::header::HOST;
        request = request.header(name, value);
    }
    if !with_host {
        request = request.header("host", "localhost");
    }
    send(request.body(Body::from(body.to_vec())).ok()?)
}

/// Sends a request to the router.
///
/// The answer is never a 500, and its body matches its media type.
fn send(request: Request<Body>) -> Option<u16> {
    let shown = format!("{} {}", request.method(), request.uri());
    let head = request.method() == Method::HEAD;
    let fixture = fixture();
    let answer = fixture.runtime.block_on(async {
        let response = fixture.router.clone().oneshot(request).await.unwrap();
        let endless = media_type(&response) == "text/event-stream";
        let (parts, body) = response.into_parts();
        // A stream ends when its client goes, which is now.
        let body = if endless {
            None
        } else {
            Some(axum::body::to_bytes(body, 64 << 20).await.unwrap())
        };
        (Response::from_parts(parts, ()), body)
    });
    let (response, body) = answer;
    let status = response.status().as_u16();
    let Some(body) = body else {
        return Some(status);
    };
    assert_ne!(status, 500, "{shown}: {}", String::from_utf8_lossy(&body));
    let media_type = media_type(&response);
    if head {
        assert!(body.is_empty(), "{shown}: HEAD with a body");
        return Some(status);
    }
    if media_type.ends_with("json") {
        let value: Value =
            serde_json::from_slice(&body).unwrap_or_else(|error| panic!("{shown}: {error}"));
        if media_type == "application/problem+json" {
            check_problem(status, &value, &shown);
            return Some(status);
        }
    }
    // JSON-RPC has separate errors, and the pages show theirs; all other transports report problems
    // in one form.
    let page = shown.contains("/ui") && media_type == "text/html";
    assert!(
        status < 400 || shown.contains("/mcp") || page,
        "{shown}: {status} as {media_type}"
    );
    Some(status)
}

fn check_problem(status: u16, value: &Value, shown: &str) {
    assert_eq!(value["status"], status, "{shown}");
    let code = value["code"].as_str().unwrap_or_default();
    assert!(
        Code::ALL.iter().any(|known| known.as_str() == code),
        "{shown}: {value}"
    );
    assert!(
        value["detail"].is_string() && value["title"].is_string(),
        "{shown}: {value}"
    );
}

fn media_type<T>(response: &Response<T>) -> String {
    let text = response
        .headers()
        .get(http::header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    text.unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// A manifest: it is read or refused with its place, and what was read can be used.
pub fn manifest(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let read_file = |name: &str| match name {
        "in.json" => Ok("{\"type\":\"object\"}".to_owned()),
        _ => Err(format!("{name:?} cannot be read")),
    };
    match Manifest::parse("fuzz.toml", text, &read_file) {
        Err(error) => {
            let lines = text.split('\n').count();
            assert!(
                error.line.is_none_or(|line| (1..=lines).contains(&line)),
                "{error}"
            );
            assert!(!error.message.trim().is_empty());
        }
        Ok(manifest) => {
            assert_eq!(manifest.contract(b""), manifest.contract(b""));
            assert!(!manifest.timeout.is_zero());
            if let Some(cache) = manifest.cache() {
                assert!(manifest.read_only && !cache.ttl.is_zero());
            }
            if let HandlerSpec::Http(spec) = &manifest.handler {
                for example in manifest
                    .examples
                    .iter()
                    .map(|example| &example.input)
                    .chain([&json!({})])
                {
                    if let Ok(request) = spec.request(&example.to_string()) {
                        assert_structure(spec, &request.url);
                    }
                }
            }
        }
    }
}

/// Checks a URL, or 16 bytes of an address, against the guard.
///
/// What passes the guard must be public by a second, independent check.
pub fn url_guard(data: &[u8]) {
    static GUARD: LazyLock<Egress> =
        LazyLock::new(|| Egress::new(helmdeck_egress::Config::default()));
    if let Ok(bytes) = <[u8; 16]>::try_from(data) {
        let v6 = Ipv6Addr::from(bytes);
        let v4 = Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]);
        for address in [
            IpAddr::V6(v6),
            IpAddr::V4(v4),
            IpAddr::V6(v4.to_ipv6_mapped()),
            IpAddr::V6(v4.to_ipv6_compatible()),
        ] {
            assert!(
                refused_kind(address).is_some() || is_public(address),
                "{address}"
            );
            let host = if address.is_ipv6() {
                format!("[{address}]")
            } else {
                address.to_string()
            };
            let url = Url::parse(&format!("http://{host}/")).unwrap();
            assert_eq!(
                GUARD.check_url(&url).is_ok(),
                refused_kind(address).is_none(),
                "{address}"
            );
        }
    }
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(url) = Url::parse(text) else { return };
    if GUARD.check_url(&url).is_err() {
        return;
    }
    assert!(matches!(url.scheme(), "http" | "https"), "{url}");
    let host = url.host_str().unwrap();
    match host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<IpAddr>()
    {
        Ok(address) => assert!(is_public(address), "{url}"),
        // The resolver of a system reads some names as addresses; none of those may pass as a name.
        Err(_) => assert_eq!(as_the_c_library_reads(host), None, "{url}"),
    }
    assert!(
        matches!(url.host(), Some(Host::Domain(name)) if !name.is_empty())
            || host.parse::<IpAddr>().is_ok()
            || host.starts_with('[')
    );
}

/// Says whether an address is public, by the standard library and by the text of the registries;
/// another list than the guard's.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, ..] = v4.octets();
            let special = v4.is_unspecified()
                || v4.is_loopback()
                || v4.is_private()
                || v4.is_link_local()
                || v4.is_multicast()
                || v4.is_broadcast()
                || v4.is_documentation();
            !special
                && a != 0
                && a < 240
                && !(a == 100 && (64..128).contains(&b))
                && !(a == 198 && (18..20).contains(&b))
        }
        IpAddr::V6(v6) => {
            let parts = v6.segments();
            let joined = |high: u16, low: u16| {
                IpAddr::V4(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)))
            };
            let inner = match parts {
                [0, 0, 0, 0, 0, 0xffff, high, low]
                | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
                | [0x2002, high, low, ..] => Some(joined(high, low)),
                _ => v6.to_ipv4().map(IpAddr::V4),
            };
            let special = v6.is_unspecified()
                || v6.is_loopback()
                || v6.is_multicast()
                || v6.is_unique_local()
                || v6.is_unicast_link_local()
                || parts[0] & 0xffc0 == 0xfec0;
            !special && inner.is_none_or(is_public)
        }
    }
}

/// Reads a host as `inet_aton` does.
///
/// It takes one to four numbers, decimal, octal or hexadecimal, and a final dot.
fn as_the_c_library_reads(host: &str) -> Option<u64> {
    let number = |part: &str| {
        let lower = part.to_ascii_lowercase();
        match lower.strip_prefix("0x") {
            Some("") => Some(0),
            // No sign, which Rust takes and C doesn't.
            Some(hex) if hex.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                u64::from_str_radix(hex, 16).ok()
            }
            Some(_) => None,
            None if lower.len() > 1 && lower.starts_with('0') => {
                u64::from_str_radix(&lower, 8).ok()
            }
            None if lower.bytes().all(|byte| byte.is_ascii_digit()) => lower.parse().ok(),
            None => None,
        }
    };
    let parts: Vec<u64> = host
        .strip_suffix('.')
        .unwrap_or(host)
        .split('.')
        .map(number)
        .collect::<Option<_>>()?;
    let (last, first) = parts.split_last()?;
    let fits = first.len() < 4
        && first.iter().all(|part| *part < 256)
        && *last < 1 << (8 * (4 - first.len()));
    fits.then(|| {
        first
            .iter()
            .rev()
            .enumerate()
            .fold(*last, |sum, (index, part)| {
                sum | part << (8 * (4 - first.len() + index))
            })
    })
}

/// The first byte chooses: an even one puts the rest as values into a request that is fixed, an odd
/// one takes it as a URL template and puts hostile values into it.
pub fn template(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else {
        return;
    };
    if first % 2 == 0 {
        values(rest)
    } else {
        url_template(rest)
    }
}

const FIXED: &str = r#"
name = "fuzz.template"
version = "v1"
description = "x"
credentials = ["key"]
[handler.http]
method = "POST"
url = "https://api.example.com:8443/a/{one}/x-{two}.json?fixed=1&q={three}"
query = { more = "{four}", list = "{list}" }
headers = { X-One = "v {one}", Authorization = "Bearer {credential:key}" }
body = { one = "{one}", list = ["{list}"], text = "<{two}>" }
[input]
[input.properties]
one = {}
two = {}
three = {}
four = {}
list = {}
"#;

fn spec_of(text: &str) -> Option<HttpSpec> {
    match Manifest::parse("fuzz.toml", text, &|_| Err(String::new()))
        .ok()?
        .handler
    {
        HandlerSpec::Http(spec) => Some(*spec),
        _ => None,
    }
}

fn values(data: &[u8]) {
    static SPEC: LazyLock<HttpSpec> = LazyLock::new(|| spec_of(FIXED).unwrap());
    let text = String::from_utf8_lossy(data);
    let parts: Vec<&str> = text.split('\u{1e}').collect();
    let part = |index: usize| parts.get(index).copied().unwrap_or("x");
    let input = json!({"one": part(0), "two": part(1), "three": part(2), "four": part(3), "list": &parts[parts.len().min(4)..]});
    let Ok(request) = SPEC.request(&input.to_string()) else {
        return;
    };
    assert_structure(&SPEC, &request.url);
    let decoded: Vec<String> = request.url.path_segments().unwrap().map(decode).collect();
    assert_eq!(decoded, ["a", part(0), &format!("x-{}.json", part(1))]);
    let pairs: Vec<(String, String)> = request
        .url
        .query_pairs()
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    let mut expected = vec![("fixed", "1"), ("q", part(2))];
    expected.extend(parts.iter().skip(4).map(|item| ("list", *item)));
    expected.push(("more", part(3)));
    assert!(
        pairs
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .eq(expected),
        "{pairs:?}"
    );
    let texts: Vec<&HeaderPiece> = request
        .headers
        .iter()
        .flat_map(|(_, pieces)| pieces)
        .collect();
    assert!(texts.contains(&&HeaderPiece::Credential(0)) && request.headers.len() == 2);
    for piece in texts {
        let HeaderPiece::Text(text) = piece else {
            continue;
        };
        assert!(
            text.bytes()
                .all(|byte| byte == b' ' || byte.is_ascii_graphic()),
            "{text:?}"
        );
    }
    let (_, body) = request.body.unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        body,
        json!({"one": part(0), "list": [input["list"]], "text": format!("<{}>", part(1))})
    );
}

fn url_template(data: &[u8]) {
    let Ok(url) = std::str::from_utf8(data) else {
        return;
    };
    let quoted = Value::from(url).to_string();
    // JSON and TOML write such texts alike, but for one character.
    let quoted = quoted.replace('\u{7f}', "\\u007f");
    let text = format!(
        "name = \"fuzz.template\"\nversion = \"v1\"\ndescription = \"x\"\n[handler.http]\nurl = {quoted}\n[input.properties]\na = {{}}\nb = {{}}\n"
    );
    let Some(spec) = spec_of(&text) else { return };
    for hostile in [
        "..",
        ".",
        "",
        "%2e",
        "/",
        "a/../../b",
        "?x=1",
        "#f",
        "@evil.test",
        "\\",
        "\r\n",
        ":80",
        "\u{ff0e}",
        "&c=d",
    ] {
        for input in [json!({"a": hostile, "b": hostile}), json!({"a": hostile})] {
            if let Ok(request) = spec.request(&input.to_string()) {
                assert_structure(&spec, &request.url);
            }
        }
    }
}

/// Whatever the input was, the request goes where the manifest says.
fn assert_structure(spec: &HttpSpec, url: &Url) {
    let origin = Url::parse(spec.url.origin()).unwrap();
    assert_eq!(url.origin(), origin.origin(), "{url}");
    assert_eq!(url.host_str(), Some(spec.url.host()), "{url}");
    assert_eq!(
        url.path_segments().unwrap().count(),
        spec.url.segments(),
        "{url} of {}",
        spec.url.source()
    );
    assert!(
        url.username().is_empty() && url.password().is_none() && url.fragment().is_none(),
        "{url}"
    );
}

fn decode(text: &str) -> String {
    // The query of a form decodes `+` too, which a path does not have: it is encoded there.
    let query = format!("x={}", text.replace('+', "%2B"));
    url::form_urlencoded::parse(query.as_bytes())
        .next()
        .map(|(_, value)| value.into_owned())
        .unwrap_or_default()
}

fn split<'a>(data: &'a [u8], at: &[u8]) -> (&'a [u8], &'a [u8]) {
    match data.windows(at.len()).position(|window| window == at) {
        Some(found) => (&data[..found], &data[found + at.len()..]),
        None => (data, &[]),
    }
}
