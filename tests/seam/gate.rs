//! The one-way gate: what lies below the seam must not know it. Cargo refuses circles among crates, and `layering` asks `cargo metadata`; this
//! looks for the ways around both. Each has a fixture in `ways` that proves that it is noticed. There is no list of exceptions.

use std::fmt;
use std::path::{Component, Path, PathBuf};

use toml::{Table, Value};

use super::tokens::{Placed, Token, tokens};
use crate::layering::{MAY_DEPEND_ON, MAY_DEPEND_ON_ALL};

/// Returns the folders of the crates that must not know the seam: all that the table of the architecture does not let depend on it.
pub(super) fn below() -> Vec<String> {
    let rows = MAY_DEPEND_ON.iter().filter(|(name, may)| *name != "seam" && !may.contains(&"seam"));
    rows.map(|(name, _)| folder_of(name)).collect()
}

/// Returns the names of the seam, and of what may stand on it.
pub(super) fn above() -> Vec<&'static str> {
    let rows = MAY_DEPEND_ON.iter().filter(|(name, may)| *name == "seam" || may.contains(&"seam"));
    rows.map(|(name, _)| *name).chain(MAY_DEPEND_ON_ALL.iter().copied()).collect()
}

/// Returns where a crate lies, from the root.
fn folder_of(name: &str) -> String {
    match name {
        "packs" => name.to_owned(),
        // The root package itself.
        "helmdeck" => String::new(),
        _ => format!("src/{}", name.replace('-', "_")),
    }
}

/// Says whether a package is the seam, or may stand on it.
fn is_above_by_name(package: &str) -> bool {
    above().contains(&package.strip_prefix("helmdeck-").unwrap_or(package)) && package.starts_with("helmdeck")
}

/// Says whether a path from the root is in a folder of those; `at` asks for that folder itself.
fn is_above_by_path(path: &Path, at: bool) -> bool {
    above().into_iter().map(folder_of).any(|folder| {
        // All lies in the folder of the root package.
        if at { path == Path::new(&folder) } else { !folder.is_empty() && path.starts_with(&folder) }
    })
}

/// Returns a path from the root without `.` and `..`, as far as that can be told without looking.
fn plain(folder: &Path, path: &str) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in folder.join(path).components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// A way back, or what may hide one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Back {
    pub(super) file: String,
    pub(super) line: usize,
    pub(super) rule: &'static str,
    what: String,
}

impl fmt::Display for Back {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.file, self.line, self.rule, self.what)
    }
}

/// Looks through the lower crates of a work tree. A crate that is not there is noticed too.
pub(super) fn look_through(root: &Path) -> Vec<Back> {
    let mut gate = Gate { root, found: Vec::new() };
    let workspace = gate.toml(&root.join("Cargo.toml"));
    let shared = workspace.as_ref().and_then(|table| table.get("workspace")?.get("dependencies")?.as_table()).cloned();
    if let Some(workspace) = &workspace {
        gate.patches(&root.join("Cargo.toml"), workspace);
    }
    for below in below().iter().map(|folder| root.join(folder)) {
        gate.manifest(&below.join("Cargo.toml"), &shared.clone().unwrap_or_default());
        if below.is_symlink() {
            gate.add(&below, 1, "link", "what it leads to may be any other crate");
        }
        gate.folder(&below);
    }
    gate.found
}

struct Gate<'a> {
    root: &'a Path,
    found: Vec<Back>,
}

