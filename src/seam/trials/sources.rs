//! The sources of this crate name nothing that could write, run a program or read a variable.

use std::path::{Path, PathBuf};

/// What a source must not name. The comment says what for.
const FORBIDDEN: [&str; 12] = [
    // Files are reached through a `Look` only.
    "std::fs",
    "fs::",
    "File::",
    "OpenOptions",
    "canonicalize",
    ".metadata()",
    // No program is run.
    "std::process",
    "Command",
    // No variable is read, nothing is printed, no network.
    "std::env",
    "env!(",
    "println!",
    "std::net",
];

/// Returns what is wrong with a source.
fn objections(source: &str) -> Vec<String> {
    let code: Vec<&str> = source.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    // What only the tests see may do anything.
    let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let mut found: Vec<String> =
        FORBIDDEN.iter().filter(|word| code.contains(**word)).map(|word| format!("it names {word}")).collect();
    for (at, _) in code.match_indices("helmdeck_project") {
        if !code[at..].starts_with("helmdeck_project::readers::") {
            let line = code[at..].lines().next().unwrap_or_default();
            found.push(format!("it uses more of helmdeck_project than its readers: {line}"));
        }
    }
    if code.contains("#[path") || code.contains("include!(") {
        found.push("it brings in what is not seen here".to_owned());
    }
    found
}

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "trials") {
            sources(&path, into);
        } else if path.extension().is_some_and(|ending| ending == "rs")
            && path.file_name().is_some_and(|name| name != "trials.rs")
        {
            into.push(path);
        }
    }
}

#[test]
fn no_source_can_do_more_than_look() {
    let mut all = Vec::new();
    sources(Path::new(env!("CARGO_MANIFEST_DIR")), &mut all);
    assert!(all.len() > 15, "{all:?}");
    for path in all {
        let found = objections(&std::fs::read_to_string(&path).unwrap());
        assert!(found.is_empty(), "{}: {found:?}", path.display());
    }
}

#[test]
fn each_way_around_is_noticed() {
    for source in [
        "use helmdeck_project::Files;",
        "use helmdeck_project::{readers::Look, Project};",
        "use helmdeck_project as project;",
        "extern crate helmdeck_project;",
        "std::fs::write(a, b)",
        "use std::{fs, io};\nfs::write(a, b)",
        "std::process::Command::new(\"git\")",
        "std::env::var(\"HOME\")",
        "#[path = \"../x.rs\"] mod x;",
    ] {
        assert!(!objections(source).is_empty(), "{source}");
    }
    for source in [
        "use helmdeck_project::readers::{Look, Vault};",
        "// std::fs is not used",
        "fn a() {}\n#[cfg(test)]\nmod tests {\n    std::fs::write(a, b)",
    ] {
        assert_eq!(objections(source), Vec::<String>::new(), "{source}");
    }
}

/// The readers themselves: what they name of files only opens for reading.
#[test]
fn the_readers_open_for_reading_only() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../project");
    let mut all = vec![project.join("vault.rs"), project.join("readers.rs")];
    sources(&project.join("vault"), &mut all);
    sources(&project.join("readers"), &mut all);
    assert!(all.len() >= 6, "{all:?}");
    for path in all {
        let source = std::fs::read_to_string(&path).unwrap();
        let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let code: String =
            code.lines().filter(|line| !line.trim_start().starts_with("//")).map(|line| format!("{line}\n")).collect();
        for word in [
            "write(",
            "create",
            "OpenOptions",
            "remove_",
            "rename(",
            "set_permissions",
            "hard_link",
            "::symlink(",
            "copy(",
            "WRONLY",
            "RDWR",
            "CREATE",
            "TRUNC",
            "mkdir",
            ".lock(",
            ".edit",
            ".append(",
            "Command",
            "env::",
        ] {
            assert!(!code.contains(word), "{} names {word}", path.display());
        }
        assert!(!code.contains("Files::new") || code.contains(".reading()"), "{}", path.display());
    }
}
