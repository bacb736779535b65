//! Issues that are done: `linear/history/<KEY>.md`.
//!
//! The file has front matter for programs and a summary for people. The front matter holds the
//! whole issue, so that it can be opened again without a loss.

use std::collections::HashSet;
use std::fmt::Write as _;

use helmdeck_core::text::collapse_whitespace;
use helmdeck_forge_documents::marks;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::names::{Name, Names};
use super::{Criterion, DONE, Issue, is_key};
use crate::checkpoints::{self, Checkpoints};
use crate::error::{Category, Error, Result};
use crate::files::Files;
use crate::git::closing::Closing;
use crate::git::message::{self, Note};
use crate::git::{Git, Oid};
use crate::knowledge::Knowledge;
use crate::layout::{FORGE, HISTORY};
use crate::project::Project;
use crate::time::Time;

/// Maximum number of commits that are searched for an issue's.
const COMMITS: usize = 5_000;
/// Mark of the front matter.
const FENCE: &str = "---";
/// End of the front matter.
const END: &str = "\n---\n";

/// An issue that is done.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    /// The issue, as it was when it was closed.
    pub issue: Issue,
    /// When it was closed.
    pub closed_at: Option<Time>,
    /// By whom.
    pub closed_by: Option<String>,
    /// Why it was closed while a criterion was open.
    pub anyway: Option<String>,
    /// The commits that were named when it was closed. Git knows those that name the issue.
    pub commits: Vec<String>,
    /// Its checkpoints, the oldest first.
    pub checkpoints: Vec<String>,
    /// The summary, in Markdown.
    pub summary: String,
}

/// What was done for an issue.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// Ids and subjects of its commits, the oldest first.
    pub commits: Vec<(String, String)>,
    /// Tags of its checkpoints, the oldest first.
    pub checkpoints: Vec<String>,
    pub what: Vec<String>,
    pub why: Vec<String>,
    pub learned: Vec<String>,
}

/// Returns the path of the file of an issue that is done, by its name.
pub(super) fn path(name: &str) -> String {
    format!("{HISTORY}/{name}.md")
}

/// Returns the keys of the issues that are done, sorted by name.
pub(crate) fn keys(files: &Files) -> Result<Vec<String>> {
    Ok(Names::read(files)?
        .done()
        .map(|(key, _)| key.to_owned())
        .collect())
}

/// Returns all issues that are done.
pub(super) fn all(files: &Files) -> Result<Vec<Record>> {
    let names = Names::read(files)?;
    let mut all = Vec::new();
    for (key, _) in names.done() {
        all.extend(read(files, &names, key)?);
    }
    Ok(all)
}