impl Gate<'_> {
    fn add(&mut self, file: &Path, line: usize, rule: &'static str, what: impl Into<String>) {
        let file = self.below_root(file).display().to_string();
        // What a line does first is enough to find it.
        if self.found.iter().all(|found| (&found.file, found.line) != (&file, line)) {
            self.found.push(Back { file, line, rule, what: what.into() });
        }
    }

    fn below_root<'p>(&self, path: &'p Path) -> &'p Path {
        path.strip_prefix(self.root).unwrap_or(path)
    }

    fn toml(&mut self, file: &Path) -> Option<Table> {
        let text = std::fs::read_to_string(file).map_err(|error| error.to_string());
        match text.and_then(|text| text.parse::<Table>().map_err(|error| error.message().to_owned())) {
            Ok(table) => Some(table),
            Err(error) => {
                self.add(file, 1, "unparseable", error);
                None
            }
        }
    }

    fn manifest(&mut self, file: &Path, shared: &Table) {
        let Some(table) = self.toml(file) else { return };
        self.dependencies(file, &table, shared);
        for target in table.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values) {
            if let Some(target) = target.as_table() {
                self.dependencies(file, target, shared);
            }
        }
        for (feature, needs) in table.get("features").and_then(Value::as_table).into_iter().flatten() {
            for need in needs.as_array().into_iter().flatten().filter_map(Value::as_str) {
                let name = need.trim_start_matches("dep:").split(['/', '?']).next().unwrap_or_default();
                if is_above_by_name(name) {
                    self.add(file, line_of(file, need), "feature", format!("{feature} switches {need} on"));
                }
            }
        }
        // A target may be a file of any other crate, or one that is not looked through.
        let build = table.get("package").and_then(|package| package.get("build"));
        let mut paths: Vec<&str> = match build {
            Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
            one => one.and_then(Value::as_str).into_iter().collect(),
        };
        for kind in ["lib", "bin", "test", "example", "bench"] {
            let targets: Vec<&Value> = match table.get(kind) {
                Some(Value::Array(all)) => all.iter().collect(),
                one => one.into_iter().collect(),
            };
            paths.extend(targets.into_iter().filter_map(|target| target.get("path")?.as_str()));
        }
        for path in paths {
            if Path::new(path).is_absolute() || path.split('/').any(|part| part == "..") {
                self.add(file, line_of(file, path), "target-path", format!("{path} lies outside of the crate"));
            } else if !path.ends_with(".rs") {
                self.add(file, line_of(file, path), "target-path", format!("{path} is not looked through"));
            }
        }
    }

    /// What takes the place of another package.
    fn patches(&mut self, file: &Path, table: &Table) {
        let patches = table.get("patch").and_then(Value::as_table).into_iter().flat_map(Table::values);
        for patches in patches.chain(table.get("replace")).filter_map(Value::as_table) {
            for (name, given) in patches {
                if is_above(given, Path::new("")) {
                    self.add(file, line_of(file, name), "patch", format!("{name} is the seam, or stands on it"));
                }
            }
        }
    }

    fn dependencies(&mut self, file: &Path, table: &Table, shared: &Table) {
        let folder = self.below_root(file).parent().unwrap_or(Path::new("")).to_owned();
        for (kind, rule) in [
            ("dependencies", "dependency"),
            ("dev-dependencies", "dev-dependency"),
            ("build-dependencies", "build-dependency"),
        ] {
            for (name, given) in table.get(kind).and_then(Value::as_table).into_iter().flatten() {
                let of_all = shared.get(name).filter(|_| given.get("workspace").is_some());
                if is_above(given, &folder)
                    || of_all.is_some_and(|given| is_above(given, Path::new("")))
                    || is_above_by_name(name)
                {
                    self.add(file, line_of(file, name), rule, format!("{name} is the seam, or stands on it"));
                }
            }
        }
    }

    fn folder(&mut self, folder: &Path) {
        let mut entries: Vec<PathBuf> = match std::fs::read_dir(folder) {
            Ok(entries) => entries.map(|entry| entry.unwrap().path()).collect(),
            Err(error) => return self.add(folder, 1, "unparseable", error.to_string()),
        };
        entries.sort();
        for path in entries {
            let kind = path.symlink_metadata().unwrap().file_type();
            if kind.is_symlink() {
                self.add(&path, 1, "link", "what it leads to may be a file of any other crate");
            } else if kind.is_dir() {
                self.folder(&path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                self.source(&path);
            }
        }
    }

    fn source(&mut self, file: &Path) {
        let words = match std::fs::read(file).map_err(|error| error.to_string()).and_then(|source| tokens(&source)) {
            Ok(words) => words,
            Err(error) => return self.add(file, 1, "unparseable", error),
        };
        let word =
            |at: usize, expected: &str| matches!(words.get(at), Some((_, Token::Word(word))) if word == expected);
        let sign =
            |at: usize, expected: char| matches!(words.get(at), Some((_, Token::Sign(sign))) if *sign == expected);
        let text = |at: usize| match words.get(at) {
            Some((_, Token::Text(text))) => Some(text.as_str()),
            _ => None,
        };
        for (at, (line, token)) in words.iter().enumerate() {
            match token {
                // `#[path = "..."]`, within `cfg_attr`, with the path from a macro, or handed to a macro that makes the attribute.
                Token::Word(name)
                    if name == "path"
                        && sign(at + 1, '=')
                        && !sign(at + 2, '=')
                        && (in_attribute(&words, at) || text(at + 2).is_some_and(|text| text.ends_with(".rs"))) =>
                {
                    self.add(file, *line, "#[path]", text(at + 2).unwrap_or("what it names cannot be seen"));
                }
                // Also under another name, and handed to a macro.
                Token::Word(name) if name == "include" => {
                    self.add(file, *line, "include!", "what is included may be a file of any other crate");
                }
                Token::Word(name) if (name == "include_str" || name == "include_bytes") && !sign(at + 1, '!') => {
                    self.add(file, *line, "include_str!", format!("what {name} is called here cannot be seen"));
                }
                Token::Word(name) if name == "helmdeck_seam" || name == "process_seam" => {
                    self.add(file, *line, "name", name.as_str());
                }
                Token::Word(name) if name == "Command" && (word(at + 1, "as") || is_typed(&words, at)) => {
                    self.add(file, *line, "spawn", "what Command is called here cannot be seen");
                }
                Token::Word(name) if name == "Command" && word(at + 3, "new") && sign(at + 4, '(') => {
                    let program = text(at + 5).and_then(|text| text.rsplit('/').next());
                    if let Some(program) = program.filter(|name| name.starts_with("helmdeck")) {
                        self.add(file, *line, "spawn", program);
                    }
                }
                Token::Text(text) if self.reaches(file, text) => self.add(file, *line, "file", text.as_str()),
                Token::Text(text) if tells_of_the_program(text) => self.add(file, *line, "spawn", text.as_str()),
                _ => {}
            }
        }
    }

    /// Says whether a text is the path of a file of the seam or of what stands on it: from the file it stands in, from the folder of
    /// its crate, as after `env!("CARGO_MANIFEST_DIR")`, or from the root.
    fn reaches(&self, file: &Path, text: &str) -> bool {
        if !text.contains('/') || text.contains(char::is_whitespace) {
            return false;
        }
        let file = self.below_root(file);
        let (folder, inner) = (file.parent().unwrap_or(file), text.trim_start_matches('/'));
        let own: PathBuf = file.components().take(2).collect();
        let climbs = inner.split('/').any(|part| part == "..");
        climbs && [folder, &own].into_iter().any(|folder| is_above_by_path(&plain(folder, inner), false))
            || text.starts_with("src/seam/")
            || text.contains("/src/seam/")
    }
}

