//! Documents taken apart and put together again.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

const APART: EntryFiles = EntryFiles { apart: true };
const KNOWN: &str = include_str!("../fixtures/knowledge.json");
const RFC: &str = include_str!("../fixtures/features.json");

/// A document on disk: its own file, and those of its entries.
#[derive(Debug, Clone, Default)]
struct Store {
    path: &'static str,
    files: BTreeMap<String, Vec<u8>>,
}

impl Store {
    fn new(path: &'static str, main: &str) -> Self {
        Self { path, files: BTreeMap::from([(path.to_owned(), main.as_bytes().to_vec())]) }
    }

    fn main(&self) -> &[u8] {
        &self.files[self.path]
    }

    fn entries(&self) -> Vec<(String, Vec<u8>)> {
        let entries = self.files.iter().filter(|(file, _)| *file != self.path);
        entries.map(|(file, bytes)| (file.clone(), bytes.clone())).collect()
    }

    fn read(&self) -> String {
        String::from_utf8(APART.join(self.path, self.main(), &self.entries()).unwrap()).unwrap()
    }

    /// Writes a version, and returns the names of the files that were written or removed.
    fn write(&mut self, new: &str) -> Vec<String> {
        static SALT: AtomicU64 = AtomicU64::new(0);
        let salt = SALT.fetch_add(1, Ordering::SeqCst);
        let writes = APART.split(self.path, self.main(), &self.entries(), new.as_bytes(), salt).unwrap();
        let names = writes.iter().map(|(file, _)| file.clone()).collect();
        for (file, bytes) in writes {
            match bytes {
                Some(bytes) => drop(self.files.insert(file, bytes)),
                None => drop(self.files.remove(&file)),
            }
        }
        names
    }

    /// Returns the files of two stores that grew out of this one, as a merge of additions leaves them.
    fn merged(&self, ours: &Self, theirs: &Self) -> Self {
        let mut all = ours.clone();
        for (file, bytes) in &theirs.files {
            let (base, our) = (self.files.get(file), ours.files.get(file));
            assert!(our == base || Some(bytes) == base || our == Some(bytes), "both sides changed {file}");
            if Some(bytes) != base {
                all.files.insert(file.clone(), bytes.clone());
            }
        }
        all
    }
}

fn features(text: &str) -> FeaturesFile {
    let file: FeaturesFile = serde_json::from_str(text).unwrap();
    file.validate().unwrap();
    file
}