/// Returns the earlier keys of the issues that are done. What cannot be read has none.
pub(crate) fn closed_aliases(files: &Files) -> HashSet<String> {
    let names = Names::read(files).unwrap_or_default();
    let records = names
        .done()
        .filter_map(|(key, _)| read(files, &names, key).ok().flatten());
    records
        .flat_map(|record| {
            record
                .issue
                .earlier_keys()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Returns an issue that is done, by its key or an earlier one.
pub(super) fn find(files: &Files, key: &str) -> Result<Option<Record>> {
    let names = Names::read(files)?;
    match read(files, &names, &names.resolve(key))? {
        Some(record) if record.issue.answers_to(key) => Ok(Some(record)),
        _ => Ok(all(files)?
            .into_iter()
            .find(|record| record.issue.answers_to(key))),
    }
}

fn read(files: &Files, names: &Names, key: &str) -> Result<Option<Record>> {
    let Some(mut record) = closed(files, names, key)? else {
        return Ok(None);
    };
    // A merge may have brought an edit or a comment of another branch.
    if let Some(own) = super::store::of_closed(files, names, key)? {
        let Issue {
            state,
            git_refs,
            updated_at,
            ..
        } = record.issue;
        record.issue = Issue {
            state,
            git_refs,
            updated_at,
            ..own
        };
    } else {
        super::store::add_comments(files, &mut record.issue)?;
    }
    Ok(Some(record))
}

/// Returns an issue as it was when it was closed; `None` if it is not.
pub(super) fn closed(files: &Files, names: &Names, key: &str) -> Result<Option<Record>> {
    let Some(name) = names.get(key).and_then(Name::summary) else {
        return Ok(None);
    };
    let Some(mut record) = parsed(files, &name)? else {
        return Ok(None);
    };
    names.put(&mut record.issue, key);
    record.summary = headed(&record);
    Ok(Some(record))
}

/// Reads the file of an issue that is done.
pub(super) fn parsed(files: &Files, name: &str) -> Result<Option<Record>> {
    let Some(bytes) = files.read(&path(name))? else {
        return Ok(None);
    };
    let (key, mark) = marks::split(name);
    let mut record = parse(key, &String::from_utf8_lossy(&bytes)).map_err(|what| {
        Error::new(
            Category::Corrupt,
            "E_CORRUPT",
            format!("{}: {what}", path(name)),
        )
        .hint("mend its front matter, or take the file of an earlier commit")
    })?;
    record.issue.file = mark.map(|_| name.to_owned());
    Ok(Some(record))
}

/// Returns the summary of an issue, with the key that it has now in its heading.
fn headed(record: &Record) -> String {
    let heading = || {
        let (key, rest) = record.summary.strip_prefix("# ")?.split_once(": ")?;
        is_key(key).then(|| format!("# {}: {rest}", record.issue.linear_id))
    };
    heading().unwrap_or_else(|| record.summary.clone())
}

/// Writes a record that has another key now, with the summary that it has.
pub(super) fn renew(files: &Files, record: &Record) -> Result<()> {
    let printed = print(record, &Work::default())?;
    let front = printed
        .split_once(END)
        .map_or(printed.as_str(), |(front, _)| front);
    let text = format!("{front}{END}\n{}", headed(record));
    let path = path(record.issue.stem());
    files.check_secrets(&path, text.as_bytes())?;
    files.write(&path, text.as_bytes())?;
    super::store::keep_closed(files, &record.issue)
}

/// Adds the comments and earlier keys of another version of an issue.
pub(super) fn absorb(issue: &mut Issue, other: &Issue) {
    for comment in &other.comments {
        if !issue.comments.iter().any(|known| known.id == comment.id) {
            issue.comments.push(comment.clone());
        }
    }
    let (own, others) = (issue.stem().to_owned(), other.aliases.clone());
    add(
        &mut issue.aliases,
        others.into_iter().filter(|alias| *alias != own),
    );
}

/// Takes the front matter of a second version out of a text that git made of the lines of both.
///
/// Two clones close an issue each with a text of its own, when the tracker says that it is done.
fn without_second_front(body: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for line in body.lines() {
        let is_member = |line: &&str| {
            line.split_once(": ")
                .is_some_and(|(name, _)| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'))
        };
        if line == FENCE && kept.last().is_some_and(is_member) {
            while kept.last().is_some_and(is_member) {
                kept.pop();
            }
        } else {
            kept.push(line);
        }
    }
    let mut text = kept.join("\n");
    if body.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// Reads the text of a file. One that somebody wrote freely is an issue with that summary.
fn parse(key: &str, text: &str) -> Result<Record, String> {
    let text = text
        .strip_prefix('\u{feff}')
        .unwrap_or(text)
        .replace("\r\n", "\n");
    let front = text
        .strip_prefix("---\n")
        .and_then(|rest| rest.split_once("\n---\n"));
    let Some((front, body)) = front else {
        let title = text
            .lines()
            .find_map(|line| line.strip_prefix("# "))
            .unwrap_or(key)
            .trim()
            .to_owned();
        let issue = Issue {
            linear_id: key.to_owned(),
            title,
            state: Some(DONE.to_owned()),
            ..Issue::default()
        };
        return Ok(Record {
            issue,
            summary: text,
            ..Record::default()
        });
    };
    let member = |name: &str| {
        front
            .lines()
            .find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
            .filter(|v| !v.is_empty())
    };
    let words = |name: &str| {
        member(name).map(|text| serde_json::from_str(text).unwrap_or_else(|_| text.to_owned()))
    };
    let list = |name: &str| -> Vec<String> {
        member(name)
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default()
    };
    let mut issue: Issue = match member("issue") {
        Some(text) => serde_json::from_str(text).map_err(|error| format!("issue: {error}"))?,
        None => Issue {
            linear_id: key.to_owned(),
            title: words("title").unwrap_or_else(|| key.to_owned()),
            state: Some(words("state").unwrap_or_else(|| DONE.to_owned())),
            ..Issue::default()
        },
    };
    if issue.linear_id != key {
        return Err(format!("it is the issue {:?}", issue.linear_id));
    }
    // Git keeps the lines of both sides of a merge: the first counts, and nobody's comments are
    // lost.
    let others = text
        .lines()
        .filter_map(|line| line.strip_prefix("issue: "))
        .skip(1);
    for other in others.filter_map(|other| serde_json::from_str::<Issue>(other).ok()) {
        if other.linear_id == issue.linear_id {
            absorb(&mut issue, &other);
        }
    }
    Ok(Record {
        issue,
        closed_at: words("closed_at").and_then(|text: String| Time::parse(&text).ok()),
        closed_by: words("closed_by"),
        anyway: words("anyway"),
        commits: list("commits"),
        checkpoints: list("checkpoints"),
        summary: without_second_front(body.trim_start_matches('\n')),
    })
}

/// Writes an issue that is done as a text.
pub(super) fn print(record: &Record, work: &Work) -> Result<String> {
    let json = |value: &dyn erased::Json| value.text();
    // The number that its files have.
    let issue = &Issue {
        linear_id: marks::split(record.issue.stem()).0.to_owned(),
        ..record.issue.clone()
    };
    let mut text = format!(
        "{FENCE}\nlinear_id: {}\ntitle: {}\n",
        issue.linear_id,
        json(&issue.title)?
    );
    let mut member = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = writeln!(text, "{name}: {value}");
        }
    };
    member(
        "type",
        issue.kind.as_ref().map(|kind| json(kind)).transpose()?,
    );
    member(
        "state",
        issue.state.as_ref().map(|state| json(state)).transpose()?,
    );
    member("closed_at", record.closed_at.map(|at| at.to_string()));
    member(
        "closed_by",
        record.closed_by.as_ref().map(|by| json(by)).transpose()?,
    );
    member(
        "anyway",
        record.anyway.as_ref().map(|why| json(why)).transpose()?,
    );
    member("commits", Some(json(&record.commits)?));
    member("checkpoints", Some(json(&record.checkpoints)?));
    member("issue", Some(json(issue)?));
    text.push_str(FENCE);
    text.push('\n');
    text.push_str(&summary(record, work));
    Ok(text)
}

mod erased {
    use crate::error::{Category, Error, Result};

    /// A value that can be written as JSON on one line.
    pub(super) trait Json {
        fn text(&self) -> Result<String>;
    }

    impl<T: serde::Serialize> Json for T {
        fn text(&self) -> Result<String> {
            serde_json::to_string(self)
                .map_err(|error| Error::new(Category::Failed, "E_FAILED", error.to_string()))
        }
    }
}

/// Returns the summary, in Markdown.
fn summary(record: &Record, work: &Work) -> String {
    let issue = &record.issue;
    let mut text = format!("\n# {}: {}\n", issue.linear_id, issue.title);
    let mut part = |heading: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            let _ = write!(text, "\n## {heading}\n\n{}\n", lines.join("\n"));
        }
    };
    let items = |all: &[String]| all.iter().map(|one| format!("- {one}")).collect::<Vec<_>>();
    part(
        "About",
        issue
            .description
            .iter()
            .map(|text| text.trim().to_owned())
            .collect(),
    );
    part("What", items(&work.what));
    part("Why", work.why.clone());
    part("Learned", items(&work.learned));
    part(
        "Acceptance criteria",
        issue.acceptance_criteria.iter().map(criterion).collect(),
    );
    part("Closed anyway", record.anyway.clone().into_iter().collect());
    // The last commit gets another id when this file is added to it.
    let line = |(oid, subject): &(String, String)| {
        format!(
            "- {}",
            if subject.is_empty() {
                oid.get(..12).unwrap_or(oid)
            } else {
                subject
            }
        )
    };
    part("Commits", work.commits.iter().map(line).collect());
    part("Checkpoints", items(&record.checkpoints));
    text
}

fn criterion(criterion: &Criterion) -> String {
    let mark = if criterion.is_done() { 'x' } else { ' ' };
    let evidence = match criterion {
        Criterion::Checked(checked) => checked
            .evidence
            .as_ref()
            .map(|evidence| format!(" ({evidence})")),
        Criterion::Text(_) => None,
    };
    format!(
        "- [{mark}] {}{}",
        criterion.text(),
        evidence.unwrap_or_default()
    )
}

/// Which commits mean an issue that has or had a number of another one.
///
/// A commit that names the number was made where one of them was: its tree has the file of that one
/// alone, or it brings one of them, as the squashed merge of a branch does. Else the one that kept
/// the number is meant.
struct Meant<'a> {
    git: &'a Git,
    issue: &'a Issue,
    names: Names,
}

