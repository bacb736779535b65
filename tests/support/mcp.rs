//! Other people's MCP programs, which `mcp/install.sh` installs: the official clients in Python and
//! TypeScript, driven by a plan (see `mcp/client.py` for its words), the conformance suite, the
//! inspector and two servers.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

/// The conformance suite.
pub(crate) const CONFORMANCE: &str = "@modelcontextprotocol/conformance/dist/index.js";
/// The inspector; on the command line, `--cli` comes next.
pub(crate) const INSPECTOR: &str =
    "@modelcontextprotocol/inspector/clients/launcher/build/index.js";
/// A server that shows every feature; on the command line, `stdio` comes next.
pub(crate) const EVERYTHING: &str = "@modelcontextprotocol/server-everything/dist/index.js";

/// Where the programs are.
#[derive(Debug)]
pub(crate) struct Programs {
    node: PathBuf,
    packages: PathBuf,
    python: PathBuf,
}

impl Programs {
    /// Returns what `tests/run` installed; without `tests/run`, installs the same (about a minute,
    /// once).
    ///
    /// The environment gives the places: `HELMDECK_TEST_NODE` (the program), `HELMDECK_TEST_NPM`
    /// (the folder `node_modules`) and `HELMDECK_TEST_PYTHON` (the program), all three or none.
    #[expect(clippy::disallowed_methods, reason = "a test has no `Env`")]
    pub(crate) fn installed() -> &'static Self {
        static FOUND: OnceLock<Programs> = OnceLock::new();
        FOUND.get_or_init(|| {
            let names = [
                "HELMDECK_TEST_NODE",
                "HELMDECK_TEST_NPM",
                "HELMDECK_TEST_PYTHON",
            ];
            let given = names
                .iter()
                .filter_map(|name| Some(((*name).to_owned(), std::env::var_os(name)?.into())));
            let given: HashMap<String, PathBuf> = given.collect();
            let places = if given.is_empty() { install() } else { given };
            let [node, packages, python] = names.map(|name| {
                let place = places
                    .get(name)
                    .unwrap_or_else(|| panic!("{name} is not set, but another of {names:?} is"));
                assert!(place.exists(), "{name}: there is no {}", place.display());
                place.clone()
            });
            Self {
                node,
                packages,
                python,
            }
        })
    }

    /// Prepares a run of a script of an npm package.
    pub(crate) fn node(&self, script: &str) -> Command {
        let words = self.node_script(script);
        let mut command = Command::new(&words[0]);
        command.arg(&words[1]);
        command
    }

    /// Prepares a run of a script of an npm package that calls some tools by names which no pack
    /// can have; see `mcp/names.mjs`.
    pub(crate) fn node_with_names(&self, script: &str) -> Command {
        let words = self.node_script(script);
        let mut command = Command::new(&words[0]);
        command
            .arg("--import")
            .arg(scripts().join("names.mjs"))
            .arg(&words[1]);
        command
    }

    /// Returns the place of a file of an npm package.
    pub(crate) fn package_file(&self, file: &str) -> PathBuf {
        self.packages.join(file)
    }

    /// Returns the words that run a script of an npm package, [`EVERYTHING`] for example.
    pub(crate) fn node_script(&self, script: &str) -> Vec<String> {
        let script = self.packages.join(script);
        assert!(script.exists(), "there is no {}", script.display());
        [&self.node, &script]
            .map(|word| word.to_str().unwrap().to_owned())
            .to_vec()
    }

    /// Prepares a run of a program that a Python package brought along.
    pub(crate) fn python_program(&self, name: &str) -> Command {
        let program = self.python.with_file_name(name);
        assert!(program.exists(), "there is no {}", program.display());
        Command::new(program)
    }

    /// Lets the official Python client carry out a plan; returns its answer.
    pub(crate) fn python(&self, plan: &Value) -> Value {
        carry_out(
            Command::new(&self.python).arg(scripts().join("client.py")),
            plan,
        )
    }

    /// Lets the official TypeScript client carry out a plan; returns its answer.
    pub(crate) fn typescript(&self, plan: &Value) -> Value {
        carry_out(
            Command::new(&self.node)
                .arg(scripts().join("client.mjs"))
                .arg(&self.packages),
            plan,
        )
    }

    /// Lets Linear's own library check a signature; see `mcp/linear_webhook.mjs` for the plan and
    /// the answer.
    pub(crate) fn linear_webhook(&self, plan: &Value) -> Value {
        carry_out(
            Command::new(&self.node)
                .arg(scripts().join("linear_webhook.mjs"))
                .arg(&self.packages),
            plan,
        )
    }

    /// Lets the official package for tasks call one tool; see `mcp/tasks.mjs` for the plan and the
    /// answer.
    pub(crate) fn tasks(&self, plan: &Value) -> Value {
        carry_out(
            Command::new(&self.node)
                .arg(scripts().join("tasks.mjs"))
                .arg(&self.packages),
            plan,
        )
    }
}

/// Hands a plan to a client and reads its answer.
fn carry_out(client: &mut Command, plan: &Value) -> Value {
    let mut child = client
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(plan.to_string().as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{client:?} failed: {complaints}");
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{client:?}: {error}: {complaints}"))
}

/// The folder of the scripts.
fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/mcp")
}

fn install() -> HashMap<String, PathBuf> {
    let output = Command::new(scripts().join("install.sh"))
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "the programs cannot be installed; see above"
    );
    let said = String::from_utf8(output.stdout).unwrap();
    said.lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, place)| (name.to_owned(), place.into()))
        .collect()
}
