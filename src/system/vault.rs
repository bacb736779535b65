//! Rows of the vault in the system database: sealed by the vault, never opened here.

use std::time::Duration;

use helmdeck_core::Timestamp;
use helmdeck_core::numbers::{signed, unsigned};
use helmdeck_memory::Result;
use rusqlite::{Connection, OptionalExtension, Row};

use crate::database::{System, before, empty_log};

/// How long a row of the use log is kept after its last use.
pub const USES_KEPT: Duration = Duration::from_secs(400 * 24 * 3600);

/// Stored credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultRow {
    /// Its name.
    pub name: String,
    /// Changes with the secret.
    pub version: u64,
    /// The id of the key that sealed it.
    pub key_id: String,
    /// All other data, sealed.
    pub sealed: Vec<u8>,
    /// Creation time.
    pub created_at: Timestamp,
    /// Time of the last change.
    pub updated_at: Timestamp,
}

/// State of the whole vault.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VaultState {
    /// Grows with every change.
    pub generation: u64,
    /// The id of the key that the vault belongs to, `None` before the first change.
    pub key_id: Option<String>,
}

/// Changes to rows.
#[derive(Debug, Default)]
pub struct VaultChange {
    /// The key that the vault belongs to from now on.
    pub key_id: Option<String>,
    /// Rows to write.
    pub put: Vec<VaultRow>,
    /// Names of rows to delete.
    pub remove: Vec<String>,
}

/// Uses of a credential by a caller and pack on one day, or the number to add.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultUse {
    /// The credential.
    pub name: String,
    /// The caller's tenant.
    pub tenant: String,
    /// The caller's user.
    pub subject: String,
    /// The pack.
    pub pack: String,
    /// The day: days since 1970-01-01, UTC.
    pub day: i64,
    /// Number of grants.
    pub granted: u64,
    /// Number of refusals.
    pub refused: u64,
    /// Time of the last use.
    pub last_at: Timestamp,
}

