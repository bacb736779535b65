//! What a clone wants: its commands with the files that they name, and its settings.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use helmdeck_core::text::shell_quoted;
use sha2::{Digest as _, Sha256};

use super::{SETTING, TrustedCommand};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::features::{self, FeaturesFile};
use crate::knowledge::Knowledge;
use crate::layout::{INIT, INIT_COMMAND};
use crate::project::Project;
use crate::runner::argv;

/// Settings that start no program, open no connection and name no path. All others are shown and
/// agreed to, also those that a later version adds. The commands among them are shown as commands.
const HARMLESS: &[&str] = &[
    "files.max_bytes",
    "files.rfc",
    "verify.runner",
    "verify.commands",
    "verify.runners.*.command",
    "verify.runners.*.count_regex",
    "verify.count_regex",
    "verify.timeout_s",
    "verify.invariant_timeout_s",
    "recovery.files",
    "recovery.lines",
    "recovery.commits",
    "health.idle_ok",
    "health.regression",
    "health.clean_divergence",
    "session.prime_tokens",
    "session.archives",
    "session.bootstrap_timeout_s",
    "session.probes",
    "artifacts.max_bytes",
    "artifacts.total_bytes",
    "git.enabled",
    "git.timeout_s",
    "linear.me",
];

/// Programs that run the file whose name follows.
const INTERPRETERS: &[&str] = &[
    ".", "source", "exec", "sh", "bash", "dash", "zsh", "fish", "python", "python3", "node",
    "deno", "bun", "ruby", "perl", "php", "lua", "env", "make",
];

/// What a shell calls the folder in which a command starts.
const ROOT: &[&str] = &["$PWD/", "${PWD}/", "$(pwd)/", "`pwd`/"];

/// Extensions of programs.
const PROGRAMS: &[&str] = &[
    "sh", "bash", "zsh", "fish", "py", "js", "mjs", "cjs", "ts", "mts", "rb", "pl", "php", "lua",
    "mk",
];

/// Limit of the files of a command that are read, in bytes: a command may name one in many
/// spellings.
const MAX_DIGESTED: u64 = 64 << 20;

/// The most words of a command that are looked up as files.
const MAX_WORDS: usize = 256;

/// Returns every command of a project, and every setting that is not known to be harmless.
pub(super) fn all(project: &Project, config: &Config) -> Result<BTreeSet<TrustedCommand>> {
    let verify = &config.verify;
    let mut wanted = vec![("verify.runner".to_owned(), verify.runner.clone())];
    wanted.extend(
        verify
            .runners
            .iter()
            .map(|(name, one)| (format!("verify.runners.{name}"), one.command.clone())),
    );
    wanted.extend(
        verify
            .commands
            .iter()
            .map(|line| ("verify.commands".to_owned(), line.clone())),
    );
    let knowledge = Knowledge::new(project).read()?;
    let checks = knowledge.current_invariants().filter_map(|one| one.check());
    wanted.extend(checks.map(|check| ("invariant".to_owned(), check.to_owned())));
    if let Some(loaded) = project.files().load::<FeaturesFile>()? {
        let tests = loaded
            .value
            .features
            .iter()
            .flat_map(|feature| feature.tests());
        let built_in = tests.filter_map(|test| features::built_in(verify, test));
        wanted.extend(
            built_in.map(|(name, command)| (format!("built-in runner {name}"), command.to_owned())),
        );
    }
    if project.files().read(INIT)?.is_some() {
        wanted.push((INIT.to_owned(), INIT_COMMAND.to_owned()));
    }
    let wanted: BTreeSet<_> = wanted.into_iter().collect();
    let commands = wanted
        .iter()
        .map(|(purpose, line)| command(project.root(), purpose, line));
    let mut all: BTreeSet<_> = commands.collect::<Result<_>>()?;
    settings(&mut Vec::new(), &config.raw, &mut all);
    Ok(all)
}

/// Returns a command as it is agreed to: its words, and the files that they name.
pub(super) fn command(root: &Path, purpose: &str, line: &str) -> Result<TrustedCommand> {
    // A line that cannot be split cannot be run either.
    let words = argv(line, None).unwrap_or_else(|_| vec![line.to_owned()]);
    let command = words
        .iter()
        .map(|word| shell_quoted(word))
        .collect::<Vec<_>>()
        .join(" ");
    Ok(TrustedCommand {
        purpose: purpose.to_owned(),
        command,
        files: named_files(root, &words)?,
    })
}

