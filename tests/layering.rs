//! The architecture as a test: which crate may depend on which, what may not be in the graph, and
//! what must not be forgotten.
//!
//! Changing a line of [`MAY_DEPEND_ON`] changes the architecture.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use serde_json::Value;

/// Every crate, and those of ours that it may depend on.
///
/// Dev-dependencies on `testkit` are always allowed.
const MAY_DEPEND_ON: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("process", &[]),
    ("events", &["core", "egress"]),
    ("memory", &["core", "events"]),
    ("egress", &["core"]),
    ("llm", &["core", "egress"]),
    ("system", &["core", "memory"]),
    ("redact", &["core"]),
    ("artifacts", &["core", "egress", "redact"]),
    (
        "mcp-client",
        &["core", "process", "egress", "memory", "redact"],
    ),
    ("sandbox", &["core", "process"]),
    ("vault", &["core", "memory", "system"]),
    ("git", &["core", "process"]),
    ("forge-files", &["core", "git"]),
    ("forge-documents", &["core", "forge-files"]),
    ("skills", &["forge-files"]),
    (
        "forge",
        &[
            "core",
            "process",
            "events",
            "git",
            "forge-files",
            "forge-documents",
            "skills",
        ],
    ),
    (
        "trackers",
        &["core", "egress", "forge", "forge-documents", "forge-files"],
    ),
    // Packs see the engine, the store and the vault only through the traits of core.
    (
        "packs",
        &[
            "core",
            "process",
            "egress",
            "llm",
            "git",
            "forge",
            "conversation",
            "seam",
        ],
    ),
    (
        "engine",
        &[
            "core",
            "process",
            "events",
            "memory",
            "system",
            "egress",
            "redact",
            "artifacts",
            "mcp-client",
            "sandbox",
        ],
    ),
    ("conversation", &["core", "events", "memory", "llm"]),
    ("telemetry", &["core", "egress"]),
    // Read by processes; nothing that it reads may know it.
    ("seam", &["core", "git", "forge-files", "forge-documents"]),
    // Everything comes through the REST routes that the server gives it, as outputs of verbs.
    ("ui", &["core", "forge"]),
    (
        "server",
        &[
            "core",
            "server-config",
            "events",
            "egress",
            "memory",
            "system",
            "vault",
            "engine",
            "conversation",
            "forge",
            "forge-documents",
            "trackers",
            "seam",
            "ui",
        ],
    ),
    // Read by the program in every build, also one without the server.
    ("server-config", &["core"]),
    ("testkit", &["core", "events", "memory", "engine"]),
];

/// Crates that may depend on all others.
///
/// They are the one that wires them, the binary with its tests, and the benchmarks.
const MAY_DEPEND_ON_ALL: &[&str] = &["cli", "helmdeck", "bench"];

/// A dependency of one of our crates on another of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Edge {
    from: String,
    to: String,
    kind: &'static str,
    /// The manifest that names it, from the root.
    manifest: String,
}

/// Says what is wrong with an edge, if anything is.
fn objection(edge: &Edge) -> Option<String> {
    let Edge {
        from,
        to,
        kind,
        manifest,
    } = edge;
    let shown = format!("{manifest}: {from} depends on {to} ({kind})");
    match to.as_str() {
        "testkit" if *kind == "dev" => return None,
        // The addresses of verbs are tried with the verbs.
        "packs" if *kind == "dev" && from == "server" => return None,
        "testkit" if from != "bench" => return Some(format!("{shown}: testkit is for tests only")),
        "bench" | "helmdeck" => return Some(format!("{shown}: nothing may")),
        _ => {}
    }
    if MAY_DEPEND_ON_ALL.contains(&from.as_str()) {
        return None;
    }
    match MAY_DEPEND_ON.iter().find(|(name, _)| name == from) {
        None => Some(format!(
            "{manifest}: {from} is not in the table of tests/layering.rs"
        )),
        Some((_, allowed)) if allowed.contains(&to.as_str()) => None,
        Some(_) => Some(format!("{shown}: not in the table of tests/layering.rs")),
    }
}