impl Meant<'_> {
    /// Says whether a commit means the issue with a key.
    fn is_its(&self, commit: &Oid, key: &str) -> bool {
        if key != self.issue.linear_id && !self.issue.earlier_keys().any(|earlier| earlier == key) {
            return false;
        }
        let (own, others): (Vec<_>, Vec<_>) = self
            .names
            .named(key)
            .partition(|(_, now)| *now == self.issue.linear_id || self.issue.answers_to(now));
        if others.is_empty() {
            return true;
        }
        let has = |commit: &Oid, all: &[(String, &str)]| {
            all.iter().any(|(name, _)| self.has(commit, name))
        };
        let parent = || self.git.resolve(&format!("{commit}^")).ok().flatten();
        match (has(commit, &own), has(commit, &others)) {
            (true, true) => {
                let before = parent().map_or((true, true), |parent| {
                    (has(&parent, &own), has(&parent, &others))
                });
                if before.0 == before.1 {
                    self.keeps(key)
                } else {
                    before.1
                }
            }
            (false, false) => self.keeps(key),
            (is_here, _) => is_here,
        }
    }

    fn keeps(&self, number: &str) -> bool {
        number == self.issue.linear_id || !self.issue.is_local()
    }

    fn has(&self, commit: &Oid, name: &str) -> bool {
        let folder = self.git.memory().strip_suffix(FORGE).unwrap_or_default();
        let paths = [super::store::path(name), path(name)];
        paths.iter().any(|path| {
            matches!(
                self.git.file_at(commit, &format!("{folder}{path}")),
                Ok(Some(_))
            )
        })
    }
}

