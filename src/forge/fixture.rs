//! Test fixture: a project in a real repository, and workers in other processes.
//!
//! The clock is manual, and ids are sequential.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use helmdeck_core::{ManualClock, Timestamp};
use uuid::Uuid;

use crate::environment::{Ids, ProjectEnvironment};
use crate::files::{Document, Files, MAX_FILE, Writer};
use crate::git::fixture::Repository;
use crate::project::Project;
use crate::time::Time;

/// Ids in order.
#[derive(Debug, Default)]
struct InOrder(AtomicU64);

impl Ids for InOrder {
    fn uuid(&self, _: Time) -> Uuid {
        let n = self.0.fetch_add(1, Ordering::SeqCst);
        let mut random = [0; 10];
        random[2..].copy_from_slice(&n.to_be_bytes());
        uuid::Builder::from_unix_timestamp_millis(1_766_574_000_000, &random).into_uuid()
    }
}

/// A project, at noon of the RFC's day.
pub(crate) struct Fixture {
    pub(crate) repository: Repository,
    pub(crate) project: Project,
    clock: Arc<ManualClock>,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with_config("")
    }

    pub(crate) fn with_config(config: &str) -> Self {
        let repository = Repository::new();
        repository.write(crate::layout::CONFIG, config);
        let clock = Arc::new(ManualClock::default());
        let environment = ProjectEnvironment {
            clock: clock.clone(),
            ids: Arc::new(InOrder::default()),
            ..ProjectEnvironment::default()
        };
        let project = Project::open(repository.path(), environment)
            .unwrap()
            .unwrap();
        let fixture = Self {
            repository,
            project,
            clock,
        };
        fixture.at("2025-12-24T12:00:00Z");
        fixture
    }

    /// Sets the clock.
    pub(crate) fn at(&self, time: &str) {
        self.clock
            .set(Timestamp(Time::parse(time).unwrap().0.as_microsecond()));
    }

    pub(crate) fn text(&self, path: &str) -> String {
        std::fs::read_to_string(self.project.root().join(path)).unwrap()
    }

    /// Returns the path of the file of an issue, below the root.
    pub(crate) fn file_of(&self, folder: &str, key: &str) -> String {
        file_of(self.project.root(), folder, key)
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        self.project.root().join(path).exists()
    }

    /// Starts an ignored test in a separate process, for this project.
    pub(crate) fn start(&self, test: &str, number: usize) -> Child {
        start(self.project.root(), test, number)
    }

    /// Runs an ignored test in eight processes at once.
    pub(crate) fn eight(&self, test: &str) {
        let workers: Vec<Child> = (0..8).map(|number| self.start(test, number)).collect();
        for mut worker in workers {
            assert!(worker.wait().unwrap().success());
        }
    }
}

/// Returns the path of a file whose name is a key with a mark, below the root.
pub(crate) fn file_of(root: &Path, folder: &str, key: &str) -> String {
    let names = std::fs::read_dir(root.join(folder))
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let begin = format!("{key}-");
    let name = names
        .map(|name| name.into_string().unwrap())
        .find(|name| name.starts_with(&begin));
    format!(
        "{folder}/{}",
        name.unwrap_or_else(|| panic!("there is no {folder}/{key}-…"))
    )
}

/// Writes a document as the files of its entries, in place of those that are there.
pub(crate) fn write_entries<D: Document>(root: &Path, text: &str) {
    let entries = D::ENTRIES.unwrap();
    let folder = root.join(entries.folder);
    std::fs::create_dir_all(&folder).unwrap();
    for file in std::fs::read_dir(&folder)
        .unwrap()
        .map(|file| file.unwrap().path())
    {
        if file
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            std::fs::remove_file(file).unwrap();
        }
    }
    for (number, entry) in (entries.split)(&serde_json::from_str(text).unwrap())
        .into_iter()
        .enumerate()
    {
        let mark = if entry.is_marked {
            format!("-{number}")
        } else {
            String::new()
        };
        let path = folder.join(format!("{}{mark}.json", entry.slug));
        std::fs::write(path, crate::json::print(&entry.value).unwrap()).unwrap();
    }
}

/// Returns the document that is made from the entries below a root.
pub(crate) fn made<D: Document>(root: &Path) -> String {
    let files = Files::new(root, Writer::default(), MAX_FILE, None).reading();
    String::from_utf8(files.load::<D>().unwrap().unwrap().value.print().unwrap()).unwrap()
}

/// Starts an ignored test in a separate process, and passes it a folder and a number.
pub(crate) fn start(root: &Path, test: &str, number: usize) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--ignored", "--exact", "--nocapture", test])
        .env("FIXTURE_ROOT", root)
        .env("FIXTURE_NUMBER", number.to_string());
    command
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// Returns the project of the test that started this process, and the number it gave.
pub(crate) fn given() -> Option<(Project, usize)> {
    let (root, number) = worker_input()?;
    Some((
        Project::open(&root, ProjectEnvironment::default())
            .unwrap()
            .unwrap(),
        number,
    ))
}

/// Returns the folder and the number that the test gave that started this process.
#[allow(
    clippy::disallowed_methods,
    reason = "the other process is told what to do by its environment"
)]
pub(crate) fn worker_input() -> Option<(PathBuf, usize)> {
    let root = std::env::var_os("FIXTURE_ROOT")?;
    let number = std::env::var("FIXTURE_NUMBER").unwrap().parse().unwrap();
    Some((root.into(), number))
}

/// Retries for as long as another process holds the lock.
///
/// With eight processes on a busy machine, one may wait too long.
pub(crate) fn in_turn<T>(mut work: impl FnMut() -> crate::error::Result<T>) -> T {
    loop {
        match work() {
            Err(error) if error.code == "E_LOCKED" => {}
            other => return other.unwrap(),
        }
    }
}
