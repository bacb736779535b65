//! Reseals rows in steps, each in one transaction that locks out writers of their spaces.

use std::collections::BTreeSet;
use std::sync::Arc;

use deadpool_postgres::Object;

use super::error::Outcome;
use super::queries::{self, Ahead};
use super::rows::{self, get};
use super::work::Work;
use super::{flush, locked};
use crate::error::StoreError;
use crate::ops::{Mark, Resealed};
use crate::sealed::{RawRow, Seal, SealedValue};

const SPACES: &str = "SELECT DISTINCT space_id FROM memory_entries WHERE id = ANY($1)";
const UPDATE: &str = "
UPDATE memory_entries e
   SET key_id = n.key_id, value_nonce = n.value_nonce, value_ciphertext = n.value_ciphertext
  FROM unnest($1::bigint[], $2::text[], $3::bytea[], $4::bytea[]) AS n(id, key_id, value_nonce, value_ciphertext)
 WHERE e.id = n.id";

/// A row that was sealed anew.
struct Anew {
    id: i64,
    space: i64,
    old_key_id: String,
    sealed: SealedValue,
}

/// Does one step.
pub(super) async fn step(
    db: &Object,
    after: Option<&Mark>,
    limit: usize,
    current: &str,
    seal: &Arc<dyn Seal>,
) -> Outcome<Resealed> {
    let ahead = Ahead::look(db, after, limit).await?;
    let others = ahead.ids.iter().zip(&ahead.key_ids).filter(|(_, key_id)| *key_id != current);
    let others: Vec<i64> = others.map(|(id, _)| *id).collect();
    let mut resealed = Resealed { next: ahead.next, ..Resealed::default() };
    if others.is_empty() {
        return Ok(resealed);
    }
    db.batch_execute("BEGIN").await?;
    let spaces = db.query(&db.prepare_cached(SPACES).await?, &[&others]).await?;
    let spaces: BTreeSet<i64> = spaces.iter().filter_map(|row| get(row, 0)).collect();
    let mut work = Work::default();
    locked::lock(db, &mut work, &spaces.into_iter().collect::<Vec<_>>(), false).await?;
    // Only now: until the lock was there the rows could change.
    let found = queries::by_id(db, &others).await?;
    let rows: Vec<(i64, i64, RawRow)> = found
        .iter()
        .filter_map(|row| {
            let (namespace, kind) = rows::space(row, rows::RAW)?;
            let raw = rows::raw(row, &namespace, kind);
            let (id, space) = (get(row, rows::RAW + 4)?, get(row, rows::RAW + 5)?);
            (raw.sealed.key_id != current).then_some((id, space, raw))
        })
        .collect();
    let count = rows.len();
    let bytes = rows.iter().map(|(_, _, raw)| raw.sealed.value.len()).sum();
    let seal = Arc::clone(seal);
    let anew = rows::open(bytes, move || {
        rows.into_iter().filter_map(|(id, space, raw)| anew(id, space, raw, &*seal).transpose()).collect()
    });
    let anew: Vec<Anew> = anew.await.and_then(|anew: Result<Vec<Anew>, StoreError>| Ok(anew?))?;
    for row in &anew {
        *work.gone.entry((row.space, row.old_key_id.clone())).or_default() += 1;
        *work.gone.entry((row.space, row.sealed.key_id.clone())).or_default() -= 1;
    }
    let statement = db.prepare_cached(UPDATE).await?;
    let (ids, key_ids): (Vec<i64>, Vec<&str>) = anew.iter().map(|row| (row.id, row.sealed.key_id.as_str())).unzip();
    let (nonces, values): (Vec<&[u8]>, Vec<&[u8]>) =
        anew.iter().map(|row| (row.sealed.nonce.as_slice(), row.sealed.value.as_slice())).unzip();
    db.execute(&statement, &[&ids, &key_ids, &nonces, &values]).await?;
    flush::commit(db, &work, None).await?;
    resealed.rows = anew.len() as u64;
    resealed.unreadable = (count - anew.len()) as u64;
    Ok(resealed)
}

/// Opens a row and seals it; `None` if it does not open.
fn anew(id: i64, space: i64, raw: RawRow, seal: &dyn Seal) -> Result<Option<Anew>, StoreError> {
    let old_key_id = raw.sealed.key_id.clone();
    let Ok(entry) = seal.open(raw) else { return Ok(None) };
    let sealed = seal.seal(&entry.meta, &entry.value)?;
    Ok(Some(Anew { id, space, old_key_id, sealed }))
}
