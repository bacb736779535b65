//! Seals of the first format (AES-256-GCM, key ids of 64 bits): they open, are never made, and a
//! rotation converts them.
//!
//! `fixtures/format1.json` was written by the last version that made them.

use std::sync::Arc;

use helmdeck_core::{Clock, ManualClock, Timestamp};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{KEY_A, KEY_B, id, ring};
use crate::archive::{ArchiveFilter, import};
use crate::entry::EntryMeta;
use crate::keyring::blob_key_id;
use crate::restore::{Destination, Target};
use crate::rotate::{End, rotate};
use crate::sealed::{RawRow, RowSeal, Seal, SealedValue};
use crate::{Config, Entry, Fingerprint, Kind, Namespace, Put, Store, StoreError, open};

/// Id of key A in seals of the first format.
const FIRST_ID: &str = "8c861caddb6ba2a3";

fn fixture() -> Value {
    serde_json::from_str(include_str!("fixtures/format1.json")).unwrap()
}

fn text(of: &Value) -> String {
    of.as_str().unwrap().to_owned()
}

fn bytes(of: &Value) -> Vec<u8> {
    let digits = of.as_str().unwrap();
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
        .collect()
}

fn namespace(of: &Value) -> Namespace {
    Namespace::new(
        of["tenant"].as_str().unwrap(),
        of["subject"].as_str().unwrap(),
        of["session"].as_str(),
    )
}

fn row(of: &Value) -> RawRow {
    let time = |name: &str| of[name].as_i64().map(Timestamp);
    let value = bytes(&of["value"]);
    let meta = EntryMeta {
        namespace: namespace(of),
        kind: Kind::parse(of["kind"].as_str().unwrap()).unwrap(),
        key: text(&of["key"]),
        category: text(&of["category"]),
        tags: serde_json::from_value(of["tags"].clone()).unwrap(),
        attributes: serde_json::from_value(of["attributes"].clone()).unwrap(),
        fingerprint: text(&of["fingerprint"]),
        version: of["version"].as_u64().unwrap(),
        created_at: time("created_at").unwrap(),
        updated_at: time("updated_at").unwrap(),
        expires_at: time("expires_at"),
        size: value.len() as u64,
    };
    RawRow {
        meta,
        sealed: SealedValue {
            key_id: text(&of["key_id"]),
            nonce: bytes(&of["nonce"]),
            value,
        },
    }
}

