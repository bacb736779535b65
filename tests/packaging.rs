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
    for line in read("Dockerfile")
        .lines()
        .filter(|line| line.starts_with("COPY ") && !line.contains("--from"))
    {
        let mut names: Vec<&str> = line.split_whitespace().skip(1).collect();
        names.pop();
        for name in names {
            assert!(root().join(name).exists(), "{line}");
            assert!(
                ignored.lines().any(|kept| kept == format!("!{name}")),
                ".dockerignore keeps {name} out"
            );
        }
    }
}

#[test]
fn packaged_files_exist() {
    let manifest: toml::Table = read("Cargo.toml").parse().unwrap();
    let assets = manifest["package"]["metadata"]["deb"]["assets"]
        .as_array()
        .unwrap();
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
            [
                "Type=notify",
                "NoNewPrivileges=yes",
                "ExecStart=/usr/bin/helmdeck serve",
            ],
        ),
        (
            "compose.yaml",
            ["read_only: true", "cap_drop: [ALL]", "helmdeck, health"],
        ),
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
    let binstall = manifest["package"]["metadata"]["binstall"]
        .as_table()
        .unwrap();
    let (url, program) = (
        binstall["pkg-url"].as_str().unwrap(),
        binstall["bin-dir"].as_str().unwrap(),
    );
    let script = read("scripts/release.sh");
    // The folder in the archive has the archive's name.
    assert!(
        script.contains("name=\"helmdeck-$version-$(target)\"")
            && script.contains(">\"$files/$name.tar.gz\"")
    );
    assert!(script.contains("--create \"$name\""));
    assert_eq!(
        url,
        "{ repo }/releases/download/v{ version }/helmdeck-{ version }-{ target }.tar.gz"
    );
    assert_eq!(
        program,
        "helmdeck-{ version }-{ target }/{ bin }{ binary-ext }"
    );
    assert_eq!(binstall["pkg-fmt"].as_str(), Some("tgz"));
    assert!(read(".github/workflows/release.yml").contains("tags: [\"v*\"]"));
}

/// The linker puts these functions side by side, so that a start reads little of a large program.
#[test]
#[cfg(target_os = "linux")]
fn functions_of_a_start_are_listed_seam_first() {
    let script = root().join("scripts/functions-of-a-start.sh");
    let listed = std::process::Command::new(script)
        .arg(env!("CARGO_BIN_EXE_helmdeck"))
        .output()
        .unwrap();
    let (list, error) = (
        String::from_utf8(listed.stdout).unwrap(),
        String::from_utf8_lossy(&listed.stderr),
    );
    assert!(listed.status.success(), "{error}");
    let place = |part: &str| {
        list.lines()
            .position(|name| name.contains(part))
            .unwrap_or_else(|| panic!("{part}\n{error}"))
    };
    // What the seam answers, what serves, and what writes the list of packs.
    assert!(place("helmdeck_seam") < place("helmdeck_server"), "{list}");
    assert!(
        list.contains("sqlite3_step") && list.lines().count() > 2000,
        "{list}"
    );
    let mut names: Vec<_> = list.lines().collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), list.lines().count(), "each function once");
}

/// A word of an ELF file, little endian.
fn word(bytes: &[u8], at: usize, length: usize) -> u64 {
    bytes[at..at + length]
        .iter()
        .rev()
        .fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// `.cargo/config.toml` changes how the program is linked, and must not cost its protection.
#[test]
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
fn program_is_bound_at_the_start_and_its_tables_are_read_only() {
    let program = std::fs::read(env!("CARGO_BIN_EXE_helmdeck")).unwrap();
    // Program headers (ELF-64): 56 bytes each, their table and number in the header of the file.
    let (table, count) = (
        word(&program, 32, 8) as usize,
        word(&program, 56, 2) as usize,
    );
    let headers = (0..count).map(|number| table + 56 * number);
    let of_kind = |kind: u64| headers.clone().find(|at| word(&program, *at, 4) == kind);
    let (dynamic, read_only) = (of_kind(2).unwrap(), of_kind(0x6474_e552));
    assert!(read_only.is_some(), "PT_GNU_RELRO is missing");
    let (start, length) = (
        word(&program, dynamic + 8, 8) as usize,
        word(&program, dynamic + 32, 8) as usize,
    );
    let flags = (start..start + length)
        .step_by(16)
        .find(|at| word(&program, *at, 8) == 30);
    assert!(
        word(&program, flags.expect("DT_FLAGS") + 8, 8) & 8 != 0,
        "DF_BIND_NOW is missing"
    );
    assert_eq!(
        word(&program, 16, 2),
        3,
        "the program is not position-independent"
    );
}