/// Collects what was done for an issue, from git, the checkpoints and the knowledge.
///
/// What cannot be read is left out: closing an issue does not depend on it.
pub(super) fn work(project: &Project, issue: &Issue) -> Work {
    let mut work = Work::default();
    let mine = |key: Option<&str>| key.is_some_and(|key| issue.answers_to(key));
    if let Ok(git) = project.git() {
        let names = Names::read(&project.files().reading()).unwrap_or_default();
        commits(project, &Meant { git, issue, names }, &mut work);
    }
    if let Ok(checkpoints) = Checkpoints::new(project).list() {
        let closes = |manifest: &crate::checkpoints::Manifest| {
            manifest
                .linear_issues_closed
                .iter()
                .any(|key| issue.answers_to(key))
        };
        let mine = checkpoints.into_iter().rev().filter(|checkpoint| {
            let key = checkpoint.name.rsplit_once("-v").map(|(key, _)| key);
            key.is_some_and(|key| issue.answers_to(key))
                || checkpoint.manifest.as_ref().is_some_and(closes)
        });
        work.checkpoints = mine.map(|checkpoint| checkpoint.tag).collect();
    }
    if let Ok(file) = Knowledge::new(project).read() {
        let learned = file
            .entries()
            .filter(|entry| mine(entry.trace.linear.as_deref()));
        add(
            &mut work.learned,
            learned.map(|entry| {
                let texts: Vec<&str> = entry
                    .texts()
                    .iter()
                    .map(|(_, text)| *text)
                    .filter(|text| !text.is_empty())
                    .collect();
                texts.join(": ")
            }),
        );
    }
    work
}