/// Says whether a string is a word of a command line of the seam.
fn tells_of_the_program(text: &str) -> bool {
    let whole = |part: &str| {
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
        text.match_indices(part)
            .any(|(at, _)| !text[..at].ends_with(is_part) && !text[at + part.len()..].starts_with(is_part))
    };
    text == "seam"
        || text.starts_with("seam ")
        || ["helmdeck seam", "process_seam", "process-seam", "recall-here", "state-path", "offer-save-here"]
            .into_iter()
            .any(whole)
        || whole("CARGO_BIN_EXE_helmdeck")
}

/// Says whether a word stands in `type ... = ...`.
fn is_typed(words: &[Placed], at: usize) -> bool {
    let before = words[..at].iter().rev().take_while(|(_, token)| !matches!(token, Token::Sign(';' | '{' | '}')));
    before.into_iter().any(|(_, token)| *token == Token::Word("type".to_owned()))
}

/// Says whether a word stands in `#[...]` or `#![...]`: the bracket around it follows such a sign.
fn in_attribute(words: &[Placed], at: usize) -> bool {
    let mut closed = 0_usize;
    for at in (0..at).rev() {
        match &words[at].1 {
            Token::Sign(')' | ']' | '}') => closed += 1,
            Token::Sign('(' | '[' | '{') if closed > 0 => closed -= 1,
            // `cfg_attr(` may stand around it.
            Token::Sign('(') => {}
            Token::Sign('[') => {
                let before = |back: usize| at.checked_sub(back).map(|at| &words[at].1);
                let hash = Some(&Token::Sign('#'));
                return before(1) == hash || before(1) == Some(&Token::Sign('!')) && before(2) == hash;
            }
            Token::Sign('{' | ';') if closed == 0 => return false,
            _ => {}
        }
    }
    false
}

/// Says whether a dependency that a manifest in a folder names is the seam or stands on it, whatever it is called there.
fn is_above(given: &Value, folder: &Path) -> bool {
    let text = |name: &str| given.get(name).and_then(Value::as_str);
    text("package").is_some_and(is_above_by_name)
        || text("path").is_some_and(|path| is_above_by_path(&plain(folder, path), true))
}

/// Returns the first line of a file that has a text, from 1.
fn line_of(file: &Path, text: &str) -> usize {
    let lines = std::fs::read_to_string(file).unwrap_or_default();
    lines.lines().position(|line| line.contains(text)).map_or(1, |at| at + 1)
}
