//! What the pages about a project, credentials, tokens and MCP servers need: made by the command
//! line.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use helmdeck_testkit::linear::{Fault, Linear};
use serde_json::json;

use crate::support::program::{Home, Run};
use crate::support::{KEY, OTHER_KEY};

/// An MCP server whose tools are in a file beside it.
const SERVER: &str = include_str!("../../src/engine/tests/mcp_server.sh");
/// Key of the vault, as an environment variable.
pub(super) const VAULT_KEY: (&str, &str) = ("HELMDECK_VAULT_KEY", OTHER_KEY);
/// A secret that no page may show.
pub(super) const SECRET: &str = "the-value-of-a-credential";

/// Makes a project in a git repository, with an issue, something to remember and a checkpoint.
/// Returns its folder.
pub(super) fn project(home: &Home, text: &str) -> PathBuf {
    let folder = home.packs().join("../../../project");
    std::fs::create_dir_all(&folder).unwrap();
    let folder = folder.canonicalize().unwrap();
    std::fs::write(folder.join("README.md"), "Bottles\n").unwrap();
    git(&folder, &["init", "--quiet", "--initial-branch=main"]);
    git(&folder, &["config", "user.name", "Ann"]);
    git(&folder, &["config", "user.email", "ann@example.com"]);
    git(&folder, &["add", "--all"]);
    // Notes of a session have the minute alone, so they may come before or after a commit of the
    // minute before.
    let earlier = SystemTime::now() - Duration::from_secs(600);
    let date = format!(
        "@{} +0000",
        earlier
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap()
            .as_secs()
    );
    git_with(
        &folder,
        &["commit", "--quiet", "--message=Begin"],
        &[("GIT_COMMITTER_DATE", &date)],
    );
    let forge = |arguments: &[&str]| {
        let mut command = home.command(KEY, &[&["forge"], arguments].concat());
        let run = Run::of(command.current_dir(&folder).output().unwrap());
        assert_eq!(run.code, 0, "{arguments:?}: {}{}", run.stdout, run.stderr);
    };
    // The project refuses control characters itself.
    let text: String = text
        .chars()
        .filter(|character| !character.is_control())
        .collect();
    let title: String = text.chars().take(100).collect();
    forge(&["init"]);
    forge(&["start"]);
    forge(&[
        "issue",
        "add",
        "--type",
        "bug",
        &format!("Count {title}"),
        "--description",
        &text,
    ]);
    forge(&["remember", &format!("Learned: {text}")]);
    git(&folder, &["add", "--all"]);
    git(&folder, &["commit", "--quiet", "--message=Remember"]);
    folder
}

/// Makes a project whose issues are in a tracker too, where every text attacks. Returns its folder.
///
/// It has an issue from the tracker, a field that was changed on both sides, a change that was not
/// delivered, and a tracker that refuses.
pub(super) fn tracked(home: &Home, text: &str) -> PathBuf {
    let tracker = Linear::start();
    let root = project(home, "plain");
    home.configure(&format!(
        "[forge.trackers]\nmock = {{ endpoint = \"{}\" }}\n",
        tracker.url()
    ));
    let settings = "[linear]\nmode = \"live\"\nteam = \"SX9\"\n[linear.states]\n\"Open\" = \"Todo\"\n[tracker]\n\
                    use = \"mock\"\n";
    std::fs::write(root.join(".forge/config.toml"), settings).unwrap();
    let forge = |arguments: &[&str], code: i32| {
        let mut command = home.command(KEY, &[&["forge"], arguments].concat());
        let run = Run::of(
            command
                .current_dir(&root)
                .env("LINEAR_API_KEY", tracker.key())
                .output()
                .unwrap(),
        );
        assert_eq!(
            run.code, code,
            "{arguments:?}: {}{}",
            run.stdout, run.stderr
        );
    };
    let text: String = text
        .chars()
        .filter(|character| !character.is_control())
        .collect();
    let title: String = text.chars().take(60).collect();
    tracker.with(|store| {
        store.add(&title);
        store.edit("SX9-1", |issue| {
            issue.description.clone_from(&text);
            issue.labels.insert("<img src=x onerror=hit()>".to_owned());
        });
        let eve = "<b onclick=hit()>Eve";
        store
            .people
            .push((eve.to_owned(), "eve@example.com".to_owned()));
        store.say("SX9-1", eve, &text);
    });
    forge(&["trust", "--yes"], 0);
    forge(&["tracker", "sync", "--pull"], 0);
    forge(
        &["issue", "set", "SX9-1", "--title", &format!("Ours {title}")],
        0,
    );
    tracker.with(|store| store.edit("SX9-1", |issue| issue.title = format!("Theirs {title}")));
    forge(&["tracker", "sync"], 1);
    // Refused with a text of the tracker.
    let refusal = json!({ "errors": [{ "message": text, "extensions": { "code": text, "userPresentableMessage": text } }] });
    (0..20).for_each(|_| tracker.fail("", 0, Fault::Http(400, Vec::new(), refusal.to_string())));
    forge(&["issue", "set", "SX9-1", "--priority", "1"], 0);
    let mut command = home.command(KEY, &["forge", "tracker", "sync"]);
    let run = Run::of(
        command
            .current_dir(&root)
            .env("LINEAR_API_KEY", tracker.key())
            .output()
            .unwrap(),
    );
    assert_ne!(run.code, 0, "{}", run.stdout);
    root
}

