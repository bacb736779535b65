//! The contracts: what every manifest of the family promises.

use std::collections::BTreeSet;

use helmdeck_core::manifest::HandlerSpec;
use serde_json::{Value, json};

use super::{Packs, manifest};

#[test]
fn every_manifest_is_understood_and_its_examples_fit() {
    let deck = Packs::at("http://127.0.0.1:1");
    let names: BTreeSet<String> = deck
        .0
        .iter()
        .map(|builtin| {
            let manifest = manifest(builtin);
            assert_eq!(
                manifest.handler,
                HandlerSpec::Builtin(manifest.name.to_string())
            );
            assert_eq!(
                builtin.file,
                format!("packs/{}.toml", manifest.name.as_str().replace('.', "/"))
            );
            assert!(!manifest.examples.is_empty(), "{}", manifest.name);
            assert_eq!(manifest.credentials.len(), 1, "{}", manifest.name);
            assert_eq!(
                manifest.input.source()["additionalProperties"],
                json!(false),
                "{}",
                manifest.name
            );
            manifest.name.to_string()
        })
        .collect();
    let expected = [
        "comment",
        "create_issue",
        "create_pr",
        "create_release",
        "get_issue",
        "get_pr",
        "list_issues",
        "list_prs",
        "search",
    ];
    assert_eq!(
        names,
        expected
            .iter()
            .map(|verb| format!("github.{verb}"))
            .collect()
    );
}

#[test]
fn readers_are_cached_with_a_tag_and_writers_purge_it() {
    for builtin in Packs::at("http://127.0.0.1:1").0 {
        let manifest = manifest(&builtin);
        let memory = manifest.memory.as_ref().unwrap();
        let input = json!({"repo": "a/b"});
        let tags = |templates: &[helmdeck_core::template::Template]| -> Vec<String> {
            templates
                .iter()
                .map(|template| template.fill(&input).unwrap().text)
                .collect()
        };
        if manifest.read_only {
            let cache = memory.cache.as_ref().unwrap();
            assert!(cache.revalidate, "{}", manifest.name);
            let (seconds, expected) = if manifest.name.as_str() == "github.search" {
                (60, vec![])
            } else {
                (300, vec!["github:a/b"])
            };
            assert_eq!(
                (cache.ttl.as_secs(), tags(&cache.tags)),
                (seconds, expected.into_iter().map(Into::into).collect())
            );
        } else {
            assert!(memory.cache.is_none());
            assert_eq!(tags(&memory.invalidates), ["github:a/b"]);
        }
    }
}

#[test]
fn a_repository_that_is_none_never_reaches_a_handler() {
    for builtin in Packs::at("http://127.0.0.1:1").0 {
        let manifest = manifest(&builtin);
        let mut input = manifest.examples[0].input.clone();
        if input.get("repo").is_none() {
            continue;
        }
        for text in [
            "a", "a/b/c", "../b", "a/..", "a/.", "a/b?x=1", "a/b%2f..", "a/b#", "a/b\n", " a/b", "",
        ] {
            input["repo"] = Value::from(text);
            assert!(
                manifest.input.validate(&input).is_err(),
                "{} accepts {text:?}",
                manifest.name
            );
        }
        for text in ["a/b", "rust-lang/rust.vim", "a/..b", "A_1/.github"] {
            input["repo"] = Value::from(text);
            assert!(
                manifest.input.validate(&input).is_ok(),
                "{} refuses {text:?}",
                manifest.name
            );
        }
    }
}
