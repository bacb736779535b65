//! A repository, a vault and a home, and a way to look at them that keeps count.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::readers::{Contents, DirEntry, Disk, FileInfo, Look};

use crate::{Context, Given, Seam, SeamConfig, StateError, Which};

/// What the project is called.
pub(super) const SLUG: &str = "seam-fixture";
/// Where projects lie in each layout.
pub(super) const PROJECTS: [&str; 3] = ["projects", "desk/projects", "personal-projects"];

/// Folders of a test: `repo`, `vault`, `home`.
pub(super) struct Fixture {
    folder: tempfile::TempDir,
    pub(super) config: SeamConfig,
    pub(super) look: Arc<Counted>,
    /// Where the project lies in the vault, from its root.
    pub(super) project: String,
}

impl Fixture {
    /// A project with a name, and a vault that has it and is not given to anybody yet.
    pub(super) fn new() -> Self {
        Self::in_layout(PROJECTS[0])
    }

    pub(super) fn in_layout(projects: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        let mut config = SeamConfig::new(real.join("repo"));
        config.home = Some(real.join("home"));
        let project = format!("{projects}/{SLUG}");
        let fixture = Self {
            folder,
            config,
            look: Arc::default(),
            project,
        };
        fixture.write(
            "repo/.harness/project.json",
            format!("{{\"vault_project\": \"{SLUG}\"}}"),
        );
        for folder in [
            format!("vault/{}/_harness", fixture.project),
            "home".to_owned(),
        ] {
            std::fs::create_dir_all(fixture.path(&folder)).unwrap();
        }
        fixture
    }

    /// The same, with the vault given.
    pub(super) fn with_vault() -> Self {
        Self::new().given("vault")
    }

    pub(super) fn given(mut self, vault: &str) -> Self {
        let path = OsString::from(self.path(vault));
        self.config.vaults = vec![Given {
            by: "MEMORY_VAULT_PATH".into(),
            path,
        }];
        self
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(path)
    }

    pub(super) fn write(&self, path: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    /// Writes a note of the project in the vault.
    pub(super) fn note(&self, path: &str, bytes: impl AsRef<[u8]>) {
        self.write(&format!("vault/{}/{path}", self.project), bytes);
    }

    /// Writes a note that is always loaded.
    pub(super) fn always(&self, name: &str, bytes: impl AsRef<[u8]>) {
        self.write(
            &format!("vault/personal-private/_always-load/{name}.md"),
            bytes,
        );
    }

    pub(super) fn remove(&self, path: &str) {
        std::fs::remove_file(self.path(path)).unwrap();
    }

    pub(super) fn link(&self, target: &str, path: &str) {
        std::os::unix::fs::symlink(target, self.path(path)).unwrap();
    }

    pub(super) fn seam(&self) -> Seam {
        Seam::new(self.config.clone(), self.look.clone())
    }

    pub(super) fn context(&self) -> Context {
        Context {
            cwd: Some(self.path("repo")),
            ..Context::default()
        }
    }

    pub(super) fn recall(&self, phase: &str) -> String {
        self.seam().recall_here(
            &Context {
                phase: Some(phase.into()),
                ..self.context()
            },
            None,
            None,
        )
    }

    pub(super) fn state(&self, which: Which) -> Result<PathBuf, StateError> {
        self.seam().state_path(&self.context(), which)
    }

    pub(super) fn plan(&self, plan: &str) -> Result<PathBuf, StateError> {
        self.seam().state_path(
            &Context {
                plan: Some(plan.into()),
                ..self.context()
            },
            Which::Plan,
        )
    }

    /// Everything that is in the folders: what it is, when it was changed, and what it holds.
    pub(super) fn snapshot(&self) -> BTreeMap<PathBuf, (u32, i64, i64, Vec<u8>)> {
        fn add(folder: &Path, all: &mut BTreeMap<PathBuf, (u32, i64, i64, Vec<u8>)>) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let about = path.symlink_metadata().unwrap();
                let bytes = if about.is_file() {
                    std::fs::read(&path).unwrap()
                } else {
                    Vec::new()
                };
                all.insert(
                    path.clone(),
                    (about.mode(), about.mtime(), about.mtime_nsec(), bytes),
                );
                if about.is_dir() {
                    add(&path, all);
                }
            }
        }
        let mut all = BTreeMap::new();
        add(self.folder.path(), &mut all);
        all
    }
}