/// Returns the files of the clone that a command names, with their digests.
///
/// The files that it runs count, and not those that it only reads, which change with the work: its
/// program, other programs by their mode, their `#!` or their extension, and what follows the name
/// of an interpreter.
fn named_files(root: &Path, words: &[String]) -> Result<BTreeMap<String, String>> {
    let separators = |c: char| c.is_whitespace() || ";&|()<>`$\"'={},".contains(c);
    // In a line for a shell, the root has names.
    let words: Vec<String> = words
        .iter()
        .map(|word| {
            ROOT.iter()
                .fold(word.clone(), |word, root| word.replace(root, "./"))
        })
        .collect();
    // With each name, whether its file counts whatever it is.
    let mut names: Vec<(&str, bool)> = Vec::new();
    for (at, word) in words.iter().enumerate() {
        // A program without a slash is looked up on the PATH.
        if at == 0 && !word.contains('/') {
            continue;
        }
        // The program, and what an interpreter is given. Others are data, unless they are programs
        // themselves.
        let runs = at == 0
            || words[..at]
                .iter()
                .rfind(|word| !word.starts_with('-'))
                .is_some_and(|word| is_interpreter(word));
        names.push((word, runs));
        let mut before = "";
        for part in word
            .split(separators)
            .filter(|part| !part.is_empty() && part != word)
        {
            let is_option = word.starts_with('-') && is_interpreter(&words[0]);
            names.push((part, is_option || is_interpreter(before)));
            // An option of an interpreter hides no script: `bash -e check`.
            if !part.starts_with('-') {
                before = part;
            }
        }
    }
    names.retain(|(name, _)| !name.is_empty());
    let mut files = BTreeMap::new();
    if names.len() > MAX_WORDS {
        files.insert(
            "*".to_owned(),
            format!("more than {MAX_WORDS} words to look at"),
        );
        names.truncate(MAX_WORDS);
    }
    let mut left = MAX_DIGESTED;
    // A shell may go to a folder first: `cd web && ./test.sh`.
    let within = |name: &&str| !Path::new(name).is_absolute() && root.join(name).is_dir();
    let folders: Vec<&str> = std::iter::once("")
        .chain(names.iter().map(|(name, _)| *name).filter(within))
        .collect();
    for (folder, (name, counts)) in folders
        .iter()
        .flat_map(|folder| names.iter().map(move |name| (folder, name)))
    {
        let place = Path::new(folder).join(name);
        // What is not below the root belongs to the machine, unless the path leads there from the
        // root.
        if place.is_absolute() && !place.starts_with(root) {
            continue;
        }
        let path = root.join(&place);
        let Ok(about) = fs::metadata(&path) else {
            continue;
        };
        let digest = match (about.is_dir(), about.is_file()) {
            (true, _) => continue,
            (false, true) if !counts && !is_program(&path, &about) => continue,
            (false, true) => match left.checked_sub(about.len()) {
                Some(rest) => {
                    left = rest;
                    digest(&path).map_err(|error| Error::io("cannot read", &path, &error))?
                }
                None => "too large to be agreed to".to_owned(),
            },
            (false, false) => "no regular file".to_owned(),
        };
        files.insert(place.display().to_string(), digest);
    }
    Ok(files)
}

/// Says whether a word names a program that runs the file behind it.
fn is_interpreter(word: &str) -> bool {
    INTERPRETERS.contains(&word.rsplit('/').next().unwrap_or(word))
}

/// Says whether a file is a program, by its mode, its extension or its first two bytes.
fn is_program(path: &Path, about: &fs::Metadata) -> bool {
    let by_extension = path
        .extension()
        .is_some_and(|end| PROGRAMS.iter().any(|known| end == *known));
    let mut begin = [0; 2];
    by_extension
        || about.permissions().mode() & 0o111 != 0
        || fs::File::open(path)
            .and_then(|mut file| file.read_exact(&mut begin))
            .is_ok()
            && begin == *b"#!"
}

fn digest(path: &Path) -> std::io::Result<String> {
    let (mut file, mut digest, mut part) =
        (fs::File::open(path)?, Sha256::new(), vec![0; 64 * 1024]);
    loop {
        match file.read(&mut part)? {
            0 => return Ok(helmdeck_core::hex(&digest.finalize())),
            read => digest.update(&part[..read]),
        }
    }
}

/// Adds the settings below a table that are not known to be harmless.
fn settings<'a>(at: &mut Vec<&'a str>, table: &'a toml::Table, all: &mut BTreeSet<TrustedCommand>) {
    for (name, value) in table {
        at.push(name);
        match value {
            toml::Value::Table(inner) if !inner.is_empty() => settings(at, inner, all),
            _ if HARMLESS.iter().any(|pattern| fits(pattern, at)) => {}
            // A table without settings has no effect.
            toml::Value::Table(_) => {}
            value => {
                let command = format!("{} = {value}", at.join("."));
                all.insert(TrustedCommand {
                    purpose: SETTING.to_owned(),
                    command,
                    files: BTreeMap::new(),
                });
            }
        }
        at.pop();
    }
}

fn fits(pattern: &str, name: &[&str]) -> bool {
    let parts: Vec<&str> = pattern.split('.').collect();
    parts.len() == name.len()
        && parts
            .iter()
            .zip(name)
            .all(|(part, one)| *part == "*" || part == one)
}
