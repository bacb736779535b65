//! The program itself, as a person or a script runs it: arguments in, output and exit code out.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::support::{PATIENT, STUCK, wait_for};

const KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const OTHER_KEY: &str = "ff112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// A separate home folder, without the environment of this process.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, below: &str) -> PathBuf {
        self.0.path().join(below)
    }

    fn data(&self) -> PathBuf {
        self.path(".local/share/helmdeck")
    }

    fn command(&self, arguments: &[&str], env: &[(&str, &str)]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_helmdeck"));
        command
            .args(arguments)
            .env_clear()
            .env("HOME", self.0.path())
            .env("PATH", "/usr/bin:/bin")
            .envs(PATIENT)
            .envs(env.iter().copied())
            .current_dir(self.0.path())
            .stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str], env: &[(&str, &str)]) -> Run {
        Run::of(self.command(arguments, env).output().unwrap())
    }

    /// Installs a pack that counts its runs in a file and answers with the count.
    fn install_counter(&self) {
        let folder = self.path(".config/helmdeck/packs");
        std::fs::create_dir_all(&folder).unwrap();
        let script = folder.join("count.sh");
        std::fs::write(
            &script,
            "#!/bin/sh\ncat >/dev/null\necho run >>runs\nprintf '{\"runs\":%d}' \"$(wc -l <runs)\"\n",
        )
        .unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let manifest = "name = \"test.count\"\nversion = \"v1\"\ndescription = \"Counts its runs\"\nread_only = true\n\
            [handler]\ncommand = [\"./count.sh\"]\n[input]\ntype = \"object\"\nadditionalProperties = false\n\
            [input.properties]\nrepo = { type = \"string\" }\nlimit = { type = \"integer\" }\n\
            [memory]\ncache = true\nttl = \"1h\"\ntags = [\"repo:{repo}\"]\n";
        std::fs::write(folder.join("count.toml"), manifest).unwrap();
    }
}

struct Run {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Run {
    fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {} {}", self.stdout, self.stderr))
    }

    #[track_caller]
    fn ends(self, code: i32) -> Self {
        assert_eq!(
            self.code, code,
            "stdout: {}\nstderr: {}",
            self.stdout, self.stderr
        );
        self
    }
}

#[test]
fn new_command_pack_checks_and_runs() {
    let home = Home::new();
    let made = home.run(&["pack", "new", "team.echo"], &[]).ends(0);
    assert!(
        made.stdout.contains("team.echo.toml") && made.stdout.contains("team_echo.sh"),
        "{}",
        made.stdout
    );
    home.run(&["pack", "check", "--run"], &[]).ends(0);
    let outcome = home
        .run(&["run", "team.echo", "text=17", "--json"], &[])
        .ends(0);
    let outcome = outcome.json();
    assert_eq!(outcome["output"]["input"]["text"], "17");
    assert_eq!(outcome["pack"], "team.echo");
    assert!(outcome.get("cache").is_none());

    let again = home.run(&["pack", "new", "team.echo"], &[]).ends(2);
    assert!(
        again.stderr.contains("nothing was written"),
        "{}",
        again.stderr
    );
}

#[test]
fn typos_exit_with_documented_code_and_suggestion() {
    let home = Home::new();
    home.install_counter();
    let unknown = home.run(&["run", "test.cont"], &[]).ends(3);
    assert!(
        unknown.stderr.contains("did you mean \"test.count\""),
        "{}",
        unknown.stderr
    );
    let key = home.run(&["run", "test.count", "limt=1"], &[]).ends(2);
    assert!(
        key.stderr.contains("did you mean \"limit\""),
        "{}",
        key.stderr
    );
    home.run(&["run", "test.count", "limit=many"], &[]).ends(2);
    home.run(&["run", "test.count", "--input", "{\"limit\":\"x\"}"], &[])
        .ends(2);
    home.run(&["pack", "check", ".config/helmdeck/packs/count.sh"], &[])
        .ends(2);
    home.run(&["pack", "check", ".config/helmdeck/packs/count.toml"], &[])
        .ends(0);
    home.run(&["pack", "check", "no/such"], &[]).ends(3);
    home.run(&["nonsense"], &[]).ends(2);
    home.run(&["--help"], &[]).ends(0);
    home.run(&["version"], &[]).ends(0);

    let problem = home.run(&["run", "test.cont", "--json"], &[]).ends(3);
    let problem: Value = serde_json::from_str(&problem.stderr).unwrap();
    assert_eq!(problem["code"], "not_found");
}

