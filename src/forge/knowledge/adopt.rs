//! What people wrote by hand becomes knowledge: files in its folder, and lists in the instructions
//! of agents.

use super::{KnowledgeFile, Learning, What};
use crate::agents;
use crate::error::Result;
use crate::features::FeaturesFile;
use crate::git::Run;
use crate::project::Project;
use crate::time::Time;

/// Instructions of agents, at the root of the project.
const FILES: [&str; 2] = ["AGENTS.md", "CLAUDE.md"];
/// Words of a heading whose list says what was learned.
const HEADINGS: [&str; 5] = ["learned", "learnings", "lessons", "gotchas", "pitfalls"];
/// Minimum length of an item, in characters.
const SHORTEST: usize = 10;

/// Takes over documents that somebody else wrote, files that were written by hand, and what
/// instructions of agents say was learned, each once. Returns what could not be taken over, and
/// why.
///
/// # Errors
/// `Failed` if a file cannot be read.
pub(crate) fn take_over(project: &Project) -> Result<Vec<String>> {
    let files = project.files();
    let mut told = Vec::new();
    let known = files
        .load::<KnowledgeFile>()
        .ok()
        .flatten()
        .map(|loaded| loaded.value);
    let mut new = Vec::new();
    for from in FILES {
        let Some(text) = files
            .read(from)
            .ok()
            .flatten()
            .and_then(|bytes| String::from_utf8(bytes).ok())
        else {
            continue;
        };
        let learned =
            learned(&text).filter(|one| !known.as_ref().is_some_and(|known| is_known(known, one)));
        let (learned, secret): (Vec<_>, Vec<_>) =
            learned.partition(|learning| match &learning.what {
                What::Successful { approach, .. } => {
                    files.refuse_secrets(from, approach.as_bytes()).is_ok()
                }
                _ => false,
            });
        told.extend(
            secret
                .iter()
                .map(|_| format!("{from}: a learning looks like a secret, and was not taken over")),
        );
        if !learned.is_empty() {
            // The same in each clone, so that their merge has no conflict.
            let at = changed_at(project, from);
            new.extend(learned.into_iter().map(|learning| (learning, at)));
        }
    }
    let features = files.edit(None, |_: &mut FeaturesFile| Ok(()));
    let knowledge = files.edit(None, |file: &mut KnowledgeFile| {
        for (learning, at) in &new {
            if !is_known(file, learning) {
                file.add(learning, *at)?;
            }
        }
        Ok(())
    });
    told.extend(
        [features, knowledge]
            .into_iter()
            .filter_map(|done| Some(done.err()?.to_string())),
    );
    Ok(told)
}

fn is_known(file: &KnowledgeFile, learning: &Learning) -> bool {
    let id = learning.what.id();
    file.entries().any(|entry| entry.id() == id)
}

/// Returns when a file was last committed, or else changed.
fn changed_at(project: &Project, path: &str) -> Time {
    let run = Run {
        folder: Some(project.root().to_owned()),
        ..Run::default()
    };
    let args = [
        "log",
        "-1",
        "--format=%cI",
        "--end-of-options",
        "HEAD",
        "--",
        path,
    ];
    let committed = project.git().ok().and_then(|git| git.run(&args, &run).ok());
    let committed = committed.and_then(|output| Time::parse(output.text().trim()).ok());
    let modified = || {
        project
            .files()
            .entry(path)
            .ok()
            .flatten()
            .map(|entry| entry.modified.seconds())
    };
    committed
        .or_else(modified)
        .unwrap_or_else(|| project.environment().now().seconds())
}