/// Reads our crates and the edges among them, of all kinds, from `cargo metadata`.
fn read(metadata: &Value) -> (BTreeSet<String>, Vec<Edge>) {
    let short = |name: &str| name.strip_prefix("helmdeck-").unwrap_or(name).to_owned();
    let packages = metadata["packages"].as_array().unwrap();
    let full_names: BTreeSet<&str> = packages
        .iter()
        .map(|package| package["name"].as_str().unwrap())
        .collect();
    let mut edges = Vec::new();
    for package in packages {
        for dependency in package["dependencies"].as_array().unwrap() {
            let to = dependency["name"].as_str().unwrap();
            if full_names.contains(to) {
                let kind = match dependency["kind"].as_str() {
                    Some("dev") => "dev",
                    Some("build") => "build",
                    _ => "normal",
                };
                let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
                let manifest = manifest
                    .strip_prefix(root())
                    .unwrap_or(manifest)
                    .display()
                    .to_string();
                edges.push(Edge {
                    from: short(package["name"].as_str().unwrap()),
                    to: short(to),
                    kind,
                    manifest,
                });
            }
        }
    }
    (full_names.into_iter().map(short).collect(), edges)
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn metadata() -> Value {
    serde_json::from_str(&cargo(&["metadata", "--no-deps", "--format-version", "1"])).unwrap()
}

/// Returns all files below a folder.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            files.extend(files_below(&entry.path()));
        } else {
            files.push(entry.path());
        }
    }
    files.sort();
    files
}

#[test]
fn crates_depend_only_on_what_the_table_allows() {
    let (crates, edges) = read(&metadata());
    assert!(crates.contains("core") && crates.contains("helmdeck") && !edges.is_empty());
    let objections: Vec<String> = edges.iter().filter_map(objection).collect();
    assert!(objections.is_empty(), "{objections:#?}");
    let unknown: Vec<&String> = crates
        .iter()
        .filter(|name| !MAY_DEPEND_ON_ALL.contains(&name.as_str()))
        .filter(|name| MAY_DEPEND_ON.iter().all(|(known, _)| known != name))
        .collect();
    assert!(unknown.is_empty(), "not in the table: {unknown:?}");
}

#[test]
fn the_table_has_no_circle() {
    let table: BTreeMap<&str, &[&str]> = MAY_DEPEND_ON.iter().copied().collect();
    let mut settled: BTreeSet<&str> = BTreeSet::new();
    // Each round settles those that only need settled ones; a circle is what never settles.
    while let Some(name) = table.keys().find(|name| {
        !settled.contains(**name) && table[**name].iter().all(|need| settled.contains(need))
    }) {
        settled.insert(name);
    }
    assert_eq!(settled.len(), table.len(), "settled: {settled:?}");
}

#[test]
fn a_forbidden_edge_of_any_kind_is_noticed() {
    let edge = |from: &str, to: &str, kind| Edge {
        from: from.into(),
        to: to.into(),
        kind,
        manifest: format!("src/{from}/Cargo.toml"),
    };
    for allowed in [
        edge("engine", "memory", "normal"),
        edge("core", "testkit", "dev"),
        edge("bench", "cli", "normal"),
    ] {
        assert_eq!(objection(&allowed), None, "{allowed:?}");
    }
    for forbidden in [
        edge("packs", "engine", "dev"),
        edge("packs", "memory", "normal"),
        edge("conversation", "egress", "dev"),
        edge("memory", "seam", "build"),
        edge("engine", "testkit", "normal"),
        edge("helmdeck", "testkit", "normal"),
        edge("cli", "bench", "dev"),
        edge("newcomer", "core", "normal"),
    ] {
        let told = objection(&forbidden).unwrap_or_else(|| panic!("{forbidden:?}"));
        assert!(
            told.starts_with(&format!("{}: {}", forbidden.manifest, forbidden.from)),
            "{told}"
        );
    }
}

