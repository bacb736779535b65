//! A project with a memory: its root, settings, files and git.

mod find;

use std::path::Path;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use helmdeck_events::Sink;
use serde::Deserialize;

pub(crate) use find::{FoundProject, Repository};

use crate::config::{Config, Verify};
use crate::environment::ProjectEnvironment;
use crate::error::{Category, Error, Result};
use crate::files::{Files, Guard, Writer};
use crate::git::{Git, Run};
use crate::layout::{CONFIG, FORGE, PAUSED};

/// Code of the error for a setting that belongs into the user's own configuration.
const MISPLACED: &str = "E_MISPLACED_SETTING";

/// A project with a memory: the context of every part of this crate.
#[derive(Debug)]
pub struct Project {
    found: FoundProject,
    environment: ProjectEnvironment,
    config: Config,
    files: Files,
    git: OnceLock<Option<Git>>,
    first_commit: OnceLock<Option<String>>,
    /// Pause after the event server did not answer: until then, nothing waits for it.
    ///
    /// In milliseconds of the monotonic clock.
    pub(crate) server_rests: AtomicU64,
}

impl Project {
    /// Opens the project that a folder belongs to.
    ///
    /// `Ok(None)` if it has no `.forge/`; callers that only read continue without a project.
    ///
    /// # Errors
    /// `Corrupt` if `.forge/config.toml` is damaged; `Failed` if something cannot be read.
    pub fn open(start: &Path, environment: ProjectEnvironment) -> Result<Option<Self>> {
        let Some(project) = Self::unset(start, environment)? else {
            return Ok(None);
        };
        let config = project.settings(&project.files)?;
        Ok(Some(Self::with(project.found, project.environment, config)))
    }

    /// Opens a project even if its settings are damaged, for reading and for repair.
    ///
    /// With damaged settings, every setting has its default.
    ///
    /// # Errors
    /// `Failed` if something cannot be read.
    pub fn open_anyway(start: &Path, environment: ProjectEnvironment) -> Result<Option<Self>> {
        let Some(project) = Self::unset(start, environment)? else {
            return Ok(None);
        };
        match project.settings(&project.files.reading()) {
            Ok(config) => Ok(Some(Self::with(project.found, project.environment, config))),
            Err(error) if error.category == Category::Corrupt || error.code == MISPLACED => {
                Ok(Some(project))
            }
            Err(error) => Err(error),
        }
    }

    /// Says whether a folder belongs to a project. Reads no settings.
    ///
    /// # Errors
    /// `Failed` if something cannot be read; `Refused` if the project belongs to another user.
    pub fn exists(start: &Path) -> Result<bool> {
        Ok(FoundProject::project(start)?.is_some())
    }

    fn unset(start: &Path, environment: ProjectEnvironment) -> Result<Option<Self>> {
        Ok(FoundProject::project(start)?
            .map(|found| Self::with(found, environment, Config::default())))
    }

    fn settings(&self, files: &Files) -> Result<Config> {
        // An empty file is a config.
        let Some(bytes) = files.read(CONFIG)?.filter(|bytes| !bytes.is_empty()) else {
            return Ok(Config::default());
        };
        let config = crate::files::text(&bytes)
            .and_then(Config::parse)
            .map_err(|damage| {
                files.unreadable(CONFIG, &bytes, crate::files::Unreadable::Damaged(damage))
            })?;
        match config.misplaced() {
            None => Ok(config),
            Some((setting, home)) => {
                let message = format!(
                    "{CONFIG} sets `{setting}`: a repository names no server and no credential"
                );
                Err(Error::new(Category::Refused, MISPLACED, message).hint(home))
            }
        }
    }

    /// Returns the settings as the file has them now.
    pub(crate) fn settings_now(&self) -> Result<Config> {
        self.settings(&self.files.reading())
    }

    pub(crate) fn with(
        found: FoundProject,
        environment: ProjectEnvironment,
        config: Config,
    ) -> Self {
        let common = found.common_dir.as_deref().filter(|_| config.git.enabled);
        let max = config.files.largest();
        let writer = Writer {
            clock: Arc::clone(&environment.clock),
            agent: environment.agent.clone(),
        };
        let root = found.root.clone();
        let files = Files::new(&found.root, writer, max, common)
            .tracked_by(move |path| is_tracked(&root, path));
        let files = files.with_made_documents(config.files.rfc);
        let (git, first_commit) = (OnceLock::new(), OnceLock::new());
        Self {
            found,
            environment,
            config,
            files,
            git,
            first_commit,
            server_rests: AtomicU64::new(0),
        }
    }

