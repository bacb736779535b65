//! The agent loop: asks the model, runs its commands and shows it their output.
//!
//! It ends when the model submits or a limit is reached. Commands run in the session. Each one has
//! its own process, without access to the model's key. Dropping the future kills what runs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use helmdeck_core::session::{Ended, Exec, Executed, Session};
use helmdeck_core::{Code, Context, Result};
use helmdeck_llm::{Answer, Client, Endpoint, Message, Request, Tool};

use super::action::{self, Action};
use super::conversation::Conversation;
use super::ending::Ending;
use super::observation;
use super::progress;
use super::prompt::{self, MARKER, Rules};
use super::trajectory::{Trajectory, What};

/// Maximum consecutive answers without a command.
const MAX_WITHOUT_COMMAND: u32 = 3;

/// Number of remaining answers from which on the model is warned.
const FEW_LEFT: u32 = 3;

/// Maximum bytes kept of a submission's text.
const MAX_SUMMARY_BYTES: usize = 4000;

/// Limits of a run.
#[derive(Debug, Clone)]
pub(super) struct Limits {
    /// Maximum answers.
    pub(super) steps: u32,
    /// The deadline.
    pub(super) until: Instant,
    /// The time until then, for reports.
    pub(super) seconds: u64,
    /// Maximum cost in USD. Checked before each question, so the last answer may exceed it.
    pub(super) cost: Option<f64>,
    /// Timeout of a command.
    pub(super) command: Duration,
    /// Maximum bytes of an output that is shown.
    pub(super) observation_bytes: usize,
    /// Maximum bytes of the conversation.
    pub(super) context_bytes: usize,
}

/// A model at work.
pub(super) struct Agent<'a> {
    context: &'a Context,
    session: &'a dyn Session,
    client: &'a Client,
    endpoint: &'a Endpoint,
    limits: Limits,
    /// The repository, below the session's folder.
    folder: &'a str,
    rules: Rules,
    conversation: Conversation,
    trajectory: &'a mut Trajectory,
    without_command: u32,
}

/// Environment of the agent.
pub(super) struct Workplace<'a> {
    pub(super) context: &'a Context,
    pub(super) session: &'a dyn Session,
    pub(super) client: &'a Client,
    pub(super) endpoint: &'a Endpoint,
    pub(super) folder: &'a str,
}

impl<'a> Agent<'a> {
    /// Starts a run with the map of the repository, if there is one, and the task.
    pub(super) fn new(
        place: &Workplace<'a>,
        limits: Limits,
        map: String,
        task: String,
        nonce: &str,
        trajectory: &'a mut Trajectory,
    ) -> Self {
        let rules = Rules {
            tools: true,
            steps: limits.steps,
            command_timeout: limits.command,
            observation_bytes: limits.observation_bytes,
            map,
            nonce: nonce.to_owned(),
        };
        let system = prompt::system(&rules);
        trajectory.add(What::Rules(system.clone()));
        trajectory.add(What::Task(task.clone()));
        let conversation = Conversation::new(system, task, limits.context_bytes);
        let Workplace {
            context,
            session,
            client,
            endpoint,
            folder,
        } = *place;
        Self {
            context,
            session,
            client,
            endpoint,
            limits,
            folder,
            rules,
            conversation,
            trajectory,
            without_command: 0,
        }
    }

    /// Runs until the model submits or a limit is reached. Never fails: an error is an ending too.
    pub(super) async fn run(mut self) -> Ending {
        loop {
            if let Err(ending) = self.step().await {
                return ending;
            }
        }
    }

    /// Asks once and runs the commands of the answer.
    async fn step(&mut self) -> Result<(), Ending> {
        self.check_limits()?;
        let answer = self.ask().await?;
        match action::find(&answer) {
            Ok(actions) => self.act(actions).await,
            Err(problem) => {
                self.remind(None, prompt::reminder(&problem, self.rules.tools));
                self.count_bad_answer()
            }
        }
    }

