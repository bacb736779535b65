//! The sources of the seam name nothing that could write, run a program, read a variable or reach the network: files are reached through a
//! `Look` only. What stands on the seam reaches no file below it.

use std::path::{Path, PathBuf};

use super::tokens::{Placed, Token, tokens};

/// What no source of the seam names, wherever and by whatever way.
const FORBIDDEN: &[&str] = &[
    // Files.
    "fs",
    "OpenOptions",
    "rustix",
    "libc",
    "tokio",
    "tempfile",
    // Programs, variables, the network, terminals.
    "process",
    "Command",
    "env",
    "option_env",
    "net",
    "TcpStream",
    "UnixStream",
    "stdout",
    "stderr",
    "stdin",
    "print",
    "println",
    "eprint",
    "eprintln",
    "dbg",
    // What brings in what is not seen here.
    "include",
    "extern",
    "unsafe",
    "asm",
];

/// What no source of a reader names: it opens for reading only.
const FOR_WRITING: &[&str] = &[
    "OpenOptions",
    "create",
    "create_new",
    "create_dir",
    "create_dir_all",
    "remove_file",
    "remove_dir",
    "remove_dir_all",
    "set_permissions",
    "set_len",
    "hard_link",
    "symlink",
    "WRONLY",
    "RDWR",
    "CREATE",
    "TRUNC",
    "TMPFILE",
    "mkdir",
    "Command",
    "env",
    "unsafe",
    // Of a project, what writes.
    "Files",
    "Project",
    "Features",
    "Knowledge",
];
/// The same, if it is called: each is a word of something harmless too.
const CALLS_FOR_WRITING: &[&str] = &["write", "write_all", "copy", "rename", "lock", "edit", "append"];

/// The same, if it is called: a field may be called so.
const CALLS: &[&str] = &[
    "canonicalize",
    "metadata",
    "symlink_metadata",
    "exists",
    "try_exists",
    "is_dir",
    "is_file",
    "is_symlink",
    "read_dir",
    "read_link",
];

/// The sources of the seam that reach files.
const READERS: &[&str] = &["src/seam/readers.rs", "src/seam/readers"];
/// What of a project's memory a reader may name.
const FORGE: &[(&str, &str)] = &[
    ("helmdeck_forge_documents", "ARCHITECTURE"),
    ("helmdeck_forge_documents", "features"),
    ("helmdeck_forge_documents", "knowledge"),
    ("helmdeck_forge_files", "files"),
    ("helmdeck_forge_files", "layout"),
    ("helmdeck_forge_files", "time"),
];

struct Source(Vec<Placed>);

impl Source {
    /// Reads a source without what only its tests see: `#[cfg(test)] mod tests { ... }`. What follows that is looked at.
    fn read(source: &[u8]) -> Self {
        let words = tokens(source).unwrap();
        let (mut kept, mut at) = (Vec::new(), 0);
        while at < words.len() {
            let whole = Self(words[at..].to_vec());
            let test = ["#", "[", "cfg", "(", "test", ")", "]", "mod"].iter().enumerate();
            if test.into_iter().all(|(ahead, part)| whole.is(ahead, part)) && whole.is(9, "{") {
                let (mut depth, mut ahead) = (1_usize, 10);
                while depth > 0 {
                    depth = if whole.is(ahead, "{") { depth + 1 } else { depth - usize::from(whole.is(ahead, "}")) };
                    ahead += 1;
                }
                at += ahead;
            } else {
                kept.push(words[at].clone());
                at += 1;
            }
        }
        Self(kept)
    }

    /// Says whether a word or a sign stands somewhere.
    fn is(&self, at: usize, part: &str) -> bool {
        match self.0.get(at) {
            Some((_, Token::Word(word))) => word == part,
            Some((_, Token::Sign(sign))) => part.chars().eq([*sign]),
            _ => false,
        }
    }

    fn are(&self, at: usize, parts: &[&str]) -> bool {
        parts.iter().enumerate().all(|(ahead, part)| self.is(at + ahead, part))
    }

    fn names(&self) -> impl Iterator<Item = (usize, usize, &str)> {
        self.0.iter().enumerate().filter_map(|(at, (line, token))| match token {
            Token::Word(word) => Some((at, *line, word.as_str())),
            _ => None,
        })
    }

    /// Returns what is wrong with a source of the seam.
    fn objections(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (at, line, name) in self.names() {
            let bad = match name {
                "path" => self.is(at + 1, "=") && !self.is(at + 2, "=") && self.is(at.wrapping_sub(1), "["),
                // A kind of thing is called so, too.
                "File" => self.are(at + 1, &[":", ":"]),
                // It is the crate's description.
                "include_str" => !self.are(at.wrapping_sub(5), &["#", "!", "[", "doc", "="]),
                "include_bytes" => true,
                "helmdeck_core" => !self.are(at + 1, &[":", ":", "text", ":", ":"]),
                name if name.starts_with("helmdeck_") => true,
                // Also as a function: `Path::exists`.
                name if CALLS.contains(&name) => self.is(at + 1, "(") || self.is(at.wrapping_sub(1), ":"),
                name => FORBIDDEN.contains(&name),
            };
            if bad {
                found.push(format!("line {line}: {name}"));
            }
        }
        found
    }

