//! Operations on rows that cannot be named beforehand, such as deletes by prefix and tag.
//!
//! Also the sweep, the eviction, and making room for a put that does not fit. They work on raw
//! rows: nothing is decrypted.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use helmdeck_core::Timestamp;
use tokio_postgres::Row;

use super::db::{Db, Param};
use super::error::Outcome;
use super::locked;
use super::locks;
use super::rows::{self, get};
use super::work::Work;
use crate::entry::{Kind, Namespace, Reach};
use crate::ops::Delete;
use crate::sieve::{Candidate, LOOKS, Reads, Verdict, cost_in, judge};

/// Deletes what a condition names, with its tags, and counts it.
///
/// `OFFSET 0` makes each tag a lookup by its whole key, not a filter over the tags of its space.
macro_rules! delete {
    ($from:expr) => {
        concat!("WITH ", gone!($from))
    };
}
macro_rules! gone {
    ($from:expr) => {
        concat!(
            "gone AS (DELETE FROM memory_entries e ",
            $from,
            " RETURNING e.id, e.space_id, e.key_id, e.cost, e.tags),
             untagged AS (DELETE FROM memory_tags t
                           USING (SELECT g.space_id, n.tag, g.id FROM gone g, unnest(g.tags) AS n(tag) OFFSET 0) o
                           WHERE t.space_id = o.space_id AND t.tag = o.tag AND t.entry_id = o.id)
             SELECT space_id, key_id, count(*), sum(least(greatest(cost, 0), 4294967296))::bigint FROM gone GROUP BY space_id, key_id"
        )
    };
}

const SPACES_OF_ALL: &str = "SELECT id FROM memory_spaces WHERE $1::text IS NULL OR kind = $1";
const SPACES_OF_ONE: &str = "
SELECT id FROM memory_spaces
 WHERE tenant = $2 AND subject = $3 AND coalesce('\\x01'::bytea || session, '\\x'::bytea) = $4
   AND ($1::text IS NULL OR kind = $1)";
const SPACES_OF_CALLER: &str = "
SELECT id FROM memory_spaces
 WHERE tenant = $2 AND subject IN ($3, '\\x'::bytea) AND ($1::text IS NULL OR kind = $1)";
/// A join, not a list: PostgreSQL finds the partition of one space, and would look for a list in
/// all of them.
const DELETE_PREFIX: &str = delete!(
    "USING unnest($1::bigint[]) AS n(space_id) WHERE e.space_id = n.space_id AND e.key >= $2 AND e.key < $3"
);
const DELETE_TAGGED: &str = delete!(
    "USING (SELECT t.space_id, x.key
              FROM memory_tags t
             CROSS JOIN LATERAL (SELECT key FROM memory_entries WHERE space_id = t.space_id AND id = t.entry_id OFFSET 0) x
             WHERE t.space_id = ANY($1) AND t.tag = $2 OFFSET 0) d
     WHERE e.space_id = d.space_id AND e.key = d.key"
);

const ENDED: &str = "
SELECT c.space_id, c.key, s.id IS NOT NULL
  FROM (SELECT space_id, key FROM memory_entries WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2) c
  LEFT JOIN memory_spaces s ON s.id = c.space_id";
/// Looks again: until its space was locked, a row could be replaced.
const SWEEP: &str = delete!(
    "USING (SELECT o.space_id, o.key
              FROM unnest($1::bigint[], $2::bytea[]) AS n(space_id, key)
             CROSS JOIN LATERAL (SELECT space_id, key, expires_at FROM memory_entries
                                  WHERE space_id = n.space_id AND key = n.key OFFSET 0) o
             WHERE o.expires_at <= $3 OFFSET 0) d
     WHERE e.space_id = d.space_id AND e.key = d.key"
);

const LARGEST: &str = "
SELECT id, bytes, sum(bytes) OVER ()::bigint FROM memory_spaces WHERE kind = $1 ORDER BY bytes DESC, id LIMIT $2";
/// The name of a space, and where its hand is.
const HAND: &str = "
SELECT s.tenant, s.subject, s.session, s.kind, h.updated_at, h.key, h.round
  FROM memory_spaces s LEFT JOIN memory_hands h ON h.space_id = s.id WHERE s.id = $1";