    fn check_limits(&self) -> Result<(), Ending> {
        let spent = &self.trajectory.spent;
        if spent.steps >= self.limits.steps {
            return Err(Ending::Steps(self.limits.steps));
        }
        if Instant::now() >= self.limits.until {
            return Err(Ending::Time(self.limits.seconds));
        }
        match (self.limits.cost, spent.cost) {
            (Some(_), None) => Err(Ending::CostUnknown),
            (Some(limit), Some(cost)) if cost >= limit => Err(Ending::Cost(cost, limit)),
            _ => Ok(()),
        }
    }

    fn count_bad_answer(&mut self) -> Result<(), Ending> {
        self.without_command += 1;
        let (step, steps) = (self.trajectory.spent.steps, self.limits.steps);
        progress::report(
            self.context,
            step,
            steps,
            "the answer has no command",
            &self.trajectory.spent,
        );
        if self.without_command >= MAX_WITHOUT_COMMAND {
            return Err(Ending::NoCommands(self.without_command));
        }
        Ok(())
    }

    /// Asks the model.
    ///
    /// It shortens a conversation that is too long, and retries without tools if the endpoint does
    /// not know them.
    async fn ask(&mut self) -> Result<Answer, Ending> {
        let mut fitted = self.conversation.fit().ok_or(Ending::TooLong)?;
        let started = Instant::now();
        let tools = [action::tool()];
        loop {
            // Said once, however often the question is repeated.
            match std::mem::take(&mut fitted) {
                0 => {}
                left_out => self.trajectory.add(What::LeftOut(left_out)),
            }
            let tools: &[Tool] = if self.rules.tools { &tools } else { &[] };
            let request = Request {
                messages: self.conversation.messages(),
                tools,
                ..Request::default()
            };
            let error = match self
                .client
                .chat(self.endpoint, &request, Some(self.limits.until))
                .await
            {
                Ok(answer) => {
                    self.conversation.push(answer.message());
                    self.trajectory.add(What::Answered {
                        answer: answer.clone(),
                        took: started.elapsed(),
                    });
                    return Ok(answer);
                }
                Err(unanswered) => {
                    if unanswered.lost {
                        self.trajectory.spent.cost = None;
                    }
                    unanswered.error
                }
            };
            let first = self.trajectory.spent.steps == 0;
            match error.code() {
                Code::TooLarge => {
                    self.trajectory.add(What::Failed(error));
                    fitted = self.conversation.shrink().ok_or(Ending::TooLong)?;
                }
                Code::InvalidInput | Code::NotFound if first && self.rules.tools => {
                    self.trajectory.add(What::Failed(error));
                    self.rules.tools = false;
                    let system = prompt::system(&self.rules);
                    self.trajectory.add(What::Rules(system.clone()));
                    self.conversation.set_system(system);
                }
                Code::Timeout => return Err(Ending::Time(self.limits.seconds)),
                _ => {
                    self.trajectory.add(What::Failed(error.clone()));
                    return Err(Ending::Model(error));
                }
            }
        }
    }

    /// Runs the commands of an answer, one after the other.
    async fn act(&mut self, actions: Vec<Action>) -> Result<(), Ending> {
        let mut ran = false;
        for Action { id, command } in actions {
            match command {
                Ok(command) => {
                    self.execute(id, command).await?;
                    ran = true;
                }
                Err(problem) => self.remind(id, problem),
            }
        }
        if ran {
            self.without_command = 0;
            return Ok(());
        }
        self.count_bad_answer()
    }

