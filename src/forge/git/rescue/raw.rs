//! Files whose exact bytes git would not restore.
//!
//! A filter, a line end or an encoding conversion changes them on the way into an object. If a
//! checkout would differ from the file on disk, the rescue contains the exact file too.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::EXACT;
use crate::error::{Category, Error, Result};
use crate::git::{Git, Run};
use helmdeck_git::blob_name;

/// Folder for such files in the tree of the rescue.
const RAW: &str = ".forge-raw";
/// Attributes by which git may convert a file.
const ATTRIBUTES: [&str; 6] = [
    "crlf",
    "eol",
    "filter",
    "ident",
    "text",
    "working-tree-encoding",
];
/// Size limit, in bytes, up to which files are first compared with their object.
///
/// The comparison spares most files the filters.
const COMPARED: u64 = 64 << 20;

/// A file of the index.
struct Indexed {
    path: Vec<u8>,
    oid: String,
}

impl Git {
    /// Adds the files that git would not restore exactly to a copy of the index, below
    /// `.forge-raw/`.
    ///
    /// Returns their paths.
    pub(super) fn add_raw(&self, index: &Path, folder: &Path) -> Result<Vec<String>> {
        let run = || {
            Run::writing()
                .timeout(Duration::from_secs(600))
                .variable("GIT_INDEX_FILE", index)
        };
        let suspects = self.suspects(&run)?;
        if suspects.is_empty() {
            return Ok(Vec::new());
        }
        // What a checkout would write.
        let out = folder.join("out");
        std::fs::create_dir(&out).map_err(|error| Error::io("cannot write", &out, &error))?;
        let prefix = format!("--prefix={}/", text(&out)?);
        let list: Vec<u8> = suspects
            .iter()
            .flat_map(|one| [&one.path, &b"\0"[..]].concat())
            .collect();
        // A file that a filter fails on is missing there, so the exit code adds nothing.
        self.run(
            &["checkout-index", "--quiet", "-z", "--stdin", &prefix],
            &run().stdin(list),
        )?;
        let (mut raw, mut info) = (Vec::new(), Vec::new());
        for one in suspects {
            let path = self.on(&one.path);
            if same(&path, &out.join(OsStr::from_bytes(&one.path))) {
                continue;
            }
            let copy = folder.join("raw");
            std::fs::copy(&path, &copy).map_err(|error| Error::io("cannot copy", &path, &error))?;
            let executable =
                std::fs::metadata(&copy).is_ok_and(|about| about.permissions().mode() & 0o100 != 0);
            let args = [
                "hash-object",
                "-w",
                "--no-filters",
                "--end-of-options",
                text(&copy)?,
            ];
            let oid = self.oid_of(&[EXACT, &args].concat(), &run())?;
            let mode = if executable { "100755" } else { "100644" };
            info.extend_from_slice(format!("{mode} {oid} 0\t{RAW}/").as_bytes());
            info.extend_from_slice(&[&one.path, &b"\0"[..]].concat());
            raw.push(String::from_utf8_lossy(&one.path).into_owned());
        }
        if !info.is_empty() {
            self.succeed(&["update-index", "-z", "--index-info"], &run().stdin(info))?;
        }
        Ok(raw)
    }

    /// Returns the files that git may convert, and whose bytes on disk differ from those of their
    /// object.
    fn suspects(&self, run: &impl Fn() -> Run) -> Result<Vec<Indexed>> {
        let listed = self.succeed(&["ls-files", "-s", "-z"], &run())?;
        let mut files = Vec::new();
        for record in listed.stdout.split(|byte| *byte == 0) {
            // mode SP object SP stage TAB path
            let Some(tab) = record.iter().position(|byte| *byte == b'\t') else {
                continue;
            };
            let head = String::from_utf8_lossy(&record[..tab]);
            let Some(oid) = head
                .strip_prefix("100")
                .and_then(|rest| rest.split(' ').nth(1))
            else {
                continue;
            };
            files.push(Indexed {
                path: record[tab + 1..].to_vec(),
                oid: oid.to_owned(),
            });
        }
        let converts = self
            .setting("core.autocrlf")?
            .is_some_and(|value| value != "false");
        if !converts {
            let list: Vec<u8> = files
                .iter()
                .flat_map(|one| [&one.path, &b"\0"[..]].concat())
                .collect();
            let args = [&["check-attr", "-z", "--stdin"][..], &ATTRIBUTES].concat();
            let mut options = run().stdin(list);
            options.max_output = 1 << 30;
            let output = self.succeed(&args, &options)?;
            // path, attribute and value of each, in the order of the paths.
            let values: Vec<&[u8]> = output.stdout.split(|byte| *byte == 0).collect();
            let mut of_paths = values.chunks(3 * ATTRIBUTES.len());
            let silent = |value: &[u8]| value == b"unspecified" || value == b"unset";
            files.retain(|_| {
                of_paths
                    .next()
                    .is_some_and(|of_path| of_path.chunks_exact(3).any(|triple| !silent(triple[2])))
            });
        }
        let hash_bytes = self.hash_bytes()?;
        files.retain(|one| {
            let path = self.on(&one.path);
            match std::fs::symlink_metadata(&path) {
                Ok(about) if about.is_file() && about.len() <= COMPARED => !std::fs::read(&path)
                    .is_ok_and(|bytes| blob_name(&bytes, hash_bytes) == one.oid),
                Ok(about) => about.is_file(),
                Err(_) => false,
            }
        });
        Ok(files)
    }

    fn on(&self, path: &[u8]) -> PathBuf {
        self.root().join(OsStr::from_bytes(path))
    }
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| {
        let message = format!(
            "{} is no text in UTF-8, and git cannot be told of it",
            path.display()
        );
        Error::new(Category::Failed, "E_GIT", message)
    })
}

/// Says whether two files have the same bytes. An unreadable file equals no other.
fn same(one: &Path, other: &Path) -> bool {
    let compare = || -> std::io::Result<bool> {
        let is_file = std::fs::symlink_metadata(other)?.is_file();
        let (mut one, mut other) = (File::open(one)?, File::open(other)?);
        if !is_file || one.metadata()?.len() != other.metadata()?.len() {
            return Ok(false);
        }
        let (mut left, mut right) = (vec![0; 64 << 10], vec![0; 64 << 10]);
        loop {
            let count = one.read(&mut left)?;
            if count == 0 {
                return Ok(true);
            }
            other.read_exact(&mut right[..count])?;
            if left[..count] != right[..count] {
                return Ok(false);
            }
        }
    };
    compare().unwrap_or(false)
}
