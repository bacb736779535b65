//! Shared context of the forge commands: opening the project, printing, asking the user.

use std::path::{Path, PathBuf};

use helmdeck_core::suggest::did_you_mean;
use helmdeck_forge::secrets::rules;
use helmdeck_forge::sessions::Sessions;
use helmdeck_forge::verb::{Access, ShellVerb};
use helmdeck_forge::{Error, Project, ProjectEnvironment};
use serde::Serialize;
use serde_json::Value;

use super::text::plain;
use crate::args::forge::ForgeCommon;
use crate::env::ProcessEnvironment;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::project;

/// The error of a folder without `.forge/`.
pub(super) const NO_MEMORY: &str = "there is no .forge/ here: `helmdeck forge init` begins one";

/// Reason for a command to end early.
pub(super) enum Stop {
    /// An error of the project.
    Project(Box<Error>),
    /// An error of the CLI itself.
    Cli(Failure),
    /// There is no memory to read, which is no error.
    NoMemory,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Project(Box::new(error))
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Cli(failure)
    }
}

/// Result of a command.
pub(super) type Answer = Result<(), Stop>;

/// Context of a command.
pub(super) struct CommandContext {
    pub(super) folder: PathBuf,
    pub(super) environment: ProjectEnvironment,
    pub(super) allowed: Vec<String>,
    /// The agent that the command line names.
    pub(super) named_agent: Option<String>,
    pub(super) output: Output,
    /// The configuration file of the command line.
    pub(super) config: Option<PathBuf>,
    pub(super) process: ProcessEnvironment,
}

impl CommandContext {
    /// Reads the options that all commands have.
    pub(super) fn of(
        common: &ForgeCommon,
        config: Option<&Path>,
        env: &ProcessEnvironment,
        output: Output,
    ) -> Result<Self, Stop> {
        let folder = env.absolute(common.project.as_deref().unwrap_or_else(|| Path::new(".")))?;
        let environment = project::environment(
            env,
            config,
            common.session.as_deref(),
            common.agent.as_deref(),
        )?;
        if let Some(rule) = common
            .allow_secret
            .iter()
            .find(|rule| rules().all(|known| known != **rule))
        {
            let meant = did_you_mean(rule, rules());
            let error = Error::usage(format!(
                "{rule:?} is no rule of the scanner for secrets{meant}"
            ));
            return Err(error
                .hint("the error of a refused write names its rule")
                .into());
        }
        Ok(Self {
            folder,
            environment,
            allowed: common.allow_secret.clone(),
            named_agent: common.agent.clone(),
            output,
            config: config.map(Path::to_owned),
            process: env.clone(),
        })
    }

    /// Opens the project.
    pub(super) fn open(&self) -> Result<Project, Stop> {
        Ok(self
            .find()?
            .ok_or_else(|| Error::not_found(NO_MEMORY).next("helmdeck forge init"))?)
    }

    /// Opens the project to read it. A missing memory ends the command, and is no error.
    pub(super) fn look(&self) -> Result<Project, Stop> {
        self.find()?.ok_or(Stop::NoMemory)
    }

    /// Opens the project if it has a memory, and renews the lease of its session.
    ///
    /// Hooks and reads continue without a memory.
    pub(super) fn find(&self) -> Result<Option<Project>, Stop> {
        let project = self.find_quietly()?;
        if let Some(project) = &project {
            Sessions::new(project).renew_lease();
        }
        Ok(project)
    }

    /// Opens the project for diagnosis, even if its settings are damaged. Changes nothing.
    pub(super) fn examine(&self) -> Result<Project, Stop> {
        Project::open_anyway(&self.folder, self.environment.clone())?.ok_or(Stop::NoMemory)
    }

    /// As [`Self::find`], but changes nothing.
    fn find_quietly(&self) -> Result<Option<Project>, Stop> {
        let project = Project::open(&self.folder, self.environment.clone())?;
        Ok(project.map(|project| {
            self.allowed
                .iter()
                .fold(project, |project, rule| project.allowing(rule))
        }))
    }

    /// Opens the project, changes it, and renews the lease of its session.
    ///
    /// A session that is over may not change the project.
    pub(super) fn change<T>(
        &self,
        change: impl FnOnce(&Project) -> helmdeck_forge::Result<T>,
    ) -> Result<T, Stop> {
        let project = self.open()?;
        Sessions::new(&project).check_not_over()?;
        let done = change(&project)?;
        // The change is done. If the lease is not renewed, it only ends sooner.
        if let Err(error) = Sessions::new(&project).touch() {
            tracing::debug!(%error, "the lease of the session was not renewed");
        }
        Ok(done)
    }

    /// Runs a verb, and prints its output. To read where there is no memory is no error.
    pub(super) fn verb<V: ShellVerb>(&self, verb: V) -> Answer {
        let project = match V::ACCESS {
            Access::Change => self.open()?,
            _ if V::WITH_DAMAGED_SETTINGS => self.examine()?,
            _ => self.look()?,
        };
        let output = helmdeck_forge::verb::call(&project, verb)?;
        self.print(&output, || V::text(&output))
    }

    /// Prints an answer: as JSON, or as the text that `text` makes.
    pub(super) fn print<T: Serialize>(&self, data: &T, text: impl FnOnce() -> String) -> Answer {
        if self.output.json {
            // Straight into bytes: numbers stay as they were written.
            let data = serde_json::to_vec(data).map_err(Failure::internal)?;
            let bytes = [b"{\"ok\":true,\"data\":".as_slice(), &data, b"}"].concat();
            self.output.result(&bytes)?;
        } else {
            self.output.text(&text())?;
        }
        Ok(())
    }

    /// Prints an answer: as JSON, or as lines of names and values.
    pub(super) fn show<T: Serialize>(&self, data: &T) -> Answer {
        self.print(data, || {
            serde_json::to_value(data)
                .map(|value| plain(&value))
                .unwrap_or_default()
        })
    }

    /// Ends with an exit code and no further message.
    pub(super) fn exit(exit: Exit) -> Answer {
        if exit == Exit::Ok {
            Ok(())
        } else {
            Err(Failure::silent(exit).into())
        }
    }

    /// Says whether the output is for a program.
    pub(super) const fn is_json(&self) -> bool {
        self.output.json
    }

    /// Ends a command without output.
    pub(super) fn done(&self) -> Answer {
        self.print(&Value::Null, String::new)
    }

    /// Asks the user for confirmation, and returns an error without it.
    pub(super) fn ask(&self, what: &str, refused: &str) -> Answer {
        self.output
            .confirm(what, false)
            .map_err(|_| Error::refused(refused).into())
    }

    /// Asks the user for one line of text. `None` without a terminal, or for an empty answer.
    pub(super) fn line(&self, question: &str) -> Result<Option<String>, Stop> {
        Ok(self.output.line(question)?)
    }

    /// Says whether a user is at the terminal.
    pub(super) const fn is_interactive(&self) -> bool {
        self.output.interactive
    }
}

/// Makes the error of a file that the command line names and that cannot be read.
pub(super) fn unreadable(file: &Path, error: &std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            Error::not_found(format!("cannot read {}: {error}", file.display()))
        }
        _ => Error::io("cannot read", file, error),
    }
}
