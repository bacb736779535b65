//! Reads the folder of an Agent Skill: `SKILL.md` and the files beside it.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::agent::{FRONT_MATTER, INSTRUCTIONS};
use crate::manifest::Problem;
use helmdeck_forge_files::error::{Error, Result};

/// The file that makes a folder a skill.
pub const SKILL_MD: &str = "SKILL.md";
/// The maximum number of entries of a folder, those of its folders included.
const MAX_ENTRIES: usize = 500;
/// The maximum depth of folders.
const MAX_DEPTH: usize = 8;
/// The maximum size of one file, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// The maximum size of all files together, in bytes.
const MAX_TOTAL: u64 = 8 << 20;

/// A file that a skill brings.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SkillFile {
    /// Its path below the folder.
    pub path: String,
    /// Its content.
    pub bytes: Vec<u8>,
    /// Whether it can be executed: a script.
    pub executable: bool,
}

impl SkillFile {
    /// Returns its permissions where it is written.
    #[must_use]
    pub const fn mode(&self) -> u32 {
        if self.executable { 0o755 } else { 0o644 }
    }
}

/// The content of a skill's folder.
#[derive(Debug, Default)]
pub struct Content {
    /// The text of `SKILL.md`.
    pub text: String,
    /// The other files.
    pub files: Vec<SkillFile>,
    /// What is left out or changed.
    pub warnings: Vec<Problem>,
    entries: usize,
    total: u64,
}

/// Reads the folder of a skill. Links and special files are refused.
///
/// A file outside of the folder is not part of the skill.
///
/// # Errors
/// `Usage` without a `SKILL.md`, and for names that are no text; `Refused` for links, special files,
/// and more than the limits allow; `Failed` if something cannot be read.
pub fn read(folder: &Path) -> Result<Content> {
    let mut content = Content::default();
    content.folder(folder, "", 1)?;
    let Some(at) = content.files.iter().position(|file| file.path == SKILL_MD) else {
        return Err(Error::usage(format!("{} has no {SKILL_MD}", folder.display())));
    };
    content.text = String::from_utf8(content.files.remove(at).bytes)
        .map_err(|_| Error::usage(format!("{} is no UTF-8 text", folder.join(SKILL_MD).display())))?;
    // These are made of SKILL.md; two sources for one file would lose one.
    let is_ours = |path: &str| ["skill.toml", INSTRUCTIONS, FRONT_MATTER].contains(&path);
    if let Some(SkillFile { path, .. }) = content.files.iter().find(|file| is_ours(&file.path)) {
        return Err(Error::usage(format!(
            "{} would be overwritten by what {SKILL_MD} says: rename it, or copy the folder to .forge/skills as it is",
            folder.join(path).display()
        )));
    }
    content.files.sort();
    Ok(content)
}

/// Reads a `SKILL.md` that is given by itself.
///
/// # Errors
/// `Refused` if it is too large; `Failed` if it cannot be read as text.
pub fn text(file: &Path) -> Result<String> {
    let wrong = |error| Error::io("cannot read", file, &error);
    let mut text = String::new();
    fs::File::open(file).map_err(wrong)?.take(MAX_FILE + 1).read_to_string(&mut text).map_err(wrong)?;
    if text.len() as u64 > MAX_FILE {
        return Err(Error::refused(format!("{} is larger than {MAX_FILE} bytes", file.display())));
    }
    Ok(text)
}

/// Warns of the other files beside a `SKILL.md`, which are not imported.
///
/// A file of any other name has no relation to its folder, so there is no warning.
pub fn beside(file: &Path) -> Vec<Problem> {
    let Some(folder) = file.parent().filter(|_| file.file_name().is_some_and(|name| name == SKILL_MD)) else {
        return Vec::new();
    };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries
        .take(MAX_ENTRIES)
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name != SKILL_MD && !name.starts_with('.'))
        .collect();
    names.sort();
    if names.is_empty() {
        return Vec::new();
    }
    let what = names.iter().take(10).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let message = format!("{} more beside it, not taken over ({what}): import the folder instead", names.len());
    vec![Problem::new("not_taken", message)]
}

impl Content {
    fn folder(&mut self, folder: &Path, prefix: &str, depth: usize) -> Result<()> {
        if depth > MAX_DEPTH {
            return Err(Error::refused(format!("{} lies deeper than {MAX_DEPTH} folders", folder.display())));
        }
        let wrong = |error| Error::io("cannot read", folder, &error);
        for entry in fs::read_dir(folder).map_err(wrong)? {
            let entry = entry.map_err(wrong)?;
            let from = entry.path();
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                return Err(Error::refused(format!("{} holds more than {MAX_ENTRIES} entries", folder.display())));
            }
            let Some(name) = entry.file_name().to_str().map(ToOwned::to_owned) else {
                return Err(Error::usage(format!("the name of {} is no UTF-8 text", from.display())));
            };
            let path = format!("{prefix}{name}");
            if name.starts_with('.') {
                self.warnings.push(Problem::new("not_taken", format!("`{path}` is hidden, and is not taken over")));
                continue;
            }
            let kind = entry.file_type().map_err(|error| Error::io("cannot read", &from, &error))?;
            if kind.is_dir() {
                self.folder(&from, &format!("{path}/"), depth + 1)?;
            } else if kind.is_file() {
                self.file(&from, path)?;
            } else {
                let message = format!("{} is a link or no file: put a copy of the file in its place", from.display());
                return Err(Error::refused(message));
            }
        }
        Ok(())
    }

    fn file(&mut self, from: &Path, path: String) -> Result<()> {
        let wrong = |error: std::io::Error| Error::io("cannot read", from, &error);
        // It may have become something else since the folder was listed.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(from, flags, Mode::empty()).map_err(|error| wrong(error.into()))?;
        let file = fs::File::from(file);
        let found = file.metadata().map_err(wrong)?;
        if !found.is_file() {
            return Err(Error::refused(format!("{} is no file", from.display())));
        }
        let mut bytes = Vec::new();
        file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(wrong)?;
        let length = bytes.len() as u64;
        self.total += length;
        if length > MAX_FILE || self.total > MAX_TOTAL {
            return Err(Error::refused(format!(
                "{} is too large: a skill may have files of {MAX_FILE} bytes, {MAX_TOTAL} bytes together",
                from.display()
            )));
        }
        let executable = found.permissions().mode() & 0o111 != 0;
        self.files.push(SkillFile { path, bytes, executable });
        Ok(())
    }
}