/// Adds the commits that name an issue, and what they say.
fn commits(project: &Project, meant: &Meant<'_>, work: &mut Work) {
    let (closing, issue) = (Closing::of(project.config()), meant.issue);
    // No commit names an issue before it is there, but for clocks.
    let since = issue
        .created_at
        .map(|at| helmdeck_git::since(checkpoints::since(at)));
    let limit = format!("--max-count={COMMITS}");
    let options: Vec<&str> = [limit.as_str()]
        .into_iter()
        .chain(since.as_deref())
        .collect();
    let commits = meant.git.log_of(&options, "HEAD", &[]).unwrap_or_default();
    for (commit, text) in commits.into_iter().rev() {
        // Parsing a whole message is slower than searching for a word.
        let names = issue
            .earlier_keys()
            .chain([issue.linear_id.as_str()])
            .any(|key| text.contains(key));
        if !names && !closing.closes(&text, &issue.linear_id) {
            continue;
        }
        let mine = |key: Option<&str>| key.is_some_and(|key| meant.is_its(&commit.oid, key));
        let parsed = message::parse(&text);
        if closing.closes(&text, &issue.linear_id)
            && !parsed.messages.iter().any(|message| mine(message.key()))
        {
            // Written by a person, or by a merge on GitHub.
            work.commits.push((commit.oid.to_string(), commit.subject));
            continue;
        }
        let messages: Vec<_> = parsed
            .messages
            .iter()
            .filter(|message| mine(message.key()))
            .collect();
        if let Some(first) = messages.first() {
            work.commits
                .push((commit.oid.to_string(), first.subject.clone()));
        }
        for message in messages {
            add(&mut work.what, message.what.iter().cloned());
            add(&mut work.why, [message.why.clone()]);
            add(
                &mut work.learned,
                message.memory.iter().filter_map(|note| match note {
                    Note::Learned(text) => Some(text.clone()),
                    _ => None,
                }),
            );
        }
    }
}

