//! Facts that were forgotten and put back by a program without the key.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use helmdeck_core::Timestamp;

use super::alice;
use super::audit::Outside;
use crate::floors::Floors;
use crate::{Delete, Kind, Op, Put, Store};

/// Later at each call.
fn now() -> Timestamp {
    static NOW: AtomicI64 = AtomicI64::new(1_800_000_000_000_000);
    Timestamp(NOW.fetch_add(1_000_000, Ordering::Relaxed))
}

async fn store_fact(store: &dyn Store, key: &str, value: &str) {
    let floors = Floors::read(store, &alice()).await.unwrap();
    let put = Put::new(alice(), Kind::Fact, key, value.to_owned());
    store.write(floors.put(put, now()).unwrap()).await.unwrap();
}

async fn forget(store: &dyn Store, keys: Option<&[&str]>) {
    let floors = Floors::read(store, &alice()).await.unwrap();
    let owned: Option<Vec<String>> =
        keys.map(|keys| keys.iter().map(|key| (*key).to_owned()).collect());
    let all = Delete::Prefix {
        namespace: Some(alice()),
        kind: Some(Kind::Fact),
        prefix: String::new(),
    };
    let of = |key: &String| {
        Op::Delete(Delete::Key {
            namespace: alice(),
            kind: Kind::Fact,
            key: key.clone(),
        })
    };
    let mut batch: Vec<Op> = owned
        .as_ref()
        .map_or(vec![Op::Delete(all)], |keys| keys.iter().map(of).collect());
    batch.push(floors.forget(owned.as_deref(), now()).unwrap());
    store.write(batch).await.unwrap();
}

/// Returns the values of facts that are served, by key; a fact that is there and refused has none.
async fn served(store: &dyn Store) -> Vec<(String, Option<String>)> {
    let mut all = Vec::new();
    for key in ["a", "b", "c", "old"] {
        if let Ok(Some(entry)) = store.get(&alice(), Kind::Fact, key).await {
            let floors = Floors::read(store, &alice()).await.unwrap();
            let value = String::from_utf8(entry.value.to_vec()).unwrap();
            all.push((key.to_owned(), floors.admit(&entry.meta).then_some(value)));
        }
    }
    all
}

fn told(facts: &[(&str, Option<&str>)]) -> Vec<(String, Option<String>)> {
    facts
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.map(str::to_owned)))
        .collect()
}

fn of(kind: &str) -> String {
    format!(
        "space_id IN (SELECT id FROM memory_spaces WHERE subject = 'alice' AND kind = '{kind}')"
    )
}