impl System {
    /// Returns a number that grows with every change of the vault; 0 without a vault.
    ///
    /// It reads one row and creates no file.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn vault_generation(&self) -> Result<u64> {
        Ok(self.read(|db| Ok(state(db)?.generation)).await?.unwrap_or(0))
    }

    /// Returns the vault as it is at one moment: its state, and all rows by name. Makes no file.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn vault(&self) -> Result<(VaultState, Vec<VaultRow>)> {
        let found = self.read(|db| {
            let snapshot = db.unchecked_transaction()?;
            Ok((state(&snapshot)?, rows(&snapshot)?))
        });
        Ok(found.await?.unwrap_or_default())
    }

    /// Changes the vault in one transaction.
    ///
    /// `decide` gets state and rows, and returns the change and an answer. The bytes of deleted and replaced rows are
    /// overwritten. Without `make` a missing vault stays missing, and `decide` is not called.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`. Then nothing was changed.
    pub async fn change_vault<T: Send + 'static>(
        &self,
        make: bool,
        decide: impl FnOnce(&VaultState, Vec<VaultRow>) -> (Option<VaultChange>, T) + Send + 'static,
    ) -> Result<Option<T>> {
        if !make && self.read(|_| Ok(())).await?.is_none() {
            return Ok(None);
        }
        let (changed, answer) = self
            .write(move |db| {
                let (change, answer) = decide(&state(db)?, rows(db)?);
                let changed = change.is_some();
                if let Some(change) = change {
                    apply(db, &change)?;
                }
                Ok((changed, answer))
            })
            .await?;
        if changed {
            // Old rows are sealed, so a reader may delay their removal from the log.
            let _ = self.read(empty_log).await;
        }
        Ok(Some(answer))
    }

    /// Adds to the use log.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn add_vault_uses(&self, uses: Vec<VaultUse>) -> Result<()> {
        if uses.is_empty() {
            return Ok(());
        }
        self.write(move |db| {
            let mut add = db.prepare_cached(
                "INSERT INTO vault_uses (name, tenant, subject, pack, day, granted, refused, last_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
                 ON CONFLICT (name, tenant, subject, pack, day) DO UPDATE
                 SET granted = granted + ?6, refused = refused + ?7, last_at = max(last_at, ?8)",
            )?;
            for entry in &uses {
                add.execute((
                    &entry.name,
                    &entry.tenant,
                    &entry.subject,
                    &entry.pack,
                    entry.day,
                    signed(entry.granted),
                    signed(entry.refused),
                    entry.last_at.micros(),
                ))?;
            }
            Ok(())
        })
        .await
    }

    /// Deletes the use log of a caller, and returns how many rows. Creates no file.
    ///
    /// The bytes are overwritten, and the log is emptied unless a reader prevents it.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn forget_vault_uses(&self, tenant: &str, subject: &str) -> Result<u64> {
        let (tenant, subject) = (tenant.to_owned(), subject.to_owned());
        let gone = self.read(move |db| {
            let gone = db
                .prepare_cached("DELETE FROM vault_uses WHERE tenant = ?1 AND subject = ?2")?
                .execute((&tenant, &subject))?;
            if gone > 0 {
                empty_log(db)?;
            }
            Ok(gone)
        });
        Ok(gone.await?.unwrap_or(0) as u64)
    }

    /// Returns the use log, of one credential or of all, the latest first. Makes no file.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn vault_uses(&self, name: Option<String>, limit: usize) -> Result<Vec<VaultUse>> {
        self.vault_uses_of(name, None, limit).await
    }

    /// Returns the use log as [`System::vault_uses`], of one caller (tenant and user) or of all.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn vault_uses_of(
        &self,
        name: Option<String>,
        caller: Option<(String, String)>,
        limit: usize,
    ) -> Result<Vec<VaultUse>> {
        let found = self.read(move |db| {
            let mut all = db.prepare_cached(
                "SELECT name, tenant, subject, pack, day, granted, refused, last_at FROM vault_uses
                 WHERE (?1 IS NULL OR name = ?1) AND (?2 IS NULL OR (tenant = ?2 AND subject = ?3))
                 ORDER BY last_at DESC, name, tenant, subject, pack LIMIT ?4",
            )?;
            let (tenant, subject) = caller.unzip();
            let rows = all.query_map((name, tenant, subject, signed(limit as u64)), |row| {
                Ok(VaultUse {
                    name: row.get(0)?,
                    tenant: row.get(1)?,
                    subject: row.get(2)?,
                    pack: row.get(3)?,
                    day: row.get(4)?,
                    granted: unsigned(row.get(5)?),
                    refused: unsigned(row.get(6)?),
                    last_at: Timestamp(row.get(7)?),
                })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        });
        Ok(found.await?.unwrap_or_default())
    }
}

/// Deletes uses older than [`USES_KEPT`].
pub(crate) fn sweep(db: &Connection, now: Timestamp) -> Result<usize> {
    let last = before(now, USES_KEPT);
    Ok(db.prepare_cached("DELETE FROM vault_uses WHERE last_at < ?1")?.execute([last])?)
}

fn state(db: &Connection) -> Result<VaultState> {
    let state = db
        .prepare_cached("SELECT generation, key_id FROM vault_state WHERE one = 1")?
        .query_row([], |row| Ok(VaultState { generation: unsigned(row.get(0)?), key_id: row.get(1)? }))
        .optional()?;
    Ok(state.unwrap_or_default())
}

fn rows(db: &Connection) -> Result<Vec<VaultRow>> {
    let read = |row: &Row<'_>| {
        Ok(VaultRow {
            name: row.get(0)?,
            version: unsigned(row.get(1)?),
            key_id: row.get(2)?,
            sealed: row.get(3)?,
            created_at: Timestamp(row.get(4)?),
            updated_at: Timestamp(row.get(5)?),
        })
    };
    let mut all = db.prepare_cached(
        "SELECT name, version, key_id, sealed, created_at, updated_at FROM vault_credentials ORDER BY name",
    )?;
    let rows = all.query_map([], read)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn apply(db: &Connection, change: &VaultChange) -> Result<()> {
    for row in &change.put {
        db.prepare_cached(
            "INSERT INTO vault_credentials (name, version, key_id, sealed, created_at, updated_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (name) DO UPDATE
             SET version = ?2, key_id = ?3, sealed = ?4, created_at = ?5, updated_at = ?6",
        )?
        .execute((
            &row.name,
            signed(row.version),
            &row.key_id,
            &row.sealed,
            row.created_at.micros(),
            row.updated_at.micros(),
        ))?;
    }
    for name in &change.remove {
        db.prepare_cached("DELETE FROM vault_credentials WHERE name = ?1")?.execute([name])?;
    }
    db.prepare_cached(
        "INSERT INTO vault_state (one, generation, key_id) VALUES (1, 1, ?1)
         ON CONFLICT (one) DO UPDATE SET generation = generation + 1, key_id = coalesce(?1, key_id)",
    )?
    .execute([&change.key_id])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, version: u64) -> VaultRow {
        VaultRow {
            name: name.to_owned(),
            version,
            key_id: "k".to_owned(),
            sealed: vec![1, 2],
            created_at: Timestamp(1),
            updated_at: Timestamp(2),
        }
    }

    #[tokio::test]
    async fn reading_and_changing_nothing_make_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let system = System::at(folder.path().join("new/helmdeck.db"));
        assert_eq!(system.vault_generation().await.unwrap(), 0);
        assert_eq!(system.vault().await.unwrap(), Default::default());
        assert_eq!(system.change_vault(false, |_, _| (None, ())).await.unwrap(), None);
        system.add_vault_uses(Vec::new()).await.unwrap();
        assert!(system.vault_uses(None, 10).await.unwrap().is_empty());
        assert!(!folder.path().join("new").exists());
    }

    #[tokio::test]
    async fn changes_are_counted_and_seen_by_another_handle() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("helmdeck.db");
        let (one, two) = (System::at(&path), System::at(&path));
        let put = |rows: Vec<VaultRow>| VaultChange { key_id: Some("k".to_owned()), put: rows, remove: Vec::new() };
        one.change_vault(true, move |_, _| (Some(put(vec![row("a", 1), row("b", 1)])), ())).await.unwrap();
        let seen = two
            .change_vault(false, |state, rows| {
                let seen = (state.clone(), rows.len());
                (Some(VaultChange { remove: vec!["a".to_owned()], ..VaultChange::default() }), seen)
            })
            .await
            .unwrap();
        let state = |generation| VaultState { generation, key_id: Some("k".to_owned()) };
        assert_eq!(seen, Some((state(1), 2)));
        assert_eq!(one.vault().await.unwrap(), (state(2), vec![row("b", 1)]));
        one.change_vault(true, |_, _| (None, ())).await.unwrap();
        assert_eq!(two.vault_generation().await.unwrap(), 2, "no change is not counted");
    }

    #[tokio::test]
    async fn uses_add_up_by_caller_pack_and_day() {
        let folder = tempfile::tempdir().unwrap();
        let system = System::at(folder.path().join("helmdeck.db"));
        let of = |subject: &str, granted, refused, last_at| VaultUse {
            name: "n".to_owned(),
            tenant: "t".to_owned(),
            subject: subject.to_owned(),
            pack: "p".to_owned(),
            day: 7,
            granted,
            refused,
            last_at: Timestamp(last_at),
        };
        system.add_vault_uses(vec![of("a", 1, 0, 5), of("b", 0, 1, 4)]).await.unwrap();
        system.add_vault_uses(vec![of("a", 2, 1, 3)]).await.unwrap();
        assert_eq!(system.vault_uses(None, 10).await.unwrap(), [of("a", 3, 1, 5), of("b", 0, 1, 4)]);
        assert_eq!(system.vault_uses(Some("n".to_owned()), 1).await.unwrap().len(), 1);
        assert!(system.vault_uses(Some("other".to_owned()), 9).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn uses_go_after_400_days_and_with_their_caller() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("helmdeck.db");
        let system = System::at(&path);
        assert_eq!(system.forget_vault_uses("t", "SUBJECT-a").await.unwrap(), 0);
        assert!(!path.exists(), "forgetting makes no file");
        let of = |tenant: &str, subject: &str, day: i64| VaultUse {
            name: "n".to_owned(),
            tenant: tenant.to_owned(),
            subject: subject.to_owned(),
            pack: "p".to_owned(),
            day,
            granted: 1,
            refused: 0,
            last_at: Timestamp(day * 86_400_000_000),
        };
        let uses = vec![of("t", "SUBJECT-a", 1), of("t", "SUBJECT-a", 2), of("t", "b", 2), of("u", "SUBJECT-a", 2)];
        system.add_vault_uses(uses).await.unwrap();
        let at = |day: i64, micros: i64| Timestamp(day * 86_400_000_000 + micros);
        assert_eq!(system.sweep(at(401, 0)).await.unwrap(), 0, "400 days are not more than 400 days");
        assert_eq!(system.sweep(at(401, 1)).await.unwrap(), 1);
        assert_eq!(system.vault_uses(None, 10).await.unwrap().len(), 3);
        assert_eq!(system.forget_vault_uses("t", "SUBJECT-a").await.unwrap(), 1);
        assert_eq!(system.vault_uses(None, 10).await.unwrap(), [of("t", "b", 2), of("u", "SUBJECT-a", 2)]);
        assert_eq!(system.forget_vault_uses("u", "SUBJECT-a").await.unwrap(), 1);
        for file in std::fs::read_dir(folder.path()).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            assert!(!bytes.windows(9).any(|window| window == b"SUBJECT-a"));
        }
    }
}
