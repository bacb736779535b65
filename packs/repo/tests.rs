//! Tests of the packs with real git, in a session that is a plain folder.
//!
//! Repositories are reached over a real HTTP server on loopback and from folders.

mod bounds;
mod failures;
mod fetches;
mod planted;
mod pushes;
mod secrets;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use helmdeck_core::session::Session;
use helmdeck_core::{Error, Result, Secret};
use helmdeck_egress::Egress;
use helmdeck_testkit::FolderSession;

use super::changes::{self, Changes};
use super::checkout::{self, Checkout};
use super::git::{Git, Remote};
use super::mirror::Wish;
use super::publish::{self, Proposal};
use super::url::RepoUrl;
use super::{Config, Paths};

/// Who logs in to a server that asks.
const USER: &str = "bot";
/// The password of that user.
const PASSWORD: &str = "sparrow-3f9c";

/// Runs git as a person would, and returns what it said.
#[track_caller]
fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(folder)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .envs(["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_NAME"), "somebody")))
        .envs(
            ["AUTHOR", "COMMITTER"]
                .map(|who| (format!("GIT_{who}_EMAIL"), "somebody@example.invalid")),
        )
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "git {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout)
        .trim_end()
        .to_owned()
}

fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// A repository with a work tree, and its bare twin that others reach.
struct Origin {
    folder: tempfile::TempDir,
    server: Option<(Child, u16)>,
}

impl Origin {
    /// A repository with two commits, a tag and a branch, in a folder.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let work = folder.path().join("work");
        std::fs::create_dir(&work).unwrap();
        git(&work, &["init", "-q", "-b", "main"]);
        write(&work, "greeting.txt", "hello\n");
        write(&work, "src/main.py", "print('hello')\n");
        git(&work, &["add", "."]);
        git(&work, &["commit", "-q", "-m", "first"]);
        git(&work, &["tag", "-a", "v1", "-m", "one"]);
        git(&work, &["checkout", "-q", "-b", "side"]);
        write(&work, "side.txt", "side\n");
        git(&work, &["add", "."]);
        git(&work, &["commit", "-q", "-m", "side"]);
        git(&work, &["checkout", "-q", "main"]);
        write(&work, "greeting.txt", "hello world\n");
        git(&work, &["commit", "-q", "-a", "-m", "second"]);
        let origin = Self {
            folder,
            server: None,
        };
        git(
            &work,
            &[
                "clone",
                "-q",
                "--bare",
                ".",
                origin.bare().to_str().unwrap(),
            ],
        );
        origin
    }

    /// The same, behind an HTTP server; it asks for the user's password if `login`.
    fn over_http(login: bool) -> Self {
        let mut origin = Self::new();
        let [root, control] = ["root", "control"].map(|name| origin.folder.path().join(name));
        std::fs::create_dir_all(&control).unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/support/git/git_http.py");
        let mut command = Command::new("python3");
        command
            .arg(script)
            .arg(root)
            .arg(control)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        if login {
            let file = origin.folder.path().join("password");
            std::fs::write(&file, PASSWORD).unwrap();
            command.args(["--user", USER, "--password-file"]).arg(file);
        }
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let port = line.trim().strip_prefix("ready ").unwrap().parse().unwrap();
        origin.server = Some((process, port));
        origin
    }

    fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    fn bare(&self) -> PathBuf {
        self.folder.path().join("root/o/r.git")
    }

    fn url(&self) -> String {
        match &self.server {
            Some((_, port)) => format!("http://127.0.0.1:{port}/o/r.git"),
            None => self.bare().to_str().unwrap().to_owned(),
        }
    }

    fn tell(&self, word: &str) {
        std::fs::write(self.folder.path().join("control").join(word), "").unwrap();
    }

    fn id(&self, name: &str) -> String {
        git(&self.bare(), &["rev-parse", &format!("{name}^{{commit}}")])
    }

    /// Commits a file and publishes it; returns the commit.
    fn commit(&self, name: &str, text: &str) -> String {
        write(&self.work(), name, text);
        git(&self.work(), &["add", "."]);
        git(&self.work(), &["commit", "-q", "-m", "more"]);
        git(
            &self.work(),
            &["push", "-q", "-f", self.bare().to_str().unwrap(), "HEAD"],
        );
        self.id("HEAD")
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        if let Some((process, _)) = &mut self.server {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// A session and a git that reaches loopback.
struct Desk {
    git: Git,
    session: FolderSession,
    credential: Option<Secret>,
}

impl Desk {
    fn new() -> Self {
        Self::with(
            Config {
                paths: Paths::All,
                ..Config::default()
            },
            &["127.0.0.1"],
        )
    }

    fn with(config: Config, allow: &[&str]) -> Self {
        let allow = allow.iter().map(|text| text.parse().unwrap()).collect();
        let egress = Egress::new(helmdeck_egress::Config {
            allow,
            ..helmdeck_egress::Config::default()
        });
        Self {
            git: Git::new(config, egress),
            session: FolderSession::new(),
            credential: None,
        }
    }

    fn login(mut self, user: &str, password: &str) -> Self {
        let hosts: Arc<[_]> = ["127.0.0.1".parse().unwrap()].into();
        self.credential = Some(
            Secret::new(password.to_owned())
                .of_user(user)
                .for_hosts(hosts),
        );
        self
    }

    async fn open(&self, url: &str) -> Result<Remote> {
        self.git
            .open(
                &RepoUrl::parse(url)?,
                self.credential.clone(),
                self.credential.is_some(),
            )
            .await
    }

    async fn try_fetch(&self, url: &str, wish: &Wish) -> Result<Checkout> {
        let remote = self.open(url).await?;
        checkout::check_out(&self.git, &remote, &self.session, "repo", wish).await
    }

    #[track_caller]
    fn told<T>(result: Result<T>) -> T {
        result.unwrap_or_else(|error| panic!("{error}: {}", error.cause()))
    }

    async fn fetch(&self, url: &str, reference: &str) -> Checkout {
        Self::told(self.try_fetch(url, &named(reference)).await)
    }

    fn repo(&self) -> PathBuf {
        self.session.folder().join("repo")
    }

    async fn changes(&self, checkout: &Checkout) -> Changes {
        Self::told(changes::changes(&self.session, checkout, 1 << 20).await)
    }

    /// Publishes what changed as a branch.
    async fn try_push(&self, checkout: &Checkout, branch: &str) -> Result<String> {
        let changes = self.changes(checkout).await;
        let remote = self.open(&checkout.url).await?;
        let proposal = Proposal {
            patch: &changes.patch,
            branch,
            message: "Mend it",
        };
        publish::apply_and_push(&self.git, &remote, &self.session, checkout, proposal).await
    }

    async fn refusal(&self, url: &str) -> Error {
        self.try_fetch(url, &Wish::default()).await.unwrap_err()
    }
}

/// A wish for a ref with all of its history; "" = the default branch.
fn named(reference: &str) -> Wish {
    Wish {
        reference: Some(reference.to_owned()).filter(|name| !name.is_empty()),
        depth: None,
    }
}
