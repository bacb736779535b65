//! Create a checkpoint: check without a lock, check again under the lock, tag, mirror.
//!
//! A failure leaves neither a tag nor a file.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use super::list::{Checkpoints, print};
use super::manifest::{Check, Manifest};
use super::name::{NO_KEY, Name};
use crate::error::{Category, Error, Result};
use crate::features::{CodeSnapshot, Evidence, FeaturesFile};
use crate::files::Document as _;
use crate::git::{Created, Git, Oid};
use crate::issues::CloseIssue;
use crate::json::Members;
use crate::knowledge::KnowledgeFile;
use crate::layout;
use crate::recovery::{Paused, Recovery, memory};
use crate::runner::{self, Line, Ran};
use crate::trust;
use helmdeck_core::text::count;

/// Timeout of a query to a remote.
const REMOTE: Duration = Duration::from_secs(10);
/// Timeout of a push.
const PUSH: Duration = Duration::from_secs(60);
/// Number of bytes of a failed check's output that are shown: its end.
const OUTPUT: usize = 600;
/// Maximum number of taken names to try before giving up.
const TRIES: u32 = 100;

/// Request to create a checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Create {
    /// The issue key. Default: that of the focus, or `session` if it has none.
    pub key: Option<String>,
    /// A description of what works. Default: `Checkpoint of <key>`.
    pub message: Option<String>,
    /// The commands that must succeed. Default: `commands` under `[verify]`.
    pub verify: Vec<String>,
    /// The issues that this closes: their summaries go to the history.
    pub closes: Vec<String>,
    /// Why they are closed although a criterion is open.
    pub anyway: Option<String>,
    /// Whether to push the tag, and nothing else. Default: `push_checkpoints` under `[git]`.
    pub push: bool,
    /// The remote to push to. Default: `origin`, or the only one.
    pub remote: Option<String>,
}

/// A new checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Made {
    /// Its tag.
    pub tag: String,
    /// Its commit.
    pub commit: String,
    /// Whether it is safe to roll back to.
    pub can_rollback_to: bool,
    /// The file that mirrors the tag.
    pub path: String,
    /// Whether the tag was pushed.
    pub pushed: bool,
    /// Warnings: failures that did not stop the checkpoint.
    pub warnings: Vec<String>,
    /// Its manifest.
    pub manifest: Manifest,
}

/// What was checked: a checkpoint is made only of this code.
#[derive(Debug)]
pub(crate) struct CheckedCode {
    commands: Vec<String>,
    checks: Vec<Check>,
    code_tree: Option<String>,
}

/// State of the repository.
#[derive(Debug, PartialEq, Eq)]
struct Stand {
    head: Oid,
    tree: Oid,
    code_tree: String,
}

impl Stand {
    /// Reads the state of the repository.
    ///
    /// # Errors
    /// `Refused` if the tree is not clean outside `.forge/`, a git operation is in progress, or
    /// there is no commit.
    fn of(git: &Git) -> Result<Self> {
        check_operation(git)?;
        let status = git.status()?;
        let dirty: Vec<&str> = status.outside(git.memory()).collect();
        if !dirty.is_empty() {
            let some = dirty.iter().take(5).copied().collect::<Vec<_>>().join(", ");
            let verb = if dirty.len() == 1 { "is" } else { "are" };
            let message = format!(
                "{} {verb} not committed: {some}",
                count(dirty.len(), "path")
            );
            return Err(Error::new(Category::Refused, "E_DIRTY", message)
                .hint("a checkpoint is a commit: commit first")
                .next("git status"));
        }
        let Some(head) = git.head()? else {
            return Err(Error::refused("there is no commit yet").next("git status"));
        };
        let (tree, code_tree) = (git.tree(&head)?, git.code_tree(&head)?);
        Ok(Self {
            head,
            tree,
            code_tree,
        })
    }
}