/// Adds a feature with the next number.
fn add(store: &mut Store, name: &str) -> String {
    let mut file = features(&store.read());
    let id = format!("FORGE-{:03}", file.features.len() + 1);
    let new = format!(r#"{{"id":"{id}","name":"{name}","status":"not_implemented"}}"#);
    file.features.push(serde_json::from_str(&new).unwrap());
    store.write(&String::from_utf8(json::print(&file).unwrap()).unwrap());
    id
}

#[test]
fn documents_of_the_rfc_stay_whole() {
    for (path, text) in [(KNOWLEDGE, KNOWN), (FEATURES, RFC)] {
        let mut store = Store::new(path, text);
        assert_eq!(store.read(), text);
        assert!(store.write(text).is_empty(), "{path}: nothing changed");
        assert!(EntryFiles::default().split(path, text.as_bytes(), &[], text.as_bytes(), 0).is_none());
    }
}

#[test]
fn additions_leave_the_shared_file_alone() {
    let base = Store::new(FEATURES, RFC);
    let (mut ours, mut theirs) = (base.clone(), base.clone());
    assert_eq!((add(&mut ours, "Ours"), add(&mut theirs, "Theirs")).0, "FORGE-003");
    assert_eq!(ours.main(), base.main());
    let merged = base.merged(&ours, &theirs);
    let file = features(&merged.read());
    let mut named: Vec<_> = file.features.iter().map(|one| (one.id.as_str(), one.name.as_str())).collect();
    named.sort_unstable();
    assert_eq!(named.len(), 4, "{named:?}");
    assert!(named[2].0 == "FORGE-003" && named[3].0 == "FORGE-004", "two features stay two: {named:?}");
    // The second number is written with the next change, and stays.
    let mut settled = merged.clone();
    let text = merged.read().replace("\"name\": \"Ours\"", "\"name\": \"Ours, renamed\"");
    settled.write(&text);
    assert_eq!(settled.read(), text);
}

#[test]
fn the_same_learning_on_both_sides_is_one() {
    let base = Store::new(
        KNOWLEDGE,
        "{\n  \"schema_version\": \"1.0\",\n  \"patterns\": {\n    \"successful\": [],\n    \"failed\": []\n  },\n  \"invariants\": []\n}\n",
    );
    let learned = |at: &str| {
        let mut store = base.clone();
        let entry = format!(r#"{{"context":"Halving","approach":"Divide","learned_at":"{at}"}}"#);
        store.write(&base.read().replace("\"successful\": []", &format!("\"successful\": [{entry}]")));
        store
    };
    let merged = base.merged(&learned("2025-12-24T10:00:00Z"), &learned("2025-12-24T11:00:00Z"));
    assert_eq!(merged.files.len(), 3);
    let file: KnowledgeFile = serde_json::from_str(&merged.read()).unwrap();
    assert_eq!(file.patterns.successful.len(), 1);
    assert_eq!(file.patterns.successful[0].trace.seen, Some(2));
    // Another addition leaves both files alone, and a change of it keeps its count.
    let mut counted = merged.clone();
    let text = merged.read().replace("\"invariants\": []", "\"invariants\": [\"Divide\"]");
    assert_eq!(counted.write(&text).len(), 1);
    let text = counted.read().replace("\"seen\": 2", "\"seen\": 3");
    counted.write(&text);
    assert_eq!((counted.read(), counted.files.len()), (text, 4));
    // A new text is another entry.
    let mut settled = merged.clone();
    let text = merged.read().replace("Divide", "Divide, do not shift");
    settled.write(&text);
    assert_eq!((settled.read(), settled.files.len()), (text, 2));
}

#[test]
fn changes_and_removals_touch_one_file() {
    let mut store = Store::new(FEATURES, RFC);
    add(&mut store, "A");
    add(&mut store, "B");
    let text = store.read().replace("\"name\": \"B\"", "\"name\": \"B2\"");
    assert_eq!(store.write(&text).len(), 1);
    let mut file = features(&store.read());
    file.features.retain(|feature| feature.name != "A");
    file.retired.push("FORGE-003".to_owned());
    let written = store.write(&String::from_utf8(json::print(&file).unwrap()).unwrap());
    assert!(written.len() == 2 && !written.contains(&FEATURES.to_owned()), "{written:?}");
    assert_eq!(features(&store.read()).retired, ["FORGE-003"]);
    assert!(features(&store.read()).features.iter().all(|feature| feature.name != "A"));
}

#[test]
fn a_number_given_back_does_not_hide_another_feature() {
    let base = Store::new(FEATURES, RFC);
    let (mut ours, mut theirs) = (base.clone(), base.clone());
    add(&mut ours, "Ours");
    add(&mut theirs, "Theirs");
    let mut file = features(&theirs.read());
    file.features.pop();
    file.retired.push("FORGE-003".to_owned());
    theirs.write(&String::from_utf8(json::print(&file).unwrap()).unwrap());
    let merged = features(&base.merged(&ours, &theirs).read());
    assert_eq!((merged.features.last().unwrap().name.as_str(), merged.retired.len()), ("Ours", 0));
}

#[test]
fn damaged_entries_are_named_and_damaged_documents_passed_on() {
    let mut store = Store::new(KNOWLEDGE, KNOWN);
    let file = format!("{KNOWLEDGE_ENTRIES}/a.json");
    store.files.insert(file.clone(), b"{\n  \"patterns\": 3\n}".to_vec());
    let (named, damage) = APART.join(KNOWLEDGE, store.main(), &store.entries()).unwrap_err();
    assert_eq!((named, damage.line), (file.clone(), 2));
    store.files.insert(file, KNOWN.as_bytes().to_vec());
    assert_eq!(APART.join(KNOWLEDGE, b"{", &store.entries()).unwrap(), b"{");
    assert!(APART.split(KNOWLEDGE, b"{", &store.entries(), KNOWN.as_bytes(), 0).is_none());
}