/// The rows after the hand, from the oldest to the newest.
const NEIGHBOURS_OF: &str = "
SELECT key, updated_at, cost, attributes, spared_until FROM memory_entries
 WHERE space_id + 0 = $1 AND space_id = $1 AND updated_at >= $2 AND (updated_at > $2 OR key < $3)
 ORDER BY updated_at, key DESC LIMIT $4";
/// Evicts rows, notes which ones are spared, and where the hand is.
const EVICT: &str = concat!(
    "WITH spared AS (
    UPDATE memory_entries e SET spared_until = n.until
      FROM (SELECT key, until FROM unnest($3::bytea[], $4::bigint[]) AS n(key, until) OFFSET 0) n
     WHERE e.space_id = $1 AND e.key = n.key),
hand AS (
    INSERT INTO memory_hands AS h (space_id, updated_at, key, round) SELECT $1, $5, $6, $7 WHERE $7 IS NOT NULL
    ON CONFLICT (space_id) DO UPDATE
       SET updated_at = excluded.updated_at, key = excluded.key, round = excluded.round),
",
    gone!("USING (SELECT key FROM unnest($2::bytea[]) AS n(key) OFFSET 0) d WHERE e.space_id = $1 AND e.key = d.key")
);
/// Marks rows as read, except where other transactions write: that would be a way to deadlock.
const MARK_READ: &str = "
UPDATE memory_entries e SET spared_until = 9223372036854775807
  FROM (SELECT f.space_id, f.key FROM unnest($1::bigint[], $2::bytea[]) AS n(space_id, key)
         CROSS JOIN LATERAL (SELECT space_id, key FROM memory_entries
                              WHERE space_id = n.space_id AND key = n.key
                                AND spared_until IS DISTINCT FROM 9223372036854775807
                                FOR UPDATE SKIP LOCKED) f OFFSET 0) d
 WHERE e.space_id = d.space_id AND e.key = d.key";
/// `OFFSET 0` makes it a walk over what has ended, and not over all rows of the space.
const DELETE_ENDED: &str = delete!(
    "USING (SELECT key FROM (SELECT space_id, key FROM memory_entries WHERE expires_at <= $2 OFFSET 0) o
             WHERE space_id = $1 AND key <> $3 OFFSET 0) d
     WHERE e.space_id = $1 AND e.key = d.key"
);

/// How many neighbours an eviction over all namespaces looks at together.
const MANY_NEIGHBOURS: usize = 1024;

/// Returns the ids of the spaces that a delete is about.
pub(super) async fn spaces_of(db: &Db, delete: &Delete) -> Outcome<Vec<i64>> {
    let (whose, kind): (Reach, Option<Kind>) = match delete {
        Delete::Key {
            namespace, kind, ..
        } => (Reach::One(namespace.clone()), Some(*kind)),
        Delete::Prefix {
            namespace, kind, ..
        } => (
            namespace.clone().map_or(Reach::Everybody, Reach::One),
            *kind,
        ),
        Delete::Tagged { whose, kind, .. } => (whose.clone(), Some(*kind)),
    };
    let kind = kind.map(Kind::as_str);
    let found = match &whose {
        Reach::Everybody => db.query(SPACES_OF_ALL, &[&kind]).await?,
        Reach::Caller { tenant, subject } => {
            let params: [&dyn Param; 3] = [&kind, &tenant.as_bytes(), &subject.as_bytes()];
            db.query(SPACES_OF_CALLER, &params).await?
        }
        Reach::One(namespace) => {
            let session = rows::session_name(namespace);
            let params: [&dyn Param; 4] = [
                &kind,
                &namespace.tenant.as_bytes(),
                &namespace.subject.as_bytes(),
                &session,
            ];
            db.query(SPACES_OF_ONE, &params).await?
        }
    };
    Ok(found.iter().filter_map(|row| get(row, 0)).collect())
}

/// Deletes by prefix or tag in locked spaces.
pub(super) async fn delete(db: &Db, work: &mut Work, delete: &Delete) -> Outcome<u64> {
    // Those that were made meanwhile by others are not locked; those that were made by the same
    // batch are.
    let spaces = spaces_of(db, delete).await?;
    let spaces: Vec<i64> = spaces
        .into_iter()
        .filter(|id| work.spaces.contains_key(id))
        .collect();
    delete_in(db, work, delete, &spaces).await
}

