//! Tests of the `OpenAPI` document with other projects' tools.
//!
//! Validators accept it, and generated clients work.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::support::KEY;
use crate::support::program::{Home, Server};

/// Returns the folder of what `tests/run` installed; without it, installs the same.
#[expect(clippy::disallowed_methods, reason = "a test has no `Env`")]
fn tools() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| {
        if let Some(folder) = std::env::var_os("HELMDECK_TEST_OPENAPI") {
            return folder.into();
        }
        let script = scripts().join("install.sh");
        let output = Command::new(script)
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "the tools cannot be installed; see above"
        );
        let said = String::from_utf8(output.stdout).unwrap();
        said.trim()
            .strip_prefix("HELMDECK_TEST_OPENAPI=")
            .unwrap()
            .into()
    })
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/openapi")
}

/// Runs a tool and returns all that it said.
#[track_caller]
fn accepts(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    said
}

fn node(script: &str) -> Command {
    let mut command = Command::new("node");
    command.arg(tools().join("node_modules").join(script));
    command
}

/// A server, a token for it, and its document.
struct Document {
    server: Server,
    token: String,
    folder: tempfile::TempDir,
    _home: Home,
}

impl Document {
    /// Serves with or without authentication.
    fn of(authenticates: bool) -> Self {
        let home = Home::new();
        let token = home.run(
            KEY,
            &[
                "token",
                "create",
                "--tenant",
                "acme",
                "--user",
                "ci",
                "--scope",
                "admin packs:run",
            ],
        );
        let token = token
            .stdout
            .lines()
            .find(|line| line.starts_with("hd_"))
            .unwrap()
            .trim()
            .to_owned();
        let server = Server::start_with(
            &home,
            KEY,
            &[("HELMDECK_AUTH__API_TOKENS", &authenticates.to_string())],
        );
        let shown = if authenticates {
            format!("\nAuthorization: Bearer {token}")
        } else {
            String::new()
        };
        let document = server.ask(&format!("GET /api/v1/openapi.json{shown}"), "");
        assert!(
            document.body.contains("/api/v1/packs/test.plain"),
            "{}",
            document.body
        );
        assert_eq!(document.body.contains("securitySchemes"), authenticates);
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("openapi.json"), document.body).unwrap();
        Self {
            server,
            token,
            folder,
            _home: home,
        }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("openapi.json")
    }
}

#[test]
fn validators_accept_the_document() {
    let documents = [false, true].map(Document::of);
    let files = [documents[0].file(), documents[1].file()];
    accepts(Command::new(tools().join("python/bin/openapi-spec-validator")).args(&files));
    let said = accepts(
        node("@redocly/cli/bin/cli.js")
            .args(["lint", "--format=summary"])
            .args(&files),
    );
    assert!(!said.contains("error"), "{said}");
}

#[test]
fn generated_clients_work() {
    // The document with authentication has all of the other, and how to log in.
    let document = Document::of(true);
    let (file, folder) = (document.file(), document.folder.path());
    accepts(
        node("openapi-typescript/bin/cli.js")
            .arg(&file)
            .arg("-o")
            .arg(folder.join("types.ts")),
    );
    let types = std::fs::read_to_string(folder.join("types.ts")).unwrap();
    assert!(types.contains("run_test_plain"), "{types}");

    let mut generate = Command::new(tools().join("python/bin/openapi-python-client"));
    generate
        .args(["generate", "--meta", "none", "--path"])
        .arg(&file);
    let said = accepts(generate.arg("--output-path").arg(folder.join("made")));
    assert!(
        !said.contains("cannot be resolved") && !said.contains("Invalid"),
        "{said}"
    );
    let mut client = Command::new(tools().join("python/bin/python"));
    client
        .arg(scripts().join("client.py"))
        .arg(folder)
        .arg(document.server.url(""))
        .arg(&document.token);
    assert_eq!(accepts(&mut client).trim(), "13");
}
