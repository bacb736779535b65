//! Completion in the shells themselves: a key is pressed on a terminal, and the shell says what its
//! line became.
//!
//! Needs bash, zsh and fish (`tests/run` installs them), and `script` for the terminal.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::support::program::{Home, Server};
use crate::support::{KEY, wait_for};

const PROGRAM: &str = env!("CARGO_BIN_EXE_helmdeck");
const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/cli/completion");

/// A shell on a terminal, with completion set up as the Debian package does.
struct Shell {
    child: Child,
    keys: ChildStdin,
    shown: Arc<Mutex<String>>,
    /// Number of tabs that list what is ambiguous.
    tabs: usize,
    commands: usize,
}

impl Drop for Shell {
    fn drop(&mut self) {
        // Fails only if it has ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Shell {
    fn open(name: &str, home: &Home) -> Self {
        let folder = home.environment(KEY).remove("HOME").unwrap();
        let write = |file: &str, text: &str| {
            let path = Path::new(&folder).join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let script =
            |kind: &str| std::fs::read_to_string(format!("{SCRIPTS}/helmdeck.{kind}")).unwrap();
        let line = match name {
            "bash" => {
                write(
                    "bashrc",
                    &format!("PS1='READY> '\nsource {SCRIPTS}/helmdeck.bash\n"),
                );
                "exec bash --rcfile ~/bashrc -i"
            }
            "zsh" => {
                write("site/_helmdeck", &script("zsh"));
                let setup = "fpath=(~/site $fpath)\nautoload -Uz compinit; compinit -u -D\n";
                write(
                    ".zshrc",
                    &format!("PROMPT='READY> '\nunsetopt PROMPT_SP PROMPT_CR\n{setup}"),
                );
                "exec zsh -d -i"
            }
            "fish" => {
                write(".config/fish/completions/helmdeck.fish", &script("fish"));
                let setup = "set -g fish_greeting\nset -g fish_autosuggestion_enabled 0\n";
                write(
                    ".config/fish/config.fish",
                    &format!("{setup}function fish_prompt; echo -n 'READY> '; end\n"),
                );
                "exec fish -i"
            }
            other => panic!("{other}"),
        };
        assert!(
            Command::new(name).arg("--version").output().is_ok(),
            "{name} is not installed"
        );
        let mut command = Command::new("script");
        command.args([
            "-qec",
            &format!("stty rows 50 cols 200; {line}"),
            "/dev/null",
        ]);
        command
            .env_clear()
            .envs(home.environment(KEY))
            .envs([("TERM", "xterm"), ("LANG", "C.UTF-8")]);
        let programs = Path::new(PROGRAM).parent().unwrap();
        command
            .env("PATH", format!("{}:/usr/bin:/bin", programs.display()))
            .env("SHELL", "/bin/sh");
        let mut child = command
            .current_dir(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (keys, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let shown = Arc::new(Mutex::new(String::new()));
        let of_thread = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut piece) {
                of_thread
                    .lock()
                    .unwrap()
                    .push_str(&String::from_utf8_lossy(&piece[..count]));
            }
        });
        let shell = Self {
            child,
            keys,
            shown,
            tabs: if name == "bash" { 2 } else { 1 },
            commands: 0,
        };
        shell.wait("READY> ");
        shell
    }

    /// Waits until the shell shows a text, in whatever colours.
    #[track_caller]
    fn wait(&self, text: &str) {
        wait_for(text, || plain(&self.shown.lock().unwrap()).contains(text));
    }

    fn press(&mut self, keys: &str) {
        self.shown.lock().unwrap().clear();
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Types a line, presses tab, and returns the words that the line then has.
    ///
    /// The line becomes the arguments of `printf`, which the shell runs.
    fn complete(&mut self, line: &str) -> Vec<String> {
        self.commands += 1;
        let ended = format!("ended-{}", self.commands);
        self.press(&format!(
            "{line}\t\u{1}printf '{{%s}}\\n' \u{5}; echo en''ded-{}\r",
            self.commands
        ));
        self.wait(&ended);
        let shown = self.shown.lock().unwrap();
        let words = shown
            .split('{')
            .skip(1)
            .filter_map(|rest| rest.split_once('}').map(|(word, _)| word));
        words
            .filter(|word| !word.contains(|c: char| c.is_control() || c == '%'))
            .map(str::to_owned)
            .collect()
    }

    /// Types a line, asks for a list, and waits until it shows all words.
    #[track_caller]
    fn lists(&mut self, line: &str, words: &[&str]) {
        self.press(&format!("{line}{}", "\t".repeat(self.tabs)));
        words.iter().for_each(|word| self.wait(word));
        self.commands += 1;
        self.press(&format!("\u{1}\u{b}echo en''ded-{}\r", self.commands));
        self.wait(&format!("ended-{}", self.commands));
    }
}

/// Returns a text without the sequences that colour it: `ESC [ ... letter` and `ESC ( letter`.
fn plain(shown: &str) -> String {
    let mut parts = shown.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let end = part
            .find(|c: char| c.is_ascii_alphabetic())
            .map_or(part.len(), |at| at + 1);
        text + &part[end..]
    })
}