/// Returns the items of the lists that say what was learned. Our own lines and blocks of code are
/// none.
fn learned(text: &str) -> impl Iterator<Item = Learning> {
    let text = agents::without_lines(text).unwrap_or_default();
    let (mut heading, mut is_code) = (None, false);
    let mut items: Vec<(String, String)> = Vec::new();
    let mut is_open = false;
    for line in text.lines() {
        is_code ^= line.trim_start().starts_with("```");
        let trimmed = line.trim();
        if is_code {
            is_open = false;
        } else if let Some(title) = trimmed.strip_prefix('#') {
            let title = title.trim_matches(|c: char| c == '#' || c == ':' || c.is_whitespace());
            let mut words = title
                .split(|c: char| !c.is_alphanumeric())
                .map(str::to_lowercase);
            heading = words
                .any(|word| HEADINGS.contains(&word.as_str()))
                .then(|| title.to_owned());
            is_open = false;
        } else if let (Some(heading), Some(item)) = (
            &heading,
            trimmed
                .strip_prefix("- ")
                .or_else(|| trimmed.strip_prefix("* ")),
        ) {
            items.push((heading.clone(), item.trim().to_owned()));
            is_open = true;
        } else if let Some((_, item)) = items
            .last_mut()
            .filter(|_| is_open && line.starts_with(' ') && !trimmed.is_empty())
        {
            item.push('\n');
            item.push_str(trimmed);
        } else {
            is_open = false;
        }
    }
    let long = |(_, item): &(String, String)| (SHORTEST..=4_000).contains(&item.chars().count());
    items
        .into_iter()
        .filter(long)
        .map(|(context, approach)| Learning::new(What::Successful { context, approach }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;
    use crate::knowledge::Knowledge;
    use crate::layout::{FEATURES, KNOWLEDGE, KNOWLEDGE_ENTRIES};

    fn contexts(project: &Project) -> Vec<(String, String)> {
        let file = Knowledge::new(project).read().unwrap();
        let all = file.patterns.successful.into_iter();
        all.map(|entry| (entry.context, entry.approach)).collect()
    }

    #[test]
    fn lists_of_instructions_are_learned_once() {
        let fixture = Fixture::new();
        let text = "# Rules\n\n- Not learned at all.\n\n## Gotchas:\n\n- Never round halves:\n  the bank does.\n- short\n\
                    ```\n- code is no item\n```\n## Lessons learned\n* Ask before a migration.\n## Other\n- Nothing here.\n";
        fixture.repository.write("AGENTS.md", text);
        fixture
            .repository
            .write("CLAUDE.md", "## Pitfalls\n- Ask before a migration.\n");
        for _ in 0..2 {
            assert_eq!(take_over(&fixture.project).unwrap(), Vec::<String>::new());
            let all = contexts(&fixture.project);
            let found: Vec<_> = all
                .iter()
                .map(|(context, text)| (context.as_str(), text.as_str()))
                .collect();
            assert_eq!(
                found,
                [
                    ("Gotchas", "Never round halves:\nthe bank does."),
                    ("Lessons learned", "Ask before a migration."),
                    ("Pitfalls", "Ask before a migration."),
                ]
            );
        }
        let file = Knowledge::new(&fixture.project).read().unwrap();
        assert!(
            file.entries().all(|entry| entry.trace.seen.is_none()),
            "each is learned once"
        );
    }

    #[test]
    fn what_is_written_by_hand_is_knowledge() {
        let fixture = Fixture::new();
        let at = |name: &str| format!("{KNOWLEDGE_ENTRIES}/{name}");
        fixture
            .repository
            .write(&at("rounding.md"), "# Rounding\n\nNever round halves.\n");
        fixture
            .repository
            .write(&at("on-money.md"), "Use whole cents.\n");
        fixture.repository.write(
            &at("caching.json"),
            r#"{"context": "Caching", "approach": "Do not."}"#,
        );
        fixture.repository.write(&at("empty.md"), "\n");
        let all = [
            ("on money", "Use whole cents."),
            ("Rounding", "Never round halves."),
            ("Caching", "Do not."),
        ];
        let mut all: Vec<_> = all.map(|(a, b)| (a.to_owned(), b.to_owned())).into();
        all.sort();
        let sorted = || {
            let mut found = contexts(&fixture.project);
            found.sort();
            found
        };
        assert_eq!(sorted(), all, "before anything is written");
        assert_eq!(take_over(&fixture.project).unwrap(), Vec::<String>::new());
        assert_eq!(sorted(), all);
        let files = fixture.project.files().list(KNOWLEDGE_ENTRIES).unwrap();
        let names: Vec<_> = files.iter().map(|file| file.name.as_str()).collect();
        assert!(
            names[0] == "caching.json" && names[1] == "empty.md",
            "{names:?}"
        );
        assert!(
            names[2].starts_with("on-money-use-whole-cents-")
                && names[3].starts_with("rounding-never-"),
            "{names:?}"
        );
        assert!(fixture.text(&at("caching.json")).contains("learned_at"));
        let doctor = crate::init::doctor(&fixture.project, false).unwrap();
        assert!(
            doctor.found.iter().any(|one| one.path == at("empty.md")),
            "{doctor:?}"
        );
    }

    #[test]
    fn documents_of_others_become_files_once() {
        let known = include_str!("../../forge_documents/fixtures/knowledge.json");
        let features = include_str!("../../forge_documents/fixtures/features.json");
        for (settings, is_kept) in [("", false), ("[files]\nrfc = true\n", true)] {
            let fixture = Fixture::with_config(settings);
            fixture.repository.write(KNOWLEDGE, known);
            fixture.repository.write(FEATURES, features);
            let export = || {
                let mut export = crate::export::export(&fixture.project).unwrap();
                export
                    .knowledge
                    .invariants
                    .sort_by(|a, b| a.text().cmp(b.text()));
                export
            };
            let before = export();
            assert_eq!(take_over(&fixture.project).unwrap(), Vec::<String>::new());
            assert_eq!(export(), before);
            assert_eq!(
                crate::json::print(&before.features).unwrap(),
                features.as_bytes()
            );
            assert_eq!(
                (fixture.has(KNOWLEDGE), fixture.has(FEATURES)),
                (is_kept, is_kept)
            );
            if is_kept {
                let made = fixture.text(FEATURES);
                assert_eq!(
                    made.replacen("\n  \"made_from\": \"features\",", "", 1),
                    features
                );
                let made = fixture.text(KNOWLEDGE);
                fixture.repository.write(
                    KNOWLEDGE,
                    made.replace("Adding new NATS subject", "Something else"),
                );
                assert_eq!(export(), before, "it is never read");
            }
        }
    }
}
