//! Read-only view of a note vault in any of agentm's layouts.
//!
//! | | always loaded | projects |
//! |---|---|---|
//! | first | `personal-private/_always-load/` | `projects/<name>/`, before that `personal-projects/<name>/` |
//! | `desk` | `memory/_always-load/` | `desk/projects/<name>/` |
//! | tasks | `personal/_always-load/` | `projects/<name>/` with `tasks/NNN-<name>/` |

mod note;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path, PathBuf};

use helmdeck_core::text::is_hidden;
use serde::Serialize;

pub use note::{Note, Priority};

use super::{Kind, Look, Name};

/// The folder of notes that are always loaded, below a space.
const ALWAYS_LOAD: &str = "_always-load";
/// Folders that may hold memory, newest first.
///
/// All are read; a note of a newer one hides one of the same name.
const SPACES: [&str; 3] = ["memory", "personal", "personal-private"];
/// The folders that may hold projects, in the order in which they are looked at.
const PROJECTS: [(Layout, &str); 3] = [
    (Layout::Root, "projects"),
    (Layout::Desk, "desk/projects"),
    (Layout::Legacy, "personal-projects"),
];
/// Maximum number of entries of one folder.
const MOST_NOTES: usize = 100_000;
/// Maximum length of a note's front matter, in bytes. Longer front matter counts as text.
const MOST_FRONT: usize = 64 << 10;
/// Usual maximum length of front matter, in bytes.
const USUAL_FRONT: usize = 4 << 10;

/// Location of the projects of a vault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// In `projects/`.
    Root,
    /// In `desk/projects/`.
    Desk,
    /// In `personal-projects/`.
    Legacy,
    /// The folder from the settings of the vault.
    Set,
}

/// Folders of a vault that its settings name, from its root.
///
/// A folder that is absent here has its default place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spaces {
    memory: Option<PathBuf>,
    projects: Option<PathBuf>,
}

impl Spaces {
    /// Sets the folder of the space `memory` or `projects`. Other names are ignored.
    ///
    /// # Errors
    /// Why the path is refused: it must be relative, and lead only down.
    pub fn set(&mut self, name: &str, path: &str) -> Result<(), String> {
        let path = below(path)?;
        match name {
            "memory" => self.memory = Some(path),
            "projects" => self.projects = Some(path),
            _ => {}
        }
        Ok(())
    }
}

/// Parses a path that leads down from the root of a vault.
///
/// # Errors
/// Why it is refused.
fn below(path: &str) -> Result<PathBuf, String> {
    let down = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    let fits = !path.trim().is_empty()
        && !path.contains([':', '\\'])
        && !path.contains(is_hidden)
        && Path::new(path).components().all(down);
    if fits {
        Ok(PathBuf::from(path.trim()))
    } else {
        Err(format!(
            "{path:?} is no path that leads down from the vault"
        ))
    }
}

/// Folder of a project in a vault. It need not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectFolder {
    /// Its folder.
    pub path: PathBuf,
    /// The same from the root of the vault, with `/` between the parts.
    pub key: String,
    /// In which layout.
    pub layout: Layout,
    /// Whether it exists.
    pub exists: bool,
}

/// A note that was not opened yet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NoteFile {
    /// Its path.
    pub path: PathBuf,
    /// Its name without `.md`.
    pub stem: String,
}

/// The notes that are always loaded, of all spaces.
#[derive(Debug, Default)]
pub struct AlwaysLoad {
    /// Those of the newest space first, in each by name.
    pub notes: Vec<NoteFile>,
    /// Notes of older spaces that are left out, each with the note of the same name that hides it.
    pub hidden: Vec<(PathBuf, PathBuf)>,
    /// Folders that exist and cannot be read, and why.
    pub unreadable: Vec<(PathBuf, io::Error)>,
}

/// A vault. It has no function that writes.
#[derive(Debug, Clone)]
pub struct Vault<'a> {
    look: &'a dyn Look,
    root: PathBuf,
    spaces: Spaces,
}

impl<'a> Vault<'a> {
    /// Makes the vault at a folder. Nothing is opened.
    #[must_use]
    pub fn new(look: &'a dyn Look, root: PathBuf, spaces: Spaces) -> Self {
        Self { look, root, spaces }
    }

    /// Makes the vault in a folder below this one.
    ///
    /// # Errors
    /// Why the path is refused.
    pub fn within(mut self, path: &str) -> Result<Self, String> {
        self.root.push(below(path)?);
        Ok(self)
    }

