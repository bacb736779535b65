//! Candidates for arguments: packs, keys and values of their input, jobs, sessions and MCP servers.

use std::ffi::OsStr;
use std::sync::Arc;

use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _};
use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter as _};
use helmdeck_core::{PackName, SystemClock, Version};
use helmdeck_engine::{Engine, JobBook, JobQuery, PackInfo};

use crate::args::{Cli, Global};
use crate::env::ProcessEnvironment;
use crate::exit::Result;
use crate::input::Shape;
use crate::output::Output;
use crate::runtime::block_on;
use crate::wire::{MemoryUse, Setup};

/// Function that returns the candidates for a word that may be incomplete.
pub(super) type Completer = fn(&OsStr) -> Vec<CompletionCandidate>;

/// Maximum number of jobs that are offered, the newest first.
const JOBS: usize = 50;
/// The engine's own member of an input: the session that the call uses.
const SESSION: &str = "_session_id";

/// Offers pack names; after `@`, the versions of the pack.
pub(super) fn packs(word: &OsStr) -> Vec<CompletionCandidate> {
    let Some(word) = word.to_str() else {
        return Vec::new();
    };
    let packs = CommandLine::read().packs();
    if let Some((name, version)) = word.split_once('@') {
        let versions = packs
            .iter()
            .filter(|pack| pack.name.as_str() == name)
            .flat_map(|pack| &pack.versions);
        let versions = versions
            .map(ToString::to_string)
            .filter(|known| known.starts_with(version));
        return versions
            .map(|known| CompletionCandidate::new(format!("{name}@{known}")))
            .collect();
    }
    let packs = packs
        .iter()
        .filter(|pack| pack.name.as_str().starts_with(word));
    packs
        .map(|pack| candidate(pack.name.to_string(), &pack.description))
        .collect()
}

/// Offers `key=` for the keys of the pack's input, then values: of an enum, true and false, paths.
pub(super) fn pairs(word: &OsStr) -> Vec<CompletionCandidate> {
    let Some(word) = word.to_str() else {
        return Vec::new();
    };
    let line = CommandLine::read();
    let Some(input) = line.input() else {
        return Vec::new();
    };
    match word.split_once('=') {
        None => keys(Shape::of(&input), word, &line.given()),
        // Raw JSON.
        Some((key, _)) if key.ends_with(':') => Vec::new(),
        Some((key, value)) => values(Shape::of(&input), &line, key, value),
    }
}

/// Offers jobs, the newest first.
pub(super) fn jobs(word: &OsStr) -> Vec<CompletionCandidate> {
    let Some(setup) = CommandLine::read().setup() else {
        return Vec::new();
    };
    let found = setup.system().map(|system| {
        let (clock, keep) = (
            Arc::new(SystemClock::default()),
            setup.settings.engine.jobs.retention,
        );
        let book = JobBook::new(system, None, clock, keep);
        let query = JobQuery {
            state: None,
            after: None,
            limit: JOBS,
        };
        block_on(async { Ok(book.jobs(None, &query).await?) })
    });
    let Ok(Ok(page)) = found else {
        return Vec::new();
    };
    let jobs = page.jobs.iter().map(|job| {
        (
            job.id.to_string(),
            format!("{} {}", job.pack, job.state.as_str()),
        )
    });
    jobs.filter(|(id, _)| starts(id, word))
        .map(|(id, help)| candidate(id, &help))
        .collect()
}

/// Offers sessions of packs.
pub(super) fn sessions(word: &OsStr) -> Vec<CompletionCandidate> {
    let found = CommandLine::read().sessions().into_iter();
    found
        .filter(|(id, _)| starts(id, word))
        .map(|(id, pack)| candidate(id, &pack))
        .collect()
}

/// Offers the MCP servers of the configuration.
pub(super) fn mcp_servers(word: &OsStr) -> Vec<CompletionCandidate> {
    let Some(setup) = CommandLine::read().setup() else {
        return Vec::new();
    };
    let names = setup
        .settings
        .mcp_servers
        .iter()
        .map(|server| server.name.clone());
    names
        .filter(|name| starts(name, word))
        .map(CompletionCandidate::new)
        .collect()
}

fn starts(text: &str, word: &OsStr) -> bool {
    word.to_str().is_some_and(|word| text.starts_with(word))
}

fn candidate(word: String, help: &str) -> CompletionCandidate {
    CompletionCandidate::new(word).help(Some(
        help.lines().next().unwrap_or_default().to_owned().into(),
    ))
}

