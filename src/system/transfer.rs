//! Copy of a whole system database into another one, of any driver.
//!
//! Rows are read in the order of their keys and replace those with the same key, so a copy that was
//! stopped is simply run again. Afterwards both databases are read once more and compared row by
//! row.

use std::cmp::Ordering;

use async_trait::async_trait;
use helmdeck_core::hex;
use helmdeck_memory::framing::Framed;
use helmdeck_memory::{Result, StoreError};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::system::System;

/// Rows of one step.
const STEP: usize = 500;
/// Rows of one step, if they hold answers of up to a mebibyte.
const LARGE_STEP: usize = 32;

/// A value of a column.
#[derive(Debug, Clone, PartialEq, PartialOrd)]
pub(crate) enum Value {
    /// Nothing.
    Null,
    /// Yes or no.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A float.
    Real(f64),
    /// A text.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

/// Type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    /// [`Value::Bool`].
    Bool,
    /// [`Value::Int`].
    Int,
    /// [`Value::Real`].
    Real,
    /// [`Value::Text`].
    Text,
    /// [`Value::Blob`].
    Blob,
}

/// The values of a row, in the order of the columns of its table.
pub(crate) type Row = Vec<Value>;

/// A table that both drivers have.
#[derive(Debug)]
pub(crate) struct Table {
    /// Its name for people.
    pub(crate) name: &'static str,
    /// Its name in SQLite.
    pub(crate) sqlite: &'static str,
    /// Its name in PostgreSQL.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(dead_code, reason = "one list of tables serves all builds")
    )]
    pub(crate) postgres: &'static str,
    /// Number of columns, from the first one, that are its key.
    pub(crate) keys: usize,
    /// Names and types of the columns.
    pub(crate) columns: &'static [(&'static str, Type)],
}

impl Table {
    /// Returns how many rows are read and written at once.
    fn step(&self) -> usize {
        if [KEYS, RESULTS].contains(&self.name) {
            LARGE_STEP
        } else {
            STEP
        }
    }
}

/// Idempotency keys, with sealed answers.
const KEYS: &str = "idempotency keys";
/// The sealed results of jobs: in SQLite a column of the jobs, in PostgreSQL a table.
pub(crate) const RESULTS: &str = "job results";

