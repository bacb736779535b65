//! `forge init`: creates the memory of a project. It never overwrites files, so a second run
//! changes nothing.

mod adopt;
mod detect;
mod doctor;
mod tree;

use std::path::{Path, PathBuf};

use serde::Serialize;

pub use adopt::{Adopted, Proposal};
pub use detect::{TestSetup, Tests};
pub use doctor::{Diagnosis, Doctor, Problem, doctor};

use crate::config::Config;
use crate::environment::ProjectEnvironment;
use crate::error::{Category, Error, Result};
use crate::layout::CONFIG;
use crate::project::{FoundProject, Project, Repository};
use crate::trust;

/// Optional steps besides creating the tree. Each runs only on request.
#[derive(Debug, Clone, Default)]
pub struct Init {
    /// Import what other tools left: features, progress, issues; notes only as proposals.
    pub adopt: bool,
    /// Create the memory outside a repository, or ignore the repository.
    pub no_git: bool,
    /// Create the memory in this folder, even if it is below the root of a repository.
    pub here: bool,
    /// Set `commit.cleanup=scissors` in this repository.
    pub scissors: bool,
    /// Register the merge driver of the JSON files in this repository.
    pub merge_driver: bool,
    /// Secret scan rules to suspend for the import: see [`Project::allowing`].
    pub allow_secrets: Vec<String>,
}

/// Result of `forge init`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Initialised {
    /// The root of the project.
    pub root: PathBuf,
    /// The created paths, below the root. Empty if everything existed.
    pub created: Vec<String>,
    /// The detected test setup, if the settings file was created now, or says nothing that works
    /// here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tests: Option<Tests>,
    /// Repository settings that were applied.
    pub settings: Vec<String>,
    /// Repository settings that can be applied on request.
    pub offers: Vec<Offer>,
    /// What was imported, if adoption was requested.
    pub adopted: Option<Adopted>,
}

/// A helpful repository setting, which is applied only on request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Offer {
    /// The setting.
    pub setting: &'static str,
    /// Its value.
    pub value: &'static str,
    /// Its purpose.
    pub why: &'static str,
    /// The option that applies it.
    pub option: &'static str,
}

const SCISSORS: Offer = Offer {
    setting: "commit.cleanup",
    value: "scissors",
    why: "keeps the headings of a commit message when it is edited: to git, a line that begins with # is a comment",
    option: "--scissors",
};
const MERGE_DRIVER: Offer = Offer {
    setting: "merge.forge-json.driver",
    value: "helmdeck forge merge-driver %O %A %B %P",
    why: "merges what two branches learned, entry by entry",
    option: "--merge-driver",
};

/// Creates the memory of the project that a folder belongs to, and opens it.
///
/// # Errors
/// `NotFound` (`E_NOT_A_REPO`) outside a repository unless `no_git`; `Refused` (`E_BARE_REPO`) in
/// one without a work tree; `Corrupt` if existing settings are damaged; `Paused`, `Secret`,
/// `Locked`, `Failed`.
pub fn init(
    start: &Path,
    environment: ProjectEnvironment,
    init: &Init,
) -> Result<(Project, Initialised)> {
    let found = place(start, init)?;
    let project = match Project::open(&found.root, environment.clone())? {
        Some(project) if project.root() == found.root => project,
        _ => {
            let mut config = Config::default();
            config.git.enabled = !init.no_git;
            Project::with(found, environment, config)
        }
    };
    let project = init
        .allow_secrets
        .iter()
        .fold(project, |project, rule| project.allowing(rule));
    project.check_not_paused()?;
    let created = create_missing(&project)?;
    let unset = created.iter().any(|path| path == CONFIG) || project.checks().is_none();
    let tests = unset.then(|| detect::tests(project.root()));
    let adopted = if init.adopt {
        Some(adopt::adopt(&project)?)
    } else {
        None
    };
    let mut settings = Vec::new();
    let mut offers = Vec::new();
    if let Ok(git) = project.git() {
        for (offer, asked) in [(SCISSORS, init.scissors), (MERGE_DRIVER, init.merge_driver)] {
            if git.setting(offer.setting)?.as_deref() == Some(offer.value) {
                continue;
            }
            if asked {
                git.set_setting(offer.setting, offer.value)?;
                settings.push(format!("{}={}", offer.setting, offer.value));
            } else {
                offers.push(offer);
            }
        }
    }
    let root = project.root().to_owned();
    // The created files include settings.
    let project = Project::open(&root, project.environment().clone())?.unwrap_or(project);
    Ok((
        project,
        Initialised {
            root,
            created,
            tests,
            settings,
            offers,
            adopted,
        },
    ))
}