/// Offers keys that are not given yet, the required ones first; `a.` and what is below it for an
/// object.
fn keys(shape: Shape<'_>, word: &str, given: &[String]) -> Vec<CompletionCandidate> {
    let (path, shape) = below(shape, word);
    let required = shape.required();
    let (first, rest): (Vec<&str>, Vec<&str>) = shape
        .names()
        .into_iter()
        .partition(|name| required.contains(name));
    let names = first
        .into_iter()
        .chain(rest)
        .filter_map(|name| Some((name, shape.property(name)?)));
    let offered = names.map(|(name, inner)| {
        let sign = if inner.names().is_empty() { '=' } else { '.' };
        (
            format!("{path}{name}"),
            sign,
            inner.description().unwrap_or_default(),
        )
    });
    offered
        .filter(|(key, ..)| key.starts_with(word) && !given.contains(key))
        .map(|(key, sign, help)| candidate(format!("{key}{sign}"), help))
        .collect()
}

/// Returns the part of a key up to its last dot, and the shape of the object that it names.
///
/// A key with a dot that the schema declares is one key.
fn below<'a, 'k>(shape: Shape<'a>, key: &'k str) -> (&'k str, Shape<'a>) {
    let mut found = ("", shape);
    for (at, _) in key.match_indices('.') {
        let Some(inner) = found
            .1
            .property(&key[found.0.len()..at])
            .filter(|inner| !inner.names().is_empty())
        else {
            continue;
        };
        found = (&key[..=at], inner);
    }
    found
}

/// Offers values of a key.
fn values(
    shape: Shape<'_>,
    line: &CommandLine,
    key: &str,
    value: &str,
) -> Vec<CompletionCandidate> {
    let (path, object) = below(shape, key);
    let Some(mut shape) = object.property(&key[path.len()..]) else {
        return Vec::new();
    };
    if key == SESSION {
        let found = line
            .sessions()
            .into_iter()
            .filter(|(id, _)| id.starts_with(value));
        return found
            .map(|(id, pack)| candidate(format!("{key}={id}"), &pack))
            .collect();
    }
    let (mut before, mut value) = (format!("{key}="), value);
    if let Some(file) = value.strip_prefix('@') {
        return paths(&format!("{before}@"), file);
    }
    if shape.kinds().contains("array") {
        shape = shape.items();
        if let Some((earlier, last)) = value.rsplit_once(',') {
            before = format!("{before}{earlier},");
            value = last;
        }
    }
    if shape.is_path() {
        return paths(&before, value);
    }
    let mut words: Vec<String> = shape.choices().into_iter().filter_map(word_of).collect();
    if words.is_empty() && shape.kinds().contains("boolean") {
        words = vec!["true".to_owned(), "false".to_owned()];
    }
    let words = words.into_iter().filter(|word| word.starts_with(value));
    words
        .map(|word| CompletionCandidate::new(format!("{before}{word}")))
        .collect()
}

/// Returns a choice as it is typed; `null` and lists are not.
fn word_of(choice: &serde_json::Value) -> Option<String> {
    match choice {
        serde_json::Value::String(text) => Some(text.clone()),
        serde_json::Value::Number(_) | serde_json::Value::Bool(_) => Some(choice.to_string()),
        _ => None,
    }
}

fn paths(before: &str, path: &str) -> Vec<CompletionCandidate> {
    let found = PathCompleter::any().complete(OsStr::new(path)).into_iter();
    found
        .map(|candidate| candidate.add_prefix(before))
        .collect()
}

/// The command line up to the cursor, read as far as it goes.
struct CommandLine {
    matches: Option<ArgMatches>,
}

impl CommandLine {
    /// Reads the words that the shell passes after `--`, without the one at the cursor.
    fn read() -> Self {
        let mut words: Vec<_> = ProcessEnvironment::arguments()
            .skip_while(|word| word != "--")
            .skip(1)
            .collect();
        words.pop();
        Self {
            matches: Cli::command()
                .ignore_errors(true)
                .try_get_matches_from(words)
                .ok(),
        }
    }

    /// Loads the configuration, `None` if it is invalid.
    fn setup(&self) -> Option<Setup> {
        let global = Global::from_arg_matches(self.matches.as_ref()?).ok()?;
        let env = ProcessEnvironment::of_process();
        let output = Output::of_process(&env, true, 0);
        Setup::load(&global, Vec::new(), env, output, "off").ok()
    }

    /// Asks an engine without memory and vault.
    fn ask<T>(&self, question: impl AsyncFnOnce(&Engine) -> Result<T>) -> Option<T> {
        let setup = self.setup()?;
        block_on(async {
            let engine = setup.engine(MemoryUse::Nothing, false).await?;
            let answer = question(&engine).await;
            engine.shutdown().await;
            answer
        })
        .ok()
    }