/// Deletes by prefix or tag in some locked spaces.
pub(super) async fn delete_in(
    db: &Db,
    work: &mut Work,
    delete: &Delete,
    spaces: &[i64],
) -> Outcome<u64> {
    match delete {
        Delete::Prefix { prefix, .. } => {
            run(
                db,
                work,
                DELETE_PREFIX,
                &[&spaces, &prefix.as_bytes(), &rows::upper(prefix)],
            )
            .await
        }
        Delete::Tagged { tag, .. } => {
            run(db, work, DELETE_TAGGED, &[&spaces, &tag.as_bytes()]).await
        }
        // Named rows are deleted by name.
        Delete::Key { .. } => Ok(0),
    }
}

/// Deletes expired rows, except where other transactions write, and expired locks.
pub(super) async fn sweep(db: &Db, work: &mut Work, now: Timestamp, limit: usize) -> Outcome<u64> {
    let (now, limit) = (now.micros(), rows::limit(limit));
    locks::sweep(db).await?;
    let found = db.query(ENDED, &[&now, &limit]).await?;
    let ended: Vec<(i64, &[u8], bool)> = found
        .iter()
        .filter_map(|row| Some((get(row, 0)?, get(row, 1)?, get(row, 2)?)))
        .collect();
    let spaces: BTreeSet<i64> = ended
        .iter()
        .filter(|(_, _, is_there)| *is_there)
        .map(|(space, _, _)| *space)
        .collect();
    let free = locked::lock(db, work, &spaces.into_iter().collect::<Vec<_>>(), true).await?;
    // Rows without a space were planted; they are deleted too.
    let doomed = ended
        .iter()
        .filter(|(space, _, is_there)| !is_there || free.contains(space));
    let (spaces, keys): (Vec<i64>, Vec<&[u8]>) =
        doomed.map(|(space, key, _)| (*space, *key)).unzip();
    run(db, work, SWEEP, &[&spaces, &keys, &now]).await
}

/// What of a kind takes too much.
#[derive(Debug, Clone, Copy)]
pub(super) struct Excess {
    /// The kind.
    pub(super) kind: Kind,
    /// What its rows may take.
    pub(super) bytes: u64,
    /// Limit of rows to delete.
    pub(super) limit: usize,
}

/// Returns the spaces from which rows must be evicted.
pub(super) async fn too_large(
    db: &Db,
    work: &Work,
    excess: Excess,
) -> Outcome<(Vec<i64>, i64, i64)> {
    let params: [&dyn Param; 2] = [&excess.kind.as_str(), &rows::limit(excess.limit)];
    let found = db.query(LARGEST, &params).await?;
    let mut total: i64 = found
        .first()
        .and_then(|row| get(row, 2))
        .unwrap_or_default();
    let mut sizes: BTreeMap<i64, i64> = found
        .iter()
        .map(|row| {
            (
                get(row, 0).unwrap_or_default(),
                get(row, 1).unwrap_or_default(),
            )
        })
        .collect();
    // The transaction's own counters are not written yet.
    for ((_, kind), id) in &work.names {
        if let (true, Some(space)) = (*kind == excess.kind, work.spaces.get(id)) {
            total += space.bytes - space.stored_bytes;
            sizes.insert(*id, space.bytes);
        }
    }
    let over = total.saturating_sub(helmdeck_core::numbers::signed(excess.bytes));
    if over <= 0 {
        return Ok((Vec::new(), 0, 0));
    }
    let mut sizes: Vec<(i64, i64)> = sizes.into_iter().collect();
    sizes.sort_by_key(|(id, bytes)| (std::cmp::Reverse(*bytes), *id));
    let level = level(
        &sizes.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>(),
        over,
    );
    let large = sizes
        .into_iter()
        .filter(|(_, bytes)| *bytes > level)
        .map(|(id, _)| id)
        .collect();
    Ok((large, level, over))
}