/// Makes a home with a job and a session, and returns the ids of both.
fn home() -> (Home, String, String) {
    let home = Home::new();
    let script = home.packs().join("test.box.sh");
    std::fs::write(&script, "#!/bin/sh\ncat >/dev/null\necho '{}'\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let manifest = "name = \"test.box\"\nversion = \"v1\"\ndescription = \"For tests\"\n[handler]\n\
                    command = [\"./test.box.sh\"]\n[session]\npreserve = true\ntimeout = \"1h\"\n";
    std::fs::write(home.packs().join("test.box.toml"), manifest).unwrap();
    let run = home.run(KEY, &["run", "test.box", "--json"]);
    let outcome: Value =
        serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{}", run.stderr));
    let session = outcome["session_id"].as_str().unwrap().to_owned();
    let server = Server::start(&home, KEY);
    let job = server.ask("POST /api/v1/packs/test.echo/jobs", "{}").json()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    (home, job, session)
}

#[track_caller]
fn completes(name: &str) {
    let (home, job, session) = home();
    let mut shell = Shell::open(name, &home);
    for (typed, completed) in [
        ("conversa", "conversation"),
        ("conversation snap", "conversation snapshot"),
        ("run repo.m", "run repo.map"),
        ("--json run test.bo", "--json run test.box"),
        ("run repo.map@", "run repo.map@v1"),
        // Waits for a model.
        ("run swe.s", "run swe.s"),
        (
            "run github.list_issues sta",
            "run github.list_issues state=",
        ),
        (
            "run github.list_issues state=cl",
            "run github.list_issues state=closed",
        ),
        (
            "run repo.map languages=rust,py",
            "run repo.map languages=rust,python",
        ),
        ("run repo.map path=.conf", "run repo.map path=.config/"),
        (
            &format!("job show {}", &job[..30]),
            &format!("job show {job}"),
        ),
        (
            &format!("session end {}", &session[..8]),
            &format!("session end {session}"),
        ),
    ] {
        let words: Vec<&str> = ["helmdeck"]
            .into_iter()
            .chain(completed.split(' '))
            .collect();
        assert_eq!(
            shell.complete(&format!("helmdeck {typed}")),
            words,
            "{name}: {typed}"
        );
    }
    // fish shortens what the candidates share.
    shell.lists("helmdeck run github.list_", &["list_issues", "list_prs"]);
    shell.lists(
        "helmdeck run text.count_tokens encoding=",
        &["cl100k_base", "o200k_base"],
    );
}

#[test]
fn bash_completes_packs_inputs_jobs_and_sessions() {
    completes("bash");
}

#[test]
fn zsh_completes_packs_inputs_jobs_and_sessions() {
    completes("zsh");
}

#[test]
fn fish_completes_packs_inputs_jobs_and_sessions() {
    completes("fish");
}

#[test]
fn completion_creates_no_store() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(PROGRAM);
    command
        .args(["--", "helmdeck", "run", "repo."])
        .env_clear()
        .env("HOME", folder.path());
    let output = command
        .env("_HELMDECK_COMPLETE", "bash")
        .env("HELMDECK_MEMORY_KEY", KEY)
        .output()
        .unwrap();
    let offered = String::from_utf8(output.stdout).unwrap();
    assert!(offered.contains("repo.map\t"), "{offered}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
