//! `swe.solve`: reads notes, fetches the repository, lets a model work, and stores the results.
//!
//! However a run ends, its patch, trajectory and note are kept. It is an error only if no command
//! ran or the push failed; the message then names the trajectory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use helmdeck_core::session::{Exec, Session};
use helmdeck_core::{Clock, Code, Context, Error, Handler, Json, Reply, Result};
use helmdeck_llm::{Client, Endpoint};
use serde_json::Value;

use super::agent::{Agent, Limits, Workplace, quiet};
use super::config::Config;
use super::ending::Ending;
use super::input::{Format, Input, MODEL_CREDENTIAL, Mode};
use super::mini;
use super::prompt;
use super::publish::{self, Change, Published};
use super::recall::{Lesson, Recall};
use super::repository::{Address, Checkout, Difference, Repository, RepositoryRef, credential};
use super::result::{self, Output, Tests, UsageOut};
use super::trajectory::{RunHeader, Trajectory, What};
use crate::repo;

/// Time reserved for the steps after the model: the maximum, and the divisor for a short run.
const RESERVE: Duration = Duration::from_secs(120);
const RESERVE_PART: u32 = 5;

/// The least that tests are given.
const LEAST_FOR_TESTS: Duration = Duration::from_secs(1);

/// Maximum tokens of the repository map, and the time limit to make it.
const MAP_TOKENS: usize = 1500;
const MAP_PATIENCE: Duration = Duration::from_secs(30);

/// The name of the note of a run in which no command ran.
///
/// There is only one such note. Otherwise an endpoint that is down for a day would drive out what
/// runs learned.
const IDLE_NOTE: &str = "idle";

/// Default time limit of a run.
const LONGEST: Duration = Duration::from_secs(1800);

/// The handler.
pub(super) struct Solve {
    pub(super) config: Config,
    pub(super) client: Client,
    pub(super) repository: Arc<dyn Repository>,
    pub(super) github_host: Option<String>,
    pub(super) clock: Arc<dyn Clock>,
}

#[async_trait]
impl Handler for Solve {
    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        let input: Input = input.read()?;
        input.check()?;
        let started = Instant::now();
        let session = Arc::clone(context.session()?);
        let address = self.repository.address(&input.repo_url)?;
        let github = publish::on_github(input.mode, &address, self.github_host.as_deref())?;
        let key = credential(&context, MODEL_CREDENTIAL)?;
        let endpoint =
            self.client
                .endpoint(input.endpoint.as_deref(), input.model.as_deref(), key)?;

        context.report(Some(2.0), &format!("fetching {}", address.key));
        let checkout = self.repository.checkout(&context, wanted(&input)).await?;
        let run = Run {
            solve: self,
            context: &context,
            session: &*session,
            input,
            address,
            endpoint,
            checkout,
            started,
        };
        run.work(github.as_deref()).await
    }
}

/// Returns what is fetched, and where a change is pushed to.
fn wanted(input: &Input) -> RepositoryRef<'_> {
    RepositoryRef {
        url: &input.repo_url,
        reference: input.reference.as_deref(),
        credential: input.credential.as_deref(),
    }
}

/// One run, with its repository in the session.
struct Run<'a> {
    solve: &'a Solve,
    context: &'a Context,
    session: &'a dyn Session,
    input: Input,
    address: Address,
    endpoint: Endpoint,
    checkout: Checkout,
    started: Instant,
}

/// The patch of a run.
struct Patch {
    bytes: Bytes,
    /// The same as text.
    text: String,
    files: Vec<String>,
    /// The artifact with the bytes, or why it is missing; `None` without changes.
    kept: Option<Result<String>>,
    /// Why the changes are unknown.
    trouble: Option<Error>,
}

impl Patch {
    fn changed(&self) -> Result<bool, &Error> {
        self.trouble
            .as_ref()
            .map_or(Ok(!self.bytes.is_empty()), Err)
    }

    /// Returns whether the text is all of it.
    fn is_text(&self) -> bool {
        self.text.as_bytes() == &*self.bytes
    }
}