fn rows() -> Vec<(RawRow, Vec<u8>)> {
    fixture()["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|of| (row(of), bytes(&of["plain"])))
        .collect()
}

#[test]
fn first_format_rows_open_with_their_key_only() {
    let seal = |key, previous| RowSeal::new(ring(key, previous), Fingerprint::default());
    for (row, plain) in rows() {
        assert_eq!(row.sealed.key_id, FIRST_ID);
        for ring in [seal(KEY_A, None), seal(KEY_B, Some(KEY_A))] {
            assert_eq!(
                ring.open(row.clone()).unwrap().value,
                plain,
                "{}",
                row.meta.key
            );
        }
        assert!(seal(KEY_B, None).open(row.clone()).is_err());
        let again = seal(KEY_A, None).seal(&row.meta, &plain).unwrap();
        assert_eq!(
            (again.key_id, again.nonce.len()),
            (id(KEY_A), 24),
            "it is never made"
        );
    }
}

#[test]
fn first_format_rows_under_another_name_do_not_open() {
    let seal = RowSeal::new(ring(KEY_A, Some(KEY_B)), Fingerprint::default());
    let (row, plain) = rows().remove(0);
    let refused = |row: RawRow, what: &str| assert!(seal.open(row).is_err(), "{what}");
    for key_id in [
        id(KEY_A),
        id(KEY_B),
        ring(KEY_B, None).current_id()[..16].to_owned(),
        String::new(),
    ] {
        let sealed = SealedValue {
            key_id: key_id.clone(),
            ..row.sealed.clone()
        };
        refused(
            RawRow {
                sealed,
                ..row.clone()
            },
            &key_id,
        );
    }
    // And a row of the second format as one of the first, with each part of its nonce.
    let second = seal.seal(&row.meta, &plain).unwrap();
    for nonce in [
        second.nonce.clone(),
        second.nonce[..12].to_vec(),
        second.nonce[12..].to_vec(),
    ] {
        let sealed = SealedValue {
            key_id: FIRST_ID.to_owned(),
            nonce,
            value: second.value.clone(),
        };
        refused(
            RawRow {
                sealed,
                ..row.clone()
            },
            "the second as the first",
        );
    }
    for at in 0..row.sealed.nonce.len() + row.sealed.value.len() {
        let mut altered = row.clone();
        match at.checked_sub(row.sealed.nonce.len()) {
            None => altered.sealed.nonce[at] ^= 1,
            Some(at) => altered.sealed.value[at] ^= 1,
        }
        refused(altered, &format!("byte {at}"));
    }
}

#[test]
fn first_format_blobs_open_and_names_stay() {
    let fixture = fixture();
    let ring = ring(KEY_A, None);
    for of in fixture["blobs"].as_array().unwrap() {
        let purpose = if of["purpose"] == "job" {
            "job"
        } else {
            "answer"
        };
        let (namespace, blob) = (namespace(of), bytes(&of["blob"]));
        assert_eq!(blob_key_id(&blob).as_deref(), Some(FIRST_ID));
        let plain = ring
            .open_blob(&namespace, purpose, b"bound", &blob)
            .unwrap();
        assert_eq!(plain, of["plain"].as_str().unwrap().as_bytes());
        assert!(
            ring.open_blob(&namespace, purpose, b"other", &blob)
                .is_err()
        );
        assert!(
            ring.open_blob(&namespace, "other", b"bound", &blob)
                .is_err()
        );
        for at in 0..blob.len() {
            let mut altered = blob.clone();
            altered[at] ^= 1;
            assert!(
                ring.open_blob(&namespace, purpose, b"bound", &altered)
                    .is_err(),
                "byte {at}"
            );
        }
        let again = ring
            .seal_blob(&namespace, purpose, b"bound", &plain)
            .unwrap();
        assert_eq!(blob_key_id(&again), Some(id(KEY_A)));
    }
    // Cached answers are found by names that the key makes.
    let name = ring.mac(&Namespace::new("t", "alice", None), "cache", &[b"ab", b"c"]);
    assert_eq!(crate::key::hex(&name), fixture["mac"]);
}

fn clock() -> Arc<ManualClock> {
    let clock = Arc::new(ManualClock::default());
    assert_eq!(clock.now().micros(), fixture()["now"].as_i64().unwrap());
    clock
}

async fn store_at(
    url: &str,
    clock: &Arc<ManualClock>,
    key: &str,
) -> Result<Arc<dyn Store>, StoreError> {
    open(
        url,
        ring(key, None),
        Config::default(),
        Arc::clone(clock) as Arc<dyn Clock>,
    )
    .await
}

async fn found(store: &Arc<dyn Store>) -> Vec<Entry> {
    let mut all = Vec::new();
    for (row, plain) in rows() {
        let meta = row.meta;
        let entry = store
            .get(&meta.namespace, meta.kind, &meta.key)
            .await
            .unwrap()
            .unwrap();
        assert_eq!((&entry.meta, &entry.value[..]), (&meta, &plain[..]));
        all.push(entry);
    }
    all
}

#[tokio::test]
async fn first_format_archive_is_imported() {
    let clock = clock();
    let store = store_at("memory:", &clock, KEY_B).await.unwrap();
    let archive = bytes(&fixture()["archive"]);
    let target = |store| Target {
        store,
        dry_run: false,
        clock: Arc::clone(&clock) as _,
    };
    let (_, end) = import(
        target(Destination::Nothing),
        ring(KEY_B, None),
        &ArchiveFilter::default(),
        std::io::Cursor::new(archive.clone()),
        &mut |_| {},
    )
    .await;
    assert!(end.unwrap_err().to_string().contains(FIRST_ID));
    let (report, end) = import(
        target(Destination::Store(Arc::clone(&store))),
        ring(KEY_B, Some(KEY_A)),
        &ArchiveFilter::default(),
        std::io::Cursor::new(archive),
        &mut |_| {},
    )
    .await;
    end.unwrap();
    assert_eq!((report.read, report.restored.imported), (9, 9));
    for (row, plain) in rows() {
        let entry = store
            .get(&row.meta.namespace, row.meta.kind, &row.meta.key)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            (entry.meta.version, &entry.value[..]),
            (row.meta.version, &plain[..])
        );
    }
}

