//! The one-way gate: what the seam reads must not know it. Cargo refuses circles among crates, and `layering` asks `cargo metadata`; this
//! looks for the ways around both. Each has a fixture here that proves that it is noticed. There is no list of exceptions.

use std::fmt;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::tokens::{Token, tokens};

/// What the seam reads, and what that stands on.
const BELOW: [&str; 5] = ["src/core", "src/events", "src/memory", "src/egress", "src/project"];
/// The seam, and what stands on it.
const ABOVE: [&str; 5] = ["helmdeck-seam", "helmdeck-packs", "helmdeck-server", "helmdeck-cli", "helmdeck"];
/// Where those lie.
const FOLDERS: [&str; 4] = ["src/seam", "packs", "src/server", "src/cli"];

/// A way back, or what may hide one.
#[derive(Debug, PartialEq, Eq)]
struct Back {
    file: String,
    line: usize,
    rule: &'static str,
    what: String,
}

impl fmt::Display for Back {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.file, self.line, self.rule, self.what)
    }
}

/// Looks through the lower crates of a work tree. A crate that is not there is noticed too.
fn look_through(root: &Path) -> Vec<Back> {
    let mut gate = Gate { root, found: Vec::new() };
    let workspace = gate.toml(&root.join("Cargo.toml"));
    let shared = workspace.as_ref().and_then(|table| table.get("workspace")?.get("dependencies")?.as_table()).cloned();
    for below in BELOW {
        gate.manifest(&root.join(below).join("Cargo.toml"), &shared.clone().unwrap_or_default());
        gate.folder(&root.join(below));
    }
    gate.found
}

struct Gate<'a> {
    root: &'a Path,
    found: Vec<Back>,
}

impl Gate<'_> {
    fn add(&mut self, file: &Path, line: usize, rule: &'static str, what: impl Into<String>) {
        let file = file.strip_prefix(self.root).unwrap_or(file).display().to_string();
        self.found.push(Back { file, line, rule, what: what.into() });
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
                if ABOVE.contains(&name) {
                    self.add(file, line_of(file, need), "feature", format!("{feature} switches {need} on"));
                }
            }
        }
        // A target may be a file of any other crate.
        for kind in ["lib", "bin", "test", "example", "bench"] {
            let targets: Vec<&Value> = match table.get(kind) {
                Some(Value::Array(all)) => all.iter().collect(),
                one => one.into_iter().collect(),
            };
            for path in targets.into_iter().filter_map(|target| target.get("path")?.as_str()) {
                if Path::new(path).is_absolute() || path.split('/').any(|part| part == "..") {
                    self.add(file, line_of(file, path), "target-path", format!("{path} lies outside of the crate"));
                }
            }
        }
    }

    fn dependencies(&mut self, file: &Path, table: &Table, shared: &Table) {
        for (kind, rule) in [
            ("dependencies", "dependency"),
            ("dev-dependencies", "dev-dependency"),
            ("build-dependencies", "build-dependency"),
        ] {
            for (name, given) in table.get(kind).and_then(Value::as_table).into_iter().flatten() {
                let of_all = shared.get(name).filter(|_| given.get("workspace").is_some());
                if [Some(given), of_all].into_iter().flatten().any(is_above) || ABOVE.contains(&name.as_str()) {
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
                // `#[path = "..."]`, and within `cfg_attr`.
                Token::Word(name)
                    if name == "path" && sign(at + 1, '=') && text(at + 2).is_some() && in_attribute(&words, at) =>
                {
                    self.add(file, *line, "#[path]", text(at + 2).unwrap_or_default());
                }
                Token::Word(name) if name == "include" && sign(at + 1, '!') => {
                    self.add(file, *line, "include!", "what is included may be a file of any other crate");
                }
                Token::Word(name) if name == "helmdeck_seam" || name == "process_seam" => {
                    self.add(file, *line, "name", name.as_str());
                }
                Token::Word(name) if name == "Command" && word(at + 3, "new") && sign(at + 4, '(') => {
                    let program = text(at + 5).and_then(|text| text.rsplit('/').next());
                    if let Some(program) = program.filter(|name| name.starts_with("helmdeck")) {
                        self.add(file, *line, "spawn", program);
                    }
                }
                Token::Text(text) if tells_of_the_program(text) => self.add(file, *line, "spawn", text.as_str()),
                _ => {}
            }
        }
    }
}

/// Says whether a string is a word of a command line of the seam.
fn tells_of_the_program(text: &str) -> bool {
    text == "seam"
        || ["helmdeck seam", "process_seam", "process-seam", "CARGO_BIN_EXE_helmdeck"]
            .iter()
            .any(|part| text.contains(part))
}