    /// Returns what is wrong with a source of a reader.
    fn writes(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (at, line, name) in self.names() {
            let called = self.is(at + 1, "(") && !self.is(at.wrapping_sub(1), "fn");
            let forge = name.starts_with("helmdeck_forge")
                && !FORGE.iter().any(|&(owner, part)| name == owner && self.are(at + 1, &[":", ":", part]));
            if FOR_WRITING.contains(&name) || called && CALLS_FOR_WRITING.contains(&name) || forge {
                found.push(format!("line {line}: {name}"));
            }
        }
        found
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the sources below a folder or of a file, without what only tests see.
fn sources(path: &str) -> Vec<PathBuf> {
    fn add(path: &Path, all: &mut Vec<PathBuf>) {
        if !path.is_dir() {
            all.extend(path.extension().is_some_and(|ending| ending == "rs").then(|| path.to_owned()));
        } else if path.file_name().is_some_and(|name| name != "tests") {
            std::fs::read_dir(path).unwrap().for_each(|entry| add(&entry.unwrap().path(), all));
        }
    }
    let mut all = Vec::new();
    add(&root().join(path), &mut all);
    all.retain(|path| path.file_name().is_some_and(|name| name != "tests.rs"));
    assert!(!all.is_empty(), "{path}");
    all
}

#[test]
fn no_source_of_the_seam_can_do_more_than_look() {
    let mut all = sources("src/seam");
    all.retain(|path| !READERS.iter().any(|readers| path.starts_with(root().join(readers))));
    assert!(all.len() > 15, "{all:?}");
    for path in all {
        let found = Source::read(&std::fs::read(&path).unwrap()).objections();
        assert!(found.is_empty(), "{}: {found:?}", path.display());
    }
    // What is left out here is left out of the crate too.
    let lib = Source(tokens(&std::fs::read(root().join("src/seam/lib.rs")).unwrap()).unwrap());
    let tests: Vec<usize> = lib.names().filter(|(_, _, name)| *name == "tests").map(|(at, ..)| at).collect();
    assert_eq!(tests.len(), 1);
    assert!(lib.are(tests[0] - 8, &["#", "[", "cfg", "(", "test", ")", "]", "mod", "tests", ";"]));
}

#[test]
fn each_way_around_is_noticed() {
    for source in [
        "use helmdeck_forge::Files;",
        "use helmdeck_forge::features::FeaturesFile;",
        "use helmdeck_forge as project;",
        "use helmdeck_core::{text::one_line, Clock};",
        "use helmdeck_core as core;",
        "extern crate helmdeck_forge;",
        "fn a() { std::fs::write(a, b) }",
        "use std::{fs, io};\nfn a() { fs::write(a, b) }",
        "use std::{fs as f};\nfn a() { f::write(a, b) }",
        "use std as s; fn a() { s::r#fs::write(a, b) }",
        "use std::fs::{self as other};",
        "fn a() { File::options() }",
        "fn a() { std::process::Command::new(\"git\") }",
        "use std::process::Command as Run;",
        "fn a() { std::env::var(\"HOME\") }",
        "const A: &str = env!(\"HOME\");",
        "use std::net::{TcpStream as T};",
        "fn a(p: &Path) { p.symlink_metadata() }",
        "fn a(p: &Path) { p.exists() }",
        "fn a(p: &Path) { some.map(Path::is_dir) }",
        "fn a() { dbg!(1); }",
        "fn a() { print!(\"a\"); }",
        "#[path = \"../x.rs\"] mod x;",
        "include!(\"x\");",
        "const A: &str = include_str!(\"x\");",
        "#[cfg(test)]\nmod tests { fn a() { { } } }\nfn a() { std::fs::write(a, b) }",
        "#[cfg(not(test))]\nmod tests { use std::fs; }",
        "mod tests { use std::fs; }",
    ] {
        assert!(!Source::read(source.as_bytes()).objections().is_empty(), "{source}");
    }
    for source in [
        "use helmdeck_core::text::{is_hidden, one_line};",
        "#![doc = include_str!(\"README.md\")]",
        "// std::fs is not used\nfn a(path: &str) -> bool { let path = \"fs\"; path == \"b\" || Kind::File == a || a.exists }",
        "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() { std::fs::write(a, b) } }\nfn c() {}",
    ] {
        assert_eq!(Source::read(source.as_bytes()).objections(), Vec::<String>::new(), "{source}");
    }
}

#[test]
fn the_readers_open_for_reading_only() {
    let all: Vec<PathBuf> = READERS.iter().copied().flat_map(sources).collect();
    assert!(all.len() >= 6, "{all:?}");
    for path in all {
        let found = Source::read(&std::fs::read(&path).unwrap()).writes();
        assert!(found.is_empty(), "{}: {found:?}", path.display());
    }
    for source in [
        "fn a() { std::fs::write(a, b) }",
        "fn a() { File::options().append(true) }",
        "use std::fs::{remove_file as gone};",
        "fn a() { open(p, OFlags::RDWR) }",
        "use helmdeck_forge_files::files::{Files, decode};",
        "use helmdeck_forge::features::Features;",
        "use helmdeck_forge::Project;",
        "use helmdeck_forge_files as forge;",
        "fn a() { file.lock() }",
    ] {
        assert!(!Source::read(source.as_bytes()).writes().is_empty(), "{source}");
    }
}

#[test]
fn what_stands_on_the_seam_reaches_no_file_below_it() {
    for path in ["packs/seam", "src/cli/commands/seam.rs", "src/cli/seam.rs", "src/server/mcp/resources.rs"]
        .into_iter()
        .flat_map(sources)
    {
        let source = Source(tokens(&std::fs::read(&path).unwrap()).unwrap());
        let found: Vec<_> =
            source.names().filter(|(_, _, name)| name.starts_with("helmdeck_forge") || *name == "readers").collect();
        assert!(found.is_empty(), "{}: {found:?}", path.display());
    }
}
