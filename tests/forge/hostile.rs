//! A hostile repository: what its `.forge` says or holds reaches nothing outside of `.forge`.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use super::fixture::Fixture;

/// Commands that write, each to another kind of file.
const WRITING: &[&[&str]] = &[
    &["session", "start", "--no-probe"],
    &["session", "log", "hello"],
    &[
        "knowledge",
        "add",
        "--context",
        "Links",
        "--approach",
        "Follow none",
    ],
    &["features", "add", "A feature", "--test", "adding"],
    &["focus", "set", "work"],
    &["artifact", "put", "src/lib.rs", "--kind", "code"],
    &["doctor", "--fix"],
    &["session", "end"],
];

/// Everything below `.git` but objects, the index and logs of refs, with its content.
fn insides(git: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![git.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(git).unwrap();
            if name.starts_with("objects") || name.starts_with("logs") || name == Path::new("index")
            {
                continue;
            }
            match path.is_dir() {
                true => folders.push(path),
                false => found.push((name.to_owned(), std::fs::read(&path).unwrap())),
            }
        }
    }
    found.sort();
    found
}

#[test]
fn links_into_git_folder_are_never_followed() {
    for (target, at) in [
        (
            "../../.git/hooks/post-commit",
            ".forge/.local/journal.jsonl",
        ),
        (
            "../../../.git/HEAD",
            ".forge/memory/short-term/progress.txt",
        ),
        (
            "../../../.git/packed-refs",
            ".forge/memory/short-term/progress.txt",
        ),
        (
            "../../../.git/config",
            ".forge/memory/short-term/progress.txt",
        ),
        ("../../.git/hooks", ".forge/memory/artifacts"),
        ("../.git/hooks", ".forge/.local"),
    ] {
        let fixture = Fixture::light("");
        let path = fixture.root().join(at);
        let _ = std::fs::remove_file(&path);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, &path).unwrap();
        fixture.git(&["add", "--force", "--all", "."]);
        fixture.git(&["commit", "--quiet", "-m", "A gift"]);
        let victim = fixture.beside("victim");
        fixture.git_in(
            fixture.root().parent().unwrap(),
            &["clone", "--quiet", "sums", "victim"],
        );
        fixture.git_in(&victim, &["pack-refs", "--all"]);
        let hook = victim.join(".git/hooks/post-commit");
        std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
        std::fs::write(&hook, "#!/bin/sh\n: hook\n").unwrap();
        std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();

        let before = insides(&victim.join(".git"));
        let refused = WRITING
            .iter()
            .filter(|words| fixture.run_in(&victim, words).code != 0)
            .count();
        assert!(refused > 0, "{at}: nothing was refused");
        let after = insides(&victim.join(".git"));
        // Commands may make refs of their own (`refs/...`); what was there is as it was, and no
        // hook is new.
        for (name, content) in &before {
            assert!(
                after
                    .iter()
                    .any(|(other, now)| other == name && now == content),
                "{at}: {} changed",
                name.display()
            );
        }
        for (name, _) in after
            .iter()
            .filter(|found| !before.iter().any(|(name, _)| *name == found.0))
        {
            assert!(
                !name.starts_with("hooks"),
                "{at}: {} is new",
                name.display()
            );
        }
    }
}

