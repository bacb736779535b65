//! Reseals rows in steps, each in one transaction that locks out writers of their spaces.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::db::Db;
use super::error::Outcome;
use super::queries::{self, Ahead, Place};
use super::rows::{self, get};
use super::work::Work;
use super::{flush, locked};
use crate::error::StoreError;
use crate::ops::{Mark, Resealed};
use crate::sealed::{RawRow, Seal, SealedValue};

const UPDATE: &str = "
UPDATE memory_entries e
   SET key_id = n.key_id, value_nonce = n.value_nonce, value_ciphertext = n.value_ciphertext
  FROM unnest($1::bigint[], $2::bytea[], $3::text[], $4::bytea[], $5::bytea[])
    AS n(space_id, key, key_id, value_nonce, value_ciphertext)
 WHERE e.space_id = n.space_id AND e.key = n.key";

/// A row that was sealed anew.
struct Anew {
    place: Place,
    old_key_id: String,
    sealed: SealedValue,
}

/// Does one step.
pub(super) async fn step(
    db: &Db,
    after: Option<&Mark>,
    limit: usize,
    current: &str,
    seal: &Arc<dyn Seal>,
) -> Outcome<Resealed> {
    let ahead = Ahead::look(db, after, limit).await?;
    let others = ahead
        .places
        .into_iter()
        .zip(&ahead.key_ids)
        .filter(|(_, key_id)| *key_id != current);
    let others: Vec<Place> = others.map(|(place, _)| place).collect();
    let mut resealed = Resealed {
        next: ahead.next,
        ..Resealed::default()
    };
    if others.is_empty() {
        return Ok(resealed);
    }
    db.begin().await?;
    let spaces: BTreeSet<i64> = others.iter().map(|(space, _)| *space).collect();
    let mut work = Work::default();
    locked::lock(
        db,
        &mut work,
        &spaces.into_iter().collect::<Vec<_>>(),
        false,
    )
    .await?;
    // Only now: until the lock was there the rows could change.
    let found = queries::named(db, &others).await?;
    let rows: Vec<(Place, RawRow)> = found
        .iter()
        .filter_map(|row| {
            let (namespace, kind) = rows::space(row, rows::RAW)?;
            let raw = rows::raw(row, &namespace, kind);
            let place = (get(row, rows::RAW + 4)?, get(row, 0)?);
            (raw.sealed.key_id != current).then_some((place, raw))
        })
        .collect();
    let count = rows.len();
    let bytes = rows.iter().map(|(_, raw)| raw.sealed.value.len()).sum();
    let seal = Arc::clone(seal);
    let anew = rows::open(bytes, move || {
        rows.into_iter()
            .filter_map(|(place, raw)| anew(place, raw, &*seal).transpose())
            .collect()
    });
    let anew: Vec<Anew> = anew
        .await
        .and_then(|anew: Result<Vec<Anew>, StoreError>| Ok(anew?))?;
    for row in &anew {
        *work
            .gone
            .entry((row.place.0, row.old_key_id.clone()))
            .or_default() += 1;
        *work
            .gone
            .entry((row.place.0, row.sealed.key_id.clone()))
            .or_default() -= 1;
    }
    let (spaces, keys): (Vec<i64>, Vec<&[u8]>) = anew
        .iter()
        .map(|row| (row.place.0, row.place.1.as_slice()))
        .unzip();
    let key_ids: Vec<&str> = anew.iter().map(|row| row.sealed.key_id.as_str()).collect();
    let (nonces, values): (Vec<&[u8]>, Vec<&[u8]>) = anew
        .iter()
        .map(|row| (row.sealed.nonce.as_slice(), row.sealed.value.as_slice()))
        .unzip();
    db.execute(UPDATE, &[&spaces, &keys, &key_ids, &nonces, &values])
        .await?;
    flush::commit(db, &work, None).await?;
    resealed.rows = anew.len() as u64;
    resealed.unreadable = (count - anew.len()) as u64;
    Ok(resealed)
}

/// Opens a row and seals it; `None` if it does not open.
fn anew(place: Place, raw: RawRow, seal: &dyn Seal) -> Result<Option<Anew>, StoreError> {
    let old_key_id = raw.sealed.key_id.clone();
    let Ok(entry) = seal.open(raw) else {
        return Ok(None);
    };
    let sealed = seal.seal(&entry.meta, &entry.value)?;
    Ok(Some(Anew {
        place,
        old_key_id,
        sealed,
    }))
}