/// Makes a store of the first format, opens it and rotates it. `sql` runs a statement from outside;
/// `hex` writes bytes.
async fn converted(url: &str, sql: impl Fn(&str), hex: impl Fn(&Value) -> String) {
    let clock = clock();
    let store = store_at(url, &clock, KEY_A).await.unwrap();
    for (row, plain) in rows() {
        let meta = row.meta;
        for value in if meta.version == 2 {
            vec![b"one".to_vec(), plain]
        } else {
            vec![plain]
        } {
            let mut put = Put::new(meta.namespace.clone(), meta.kind, meta.key.clone(), value);
            (put.category, put.tags, put.attributes) = (
                meta.category.clone(),
                meta.tags.clone(),
                meta.attributes.clone(),
            );
            put.ttl = meta.expires_at.map(|end| end.since(meta.updated_at));
            store.put(put).await.unwrap();
        }
    }
    store.close().await.unwrap();
    let fixture = fixture();
    for of in fixture["rows"].as_array().unwrap() {
        let session = of["session"]
            .as_str()
            .map_or("NULL".to_owned(), |session| format!("'{session}'"));
        sql(&format!(
            "UPDATE memory_entries SET key_id = '{}', fingerprint = '{}', value_nonce = {}, value_ciphertext = {}
              WHERE key = '{}' AND space_id = (SELECT id FROM memory_spaces WHERE tenant = '{}' AND subject = '{}'
                    AND session IS NOT DISTINCT FROM {session} AND kind = '{}')",
            text(&of["key_id"]),
            text(&of["fingerprint"]),
            hex(&of["nonce"]),
            hex(&of["value"]),
            text(&of["key"]),
            text(&of["tenant"]),
            text(&of["subject"]),
            text(&of["kind"]),
        ));
    }
    sql(&format!("UPDATE memory_keys SET key_id = '{FIRST_ID}'"));
    let canary = &fixture["canary"];
    sql(&format!(
        "UPDATE memory_canary SET key_id = '{FIRST_ID}', sealed = {}",
        hex(&canary["sealed"])
    ));

    assert!(matches!(
        store_at(url, &clock, KEY_B).await,
        Err(StoreError::WrongKey { .. })
    ));
    let store = store_at(url, &clock, KEY_A).await.unwrap();
    let before = found(&store).await;
    assert_eq!(
        store.stats().await.unwrap().rows_by_key_id,
        [(FIRST_ID.to_owned(), 9)].into()
    );
    let keys = ring(KEY_A, None);
    let done = rotate(&*store, &keys, &CancellationToken::new(), &mut |_| {})
        .await
        .unwrap();
    assert_eq!(
        (done.resealed, done.unreadable, done.remaining, done.end),
        (9, 0, 0, End::Done)
    );
    assert_eq!(
        store.stats().await.unwrap().rows_by_key_id,
        [(id(KEY_A), 9)].into()
    );
    assert_eq!(found(&store).await, before);
    store.close().await.unwrap();
    let store = store_at(url, &clock, KEY_A).await.unwrap();
    assert_eq!(found(&store).await, before);
    store.close().await.unwrap();
}

#[tokio::test]
async fn sqlite_store_of_the_first_format_is_converted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory.db");
    let sql = |sql: &str| assert!(super::tamper(&path, sql) > 0);
    converted(&format!("sqlite:{}", path.display()), sql, |of| {
        format!("x'{}'", text(of))
    })
    .await;
    let canary: String = rusqlite::Connection::open(&path)
        .unwrap()
        .query_row("SELECT key_id FROM memory_canary", [], |row| row.get(0))
        .unwrap();
    assert_eq!(
        canary,
        id(KEY_A),
        "the store proves the key in the new format"
    );
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn postgres_store_of_the_first_format_is_converted() {
    let server = helmdeck_testkit::Postgres::shared();
    let url = server.database();
    converted(
        &url,
        |sql| server.sql(&url, sql),
        |of| format!("'\\x{}'::bytea", text(of)),
    )
    .await;
    assert_eq!(
        server.query(&url, "SELECT key_id FROM memory_canary"),
        id(KEY_A)
    );
}

/// Whoever knows two keys of a ring can make a value that opens under both: the id of a row admits
/// one of them only.
#[test]
fn a_row_is_opened_under_the_key_that_it_names() {
    let (a, b) = (ring(KEY_A, None), ring(KEY_B, None));
    assert_ne!(a.current_id(), b.current_id());
    let both = RowSeal::new(ring(KEY_B, Some(KEY_A)), Fingerprint::default());
    let (row, plain) = rows().remove(0);
    let sealed = RowSeal::new(a.clone(), Fingerprint::default())
        .seal(&row.meta, &plain)
        .unwrap();
    let open = |key_id: &str| {
        let sealed = SealedValue {
            key_id: key_id.to_owned(),
            ..sealed.clone()
        };
        both.open(RawRow {
            meta: row.meta.clone(),
            sealed,
        })
    };
    assert_eq!(open(a.current_id()).unwrap().value, plain);
    // Every id that differs in one bit, the other key's, and parts of the right one.
    let digits = a.current_id();
    for bit in 0..digits.len() * 4 {
        let digit = u8::from_str_radix(&digits[bit / 4..=bit / 4], 16).unwrap() ^ (1 << (bit % 4));
        let forged = format!("{}{digit:x}{}", &digits[..bit / 4], &digits[bit / 4 + 1..]);
        let error = open(&forged).unwrap_err().to_string();
        assert!(
            error.contains("a key that is not in the ring"),
            "it is not attempted: {error}"
        );
    }
    assert!(
        open(&digits[..16]).is_err() && open(&digits.to_uppercase()).is_err() && open("").is_err()
    );
    assert!(open(b.current_id()).is_err());
}