/// Creates the missing files of a new project. Returns the created paths.
pub(crate) fn create_missing(project: &Project) -> Result<Vec<String>> {
    let mut created = Vec::new();
    for folder in tree::folders() {
        if !project.files().is_lost(&folder)? && project.files().create_folder(&folder)? {
            created.push(folder);
        }
    }
    for mut seed in tree::files(project.environment(), project.config().git.enabled) {
        if seed.path == CONFIG {
            let settings =
                detect::tests(project.root()).fill(&String::from_utf8_lossy(&seed.bytes));
            seed.bytes = settings.into_bytes();
        }
        // A lost file is restored by a repair: an empty one would hide the loss.
        let folder = seed.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        if project.files().is_lost(&seed.path)? || project.files().is_lost(folder)? {
            continue;
        }
        if project
            .files()
            .create_with(&seed.path, &seed.bytes, seed.mode)?
        {
            created.push(seed.path);
        }
    }
    Ok(created)
}

/// Sets the command that a checkpoint runs: `verify.commands`. The rest of the settings stays.
///
/// # Errors
/// `Corrupt` if the settings are damaged; `Secret`, `Locked`, `Paused`.
pub fn set_check(project: &Project, command: &str) -> Result<()> {
    project.check_not_paused()?;
    let _guard = project.files().lock()?;
    let text = project.files().read(CONFIG)?.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let mut settings: toml_edit::DocumentMut =
        text.parse().map_err(|error: toml_edit::TomlError| {
            Error::new(
                Category::Corrupt,
                "E_CORRUPT",
                format!("{CONFIG}: {}", error.message()),
            )
            .next(format!("helmdeck forge repair {CONFIG}"))
        })?;
    let verify = settings.entry("verify").or_insert(toml_edit::table());
    verify["commands"] = toml_edit::value(toml_edit::Array::from_iter([command]));
    trust::keep(project, || {
        project
            .files()
            .write(CONFIG, settings.to_string().as_bytes())
    })
}

/// Returns the settings of a new project.
pub(crate) const fn config() -> &'static [u8] {
    include_bytes!("init/config.toml")
}

/// Decides where to create the memory.
fn place(start: &Path, init: &Init) -> Result<FoundProject> {
    let start = start
        .canonicalize()
        .map_err(|error| Error::io("cannot open", start, &error))?;
    if Repository::is_bare(&start) {
        let message = format!("{} is a repository without a work tree", start.display());
        return Err(Error::new(Category::Refused, "E_BARE_REPO", message)
            .hint("run it in a work tree of the repository"));
    }
    if init.no_git {
        return Ok(FoundProject {
            root: start,
            common_dir: None,
        });
    }
    let Some(repository) = Repository::find(&start)? else {
        let message = format!(
            "{} is in no repository of git (not_a_repo)",
            start.display()
        );
        return Err(
            Error::new(Category::NotFound, "E_NOT_A_REPO", message).hint(
                "make it a repository first, or say --no-git: then what needs git is not available",
            ),
        );
    };
    let root = if init.here { start } else { repository.root };
    Ok(FoundProject {
        root,
        common_dir: Some(repository.common_dir),
    })
}

#[cfg(test)]
mod tests;