    /// Returns its root.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the folder of a project: in the first folder of projects that contains it.
    ///
    /// For a project that is in none, it is where the vault's other projects are.
    #[must_use]
    pub fn project(&self, name: &Name) -> ProjectFolder {
        let set = self
            .spaces
            .projects
            .iter()
            .filter_map(|path| path.to_str())
            .map(|path| (Layout::Set, path));
        let all = || set.clone().chain(PROJECTS);
        let place = |(layout, folder): (Layout, &str), exists| ProjectFolder {
            path: self.root.join(folder).join(name),
            key: format!("{folder}/{name}"),
            layout,
            exists,
        };
        if let Some(found) =
            all().find(|(_, folder)| self.is_folder(&self.root.join(folder).join(name)))
        {
            return place(found, true);
        }
        let new = all().find(|(layout, folder)| {
            *layout == Layout::Set || self.is_folder(&self.root.join(folder))
        });
        // Nothing new is put where projects lay once.
        let new = new.filter(|(layout, _)| *layout != Layout::Legacy);
        let desk = || {
            self.is_folder(&self.root.join("desk"))
                .then_some(PROJECTS[1])
        };
        place(new.or_else(desk).unwrap_or(PROJECTS[0]), false)
    }

    /// Returns the folders of older layouts that also have the project.
    ///
    /// [`Self::project`] passes over them.
    #[must_use]
    pub fn hidden_projects(&self, name: &Name) -> Vec<PathBuf> {
        let place = self.project(name);
        let real = self.look.real(&place.path);
        let all = self
            .spaces
            .projects
            .iter()
            .cloned()
            .chain(PROJECTS.iter().map(|(_, folder)| PathBuf::from(folder)));
        let all = all
            .map(|folder| self.root.join(folder).join(name))
            .filter(|path| self.is_folder(path));
        // A link from an old place to the new one is the same folder.
        all.filter(|path| *path != place.path && self.look.real(path) != real)
            .collect()
    }

    /// Returns the notes that are always loaded: those of every space, each name once.
    #[must_use]
    pub fn always_load(&self) -> AlwaysLoad {
        let mut all = AlwaysLoad::default();
        let mut known: BTreeMap<OsString, PathBuf> = BTreeMap::new();
        let mut folders = Vec::new();
        for space in self.memory() {
            let folder = self.root.join(space).join(ALWAYS_LOAD);
            let notes = match self.notes(&folder) {
                Ok(notes) if notes.is_empty() => continue,
                Ok(notes) => notes,
                Err(error) => {
                    all.unreadable.push((folder, error));
                    continue;
                }
            };
            // A link from an old place to the new one is the same folder.
            let real = self.look.real(&folder).unwrap_or(folder);
            if folders.contains(&real) {
                continue;
            }
            folders.push(real);
            for note in notes {
                let Some(name) = note.path.file_name() else {
                    continue;
                };
                match known.get(name) {
                    Some(newer) => all.hidden.push((note.path, newer.clone())),
                    None => {
                        known.insert(name.to_owned(), note.path.clone());
                        all.notes.push(note);
                    }
                }
            }
        }
        all
    }

    /// Returns the spaces for memory, from the root, the newest first.
    fn memory(&self) -> impl Iterator<Item = PathBuf> {
        self.spaces
            .memory
            .iter()
            .cloned()
            .chain(SPACES.iter().map(PathBuf::from))
    }

    /// Returns the folders for notes of a kind that belong to no project.
    ///
    /// They need not exist.
    pub fn folders_of(&self, kind: &Name) -> impl Iterator<Item = PathBuf> {
        self.memory()
            .map(|space| self.root.join(space).join(kind))
            .collect::<Vec<_>>()
            .into_iter()
    }

    /// Returns the notes in a folder, by name: `*.md`, not those in folders below it, nor hidden
    /// ones, nor [copies](is_conflict).
    ///
    /// # Errors
    /// What the system says; an error for a folder that a link has outside of the vault.
    pub fn notes(&self, folder: &Path) -> io::Result<Vec<NoteFile>> {
        if self.look.leads_out(&self.root, folder) {
            return Err(io::Error::other("it leads out of the vault"));
        }
        let entries = self.look.list(folder, MOST_NOTES)?.unwrap_or_default();
        let notes = entries
            .into_iter()
            .filter(|entry| !entry.folder)
            .filter_map(|entry| {
                let path = Path::new(&entry.name);
                let hidden = entry.name.as_encoded_bytes().starts_with(b".");
                if hidden || path.extension() != Some(OsStr::new("md")) {
                    return None;
                }
                let stem = path.file_stem()?.to_string_lossy().into_owned();
                if is_conflict(&stem) {
                    return None;
                }
                Some(NoteFile {
                    path: folder.join(&entry.name),
                    stem,
                })
            });
        Ok(notes.collect())
    }