#[test]
fn edges_of_every_kind_are_read() {
    let metadata = serde_json::json!({"packages": [
        {"name": "helmdeck-core", "manifest_path": root().join("src/core/Cargo.toml"), "dependencies": [{"name": "serde", "kind": null}]},
        {"name": "helmdeck-a", "manifest_path": root().join("src/a/Cargo.toml"), "dependencies": [
            {"name": "helmdeck-core", "kind": null},
            {"name": "helmdeck-core", "kind": "dev"},
            {"name": "helmdeck-core", "kind": "build"},
        ]},
    ]});
    let (crates, edges) = read(&metadata);
    assert_eq!(crates.into_iter().collect::<Vec<_>>(), ["a", "core"]);
    assert_eq!(
        edges.iter().map(|edge| edge.kind).collect::<Vec<_>>(),
        ["normal", "dev", "build"]
    );
    assert!(
        edges.iter().all(|edge| edge.from == "a"
            && edge.to == "core"
            && edge.manifest == "src/a/Cargo.toml")
    );
}

/// Names through which a connection is opened, or a host name resolved.
const CONNECTING: &[&str] = &[
    "AmazonS3Builder",
    "Client::builder",
    "ClientBuilder",
    "ConnectOptions",
    "HttpConnector",
    "MakeRustlsConnect",
    "OctocrabBuilder",
    "Pool::builder",
    "StreamableHttpClientTransport",
    "TcpSocket",
    "TcpStream",
    "ToSocketAddrs",
    "UdpSocket",
    "UnixDatagram",
    "UnixStream",
    "async_nats::connect",
    "connect_raw",
    "hyper::client",
    "hyper_util::client",
    "lookup_host",
    "reqwest::blocking",
    "reqwest::get",
    "rustix::net",
    "socket2",
    "to_socket_addrs",
    "tokio_postgres::connect",
];

/// The places that may use such a name, each with the reason.
///
/// All others ask `helmdeck-egress` for a client. A place is added here only if it asks the guard
/// itself, or if the operator alone names what it connects to.
const MAY_CONNECT: &[(&str, &[&str], &str)] = &[
    (
        "packs/github/client.rs",
        &["OctocrabBuilder"],
        "around a client of the guard",
    ),
    (
        "packs/repo/git/agent.rs",
        &["UnixStream"],
        "to the socket of the agent that it started",
    ),
    (
        "src/artifacts/s3.rs",
        &["AmazonS3Builder", "HttpConnector"],
        "its connector is a client of the guard",
    ),
    (
        "src/cli/commands/connect.rs",
        &["TcpStream"],
        "to this program's own proxy, which asks the guard",
    ),
    (
        "src/cli/commands/health.rs",
        &["TcpStream", "ToSocketAddrs", "to_socket_addrs"],
        "to the URL of the command line",
    ),
    (
        "src/cli/notify.rs",
        &["UnixDatagram"],
        "to the socket of systemd, from the environment",
    ),
    ("src/egress/guard.rs", &["Client::builder"], "the guard"),
    ("src/egress/proxy/dial.rs", &["TcpStream"], "the guard"),
    (
        "src/egress/proxy/gateway.rs",
        &["TcpStream"],
        "the guard: streams that it accepted",
    ),
    ("src/egress/resolver.rs", &["lookup_host"], "the guard"),
    (
        "src/events/nats/link.rs",
        &["ConnectOptions"],
        "after `check_server` of the guard",
    ),
    (
        "src/mcp_client/connection.rs",
        &["StreamableHttpClientTransport"],
        "around a client of the guard",
    ),
    (
        "src/memory/drivers/postgres/connect.rs",
        &["MakeRustlsConnect", "Pool::builder"],
        "to memory.url and system.url of the operator",
    ),
    (
        "src/memory/drivers/postgres/tls.rs",
        &["MakeRustlsConnect"],
        "to memory.url and system.url of the operator",
    ),
    (
        "src/server/serve.rs",
        &["TcpStream"],
        "streams that it accepted",
    ),
];

/// Returns the names of [`CONNECTING`] that production code uses.
fn connecting(code: &str) -> Vec<&'static str> {
    let code = code
        .split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or_default();
    let lines: Vec<&str> = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect();
    CONNECTING
        .iter()
        .filter(|name| lines.iter().any(|line| line.contains(**name)))
        .copied()
        .collect()
}

/// Says whether a file is for tests or benchmarks only.
fn is_test_code(file: &str) -> bool {
    let folders = ["tests", "testkit", "bench", "conformance", "fixture"];
    let (path, name) = file.rsplit_once('/').unwrap_or_default();
    path.split('/').any(|folder| folders.contains(&folder))
        || ["tests.rs", "fixture.rs"].contains(&name)
        || name.ends_with("_tests.rs")
}

