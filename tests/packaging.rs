//! Files that install helmdeck: completion, units, container and package.

use std::path::Path;
use std::process::{Command, Stdio};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Returns what bash offers after the words of a command line.
fn offered(home: &Path, words: &[&str]) -> Vec<String> {
    let script = r#"
        source "$SCRIPT"
        COMP_LINE="$*" COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        COMP_POINT=${#COMP_LINE}
        _helmdeck helmdeck "${COMP_WORDS[COMP_CWORD]}"
        printf '%s\n' "${COMPREPLY[@]}""#;
    let program = Path::new(env!("CARGO_BIN_EXE_helmdeck")).parent().unwrap();
    let output = Command::new("bash")
        .args(["-c", script, "bash"])
        .args(words)
        .env_clear()
        .env("HOME", home)
        .env("PATH", format!("{}:/usr/bin:/bin", program.display()))
        .env("SCRIPT", root().join("src/cli/completion/helmdeck.bash"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(|line| line.trim_end().to_owned()).collect()
}

#[test]
fn bash_completes_packs_keys_and_verbs() {
    let home = tempfile::tempdir().unwrap();
    let packs = offered(home.path(), &["helmdeck", "run", "repo"]);
    assert!(packs.contains(&"repo.map".to_owned()), "{packs:?}");
    let keys = offered(home.path(), &["helmdeck", "run", "repo.map", "pa"]);
    assert!(keys.contains(&"path=".to_owned()), "{keys:?}");
    let verbs = offered(home.path(), &["helmdeck", "conversation", "snap"]);
    assert_eq!(verbs, ["snapshot"]);
    let left: Vec<_> = std::fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name == ".local"), "completion created a store: {left:?}");
}

#[test]
fn copied_files_of_the_image_exist() {
    let ignored = read(".dockerignore");
    for line in read("Dockerfile").lines().filter(|line| line.starts_with("COPY ") && !line.contains("--from")) {
        let mut names: Vec<&str> = line.split_whitespace().skip(1).collect();
        names.pop();
        for name in names {
            assert!(root().join(name).exists(), "{line}");
            assert!(ignored.lines().any(|kept| kept == format!("!{name}")), ".dockerignore keeps {name} out");
        }
    }
}

#[test]
fn packaged_files_exist() {
    let manifest: toml::Table = read("Cargo.toml").parse().unwrap();
    let assets = manifest["package"]["metadata"]["deb"]["assets"].as_array().unwrap();
    assert!(assets.len() > 10);
    for asset in assets {
        let source = asset[0].as_str().unwrap();
        // Those are built.
        if !source.starts_with("target/") {
            assert!(root().join(source).exists(), "{source}");
        }
    }
    for (file, words) in [
        (
            "packaging/systemd/helmdeck.service",
            ["Type=notify", "NoNewPrivileges=yes", "ExecStart=/usr/bin/helmdeck serve"],
        ),
        ("compose.yaml", ["read_only: true", "cap_drop: [ALL]", "helmdeck, health"]),
    ] {
        let text = read(file);
        for word in words {
            assert!(text.contains(word), "{file} lacks {word}");
        }
    }
}