/// Adds commits by their ids, each once. A commit that is not here has no subject.
pub(super) fn add_commits(project: &Project, work: &mut Work, ids: &[String]) {
    for id in ids
        .iter()
        .filter(|id| id.len() >= 7 && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
    {
        if work.commits.iter().any(|(known, _)| known == id) {
            continue;
        }
        let here = project
            .git()
            .ok()
            .and_then(|git| git.log(id, 1).ok())
            .and_then(|log| log.into_iter().next());
        work.commits.push((
            id.clone(),
            here.map(|commit| commit.subject).unwrap_or_default(),
        ));
    }
}

/// Adds texts on one line each, each once.
pub(super) fn add(all: &mut Vec<String>, texts: impl IntoIterator<Item = String>) {
    for text in texts {
        let text = collapse_whitespace(&text);
        if !text.is_empty() && !all.contains(&text) {
            all.push(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::issues::Comment;

    #[test]
    fn a_record_reads_back_as_it_was_written() {
        let issue: Issue =
            serde_json::from_str(include_str!("../../forge_documents/fixtures/issue.json"))
                .unwrap();
        let record = Record {
            issue: Issue {
                state: Some(DONE.to_owned()),
                ..issue
            },
            closed_at: Some(Time::parse("2025-12-24T12:00:00Z").unwrap()),
            closed_by: Some("Forge: \"the\" agent".to_owned()),
            anyway: Some("no time".to_owned()),
            commits: vec!["a".repeat(40)],
            checkpoints: vec!["checkpoint/SX9-123-v1".to_owned()],
            summary: String::new(),
        };
        let work = Work {
            commits: vec![("a".repeat(40), "Wire it".to_owned())],
            what: vec!["Connect".to_owned()],
            why: vec!["It was asked for".to_owned()],
            learned: vec!["It listens late".to_owned()],
            checkpoints: record.checkpoints.clone(),
        };
        let text = print(&record, &work).unwrap();
        let read = parse("SX9-123", &text).unwrap();
        assert!(
            read.summary
                .starts_with("# SX9-123: Wire ATLAS daemon to NATS\n"),
            "{}",
            read.summary
        );
        for part in [
            "## What\n\n- Connect",
            "## Why\n\nIt was",
            "- It listens late",
            "- [ ] ATLAS daemon",
            "## Commits\n\n- Wire it",
        ] {
            assert!(read.summary.contains(part), "{part}: {}", read.summary);
        }
        assert_eq!(
            Record {
                summary: String::new(),
                ..read
            },
            record
        );
        assert_eq!(
            parse("SX9-123", &text.replace('\n', "\r\n")).unwrap().issue,
            record.issue
        );
    }

    #[test]
    fn lines_of_two_closings_are_one_record() {
        let closed = |by: &str| {
            let comment = |id: &str| Comment {
                id: id.to_owned(),
                text: "c".to_owned(),
                ..Comment::default()
            };
            let issue = Issue {
                linear_id: "SX9-1".to_owned(),
                title: "One".to_owned(),
                state: Some(DONE.to_owned()),
                comments: vec![comment("both"), comment(by)],
                ..Issue::default()
            };
            let work = Work {
                why: vec![format!("by {by}")],
                ..Work::default()
            };
            print(
                &Record {
                    issue,
                    closed_by: Some(by.to_owned()),
                    ..Record::default()
                },
                &work,
            )
            .unwrap()
        };
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("ours", closed("ann")),
            ("base", String::new()),
            ("theirs", closed("bob")),
        ] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let merged = std::process::Command::new("git")
            .args(["merge-file", "-p", "--union", "ours", "base", "theirs"])
            .current_dir(folder.path())
            .output()
            .unwrap();
        let read = parse("SX9-1", &String::from_utf8(merged.stdout).unwrap()).unwrap();
        let ids: Vec<&str> = read
            .issue
            .comments
            .iter()
            .map(|comment| comment.id.as_str())
            .collect();
        assert_eq!(
            (read.closed_by.as_deref(), ids),
            (Some("ann"), vec!["both", "ann", "bob"])
        );
        assert!(
            read.summary.starts_with("# SX9-1: One\n"),
            "{}",
            read.summary
        );
        assert!(
            read.summary.contains("by ann") && read.summary.contains("by bob"),
            "{}",
            read.summary
        );
        assert!(
            !read.summary.contains("issue: {") && !read.summary.contains("---"),
            "{}",
            read.summary
        );
    }

    #[test]
    fn a_free_text_is_a_record_too() {
        let read = parse("SX9-1", "# All done\n\nWe did it.\n").unwrap();
        assert_eq!(
            (read.issue.title.as_str(), read.issue.is_over()),
            ("All done", true)
        );
        let read = parse(
            "SX9-1",
            "---\nlinear_id: SX9-1\ntitle: Half \"done\"\nstate: Cancelled\n---\nNo.\n",
        )
        .unwrap();
        assert_eq!(
            (read.issue.title.as_str(), read.issue.state.as_deref()),
            ("Half \"done\"", Some("Cancelled"))
        );
        assert!(
            parse(
                "SX9-2",
                "---\nissue: {\"linear_id\":\"SX9-1\",\"title\":\"t\"}\n---\n"
            )
            .is_err()
        );
    }
}
