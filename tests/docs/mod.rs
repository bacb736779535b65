//! `README.md` and `docs/`: every command runs, every output shown is real, and the reference pages
//! match the code.
//!
//! A block ` ```sh ` is run by a shell and must not fail. A block ` ```console ` has commands after
//! `$ ` and shows their output, which is compared; a command may fail only if an `error: ` is
//! shown. A block ` ```toml ` must be a manifest or a configuration. The word `no-run` in the info
//! string exempts what needs a network, a container or somebody else's program; of those,
//! helmdeck's own command lines must still be known. The word `fragment` exempts a part of a file.

mod compare;
mod generated;
mod page;
mod shell;

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::KEY;
use crate::support::program::Home;
use page::Block;
use shell::Session;

/// Runs the commands of a page in one session.
#[track_caller]
fn runs_as_written(name: &str) {
    let text = std::fs::read_to_string(root().join(name)).unwrap();
    let blocks = page::blocks(&text);
    let steps: Vec<page::Step> = blocks
        .iter()
        .filter(|block| block.is_run())
        .flat_map(Block::steps)
        .collect();
    assert!(
        !steps.is_empty(),
        "{name} has no command: take it off the list"
    );
    compared(name, &Session::new(), &steps);
}

/// Runs steps and compares their outputs with what the page shows.
#[track_caller]
fn compared(name: &str, session: &Session, steps: &[page::Step]) {
    let ended = session.run(steps);
    if let Some((number, what)) = &ended.failed {
        let output = ended.outputs.get(*number).map_or("", String::as_str);
        panic!(
            "{name}:{}: failed ({what}):\n{}\noutput:\n{output}",
            steps[*number].line, steps[*number].script
        );
    }
    for (step, output) in steps.iter().zip(&ended.outputs) {
        let shown = step.output.as_deref().unwrap_or("...");
        assert!(
            compare::matches(shown, output),
            "{name}:{}: {}shown:\n{shown}\noutput:\n{output}",
            step.line,
            step.script
        );
    }
    assert_eq!(
        ended.outputs.len(),
        steps.len(),
        "{name}: not every command ran"
    );
}

macro_rules! pages {
    ($($test:ident: $name:literal,)*) => {
        /// The pages with commands.
        const PAGES: &[&str] = &[$($name,)*];

        mod commands {
            $(#[test]
            fn $test() {
                super::runs_as_written($name);
            })*
        }
    };
}

pages! {
    readme: "README.md",
    auth: "docs/auth.md",
    configuration: "docs/configuration.md",
    conversation: "docs/conversation.md",
    getting_started: "docs/getting-started.md",
    install: "docs/install.md",
    issues: "docs/issues.md",
    jobs: "docs/jobs.md",
    memory: "docs/memory.md",
    observability: "docs/observability.md",
    packs: "docs/packs.md",
    packs_command: "docs/packs-command.md",
    packs_http: "docs/packs-http.md",
    pages: "docs/pages.md",
    repo: "docs/repo.md",
    rest: "docs/rest.md",
    seam: "docs/seam.md",
    troubleshooting: "docs/troubleshooting.md",
    vault: "docs/vault.md",
}

