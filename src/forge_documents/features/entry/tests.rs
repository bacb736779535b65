//! Features taken apart and put together again.

use super::*;
use helmdeck_forge_files::time::Time;

const RFC: &str = include_str!("../../fixtures/features.json");

fn file(name: &str, text: &str) -> EntryFile {
    EntryFile {
        path: format!("{FEATURES_ENTRIES}/{name}.json"),
        bytes: text.as_bytes().to_vec(),
        modified: Time::UNKNOWN,
    }
}

fn text(entry: &StoredEntry) -> String {
    serde_json::to_string(&entry.value)
        .unwrap()
        .replacen('{', r#"{"schema_version":"1.0","#, 1)
}

fn feature(id: &str, name: &str, more: &str) -> EntryFile {
    let text = format!(
        r#"{{"schema_version":"1.0","id":"{id}","name":"{name}","status":"not_implemented"{more}}}"#
    );
    file(&format!("{id}-{name}"), &text)
}

fn names(file: &FeaturesFile) -> Vec<(&str, &str)> {
    file.features
        .iter()
        .map(|one| (one.id.as_str(), one.name.as_str()))
        .collect()
}

#[test]
fn what_the_rfc_prints_is_kept() {
    let mut whole: FeaturesFile = serde_json::from_str(RFC).unwrap();
    whole.retired = vec!["FORGE-007".to_owned()];
    whole.not_adopted = vec!["a: b".to_owned()];
    let amended =
        r#"{"at":"2025-12-24T10:00:00Z","by":"Ann","reason":"It must","changes":["c"],"more":1}"#;
    whole.amendments = vec![serde_json::from_str(amended).unwrap()];
    whole.other.0.insert("more".to_owned(), Json::Bool(true));
    let entries = split(&whole);
    let slugs: Vec<_> = entries.iter().map(|entry| entry.slug.as_str()).collect();
    assert_eq!(slugs.len(), 6);
    assert_eq!(
        slugs[2..],
        [
            "FORGE-007-removed",
            "not-adopted",
            "amendment-it-must",
            "other"
        ]
    );
    let files: Vec<_> = entries
        .iter()
        .map(|one| file(&one.slug, &text(one)))
        .collect();
    let joined = join(&files, None);
    assert!(joined.damaged.is_empty(), "{:?}", joined.damaged);
    assert_eq!(
        (joined.document.clone(), joined.places.len()),
        (whole.clone(), 6)
    );
    // A document of somebody else adds what is not known yet.
    assert_eq!(join(&files, Some(whole.clone())).document, whole);
    let all = join(&files[1..], Some(whole.clone()));
    assert_eq!((all.document, all.places.len()), (whole, 5));
}

#[test]
fn of_two_features_with_one_id_the_later_gets_the_next_number() {
    let passing = r#","evidence":"triv:a_b_c","status2":1"#;
    let files = [
        feature("FORGE-003", "Ours", ""),
        feature("FORGE-003", "Theirs", passing),
        feature("FORGE-004", "x", ""),
    ];
    let joined = join(&files, None);
    assert_eq!(
        names(&joined.document),
        [
            ("FORGE-003", "Ours"),
            ("FORGE-004", "x"),
            ("FORGE-005", "Theirs")
        ]
    );
    assert_eq!(
        joined.document.features[2].evidence, None,
        "it names the old id"
    );
    assert!(joined.places["FORGE-005"][0].is_renamed && !joined.places["FORGE-003"][0].is_renamed);
}

#[test]
fn a_feature_in_two_files_changes_and_goes_with_both() {
    let mut files = vec![
        feature("FORGE-003", "a", ""),
        feature("FORGE-003", "a", r#","steps":["b"]"#),
    ];
    let joined = join(&files, None);
    assert_eq!(
        (names(&joined.document), joined.places["FORGE-003"].len()),
        (vec![("FORGE-003", "a")], 2)
    );
    let removed = FeaturesFile {
        retired: vec!["FORGE-003".to_owned()],
        ..FeaturesFile::skeleton()
    };
    let [entry] = &split(&removed)[..] else {
        panic!("one is left")
    };
    for place in &joined.places[&entry.key] {
        files[place.file].bytes = text(entry).into_bytes();
    }
    assert_eq!(
        join(&files, None).document,
        removed,
        "it does not come back"
    );
}

#[test]
fn a_number_given_back_does_not_hide_another_feature() {
    let files = [
        feature("FORGE-003", "Ours", ""),
        file(
            "FORGE-003-b",
            r#"{"schema_version":"1.0","retired":["FORGE-003"]}"#,
        ),
    ];
    let document = join(&files, None).document;
    assert_eq!(
        (names(&document), document.retired.len()),
        (vec![("FORGE-003", "Ours")], 0)
    );
}

#[test]
fn an_order_that_is_not_that_of_the_ids_stays() {
    let mut whole: FeaturesFile = serde_json::from_str(RFC).unwrap();
    whole.features.reverse();
    let before: Vec<_> = whole.features.iter().map(|one| one.id.clone()).collect();
    let joined = join(&[], Some(whole));
    let files: Vec<_> = split(&joined.document)
        .iter()
        .map(|one| file(&one.slug, &text(one)))
        .collect();
    let after: Vec<_> = join(&files, None)
        .document
        .features
        .into_iter()
        .map(|one| one.id)
        .collect();
    assert_eq!(after, before);
    let many = [
        feature("FORGE-1000", "b", ""),
        feature("FORGE-999", "a", ""),
    ];
    assert_eq!(
        names(&join(&many, None).document),
        [("FORGE-999", "a"), ("FORGE-1000", "b")]
    );
}

#[test]
fn a_damaged_entry_hides_no_other() {
    let files = [
        feature("FORGE-001", "a", ""),
        file("b", "{"),
        feature("FORGE-002", "c", ",\"z\":{}"),
    ];
    let joined = join(&files, None);
    assert_eq!(
        (
            names(&joined.document).len(),
            joined.damaged.len(),
            joined.damaged[0].0
        ),
        (2, 1, 1)
    );
    for wrong in [
        r#"{"id":"x","name":"n","status":"failing"}"#,
        r#"{"name":"n"}"#,
        "[]",
        r#"{"id":"A-001","name":" ","status":"failing"}"#,
    ] {
        assert!(decode::<FeatureEntry>(wrong.as_bytes()).is_err(), "{wrong}");
    }
}