    /// Reads a note: its front matter, and at least `most` bytes of its text, or all.
    ///
    /// Returns `None` if the note is gone.
    ///
    /// # Errors
    /// The system's error; an error for a note that a link leads outside of the vault.
    pub fn note(&self, path: &Path, most: usize) -> io::Result<Option<Note>> {
        // Front matter is short: as much of it as is allowed is read only if it has not ended by
        // then.
        let first = most.saturating_add(USUAL_FRONT);
        let Some(mut contents) = self.look.read_within(&self.root, path, first)? else {
            return Ok(None);
        };
        if !contents.whole && note::is_cut(&contents.bytes) {
            let Some(more) =
                self.look
                    .read_within(&self.root, path, first.saturating_add(MOST_FRONT))?
            else {
                return Ok(None);
            };
            contents = more;
        }
        Ok(Some(Note::parse(&contents.bytes, contents.whole)))
    }

    /// Reads the start of a note, at most `most` bytes, for its front matter if that is no longer.
    ///
    /// Returns `None` if the note is gone.
    ///
    /// # Errors
    /// As [`Self::note`].
    pub fn head(&self, path: &Path, most: usize) -> io::Result<Option<Note>> {
        let contents = self.look.read_within(&self.root, path, most)?;
        Ok(contents.map(|contents| Note::parse(&contents.bytes, contents.whole)))
    }

    fn is_folder(&self, path: &Path) -> bool {
        self.look
            .behind(path)
            .ok()
            .flatten()
            .is_some_and(|about| about.kind == Kind::Folder)
    }
}

