//! Read-only view of the long-term memory in `.forge/`.

use std::path::{Path, PathBuf};

use helmdeck_core::text::collapse_whitespace;
use helmdeck_forge_documents::ARCHITECTURE as DEFAULT_ARCHITECTURE;
use helmdeck_forge_documents::features::{FeaturesFile, Status};
use helmdeck_forge_documents::knowledge::{Kind as Sort, KnowledgeFile};
use helmdeck_forge_files::files::{Document, EntryFile, MAX_FILE, Unreadable, decode, is_made};
use helmdeck_forge_files::layout::{ARCHITECTURE, FORGE};
use helmdeck_forge_files::time::Time;

use super::look::{Kind, Look};

/// Maximum number of entries of a document that have files of their own.
const MOST_ENTRIES: usize = 20_000;

/// The long-term memory of a project. Nothing is ever written: a damaged file is not even copied
/// aside.
#[derive(Debug, Clone)]
pub struct LongTerm<'a> {
    look: &'a dyn Look,
    root: PathBuf,
}

/// Topic of learned knowledge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// An invariant.
    Invariant,
    /// A decision, or an approach that works.
    Decision,
    /// An approach that does not work.
    Issue,
}

/// Something that was learned and still holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Learned {
    /// Topic.
    pub topic: Topic,
    /// Its id.
    pub id: String,
    /// Its texts, each with its name. The first one says when it applies.
    pub texts: Vec<(&'static str, String)>,
    /// When it was learned or last confirmed.
    pub fresh_at: Option<Time>,
}

impl Learned {
    /// Returns its texts as one, each but the first under its name.
    #[must_use]
    pub fn text(&self) -> String {
        let mut texts = self.texts.iter();
        let mut text = texts
            .next()
            .map(|(_, text)| text.clone())
            .unwrap_or_default();
        for (name, more) in texts {
            text.push_str(&format!("\n\n{name}: {more}"));
        }
        text
    }

    /// Returns the texts that say what was learned.
    ///
    /// They are the whole text, and its main fields without when, why and how.
    pub fn sayings(&self) -> impl Iterator<Item = String> {
        const SAID: [&str; 4] = ["text", "approach", "issue", "decision"];
        let said = self
            .texts
            .iter()
            .filter(|(name, _)| SAID.contains(name))
            .map(|(_, text)| text.clone());
        std::iter::once(self.text()).chain(said)
    }
}

impl<'a> LongTerm<'a> {
    /// Finds the nearest `.forge/` at or above a folder.
    ///
    /// With the root of a repository it looks up to there. Without one, it looks only in the folder
    /// itself, and refuses that of another user: any user may put a folder into `/tmp`.
    ///
    /// # Errors
    /// Why it is refused or the search fails, on one line.
    pub fn find(
        look: &'a dyn Look,
        start: &Path,
        repository: Option<&Path>,
    ) -> Result<Option<Self>, String> {
        for folder in start.ancestors() {
            let forge = folder.join(FORGE);
            let about = look
                .behind(&forge)
                .map_err(|error| format!("{}: {error}", forge.display()))?;
            if let Some(about) = about.filter(|about| about.kind == Kind::Folder) {
                if repository.is_none() && about.foreign {
                    return Err(format!("{}: it belongs to another user", forge.display()));
                }
                return Ok(Some(Self {
                    look,
                    root: folder.to_owned(),
                }));
            }
            if repository.is_none_or(|root| root == folder) {
                break;
            }
        }
        Ok(None)
    }

    /// Returns the folder that holds `.forge/`.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns learned knowledge that was not superseded, newest of each topic first.
    ///
    /// # Errors
    /// Why it cannot be read, with the place, on one line.
    pub fn learned(&self) -> Result<Vec<Learned>, String> {
        let Some(file) = self.document::<KnowledgeFile>()? else {
            return Ok(Vec::new());
        };
        let mut learned: Vec<Learned> = file
            .entries()
            .filter(|entry| entry.trace.superseded_by.is_none())
            .map(|entry| Learned {
                topic: match entry.kind {
                    Sort::Invariant => Topic::Invariant,
                    Sort::Decision | Sort::Successful => Topic::Decision,
                    Sort::Failed => Topic::Issue,
                },
                id: entry.id(),
                texts: entry
                    .texts()
                    .iter()
                    .map(|(name, text)| (*name, (*text).to_owned()))
                    .collect(),
                fresh_at: entry.fresh_at(),
            })
            .collect();
        learned.sort_by_key(|entry| (entry.topic, std::cmp::Reverse(entry.fresh_at)));
        Ok(learned)
    }