/// All tables, in an order in which they can be written.
pub(crate) const TABLES: &[Table] = &[
    Table {
        name: "counters",
        sqlite: "cache_counters",
        postgres: "system_counters",
        keys: 2,
        columns: &[
            ("pack", Type::Text),
            ("name", Type::Text),
            ("value", Type::Int),
        ],
    },
    Table {
        name: "statistics",
        sqlite: "statistics",
        postgres: "system_statistics",
        keys: 4,
        columns: &[
            ("seconds", Type::Int),
            ("slot", Type::Int),
            ("pack", Type::Text),
            ("name", Type::Text),
            ("value", Type::Int),
        ],
    },
    Table {
        name: KEYS,
        sqlite: "idempotency_keys",
        postgres: "system_keys",
        keys: 2,
        columns: &[
            ("scope", Type::Text),
            ("key", Type::Text),
            ("digest", Type::Blob),
            ("owner", Type::Text),
            ("fence", Type::Blob),
            ("done", Type::Bool),
            ("answer", Type::Blob),
            ("expires_at", Type::Int),
        ],
    },
    Table {
        name: "API tokens",
        sqlite: "api_tokens",
        postgres: "system_tokens",
        keys: 1,
        columns: &[
            ("id", Type::Text),
            ("digest", Type::Blob),
            ("name", Type::Text),
            ("tenant", Type::Text),
            ("subject", Type::Text),
            ("scope", Type::Text),
            ("created_at", Type::Int),
            ("expires_at", Type::Int),
            ("revoked_at", Type::Int),
            ("used_at", Type::Int),
            ("ancestors", Type::Text),
            ("seal", Type::Blob),
        ],
    },
    Table {
        name: "state of the tokens",
        sqlite: "token_state",
        postgres: "system_token_state",
        keys: 1,
        columns: &[
            ("one", Type::Int),
            ("generation", Type::Int),
            ("head", Type::Blob),
        ],
    },
    Table {
        name: "credentials",
        sqlite: "vault_credentials",
        postgres: "system_vault",
        keys: 1,
        columns: &[
            ("name", Type::Text),
            ("version", Type::Int),
            ("key_id", Type::Text),
            ("sealed", Type::Blob),
            ("created_at", Type::Int),
            ("updated_at", Type::Int),
        ],
    },
    Table {
        name: "state of the vault",
        sqlite: "vault_state",
        postgres: "system_vault_state",
        keys: 1,
        columns: &[
            ("one", Type::Int),
            ("generation", Type::Int),
            ("key_id", Type::Text),
            ("head", Type::Blob),
        ],
    },
    Table {
        name: "uses of credentials",
        sqlite: "vault_uses",
        postgres: "system_vault_uses",
        keys: 5,
        columns: &[
            ("name", Type::Text),
            ("tenant", Type::Text),
            ("subject", Type::Text),
            ("pack", Type::Text),
            ("day", Type::Int),
            ("granted", Type::Int),
            ("refused", Type::Int),
            ("last_at", Type::Int),
        ],
    },
    Table {
        name: "jobs",
        sqlite: "jobs",
        postgres: "system_jobs",
        keys: 1,
        columns: &[
            ("id", Type::Text),
            ("tenant", Type::Text),
            ("subject", Type::Text),
            ("pack", Type::Text),
            ("version", Type::Int),
            ("state", Type::Text),
            ("owner", Type::Text),
            ("cancel", Type::Bool),
            ("revision", Type::Int),
            ("percent", Type::Real),
            ("message", Type::Text),
            ("progress_at", Type::Int),
            ("created_at", Type::Int),
            ("started_at", Type::Int),
            ("ended_at", Type::Int),
            ("expires_at", Type::Int),
            ("error", Type::Text),
            ("artifacts", Type::Text),
            ("kept", Type::Text),
            ("attempt", Type::Int),
            ("retries", Type::Int),
            ("due_at", Type::Int),
        ],
    },
    Table {
        name: "runs of schedules",
        sqlite: "schedule_runs",
        postgres: "system_schedule_runs",
        keys: 2,
        columns: &[
            ("pack", Type::Text),
            ("due_at", Type::Int),
            ("job", Type::Text),
        ],
    },
    Table {
        name: RESULTS,
        sqlite: "jobs",
        postgres: "system_job_results",
        keys: 1,
        columns: &[("id", Type::Text), ("sealed", Type::Blob)],
    },
];

/// Rows of any table, for copies.
#[async_trait]
pub(crate) trait TableRows {
    /// Returns at most `limit` rows after a key, in the order of keys.
    async fn rows(
        &self,
        table: &'static Table,
        after: Option<Row>,
        limit: usize,
    ) -> Result<Vec<Row>>;

    /// Writes rows; each replaces the one with its key.
    async fn put_rows(&self, table: &'static Table, rows: Vec<Row>) -> Result<()>;
}

/// What was copied of one table, and is the same in both databases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Copied {
    /// The table.
    pub table: &'static str,
    /// Number of rows.
    pub rows: u64,
    /// SHA-256 of all rows, in hexadecimal digits.
    pub sha256: String,
}