/// Result of the work.
struct Done {
    ending: Ending,
    patch: Patch,
    tests: Option<Tests>,
    success: bool,
    summary: String,
    /// The artifact with the trajectory, or why it is missing.
    trajectory: Result<String>,
}

impl Run<'_> {
    async fn work(&self, github: Option<&str>) -> Result<Reply> {
        let recall = Recall::new(self.context, &self.address.key);
        let notes = match &recall {
            Some(recall) => recall.earlier(self.session, &self.checkout).await,
            None => Vec::new(),
        };
        self.context.report(Some(10.0), "looking at the repository");
        let map = self.map().await;
        let nonce = self.context.run.to_string();
        let task = prompt::task(&self.input.task, &notes, &nonce);
        let limits = self.limits();
        let about = self.about(&limits);

        let mut trajectory = Trajectory::new(Arc::clone(&self.solve.clock));
        self.context
            .report(Some(15.0), &format!("asking {}", self.endpoint.model()));
        let place = Workplace {
            context: self.context,
            session: self.session,
            client: &self.solve.client,
            endpoint: &self.endpoint,
            folder: &self.checkout.folder,
        };
        let ending = Agent::new(&place, limits, map, task, &nonce, &mut trajectory)
            .run()
            .await;
        if let (Ending::Model(error) | Ending::Session(error), false) =
            (&ending, trajectory.has_commands())
        {
            let kept = self.keep(&trajectory, &about, &ending, "", None).await;
            if let Some(recall) = &recall {
                recall.keep(IDLE_NOTE, self.idle_lesson(&ending)).await;
            }
            return Err(with_trajectory(error, &kept));
        }
        let done = self.conclude(ending, &mut trajectory, &about).await;
        let published = self.publish(&done, github).await;
        if let Some(recall) = &recall {
            let lesson = self.lesson(&done, published.as_ref());
            recall.keep(&self.context.run.to_string(), lesson).await;
        }
        self.context.report(
            Some(100.0),
            if done.success {
                "done"
            } else {
                "done, without success"
            },
        );
        self.reply(done, published?, &trajectory)
    }

    /// Returns the limits of the model's work.
    ///
    /// They are the input's limits within the operator's, and the time that is left to the call and
    /// the session, less what the steps after it need.
    fn limits(&self) -> Limits {
        let (input, config) = (&self.input, &self.solve.config);
        let left = self.time_left();
        let reserve = RESERVE.min(left / RESERVE_PART);
        let work = left - reserve;
        let work = input
            .max_seconds
            .map_or(work, |seconds| work.min(Duration::from_secs(seconds)));
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        Limits {
            steps: input.max_steps.min(config.max_steps),
            until: Instant::now() + work,
            seconds: work.as_secs(),
            cost: config.cost(input.max_cost),
            command: input
                .command_seconds
                .map_or(config.command_timeout, Duration::from_secs),
            observation_bytes: size(config.observation_bytes),
            context_bytes: size(config.context_bytes),
        }
    }

    fn time_left(&self) -> Duration {
        let of_session = self.session.expires_at().since(self.solve.clock.now());
        self.context
            .time_left()
            .unwrap_or(LONGEST)
            .min(of_session)
            .min(LONGEST)
    }

    fn about(&self, limits: &Limits) -> RunHeader {
        RunHeader {
            run: self.context.run.to_string(),
            task: self.input.task.clone(),
            repository: self.address.key.clone(),
            base_commit: self.checkout.commit.clone(),
            model: self.endpoint.model().to_owned(),
            endpoint: self.endpoint.origin(),
            max_steps: limits.steps,
            max_seconds: limits.seconds,
            max_cost: limits.cost,
        }
    }

    /// Returns a map of the repository, for orientation; empty if it cannot be made.
    async fn map(&self) -> String {
        let mapping = repo::map_of_session(self.context, &self.checkout.folder, MAP_TOKENS);
        match tokio::time::timeout(MAP_PATIENCE, mapping).await {
            Ok(Ok(map)) => map.trim_end().to_owned(),
            Ok(Err(error)) => {
                tracing::debug!(%error, "going on without a map");
                String::new()
            }
            Err(_) => String::new(),
        }
    }

    /// Takes the patch, runs the tests, and keeps the trajectory.
    ///
    /// A patch that cannot be taken makes the run unsuccessful, and has no other effect.
    async fn conclude(
        &self,
        ending: Ending,
        trajectory: &mut Trajectory,
        about: &RunHeader,
    ) -> Done {
        self.context.report(Some(78.0), "taking the patch");
        let patch = self.patch().await;
        if let Some(error) = &patch.trouble {
            trajectory.add(What::Failed(error.clone()));
        }
        let tests = self.tests().await;
        let success = result::succeeded(&ending, patch.changed().unwrap_or(false), tests.as_ref());
        let summary = result::summary(&ending, patch.changed(), tests.as_ref());
        let kept = self
            .keep(trajectory, about, &ending, &patch.text, tests.as_ref())
            .await;
        Done {
            ending,
            patch,
            tests,
            success,
            summary,
            trajectory: kept,
        }
    }

    /// Takes the patch, within the time that is left.
    ///
    /// Commands can prepare a work tree so that taking the patch never ends.
    async fn patch(&self) -> Patch {
        let taking = self.solve.repository.patch(self.context, &self.checkout);
        let late = || Error::new(Code::Timeout, "the patch could not be taken in time");
        let taken = tokio::time::timeout(self.time_left() / 2, taking)
            .await
            .unwrap_or_else(|_| Err(late()));
        let (
            Difference {
                patch: bytes,
                files,
            },
            trouble,
        ) = match taken {
            Ok(taken) => (taken, None),
            Err(error) => (Difference::default(), Some(error)),
        };
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let kept = if bytes.is_empty() {
            None
        } else {
            let stored = self
                .context
                .put_artifact("patch.diff", "text/x-diff", bytes.clone())
                .await;
            Some(stored.map(|artifact| artifact.key))
        };
        Patch {
            bytes,
            text,
            files,
            kept,
            trouble,
        }
    }

    /// Runs the tests after the patch was taken, so that what they write is no part of it.
    async fn tests(&self) -> Option<Tests> {
        let command = self.input.test_command.as_deref()?;
        let left = self.time_left() / 2;
        if left < LEAST_FOR_TESTS {
            return Some(Tests::not_run(command));
        }
        self.context.report(
            Some(80.0),
            &format!(
                "running the tests: {}",
                command.lines().next().unwrap_or_default()
            ),
        );
        let mut exec = Exec::new(["bash", "-c", command]);
        exec.cwd.clone_from(&self.checkout.folder);
        exec.timeout = self.solve.config.test_timeout.min(left);
        exec.merge_stderr = true;
        exec.max_output = 64 << 10;
        exec.env = quiet();
        match self.session.exec(exec).await {
            Ok(executed) => Some(Tests::new(command, &executed)),
            Err(error) => {
                tracing::warn!(%error, "the tests cannot be run");
                Some(Tests::not_run(command))
            }
        }
    }

    /// Stores the trajectory and returns its key.
    async fn keep(
        &self,
        trajectory: &Trajectory,
        about: &RunHeader,
        ending: &Ending,
        patch: &str,
        tests: Option<&Tests>,
    ) -> Result<String> {
        let (name, value) = match self.input.trajectory_format {
            Format::Helmdeck => {
                let tests: Option<Value> = tests.and_then(|tests| serde_json::to_value(tests).ok());
                (
                    "trajectory.json",
                    trajectory.to_json(about, ending, patch, tests.as_ref()),
                )
            }
            Format::Mini => (
                "trajectory.traj.json",
                mini::to_json(trajectory, about, ending, patch),
            ),
        };
        let stored = self
            .context
            .put_artifact(name, "application/json", value.to_string().into_bytes())
            .await;
        if let Err(error) = &stored {
            tracing::warn!(%error, "the trajectory cannot be kept");
        }
        stored.map(|artifact| artifact.key)
    }

    async fn publish(&self, done: &Done, github: Option<&str>) -> Result<Published> {
        if self.input.mode == Mode::Patch || !done.success {
            return Ok(Published::default());
        }
        let change = Change {
            input: &self.input,
            wanted: wanted(&self.input),
            checkout: &self.checkout,
            patch: &done.patch.bytes,
            summary: &done.summary,
            tests: done.tests.as_ref().map(Tests::shown),
            trajectory: done.trajectory.as_deref().ok(),
            model: self.endpoint.model(),
        };
        let published =
            publish::publish(self.context, &*self.solve.repository, &change, github).await;
        published.map_err(|error| with_trajectory(&error, &done.trajectory))
    }

    fn lesson(&self, done: &Done, published: Result<&Published, &Error>) -> Lesson {
        let mut summary = done.summary.clone();
        if let Err(error) = published {
            summary.push_str(&format!(" The push failed: {error}."));
        }
        let published = published.ok();
        let tests = done.tests.as_ref().map(|tests| match tests.passed() {
            true => tests.shown(),
            false => format!("{}: {}", tests.shown(), end(&tests.tail, 800)),
        });
        Lesson {
            success: done.success && published.is_some(),
            summary,
            branch: published.and_then(|published| published.branch.clone()),
            pr_url: published.and_then(|published| published.pr_url.clone()),
            tests,
            files: done.patch.files.clone(),
            ..self.idle_lesson(&done.ending)
        }
    }

    /// Returns what a run leaves in which no command ran.
    fn idle_lesson(&self, ending: &Ending) -> Lesson {
        Lesson {
            at: self.solve.clock.now().to_rfc3339(),
            task: self.input.task.clone(),
            success: false,
            ended: ending.name().to_owned(),
            summary: ending.summary(),
            base_commit: self.checkout.commit.clone(),
            branch: None,
            pr_url: None,
            tests: None,
            files: Vec::new(),
        }
    }

    fn reply(&self, done: Done, published: Published, trajectory: &Trajectory) -> Result<Reply> {
        let Done {
            ending,
            patch,
            tests,
            mut success,
            mut summary,
            trajectory: kept,
        } = done;
        if self.input.mode != Mode::Patch && !success {
            summary.push_str("\nNothing was pushed.");
        }
        if let Some(error) = &published.trouble {
            success = false;
            summary.push_str(&format!(
                "\nThe branch was pushed, but the pull request could not be opened: {error}."
            ));
        }
        let is_text = patch.is_text();
        let (text, cut) = match &patch.kept {
            Some(Ok(_)) => result::start(patch.text),
            // Nowhere else to be had.
            _ => (patch.text, false),
        };
        match &patch.kept {
            Some(Ok(key)) if cut => {
                summary.push_str(&format!(
                    "\nThe patch is long: the answer has its start, the artifact {key} all of it."
                ));
            }
            Some(Ok(key)) if !is_text => {
                summary.push_str(&format!(
                    "\nThe patch has bytes that are no UTF-8; the exact one is the artifact {key}."
                ));
            }
            Some(Err(error)) if !is_text => {
                summary.push_str(&format!(
                    "\nThe patch has bytes that are no UTF-8; the exact one could not be kept: {error}."
                ));
            }
            _ => {}
        }
        if let Err(error) = &kept {
            summary.push_str(&format!("\nThe trajectory could not be kept: {error}."));
        }
        Reply::value(&Output {
            success,
            summary,
            ended: ending.name(),
            patch: text,
            patch_truncated: cut,
            patch_artifact_key: patch.kept.and_then(Result::ok),
            base_commit: self.checkout.commit.clone(),
            commit: published.commit,
            branch: published.branch,
            pr_url: published.pr_url,
            trajectory_artifact_key: kept.ok(),
            steps_executed: trajectory.spent.steps,
            tests,
            usage: UsageOut::new(&trajectory.spent, self.started.elapsed()),
            model: self.endpoint.model().to_owned(),
        })
    }
}

/// Returns the last bytes of a text.
fn end(text: &str, bytes: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(bytes))..]
}

/// Names the trajectory in an error, because an error has no artifacts.
fn with_trajectory(error: &Error, kept: &Result<String>) -> Error {
    match kept {
        Ok(key) => {
            let message = format!(
                "{}; what happened is in the artifact {key}",
                error.message()
            );
            error.clone().with_message(message)
        }
        Err(_) => error.clone(),
    }
}
