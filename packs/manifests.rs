//! Test of every built-in manifest: a server reads only its first lines at the start, and the rest
//! when a pack is needed.

use std::fs;
use std::path::{Path, PathBuf};

use helmdeck_core::Manifest;

/// Returns every manifest of a built-in pack below a folder.
fn manifests(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let found = entries.flat_map(|path| {
        if path.is_dir() {
            manifests(&path)
        } else {
            vec![path]
        }
    });
    let is_manifest = |path: &PathBuf| {
        path.extension().is_some_and(|kind| kind == "toml")
            && fs::read_to_string(path)
                .unwrap()
                .contains("[handler]\nbuiltin = ")
    };
    found.filter(is_manifest).collect()
}

#[test]
fn manifests_have_no_mistake_and_begin_with_name_and_version() {
    let all = manifests(Path::new(env!("CARGO_MANIFEST_DIR")));
    assert!(all.len() > 50, "{}", all.len());
    for path in all {
        let text = fs::read_to_string(&path).unwrap();
        let file = path.display().to_string();
        // With its schemas and examples, which a server checks at the first call.
        let schemas = fs::read_to_string(path.with_file_name("schemas.json")).unwrap_or_default();
        let manifest = Manifest::check_builtin(&file, &text, &schemas).unwrap();
        let (name, version) =
            Manifest::head(&text).unwrap_or_else(|| panic!("{file}: another head"));
        assert_eq!((name, version), (manifest.name, manifest.version), "{file}");
        assert!(manifest.schedule.is_none(), "{file}");
    }
}