#[test]
fn connections_are_opened_in_listed_places_only() {
    let mut found = BTreeMap::new();
    for file in files_below(&root().join("src"))
        .into_iter()
        .chain(files_below(&root().join("packs")))
    {
        let name = file
            .strip_prefix(root())
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        if name.ends_with(".rs") && !is_test_code(&name) {
            let names = connecting(&std::fs::read_to_string(&file).unwrap());
            if !names.is_empty() {
                found.insert(name, names);
            }
        }
    }
    let listed: BTreeMap<String, Vec<&str>> = MAY_CONNECT
        .iter()
        .map(|(file, names, _)| ((*file).to_owned(), names.to_vec()))
        .collect();
    assert_eq!(
        found, listed,
        "found and listed places differ: ask helmdeck-egress for a client"
    );
    assert!(MAY_CONNECT.iter().all(|(_, _, reason)| !reason.is_empty()));
    // What the events crate opens was asked for before.
    let link = std::fs::read_to_string(root().join("src/events/nats/link.rs")).unwrap();
    let opened = link.find("ConnectOptions::new()").unwrap();
    assert!(
        link.find("options.check(guard)?")
            .is_some_and(|asked| asked < opened)
    );
}

#[test]
fn connecting_code_is_noticed() {
    for code in [
        "let a = TcpStream::connect(b);",
        "use tokio::net::{TcpListener, TcpStream};",
        "reqwest::get(url)",
        "#[cfg(test)]\nmod tests;\nfn f() { TcpStream }",
    ] {
        assert!(!connecting(code).is_empty(), "{code}");
    }
    for code in [
        "// TcpStream",
        "fn a() {}\n#[cfg(test)]\nmod tests {\n    use std::net::TcpStream;\n}\n",
        "TcpListener::bind(a)",
    ] {
        assert!(connecting(code).is_empty(), "{code}");
    }
}

/// Features of `serde_json` that any crate of the graph could switch on for all.
///
/// `preserve_order` would make objects come out in another order than the one that digests of
/// schemas are made over; `arbitrary_precision` changes how every number is kept.
#[test]
fn serde_json_features_keep_json_meaning() {
    // Build scripts and macros have a copy of their own (resolver 2 and later); it is no part of
    // the binary.
    let tree = cargo(&[
        "tree",
        "--workspace",
        "--all-features",
        "--edges",
        "normal,no-proc-macro",
        "--prefix",
        "none",
        "--format",
        "{p}|{f}",
    ]);
    let features: BTreeSet<&str> = tree
        .lines()
        .filter(|line| line.starts_with("serde_json "))
        .filter_map(|line| line.split('|').nth(1))
        .flat_map(|features| features.trim_end_matches(" (*)").split(','))
        .collect();
    assert!(features.contains("raw_value"), "{features:?}");
    for unwanted in ["preserve_order", "arbitrary_precision"] {
        assert!(
            !features.contains(unwanted),
            "serde_json has {unwanted}: cargo tree -e features -i serde_json"
        );
    }
}

#[test]
fn no_test_file_is_forgotten() {
    let main = std::fs::read_to_string(root().join("tests/main.rs")).unwrap();
    for entry in std::fs::read_dir(root().join("tests")).unwrap() {
        let file = entry.unwrap().path();
        let name = file.file_stem().unwrap().to_str().unwrap();
        let is_module =
            file.extension().is_some_and(|ending| ending == "rs") || file.join("mod.rs").exists();
        if is_module && name != "main" {
            let line = format!("mod {name};");
            assert!(
                main.lines().any(|known| known == line),
                "tests/main.rs lacks `{line}`"
            );
        }
    }
}

/// What fails on a slow machine, as parts of lines: a wait with a limit of its own, and a judgement
/// by real time.
const HASTE: &[&str] = &[
    ".elapsed() <",
    "timeout(Duration::from_secs(",
    "Instant::now() + Duration::from_secs(",
];