/// Says whether a word stands in `#[...]` or `#![...]`: the bracket around it follows such a sign.
fn in_attribute(words: &[super::tokens::Placed], at: usize) -> bool {
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

/// Says whether a dependency is the seam or stands on it, whatever it is called here.
fn is_above(given: &Value) -> bool {
    let text = |name: &str| given.get(name).and_then(Value::as_str);
    let path = text("path").map(|path| path.trim_end_matches('/').trim_start_matches(['.', '/']));
    text("package").is_some_and(|name| ABOVE.contains(&name))
        || path.is_some_and(|path| {
            FOLDERS.iter().any(|folder| path == *folder || folder.strip_prefix("src/") == Some(path))
        })
}

/// Returns the first line of a file that has a text, from 1.
fn line_of(file: &Path, text: &str) -> usize {
    let lines = std::fs::read_to_string(file).unwrap_or_default();
    lines.lines().position(|line| line.contains(text)).map_or(1, |at| at + 1)
}

/// Makes a work tree with the lower crates, and one file more.
fn tree(file: &str, contents: impl AsRef<[u8]>) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, contents: &[u8]| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, contents).unwrap();
    };
    write(
        "Cargo.toml",
        b"[workspace.dependencies]\nhelmdeck-seam = { path = \"src/seam\" }\nother = { path = \"src/seam\" }\n",
    );
    for below in BELOW {
        write(&format!("{below}/Cargo.toml"), b"[package]\nname = \"x\"\n[lib]\npath = \"lib.rs\"\n");
        write(
            &format!("{below}/lib.rs"),
            b"//! #[path = \"x\"] include!(\"x\"); helmdeck_seam\nfn a(path: &str) { let path = \"b\"; }\n",
        );
    }
    write(file, contents.as_ref());
    folder
}

#[test]
fn nothing_that_the_seam_reads_knows_it() {
    let found = look_through(Path::new(env!("CARGO_MANIFEST_DIR")));
    let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "what the seam reads must not know it:\n  {}", lines.join("\n  "));
}

#[test]
fn a_clean_tree_is_clean() {
    assert_eq!(look_through(tree("docs/any.md", "").path()), []);
}

#[test]
fn every_way_back_is_noticed_with_its_file_and_rule() {
    let manifest = "src/memory/Cargo.toml";
    let source = "src/project/deep/er/file.rs";
    for (file, contents, line, rule) in [
        (manifest, "[dependencies]\nhelmdeck-seam.workspace = true\n", 2, "dependency"),
        (manifest, "[dependencies]\nx = { path = \"../seam\", optional = true }\n", 2, "dependency"),
        (manifest, "[dependencies]\nother.workspace = true\n", 2, "dependency"),
        (manifest, "[dependencies]\nx = { version = \"1\", package = \"helmdeck-seam\" }\n", 2, "dependency"),
        (manifest, "[target.'cfg(unix)'.dependencies]\nhelmdeck-cli = \"1\"\n", 2, "dependency"),
        (manifest, "[dev-dependencies]\nhelmdeck-seam.workspace = true\n", 2, "dev-dependency"),
        (manifest, "[build-dependencies]\nhelmdeck-packs = \"1\"\n", 2, "build-dependency"),
        (manifest, "[features]\nx = [\"dep:helmdeck-seam\"]\n", 2, "feature"),
        (manifest, "[features]\nx = [\"helmdeck-seam?/y\"]\n", 2, "feature"),
        (manifest, "[lib]\npath = \"../seam/lib.rs\"\n", 2, "target-path"),
        (manifest, "[[test]]\nname = \"x\"\npath = \"../seam/lib.rs\"\n", 3, "target-path"),
        (manifest, "[dependencies\n", 1, "unparseable"),
        ("Cargo.toml", "= no toml", 1, "unparseable"),
        (source, "\n#[path = \"../seam/lib.rs\"]\nmod seam;\n", 2, "#[path]"),
        (source, "#[cfg_attr(all(), path = r\"../seam/lib.rs\")] mod seam;", 1, "#[path]"),
        (source, "fn a() {\n    include! { \"../../seam/text.rs\" }\n}\n", 2, "include!"),
        (source, "use helmdeck_seam::Seam;\n", 1, "name"),
        (source, "fn a() { std::process::Command::new(\"/usr/bin/helmdeck\").arg(\"x\"); }", 1, "spawn"),
        (source, "fn a() { run(&[program, \"seam\", \"plans\"]); }", 1, "spawn"),
        (source, "const A: &str = \"sh -c 'helmdeck seam plans'\";", 1, "spawn"),
        (source, "const A: &str = \"scripts/process_seam.py\";", 1, "spawn"),
        (source, "fn a() {", 1, "unparseable"),
        (source, "const A: &str = \"", 1, "unparseable"),
    ] {
        let found = look_through(tree(file, contents).path());
        let told: Vec<String> = found.iter().map(ToString::to_string).collect();
        let expected = format!("{file}:{line}: {rule}: ");
        assert!(told.len() == 1 && told[0].starts_with(&expected), "{contents}: {expected} {told:?}");
    }
}

#[test]
fn what_cannot_be_read_is_no_pass() {
    let found = look_through(tree("src/events/odd.rs", b"fn a() {} // \xff").path());
    assert_eq!((found[0].rule, found[0].file.as_str()), ("unparseable", "src/events/odd.rs"));
    let folder = tree("docs/any.md", "");
    std::os::unix::fs::symlink("../seam/lib.rs", folder.path().join("src/core/seam.rs")).unwrap();
    assert_eq!(look_through(folder.path())[0].rule, "link");
    std::fs::rename(folder.path().join("src/egress"), folder.path().join("src/out")).unwrap();
    let rules: Vec<&str> = look_through(folder.path()).iter().map(|back| back.rule).collect();
    assert_eq!(rules, ["link", "unparseable", "unparseable"], "a crate that is gone was not looked through");
}