    fn packs(&self) -> Vec<PackInfo> {
        self.ask(async |engine| Ok(engine.packs()))
            .unwrap_or_default()
    }

    /// Returns the ids of the sessions, and the pack that made each.
    fn sessions(&self) -> Vec<(String, String)> {
        let found = self
            .ask(async |engine| Ok(engine.sessions(None).await?))
            .unwrap_or_default();
        found
            .into_iter()
            .map(|session| (session.id, session.pack))
            .collect()
    }

    /// Returns the values of an argument of the innermost command.
    fn words(&self, argument: &str) -> Vec<String> {
        let mut inner = self.matches.as_ref();
        while let Some((_, next)) = inner.and_then(ArgMatches::subcommand) {
            inner = Some(next);
        }
        let words = inner
            .and_then(|matches| matches.try_get_raw(argument).ok().flatten())
            .into_iter()
            .flatten();
        words
            .filter_map(|word| word.to_str().map(str::to_owned))
            .collect()
    }

    /// Returns the input schema of the pack that the line names.
    fn input(&self) -> Option<serde_json::Value> {
        let pack = self.words("pack").into_iter().next()?;
        let (name, version) = pack
            .split_once('@')
            .map_or((pack.as_str(), None), |(name, at)| (name, Some(at)));
        let name = PackName::new(name).ok()?;
        let version = version.and_then(|version| Version::parse(version).ok());
        self.ask(async |engine| Ok(engine.pack(name.as_str(), version)?.input))
    }

    /// Returns the keys that the line already gives.
    fn given(&self) -> Vec<String> {
        let pairs = self.words("pairs").into_iter();
        pairs
            .filter_map(|pair| Some(pair.split_once('=')?.0.trim_end_matches(':').to_owned()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn words(found: &[CompletionCandidate]) -> Vec<&str> {
        found
            .iter()
            .map(|candidate| candidate.get_value().to_str().unwrap())
            .collect()
    }

    fn nothing() -> CommandLine {
        CommandLine { matches: None }
    }

    #[test]
    fn required_keys_come_first_and_given_ones_not_again() {
        let schema = json!({"properties": {
            "a": {}, "b": {"description": "First\nsecond"}, "o": {"properties": {"x": {}, "y": {}}},
        }, "required": ["b"]});
        let shape = Shape::of(&schema);
        let found = keys(shape, "", &[]);
        assert_eq!(words(&found), ["b=", "a=", "o."]);
        assert_eq!(found[0].get_help().unwrap().to_string(), "First");
        assert_eq!(words(&keys(shape, "o.", &["o.x".to_owned()])), ["o.y="]);
        assert_eq!(
            words(&keys(shape, "", &["b".to_owned(), "o".to_owned()])),
            ["a="]
        );
    }

    #[test]
    fn values_follow_the_schema() {
        let schema = json!({"properties": {
            "state": {"enum": ["open", "closed", null]}, "n": {"enum": [1, 2]}, "yes": {"type": "boolean"},
            "list": {"type": "array", "items": {"enum": ["s", "t"]}}, "o": {"properties": {"x": {"const": "z"}}},
            "text": {"type": "string"},
        }});
        let of = |key: &str, value: &str| {
            words(&values(Shape::of(&schema), &nothing(), key, value))
                .into_iter()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(of("state", ""), ["state=open", "state=closed"]);
        assert_eq!(of("state", "c"), ["state=closed"]);
        assert_eq!(of("n", ""), ["n=1", "n=2"]);
        assert_eq!(of("yes", "t"), ["yes=true"]);
        assert_eq!(of("list", "s,"), ["list=s,s", "list=s,t"]);
        assert_eq!(of("o.x", ""), ["o.x=z"]);
        assert!(of("text", "").is_empty() && of("other", "").is_empty());
    }

    #[test]
    fn paths_complete_after_at_and_for_path_members() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        let schema =
            json!({"properties": {"p": {"type": "string", "x-helmdeck-path": true}, "t": {}}});
        let typed = format!("{}/f", folder.path().display());
        let expected = format!("{typed}ile");
        let of = |key: &str, value: &str| values(Shape::of(&schema), &nothing(), key, value);
        assert_eq!(words(&of("p", &typed)), [format!("p={expected}")]);
        assert_eq!(
            words(&of("t", &format!("@{typed}"))),
            [format!("t=@{expected}")]
        );
        assert!(of("t", &typed).is_empty());
    }
}