#[test]
fn wrong_configuration_exits_78_and_names_its_place() {
    let home = Home::new();
    let variable = home
        .run(&["pack", "list"], &[("HELMDECK_SERVER__LISEN", "x")])
        .ends(78);
    assert!(
        variable.stderr.contains("HELMDECK_SERVER__LISTEN"),
        "{}",
        variable.stderr
    );

    let file = home.path("h.toml");
    std::fs::write(
        &file,
        "\n[server]\nlisten = \"127.0.0.1:1\"\ndrain_timout = \"1s\"\n",
    )
    .unwrap();
    let bad = home
        .run(&["check"], &[("HELMDECK_CONFIG", file.to_str().unwrap())])
        .ends(78);
    assert!(
        bad.stdout
            .contains("h.toml:4: unknown key \"server.drain_timout\""),
        "{}",
        bad.stdout
    );

    let canary = "canary-canary";
    for variable in ["HELMDECK_MEMORY_KEY", "HELMDECK_MEMORY_KEY_PREVIOUS"] {
        let key = home
            .run(&["run", "repo.map", "path=."], &[(variable, canary)])
            .ends(78);
        assert!(
            key.stderr.contains(variable) && !key.stderr.contains(canary),
            "{}",
            key.stderr
        );
    }
    let empty = home
        .run(&["memory", "status"], &[("HELMDECK_MEMORY_KEY", "")])
        .ends(78);
    assert!(
        empty.stderr.contains("HELMDECK_MEMORY_KEY") && empty.stderr.contains("64 hex"),
        "{}",
        empty.stderr
    );
}

#[test]
fn configuration_in_working_folder_is_not_read() {
    let home = Home::new();
    std::fs::write(home.path("helmdeck.toml"), "nonsense = 1\n").unwrap();
    home.run(&["check"], &[]).ends(0);
}

#[test]
fn settings_are_shown_with_origin_without_secrets() {
    let home = Home::new();
    let env = [("HELMDECK_LOG", "debug"), ("HELMDECK_MEMORY_KEY", KEY)];
    let shown = home.run(&["config", "show", "--origin"], &env).ends(0);
    let line = shown
        .stdout
        .lines()
        .find(|line| line.starts_with("log.level"))
        .unwrap();
    assert!(
        line.contains("debug") && line.ends_with("# HELMDECK_LOG"),
        "{line}"
    );
    assert!(shown.stdout.contains("(set)") && !shown.stdout.contains(KEY));
    assert!(shown.stdout.contains("# default"));
}

#[test]
fn without_key_nothing_is_cached_or_written() {
    let home = Home::new();
    home.install_counter();
    for runs in 1..=2 {
        let run = home.run(&["run", "test.count", "--json"], &[]).ends(0);
        assert_eq!(
            (
                run.json()["output"]["runs"].as_i64(),
                run.json().get("cache")
            ),
            (Some(runs), None)
        );
        assert_eq!(run.stderr, "");
    }
    assert!(!home.path(".local").exists());
}

