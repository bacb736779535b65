//! Verbs: what a caller can ask of a project. The value of such a type is the input.
//!
//! A verb stands in one file: its input, its output, what it does, and its text for people. The
//! pack with its name, the addresses of the server, the commands of the shell and the pages are made
//! of it, and know nothing more.

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Result;
use crate::project::Project;
use crate::sessions::Sessions;

/// What a verb does to the project and to the work session of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reads, and leaves nothing behind: the session is not renewed either.
    Observe,
    /// Reads, or checks the session itself. The session is renewed.
    Read,
    /// Changes the project. Refused once the session has ended.
    Change,
}

/// A verb of a project.
pub trait Verb: Clone + Serialize + DeserializeOwned + JsonSchema + Send + 'static {
    /// Name of its pack, for example `forge.issue_add`. Who may run that pack may use the verb.
    const NAME: &'static str;
    /// What it does to the project.
    const ACCESS: Access;
    /// Whether it works in a project whose settings are damaged.
    const WITH_DAMAGED_SETTINGS: bool = false;
    /// What it answers.
    type Output: Serialize + JsonSchema + Send + 'static;

    /// Returns the work session that the input names.
    fn session(&self) -> Option<&str> {
        None
    }

    /// Does it. Blocks.
    ///
    /// # Errors
    /// Those of the project.
    fn run(self, project: &Project) -> Result<Self::Output>;
}

/// A verb that people use at a shell.
pub trait ShellVerb: Verb {
    /// Returns an output as text for people, without a newline at its end.
    fn text(output: &Self::Output) -> String;
}

/// Runs a verb, and before and after it what its access asks for. Blocks.
///
/// # Errors
/// `Refused` if it changes something and the session has ended; those of the verb.
pub fn call<V: Verb>(project: &Project, verb: V) -> Result<V::Output> {
    let sessions = Sessions::new(project);
    if V::ACCESS == Access::Change {
        sessions.check_not_over()?;
    }
    if V::ACCESS != Access::Observe {
        sessions.renew_lease();
    }
    let done = verb.run(project);
    if V::ACCESS != Access::Observe {
        sessions.renew_lease();
    }
    done
}