/// Reads the disk, counts the reads, and refuses the chosen paths.
#[derive(Debug, Default)]
pub(super) struct Counted {
    reads: Mutex<Vec<(PathBuf, usize)>>,
    refused: Mutex<Vec<PathBuf>>,
    foreign: Mutex<Vec<PathBuf>>,
    lists: Mutex<Vec<PathBuf>>,
}

impl Counted {
    /// Returns the folders that were listed.
    pub(super) fn lists(&self) -> Vec<PathBuf> {
        self.lists.lock().unwrap().clone()
    }

    /// Refuses everything about a path: the tests may run as root, whom no file refuses anything.
    pub(super) fn refuse(&self, path: PathBuf) {
        self.refused.lock().unwrap().push(path);
    }

    /// Gives a path, and all that lies below it, to another user: only root could do so.
    pub(super) fn give_away(&self, path: PathBuf) {
        self.foreign.lock().unwrap().push(path);
    }

    /// Returns the files that were read, each with how many bytes of it.
    pub(super) fn reads(&self) -> Vec<(PathBuf, usize)> {
        self.reads.lock().unwrap().clone()
    }

    fn check(&self, path: &Path) -> io::Result<()> {
        let refused = self
            .refused
            .lock()
            .unwrap()
            .iter()
            .any(|refused| path.starts_with(refused));
        if refused {
            Err(io::ErrorKind::PermissionDenied.into())
        } else {
            Ok(())
        }
    }

    fn describe(&self, path: &Path, about: Option<FileInfo>) -> Option<FileInfo> {
        let given = self
            .foreign
            .lock()
            .unwrap()
            .iter()
            .any(|foreign| path.starts_with(foreign));
        about.map(|about| FileInfo {
            foreign: about.foreign || given,
            ..about
        })
    }

    fn count(&self, path: &Path, bytes: Option<usize>) {
        if let Some(bytes) = bytes {
            self.reads.lock().unwrap().push((path.to_owned(), bytes));
        }
    }
}

impl Look for Counted {
    fn about(&self, path: &Path) -> io::Result<Option<FileInfo>> {
        self.check(path.parent().unwrap_or(path))?;
        Ok(self.describe(path, Disk.about(path)?))
    }

    fn behind(&self, path: &Path) -> io::Result<Option<FileInfo>> {
        self.check(path.parent().unwrap_or(path))?;
        Ok(self.describe(path, Disk.behind(path)?))
    }

    fn read(&self, path: &Path, most: usize) -> io::Result<Option<Contents>> {
        self.check(path)?;
        let contents = Disk.read(path, most)?;
        self.count(path, contents.as_ref().map(|contents| contents.bytes.len()));
        Ok(contents)
    }

    fn read_within(&self, folder: &Path, path: &Path, most: usize) -> io::Result<Option<Contents>> {
        self.check(path)?;
        let contents = Disk.read_within(folder, path, most)?;
        self.count(path, contents.as_ref().map(|contents| contents.bytes.len()));
        Ok(contents)
    }

    fn read_below(&self, folder: &Path, path: &str, most: usize) -> io::Result<Option<Vec<u8>>> {
        self.check(&folder.join(path))?;
        let bytes = Disk.read_below(folder, path, most)?;
        self.count(&folder.join(path), bytes.as_ref().map(Vec::len));
        Ok(bytes)
    }

    fn list(&self, folder: &Path, most: usize) -> io::Result<Option<Vec<DirEntry>>> {
        self.check(folder)?;
        self.lists.lock().unwrap().push(folder.to_owned());
        Disk.list(folder, most)
    }

    fn real(&self, path: &Path) -> Option<PathBuf> {
        Disk.real(path)
    }
}