/// Evicts rows of the largest namespaces, until the total is within the limit.
///
/// Taking each time from the largest ends where all that were larger are about equally large: that
/// level is worked out first.
pub(super) async fn evict(db: &Db, work: &mut Work, excess: Excess, reads: &Reads) -> Outcome<u64> {
    let (large, level, mut over) = too_large(db, work, excess).await?;
    locked::lock(db, work, &large, false).await?;
    let mut gone = 0;
    for id in large {
        let Some(space) = work.spaces.get(&id).copied() else {
            continue;
        };
        let surplus = space.bytes.saturating_sub(level).min(over);
        if surplus <= 0 {
            continue;
        }
        let left = excess
            .limit
            .saturating_sub(usize::try_from(gone).unwrap_or(usize::MAX));
        let need = Need {
            rows: 0,
            bytes: surplus,
            limit: left,
            neighbours: MANY_NEIGHBOURS,
        };
        gone += drop_from(db, work, (id, ""), need, reads).await?;
        over -= space.bytes - work.spaces.get(&id).map_or(0, |space| space.bytes);
    }
    Ok(gone)
}

/// Returns the size to which the largest spaces must shrink to free `over` bytes.
///
/// `sizes` is sorted, largest first.
fn level(sizes: &[i64], over: i64) -> i64 {
    let mut above = 0;
    for (index, size) in sizes.iter().enumerate() {
        above += size;
        let count = i64::try_from(index + 1).unwrap_or(i64::MAX);
        let level = (above - over).div_euclid(count);
        if level >= sizes.get(index + 1).copied().unwrap_or(0) {
            return level.max(0);
        }
    }
    0
}

/// Makes room in a locked space, sparing one key: deletes expired rows.
pub(super) async fn drop_ended(
    db: &Db,
    work: &mut Work,
    space: i64,
    key: &str,
    now: Timestamp,
) -> Outcome<u64> {
    run(
        db,
        work,
        DELETE_ENDED,
        &[&space, &now.micros(), &key.as_bytes()],
    )
    .await
}

/// What an eviction must free in a space.
#[derive(Debug, Clone, Copy)]
pub(super) struct Need {
    /// Rows.
    pub(super) rows: i64,
    /// Bytes.
    pub(super) bytes: i64,
    /// Limit of rows to delete.
    pub(super) limit: usize,
    /// How many rows are looked at together.
    pub(super) neighbours: usize,
}

/// Hand of an eviction: goes over the rows of a space, from the oldest to the newest.
struct Hand {
    /// Whether it spares rows and stays where it is for the next eviction; else it takes the oldest
    /// rows.
    spares: bool,
    /// Time and key of the last row that it visited.
    at: (i64, Vec<u8>),
    round: i64,
}

/// Before every row.
const START: (i64, Vec<u8>) = (i64::MIN, Vec::new());

impl Hand {
    /// Takes up the hand of a space. First writes down which of its rows this process read.
    async fn of(db: &Db, space: i64, reads: &Reads) -> Outcome<Self> {
        let row = db.query_opt(HAND, &[&space]).await?;
        let mut hand = Self {
            spares: false,
            at: START,
            round: 0,
        };
        let Some((row, (namespace, Kind::Cache))) = row
            .as_ref()
            .and_then(|row| Some((row, rows::space(row, 0)?)))
        else {
            return Ok(hand);
        };
        hand.spares = true;
        if let (Some(at), Some(key), Some(round)) = (get(row, 4), get::<&[u8]>(row, 5), get(row, 6))
        {
            (hand.at, hand.round) = ((at, key.to_vec()), round);
        }
        let read = reads.take(&namespace);
        if !read.is_empty() {
            let keys: Vec<&[u8]> = read.iter().map(|key| key.as_bytes()).collect();
            db.execute(MARK_READ, &[&vec![space; keys.len()], &keys])
                .await?;
        }
        Ok(hand)
    }
}