/// Files of tests that may have such lines, and why.
const MAY_HASTEN: &[(&str, &str)] = &[
    (
        "src/conversation/worker/tests/concurrency.rs",
        "its clock is paused",
    ),
    (
        "src/conversation/worker/tests/outages.rs",
        "its clock is paused",
    ),
    (
        "src/conversation/worker/tests/timing.rs",
        "its clock is paused",
    ),
    ("src/engine/tests/flights.rs", "its clock is paused"),
    ("src/engine/tests/pipeline.rs", "its clock is paused"),
    (
        "src/engine/tests/schemas.rs",
        "its deadline is to be reached",
    ),
    (
        "src/memory/tests/replaced.rs",
        "it spreads moments, and waits for nothing",
    ),
    ("tests/auth.rs", "it lets time pass"),
    (
        "tests/browser/chromium.rs",
        "what does not end by itself is killed",
    ),
    (
        "tests/conversation/small_model.rs",
        "it judges as much as the model did in this time",
    ),
    ("tests/fuzz/schema.rs", "a check ends when it should"),
    ("tests/layering.rs", "it names them"),
];

/// Whether a file is code of tests.
fn is_of_tests(path: &str) -> bool {
    let is_folder = ["/tests/", "/testkit/", "/conformance/"]
        .iter()
        .any(|folder| path.contains(folder));
    path.ends_with(".rs") && (is_folder || path.starts_with("tests/") || path.ends_with("tests.rs"))
}

/// Returns the lines of a text that fail on a slow machine.
fn hasty_lines(text: &str) -> Vec<&str> {
    let hasty = |line: &&str| {
        HASTE.iter().any(|haste| line.contains(haste)) && !line.contains("elapsed() < STUCK")
    };
    text.lines().filter(hasty).collect()
}

#[test]
fn tests_have_no_time_limits_of_their_own() {
    let files = ["src", "packs", "tests"]
        .iter()
        .flat_map(|folder| files_below(&root().join(folder)));
    let (mut checked, mut allowed) = (0, BTreeSet::new());
    for file in files {
        let path = file
            .strip_prefix(root())
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        if !is_of_tests(&path) {
            continue;
        }
        checked += 1;
        let text = std::fs::read_to_string(&file).unwrap();
        let hasty = hasty_lines(&text);
        match MAY_HASTEN.iter().find(|(known, _)| *known == path) {
            Some((known, _)) if !hasty.is_empty() => drop(allowed.insert(*known)),
            _ => assert_eq!(
                hasty,
                Vec::<&str>::new(),
                "{path}: wait with the testkit, which has one limit for all"
            ),
        }
    }
    assert!(checked > 300, "{checked} files of tests");
    assert_eq!(
        allowed.len(),
        MAY_HASTEN.len(),
        "{allowed:?}: the others need no exception"
    );
}

#[test]
fn a_time_limit_of_a_test_is_noticed() {
    for hasty in [
        "assert!(began.elapsed() < Duration::from_secs(5));",
        "tokio::time::timeout(Duration::from_secs(20), asked).await.unwrap()",
        "let end = Instant::now() + Duration::from_secs(30);",
    ] {
        assert_eq!(hasty_lines(&format!("let a = 1;\n{hasty}\n")), [hasty]);
    }
    assert!(hasty_lines("assert!(began.elapsed() < STUCK)").is_empty());
}

