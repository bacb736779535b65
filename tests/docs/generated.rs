//! Tables of `docs/` that are made from the code.
//!
//! A page has them between `<!-- generated -->` and `<!-- end -->`. If a table is out of step, the
//! test writes the page as it should be into the target folder, and says how to copy it.

use std::fmt::Write as _;
use std::path::Path;

use helmdeck_core::error::{Code, Fault, Retry};
use serde_json::{Map, Value};

use crate::support::KEY;
use crate::support::program::{Home, Server};

const BEGIN: &str = "<!-- generated -->\n";
const END: &str = "<!-- end -->\n";

/// Compares a page with the same page around newly made tables.
#[track_caller]
fn is_in_step(name: &str, tables: &[String]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = std::fs::read_to_string(root.join(name)).unwrap();
    let mut parts = found.split(BEGIN);
    let mut expected = parts.next().unwrap().to_owned();
    let mut count = 0;
    for (part, table) in parts.zip(tables) {
        let (_, rest) = part
            .split_once(END)
            .unwrap_or_else(|| panic!("{name}: a table does not end"));
        let _ = write!(expected, "{BEGIN}{table}{END}{rest}");
        count += 1;
    }
    assert_eq!(
        count,
        tables.len(),
        "{name} has another number of generated tables"
    );
    if found != expected {
        let page = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name.replace('/', "-"));
        std::fs::write(&page, expected).unwrap();
        panic!(
            "{name} is out of step with the code; run: cp {} {name}",
            page.display()
        );
    }
}

/// Writes the text of a cell of a table.
fn cell(text: &str) -> String {
    let text = text.replace('|', "\\|").replace('\n', " ");
    if text.contains('`') {
        text
    } else {
        text.replace('<', "\\<")
    }
}

/// Table of a manifest: its heading, the source that declares its keys, and the name of the struct.
const MANIFEST: &[(&str, &str, &str)] = &[
    ("Top of the file", RAW, "Manifest"),
    ("`[handler]`", RAW, "Handler"),
    (
        "`[handler.http]`",
        include_str!("../../src/core/manifest/http/parse.rs"),
        "Raw",
    ),
    ("`[handler.mcp]`", RAW, "McpTool"),
    ("`[memory]`", RAW, "Memory"),
    ("`[session]`", RAW, "SessionTable"),
    ("`[job]`", RAW, "Job"),
    ("`[schedule]`", RAW, "Schedule"),
    ("`[artifacts]`", RAW, "Artifacts"),
    (
        "`[metadata]`",
        include_str!("../../src/core/manifest/mod.rs"),
        "Metadata",
    ),
    ("`[[examples]]`", RAW, "Example"),
];
const RAW: &str = include_str!("../../src/core/manifest/raw.rs");

/// Returns how a manifest spells a value of a Rust type.
fn spelled(key: &str, kind: &str) -> &'static str {
    let kind = kind
        .replace("Option<", "")
        .replace("Spanned<", "")
        .replace("super::", "");
    match kind.trim_end_matches('>') {
        "String" if key.ends_with("bytes") || kind.contains("size") => "size",
        "String"
            if ["timeout", "ttl", "retention", "revalidate_for", "every"].contains(&key)
                || key.starts_with("stale_") =>
        {
            "duration"
        }
        "String" => "text",
        "bool" => "true or false",
        "u32" | "u64" | "f64" => "number",
        "Vec<String" => "list of texts",
        "BTreeMap<String, String" => "table of texts",
        "BTreeMap<String, toml::Value" => "table",
        "Vec<Example" => "list of tables",
        "Respect" | "Scope" | "SingleFlight" => "text",
        "toml::Value" => "any value",
        "Metadata" | "Handler" | "McpTool" | "SessionTable" | "Job" | "Schedule" | "Artifacts"
        | "Memory" | "http::Raw" => "table",
        other => panic!("{key}: no word for the type {other}"),
    }
}