/// Evicts rows of a locked space, sparing one key, until enough is freed: cached answers as
/// [`crate::sieve`] chooses them, others by their age.
pub(super) async fn drop_from(
    db: &Db,
    work: &mut Work,
    (space, own): (i64, &str),
    need: Need,
    reads: &Reads,
) -> Outcome<u64> {
    let mut hand = Hand::of(db, space, reads).await?;
    let (mut rows, mut bytes, mut gone) = (need.rows, need.bytes, 0);
    let (mut looks, mut rounds) = (0, 0);
    while (rows > 0 || bytes > 0) && gone < need.limit {
        let params: [&dyn Param; 4] = [
            &space,
            &hand.at.0,
            &hand.at.1,
            &rows::limit(need.neighbours),
        ];
        let found = db.query(NEIGHBOURS_OF, &params).await?;
        looks += 1;
        if found.is_empty() {
            // In the second round after this one, a row is left that no neighbour's cost outdoes.
            if rounds > 2 {
                break;
            }
            (hand.at, hand.round) = (START, hand.round + 1);
            rounds += 1;
            continue;
        }
        let candidates: Vec<Candidate> = found.iter().map(candidate).collect();
        let verdicts = if hand.spares {
            judge(&candidates, hand.round)
        } else {
            vec![Verdict::Evict; candidates.len()]
        };
        let (mut evicted, mut spared, mut until): (Vec<&[u8]>, Vec<&[u8]>, Vec<i64>) =
            Default::default();
        for ((row, candidate), verdict) in found.iter().zip(&candidates).zip(verdicts) {
            if (rows <= 0 && bytes <= 0) || gone >= need.limit {
                break;
            }
            let key: &[u8] = get(row, 0).unwrap_or_default();
            hand.at = (get(row, 1).unwrap_or_default(), key.to_vec());
            match verdict {
                _ if key == own.as_bytes() => {}
                Verdict::SpareUntil(round) if looks <= LOOKS => {
                    spared.push(key);
                    until.push(round);
                }
                Verdict::Spare if looks <= LOOKS => {}
                _ => {
                    (rows, bytes, gone, looks) = (rows - 1, bytes - candidate.bytes, gone + 1, 0);
                    evicted.push(key);
                }
            }
        }
        let ((at, key), round) = (&hand.at, hand.spares.then_some(hand.round));
        let params: [&dyn Param; 7] = [&space, &evicted, &spared, &until, at, key, &round];
        run(db, work, EVICT, &params).await?;
    }
    Ok(gone as u64)
}

fn candidate(row: &Row) -> Candidate {
    Candidate {
        // Not bound by the seal: it may say anything.
        bytes: get::<i64>(row, 2).unwrap_or_default().clamp(0, 1 << 32),
        cost_us: get(row, 3).map_or(0, cost_in),
        spared_until: get(row, 4).flatten(),
    }
}

/// Marks cached answers as read, in spaces from which rows were evicted before.
pub(super) async fn mark_read(db: &Db, reads: &HashMap<Namespace, HashSet<String>>) -> Outcome<()> {
    if db
        .query_opt("SELECT 1 FROM memory_hands LIMIT 1", &[])
        .await?
        .is_none()
    {
        return Ok(());
    }
    let (mut spaces, mut keys): (Vec<i64>, Vec<&[u8]>) = Default::default();
    for (space, namespace) in locked::with_hand(db, reads.keys()).await? {
        let read = reads.get(&namespace).into_iter().flatten();
        keys.extend(read.map(|key| key.as_bytes()));
        spaces.resize(keys.len(), space);
    }
    db.execute(MARK_READ, &[&spaces, &keys]).await?;
    Ok(())
}

async fn run(db: &Db, work: &mut Work, sql: &'static str, params: &[&dyn Param]) -> Outcome<u64> {
    let mut count = 0;
    for row in &db.query(sql, params).await? {
        let rows: i64 = get(row, 2).unwrap_or_default();
        count += u64::try_from(rows).unwrap_or_default();
        work.went(
            get(row, 0).unwrap_or_default(),
            get(row, 1).unwrap_or_default(),
            rows,
            get(row, 3).unwrap_or_default(),
        );
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::level;

    #[test]
    fn the_largest_come_down_to_one_level() {
        assert_eq!(level(&[10, 9, 1], 4), 7, "(10 + 9 - 4) / 2");
        assert_eq!(level(&[10, 4], 5), 5);
        assert_eq!(level(&[10, 4], 8), 3);
        assert_eq!(level(&[3, 3, 3], 9), 0);
        assert_eq!(level(&[3], 100), 0);
        assert_eq!(level(&[], 1), 0);
    }
}
