//! Objects: reading them, and the ids that git gives them.

use helmdeck_core::hex;
use sha1::{Digest as _, Sha1};
use sha2::Sha256;

use crate::error::Result;
use crate::oid::Oid;
use crate::repository::{Git, complaint};
use crate::run::Run;

/// An object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Its id.
    pub oid: Oid,
    /// Its type: `commit`, `tag`, `tree` or `blob`.
    pub kind: String,
    /// Its content.
    pub bytes: Vec<u8>,
}

impl Git {
    /// Reads objects by name, one per line; `None` for those that do not exist.
    ///
    /// # Errors
    /// As [`Git::succeed`].
    pub fn objects(&self, names: &str) -> Result<Vec<Option<Object>>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let args = ["cat-file", "--batch"];
        let output = self.succeed(
            &args,
            &Run {
                stdin: names.into(),
                ..Run::default()
            },
        )?;
        let mut rest = output.stdout.as_slice();
        let mut all = Vec::new();
        for _ in names.lines() {
            let end = rest
                .iter()
                .position(|byte| *byte == b'\n')
                .unwrap_or(rest.len());
            let line = String::from_utf8_lossy(&rest[..end]).into_owned();
            rest = rest.get(end + 1..).unwrap_or_default();
            let mut fields = line.split(' ');
            let (Some(name), Some(kind), Some(size)) =
                (fields.next(), fields.next(), fields.next())
            else {
                all.push(None);
                continue;
            };
            let Some((size, oid)) = size.parse::<usize>().ok().zip(Oid::parse(name)) else {
                all.push(None);
                continue;
            };
            let bytes = rest
                .get(..size)
                .ok_or_else(|| complaint(&args, &output))?
                .to_vec();
            rest = rest.get(size + 1..).unwrap_or_default();
            all.push(Some(Object {
                oid,
                kind: kind.to_owned(),
                bytes,
            }));
        }
        Ok(all)
    }

    /// Returns a file of a commit; `None` if the commit does not have it.
    ///
    /// # Errors
    /// As [`Git::run`].
    pub fn file_at(&self, commit: &Oid, path: &str) -> Result<Option<Vec<u8>>> {
        self.blob(&format!("{commit}:{path}"))
    }

    /// Returns a blob by any name of it; `None` if it does not exist.
    ///
    /// # Errors
    /// As [`Git::run`].
    pub fn blob(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let output = self.run(&["cat-file", "blob", name], &Run::default())?;
        Ok(output.ok().then_some(output.stdout))
    }

    /// Runs git and reads the object id that it prints.
    ///
    /// # Errors
    /// As [`Git::succeed`].
    pub fn oid_of(&self, args: &[&str], run: &Run) -> Result<Oid> {
        let output = self.succeed(args, run)?;
        Oid::parse(&output.text()).ok_or_else(|| complaint(args, &output))
    }

    /// Returns the number of bytes of an object id: 20, or 32 with SHA-256.
    ///
    /// # Errors
    /// As [`Git::succeed`].
    pub fn hash_bytes(&self) -> Result<usize> {
        if let Some(known) = self.hash_bytes.get() {
            return Ok(*known);
        }
        let output = self.read(&["rev-parse", "--show-object-format"])?;
        let bytes = if output.text() == "sha256" { 32 } else { 20 };
        Ok(*self.hash_bytes.get_or_init(|| bytes))
    }
}

/// Says whether a text is an object id as git prints it.
///
/// That is 40 (SHA-1) or 64 (SHA-256) hex digits in lower case.
#[must_use]
pub fn is_id(text: &str) -> bool {
    Oid::parse(text).is_some_and(|oid| oid.as_str() == text)
}

/// Returns the id of a blob, in a repository whose ids have `hash_bytes` bytes.
#[must_use]
pub fn blob_name(bytes: &[u8], hash_bytes: usize) -> String {
    hex(&digest("blob", bytes, hash_bytes))
}

/// Returns the id of an object. SHA-1 is used because git does; nothing here relies on it for
/// security.
pub(crate) fn digest(kind: &str, bytes: &[u8], hash_bytes: usize) -> Vec<u8> {
    let header = format!("{kind} {}\0", bytes.len());
    if hash_bytes == 20 {
        return Sha1::new()
            .chain_update(&header)
            .chain_update(bytes)
            .finalize()
            .to_vec();
    }
    Sha256::new()
        .chain_update(&header)
        .chain_update(bytes)
        .finalize()
        .to_vec()
}