    /// Returns the features in work and those that do not work, a line each.
    ///
    /// # Errors
    /// As [`Self::learned`].
    pub fn open_features(&self) -> Result<Vec<String>, String> {
        let Some(file) = self.document::<FeaturesFile>()? else {
            return Ok(Vec::new());
        };
        let open = |status| {
            matches!(
                status,
                Status::InProgress | Status::Failing | Status::Blocked
            )
        };
        Ok(file
            .features
            .iter()
            .filter(|feature| open(feature.status))
            .map(|feature| {
                format!(
                    "{} {}: {}",
                    feature.id,
                    collapse_whitespace(&feature.name),
                    feature.status
                )
            })
            .collect())
    }

    /// Returns how the system is built, as it was written. The default content of a new project
    /// says nothing, and is not returned.
    ///
    /// # Errors
    /// As [`Self::learned`].
    pub fn architecture(&self) -> Result<Option<String>, String> {
        let bytes = self
            .read(ARCHITECTURE)?
            .filter(|bytes| bytes != DEFAULT_ARCHITECTURE);
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Makes a document from its entries. One that somebody else wrote is read too.
    fn document<D: Document>(&self) -> Result<Option<D>, String> {
        let Some(entries) = D::ENTRIES else {
            return Ok(None);
        };
        let listed = self
            .look
            .list(&self.root.join(entries.folder), MOST_ENTRIES);
        let listed = listed
            .map_err(|error| self.wrong(entries.folder, error))?
            .unwrap_or_default();
        let mut files = Vec::new();
        for name in listed
            .iter()
            .filter_map(|entry| entry.name.to_str().filter(|name| EntryFile::is_one(name)))
        {
            let path = format!("{}/{name}", entries.folder);
            let bytes = self.read(&path)?;
            files.extend(bytes.map(|bytes| EntryFile {
                path,
                bytes,
                modified: Time::UNKNOWN,
            }));
        }
        files.sort();
        let whole = self.read(D::PATH)?.filter(|bytes| !is_made(bytes));
        let whole = whole
            .map(|bytes| decode::<D>(&bytes).map_err(|why| self.unreadable(D::PATH, why)))
            .transpose()?;
        if files.is_empty() && whole.is_none() {
            return Ok(None);
        }
        let mut joined = (entries.join)(&files, whole.map(|(document, _)| document));
        // A damaged entry hides no other. If there is no other, it is told.
        match joined.damaged.pop() {
            Some((file, why)) if joined.damaged.len() + 1 == files.len() => {
                Err(self.unreadable(&files[file].path, why))
            }
            _ => Ok(Some(joined.document)),
        }
    }

    fn read(&self, path: &str) -> Result<Option<Vec<u8>>, String> {
        let most = usize::try_from(MAX_FILE).unwrap_or(usize::MAX);
        // What lies in the project, and not in its memory, is none of it.
        if self
            .look
            .leads_out(&self.root.join(FORGE), &self.root.join(path))
        {
            return Err(self.wrong(path, "a link leads out of .forge"));
        }
        self.look
            .read_below(&self.root, path, most)
            .map_err(|error| self.wrong(path, error))
    }

    fn unreadable(&self, path: &str, why: Unreadable) -> String {
        match why {
            Unreadable::Newer(version) => {
                self.wrong(path, format!("a newer program wrote it ({version})"))
            }
            Unreadable::Damaged(damage) => self.wrong(
                &format!("{path}:{}:{}", damage.line, damage.column),
                damage.what,
            ),
        }
    }

    fn wrong(&self, path: &str, why: impl std::fmt::Display) -> String {
        format!("{}: {why}", self.root.join(path).display())
    }
}

#[cfg(test)]
mod tests {
    use helmdeck_forge_files::layout::{FEATURES, KNOWLEDGE};

    use super::super::look::Disk;
    use super::*;