impl System {
    /// Copies everything into another database, and compares both row by row afterwards.
    ///
    /// The target must be empty or hold part of the same rows, as after a copy that was stopped. No
    /// process may use either database meanwhile. Membership of processes is not copied: a key of a
    /// call that was running counts as lost there.
    ///
    /// # Errors
    /// `Invalid` if a job has not ended, the target has rows of its own, or the comparison fails:
    /// then something still writes. `Unavailable`, `Corrupt`.
    pub async fn copy_to(&self, target: &Self) -> Result<Vec<Copied>> {
        for table in TABLES {
            let compared = compare(self, target, table).await?;
            if compared.open_jobs {
                return Err(StoreError::Invalid(
                    "jobs have not ended; stop the servers, and wait for their jobs to end",
                ));
            }
            // The state of the vault exists from the first moment.
            if compared.only_in_target > 0 {
                return Err(StoreError::Invalid(
                    "the target has rows of its own; copy into an empty database",
                ));
            }
        }
        for table in TABLES {
            let mut after = None;
            loop {
                let rows = self.driver().rows(table, after, table.step()).await?;
                let Some(last) = rows.last() else { break };
                after = Some(last[..table.keys].to_vec());
                target.driver().put_rows(table, rows).await?;
            }
        }
        let mut copied = Vec::with_capacity(TABLES.len());
        for table in TABLES {
            let compared = compare(self, target, table).await?;
            if compared.differs {
                return Err(StoreError::Invalid(
                    "the copy differs; stop all programs that use either database, and repeat",
                ));
            }
            copied.push(Copied {
                table: table.name,
                rows: compared.rows,
                sha256: compared.sha256,
            });
        }
        Ok(copied)
    }
}

/// Two databases, side by side.
struct Compared {
    rows: u64,
    sha256: String,
    only_in_target: u64,
    differs: bool,
    open_jobs: bool,
}

async fn compare(source: &System, target: &System, table: &'static Table) -> Result<Compared> {
    let (mut here, mut there) = (Cursor::new(source, table), Cursor::new(target, table));
    let (mut one, mut other) = (here.next().await?, there.next().await?);
    let (mut rows, mut only_in_target, mut differs, mut open_jobs) = (0, 0, false, false);
    let mut hash = Sha256::new();
    let ended_at = table
        .columns
        .iter()
        .position(|(name, _)| *name == "ended_at");
    loop {
        let order = match (&one, &other) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(one), Some(other)) => one[..table.keys]
                .partial_cmp(&other[..table.keys])
                .unwrap_or(Ordering::Less),
        };
        differs |= order != Ordering::Equal || one != other;
        if order != Ordering::Greater
            && let Some(row) = &one
        {
            rows += 1;
            digest(&mut hash, row);
            open_jobs |= ended_at.is_some_and(|index| row[index] == Value::Null);
        }
        match order {
            Ordering::Less => one = here.next().await?,
            Ordering::Equal => (one, other) = (here.next().await?, there.next().await?),
            Ordering::Greater => {
                only_in_target += 1;
                other = there.next().await?;
            }
        }
    }
    Ok(Compared {
        rows,
        sha256: hex(&hash.finalize()),
        only_in_target,
        differs,
        open_jobs,
    })
}

fn digest(hash: &mut Sha256, row: &Row) {
    for value in row {
        let framed = Framed::new("helmdeck/system/copy");
        let framed = match value {
            Value::Null => framed.text("null"),
            Value::Bool(value) => framed.text("bool").bytes(&[u8::from(*value)]),
            Value::Int(value) => framed.text("int").bytes(&value.to_be_bytes()),
            Value::Real(value) => framed.text("real").bytes(&value.to_bits().to_be_bytes()),
            Value::Text(value) => framed.text("text").text(value),
            Value::Blob(value) => framed.text("blob").bytes(value),
        };
        hash.update(framed.as_slice());
    }
}

/// The rows of a table, one after the other.
struct Cursor<'a> {
    system: &'a System,
    table: &'static Table,
    ready: std::vec::IntoIter<Row>,
    after: Option<Row>,
    over: bool,
}

impl<'a> Cursor<'a> {
    fn new(system: &'a System, table: &'static Table) -> Self {
        Self {
            system,
            table,
            ready: Vec::new().into_iter(),
            after: None,
            over: false,
        }
    }

    async fn next(&mut self) -> Result<Option<Row>> {
        if let Some(row) = self.ready.next() {
            return Ok(Some(row));
        }
        if self.over {
            return Ok(None);
        }
        let rows = self
            .system
            .driver()
            .rows(self.table, self.after.take(), self.table.step())
            .await?;
        self.over = rows.len() < self.table.step();
        self.after = rows.last().map(|row| row[..self.table.keys].to_vec());
        self.ready = rows.into_iter();
        Ok(self.ready.next())
    }
}