    /// Runs a command and shows the model its output. A submission ends the run.
    async fn execute(&mut self, id: Option<String>, command: String) -> Result<(), Ending> {
        let left = self.limits.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Ending::Time(self.limits.seconds));
        }
        let executed = match self.session.exec(self.command(&command, left)).await {
            Ok(executed) => executed,
            Err(error) => {
                self.trajectory.add(What::Failed(error.clone()));
                return Err(Ending::Session(error));
            }
        };
        let spent = self.trajectory.spent;
        let step = progress::command(&command, &executed);
        progress::report(self.context, spent.steps, self.limits.steps, &step, &spent);
        let submission = submission(&executed);
        let mut shown = observation::text(&executed, self.limits.observation_bytes);
        let left = self.limits.steps - spent.steps.min(self.limits.steps);
        if (1..=FEW_LEFT).contains(&left) {
            shown.push_str(&prompt::few_left(left));
        }
        let message = match &id {
            Some(id) => Message::Tool {
                tool_call_id: id.clone(),
                content: shown.clone(),
            },
            None => Message::user(shown.clone()),
        };
        self.conversation.push_output(message);
        let left_out = observation::output(&executed.stdout, self.limits.observation_bytes).1;
        self.trajectory.add(What::Observed {
            id,
            command,
            shown,
            left_out,
            executed: Box::new(executed),
        });
        match submission {
            Some(words) => Err(Ending::Submitted(words)),
            None => Ok(()),
        }
    }

    fn command(&self, command: &str, left: Duration) -> Exec {
        let mut exec = Exec::new(["bash", "-c", command]);
        exec.cwd = self.folder.to_owned();
        exec.timeout = self.limits.command.min(left);
        exec.max_output = self.limits.observation_bytes;
        exec.merge_stderr = true;
        exec.env = quiet();
        exec
    }

    fn remind(&mut self, id: Option<String>, text: String) {
        let message = match &id {
            Some(id) => Message::Tool {
                tool_call_id: id.clone(),
                content: text.clone(),
            },
            None => Message::user(text.clone()),
        };
        self.conversation.push(message);
        self.trajectory.add(What::Reminded { id, text });
    }
}

/// Returns variables for programs that page, colour or draw bars, which would only waste answers.
pub(super) fn quiet() -> BTreeMap<String, String> {
    let quiet = [
        ("PAGER", "cat"),
        ("GIT_PAGER", "cat"),
        ("MANPAGER", "cat"),
        ("TERM", "dumb"),
        ("NO_COLOR", "1"),
    ];
    let python = [
        ("PIP_PROGRESS_BAR", "off"),
        ("TQDM_DISABLE", "1"),
        ("PYTHONDONTWRITEBYTECODE", "1"),
    ];
    quiet
        .into_iter()
        .chain(python)
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Returns the text of a submission.
///
/// It is what a successful command printed after the marker on its first line.
fn submission(executed: &Executed) -> Option<String> {
    if executed.ended != Ended::Exited(0) {
        return None;
    }
    let (text, _) = observation::output(&executed.stdout, MAX_SUMMARY_BYTES);
    let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
    let rest = rest.trim();
    (first.trim() == MARKER).then(|| rest[..rest.floor_char_boundary(MAX_SUMMARY_BYTES)].to_owned())
}

#[cfg(test)]
mod tests {
    use helmdeck_core::session::Captured;

    use super::*;

    fn printed(text: &str, ended: Ended) -> Executed {
        let stdout = Captured {
            head: text.as_bytes().to_vec(),
            tail: Vec::new(),
            left_out: 0,
        };
        Executed {
            stdout,
            stderr: Captured::default(),
            ended,
            duration: Duration::ZERO,
        }
    }

    #[test]
    fn only_the_marker_on_the_first_line_of_a_success_submits() {
        let words = |text: &str| submission(&printed(text, Ended::Exited(0)));
        assert_eq!(
            words(&format!("{MARKER}\n fixed it \n")).unwrap(),
            "fixed it"
        );
        assert_eq!(words(&format!("{MARKER}\r\n")).unwrap(), "");
        assert_eq!(words(&format!("x\n{MARKER}\n")), None);
        assert_eq!(words(&format!("{MARKER}x\n")), None);
        assert_eq!(submission(&printed(MARKER, Ended::Exited(1))), None);
        assert_eq!(submission(&printed(MARKER, Ended::TimedOut)), None);
    }
}