/// Returns whether a name without its ending is that of a conflict copy.
///
/// A sync leaves such a copy when a file was changed in two places.
#[must_use]
pub fn is_conflict(stem: &str) -> bool {
    let stem = stem.to_lowercase();
    let copied = stem
        .split_once('(')
        .is_some_and(|(_, rest)| rest.contains("conflicted copy"));
    copied || stem.contains("[conflict") || stem.contains(".sync-conflict-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readers::Disk;

    fn vault(folders: &[&str]) -> tempfile::TempDir {
        let vault = tempfile::tempdir().unwrap();
        for folder in folders {
            std::fs::create_dir_all(vault.path().join(folder)).unwrap();
        }
        vault
    }

    fn at(vault: &tempfile::TempDir) -> Vault<'static> {
        Vault::new(&Disk, vault.path().to_owned(), Spaces::default())
    }

    fn stems(vault: &Vault<'_>) -> Vec<String> {
        vault
            .always_load()
            .notes
            .into_iter()
            .map(|note| note.stem)
            .collect()
    }

    #[test]
    fn a_project_is_found_in_every_layout() {
        let name = Name::parse("x").unwrap();
        for (folders, key, layout, exists) in [
            (&["projects/x"][..], "projects/x", Layout::Root, true),
            (&["desk/projects/x"], "desk/projects/x", Layout::Desk, true),
            (
                &["personal-projects/x"],
                "personal-projects/x",
                Layout::Legacy,
                true,
            ),
            (
                &["projects", "desk/projects/x"],
                "desk/projects/x",
                Layout::Desk,
                true,
            ),
            (
                &["projects/x", "desk/projects/x"],
                "projects/x",
                Layout::Root,
                true,
            ),
            // A new one goes where the others are, but never where they were once.
            (
                &["projects/y", "personal-projects"],
                "projects/x",
                Layout::Root,
                false,
            ),
            (&["desk/projects"], "desk/projects/x", Layout::Desk, false),
            (&["desk"], "desk/projects/x", Layout::Desk, false),
            (&["personal-projects"], "projects/x", Layout::Root, false),
            (&[], "projects/x", Layout::Root, false),
        ] {
            let vault = vault(folders);
            let place = at(&vault).project(&name);
            assert_eq!(
                (place.key.as_str(), place.layout, place.exists),
                (key, layout, exists),
                "{folders:?}"
            );
            assert_eq!(place.path, vault.path().join(key));
        }
    }

    #[test]
    fn settings_move_the_spaces() {
        let folder = vault(&[
            "mem/_always-load",
            "work/projects",
            "projects/x",
            "memory/_always-load",
        ]);
        std::fs::write(folder.path().join("mem/_always-load/a.md"), "a").unwrap();
        std::fs::write(folder.path().join("memory/_always-load/b.md"), "b").unwrap();
        let mut spaces = Spaces::default();
        spaces.set("memory", "mem").unwrap();
        spaces.set("projects", "work/projects").unwrap();
        spaces.set("briefs", "desk/briefs").unwrap();
        for bad in ["", "/etc", "../x", "a/../b", "c:x", "a\\b", "a\nb"] {
            assert!(spaces.set("memory", bad).is_err(), "{bad:?}");
            assert!(at(&folder).within(bad).is_err(), "{bad:?}");
        }
        let vault = Vault::new(&Disk, folder.path().to_owned(), spaces);
        assert_eq!(stems(&vault), ["a", "b"], "the default place is read, too");
        assert_eq!(
            vault.project(&Name::parse("x").unwrap()).key,
            "projects/x",
            "it is there"
        );
        let new = vault.project(&Name::parse("y").unwrap());
        assert_eq!(
            (new.key.as_str(), new.layout),
            ("work/projects/y", Layout::Set)
        );
    }

    #[test]
    fn notes_are_the_markdown_files_of_one_folder_by_name() {
        let folder = vault(&[
            "personal-private/_always-load/deep",
            "memory/_always-load",
            "personal-private/_always-load/z.md",
        ]);
        let always = folder.path().join("personal-private/_always-load");
        for name in [
            "b.md",
            "a.md",
            "c.txt",
            ".hidden.md",
            "._a.md",
            "deep/d.md",
            "README",
        ] {
            std::fs::write(always.join(name), "x").unwrap();
        }
        std::os::unix::fs::symlink("a.md", always.join("l.md")).unwrap();
        assert_eq!(
            stems(&at(&folder)),
            ["a", "b", "l"],
            "an empty space of a newer layout does not hide them"
        );
        assert!(
            at(&folder)
                .notes(&folder.path().join("absent"))
                .unwrap()
                .is_empty()
        );
        assert!(stems(&at(&vault(&[]))).is_empty());
    }

    #[test]
    fn all_spaces_are_read_and_the_newest_note_of_a_name_counts() {
        let folder = vault(&["memory/_always-load", "personal-private/_always-load"]);
        let path = |path: &str| folder.path().join(path);
        for note in [
            "memory/_always-load/b.md",
            "personal-private/_always-load/a.md",
            "personal-private/_always-load/b.md",
        ] {
            std::fs::write(path(note), "x").unwrap();
        }
        // An old place that leads to a new one hides nothing.
        std::os::unix::fs::symlink("memory", path("personal")).unwrap();
        std::fs::write(path("memory/kind"), "x").unwrap();
        let all = at(&folder).always_load();
        assert_eq!(
            all.notes
                .iter()
                .map(|note| note.stem.as_str())
                .collect::<Vec<_>>(),
            ["b", "a"]
        );
        assert_eq!(
            all.hidden,
            [(
                path("personal-private/_always-load/b.md"),
                path("memory/_always-load/b.md")
            )]
        );
        let name = Name::parse("x").unwrap();
        std::fs::create_dir_all(path("projects/x")).unwrap();
        assert!(at(&folder).hidden_projects(&name).is_empty());
        std::fs::create_dir_all(path("desk/projects/x")).unwrap();
        std::os::unix::fs::symlink("projects", path("personal-projects")).unwrap();
        assert_eq!(
            at(&folder).hidden_projects(&name),
            [path("desk/projects/x")]
        );
    }

    #[test]
    fn copies_that_a_sync_left_are_no_notes() {
        let folder = vault(&["notes"]);
        for copy in [
            "rule (conflicted copy 2026)",
            "rule (Alex's conflicted copy 2026-01-01)",
            "rule (Conflicted copy of a phone 202601011200)",
            "rule (conflicted copy 2026) (b)",
            "rule [Conflict]",
            "rule.sync-conflict-20260101-120000-ABCDEFG",
        ] {
            assert!(is_conflict(copy), "{copy}");
            std::fs::write(folder.path().join("notes").join(format!("{copy}.md")), "x").unwrap();
        }
        for note in [
            "rule",
            "rule (2)",
            "how a conflicted copy comes about",
            "sync-conflicts",
            "Copy of a rule",
        ] {
            assert!(!is_conflict(note), "{note}");
            std::fs::write(folder.path().join("notes").join(format!("{note}.md")), "x").unwrap();
        }
        assert_eq!(
            at(&folder)
                .notes(&folder.path().join("notes"))
                .unwrap()
                .len(),
            5
        );
    }

    #[test]
    fn no_more_of_a_note_is_read_than_asked_for() {
        let folder = vault(&[]);
        let path = folder.path().join("a.md");
        std::fs::write(
            &path,
            format!(
                "---\nstatus: active\nx: {}\n---\n\n{}",
                "y".repeat(5_000),
                "z".repeat(90_000)
            ),
        )
        .unwrap();
        let note = at(&folder).note(&path, 100).unwrap().unwrap();
        assert!(!note.whole && note.text().len() < 80_000 && note.text().starts_with("zz"));
        std::fs::write(&path, "z".repeat(90_000)).unwrap();
        assert_eq!(
            at(&folder).note(&path, 100).unwrap().unwrap().text().len(),
            4_196
        );
        assert!(
            at(&folder)
                .note(&folder.path().join("absent.md"), 100)
                .unwrap()
                .is_none()
        );
        assert!(at(&folder).note(folder.path(), 100).is_err());
    }
}