#[test]
fn second_process_hits_until_purge_without_key() {
    let home = Home::new();
    home.install_counter();
    let key = [("HELMDECK_MEMORY_KEY", KEY)];
    let run = |arguments: &[&str]| {
        let arguments = [&["run", "test.count", "repo=A/b", "--json"], arguments].concat();
        let outcome = home.run(&arguments, &key).ends(0).json();
        (
            outcome["cache"]["status"].as_str().unwrap().to_owned(),
            outcome["output"]["runs"].as_i64().unwrap(),
        )
    };
    assert_eq!(run(&[]), ("miss".into(), 1));
    assert_eq!(run(&[]), ("hit".into(), 1));
    assert_eq!(run(&["--cache", "bypass"]), ("bypass".into(), 2));
    assert_eq!(run(&["--no-cache"]).1, 3);
    assert_eq!(run(&["--cache", "only-if-cached"]), ("hit".into(), 3));

    let listed = home.run(&["cache", "ls", "--json"], &[]).ends(0).json();
    assert_eq!(listed.as_array().unwrap().len(), 1);
    let stats = home.run(&["cache", "stats", "--json"], &[]).ends(0).json();
    assert_eq!(
        (
            stats["test.count"]["hit"].as_u64(),
            stats["test.count"]["bypass"].as_u64()
        ),
        (Some(2), Some(1))
    );
    let savings = home
        .run(&["cache", "savings", "--json"], &[])
        .ends(0)
        .json();
    assert_eq!(savings["test.count"]["calls"], 2);
    assert!(savings["test.count"].get("usd").is_none(), "{savings}");
    std::fs::write(
        home.path(".config/helmdeck/helmdeck.toml"),
        "[prices]\n\"test.count\" = 0.25\n",
    )
    .unwrap();
    let priced = home.run(&["cache", "savings"], &[]).ends(0);
    assert!(
        priced.stdout.contains("USD SAVED") && priced.stdout.contains("0.50"),
        "{}",
        priced.stdout
    );
    let explained = home
        .run(&["cache", "explain", "test.count", "repo=A/b"], &key)
        .ends(0);
    assert!(explained.stdout.contains("fresh"), "{}", explained.stdout);

    home.run(&["cache", "purge", "--tag", "repo:a/b"], &[])
        .ends(2);
    let purged = home
        .run(
            &["cache", "purge", "--tag", "repo:A/B", "--yes", "--json"],
            &[],
        )
        .ends(0)
        .json();
    assert_eq!(purged["removed"], 1);
    assert_eq!(run(&[]), ("miss".into(), 4));
    home.run(
        &["memory", "purge", "--namespace", "local/local", "--yes"],
        &[],
    )
    .ends(0);
    let only = home
        .run(
            &["run", "test.count", "repo=A/b", "--cache", "only-if-cached"],
            &key,
        )
        .ends(3);
    assert!(only.stderr.contains("cache_miss"), "{}", only.stderr);
    home.run(&["memory", "doctor"], &key).ends(0);

    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode(&home.data()), mode(&home.data().join("memory.db"))),
        (0o700, 0o600)
    );
    let wrong = home
        .run(
            &["run", "test.count"],
            &[("HELMDECK_MEMORY_KEY", OTHER_KEY)],
        )
        .ends(78);
    assert!(
        wrong.stderr.contains("this store was written with key"),
        "{}",
        wrong.stderr
    );
}

#[test]
fn verbs_that_only_read_make_no_store() {
    let home = Home::new();
    home.install_counter();
    let key = [("HELMDECK_MEMORY_KEY", KEY)];
    for (arguments, code) in [
        (&["memory", "status"][..], 0),
        (&["memory", "list"], 0),
        (&["memory", "doctor"], 3),
        (&["memory", "purge", "--all", "--yes"], 0),
        (&["cache", "ls"], 0),
        (&["cache", "stats"], 0),
        (&["cache", "savings"], 0),
        (&["cache", "explain", "test.count"], 0),
        (&["pack", "list"], 0),
        (&["pack", "show", "test.count"], 0),
        (&["check"], 0),
        (&["key", "check"], 0),
    ] {
        home.run(arguments, &key).ends(code);
        assert!(
            !home.path(".local").exists(),
            "{arguments:?} wrote something"
        );
    }
}