/// Pages whose commands another test runs.
const ELSEWHERE: &[&str] = &["docs/forge.md", "docs/trackers.md"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the pages of the repository's root and of `docs/`, with their texts.
fn all() -> Vec<(String, String)> {
    let names = |folder: &str| -> Vec<PathBuf> {
        std::fs::read_dir(root().join(folder))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect()
    };
    let mut pages: Vec<(String, String)> = [names("."), names("docs")]
        .concat()
        .into_iter()
        .filter(|path| path.extension().is_some_and(|kind| kind == "md"))
        .map(|path| {
            let name = path
                .strip_prefix(root())
                .unwrap_or(&path)
                .to_str()
                .unwrap()
                .trim_start_matches("./")
                .to_owned();
            (name, std::fs::read_to_string(&path).unwrap())
        })
        .collect();
    pages.sort();
    assert!(pages.len() > 20, "{pages:?}");
    pages
}

#[test]
fn every_page_with_commands_is_run() {
    let listed: BTreeSet<&str> = PAGES.iter().chain(ELSEWHERE).copied().collect();
    let pages = all();
    let found: BTreeSet<&str> = pages
        .iter()
        .filter(|(_, text)| page::blocks(text).iter().any(Block::is_run))
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(found, listed);
}

#[test]
fn every_page_is_in_the_index_and_says_for_whom() {
    let index = include_str!("../../docs/README.md");
    for (name, text) in all() {
        let Some(name) = name
            .strip_prefix("docs/")
            .filter(|name| *name != "README.md")
        else {
            continue;
        };
        assert!(
            index.contains(&format!("]({name}")),
            "docs/README.md does not list {name}"
        );
        let third = text.lines().nth(2).unwrap_or_default();
        assert!(
            third.starts_with("For "),
            "{name} does not begin with its readers (`For ...`): {third:?}"
        );
    }
}

#[test]
fn readme_is_short_and_begins_with_two_commands() {
    let text = include_str!("../../README.md");
    assert!(
        text.lines().count() <= 120,
        "{} lines",
        text.lines().count()
    );
    let first = page::blocks(text).swap_remove(0);
    let commands: Vec<&str> = first.text.lines().collect();
    assert!(
        commands.len() == 2 && commands[0].starts_with("cargo run ") && commands[1] == "tests/run",
        "{commands:?}"
    );
}

#[test]
fn picture_shows_real_output() {
    let picture = include_str!("../../docs/terminal.svg");
    let mut shown = String::new();
    for row in picture.lines().filter(|line| line.starts_with("<text ")) {
        let mut text = row
            .split('<')
            .skip(1)
            .filter_map(|tag| tag.split_once('>'))
            .map(|(_, text)| text)
            .collect::<String>();
        for (entity, letter) in [("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")] {
            text = text.replace(entity, letter);
        }
        shown.push_str(&format!("{text}\n"));
    }
    let block = Block {
        line: 1,
        language: "console".to_owned(),
        exempt: false,
        text: shown,
    };
    let mut steps = block.steps();
    let manifest = steps[0].output.clone().unwrap();
    assert!(
        steps.len() > 2 && manifest.starts_with("name = "),
        "{steps:?}"
    );
    let session = Session::new();
    let packs = session.home().join(".config/helmdeck/packs");
    std::fs::create_dir_all(&packs).unwrap();
    std::fs::write(packs.join("demo.lookup.toml"), manifest).unwrap();
    let script = "printf '#!/bin/sh\\nsleep 2\\ncat\\n' > lookup.sh; chmod +x lookup.sh; cd ..\n";
    let setup = format!("export HELMDECK_MEMORY_KEY={KEY}; cd ~/.config/helmdeck/packs; {script}");
    steps.insert(
        0,
        page::Step {
            line: 0,
            script: setup,
            output: None,
        },
    );
    compared(
        "docs/terminal.svg (scripts/picture draws it)",
        &session,
        &steps,
    );
}

#[test]
fn links_between_pages_lead_somewhere() {
    for (name, text) in all() {
        let folder = root().join(&name);
        let folder = folder.parent().unwrap();
        for link in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            if link.contains("://") || link.contains(char::is_whitespace) {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() {
                root().join(&name)
            } else {
                folder.join(path)
            };
            assert!(target.exists(), "{name} links to {link}");
            if !anchor.is_empty() && target.extension().is_some_and(|kind| kind == "md") {
                let text = std::fs::read_to_string(&target).unwrap();
                let found = text
                    .lines()
                    .filter(|line| line.starts_with('#'))
                    .any(|line| anchor_of(line) == anchor);
                assert!(found, "{name} links to {link}: no such heading");
            }
        }
    }
}

/// Returns the anchor that GitHub gives to a heading.
fn anchor_of(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn command_lines_that_cannot_run_are_known() {
    let home = Home::new();
    let mut seen = 0;
    for (name, text) in all() {
        let blocks = page::blocks(&text);
        for block in blocks
            .iter()
            .filter(|block| block.exempt && block.language == "sh")
        {
            for line in block.text.replace("\\\n", " ").lines() {
                let ours = line
                    .strip_prefix("helmdeck ")
                    .or_else(|| line.split(" -- helmdeck ").nth(1));
                let Some(ours) = ours.filter(|ours| !ours.contains(['|', ';', '&', '<', '>']))
                else {
                    continue;
                };
                let words = Command::new("sh")
                    .args(["-c", &format!("printf '%s\\0' {ours}")])
                    .output()
                    .unwrap();
                let words = String::from_utf8(words.stdout).unwrap();
                let mut words: Vec<&str> = words.split_terminator('\0').collect();
                if let Some(end) = words.iter().position(|word| *word == "--") {
                    words.truncate(end);
                }
                // `--help` at the end is only reached if everything before it is known.
                words.push("--help");
                let run = home.run(KEY, &words);
                assert_eq!(run.code, 0, "{name}:{}: {line}: {}", block.line, run.stderr);
                seen += 1;
            }
        }
    }
    assert!(seen > 3, "{seen}");
}

#[test]
fn files_on_pages_are_accepted() {
    let home = Home::new();
    // Those pages have files of other programs, and their own tests.
    for (name, text) in all().into_iter().filter(|(name, _)| {
        !["docs/mcp.md", "docs/forge.md", "docs/trackers.md"].contains(&name.as_str())
    }) {
        for block in page::blocks(&text)
            .iter()
            .filter(|block| block.language == "toml" && !block.exempt)
        {
            let folder = home.packs();
            let file = folder.join("shown.toml");
            std::fs::write(&file, &block.text).unwrap();
            // The programs that a manifest names are there.
            for program in block
                .text
                .split("\"./")
                .skip(1)
                .filter_map(|rest| rest.split('"').next())
            {
                std::fs::write(folder.join(program), "#!/bin/sh\ncat\n").unwrap();
                std::fs::set_permissions(
                    folder.join(program),
                    std::fs::Permissions::from_mode(0o755),
                )
                .unwrap();
            }
            let file = file.to_str().unwrap();
            let run = if block
                .text
                .lines()
                .any(|line| line.starts_with("version = "))
            {
                home.run(KEY, &["pack", "check", file])
            } else {
                home.run(KEY, &["--config", file, "config", "show"])
            };
            std::fs::remove_file(file).unwrap();
            assert_eq!(
                run.code, 0,
                "{name}:{}: {}{}",
                block.line, run.stdout, run.stderr
            );
        }
    }
}
