//! Converts columns to entries and back.
//!
//! Reading never fails because of a column's content: an altered row becomes an entry that does not
//! open, and affects no other row.

use std::collections::BTreeMap;

use helmdeck_core::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use super::error::Outcome;
use crate::entry::{EntryMeta, Kind, Namespace};
use crate::error::Result;
use crate::requests::prefix_end;
use crate::sealed::{RawRow, SealedValue};

/// The columns that [`meta`] reads, in its order.
macro_rules! meta_columns {
    () => {
        "e.key, e.version, e.created_at, e.updated_at, e.expires_at, e.fingerprint, e.category, e.tags, e.attributes, \
         octet_length(e.value_ciphertext)::bigint"
    };
}
/// The columns that [`raw`] reads, in its order.
macro_rules! raw_columns {
    () => {
        concat!(
            $crate::drivers::postgres::rows::meta_columns!(),
            ", e.key_id, e.value_nonce, e.value_ciphertext"
        )
    };
}
pub(super) use {meta_columns, raw_columns};

/// How many columns [`meta_columns`] has.
pub(super) const META: usize = 10;

/// How many columns [`raw_columns`] has.
pub(super) const RAW: usize = META + 3;

/// The session of a namespace as the index knows it: an absent one and an empty one differ.
pub(super) fn session_name(namespace: &Namespace) -> Vec<u8> {
    namespace
        .session
        .as_ref()
        .map_or_else(Vec::new, |session| [b"\x01", session.as_bytes()].concat())
}

/// Reads an entry without its value.
pub(super) fn meta(row: &Row, namespace: &Namespace, kind: Kind) -> EntryMeta {
    EntryMeta {
        namespace: namespace.clone(),
        kind,
        key: text(row, 0),
        version: unsigned(row, 1),
        created_at: Timestamp(get(row, 2).unwrap_or_default()),
        updated_at: Timestamp(get(row, 3).unwrap_or_default()),
        expires_at: get::<Option<i64>>(row, 4).flatten().map(Timestamp),
        fingerprint: get(row, 5).unwrap_or_default(),
        category: text(row, 6),
        tags: tags(row, 7),
        attributes: get::<&str>(row, 8).map_or_else(BTreeMap::new, attributes),
        size: unsigned(row, 9),
    }
}

/// Reads a whole row.
pub(super) fn raw(row: &Row, namespace: &Namespace, kind: Kind) -> RawRow {
    let bytes = |column| get::<&[u8]>(row, column).unwrap_or_default().to_vec();
    let sealed = SealedValue {
        key_id: get(row, META).unwrap_or_default(),
        nonce: bytes(META + 1),
        value: bytes(META + 2),
    };
    RawRow {
        meta: meta(row, namespace, kind),
        sealed,
    }
}

/// Reads namespace and kind of a space from its columns; `None` for an unknown kind.
pub(super) fn space(row: &Row, first: usize) -> Option<(Namespace, Kind)> {
    let session = get::<Option<&[u8]>>(row, first + 2)
        .flatten()
        .map(|session| String::from_utf8_lossy(session));
    let namespace = Namespace::new(&text(row, first), &text(row, first + 1), session.as_deref());
    Some((namespace, Kind::parse(get(row, first + 3)?)?))
}

/// Reads a column, `None` if it is of another type.
pub(super) fn get<'r, T: FromSql<'r>>(row: &'r Row, column: usize) -> Option<T> {
    row.try_get(column).ok()
}

/// Reads a text of any bytes.
pub(super) fn text(row: &Row, column: usize) -> String {
    get::<&[u8]>(row, column)
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .unwrap_or_default()
}

/// Reads a number that cannot be negative; anything else is 0.
pub(super) fn unsigned(row: &Row, column: usize) -> u64 {
    get::<i64>(row, column)
        .and_then(|number| u64::try_from(number).ok())
        .unwrap_or_default()
}

/// Reads a list of tags.
pub(super) fn tags(row: &Row, column: usize) -> Vec<String> {
    let tags: Vec<Option<&[u8]>> = get(row, column).unwrap_or_default();
    tags.into_iter()
        .flatten()
        .map(|tag| String::from_utf8_lossy(tag).into_owned())
        .collect()
}

fn attributes(json: &str) -> BTreeMap<String, String> {
    match json {
        "{}" => BTreeMap::new(),
        json => serde_json::from_str(json).unwrap_or_default(),
    }
}

/// Returns attributes as stored. JSON writes NUL as `\u0000`; a PostgreSQL text cannot hold it.
pub(super) fn json(attributes: &BTreeMap<String, String>) -> Result<String> {
    if attributes.is_empty() {
        return Ok("{}".to_owned());
    }
    serde_json::to_string(attributes).map_err(|error| crate::StoreError::Corrupt(error.to_string()))
}

/// Returns the exclusive end of the key range of a prefix: always one, because only a plain
/// comparison bounds what is read of an index. A prefix without an end gets a byte that sorts after
/// every text.
pub(super) fn upper(prefix: &str) -> Vec<u8> {
    prefix_end(prefix).map_or_else(|| vec![u8::MAX], String::into_bytes)
}

/// Returns a limit as the database takes it.
pub(super) fn limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Opens rows off the runtime if there is much to open.
pub(super) async fn open<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Outcome<T> {
    if bytes <= INLINE_BYTES {
        return Ok(work());
    }
    Ok(tokio::task::spawn_blocking(work)
        .await
        .map_err(crate::StoreError::unavailable)?)
}

/// Limit for sealing or opening on the caller's thread, which takes about 0.1 ms.
const INLINE_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::upper;

    #[test]
    fn the_range_of_a_prefix_always_ends() {
        assert_eq!(upper("ab"), b"ac");
        for prefix in ["", "\u{10ffff}"] {
            let last = [prefix, "\u{10ffff}\u{10ffff}"].concat();
            assert!(upper(prefix).as_slice() > last.as_bytes(), "{prefix:?}");
        }
    }
}