async fn case(outside: Outside) {
    let store: Arc<dyn Store> = outside.open().await;
    // A fact of a version without heads.
    store
        .put(Put::new(alice(), Kind::Fact, "old", "o"))
        .await
        .unwrap();
    for (key, value) in [("a", "1"), ("b", "2"), ("c", "3")] {
        store_fact(&*store, key, value).await;
    }
    let all = told(&[
        ("a", Some("1")),
        ("b", Some("2")),
        ("c", Some("3")),
        ("old", Some("o")),
    ]);
    assert_eq!(served(&*store).await, all);
    let sql = |statement: &str| (outside.sql)(statement);
    sql(&format!(
        "CREATE TABLE facts AS SELECT * FROM memory_entries WHERE {}",
        of("fact")
    ));
    sql(&format!(
        "CREATE TABLE heads AS SELECT * FROM memory_entries WHERE {}",
        of("head")
    ));
    let back = |keys: &str| {
        sql("UPDATE facts SET id = id + 100000,
                 space_id = (SELECT id FROM memory_spaces WHERE subject = 'alice' AND kind = 'fact')");
        sql(&format!(
            "DELETE FROM memory_entries WHERE {} AND key IN ({keys})",
            of("fact")
        ));
        sql(&format!(
            "INSERT INTO memory_entries OVERRIDING SYSTEM VALUE SELECT * FROM facts WHERE key IN ({keys})"
        ));
    };

    // One by its key, also one of a version without heads.
    forget(&*store, Some(&["a", "old"])).await;
    assert_eq!(
        served(&*store).await,
        told(&[("b", Some("2")), ("c", Some("3"))])
    );
    back("'a', 'old'");
    assert_eq!(
        served(&*store).await,
        told(&[
            ("a", None),
            ("b", Some("2")),
            ("c", Some("3")),
            ("old", None)
        ])
    );
    // The same key can be used again, and its former value stays refused.
    store_fact(&*store, "a", "new").await;
    assert_eq!(
        served(&*store).await[0],
        ("a".to_owned(), Some("new".to_owned()))
    );
    back("'a'");
    assert_eq!(served(&*store).await[0], ("a".to_owned(), None));

    // All of them, while one stays so that there is a place to put them back.
    forget(&*store, None).await;
    store_fact(&*store, "c", "4").await;
    back("'a', 'b', 'old'");
    assert_eq!(
        served(&*store).await,
        told(&[("a", None), ("b", None), ("c", Some("4")), ("old", None)])
    );

    // The head of before: what was written since tells. Nothing else can tell what it covers.
    let put = "UPDATE memory_entries SET version = s.version, created_at = s.created_at, updated_at = s.updated_at,
        key_id = s.key_id, fingerprint = s.fingerprint, value_nonce = s.value_nonce,
        value_ciphertext = s.value_ciphertext FROM heads s WHERE memory_entries.id = s.id";
    sql("CREATE TABLE later AS SELECT * FROM memory_entries");
    sql(put);
    assert_eq!(
        served(&*store).await[2],
        ("c".to_owned(), None),
        "it is of a later epoch than the head"
    );
    // No head, or one that does not open: nothing that was written with a head is served.
    sql(&format!(
        "UPDATE memory_entries SET value_ciphertext = value_nonce WHERE {}",
        of("head")
    ));
    assert!(
        served(&*store)
            .await
            .iter()
            .all(|(_, value)| value.is_none())
    );
    store_fact(&*store, "b", "again").await;
    assert_eq!(
        served(&*store).await[1],
        ("b".to_owned(), Some("again".to_owned())),
        "it goes on anew"
    );
    assert_eq!(
        served(&*store)
            .await
            .iter()
            .filter(|(_, value)| value.is_some())
            .count(),
        1
    );
    sql(&format!("DELETE FROM memory_entries WHERE {}", of("head")));
    let left = served(&*store).await;
    assert_eq!(
        left.iter().filter(|(_, value)| value.is_some()).count(),
        1,
        "but for those of before: {left:?}"
    );
    for table in ["facts", "heads", "later"] {
        sql(&format!("DROP TABLE {table}"));
    }
}

#[tokio::test]
async fn sqlite_forgotten_facts_stay_forgotten() {
    case(super::audit::sqlite()).await;
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn postgres_forgotten_facts_stay_forgotten() {
    case(super::audit::on_postgres::postgres()).await;
}

#[tokio::test]
async fn forgotten_keys_are_bounded_and_unnamed() {
    let outside = super::audit::sqlite();
    let store = outside.open().await;
    store_fact(&*store, "a", "1").await;
    for part in 0..20 {
        let keys: Vec<String> = (0..300).map(|n| format!("canary-{part}-{n}")).collect();
        let floors = Floors::read(&*store, &alice()).await.unwrap();
        store
            .write(vec![floors.forget(Some(&keys), now()).unwrap()])
            .await
            .unwrap();
    }
    let head = store
        .get(&alice(), Kind::Head, "floors")
        .await
        .unwrap()
        .unwrap();
    assert!(head.value.len() < 300 << 10, "{}", head.value.len());
    assert!(!head.value.windows(6).any(|part| part == b"canary"));
    assert_eq!(served(&*store).await, told(&[("a", Some("1"))]));
}