#[test]
fn packs_that_cannot_work_are_not_listed() {
    let home = Home::new();
    let families = |env: &[(&str, &str)]| -> std::collections::BTreeSet<String> {
        let listed = home.run(&["pack", "list", "--json"], env).ends(0).json();
        let names = listed["packs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|pack| pack["name"].as_str().unwrap());
        names
            .map(|name| name.split('.').next().unwrap().to_owned())
            .collect()
    };
    let always = ["github", "repo", "text"].map(str::to_owned);
    assert_eq!(families(&[]), always.into());
    let key = [("HELMDECK_MEMORY_KEY", KEY)];
    assert!(
        ["conversation", "memory"]
            .iter()
            .all(|family| families(&key).contains(*family))
    );
    assert!(families(&[("HELMDECK_LLM__ENDPOINT", "http://127.0.0.1:1")]).contains("swe"));
    let all = home.run(&["pack", "list", "--all"], &[]).ends(0).stdout;
    assert!(
        all.contains("swe.solve ") && all.contains("waiting for a model: "),
        "{all}"
    );
    let found = home
        .run(&["pack", "list", "repo", "--json"], &[])
        .ends(0)
        .json();
    let found = found["packs"].as_array().unwrap();
    assert!(
        !found.is_empty()
            && found
                .iter()
                .all(|pack| pack["name"].as_str().unwrap().contains("repo"))
    );
    let checked = home.run(&["check"], &[]).stdout;
    for waits in [
        "packs memory",
        "waiting for a memory key: ",
        "waiting for a model: ",
        "waiting for a project: ",
    ] {
        assert!(checked.contains(waits), "{waits}: {checked}");
    }
    std::fs::create_dir_all(home.path("repo/.forge")).unwrap();
    let project = home.path("repo").display().to_string();
    let project = families(&[("HELMDECK_FORGE__ROOT", &project)]);
    assert!(
        ["forge", "seam"]
            .iter()
            .all(|family| project.contains(*family)),
        "{project:?}"
    );
    let refused = home.run(&["run", "memory.list"], &[]);
    assert!(
        refused.code != 0 && refused.stderr.contains("memory key"),
        "{}",
        refused.stderr
    );
}

#[test]
fn a_generated_key_is_accepted() {
    let home = Home::new();
    let key = home.run(&["key", "generate"], &[]).ends(0).stdout;
    assert_eq!(key.trim_end().len(), 64);
    home.run(
        &["key", "check"],
        &[("HELMDECK_MEMORY_KEY", key.trim_end())],
    )
    .ends(0);
    home.run(&["key", "check"], &[]).ends(3);
}

#[test]
fn output_goes_to_stdout_and_progress_to_stderr() {
    let home = Home::new();
    std::fs::write(home.path("a.rs"), "pub fn the_function() {}\n").unwrap();
    let map = home
        .run(&["run", "repo.map", "path=.", "--json", "-v"], &[])
        .ends(0);
    let root = home.0.path().canonicalize().unwrap();
    assert_eq!(map.json()["output"]["root"].as_str(), root.to_str());
    assert!(!map.stderr.is_empty());
    let text = home.run(&["run", "repo.map", "path=."], &[]).ends(0);
    assert!(text.stdout.contains("the_function"), "{}", text.stdout);
    assert!(
        text.stderr.starts_with("repo.map v1: ") && !text.stderr.contains("cache"),
        "{}",
        text.stderr
    );
}

#[test]
fn closed_stdout_ends_the_program_silently() {
    let home = Home::new();
    for arguments in [
        &["completions", "bash"][..],
        &["config", "show"],
        &["pack", "list"],
        &["--help"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = home
            .command(arguments, &[])
            .stdout(writer)
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        let run = Run::of(output).ends(0);
        assert_eq!(run.stderr, "", "{arguments:?}");
    }
}

/// Installs a pack that writes its process id to a file and then sleeps for longer than any test
/// runs.
fn install_sleeper(home: &Home) -> PathBuf {
    let folder = home.path(".config/helmdeck/packs");
    std::fs::create_dir_all(&folder).unwrap();
    let manifest = "name = \"test.sleep\"\nversion = \"v1\"\ndescription = \"Sleeps\"\n[handler]\n\
        command = [\"sh\", \"-c\", \"echo $$ >pid.new; mv pid.new pid; sleep 1000\"]\ntimeout = \"10m\"\n";
    std::fs::write(folder.join("sleep.toml"), manifest).unwrap();
    folder.join("pid")
}

fn is_running(pid: &str) -> bool {
    // A process that has ended and was not yet collected by its parent does not run.
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn interrupted_or_late_call_kills_its_program() {
    let home = Home::new();
    let pid_file = install_sleeper(&home);
    let late = home
        .run(&["run", "test.sleep", "--timeout", "300ms", "--json"], &[])
        .ends(1);
    assert_eq!(
        serde_json::from_str::<Value>(&late.stderr).unwrap()["code"],
        "timeout"
    );

    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let _ = std::fs::remove_file(&pid_file);
        let mut child = home
            .command(&["run", "test.sleep"], &[])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait_for("the program to start", || pid_file.exists());
        let program = std::fs::read_to_string(&pid_file)
            .unwrap()
            .trim()
            .to_owned();
        assert!(is_running(&program));
        assert!(
            Command::new("kill")
                .args([signal, &child.id().to_string()])
                .status()
                .unwrap()
                .success()
        );
        assert_eq!(child.wait().unwrap().code(), Some(code), "{signal}");
        wait_for("the program to end", || !is_running(&program));
    }
}

#[test]
fn killed_run_kills_its_program() {
    let home = Home::new();
    let pid_file = install_sleeper(&home);
    let mut child = home
        .command(&["run", "test.sleep"], &[])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the program to start", || pid_file.exists());
    let program = std::fs::read_to_string(&pid_file)
        .unwrap()
        .trim()
        .to_owned();
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for("the program to end", || !is_running(&program));
}

#[test]
fn unreachable_store_does_not_fail_a_call() {
    let home = Home::new();
    home.install_counter();
    std::fs::write(home.path("file"), "").unwrap();
    let data = home.path("file/data");
    let env = [
        ("HELMDECK_MEMORY_KEY", KEY),
        ("HELMDECK_DATA_DIR", data.to_str().unwrap()),
    ];
    let run = home.run(&["run", "test.count"], &env).ends(0);
    assert_eq!(run.stdout, "runs: 1\n");
    assert!(
        run.stderr.contains("going on without memory"),
        "{}",
        run.stderr
    );
}

#[test]
fn mistakes_are_problems_in_json_for_programs() {
    let home = Home::new();
    let usage = home.run(&["run", "--json", "--nonsense"], &[]).ends(2);
    assert_eq!(
        serde_json::from_str::<Value>(&usage.stderr).unwrap()["title"],
        "usage"
    );
    let config = home
        .run(&["pack", "list", "--json"], &[("HELMDECK_NONSENSE", "1")])
        .ends(78);
    assert_eq!(
        serde_json::from_str::<Value>(&config.stderr).unwrap()["title"],
        "configuration"
    );
}

/// A running server, killed when the test ends, however it ends.
struct Server {
    child: Child,
    address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails only if it has ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(home: &Home, env: &[(&str, &str)]) -> Self {
        let mut command = home.command(&["serve", "--listen", "127.0.0.1:0"], env);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let ready = lines
            .find(|line| line.as_ref().unwrap().contains("listening on http://"))
            .unwrap()
            .unwrap();
        let address = ready
            .split("http://")
            .nth(1)
            .unwrap()
            .split('"')
            .next()
            .unwrap()
            .to_owned();
        // A program that logs to a pipe without a reader would stop when it is full.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }

    fn ask(&self, head: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(STUCK)).unwrap();
        let (address, length) = (&self.address, body.len());
        write!(stream, "{head} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

#[test]
fn server_and_shell_share_cached_answers() {
    let home = Home::new();
    home.install_counter();
    let key = [("HELMDECK_MEMORY_KEY", KEY)];
    home.run(&["run", "test.count", "repo=a/b"], &key).ends(0);
    let mut server = Server::start(&home, &key);
    assert!(server.ask("GET /healthz", "").starts_with("HTTP/1.1 200"));
    let answer = server.ask("POST /api/v1/packs/test.count", "{\"repo\":\"a/b\"}");
    assert!(
        answer.contains("\"status\":\"hit\"") && answer.contains("\"runs\":1"),
        "{answer}"
    );
    server.ask("POST /api/v1/packs/test.count", "{\"repo\":\"c/d\"}");

    let pid = server.child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &pid])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    let hit = home
        .run(&["run", "test.count", "repo=c/d", "--json"], &key)
        .ends(0)
        .json();
    assert_eq!(hit["cache"]["status"], "hit");
}

#[test]
fn only_this_machine_is_served() {
    let home = Home::new();
    let refused = home.run(&["serve", "--listen", "0.0.0.0:0"], &[]).ends(78);
    assert!(
        refused.stderr.contains("--listen") && refused.stderr.contains("loopback"),
        "{}",
        refused.stderr
    );
}