    /// Returns the root of the work tree, or the folder that contains `.forge/` if that is deeper.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.found.root
    }

    /// Returns the environment: the clock, the time zone, the id generator and the agent.
    #[must_use]
    pub const fn environment(&self) -> &ProjectEnvironment {
        &self.environment
    }

    /// Returns the settings.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the commands that a checkpoint runs.
    ///
    /// `None` if they are not set and the default, that of Cargo, cannot work here.
    #[must_use]
    pub fn checks(&self) -> Option<&[String]> {
        let verify = &self.config.verify;
        (self.has_cargo() || verify.commands != Verify::default().commands)
            .then_some(&verify.commands)
    }

    /// Says whether a command for the tests of features is known: one is set, or the default can
    /// work here.
    #[must_use]
    pub fn has_runner(&self) -> bool {
        self.has_cargo() || self.config.verify.runner != Verify::default().runner
    }

    fn has_cargo(&self) -> bool {
        self.root().join("Cargo.toml").is_file()
    }

    /// Returns the files.
    #[must_use]
    pub const fn files(&self) -> &Files {
        &self.files
    }

    /// Returns the repository. It is looked up once, on first use.
    ///
    /// # Errors
    /// `NotFound` (`E_NOT_A_REPO`) if there is none or the settings disable git; the errors of
    /// [`Git::find`].
    pub fn git(&self) -> Result<&Git> {
        if self.git.get().is_none() {
            let limit = Duration::from_secs(self.config.git.timeout_s.max(1));
            let git = if self.config.git.enabled {
                Git::find(self.root())?
            } else {
                None
            };
            let git = git.map(|git| {
                let folder = self
                    .root()
                    .strip_prefix(git.root())
                    .ok()
                    .and_then(Path::to_str)
                    .unwrap_or_default();
                let memory = if folder.is_empty() {
                    FORGE.to_owned()
                } else {
                    format!("{folder}/{FORGE}")
                };
                git.timeout(limit).with_memory(memory)
            });
            // Another thread may have been faster: it found the same.
            let _ = self.git.set(git);
        }
        self.git.get().and_then(Option::as_ref).ok_or_else(|| {
            let message = format!(
                "{} is in no repository of git (not_a_repo)",
                self.root().display()
            );
            Error::new(Category::NotFound, "E_NOT_A_REPO", message)
                .hint("what needs git is not available here; the rest is")
        })
    }

    /// Returns the first commit of the history of `HEAD`, looked up once. `None` without a commit
    /// or a repository.
    pub(crate) fn first_commit(&self) -> Option<String> {
        let find = || {
            Git::find(self.root())
                .ok()??
                .root_commit()
                .ok()?
                .map(|commit| commit.to_string())
        };
        self.first_commit.get_or_init(find).clone()
    }

    /// Returns git, or `None` without a repository.
    pub(crate) fn repository(&self) -> Result<Option<Git>> {
        match self.git() {
            Ok(git) => Ok(Some(git.clone())),
            Err(error) if error.code == "E_NOT_A_REPO" => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns this project with files that let a rule for secrets pass: see [`Files::allowing`].
    #[must_use]
    pub fn allowing(mut self, rule: &str) -> Self {
        self.files = self.files.allowing(rule);
        self
    }

    /// Returns this project for reading only: no file is written, not even a copy of a damaged one.
    #[must_use]
    pub fn reading(mut self) -> Self {
        self.files = self.files.reading();
        self
    }

    /// Returns this project as seen from a session. It shares the files and the lock.
    #[must_use]
    pub fn within(&self, session: &str) -> Self {
        let environment = ProjectEnvironment {
            session: Some(session.to_owned()),
            ..self.environment.clone()
        };
        let (git, first_commit) = (self.git.clone(), self.first_commit.clone());
        let server_rests = AtomicU64::new(self.server_rests.load(Ordering::Relaxed));
        Self {
            found: self.found.clone(),
            environment,
            config: self.config.clone(),
            files: self.files.clone(),
            git,
            first_commit,
            server_rests,
        }
    }

    /// Returns this project with an event sink besides the journal. The settings name the server.
    #[must_use]
    pub fn sending(mut self, sink: Arc<dyn Sink>) -> Self {
        self.environment.sink = Some(sink);
        self
    }

    /// Takes the lock all work trees of the repository share; without a repository, the one of this
    /// folder.
    ///
    /// # Errors
    /// `Locked` after five seconds, with the holder.
    pub fn common_lock(&self) -> Result<Guard> {
        self.files.common_lock()
    }

    /// Checks that work is not paused. Every operation that writes calls this first.
    ///
    /// # Errors
    /// `Paused` (`E_PAUSED`) with the reason. A file of the pause that cannot be read pauses too.
    pub fn check_not_paused(&self) -> Result<()> {
        #[derive(Deserialize)]
        struct Pause {
            reason: String,
            since: String,
        }

        let bytes = match self.files.read(PAUSED) {
            Ok(None) => return Ok(()),
            Ok(Some(bytes)) => bytes,
            Err(_) => Vec::new(),
        };
        let why = serde_json::from_slice::<Pause>(&bytes).map_or_else(
            |_| format!("{PAUSED} cannot be read"),
            |pause| format!("{}, since {}", pause.reason, pause.since),
        );
        Err(Error::new(Category::Paused, "E_PAUSED", format!("work is paused: {why}"))
            .hint(
                "`helmdeck forge session start` ends a pause whose reason is gone; else a person looks at it and runs \
                 `helmdeck forge recover ack --reason WHY`; what is damaged can be repaired then",
            )
            .next("helmdeck forge recover assess"))
    }
}

/// Says whether git tracks a path below a root.
fn is_tracked(root: &Path, path: &str) -> Result<bool> {
    let Some(git) = Git::find(root)? else {
        return Ok(false);
    };
    let run = Run {
        folder: Some(root.to_owned()),
        ..Run::default()
    };
    let listed = git.run(&["--literal-pathspecs", "ls-files", "-z", "--", path], &run)?;
    Ok(listed.ok() && !listed.stdout.is_empty())
}

/// Says whether a folder contains a memory.
pub(crate) fn has_forge(folder: &Path) -> bool {
    folder.join(FORGE).is_dir()
}

#[cfg(test)]
mod tests;
