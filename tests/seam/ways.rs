//! What the gate must notice, and what it must not.

use std::path::Path;

use super::gate::{above, below, look_through};
use crate::layering::{MAY_DEPEND_ON, MAY_DEPEND_ON_ALL};

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
        b"[workspace.dependencies]\nhelmdeck-seam = { path = \"src/seam\" }\nother = { path = \"src/../src/seam/\" }\n\
          named = { version = \"1\", package = \"helmdeck-seam\" }\nserde = \"1\"\n",
    );
    for below in below() {
        write(
            &format!("{below}/Cargo.toml"),
            b"[package]\nname = \"x\"\nbuild = \"build.rs\"\n[lib]\npath = \"lib.rs\"\n[dependencies]\nserde.workspace = true\n\
              y = { path = \"../memory\" }\nhelmdeck-seam-helper = \"1\"\n",
        );
        write(&format!("{below}/lib.rs"), CLEAN.as_bytes());
    }
    write(file, contents.as_ref());
    folder
}

/// What only looks like a way back.
const CLEAN: &str = r##"//! #[path = "x"] include!("x"); helmdeck_seam
#![doc = include_str!("README.md")]
use helmdeck_seam_helper::process_seam_helper;
const SQL: &[u8] = include_bytes!("../migrations/a.sql");
fn a(path: &str) -> bool {
    let path = "b";
    run("process_seam_helper.py", "helmdeck seaming", "seams", "a/../b") && path == "x.rs"
}
"##;

#[test]
fn nothing_below_the_seam_knows_it() {
    let found = look_through(Path::new(env!("CARGO_MANIFEST_DIR")));
    let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "what lies below the seam must not know it:\n  {}", lines.join("\n  "));
}

#[test]
fn every_crate_that_may_not_know_the_seam_is_looked_through() {
    let (below, above) = (below(), above());
    for name in [
        "core",
        "events",
        "memory",
        "egress",
        "llm",
        "vault",
        "forge_files",
        "forge_documents",
        "skills",
        "forge",
        "engine",
        "conversation",
        "testkit",
    ] {
        assert!(below.contains(&format!("src/{name}")), "{name}: {below:?}");
    }
    for name in ["seam", "packs", "server", "cli", "helmdeck", "bench"] {
        assert!(above.contains(&name), "{name}: {above:?}");
    }
    assert_eq!(below.len() + above.len(), MAY_DEPEND_ON.len() + MAY_DEPEND_ON_ALL.len());
}

#[test]
fn a_clean_tree_is_clean() {
    assert_eq!(look_through(tree("docs/any.md", "").path()), []);
}

#[test]
fn every_way_back_is_noticed_in_every_crate_with_its_file_and_rule() {
    let tree = tree("docs/any.md", "");
    for below in below() {
        for (kind, contents, line, rule) in WAYS {
            let file = match kind {
                Of::Manifest => format!("{below}/Cargo.toml"),
                Of::Source => format!("{below}/deep/er/file.rs"),
            };
            let path = tree.path().join(&file);
            let before = std::fs::read(&path).ok();
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, contents).unwrap();
            let told: Vec<String> = look_through(tree.path()).iter().map(ToString::to_string).collect();
            let expected = format!("{file}:{line}: {rule}: ");
            assert!(told.len() == 1 && told[0].starts_with(&expected), "{contents}: {expected} {told:?}");
            match before {
                Some(before) => std::fs::write(&path, before).unwrap(),
                None => std::fs::remove_file(&path).unwrap(),
            }
        }
    }
    assert_eq!(look_through(tree.path()), [], "each was noticed for itself");
}

#[test]
fn every_way_back_of_the_workspace_is_noticed() {
    for (contents, line, rule) in [
        ("= no toml", 1, "unparseable"),
        ("[patch.crates-io]\nserde = { path = \"src/seam\" }\n", 2, "patch"),
        ("[patch.\"https://host/x\"]\nserde = { package = \"helmdeck-cli\", git = \"x\" }\n", 2, "patch"),
    ] {
        let found = look_through(tree("Cargo.toml", contents).path());
        assert_eq!((found.len(), found[0].line, found[0].rule), (1, line, rule), "{contents}: {found:?}");
        assert_eq!(found[0].file, "Cargo.toml");
    }
}

/// What a fixture is.
enum Of {
    Manifest,
    Source,
}

