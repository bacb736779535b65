//! Rules for a token, one test per rule.

use helmdeck_testkit::Issuer;
use serde_json::json;

use super::*;

const NOW: i64 = 1_800_000_000;

fn rules() -> Rules {
    Rules {
        issuer: Some("https://issuer.example".to_owned()),
        audience: vec!["helmdeck".to_owned(), "other-name".to_owned()],
        tenant_claim: "tenant".to_owned(),
        session_claim: "session_id".to_owned(),
        leeway: Duration::from_secs(30),
    }
}

fn claims() -> Value {
    json!({
        "iss": "https://issuer.example", "aud": "helmdeck", "sub": "alice", "tenant": "acme",
        "iat": NOW - 10, "nbf": NOW - 10, "exp": NOW + 600, "scope": "packs:run memory:read openid",
    })
}

/// Returns the tenant and user of changed claims, or why they are refused.
fn read(rules: &Rules, name: &str, value: Value) -> Result<(String, String), &'static str> {
    let mut claims = claims();
    if value.is_null() {
        claims.as_object_mut().unwrap().remove(name);
    } else {
        claims[name] = value;
    }
    let (caller, _) = rules
        .caller(claims.as_object().unwrap(), Timestamp(NOW * 1_000_000))
        .map_err(|reason| reason.0)?;
    Ok((
        caller.identity.tenant().to_owned(),
        caller.identity.user().to_owned(),
    ))
}

#[test]
fn good_claims_say_who_and_what() {
    let (caller, ends) = rules()
        .caller(claims().as_object().unwrap(), Timestamp(NOW * 1_000_000))
        .unwrap();
    assert_eq!(
        (
            caller.identity.tenant(),
            caller.identity.user(),
            caller.identity.session()
        ),
        ("acme", "alice", None)
    );
    assert!(!caller.identity.is_anonymous());
    assert_eq!(caller.permissions.to_scope(), "packs:run memory:read");
    assert_eq!(ends, Timestamp((NOW + 630) * 1_000_000));
}

#[test]
fn times_are_checked_with_leeway() {
    let rules = rules();
    let read = |name, value| read(&rules, name, value).map(drop);
    for (name, good, bad) in [
        ("exp", NOW - 29, NOW - 30),
        ("nbf", NOW + 30, NOW + 31),
        ("iat", NOW + 30, NOW + 31),
    ] {
        assert_eq!(read(name, json!(good)), Ok(()), "{name}");
        assert!(read(name, json!(bad)).is_err(), "{name}");
        for nonsense in [
            json!("1800000600"),
            json!(-1),
            json!(1e300),
            json!([]),
            json!(true),
        ] {
            assert_eq!(
                read(name, nonsense),
                Err("one of its times is not a number of seconds"),
                "{name}"
            );
        }
    }
    assert_eq!(read("exp", json!(NOW as f64 + 0.5)), Ok(()));
    assert_eq!(read("exp", Value::Null), Err("it has no end (exp)"));
    assert_eq!(read("exp", json!(NOW - 3600)), Err("it has expired"));
    assert_eq!(
        (read("nbf", Value::Null), read("iat", Value::Null)),
        (Ok(()), Ok(()))
    );
}

#[test]
fn issuer_and_audience_must_match() {
    let rules = rules();
    for (name, value) in [
        ("iss", Value::Null),
        ("iss", json!("https://evil.example")),
        ("iss", json!(["https://issuer.example"])),
        ("aud", Value::Null),
        ("aud", json!("helmdeck.evil.example")),
        ("aud", json!(["a", "b"])),
        ("aud", json!([])),
        ("aud", json!({"helmdeck": true})),
    ] {
        assert!(read(&rules, name, value.clone()).is_err(), "{name} {value}");
    }
    assert!(read(&rules, "aud", json!(["a", "other-name"])).is_ok());
    // A server without a name accepts only tokens without an audience.
    let nameless = Rules {
        audience: Vec::new(),
        issuer: None,
        ..rules
    };
    assert!(read(&nameless, "aud", json!("helmdeck")).is_err());
    assert!(read(&nameless, "aud", Value::Null).is_ok());
}

#[test]
fn token_must_name_valid_subject_and_tenant() {
    let rules = rules();
    assert_eq!(
        read(&rules, "sub", Value::Null),
        Err("it names nobody (sub)")
    );
    assert_eq!(
        read(&rules, "tenant", Value::Null),
        Ok(("default".to_owned(), "alice".to_owned()))
    );
    for (name, value) in [
        ("sub", json!("")),
        ("sub", json!(7)),
        ("sub", json!("a\u{0}b")),
        ("sub", json!("x".repeat(257))),
        ("tenant", json!("")),
        ("tenant", json!(["acme"])),
        ("tenant", json!("a\nb")),
        ("scope", json!(7)),
    ] {
        assert!(read(&rules, name, value.clone()).is_err(), "{name} {value}");
    }
    let named = Rules {
        tenant_claim: "https://issuer.example/tenant".to_owned(),
        ..rules
    };
    assert_eq!(
        read(&named, "https://issuer.example/tenant", json!("b")),
        Ok(("b".to_owned(), "alice".to_owned()))
    );
    assert_eq!(
        read(&named, "tenant", json!("b")),
        Ok(("default".to_owned(), "alice".to_owned()))
    );
}

