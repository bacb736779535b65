//! `swe.solve` with the real program, end to end: real bugs of real packages, a real git server
//! over HTTP with a login, the real sandbox, and a model that says what its script says.

mod cancel;
mod crash;
mod fix;
mod limits;
mod mini;
mod planted;
mod push;
mod recall;
mod secrets;
mod small_model;

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::git::GitServer;
use crate::support::model::{Model, Reply};
use crate::support::program::{Home, Server};
use crate::support::swe::{Programs, Task};
use crate::support::{KEY, wait_for};
use crate::vault::{VAULT_KEY, feed};

/// The secret of the git server's login.
const GIT_SECRET: &str = "canary7Kq2ApiKey";
/// The secret that the model is asked with.
const MODEL_SECRET: &str = "canary9Zw4ModelKey";
/// How the tests of a package are run in a session.
const TEST_COMMAND: &str = "python -m pytest -q -p no:cacheprovider -o addopts= tests";

/// All that a run needs: a home with the credentials `git` and `llm`, a git server with
/// `acme/<package>.git`, and a model.
struct Fixture {
    home: Home,
    git: GitServer,
    model: Model,
    task: Task,
}

impl Fixture {
    /// Makes a fixture for a bug, with a script for the model.
    fn new(task: &'static str, script: impl IntoIterator<Item = Reply>) -> Self {
        Self::with(task, script, "")
    }

    /// The same, with more settings.
    fn with(task: &'static str, script: impl IntoIterator<Item = Reply>, settings: &str) -> Self {
        let programs = Programs::installed();
        let (home, git, model) = (
            Home::new(),
            GitServer::with_login("x-access-token", GIT_SECRET),
            Model::start(script),
        );
        let task = programs.task(task);
        git.add(&format!("acme/{}.git", task.name), &task.origin());
        let (endpoint, pytest) = (model.url(), programs.pytest.display());
        home.configure(&format!(
            "[llm]\nendpoint = \"{endpoint}\"\nmodel = \"scripted\"\nretry_wait = \"10ms\"\n\
             [egress]\nallow = [\"127.0.0.1\"]\n\
             [sessions]\nread_only_paths = [\"{pytest}\"]\npath = [\"{pytest}/bin\"]\n{settings}"
        ));
        let fixture = Self {
            home,
            git,
            model,
            task,
        };
        fixture.set("git", GIT_SECRET);
        fixture.set("llm", MODEL_SECRET);
        fixture
    }

    /// Puts a credential for this machine into the vault, with a grant for every caller.
    fn set(&self, name: &str, secret: &str) {
        let grants = [
            "--type",
            "api_key",
            "--host",
            "127.0.0.1",
            "--allow",
            "*/*",
            "--pack",
            "*",
        ];
        let arguments = [&["vault", "set", name][..], &grants].concat();
        let mut command = self.home.command(KEY, &arguments);
        let run = feed(command.env("HELMDECK_VAULT_KEY", VAULT_KEY), secret);
        assert_eq!(run.code, 0, "{}", run.stderr);
    }

    /// Returns the name of the repository.
    fn repository(&self) -> String {
        format!("acme/{}.git", self.task.name)
    }

    /// Returns an input with more in it.
    fn input(&self, more: Value) -> Value {
        let mut input = json!({
            "repo_url": self.git.url(&self.repository()),
            "task": "Mend the bug that the failing tests show",
            "credential": "git",
        });
        input
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        input
    }

    /// Starts a server.
    fn server(&self) -> Server {
        self.server_with(&[])
    }

    /// Starts a server with more in its environment.
    fn server_with(&self, more: &[(&str, &str)]) -> Server {
        let settings = [
            &[("HELMDECK_VAULT_KEY", VAULT_KEY), ("HELMDECK_LOG", "debug")],
            more,
        ]
        .concat();
        Server::start_with(&self.home, KEY, &settings)
    }

    /// Runs to the end for the local caller and returns the outcome.
    #[track_caller]
    fn solve(&self, server: &Server, more: Value) -> Value {
        let id = submit(server, &self.input(more), None);
        let (code, outcome) = result(server, &id, None);
        assert_eq!(code, 200, "{outcome}\n{}", server.log());
        outcome
    }

    /// Returns the folders of existing sessions.
    fn sessions(&self) -> Vec<PathBuf> {
        let folder = self.home.data().join("sessions");
        let entries = std::fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path());
        entries.filter(|path| path.is_dir()).collect()
    }

    /// Returns the existing branches besides `main`.
    fn pushed(&self) -> Vec<(String, String)> {
        let branches = self.git.branches(&self.repository());
        branches
            .into_iter()
            .filter(|(name, _)| name != "main")
            .collect()
    }
}

/// Asks for a path, as the bearer of a token.
#[track_caller]
fn ask(server: &Server, head: &str, token: Option<&str>, body: &str) -> (u16, Value) {
    let head = token.map_or_else(
        || head.to_owned(),
        |token| format!("{head}\nAuthorization: Bearer {token}"),
    );
    let answer = server.ask(&head, body);
    (answer.code, answer.json())
}

/// Starts a run as a job and returns its id.
#[track_caller]
fn submit(server: &Server, input: &Value, token: Option<&str>) -> String {
    let (code, job) = ask(
        server,
        "POST /api/v1/packs/swe.solve/jobs",
        token,
        &input.to_string(),
    );
    assert_eq!(code, 202, "{job}");
    job["id"].as_str().unwrap().to_owned()
}

/// Returns a job.
#[track_caller]
fn job(server: &Server, id: &str, token: Option<&str>) -> Value {
    let (code, job) = ask(server, &format!("GET /api/v1/jobs/{id}"), token, "");
    assert_eq!(code, 200, "{job}");
    job
}

/// Says whether a job has ended.
fn ended(job: &Value) -> bool {
    !["queued", "running"].contains(&job["state"].as_str().unwrap())
}

/// Waits for the end of a job and returns its result, with the status of that answer.
#[track_caller]
fn result(server: &Server, id: &str, token: Option<&str>) -> (u16, Value) {
    wait_for("the job to end", || ended(&job(server, id, token)));
    ask(server, &format!("GET /api/v1/jobs/{id}/result"), token, "")
}

/// Returns a file that a run wrote.
#[track_caller]
fn artifact(server: &Server, key: &str) -> Value {
    let (code, artifact) = ask(server, &format!("GET /api/v1/artifacts/{key}"), None, "");
    assert_eq!(code, 200, "{key}: {artifact}");
    artifact
}

/// Returns the processes, as `id command line`, whose command line holds a text.
fn processes_with(text: &str) -> Vec<String> {
    let all = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| {
            let id: u32 = entry.file_name().to_str()?.parse().ok()?;
            let line = std::fs::read(entry.path().join("cmdline")).ok()?;
            Some(format!(
                "{id} {}",
                String::from_utf8_lossy(&line).replace('\0', " ")
            ))
        });
    all.filter(|line| line.contains(text)).collect()
}

/// A command that never ends, and that is found among all processes by its number.
fn endless() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!(
        "sleep 86{:05}{:04}",
        std::process::id() % 100_000,
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}