impl Checkpoints<'_> {
    /// Makes a checkpoint of HEAD, if every check succeeds.
    ///
    /// # Errors
    /// `Failed` (`E_CHECK`) if a check does not succeed; `Refused` (`E_DIRTY`, `E_OPERATION`) if
    /// the tree is not clean outside `.forge/` or a git operation is in progress; `Refused`
    /// (`E_NO_CHECKS`) if no command is set and the default cannot work here; `Stale` (`E_MOVED`)
    /// if the code changed while the checks ran. In all cases there is neither a tag nor a file.
    pub fn create(&self, asked: &Create) -> Result<Made> {
        Stand::of(self.project.git()?)?;
        self.make(asked, self.check(asked)?)
    }

    /// Checks everything that can refuse a checkpoint but uncommitted code, and runs the checks on
    /// the code of the work tree.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub(crate) fn check(&self, asked: &Create) -> Result<CheckedCode> {
        if self.paused()?.is_none() {
            self.project.check_not_paused()?;
        }
        let git = self.project.git()?;
        check_operation(git)?;
        // Scan every text of the tag for secrets before any command runs.
        let texts = [&[self.text(asked)?][..], &asked.verify, &asked.closes]
            .concat()
            .join("\n");
        self.project
            .files()
            .check_secrets("the message of the tag", texts.as_bytes())?;
        let close = CloseIssue {
            anyway: asked.anyway.clone(),
            ..CloseIssue::default()
        };
        for key in &asked.closes {
            self.project.issues().closable(key, &close)?;
        }
        let code_tree = CodeSnapshot::of_work_tree(git)?.tree;
        let (commands, checks) = self.run(asked)?;
        Ok(CheckedCode {
            commands,
            checks,
            code_tree,
        })
    }

    /// Makes a checkpoint of HEAD, if its code is what was checked.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub(crate) fn make(&self, asked: &Create, checked: CheckedCode) -> Result<Made> {
        let git = self.project.git()?;
        let paused = self.paused()?;
        let (key, text) = (self.key(asked)?, self.text(asked)?);
        let close = CloseIssue {
            anyway: asked.anyway.clone(),
            ..CloseIssue::default()
        };
        let before = Stand::of(git)?;
        if checked.code_tree.as_ref() != Some(&before.code_tree) {
            return Err(moved());
        }
        let mut warnings = Vec::new();
        let committed = git
            .document_at::<FeaturesFile>(&before.head)?
            .unwrap_or_else(FeaturesFile::skeleton);
        if self
            .project
            .files()
            .load::<FeaturesFile>()?
            .is_some_and(|now| now.value != committed)
        {
            // The contract is read from the commit.
            warnings.push(
                "features changed since the last commit: their tests are read as that commit has them".to_owned(),
            );
        }
        let mut taken = self.taken_elsewhere(git, asked, &mut warnings);
        // Do the slow steps before the lock. A name that is taken meanwhile is detected when the
        // tag is made.
        let known = self.list()?;
        taken.extend(
            known
                .iter()
                .filter_map(|checkpoint| Name::parse(&checkpoint.name)),
        );
        let parent = known
            .iter()
            .find(|checkpoint| checkpoint.state == super::State::Ok);
        let mut manifest = self.manifest(git, &before, asked, checked.commands, checked.checks)?;
        manifest.parent_checkpoint = parent.map(|parent| parent.tag.clone());

        let guard = self.project.common_lock()?;
        if Stand::of(git)? != before {
            return Err(moved());
        }
        let name = self.tag(git, &key, &mut taken, &mut manifest, &text)?;
        let path = name.at(&manifest.commit).path();
        // The tag is the source of truth: a file that could not be written is rebuilt from it.
        match self.project.files().create(&path, &print(&manifest)?) {
            Ok(true) => {}
            Ok(false) => warnings.push(format!("{path} was there already, and was left as it is")),
            Err(error) => warnings.push(format!("{path} was not written: {error}")),
        }
        drop(guard);

        if let Some(paused) = &paused {
            Recovery::new(self.project).lift(paused)?;
        }
        for key in &asked.closes {
            // The checkpoint is made: what cannot be closed now can be closed later.
            if let Err(error) = self.project.issues().done(key, &close, None) {
                warnings.push(format!("{key} was not closed: {error}"));
            }
        }
        // The settings of a clone that is not trusted open no connection.
        let wanted =
            || self.project.config().git.push_checkpoints && trust::check(self.project).is_ok();
        let pushed = (asked.push || wanted()) && push(git, asked, &manifest.tag, &mut warnings);
        let made = Made {
            tag: manifest.tag.clone(),
            commit: manifest.commit.clone(),
            can_rollback_to: manifest.proven(),
            path,
            pushed,
            warnings,
            manifest,
        };
        memory::tell_checkpoint(self.project, &made);
        Ok(made)
    }

    /// Returns the pause that a new checkpoint ends, because its only reason is a missing one.
    fn paused(&self) -> Result<Option<Paused>> {
        Recovery::new(self.project).paused_for_want_of_a_checkpoint()
    }

    fn text(&self, asked: &Create) -> Result<String> {
        Ok(match &asked.message {
            Some(message) => message.clone(),
            None => format!("Checkpoint of {}", self.key(asked)?),
        })
    }

    fn key(&self, asked: &Create) -> Result<String> {
        let key = asked
            .key
            .clone()
            .or_else(|| memory::focused_issue(self.project))
            .unwrap_or_else(|| NO_KEY.to_owned());
        Name::new(&key, 1)?;
        Ok(key)
    }

    /// Runs the invariants, then the commands. No lock is held.
    fn run(&self, asked: &Create) -> Result<(Vec<String>, Vec<Check>)> {
        let verify = &self.project.config().verify;
        let commands = match asked.verify.is_empty() {
            true => self.project.checks().ok_or_else(no_checks)?.to_vec(),
            false => asked.verify.clone(),
        };
        let invariants = memory::invariant_checks(self.project)?;
        let named = |command| match asked.verify.is_empty() {
            true => Line::Project(command, None),
            false => Line::Caller(command),
        };
        let invariant_timeout = Duration::from_secs(verify.invariant_timeout_s);
        let all = invariants
            .iter()
            .map(|command| (command, Line::Project(command, None), invariant_timeout))
            .chain(
                commands
                    .iter()
                    .map(|command| (command, named(command), verify.timeout())),
            );
        let mut checks = Vec::new();
        for (command, run, timeout) in all {
            let ran = runner::check(self.project, run, timeout)?;
            if !ran.passed() {
                return Err(failed(command, timeout, &ran));
            }
            let check = Check {
                cmd: command.clone(),
                exit: ran.exit,
                ms: ran.ms,
                other: Members::default(),
            };
            checks.push(check);
        }
        Ok((commands, checks))
    }

    /// Returns the names that are taken on the remote that this clone's tags go to.
    fn taken_elsewhere(&self, git: &Git, asked: &Create, warnings: &mut Vec<String>) -> Vec<Name> {
        let Ok(Some(remote)) = remote(git, asked) else {
            return Vec::new();
        };
        let prefix = Self::prefix(git);
        match git.remote_tags(&remote, &prefix, REMOTE) {
            Ok(tags) => tags
                .iter()
                .filter_map(|tag| Name::parse(tag.strip_prefix(&prefix)?))
                .collect(),
            Err(error) => {
                warnings.push(format!(
                    "{remote} was not asked for its checkpoints: {error}"
                ));
                Vec::new()
            }
        }
    }

    fn manifest(
        &self,
        git: &Git,
        stand: &Stand,
        asked: &Create,
        verified_by: Vec<String>,
        checks: Vec<Check>,
    ) -> Result<Manifest> {
        let (features, standings) = memory::features(self.project)?;
        let passing = features
            .features
            .iter()
            .zip(&standings)
            .filter(|(_, standing)| standing.counts());
        let features_passing: Vec<String> =
            passing.map(|(feature, _)| feature.id.clone()).collect();
        let knowledge = self.project.files().load::<KnowledgeFile>()?;
        Ok(Manifest {
            schema_version: Some("1.0".to_owned()),
            tag: String::new(),
            commit: stand.head.to_string(),
            timestamp: self.project.environment().now().seconds(),
            verified_by,
            passes: Evidence::read(self.project)?.of_code(&stand.code_tree, &features_passing),
            features_passing,
            linear_issues_closed: asked.closes.clone(),
            can_rollback_to: !checks.is_empty(),
            tree: Some(stand.tree.to_string()),
            code_tree: Some(stand.code_tree.clone()),
            patch_id: git.patch_id(None, &stand.head)?,
            branch_patch_id: self.branch_patch_id(git, &stand.head)?,
            branch: git.branch()?,
            session: memory::session(self.project),
            checks,
            features_total: u32::try_from(standings.len()).ok(),
            knowledge_etag: knowledge.map(|loaded| loaded.etag),
            parent_checkpoint: None,
            tool_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            other: Members::default(),
        })
    }

    /// Returns the id of the patch of the whole branch: a squash merge makes one commit of it.
    fn branch_patch_id(&self, git: &Git, head: &Oid) -> Result<Option<String>> {
        let Some((_, base)) = git.base(self.project.config().git.base.as_deref())? else {
            return Ok(None);
        };
        match git.merge_base(&base, head)? {
            Some(left_at) if left_at != *head => Ok(git.patch_id(Some(&left_at), head)?),
            _ => Ok(None),
        }
    }

    /// Creates the tag with the next free number.
    ///
    /// If two processes try at once, git lets one create it; the other takes the next number.
    fn tag(
        &self,
        git: &Git,
        key: &str,
        taken: &mut Vec<Name>,
        manifest: &mut Manifest,
        text: &str,
    ) -> Result<Name> {
        let invalid = |error| {
            Error::new(
                Category::Failed,
                "E_INVALID",
                format!("a manifest: {error}"),
            )
        };
        let at = Oid::parse(&manifest.commit)
            .ok_or_else(|| Error::not_found("the commit of the manifest is none"))?;
        // Commands, closed issues and the branch name go into an object that may be pushed and that
        // cannot be taken back.
        let first = manifest.message(text).map_err(invalid)?;
        self.project
            .files()
            .check_secrets("the message of the tag", first.as_bytes())?;
        for _ in 0..TRIES {
            let name = Name::next(key, &*taken)?;
            manifest.tag = format!("{}{name}", Self::prefix(git));
            let message = manifest.message(text).map_err(invalid)?;
            match git.create_tag(&manifest.tag, &at, &message)? {
                Created::Created => return Ok(name),
                Created::AlreadyExists => taken.push(name),
            }
        }
        Err(Error::new(
            Category::Failed,
            "E_TAGS",
            format!("{TRIES} names of checkpoints of {key} in a row were taken"),
        ))
    }
}

