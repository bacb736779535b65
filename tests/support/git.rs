//! A real git server over HTTP, with a login if wanted (`git/git_http.py`), and git itself for what
//! tests look at and prepare.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::wait_for;

/// A server of bare repositories. It ends when this value does.
pub(crate) struct GitServer {
    process: Child,
    port: u16,
    folder: tempfile::TempDir,
}

impl GitServer {
    /// Starts a server that asks for this user and password.
    pub(crate) fn with_login(user: &str, password: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [root, control] = ["repositories", "control"].map(|name| folder.path().join(name));
        std::fs::create_dir(&root).unwrap();
        std::fs::create_dir(&control).unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/git/git_http.py");
        let mut command = Command::new("python3");
        command
            .arg(script)
            .arg(root)
            .arg(control)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let file = folder.path().join("password");
        std::fs::write(&file, password).unwrap();
        command.args(["--user", user, "--password-file"]).arg(file);
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let port = line
            .trim()
            .strip_prefix("ready ")
            .and_then(|port| port.parse().ok());
        let port = port.unwrap_or_else(|| panic!("the git server did not start: {line:?}"));
        Self {
            process,
            port,
            folder,
        }
    }

    /// Returns the URL of a repository, `o/r.git` for example, or of any other path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    /// Returns the folder of a repository.
    pub(crate) fn bare(&self, name: &str) -> PathBuf {
        self.folder.path().join("repositories").join(name)
    }

    /// Adds a copy of a repository under a name, `o/r.git` for example.
    pub(crate) fn add(&self, name: &str, origin: &Path) {
        let bare = self.bare(name);
        std::fs::create_dir_all(bare.parent().unwrap()).unwrap();
        git(
            self.folder.path(),
            &[
                "clone",
                "-q",
                "--bare",
                origin.to_str().unwrap(),
                bare.to_str().unwrap(),
            ],
        );
    }

    /// Returns a branch's commit, `None` if the branch does not exist.
    pub(crate) fn head(&self, name: &str, branch: &str) -> Option<String> {
        self.branches(name)
            .into_iter()
            .find(|(found, _)| found == branch)
            .map(|(_, commit)| commit)
    }

    /// Returns the branches of a repository with their commits.
    pub(crate) fn branches(&self, name: &str) -> Vec<(String, String)> {
        let said = git(
            &self.bare(name),
            &[
                "for-each-ref",
                "--format=%(refname:short) %(objectname)",
                "refs/heads",
            ],
        );
        said.lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(name, at)| (name.to_owned(), at.to_owned()))
            .collect()
    }

    /// Makes it do something until a later command ends it; the words are in `git/git_http.py`.
    pub(crate) fn tell(&self, word: &str) {
        std::fs::write(self.control(word), "").unwrap();
    }

    /// Takes a word back.
    pub(crate) fn stop(&self, word: &str) {
        std::fs::remove_file(self.control(word)).unwrap();
    }

    /// Takes a word back if it was said.
    pub(crate) fn try_stop(&self, word: &str) {
        let _ = std::fs::remove_file(self.control(word));
    }

    /// Waits until a request is stalled here, as ordered.
    #[track_caller]
    pub(crate) fn wait_until_stalled(&self) {
        wait_for("a request to wait at the git server", || {
            self.control("stalled").exists()
        });
    }

    /// Returns what it was asked so far, in order: method, path, status, user.
    pub(crate) fn log(&self) -> Vec<Value> {
        let log = std::fs::read_to_string(self.control("log")).unwrap_or_default();
        log.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    fn control(&self, name: &str) -> PathBuf {
        self.folder.path().join("control").join(name)
    }
}

impl Drop for GitServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs git in a folder, with no settings but its own, and returns what it said.
#[track_caller]
pub(crate) fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = try_git(folder, arguments);
    assert!(
        output.status.success(),
        "git {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout)
        .trim_end_matches('\n')
        .to_owned()
}

/// Runs git in a folder, with no settings but its own.
pub(crate) fn try_git(folder: &Path, arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new("git");
    command
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .env_clear();
    let name = ["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"].map(|name| (name, "somebody"));
    let mail =
        ["GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"].map(|name| (name, "somebody@example.invalid"));
    command
        .envs(name)
        .envs(mail)
        .env("PATH", "/usr/local/bin:/usr/bin:/bin");
    command
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap()
}

#[test]
fn git_server_asks_waits_and_refuses_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let (seed, work) = (folder.path().join("seed"), folder.path().join("work"));
    std::fs::create_dir(&seed).unwrap();
    git(&seed, &["init", "-q", "-b", "main"]);
    git(&seed, &["commit", "-q", "--allow-empty", "-m", "first"]);
    let server = GitServer::with_login("bot", "sparrow");
    server.add("o/r.git", &seed);
    let url = server
        .url("o/r.git")
        .replace("http://", "http://bot:sparrow@");
    let clone = |url: &str| {
        try_git(
            folder.path(),
            &["-c", "credential.helper=", "clone", "-q", url, "work"],
        )
    };
    assert!(
        !clone(&server.url("o/r.git")).status.success(),
        "nobody gets in without a login"
    );
    assert!(clone(&url).status.success());
    let push = |branch: &str| {
        try_git(&work, &["push", "-q", &url, &format!("HEAD:{branch}")])
            .status
            .success()
    };

    server.tell("refuse-push");
    assert!(!push("refs/heads/refused"));
    server.stop("refuse-push");
    server.tell("stall-push");
    std::thread::scope(|scope| {
        let pushed = scope.spawn(|| push("refs/heads/later"));
        server.wait_until_stalled();
        assert_eq!(server.head("o/r.git", "later"), None);
        server.stop("stall-push");
        assert!(pushed.join().unwrap());
    });
    assert_eq!(
        server.head("o/r.git", "later"),
        server.head("o/r.git", "main")
    );
    assert!(
        server.log().iter().any(|line| line["status"] == 401)
            && server.log().iter().any(|line| line["user"] == "bot")
    );
}
