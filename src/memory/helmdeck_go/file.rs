//! The database file of the Go original, read-only.
//!
//! It never changes the file or its log, and creates no file beside it. Blocks on the disk.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Row};

use super::GoError;
use crate::key::hex;
use crate::keyring::KeyRing;

/// A row as it is stored.
pub(super) struct GoRow {
    pub(super) namespace: String,
    pub(super) key: String,
    pub(super) sealed: Vec<u8>,
    pub(super) nonce: Vec<u8>,
    pub(super) category: String,
    pub(super) tags: String,
    pub(super) created_at: String,
    pub(super) updated_at: String,
    pub(super) expires_at: Option<String>,
}

/// An open file.
pub(super) struct GoFile {
    connection: Connection,
    path: PathBuf,
    /// Removed at the end.
    _copy: Option<Copy>,
}

/// A copy in a separate folder.
struct Copy(PathBuf);

impl Drop for Copy {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!(%error, folder = %self.0.display(), "a copy of the imported file could not be removed");
        }
    }
}

impl GoFile {
    /// Opens a file.
    ///
    /// Without a log no process has it open, and it is read as it is. With a log and its index a process may write:
    /// it is read under SQLite's locks. With a log alone, reading in place would make an index beside it, so a copy
    /// is read.
    pub(super) fn open(path: &Path, scratch: &Path) -> Result<Self, GoError> {
        let fail = |reason: String| GoError::NotOurs { path: path.display().to_string(), reason };
        let length = |suffix: &str| fs::metadata(beside(path, suffix)).ok().map(|file| file.len());
        fs::metadata(path).map_err(|error| fail(error.to_string()))?;
        let mut copy = None;
        let uri = if length("-wal").is_some() && length("-shm").is_some() {
            uri(path, "?mode=ro")
        } else if length("-wal").is_none_or(|bytes| bytes == 0) {
            uri(path, "?immutable=1")
        } else {
            let folder = copied(path, scratch).map_err(|error| fail(error.to_string()))?;
            let place = folder.0.join("copy.db");
            copy = Some(folder);
            uri(&place, "?mode=ro")
        };
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(uri, flags).map_err(|error| fail(error.to_string()))?;
        let file = Self { connection, path: path.to_owned(), _copy: copy };
        file.connection.busy_timeout(std::time::Duration::from_secs(5)).map_err(|error| file.fail(&error))?;
        // Our own store has a table of that name too, with other columns.
        file.connection
            .prepare(ROWS)
            .map_err(|error| fail(format!("it has no table memory_entries as the Go original makes it ({error})")))?;
        Ok(file)
    }

    /// Counts the rows, and makes sure that a key opens one of them, if there are any.
    pub(super) fn check_key(&self, ring: &KeyRing) -> Result<u64, GoError> {
        let count = "SELECT count(*) FROM memory_entries";
        let rows: i64 = self.connection.query_row(count, [], |row| row.get(0)).map_err(|error| self.fail(&error))?;
        let rows = rows.unsigned_abs();
        let mut opens = rows == 0;
        self.query("SELECT value_ciphertext, value_nonce FROM memory_entries", |row| {
            let (sealed, nonce) = (row.get_ref(0)?, row.get_ref(1)?);
            opens = match (sealed, nonce) {
                (ValueRef::Blob(sealed), ValueRef::Blob(nonce)) => ring.open_legacy(nonce, sealed).is_ok(),
                _ => false,
            };
            Ok(!opens)
        })?;
        if opens {
            return Ok(rows);
        }
        Err(GoError::WrongKey { rows, given: ring.ids().collect::<Vec<_>>().join(", ") })
    }

    /// Returns every namespace, and whether it has rows that the original gives to callers only.
    pub(super) fn namespaces(&self) -> Result<Vec<(String, bool)>, GoError> {
        let sql =
            "SELECT namespace, max(category IN ('pack_history', 'pipeline_history', 'plan_history', 'user_facts'))
                   FROM memory_entries WHERE typeof(namespace) = 'text' GROUP BY namespace";
        let mut all = Vec::new();
        self.query(sql, |row| {
            if let Ok(namespace) = text(row.get_ref(0)?) {
                all.push((namespace, row.get::<_, Option<bool>>(1)?.unwrap_or_default()));
            }
            Ok(true)
        })?;
        Ok(all)
    }

    /// Hands over each row with its id, or why it cannot be read, until `take` says no.
    pub(super) fn each(&self, mut take: impl FnMut(String, Result<GoRow, String>) -> bool) -> Result<(), GoError> {
        self.query(ROWS, |row| {
            let id = match row.get_ref(0)? {
                ValueRef::Text(id) => String::from_utf8_lossy(id).into_owned(),
                ValueRef::Blob(id) => hex(id),
                _ => format!("row {}", row.get::<_, i64>(10)?),
            };
            Ok(take(id, read(row)))
        })
    }

    fn query(&self, sql: &str, mut take: impl FnMut(&Row<'_>) -> rusqlite::Result<bool>) -> Result<(), GoError> {
        let mut work = || {
            let mut statement = self.connection.prepare(sql)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                if !take(row)? {
                    break;
                }
            }
            Ok(())
        };
        work().map_err(|error| self.fail(&error))
    }

    fn fail(&self, error: &rusqlite::Error) -> GoError {
        GoError::NotOurs { path: self.path.display().to_string(), reason: error.to_string() }
    }
}

const ROWS: &str = "SELECT id, namespace, key, value_ciphertext, value_nonce, category, tags_json, created_at, updated_at, \
                    expires_at, rowid FROM memory_entries ORDER BY rowid";

fn read(row: &Row<'_>) -> Result<GoRow, String> {
    let column = |at: usize| row.get_ref(at).map_err(|error| error.to_string());
    let blob = |at: usize, name: &str| match column(at)? {
        ValueRef::Blob(bytes) => Ok(bytes.to_vec()),
        _ => Err(format!("{name} is no blob")),
    };
    let named = |at: usize, name: &str| text(column(at)?).map_err(|why| format!("{name} {why}"));
    Ok(GoRow {
        namespace: named(1, "namespace")?,
        key: named(2, "key")?,
        sealed: blob(3, "value_ciphertext")?,
        nonce: blob(4, "value_nonce")?,
        category: named(5, "category")?,
        tags: named(6, "tags_json")?,
        created_at: named(7, "created_at")?,
        updated_at: named(8, "updated_at")?,
        expires_at: match column(9)? {
            ValueRef::Null => None,
            value => Some(text(value).map_err(|why| format!("expires_at {why}"))?),
        },
    })
}

fn text(value: ValueRef<'_>) -> Result<String, &'static str> {
    match value {
        ValueRef::Text(bytes) => std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| "is not UTF-8"),
        _ => Err("is no text"),
    }
}

fn copied(path: &Path, scratch: &Path) -> std::io::Result<Copy> {
    let folder = scratch.join(format!("import-{}", std::process::id()));
    DirBuilder::new().recursive(true).mode(0o700).create(scratch)?;
    DirBuilder::new().mode(0o700).create(&folder)?;
    let copy = Copy(folder);
    fs::copy(path, copy.0.join("copy.db"))?;
    fs::copy(beside(path, "-wal"), copy.0.join("copy.db-wal"))?;
    Ok(copy)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Returns a path as SQLite takes it with options: <https://www.sqlite.org/uri.html>.
fn uri(path: &Path, options: &str) -> String {
    use std::os::unix::ffi::OsStrExt;

    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => uri.push(char::from(*byte)),
            other => uri.push_str(&format!("%{}", hex(&[*other]))),
        }
    }
    uri.push_str(options);
    uri
}