/// Error of a project whose settings do not say how it is checked.
fn no_checks() -> Error {
    let message = "no command is set that shows that this project works, and the default (cargo test) needs a Cargo.toml";
    let hint = format!(
        "set verify.commands in {}, such as commands = [\"make test\"], or name it once: --verify \"make test\"",
        layout::CONFIG
    );
    Error::new(Category::Refused, "E_NO_CHECKS", message)
        .hint(hint)
        .next("helmdeck forge init --json")
}

fn remote(git: &Git, asked: &Create) -> Result<Option<String>> {
    if let Some(remote) = &asked.remote {
        return Ok(Some(remote.clone()));
    }
    Ok(git.default_remote()?)
}

fn push(git: &Git, asked: &Create, tag: &str, warnings: &mut Vec<String>) -> bool {
    let pushed = remote(git, asked).and_then(|remote| match remote {
        Some(remote) => Ok(git.push_tag(&remote, tag, PUSH)?),
        None => Err(Error::usage(
            "there is no remote, or several and none is named",
        )),
    });
    match pushed {
        Ok(()) => true,
        Err(error) => {
            warnings.push(format!("{tag} was not pushed: {error}"));
            false
        }
    }
}

fn check_operation(git: &Git) -> Result<()> {
    let Some(operation) = git.operation()? else {
        return Ok(());
    };
    let message = format!("git is in the middle of a {}", operation.name());
    Err(Error::new(Category::Refused, "E_OPERATION", message)
        .hint("finish it first")
        .next("git status"))
}

fn moved() -> Error {
    Error::new(
        Category::Stale,
        "E_MOVED",
        "the code changed while the checks ran",
    )
    .hint("what was checked is not what is there now: try again")
}

fn failed(command: &str, timeout: Duration, ran: &Ran) -> Error {
    let how = match ran.exit {
        _ if ran.timed_out => format!("did not end within {} s", timeout.as_secs()),
        Some(code) => format!("failed with exit code {code}"),
        None => "was ended by a signal".to_owned(),
    };
    let error = Error::new(
        Category::Failed,
        "E_CHECK",
        format!("no checkpoint was made: {command:?} {how}"),
    );
    error.hint(format!("its output ends: {}", ran.end(OUTPUT).trim()))
}