fn git(folder: &Path, arguments: &[&str]) {
    git_with(folder, arguments, &[]);
}

fn git_with(folder: &Path, arguments: &[&str], environment: &[(&str, &str)]) {
    let mut command = Command::new("git");
    command
        .args(arguments)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .stdin(Stdio::null());
    command.envs(environment.iter().copied());
    assert!(command.status().unwrap().success(), "git {arguments:?}");
}

/// Stores a credential and makes a token.
pub(super) fn credentials(home: &Home, name: &str) {
    let secret = home.packs().join("../secret");
    std::fs::write(&secret, SECRET).unwrap();
    let arguments = [
        "vault",
        "set",
        "deploy",
        "--type",
        "login",
        "--user",
        name,
        "--host",
        "git.example.com",
    ];
    let mut command = home.command(
        KEY,
        &[
            &arguments[..],
            &["--allow", "local/local", "--pack", "repo.*"],
        ]
        .concat(),
    );
    command.env(VAULT_KEY.0, VAULT_KEY.1);
    let run = Run::of(
        command
            .stdin(std::fs::File::open(secret).unwrap())
            .output()
            .unwrap(),
    );
    assert_eq!(run.code, 0, "{}", run.stderr);
    let create = [
        "token",
        "create",
        "--tenant",
        "acme",
        "--user",
        "ann",
        "--scope",
        "packs:run",
        "--name",
        name,
    ];
    let run = home.run(KEY, &create);
    assert_eq!(run.code, 0, "{}", run.stderr);
}

/// Adds an MCP server with one tool.
pub(super) fn mcp_server(home: &Home, text: &str) {
    let folder = home.packs().join("../server");
    std::fs::create_dir_all(&folder).unwrap();
    let folder = folder.canonicalize().unwrap();
    let tools = json!([{ "name": "count", "title": text, "description": text, "inputSchema": { "type": "object" } }]);
    std::fs::write(folder.join("server.sh"), SERVER).unwrap();
    std::fs::write(folder.join("tools.json"), tools.to_string()).unwrap();
    home.configure(&format!(
        "[[mcp.servers]]\nname = \"bottles\"\ncommand = [\"/bin/sh\", \"server.sh\"]\ncwd = \"{}\"\n",
        folder.display()
    ));
}

/// Time and content of each file below a folder, and the time of each folder.
pub(super) type Listing = BTreeMap<PathBuf, (SystemTime, Vec<u8>)>;

/// Lists what is in the memory of a project.
pub(super) fn listing(project: &Path) -> Listing {
    let mut listing = Listing::new();
    let mut folders = vec![project.join(".forge")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let data = path.symlink_metadata().unwrap();
            let content = if data.is_file() {
                std::fs::read(&path).unwrap()
            } else {
                Vec::new()
            };
            if data.is_dir() {
                folders.push(path.clone());
            }
            listing.insert(path, (data.modified().unwrap(), content));
        }
    }
    listing
}

/// Returns the files and folders that differ between two listings.
pub(super) fn changed(before: &Listing, after: &Listing) -> Vec<String> {
    let all: std::collections::BTreeSet<&PathBuf> = before.keys().chain(after.keys()).collect();
    let differ = all
        .into_iter()
        .filter(|path| before.get(*path) != after.get(*path));
    differ
        .map(|path| format!("looking changed {}", path.display()))
        .collect()
}