/// Makes the table of one struct: its fields are the keys, their comments say what each is for.
fn keys(source: &str, name: &str) -> String {
    let start = source
        .find(&format!("struct {name} {{\n"))
        .unwrap_or_else(|| panic!("no struct {name}"));
    let (_, body) = source[start..].split_once("{\n").unwrap();
    let body = body.split("\n}").next().unwrap();
    let mut table = "| key | value | what it does |\n|---|---|---|\n".to_owned();
    let (mut comment, mut optional, mut renamed) = (String::new(), name == "Metadata", None);
    for line in body.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(text) = line.strip_prefix("/// ") {
            let _ = write!(
                comment,
                "{}{text}",
                if comment.is_empty() { "" } else { " " }
            );
        } else if let Some(attribute) = line.strip_prefix("#[serde(") {
            optional |= attribute.contains("default");
            renamed = attribute
                .split("rename = \"")
                .nth(1)
                .and_then(|it| it.split('"').next());
        } else {
            let declaration = line
                .trim_start_matches("pub(super) ")
                .trim_start_matches("pub ")
                .trim_end_matches(',');
            let (field, kind) = declaration.split_once(": ").unwrap();
            assert!(!comment.is_empty(), "{name}.{field} has no comment");
            let needed = if optional || kind.starts_with("Option<") {
                ""
            } else {
                " Required."
            };
            let key = renamed.take().unwrap_or(field);
            let _ = writeln!(
                table,
                "| `{key}` | {} | {}{needed} |",
                spelled(key, kind),
                cell(&comment)
            );
            comment.clear();
            optional = name == "Metadata";
        }
    }
    table
}

#[test]
fn manifest_page_has_every_key() {
    let mut text = String::new();
    for (heading, source, name) in MANIFEST {
        let _ = write!(text, "\n## {heading}\n\n{}", keys(source, name));
    }
    text.push('\n');
    is_in_step("docs/manifest.md", &[text]);
}

/// Makes the tables of the settings from their schema, which another test compares with the
/// defaults.
fn settings(schema: &Map<String, Value>, at: &str, text: &mut String) {
    let is_table = |value: &Value| {
        value.get("properties").is_some() || (value["type"] == "object" && !at.starts_with('['))
    };
    let properties = schema["properties"].as_object().unwrap();
    let plain: Vec<_> = properties
        .iter()
        .filter(|(_, value)| !is_table(value))
        .collect();
    if !plain.is_empty() {
        let _ = writeln!(
            text,
            "\n## {}\n",
            if at.is_empty() {
                "Top of the file".to_owned()
            } else {
                format!("`[{at}]`")
            }
        );
        if let (false, Some(description)) = (
            at.is_empty(),
            schema.get("description").and_then(Value::as_str),
        ) {
            let _ = writeln!(text, "{description}\n");
        }
        text.push_str("| setting | default | what it does |\n|---|---|---|\n");
        for (key, value) in plain {
            let default = value
                .get("default")
                .map_or_else(String::new, |it| format!("`{it}`"));
            let description = value["description"].as_str().unwrap_or_default();
            let _ = writeln!(text, "| `{key}` | {default} | {} |", cell(description));
        }
    }
    for (key, value) in properties.iter().filter(|(_, value)| is_table(value)) {
        let name = if at.is_empty() {
            key.clone()
        } else {
            format!("{at}.{key}")
        };
        if value.get("properties").is_some() {
            settings(value.as_object().unwrap(), &name, text);
        } else {
            let _ = writeln!(
                text,
                "\n## `[{name}]`\n\n{}",
                value["description"].as_str().unwrap_or_default()
            );
        }
    }
}

#[test]
fn configuration_page_has_every_setting() {
    let schema: Value =
        serde_json::from_str(include_str!("../../config/helmdeck.schema.json")).unwrap();
    let mut text = String::new();
    settings(schema.as_object().unwrap(), "", &mut text);
    let server = schema["properties"]["mcp"]["properties"]["servers"]["items"]
        .as_object()
        .unwrap();
    settings(server, "[mcp.servers]", &mut text);
    text.push('\n');
    is_in_step("docs/configuration.md", &[text]);
}

