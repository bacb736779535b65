use super::*;

const GOOD: &str = r#"
name = "github.list_issues"
version = "v2"
description = "Lists issues"
read_only = true
credentials = ["{input.credential|github-token}"]

[handler]
builtin = "github.list_issues"
timeout = "20s"

[input]
type = "object"
required = ["repo"]
[input.properties]
repo = { type = "string" }
credential = { type = "string" }

[memory]
cache = true
ttl = "5m"
tags = ["github:{repo}"]
revalidate = true

[[examples]]
input = { repo = "a/b" }
"#;

fn parse(text: &str) -> Result<Manifest, ManifestError> {
    Manifest::parse("packs/x.toml", text, &|file| {
        if file == "in.json" {
            Ok("{\"type\":\"object\"}".into())
        } else {
            Err(format!("{file} cannot be read"))
        }
    })
}

#[test]
fn tags_of_credentials_are_the_engine_s() {
    let refused = refusal(
        "tags = [\"github:{repo}\"]",
        "tags = [\"Credential:{repo}\"]",
    );
    assert!(
        refused.starts_with("packs/x.toml:") && refused.contains("credential:"),
        "{refused}"
    );
}

fn refusal(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    parse(&GOOD.replace(from, to)).unwrap_err().to_string()
}

#[test]
fn more_tags_or_credentials_than_a_store_takes_are_refused() {
    let list = |number: usize| {
        (0..number)
            .map(|at| format!("\"t{at}:{{repo}}\""))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let good = GOOD.replace("\"github:{repo}\"", &list(16));
    assert_eq!(parse(&good).unwrap().cache().unwrap().tags.len(), 16);
    let refused = refusal("\"github:{repo}\"", &list(17));
    assert!(
        refused.starts_with("packs/x.toml:22") && refused.contains("17 tags are too many"),
        "{refused}"
    );
    let refused = refusal("\"{input.credential|github-token}\"", &list(9));
    assert!(
        refused.starts_with("packs/x.toml:6") && refused.contains("at most 8"),
        "{refused}"
    );
}

#[test]
fn a_full_manifest_is_understood() {
    let manifest = parse(GOOD).unwrap();
    assert_eq!(
        (manifest.name.as_str(), manifest.version.number()),
        ("github.list_issues", 2)
    );
    let cache = manifest.cache().unwrap();
    assert_eq!(
        (cache.ttl, cache.scope, cache.epoch, cache.max_bytes),
        (Duration::from_secs(300), Scope::Caller, 1, 1 << 20)
    );
    assert_eq!(cache.stale_for(), Duration::from_secs(86_400));
    assert_eq!(manifest.timeout, Duration::from_secs(20));
    assert_eq!(manifest.examples.len(), 1);
}

#[test]
fn unknown_keys_are_errors_with_file_line_and_suggestion() {
    assert_eq!(
        refusal("ttl = ", "tll = "),
        "packs/x.toml:21: unknown key `tll`; did you mean `ttl`?"
    );
    assert_eq!(
        refusal("ttl = \"5m\"", "ttl = \"5m\"\nno_audit = true"),
        "packs/x.toml:22: unknown key `no_audit`; `no_audit` stands at the top of the file, before the first [table]"
    );
    assert!(
        refusal("read_only = true", "readonly = true")
            .contains(":5: unknown key `readonly`; did you mean `read_only`?")
    );
}

#[test]
fn the_rules_of_gate_two_hold() {
    assert!(refusal("ttl = \"5m\"", "ttl = \"0s\"").contains(":21: ttl is 0"));
    assert!(refusal("ttl = \"5m\"\n", "").contains("needs a ttl"));
    assert!(refusal("read_only = true", "read_only = false").contains("can never be cached"));
    assert!(refusal("cache = true", "cache = false").contains("ttl has no meaning"));
    for endless in ["5 minutes", "forever", "inf", "-1s"] {
        assert!(
            refusal("ttl = \"5m\"", &format!("ttl = \"{endless}\"")).contains("is not a duration"),
            "{endless}"
        );
    }
    assert!(
        refusal("ttl = \"5m\"", "ttl = \"5m\"\nmax_ttl = \"1h\"")
            .contains("max_ttl is the limit of")
    );
    assert!(refusal("ttl = \"5m\"", "ttl = \"upstream\"\nmax_ttl = \"0s\"").contains("ttl is 0"));
    assert!(
        refusal("ttl = \"5m\"", "ttl = \"upstream\"\nrespect = \"none\"")
            .contains("write a duration")
    );
    assert!(refusal("ttl = \"5m\"", "ttl = \"5m\"\nrespect = \"nobody\"").contains("nobody"));
    assert!(refusal("revalidate = true", "invalidates = [\"x\"]").contains("read_only"));
    assert!(refusal("[memory]", "[artifacts]\nretention = \"1m\"\n[memory]").contains("retention"));
}

#[test]
fn names_versions_templates_schemas_and_examples_are_checked() {
    assert!(
        refusal("github.list_issues\"\nversion", "Github\"\nversion")
            .contains(":2: \"Github\" is not a pack name")
    );
    assert!(refusal("\"v2\"", "\"2\"").contains("is not a version"));
    assert!(refusal("github:{repo}", "github:{rep}").contains("did you mean `repo`?"));
    assert!(
        refusal("type = \"object\"", "type = \"objekt\"")
            .contains("[input]: the schema is not valid")
    );
    assert!(
        refusal("{ repo = \"a/b\" }", "{ repo = 1 }")
            .contains("the example's input does not fit [input]: at /repo")
    );
    assert!(refusal("builtin = \"github.list_issues\"", "").contains("exactly one of"));
    assert!(
        refusal(
            "builtin = \"github.list_issues\"",
            "command = [\"x\"]\nenv = { HELMDECK_MEMORY_KEY = \"x\" }"
        )
        .contains("cannot be set")
    );
    assert!(parse("name = ").unwrap_err().line.is_some());
}

#[test]
fn command_refuses_secrets_in_env_and_revalidate() {
    let plain = "name = \"a.b\"\nversion = \"v1\"\ndescription = \"x\"\nread_only = true\n[handler]\ncommand = [\"x\"]\n";
    let refused = |text: &str| parse(text).unwrap_err();
    assert!(parse(&plain.replace("[handler]", "credentials = [\"tok\"]\n[handler]")).is_ok());
    let error = refused(&format!(
        "{plain}[memory]\ncache = true\nttl = \"5m\"\nrevalidate = true\n"
    ));
    assert!(
        error.line == Some(7) && error.message.starts_with("`revalidate` has no effect"),
        "{error}"
    );
    let error = refused(&format!(
        "{plain}[memory]\ncache = true\nttl = \"upstream\"\n"
    ));
    assert!(
        error.line == Some(9) && error.message.contains("a program has no upstream"),
        "{error}"
    );
    let error = refused(&format!("{plain}env = {{ T = \"{{credential:tok}}\" }}\n"));
    assert!(
        error.line == Some(5)
            && error
                .message
                .contains("\"T\": a handler of kind `command` gets no"),
        "{error}"
    );
    let token = format!("gh{}_{}", "p", "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hJ6");
    let error = refused(&format!("{plain}env = {{ T = \"{token}\" }}\n"));
    assert!(
        error.message.contains("looks like a secret") && !error.message.contains(&token),
        "{error}"
    );
    assert!(parse(&format!("{plain}env = {{ LEVEL = \"debug\" }}\n")).is_ok());
}

#[test]
fn a_tool_of_an_mcp_server_is_named_by_server_and_tool() {
    let with = |handler: &str| refusal("builtin = \"github.list_issues\"", handler);
    let good = GOOD.replace(
        "builtin = \"github.list_issues\"",
        "mcp = { server = \"files\", tool = \"read-File\" }",
    );
    let manifest = parse(&good).unwrap();
    assert_eq!(
        manifest.handler,
        HandlerSpec::Mcp {
            server: "files".into(),
            tool: "read-File".into()
        }
    );
    assert_ne!(
        manifest.contract(b""),
        parse(&good.replace("read-File", "other"))
            .unwrap()
            .contract(b"")
    );
    assert!(
        with("mcp = { server = \"files\", tol = \"x\" }")
            .contains(":9: unknown key `tol`; did you mean `tool`?")
    );
    assert!(with("mcp = { server = \"files\" }").contains("missing key `tool`"));
    assert!(
        with("mcp = { server = \"Files\", tool = \"x\" }")
            .contains(":9: \"Files\" is not the name of an MCP server")
    );
    assert!(
        with("mcp = { server = \"f\", tool = \"x\" }\nbuiltin = \"x\"").contains("exactly one of")
    );
    assert!(
        with("mcp = { server = \"f\", tool = \"x\" }\nenv = { A = \"b\" }")
            .contains("[[mcp.servers]]")
    );
    let writes = good.replace("read_only = true", "read_only = false");
    assert!(
        parse(&writes)
            .unwrap_err()
            .message
            .contains("a pack that writes can never be cached")
    );
}

#[test]
fn schemas_may_live_in_files() {
    let text = "name = \"a.b\"\nversion = \"v1\"\ndescription = \"x\"\n[handler]\ncommand = [\"x\"]\n[input]\nfile = \"in.json\"\n";
    assert_eq!(
        parse(text).unwrap().input.source(),
        &serde_json::json!({"type": "object"})
    );
    assert!(
        parse(&text.replace("in.json", "no.json"))
            .unwrap_err()
            .message
            .contains("no.json cannot be read")
    );
}

#[test]
fn the_contract_changes_with_schema_handler_and_epoch() {
    let base = parse(GOOD).unwrap().contract(b"");
    assert_eq!(base, parse(GOOD).unwrap().contract(b""));
    for (from, to) in [
        (
            "{ type = \"string\" }\ncred",
            "{ type = \"string\", minLength = 1 }\ncred",
        ),
        ("revalidate = true", "epoch = 2"),
        ("builtin = \"github", "builtin = \"other"),
    ] {
        assert_ne!(
            base,
            parse(&GOOD.replace(from, to)).unwrap().contract(b""),
            "{to}"
        );
    }
    assert_ne!(base, parse(GOOD).unwrap().contract(b"program"));
}

#[test]
fn hints_are_read_and_must_not_contradict_read_only() {
    let manifest = parse(GOOD).unwrap();
    assert_eq!(
        (
            manifest.destructive(),
            manifest.idempotent(),
            manifest.open_world()
        ),
        (false, true, false)
    );
    let writes = GOOD
        .split("[memory]")
        .next()
        .unwrap()
        .replace("read_only = true", "title = \"T\"\nopen_world = true");
    let manifest = parse(&writes).unwrap();
    assert_eq!(
        (
            manifest.destructive(),
            manifest.idempotent(),
            manifest.open_world()
        ),
        (true, false, true)
    );
    assert_eq!(manifest.title.as_deref(), Some("T"));
    let careful = writes.replace(
        "open_world = true",
        "destructive = false\nidempotent = true",
    );
    let manifest = parse(&careful).unwrap();
    assert_eq!(
        (manifest.destructive(), manifest.idempotent()),
        (false, true)
    );
    for (hint, line) in [("destructive = true", 6), ("idempotent = false", 6)] {
        let refused = refusal("read_only = true", &format!("read_only = true\n{hint}"));
        assert!(
            refused.contains(&format!(":{line}: {hint} is for packs that write")),
            "{refused}"
        );
    }
    assert!(
        refusal("read_only = true", "read_only = true\ntitle = \" \"").contains("title is empty")
    );
}

#[test]
fn retries_need_an_idempotent_pack() {
    let with = |more: &str| {
        let text = format!("name = \"t.a\"\nversion = \"v1\"\ndescription = \"d\"\n{more}");
        Manifest::parse("a.toml", &text, &|_| Err("none".to_owned()))
    };
    let handler = "[handler]\nbuiltin = \"t.a\"\n";
    assert_eq!(
        with(&format!("idempotent = true\n{handler}[job]\nretry = 2\n"))
            .unwrap()
            .retry,
        2
    );
    assert_eq!(
        with(&format!("read_only = true\n{handler}[job]\nretry = 1\n"))
            .unwrap()
            .retry,
        1
    );
    assert_eq!(with(handler).unwrap().retry, 0);
    let error = with(&format!("{handler}[job]\nretry = 1\n")).unwrap_err();
    assert_eq!(
        (error.line, error.message.contains("idempotent = true")),
        (Some(7), true),
        "{error}"
    );
    let error = with(&format!("read_only = true\n{handler}[job]\nretry = 11\n")).unwrap_err();
    assert!(error.message.contains("at most 10"), "{error}");
    let error = with(&format!("{handler}[job]\nrety = 1\n")).unwrap_err();
    assert!(error.message.contains("did you mean `retry`"), "{error}");
}

#[test]
fn schedule_has_times_and_a_valid_input() {
    let with = |more: &str| {
        let text = format!(
            "name = \"t.a\"\nversion = \"v1\"\ndescription = \"d\"\n[handler]\nbuiltin = \"t.a\"\n[input]\ntype = \"object\"\n\
             required = [\"n\"]\n[input.properties]\nn = {{ type = \"integer\" }}\n{more}"
        );
        Manifest::parse("a.toml", &text, &|_| Err("none".to_owned()))
    };
    let schedule = with("[schedule]\nevery = \"1h\"\ninput = { n = 1 }\n")
        .unwrap()
        .schedule
        .unwrap();
    assert_eq!(
        (schedule.input.as_str(), schedule.timing),
        ("{\"n\":1}", Timing::every("1h").unwrap())
    );
    for (wrong, line, why) in [
        (
            "[schedule]\ninput = { n = 1 }\n",
            11,
            "exactly one of `every` and `cron`",
        ),
        (
            "[schedule]\nevery = \"1h\"\ncron = \"0 3 * * *\"\ninput = { n = 1 }\n",
            11,
            "exactly one of",
        ),
        (
            "[schedule]\ncron = \"0 33 * * *\"\ninput = { n = 1 }\n",
            12,
            "hour \"33\"",
        ),
        (
            "[schedule]\nevery = \"1h\"\ninput = { n = \"x\" }\n",
            13,
            "the schedule's input does not fit [input]: at /n",
        ),
        (
            "[schedule]\nevery = \"1h\"\n",
            11,
            "the schedule's input does not fit [input]",
        ),
    ] {
        let error = with(wrong).unwrap_err();
        assert_eq!(
            (error.line, error.message.contains(why)),
            (Some(line), true),
            "{error}"
        );
    }
}