#[test]
fn committed_local_folder_is_refused() {
    let fixture = Fixture::light("");
    fixture.write(
        ".forge/.local/journal.jsonl",
        "{\"somebody\": \"else's\"}\n",
    );
    fixture.git(&["add", "--force", ".forge/.local/journal.jsonl"]);
    fixture.git(&["commit", "--quiet", "-m", "A gift"]);
    let victim = fixture.beside("victim");
    fixture.git_in(
        fixture.root().parent().unwrap(),
        &["clone", "--quiet", "sums", "victim"],
    );
    let ended = fixture.run_in(&victim, &["session", "start", "--no-probe"]);
    assert_ne!(ended.code, 0);
    assert!(
        ended.stderr.contains("git rm --cached -r .forge/.local"),
        "{}",
        ended.stderr
    );
    let ended = fixture.run_in(&victim, &["doctor"]);
    assert!(
        ended.stdout.contains("local_tracked") || ended.stderr.contains("local_tracked"),
        "{}",
        ended.stdout
    );
    // The way out that it names works.
    fixture.git_in(
        &victim,
        &["rm", "--quiet", "--cached", "-r", ".forge/.local"],
    );
    std::fs::remove_dir_all(victim.join(".forge/.local")).unwrap();
    let ended = fixture.run_in(&victim, &["session", "start", "--no-probe"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

/// Clones a repository whose settings run a program, and returns the clone.
fn gift(fixture: &Fixture) -> std::path::PathBuf {
    let settings = "[verify]\nrunner = \"sh:touch PWN_runner; echo ran {prefix}\"\ncount_regex = \"ran\"\n\
                    commands = [\"touch PWN_command\"]\n";
    fixture.forge(&["features", "add", "A feature", "--test", "adding"]);
    fixture.forge(&["verify", "FORGE-001"]);
    fixture.forge(&[
        "knowledge",
        "add",
        "--invariant",
        "It holds",
        "--check",
        "touch PWN_invariant",
    ]);
    fixture.write(".forge/config.toml", settings);
    fixture.write(".forge/init.sh", "#!/bin/sh\ntouch PWN_init\n");
    fixture.git(&["add", "--all", "."]);
    fixture.git(&["commit", "--quiet", "-m", "A gift"]);
    let victim = fixture.beside("victim");
    fixture.git_in(
        fixture.root().parent().unwrap(),
        &["clone", "--quiet", "sums", "victim"],
    );
    victim
}

fn planted(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("PWN")).collect()
}

#[test]
fn untrusted_clone_runs_nothing() {
    let fixture = Fixture::light("");
    let victim = gift(&fixture);
    let started = fixture.run_in(&victim, &["session", "start", "--bootstrap"]);
    assert_eq!(started.code, 0, "{}", started.stderr);
    assert!(
        format!("{}{}", started.stdout, started.stderr).contains("helmdeck forge trust"),
        "{}",
        started.stdout
    );
    for words in [
        &["verify", "FORGE-001"][..],
        &["verify", "--all"],
        &["recover", "assess"],
        &["checkpoint", "create", "--key", "SUM-1", "-m", "x"],
    ] {
        let ended = fixture.run_in(&victim, words);
        assert_ne!(ended.code, 0, "{words:?}");
    }
    assert_eq!(planted(&victim), Vec::<String>::new());

    // No person is there to ask, and showing agrees to nothing.
    assert_ne!(fixture.run_in(&victim, &["trust"]).code, 0);
    let shown = fixture.run_in(&victim, &["trust", "--show"]);
    for command in [
        "touch PWN_runner",
        "touch PWN_command",
        "touch PWN_invariant",
        ".forge/init.sh",
    ] {
        assert!(shown.stdout.contains(command), "{}", shown.stdout);
    }
    assert_eq!(
        fixture.forge_in(&victim, &["trust", "--show"])["trusted"],
        false
    );

    // Once agreed to it runs, until it says something else.
    assert_eq!(
        fixture.forge_in(&victim, &["trust", "--yes"])["trusted"],
        true
    );
    fixture.forge_in(&victim, &["verify", "FORGE-001"]);
    assert_eq!(planted(&victim), ["PWN_runner"]);
    fixture.write(
        ".forge/config.toml",
        "[verify]\nrunner = \"sh:touch PWN_new; echo ran {prefix}\"\ncount_regex = \"ran\"\n",
    );
    fixture.git(&["commit", "--quiet", "--all", "-m", "Another gift"]);
    fixture.git_in(&victim, &["pull", "--quiet", "--no-rebase"]);
    let ended = fixture.run_in(&victim, &["verify", "FORGE-001"]);
    assert_ne!(ended.code, 0, "{}", ended.stdout);
    let state = fixture.forge_in(&victim, &["trust", "--show"]);
    let new: Vec<&str> = state["new"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["for"].as_str().unwrap())
        .collect();
    assert!(new.contains(&"verify.runner"), "{state}");
    assert_eq!(planted(&victim), ["PWN_runner"]);
    assert_eq!(
        fixture.forge_in(&victim, &["trust", "--revoke"])["revoked"],
        true
    );
}

#[test]
fn trust_survives_own_changes_not_other_clones() {
    let fixture = Fixture::light("");
    fixture.forge(&[
        "knowledge",
        "add",
        "--invariant",
        "It holds",
        "--check",
        "true",
    ]);
    assert_eq!(fixture.forge(&["trust", "--show"])["trusted"], true);
    fixture.forge(&["verify", "--all"]);
    // A work tree of the same clone is the same person's.
    let tree = fixture.beside("tree");
    fixture.git(&["add", "--all", "."]);
    fixture.git(&["commit", "--quiet", "-m", "An invariant"]);
    fixture.git(&["worktree", "add", "--quiet", tree.to_str().unwrap()]);
    assert_eq!(
        fixture.forge_in(&tree, &["trust", "--show"])["trusted"],
        true
    );
    fixture.git_in(
        fixture.root().parent().unwrap(),
        &["clone", "--quiet", "sums", "other"],
    );
    assert_eq!(
        fixture.forge_in(&fixture.beside("other"), &["trust", "--show"])["trusted"],
        false
    );
}

/// A server of an attacker: it tells whether somebody came.
struct Trap(std::net::TcpListener);

impl Trap {
    fn new() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self(listener)
    }

    fn address(&self) -> String {
        self.0.local_addr().unwrap().to_string()
    }

    /// Says whether somebody connected since the last question. A connection waits in the queue of
    /// the listener.
    fn caught(&self) -> bool {
        std::iter::from_fn(|| self.0.accept().ok()).count() > 0
    }
}

/// Commands that use the network if the settings say so, and some that emit events.
const REACHING: &[&[&str]] = &[
    &["session", "start"],
    &["knowledge", "add", "--context", "A", "--approach", "B"],
    &["events", "--server"],
    &["tracker", "sync"],
    &["doctor"],
    &["health"],
    &["session", "end"],
];

#[test]
fn servers_in_a_repository_are_refused_and_never_reached() {
    let fixture = Fixture::light("");
    let trap = Trap::new();
    let home = fixture.beside("prod.creds");
    std::fs::write(
        &home,
        "-----BEGIN NATS USER JWT-----\neyJ0\n------END NATS USER JWT------\n",
    )
    .unwrap();
    let address = trap.address();
    let settings = [
        format!("[events]\nurl = \"nats://{address}\"\nremote = true\ncredentials = {home:?}\n"),
        format!("[events]\nurl = \"tls://{address}\"\n"),
        format!("[events]\ncredentials = {home:?}\nuse = \"team\"\n"),
        "[events]\ncertificates = \"/etc/passwd\"\n".to_owned(),
        format!("[linear]\nmode = \"live\"\nteam = \"SX9\"\nendpoint = \"http://{address}\"\n"),
        "[linear]\nmode = \"live\"\nteam = \"SX9\"\ncredential = \"prod\"\n".to_owned(),
        format!(
            "[linear]\nmode = \"live\"\n[tracker]\nkind = \"github\"\n[github]\nrepository = \"a/b\"\nendpoint = \"http://{address}\"\n"
        ),
        "[linear]\nmode = \"live\"\n[tracker]\nkind = \"github\"\n[github]\nrepository = \"a/b\"\ncredential = \"x\"\n"
            .to_owned(),
    ];
    for text in settings {
        fixture.write(".forge/config.toml", &text);
        for words in REACHING {
            let mut command = fixture.command(&fixture.root(), words);
            let output = command
                .env("LINEAR_API_KEY", "key")
                .env("GITHUB_TOKEN", "key")
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            let reads_anyway = matches!(words[0], "doctor" | "health");
            assert!(
                reads_anyway || (output.status.code() == Some(9) && said.contains("[forge.")),
                "{words:?}: {said}"
            );
        }
        assert!(!trap.caught(), "{text}");
    }
}

#[test]
fn no_setting_of_a_repository_opens_a_connection() {
    let fixture = Fixture::light("");
    let trap = Trap::new();
    let address = trap.address();
    let defaults = toml::Table::try_from(helmdeck_forge::config::Config::default()).unwrap();
    let mut names: Vec<String> = defaults
        .iter()
        .flat_map(|(table, all)| {
            all.as_table()
                .unwrap()
                .keys()
                .map(move |name| format!("{table}.{name}"))
        })
        .collect();
    let optional = [
        "events.use",
        "tracker.use",
        "git.base",
        "linear.me",
        "linear.team",
        "github.repository",
        "github.prefix",
    ];
    names.extend(optional.map(str::to_owned));
    names.extend(
        [
            "later.url",
            "events.later",
            "github.in_progress",
            "verify.count_regex",
        ]
        .map(str::to_owned),
    );
    let mut tried = 0;
    for name in names {
        let (table, name) = name.split_once('.').unwrap();
        for value in [
            format!("\"nats://{address}\""),
            format!("\"http://{address}/\""),
            format!("[\"sh:echo > /dev/tcp/{}\"]", address.replace(':', "/")),
            format!("{{ x = \"http://{address}\" }}"),
            "true".to_owned(),
            "\"live\"".to_owned(),
            "\"github\"".to_owned(),
        ] {
            let text = format!("[{table}]\n{name} = {value}\n");
            if helmdeck_forge::config::Config::parse(&text).is_err() {
                continue;
            }
            tried += 1;
            fixture.write(".forge/config.toml", &text);
            for words in [
                &["session", "start"][..],
                &["events", "--server"],
                &["tracker", "sync"],
            ] {
                let mut command = fixture.command(&fixture.root(), words);
                command
                    .env("LINEAR_API_KEY", "key")
                    .env("GITHUB_TOKEN", "key")
                    .output()
                    .unwrap();
            }
            assert!(!trap.caught(), "{text}");
        }
    }
    assert!(tried > 30, "{tried}");
}

#[test]
fn clone_reaches_servers_of_the_user_by_name_once_it_is_trusted() {
    let fixture = Fixture::light("");
    let trap = Trap::new();
    let config = std::fs::read_to_string(fixture.root().join(".forge/config.toml")).unwrap();
    fixture.configure(&format!(
        "[forge.events]\nteam = {{ url = \"nats://{}\" }}\n",
        trap.address()
    ));
    let send = || fixture.run(&["events", "--server"]);
    for (name, told) in [("team", "agreed"), ("other", "agreed")] {
        fixture.write(
            ".forge/config.toml",
            &format!("{config}[events]\nuse = \"{name}\"\n"),
        );
        fixture.forge(&["knowledge", "add", "--context", name, "--approach", "B"]);
        let sent = send();
        assert!(
            sent.code == 9 && sent.stderr.contains(told),
            "{name}: {}{}",
            sent.stdout,
            sent.stderr
        );
        assert!(!trap.caught(), "{name}");
    }
    fixture.forge(&["trust", "--yes"]);
    let sent = send();
    assert!(
        sent.code == 1 && sent.stderr.contains("[forge.events.other]"),
        "{}{}",
        sent.stdout,
        sent.stderr
    );
    assert!(!trap.caught());
    fixture.write(
        ".forge/config.toml",
        &format!("{config}[events]\nuse = \"team\"\n"),
    );
    assert!(
        fixture
            .run(&["trust", "--show"])
            .stdout
            .contains("events.use = \"team\"")
    );
    fixture.forge(&["trust", "--yes"]);
    assert_ne!(send().code, 0, "it answers nothing");
    assert!(trap.caught(), "the user named it, and agreed");
}

#[test]
fn repository_in_the_place_of_a_trusted_one_runs_nothing() {
    let fixture = Fixture::light("");
    let parent = fixture.root().parent().unwrap().to_owned();
    fixture.write("t.sh", "echo ran 1\n");
    fixture.write(
        ".forge/config.toml",
        "[verify]\nrunner = \"sh t.sh {prefix}\"\ncount_regex = \"ran\"\n",
    );
    fixture.forge(&["features", "add", "A feature", "--test", "adding"]);
    fixture.git(&["add", "--all", "."]);
    fixture.git(&["commit", "--quiet", "-m", "Good"]);
    let review = fixture.beside("review");
    fixture.git_in(&parent, &["clone", "--quiet", "sums", "review"]);
    fixture.forge_in(&review, &["trust", "--yes"]);
    fixture.forge_in(&review, &["verify", "--all"]);

    // The same words, and another script.
    std::fs::remove_dir_all(&review).unwrap();
    fixture.write("t.sh", "touch PWN_by_path; echo ran 1\n");
    fixture.git(&["commit", "--quiet", "--all", "-m", "Hostile"]);
    fixture.git_in(&parent, &["clone", "--quiet", "sums", "review"]);
    assert_eq!(
        fixture.forge_in(&review, &["trust", "--show"])["trusted"],
        false
    );
    let ended = fixture.run_in(&review, &["verify", "--all"]);
    assert!(
        ended.code == 9 && ended.stderr.contains("helmdeck forge trust"),
        "{}",
        ended.stderr
    );
    assert_eq!(planted(&review), Vec::<String>::new());

    // In one clone: the script changes after a person agreed.
    let victim = fixture.beside("victim");
    fixture.git_in(&parent, &["clone", "--quiet", "sums", "victim"]);
    fixture.git_in(&victim, &["reset", "--quiet", "--hard", "HEAD~1"]);
    fixture.forge_in(&victim, &["trust", "--yes"]);
    fixture.git_in(&victim, &["merge", "--quiet", "--ff-only", "@{u}"]);
    let ended = fixture.run_in(&victim, &["verify", "--all"]);
    assert!(
        ended.code == 9 && ended.stderr.contains("t.sh, which `sh t.sh"),
        "{}",
        ended.stderr
    );
    assert_eq!(planted(&victim), Vec::<String>::new());
}

#[test]
fn built_in_runners_run_after_they_were_shown() {
    let fixture = Fixture::light("");
    let programs = fixture.beside("programs");
    std::fs::create_dir(&programs).unwrap();
    fixture.write(
        ".forge/config.toml",
        "[verify]\nrunner = \"true {prefix}\"\ncommands = [\"true\"]\n",
    );
    fixture.forge(&["trust", "--revoke"]);
    for name in [
        "cargo", "pytest", "go", "node", "npm", "pnpm", "yarn", "bun",
    ] {
        let program = programs.join(name);
        std::fs::write(&program, format!("#!/bin/sh\ntouch PWN_{name}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let run = |words: &[&str]| {
            let mut command = fixture.command(&fixture.root(), words);
            let path = format!("{}:{}", programs.display(), fixture.path);
            let output = command.env("PATH", path).output().unwrap();
            (
                output.status.code(),
                String::from_utf8(output.stdout).unwrap(),
                String::from_utf8(output.stderr).unwrap(),
            )
        };
        let features = |tests: &str| {
            let feature = format!(
                "{{\"id\": \"A-001\", \"name\": \"a\", \"status\": \"failing\", \"tests\": [{tests}]}}"
            );
            fixture.write(
                ".forge/memory/long-term/features.json",
                &format!("{{\"schema_version\": \"1.0\", \"features\": [{feature}]}}"),
            );
            let entries = fixture.root().join(".forge/memory/long-term/features");
            let _ = std::fs::remove_dir_all(entries);
        };
        features("\"plain\"");
        assert_eq!(run(&["trust", "--yes"]).0, Some(0));
        features(&format!("\"{name}:unit\""));
        let (code, stdout, stderr) = run(&["verify", "--all"]);
        assert!(
            code == Some(9) && stderr.contains("is new"),
            "{name}: {stdout}{stderr}"
        );
        assert_eq!(planted(&fixture.root()), Vec::<String>::new(), "{name}");
        let (_, shown, _) = run(&["trust", "--show"]);
        assert!(
            shown.contains(&format!("new built-in runner {name}")),
            "{shown}"
        );
        assert_eq!(run(&["trust", "--yes"]).0, Some(0));
        run(&["verify", "--all"]);
        assert_eq!(planted(&fixture.root()), [format!("PWN_{name}")]);
        std::fs::remove_file(fixture.root().join(format!("PWN_{name}"))).unwrap();
        assert_eq!(run(&["trust", "--revoke"]).0, Some(0));
    }
}

#[test]
fn huge_forms_delay_nobody() {
    let fixture = Fixture::light("");
    for (at, unit) in ["x\n", "x,\n", "[", "{", "\"", "- ", "*a,", "? "]
        .iter()
        .enumerate()
    {
        let form = format!("a: [x\n{}", unit.repeat(160_000 / unit.len()));
        fixture.write(&format!(".forge/linear/templates/evil{at}.yaml"), &form);
    }
    let program = env!("CARGO_BIN_EXE_helmdeck");
    for words in [
        &["form", "list"][..],
        &["form", "list", "evil0"],
        &["form", "list", "bug"],
    ] {
        let arguments = [&["60", program, "forge"][..], words].concat();
        let output = fixture
            .prepare("timeout", &fixture.root(), &arguments)
            .output()
            .unwrap();
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        assert_ne!(output.status.code(), Some(124), "{words:?} hangs");
        assert!(
            words.last() == Some(&"bug") || said.contains("evil0.yaml:1: it has"),
            "{words:?}: {said}"
        );
    }
}