#[test]
fn session_claim_names_the_session() {
    let read = |claims: &Value| {
        let claims = claims.as_object().unwrap();
        let now = Timestamp(0).saturating_add(Duration::from_secs(NOW.unsigned_abs()));
        rules()
            .caller(claims, now)
            .map(|(caller, _)| caller.identity.session().map(str::to_owned))
            .map_err(|reason| reason.0)
    };
    let with = |value: Value| {
        let mut claims = claims();
        claims["session_id"] = value;
        read(&claims)
    };
    assert_eq!(
        with(json!("conversation-1")),
        Ok(Some("conversation-1".to_owned()))
    );
    assert_eq!(read(&claims()), Ok(None));
    for wrong in [json!(7), json!(""), json!("a\nb"), json!("x".repeat(257))] {
        assert!(with(wrong.clone()).is_err(), "{wrong}");
    }
}

fn open(header: &str) -> Result<Algorithm, &'static str> {
    let token = Issuer::shared(&[7; 32]).token_of(header, "{}");
    Unverified::open(&token)
        .map(|token| token.algorithm)
        .map_err(|reason| reason.0)
}

#[test]
fn unusual_token_headers_are_refused() {
    assert_eq!(open(r#"{"alg":"HS256"}"#), Ok(Algorithm::HS256));
    assert_eq!(
        open(r#"{"alg":"EdDSA","typ":"at+jwt","kid":"a"}"#),
        Ok(Algorithm::EdDSA)
    );
    assert_eq!(
        open(r#"{"alg":"ES256","typ":"application/at+JWT"}"#),
        Ok(Algorithm::ES256)
    );
    for header in [
        r#"{"alg":"none"}"#,
        r#"{"alg":"None"}"#,
        r#"{"alg":""}"#,
        r#"{"alg":"hs256"}"#,
        r#"{"alg":"HS512"}"#,
        r#"{"alg":"RS512"}"#,
        r#"{"alg":"PS256"}"#,
        r#"{"alg":["HS256"]}"#,
        "{}",
        r#"{"alg":"none","alg":"HS256"}"#,
        r#"{"alg":"HS256","alg":"none"}"#,
        r#"{"alg":"HS256","crit":["exp"]}"#,
        r#"{"alg":"HS256","crit":[]}"#,
        r#"{"alg":"HS256","b64":false,"crit":["b64"]}"#,
        r#"{"alg":"HS256","typ":"logout+jwt"}"#,
        r#"{"alg":"HS256","typ":7}"#,
        r#"{"alg":"HS256","kid":7}"#,
        r#"{"alg":"HS256","kid":{"a":1}}"#,
        "[]",
        "null",
        "",
    ] {
        assert!(open(header).is_err(), "{header}");
    }
}

#[test]
fn malformed_tokens_are_refused() {
    let good = Issuer::shared(&[7; 32]).token(&claims());
    let parts: Vec<_> = good.split('.').collect();
    for bad in [
        String::new(),
        ".".to_owned(),
        "..".to_owned(),
        parts[0].to_owned(),
        format!("{}.{}", parts[0], parts[1]),
        format!("{good}.x"),
        format!(".{good}"),
        format!("{}=.{}.{}", parts[0], parts[1], parts[2]),
        format!("+{}.{}.{}", parts[0], parts[1], parts[2]),
    ] {
        let key = DecodingKey::from_secret(&[7; 32]);
        assert!(
            Unverified::open(&bad)
                .and_then(|token| token.verify(&key))
                .is_err(),
            "{bad}"
        );
    }
}

#[test]
fn changed_token_or_other_key_does_not_verify() {
    let issuer = Issuer::shared(&[7; 32]);
    let token = issuer.token(&claims());
    let key = DecodingKey::from_secret(&[7; 32]);
    assert!(Unverified::open(&token).unwrap().verify(&key).is_ok());
    assert!(
        Unverified::open(&token)
            .unwrap()
            .verify(&DecodingKey::from_secret(&[8; 32]))
            .is_err()
    );
    let (head, signature) = token.rsplit_once('.').unwrap();
    for bad in [
        format!("{head}."),
        format!("{head}.{}", &signature[..42]),
        format!("{head}.{signature}A"),
    ] {
        assert!(
            Unverified::open(&bad).unwrap().verify(&key).is_err(),
            "{bad}"
        );
    }
    // The claims of one token under the signature of another.
    let mut others = claims();
    others["sub"] = "mallory".into();
    let other = issuer.token(&others);
    let mixed = format!("{}.{signature}", other.rsplit_once('.').unwrap().0);
    assert!(Unverified::open(&mixed).unwrap().verify(&key).is_err());
    // Claims that two parsers could read differently.
    let twice = issuer.token_of(r#"{"alg":"HS256"}"#, r#"{"sub":"alice","sub":"root"}"#);
    assert!(Unverified::open(&twice).unwrap().verify(&key).is_err());
}
