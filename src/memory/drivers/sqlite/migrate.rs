//! Schema migration: runs numbered SQL files one by one, and records each in the ledger.
//!
//! Two processes may run it at once: all of it is inside one immediate transaction. A newer
//! database is refused and never changed.

use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use crate::error::{Result, StoreError};

/// The migrations of one database.
#[derive(Debug)]
pub struct Migrations {
    /// The ledger of migrations that ran.
    pub ledger: &'static str,
    /// Name and SQL, in order; the first has number 1.
    pub steps: &'static [(&'static str, &'static str)],
    /// Name and SQL of additions, which programs that know only the steps do not notice. They run
    /// after the steps.
    pub additions: &'static [(&'static str, &'static str)],
}

impl Migrations {
    /// Runs the missing migrations.
    ///
    /// # Errors
    /// `Corrupt` for a database of a newer program or of another one; `Unavailable`.
    pub fn apply(&self, connection: &mut Connection) -> Result<()> {
        if self.done(connection)? == self.steps.len() && self.missing(connection)?.is_empty() {
            return Ok(());
        }
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let done = self.done(&transaction)?;
        if done == 0 {
            transaction.execute_batch(&format!(
                "CREATE TABLE IF NOT EXISTS {} (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL) STRICT",
                self.ledger
            ))?;
        }
        for (index, (name, sql)) in self.steps.iter().enumerate().skip(done) {
            transaction.execute_batch(sql)?;
            transaction.execute(
                &format!(
                    "INSERT INTO {} (version, name, applied_at) VALUES (?1, ?2, unixepoch() * 1000000)",
                    self.ledger
                ),
                (index as i64 + 1, name),
            )?;
        }
        for (name, sql) in self.missing(&transaction)? {
            let ledger = self.additions_ledger();
            transaction.execute_batch(&format!(
                "CREATE TABLE IF NOT EXISTS {ledger} (name TEXT PRIMARY KEY, applied_at INTEGER NOT NULL) STRICT"
            ))?;
            transaction.execute_batch(sql)?;
            transaction.execute(
                &format!(
                    "INSERT INTO {ledger} (name, applied_at) VALUES (?1, unixepoch() * 1000000)"
                ),
                [name],
            )?;
        }
        transaction.commit()?;
        Ok(())
    }

    fn additions_ledger(&self) -> String {
        format!("{}_additions", self.ledger)
    }

    /// Returns the additions that did not run.
    fn missing(
        &self,
        connection: &Connection,
    ) -> Result<Vec<&'static (&'static str, &'static str)>> {
        if self.additions.is_empty() {
            return Ok(Vec::new());
        }
        let ledger = self.additions_ledger();
        let there: bool = connection.query_row(
            "SELECT count(*) > 0 FROM sqlite_schema WHERE name = ?1",
            [&ledger],
            |row| row.get(0),
        )?;
        if !there {
            return Ok(self.additions.iter().collect());
        }
        let mut all = connection.prepare(&format!("SELECT name FROM {ledger}"))?;
        let done: Vec<String> = all
            .query_map([], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        Ok(self
            .additions
            .iter()
            .filter(|(name, _)| !done.iter().any(|done| done == name))
            .collect())
    }

    fn done(&self, connection: &Connection) -> Result<usize> {
        let (tables, ours): (i64, bool) = connection.query_row(
            "SELECT count(*), coalesce(sum(name = ?1), 0) > 0 FROM sqlite_schema WHERE type = 'table'",
            [self.ledger],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        if !ours {
            return if tables == 0 {
                Ok(0)
            } else {
                Err(StoreError::Corrupt(
                    "this is a database of another program".to_owned(),
                ))
            };
        }
        let done: i64 = connection
            .query_row(
                &format!("SELECT max(version) FROM {}", self.ledger),
                [],
                |row| row.get::<_, Option<i64>>(0),
            )
            .optional()?
            .flatten()
            .unwrap_or(0);
        let known = self.steps.len();
        usize::try_from(done).ok().filter(|done| *done <= known).ok_or_else(|| {
            StoreError::Corrupt(format!(
                "it was written by a newer version (schema {done}); this version knows schemas up to {known}"
            ))
        })
    }
}
