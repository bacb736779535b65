//! Linear's published GraphQL schema.
//!
//! It is a file of the crate `linear-schema` (MIT), which cargo fetches once. The crate itself is
//! not compiled: it is made for a client with dependencies of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crate, as its unpacked folder is called.
const CRATE: &str = "linear-schema-0.1.4";
/// A package that depends on it, for `cargo fetch`.
const MANIFEST: &str = "[package]\nname = \"schema\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
                        [lib]\npath = \"lib.rs\"\n[dependencies]\nlinear-schema = \"=0.1.4\"\n";

/// Returns the schema without its descriptions, which need most of the time to parse.
///
/// # Panics
/// If the crate is not there and cannot be fetched.
#[allow(clippy::expect_used, reason = "a test without the schema fails")]
pub(super) fn text() -> String {
    let home = cargo_home();
    let text = find(&home).or_else(|| {
        fetch();
        find(&home)
    });
    let text = text.expect(
        "linear.graphql of the crate linear-schema 0.1.4: `cargo fetch` could not fetch it",
    );
    // Descriptions are the texts between triple quotes: every second part.
    text.split("\"\"\"").step_by(2).collect()
}

fn cargo_home() -> PathBuf {
    #[expect(clippy::disallowed_methods, reason = "says where cargo keeps crates")]
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    variable("CARGO_HOME")
        .or_else(|| Some(variable("HOME")?.join(".cargo")))
        .unwrap_or_default()
}

/// Finds the file among the unpacked crates of all registries.
fn find(home: &Path) -> Option<String> {
    let registries = fs::read_dir(home.join("registry/src")).ok()?;
    registries.flatten().find_map(|registry| {
        fs::read_to_string(registry.path().join(CRATE).join("linear.graphql")).ok()
    })
}

#[allow(clippy::expect_used, reason = "a test without the schema fails")]
fn fetch() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("Cargo.toml"), MANIFEST).expect("a file");
    fs::write(folder.path().join("lib.rs"), "").expect("a file");
    let status = Command::new("cargo")
        .arg("fetch")
        .current_dir(folder.path())
        .status()
        .expect("cargo");
    assert!(
        status.success(),
        "`cargo fetch` of linear-schema ended with {status}"
    );
}