#[test]
fn every_built_in_manifest_is_registered() {
    let egress = helmdeck_egress::Egress::new(helmdeck_egress::Config::default());
    let packs = helmdeck_packs::all(&helmdeck_packs::Dependencies {
        llm: helmdeck_llm::Client::new(&egress, helmdeck_llm::Config::default()).unwrap(),
        swe: helmdeck_packs::swe::Config::default(),
        conversations: helmdeck_conversation::Conversations::default(),
        // All of them are offered.
        forge: helmdeck_packs::forge::Config {
            run: true,
            ..helmdeck_packs::forge::Config::default()
        },
        seam: helmdeck_packs::seam::Config::of_project("/"),
        egress,
        clock: Arc::new(helmdeck_core::SystemClock::default()),
        github: helmdeck_packs::github::Config::new("https://api.github.com".parse().unwrap()),
        repo: helmdeck_packs::repo::Config::default(),
    });
    let manifest = |pack: &helmdeck_core::Builtin| pack.manifest.parse::<toml::Table>().unwrap();
    let names: Vec<String> = packs
        .iter()
        .map(|pack| manifest(pack)["name"].as_str().unwrap().to_owned())
        .collect();
    let families: BTreeSet<&str> = names
        .iter()
        .filter_map(|name| name.split('.').next())
        .collect();
    assert_eq!(
        families.into_iter().collect::<Vec<_>>(),
        helmdeck_packs::FAMILIES
    );
    let known: BTreeMap<&str, &str> = packs
        .iter()
        .map(|pack| (pack.file, pack.manifest))
        .collect();
    assert_eq!(known.len(), packs.len(), "two packs name one file");
    let written: BTreeMap<String, String> = files_below(&root().join("packs"))
        .into_iter()
        .filter(|file| file.extension().is_some_and(|ending| ending == "toml"))
        .filter(|file| file.file_name().is_some_and(|name| name != "Cargo.toml"))
        .map(|file| {
            let text = std::fs::read_to_string(&file).unwrap();
            (
                file.strip_prefix(root())
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned(),
                text,
            )
        })
        .collect();
    assert!(!written.is_empty());
    let written: BTreeMap<&str, &str> = written
        .iter()
        .map(|(file, text)| (file.as_str(), text.as_str()))
        .collect();
    assert_eq!(
        known, written,
        "packs/**/*.toml and helmdeck_packs::all() differ"
    );
    for (file, text) in written {
        if let Err(error) =
            helmdeck_core::Manifest::parse(file, text, &|_| Err("it is not built in".into()))
        {
            panic!("{error}");
        }
    }
}

/// Images that are named without a digest, and why.
const IMAGES_BY_NAME: &[(&str, &str)] = &[
    ("scratch", "it is empty"),
    (
        "docker.io/library/debian:bookworm-slim",
        "a build takes its security updates",
    ),
    (
        "ghcr.io/helmdeck/helmdeck:latest",
        "it is what this repository releases",
    ),
    (
        "docker.io/library/haproxy:2.8-alpine",
        "part of an example, which its reader adapts",
    ),
    (
        "docker.io/edoburu/pgbouncer:v1.25.1-p0",
        "part of an example, which its reader adapts",
    ),
    (
        "docker.io/chrislusf/seaweedfs:4.44",
        "part of an example, which its reader adapts",
    ),
];

#[test]
fn actions_and_images_are_pinned_by_what_they_are() {
    let is_hex = |text: &str, digits: usize| {
        text.len() == digits
            && text
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let (mut actions, mut images) = (0, BTreeSet::new());
    for file in files_below(&root().join(".github")) {
        for line in std::fs::read_to_string(&file).unwrap().lines() {
            if let Some((_, action)) = line.split_once("uses: ") {
                let commit = action
                    .split_whitespace()
                    .next()
                    .unwrap()
                    .split_once('@')
                    .unwrap()
                    .1;
                assert!(
                    is_hex(commit, 40) && action.contains(" # v"),
                    "{}: {action}",
                    file.display()
                );
                actions += 1;
            }
        }
    }
    assert!(actions > 10, "{actions}");
    let workflows = files_below(&root().join(".github"));
    let others = ["Dockerfile", "compose.yaml", "contrib/compose/compose.yaml"]
        .map(|file| root().join(file));
    for file in workflows.into_iter().chain(others) {
        for line in std::fs::read_to_string(&file).unwrap().lines() {
            let named = line
                .trim_start()
                .strip_prefix("image: ")
                .or_else(|| line.strip_prefix("FROM "));
            let Some(image) = named.and_then(|rest| rest.split_whitespace().next()) else {
                continue;
            };
            match image.split_once("@sha256:") {
                Some((_, digest)) => assert!(is_hex(digest, 64), "{image}"),
                None => {
                    assert!(
                        IMAGES_BY_NAME.iter().any(|(known, _)| *known == image),
                        "{}: {image}",
                        file.display()
                    );
                    images.insert(image.to_owned());
                }
            }
        }
    }
    assert_eq!(images.len(), IMAGES_BY_NAME.len(), "{images:?}");
}