    fn place() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join(".forge/memory/long-term")).unwrap();
        folder
    }

    fn open(folder: &Path) -> LongTerm<'static> {
        LongTerm::find(&Disk, folder, None).unwrap().unwrap()
    }

    #[test]
    fn the_example_of_the_rfc_is_read_topic_by_topic() {
        let folder = place();
        std::fs::write(
            folder.path().join(KNOWLEDGE),
            include_str!("../../forge_documents/fixtures/knowledge.json"),
        )
        .unwrap();
        std::fs::write(
            folder.path().join(FEATURES),
            include_str!("../../forge_documents/fixtures/features.json"),
        )
        .unwrap();
        std::fs::write(folder.path().join(ARCHITECTURE), b"# How\n\xff\n").unwrap();
        let memory = open(folder.path());
        let learned = memory.learned().unwrap();
        assert_eq!(
            learned.iter().map(|entry| entry.topic).collect::<Vec<_>>(),
            [
                Topic::Invariant,
                Topic::Invariant,
                Topic::Invariant,
                Topic::Decision,
                Topic::Issue
            ]
        );
        assert_eq!(
            learned[0].texts,
            [(
                "text",
                "Never use Blake3 - only Murmur3 trivariate".to_owned()
            )]
        );
        assert_eq!(learned[4].texts[2].0, "resolution");
        assert!(
            memory.open_features().unwrap().is_empty(),
            "one passes, and nobody has begun the other"
        );
        assert_eq!(memory.architecture().unwrap().unwrap(), "# How\n\u{fffd}\n");
        std::fs::write(folder.path().join(ARCHITECTURE), DEFAULT_ARCHITECTURE).unwrap();
        assert_eq!(
            memory.architecture().unwrap(),
            None,
            "nobody has written anything yet"
        );
    }

    #[test]
    fn what_is_superseded_is_left_out_and_the_freshest_comes_first() {
        let folder = place();
        let entry = |text: &str, day: u32, more: &str| {
            format!(
                r#"{{"context":"{text}","decision":"d","rationale":"r","learned_at":"2025-12-{day}T10:00:00Z"{more}}}"#
            )
        };
        let decisions = [
            entry("old", 10, ""),
            entry("gone", 12, r#","superseded_by":"x""#),
            entry("new", 11, ""),
            entry(
                "confirmed",
                10,
                r#","last_confirmed_at":"2025-12-20T10:00:00Z""#,
            ),
        ];
        let text = format!(
            r#"{{"schema_version":"1.0","decisions":[{}]}}"#,
            decisions.join(",")
        );
        std::fs::write(folder.path().join(KNOWLEDGE), text).unwrap();
        let learned = open(folder.path()).learned().unwrap();
        assert_eq!(
            learned
                .iter()
                .map(|entry| &*entry.texts[0].1)
                .collect::<Vec<_>>(),
            ["confirmed", "new", "old"]
        );
    }

    #[test]
    fn a_damaged_file_is_told_and_nothing_is_written() {
        let folder = place();
        std::fs::write(folder.path().join(KNOWLEDGE), "{\"schema_version\": ").unwrap();
        std::fs::write(
            folder.path().join(FEATURES),
            b"{\"schema_version\": \"1.0\xff\"}",
        )
        .unwrap();
        let memory = open(folder.path());
        let why = memory.learned().unwrap_err();
        assert!(
            why.contains("knowledge.json:1:") && !why.contains('\n'),
            "{why}"
        );
        assert!(memory.open_features().unwrap_err().contains("UTF-8"));
        assert!(memory.architecture().unwrap().is_none());
        assert!(
            !folder.path().join(".forge/.local").exists(),
            "no copy was put aside"
        );
    }

    #[test]
    fn links_are_not_read() {
        let folder = place();
        std::fs::write(folder.path().join("secret"), "SECRET").unwrap();
        let link = folder.path().join(ARCHITECTURE);
        std::os::unix::fs::symlink("../../../secret", &link).unwrap();
        let why = open(folder.path()).architecture().unwrap_err();
        assert!(
            why.contains("a link leads out of .forge") && !why.contains("SECRET"),
            "{why}"
        );
        std::fs::remove_file(&link).unwrap();
        std::fs::write(folder.path().join(".forge/how.md"), "HOW").unwrap();
        std::os::unix::fs::symlink("../../how.md", &link).unwrap();
        assert!(
            open(folder.path())
                .architecture()
                .unwrap_err()
                .contains("is a link"),
            "inside of .forge too"
        );
    }

    #[test]
    fn it_is_looked_for_up_to_the_root_of_the_repository_only() {
        let folder = place();
        let inner = folder.path().join("repo/sub");
        std::fs::create_dir_all(&inner).unwrap();
        assert!(
            LongTerm::find(&Disk, &inner, Some(folder.path()))
                .unwrap()
                .is_some()
        );
        assert!(
            LongTerm::find(&Disk, &inner, Some(&folder.path().join("repo")))
                .unwrap()
                .is_none()
        );
        assert!(LongTerm::find(&Disk, &inner, None).unwrap().is_none());
        assert!(
            LongTerm::find(&Disk, folder.path(), None)
                .unwrap()
                .is_some()
        );
    }
}
