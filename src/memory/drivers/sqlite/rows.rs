//! Converts columns to entries and back.
//!
//! Reading never fails because of a column's content: an altered row becomes an entry that does not
//! open, and affects no other row.

use std::collections::BTreeMap;

use helmdeck_core::Timestamp;
use rusqlite::Row;
use rusqlite::types::{Value, ValueRef};

use crate::entry::{EntryMeta, Kind, Namespace};
use crate::error::Result;
use crate::requests::prefix_end;
use crate::sealed::{RawRow, SealedValue};
use crate::sieve;

/// The columns that [`meta`] reads, in its order.
macro_rules! meta_columns {
    () => {
        "e.version, e.created_at, e.updated_at, e.expires_at, e.fingerprint, e.category, e.tags, e.attributes, \
         length(e.value_ciphertext)"
    };
}
pub(super) use meta_columns;

/// How many columns [`meta_columns`] has.
pub(super) const META: usize = 9;

/// Number of columns that [`raw`] reads. It reads by index: a lookup by name costs more than the
/// read.
pub(super) const WHOLE: usize = META + 3;

/// Reads an entry without its value; `key` is the requested key, or that of the row.
pub(super) fn meta(
    row: &Row<'_>,
    namespace: &Namespace,
    kind: Kind,
    key: String,
) -> Result<EntryMeta> {
    Ok(EntryMeta {
        namespace: namespace.clone(),
        kind,
        key,
        version: unsigned(row.get_ref(0)?),
        created_at: Timestamp(integer(row.get_ref(1)?)),
        updated_at: Timestamp(integer(row.get_ref(2)?)),
        expires_at: match row.get_ref(3)? {
            ValueRef::Null => None,
            value => Some(Timestamp(integer(value))),
        },
        fingerprint: text(row.get_ref(4)?),
        category: text(row.get_ref(5)?),
        tags: tags(row.get_ref(6)?),
        attributes: attributes(row.get_ref(7)?),
        size: unsigned(row.get_ref(8)?),
    })
}

/// Reads a whole row: the columns of [`meta`], then `key_id`, `value_nonce`, `value_ciphertext`.
pub(super) fn raw(row: &Row<'_>, namespace: &Namespace, kind: Kind, key: String) -> Result<RawRow> {
    let meta = meta(row, namespace, kind, key)?;
    let sealed = SealedValue {
        key_id: text(row.get_ref(META)?),
        nonce: bytes(row.get_ref(META + 1)?).to_vec(),
        value: bytes(row.get_ref(META + 2)?).to_vec(),
    };
    Ok(RawRow { meta, sealed })
}

/// Reads a text of any bytes.
pub(super) fn text(value: ValueRef<'_>) -> String {
    let bytes = bytes(value);
    std::str::from_utf8(bytes).map_or_else(
        |_| String::from_utf8_lossy(bytes).into_owned(),
        str::to_owned,
    )
}

/// Reads an integer; anything else is 0.
pub(super) const fn integer(value: ValueRef<'_>) -> i64 {
    match value {
        ValueRef::Integer(number) => number,
        _ => 0,
    }
}

/// Reads the cost of a row, limited to the largest cost that a row can have.
///
/// The seal does not bind it, so the column may hold any number.
pub(super) fn cost(value: ValueRef<'_>) -> i64 {
    integer(value).clamp(0, 1 << 32)
}

/// Reads the cost in microseconds from the attributes of a row.
pub(super) fn cost_us(attributes: ValueRef<'_>) -> u64 {
    std::str::from_utf8(bytes(attributes)).map_or(0, sieve::cost_in)
}

/// Reads a number that cannot be negative; anything else is 0.
pub(super) fn unsigned(value: ValueRef<'_>) -> u64 {
    u64::try_from(integer(value)).unwrap_or(0)
}

/// Reads a list of tags; anything else is empty.
pub(super) fn tags(value: ValueRef<'_>) -> Vec<String> {
    match bytes(value) {
        b"[]" => Vec::new(),
        json => serde_json::from_slice(json).unwrap_or_default(),
    }
}

fn attributes(value: ValueRef<'_>) -> BTreeMap<String, String> {
    match bytes(value) {
        b"{}" => BTreeMap::new(),
        json => serde_json::from_slice(json).unwrap_or_default(),
    }
}

const fn bytes(value: ValueRef<'_>) -> &[u8] {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes,
        _ => &[],
    }
}

/// Returns the JSON of a list or map, without work for an empty one.
pub(super) fn json<T: serde::Serialize>(
    value: &T,
    is_empty: bool,
    empty: &'static str,
) -> Result<String> {
    if is_empty {
        return Ok(empty.to_owned());
    }
    serde_json::to_string(value).map_err(|error| crate::StoreError::Corrupt(error.to_string()))
}

/// Returns the end of the range of keys with a prefix, itself not in the range.
///
/// A prefix that nothing follows ends at a blob: SQLite sorts every blob after every text.
pub(super) fn upper(prefix: &str) -> Value {
    prefix_end(prefix).map_or(Value::Blob(Vec::new()), Value::Text)
}
