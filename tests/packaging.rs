//! Files that install helmdeck: units, container, package and archive.

use std::path::Path;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
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

#[test]
fn binstall_finds_the_archive_of_a_release() {
    let manifest: toml::Table = read("Cargo.toml").parse().unwrap();
    let binstall = manifest["package"]["metadata"]["binstall"].as_table().unwrap();
    let (url, program) = (binstall["pkg-url"].as_str().unwrap(), binstall["bin-dir"].as_str().unwrap());
    let script = read("scripts/release.sh");
    // The folder in the archive has the archive's name.
    assert!(script.contains("name=\"helmdeck-$version-$(target)\"") && script.contains(">\"$files/$name.tar.gz\""));
    assert!(script.contains("--create \"$name\""));
    assert_eq!(url, "{ repo }/releases/download/v{ version }/helmdeck-{ version }-{ target }.tar.gz");
    assert_eq!(program, "helmdeck-{ version }-{ target }/{ bin }{ binary-ext }");
    assert_eq!(binstall["pkg-fmt"].as_str(), Some("tgz"));
    assert!(read(".github/workflows/release.yml").contains("tags: [\"v*\"]"));
}