/// What must be noticed: the file, what it holds, the line and the rule.
const WAYS: &[(Of, &str, usize, &str)] = {
    use Of::{Manifest, Source};
    &[
        (Manifest, "[dependencies]\nhelmdeck-seam.workspace = true\n", 2, "dependency"),
        (Manifest, "[dependencies]\nx = { path = \"../seam\", optional = true }\n", 2, "dependency"),
        (Manifest, "[dependencies]\nx = { path = \"../project/../seam/.\" }\n", 2, "dependency"),
        (Manifest, "[dependencies]\nx = { path = \"../..\" }\n", 2, "dependency"),
        (Manifest, "[dependencies]\nx = { path = \"../../packs\" }\n", 2, "dependency"),
        (Manifest, "[dependencies]\nother.workspace = true\n", 2, "dependency"),
        (Manifest, "[dependencies]\nnamed = { workspace = true, optional = true }\n", 2, "dependency"),
        (Manifest, "[dependencies]\nx = { version = \"1\", package = \"helmdeck-seam\" }\n", 2, "dependency"),
        (Manifest, "[target.'cfg(unix)'.dependencies]\nhelmdeck-cli = \"1\"\n", 2, "dependency"),
        (Manifest, "[target.x86_64-a-b.dev-dependencies]\nother.workspace = true\n", 2, "dev-dependency"),
        (Manifest, "[dev-dependencies]\nhelmdeck-seam.workspace = true\n", 2, "dev-dependency"),
        (Manifest, "[dev-dependencies.x]\npackage = \"helmdeck\"\nversion = \"1\"\n", 1, "dev-dependency"),
        (Manifest, "[build-dependencies]\nhelmdeck-packs = \"1\"\n", 2, "build-dependency"),
        (Manifest, "[features]\nx = [\"dep:helmdeck-seam\"]\n", 2, "feature"),
        (Manifest, "[features]\nx = [\"helmdeck-seam?/y\"]\n", 2, "feature"),
        (Manifest, "[lib]\npath = \"../seam/lib.rs\"\n", 2, "target-path"),
        (Manifest, "[lib]\npath = \"lib.txt\"\n", 2, "target-path"),
        (Manifest, "[[test]]\nname = \"x\"\npath = \"../seam/lib.rs\"\n", 3, "target-path"),
        (Manifest, "[package]\nbuild = \"../seam/build.rs\"\n", 2, "target-path"),
        (Manifest, "[package]\nbuild = [\"build.rs\", \"/seam/build.rs\"]\n", 2, "target-path"),
        (Manifest, "[dependencies\n", 1, "unparseable"),
        (Source, "\n#[path = \"../seam/lib.rs\"]\nmod seam;\n", 2, "#[path]"),
        (Source, "#[cfg_attr(all(), path = r\"../seam/lib.rs\")] mod seam;", 1, "#[path]"),
        (Source, "macro_rules! m { ($p:literal) => { #[path = $p] mod seam; } } m!(\"../seam/lib.rs\");", 1, "#[path]"),
        (
            Source,
            "macro_rules! m { ($a:meta) => { #[$a] mod seam; } }\nm!(path = \"../../../other/lib.rs\");",
            2,
            "#[path]",
        ),
        (Source, "fn a() {\n    include! { \"../../seam/text.rs\" }\n}\n", 2, "include!"),
        (Source, "use std::include as bring;\nbring!(\"text.rs\");", 1, "include!"),
        (Source, "macro_rules! m { ($i:ident) => { $i!(\"text.rs\"); } }\nm!(include);", 2, "include!"),
        (Source, "\nconst A: &str = include_str!(\"../../../seam/text.rs\");", 2, "file"),
        (Source, "const A: &[u8] = include_bytes!(r\"../../../../packs/seam/mod.rs\");", 1, "file"),
        (
            Source,
            "const A: &str = include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/../seam/text.rs\"));",
            1,
            "file",
        ),
        (Source, "use std::include_str as bring;", 1, "include_str!"),
        (Source, "use helmdeck_seam::Seam;\n", 1, "name"),
        (Source, "extern crate helmdeck_seam as other;\n", 1, "name"),
        (Source, "fn a() { std::process::Command::new(\"/usr/bin/helmdeck\").arg(\"x\"); }", 1, "spawn"),
        (Source, "use std::process::Command as Run;", 1, "spawn"),
        (Source, "type Run = std::process::Command;", 1, "spawn"),
        (Source, "fn a() { Run::new(program).args(\"seam state-path\".split(' ')); }", 1, "spawn"),
        (Source, "fn a() { Run::new(program).args([part, \"recall-here\"]); }", 1, "spawn"),
        (Source, "fn a() { run(&[program, \"seam\", \"plans\"]); }", 1, "spawn"),
        (Source, "const A: &str = \"sh -c 'helmdeck seam plans'\";", 1, "spawn"),
        (Source, "const A: &str = \"scripts/process_seam.py\";", 1, "spawn"),
        (Source, "fn a() {", 1, "unparseable"),
        (Source, "const A: &str = \"", 1, "unparseable"),
    ]
};

#[test]
fn what_cannot_be_read_is_no_pass() {
    let found = look_through(tree("src/events/odd.rs", b"fn a() {} // \xff").path());
    assert_eq!((found[0].rule, found[0].file.as_str()), ("unparseable", "src/events/odd.rs"));
    for (target, path) in [
        ("../seam/lib.rs", "src/core/seam.rs"),
        ("../../seam/recall.rs", "src/engine/deep/recall.rs"),
        ("../seam", "src/llm/seam"),
    ] {
        let folder = tree("src/engine/deep/mod.rs", "");
        std::os::unix::fs::symlink(target, folder.path().join(path)).unwrap();
        let found = look_through(folder.path());
        assert_eq!((found.len(), found[0].rule, found[0].file.as_str()), (1, "link", path));
    }
    let folder = tree("docs/any.md", "");
    std::fs::rename(folder.path().join("src/egress"), folder.path().join("src/out")).unwrap();
    let rules: Vec<&str> = look_through(folder.path()).iter().map(|back| back.rule).collect();
    assert_eq!(rules, ["unparseable", "unparseable"], "a crate that is gone was not looked through");
    std::os::unix::fs::symlink("out", folder.path().join("src/egress")).unwrap();
    assert_eq!(look_through(folder.path())[0].rule, "link");
}