#[test]
fn troubleshooting_page_has_every_code() {
    let mut table =
        "| code | HTTP status | at fault | the same call again |\n|---|---|---|---|\n".to_owned();
    for code in Code::ALL {
        let fault = match code.fault() {
            Fault::Caller => "caller",
            Fault::Pack => "pack",
            Fault::Host => "host",
        };
        let again = match code.retry() {
            Retry::Never => "fails again",
            Retry::Later => "may work later",
        };
        let _ = writeln!(
            table,
            "| [`{code}`](#{code}) | {} | {fault} | {again} |",
            code.http_status()
        );
    }
    is_in_step("docs/troubleshooting.md", &[table]);
    let page = include_str!("../../docs/troubleshooting.md");
    for code in Code::ALL {
        let section = page
            .split(&format!("\n### `{code}`\n"))
            .nth(1)
            .unwrap_or_else(|| panic!("no section on {code}"));
        let section = section.split("\n##").next().unwrap();
        assert!(
            section.len() > 80 && section.contains("\n- "),
            "{code}: what it means, and what to do: {section}"
        );
    }
}

/// Asks the server what an operation needs, with a token that has no right for it.
fn right(server: &Server, token: &str, method: &str, path: &str, operation: &Value) -> String {
    if operation["security"].as_array().is_some_and(Vec::is_empty) {
        return "open".to_owned();
    }
    let path = path
        .replace("{name}", "test.plain")
        .replace("{version}", "v1");
    let path: String = path
        .split('/')
        .map(|part| if part.starts_with('{') { "x1" } else { part })
        .collect::<Vec<_>>()
        .join("/");
    let body = if method == "post" { "{}" } else { "" };
    let answer = server.ask(
        &format!(
            "{} {path}\nAuthorization: Bearer {token}",
            method.to_uppercase()
        ),
        body,
    );
    match (
        answer.code,
        answer
            .header("www-authenticate")
            .and_then(|it| it.split("scope=\"").nth(1)),
    ) {
        (403, Some(scope)) => format!(
            "`{}`",
            scope.trim_end_matches('"').replace("test.plain", "NAME")
        ),
        // A missing parameter is an error of a caller that may ask.
        (200 | 201 | 400 | 404, _) => "a token".to_owned(),
        (code, _) => panic!("{method} {path}: {code}: {}", answer.body),
    }
}

#[test]
fn rest_page_has_every_route() {
    let home = Home::new();
    let token = |scope: &str| {
        let made = home.run(
            KEY,
            &[
                "token", "create", "--tenant", "acme", "--user", "ci", "--scope", scope,
            ],
        );
        made.stdout
            .lines()
            .find(|line| line.starts_with("hd_"))
            .unwrap()
            .trim()
            .to_owned()
    };
    let (admin, nobody) = (token("admin packs:run"), token("packs:run:no.such"));
    let server = Server::start_with(&home, KEY, &[("HELMDECK_AUTH__API_TOKENS", "true")]);
    let document = server.ask(
        &format!("GET /api/v1/openapi.json\nAuthorization: Bearer {admin}"),
        "",
    );
    let document: Value = serde_json::from_str(&document.body).unwrap();
    let mut table = "| route | right | parameters | what it does |\n|---|---|---|---|\n".to_owned();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let of_one_pack = path
            .strip_prefix("/api/v1/packs/")
            .is_some_and(|rest| !rest.starts_with('{'));
        for (method, operation) in methods.as_object().unwrap().iter().filter(|_| !of_one_pack) {
            let right = right(&server, &nobody, method, path, operation);
            let parameters: Vec<String> = operation["parameters"]
                .as_array()
                .into_iter()
                .flatten()
                .filter(|it| it["in"] != "path")
                .filter_map(|it| Some(format!("`{}`", it["name"].as_str()?)))
                .collect();
            let summary = cell(operation["summary"].as_str().unwrap());
            let route = format!("{} {path}", method.to_uppercase());
            let _ = writeln!(
                table,
                "| `{route}` | {right} | {} | {summary} |",
                parameters.join(", ")
            );
        }
    }
    is_in_step("docs/rest.md", &[table]);
}
