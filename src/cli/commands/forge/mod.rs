//! `helmdeck forge`: project memory on the command line.
//!
//! The commands translate arguments and print results; `helmdeck_forge` does the work.

mod agents;
mod context;
mod form;
mod git;
mod issue;
mod memory;
mod session;
mod text;
mod tracker;
mod work;

use std::path::Path;
use std::time::{Duration, Instant};

use helmdeck_forge::events::{Events, Replay};
use helmdeck_forge::health::{Colour, Health};
use helmdeck_forge::init::Init;
use helmdeck_forge::repair::{RepairRequest, Source};
use helmdeck_forge::sessions::Sessions;
use helmdeck_forge::work::Verify;
use helmdeck_forge::{Error, Project, Time, Trust};
use serde_json::{Value, json};

use self::context::{Answer, CommandContext, NO_MEMORY, Stop};
use self::text::{health_text, init_text, plain, trust_text};
use crate::args::forge::{ForgeArgs, ForgeCommand, ForgeSessionCommand};
use crate::env::ProcessEnvironment;
use crate::exit::{Exit, Failure, Result};
use crate::output::Output;
use crate::signals::end_after;

/// Time limit for sending waiting events and reading those of the server.
const SEND: Duration = Duration::from_secs(10);
/// Interval of `health --watch`.
const LOOK: Duration = Duration::from_secs(2);
/// Minimum interval between stored colours that did not change.
const KEEP: Duration = Duration::from_secs(30);

/// Runs a command.
///
/// With `--json` it prints `{"ok": true, "data"}` or `{"ok": false, "error"}` on stdout.
///
/// # Errors
/// 1 failure, 2 usage, 3 absent, 4 paused, 5 locked, 6 stale, 7 secret, 8 corrupt, 9 refused, 10
/// unknown; `health --exit-code` 11 and 12.
pub(crate) fn run(
    arguments: &ForgeArgs,
    config: Option<&Path>,
    env: &ProcessEnvironment,
    output: Output,
) -> Result<()> {
    let answer = CommandContext::of(&arguments.common, config, env, output).and_then(|on| {
        if runs_checks(&arguments.command) {
            // The checks run in separate process groups, and would outlive this process.
            let running = on.environment.running.clone();
            end_after(move || running.stop())?;
        }
        on.run(&arguments.command)
    });
    match answer {
        Err(Stop::Project(error)) if output.json => {
            let exit = Failure::from((*error).clone()).exit();
            output.value(&json!({"ok": false, "error": *error}))?;
            Err(Failure::silent(exit))
        }
        Err(Stop::Project(error)) => Err((*error).into()),
        Err(Stop::Cli(failure)) if output.json && !failure.is_silent() => {
            output.value(&refusal(&failure))?;
            Err(Failure::silent(failure.exit()))
        }
        Err(Stop::Cli(failure)) => Err(failure),
        Err(Stop::NoMemory) if output.json => output.value(&json!({"ok": true, "data": null})),
        Err(Stop::NoMemory) => {
            output.note(NO_MEMORY);
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// Says whether a command may run checks of the project.
const fn runs_checks(command: &ForgeCommand) -> bool {
    use ForgeCommand as C;
    matches!(
        command,
        C::Verify { .. }
            | C::Start(_)
            | C::Done(_)
            | C::Checkpoint(_)
            | C::Recover(_)
            | C::Session(ForgeSessionCommand::Start(_))
    )
}

/// Returns the `--json` output for a failure outside the project.
///
/// That is a failure of the command line or of the environment.
pub(crate) fn refusal(failure: &Failure) -> Value {
    let (code, category) = match failure.exit() {
        Exit::Usage => ("E_USAGE", "usage"),
        Exit::Config => ("E_CONFIG", "usage"),
        _ => ("E_FAILED", "failed"),
    };
    let mut error = json!({"code": code, "category": category, "message": failure.message()});
    if let Some(hint) = failure.hint() {
        error["hint"] = hint.into();
    }
    json!({"ok": false, "error": error})
}

impl CommandContext {
    fn run(&self, command: &ForgeCommand) -> Answer {
        use ForgeCommand as C;
        match command {
            C::Init {
                remove: true, yes, ..
            } => {
                let removed = agents::named(self, true, *yes)?.map(|agent| {
                    self.change(|project| helmdeck_forge::agents::apply(project, agent, true))
                });
                self.show(&removed.transpose()?)
            }
            C::Init {
                adopt,
                no_git,
                here,
                scissors,
                merge_driver,
                remove: false,
                yes,
            } => {
                let agent = agents::named(self, false, *yes)?;
                let init = Init {
                    adopt: *adopt,
                    no_git: *no_git,
                    here: *here,
                    scissors: *scissors,
                    merge_driver: *merge_driver,
                    allow_secrets: self.allowed.clone(),
                };
                // A memory that this user creates is trusted; an existing one may come from another
                // user.
                let is_new = matches!(
                    Project::open_anyway(&self.folder, self.environment.clone()),
                    Ok(None)
                );
                let (project, done) =
                    helmdeck_forge::init::init(&self.folder, self.environment.clone(), &init)?;
                if is_new && matches!(self.environment.trust, Trust::Kept(_)) {
                    helmdeck_forge::trust::agree(
                        &project,
                        &helmdeck_forge::trust::state(&project)?,
                    )?;
                }
                let mut shown = serde_json::to_value(&done).map_err(Failure::internal)?;
                let setup = agent
                    .map(|agent| agents::set_up(self, &project, agent, *yes))
                    .transpose()?;
                if let Some(setup) = &setup {
                    shown["agent"] = serde_json::to_value(setup).map_err(Failure::internal)?;
                }
                self.print(&shown, || init_text(&done, setup.as_ref()))
            }
            C::Trust { show, revoke, yes } => self.trust(*show, *revoke, *yes),
            C::Doctor { fix } => {
                let project = Project::open_anyway(&self.folder, self.environment.clone())?
                    .ok_or_else(|| Error::not_found(NO_MEMORY).next("helmdeck forge init"))?;
                let found = helmdeck_forge::init::doctor(&project, *fix)?;
                self.show(&found)?;
                Self::exit(if found.healthy {
                    Exit::Ok
                } else {
                    Exit::Failed
                })
            }
            C::Repair { path, yes, from } => self.repair(path.as_deref(), *yes, from.as_deref()),
            C::Knowledge(command) => memory::knowledge(self, command),
            C::Features(command) => memory::features(self, command),
            C::Focus(command) => memory::focus(self, command),
            C::Artifact(command) => memory::artifact(self, command),
            C::Skill(command) => memory::skill(self, command),
            C::Commit(arguments) => work::commit(self, arguments),
            C::Start(arguments) => work::start(self, arguments),
            C::Done(arguments) => work::done(self, arguments),
            C::Status => work::status(self),
            C::Ready => issue::ready(self),
            C::Verify { ids, all, stale } => memory::verify(
                self,
                &Verify {
                    ids: ids.clone(),
                    all: *all,
                    stale: *stale,
                },
            ),
            C::Remember { text } => work::remember(self, text),
            C::Issue(command) => issue::run(self, (**command).clone()),
            C::Form(command) => form::run(self, command),
            C::Tracker(command) => tracker::run(self, command),
            C::Hook(command) => git::hook(self, command),
            C::Checkpoint(command) => git::checkpoint(self, command),
            C::Recover(command) => git::recover(self, command),
            C::Session(command) => session::run(self, command),
            C::Prime { budget } => {
                let project = self.examine()?;
                Sessions::new(&project).renew_lease();
                let primed = helmdeck_forge::prime::prime(&project, *budget)?;
                self.print(&primed, || primed.text.clone())
            }
            C::Health { watch, exit_code } => self.health(*watch, *exit_code),
            C::Events {
                lines,
                after,
                since,
                server,
            } => self.events(*lines, *after, since.as_deref(), *server),
            C::Export { folder } => self.export(folder.as_deref()),
            C::MergeDriver {
                base,
                ours,
                theirs,
                path,
            } => {
                let driven = helmdeck_forge::merge::drive(
                    &self.folder,
                    self.environment.clone(),
                    base,
                    ours,
                    theirs,
                    path,
                )?;
                self.show(&driven)?;
                Self::exit(if driven.conflicts.is_empty() {
                    Exit::Ok
                } else {
                    Exit::Failed
                })
            }
        }
    }

    /// Shows what the project would run, and asks whether it may.
    fn trust(&self, show: bool, revoke: bool, yes: bool) -> Answer {
        let project = self.look()?;
        if revoke {
            let revoked = helmdeck_forge::trust::revoke(&project)?;
            return self.print(&json!({"revoked": revoked}), || match revoked {
                true => "the commands of this clone are not trusted any more".to_owned(),
                false => "nothing of this clone was trusted".to_owned(),
            });
        }
        let mut state = helmdeck_forge::trust::state(&project)?;
        if !show && !state.trusted {
            if !yes {
                if !self.is_interactive() {
                    let message = "the commands of this clone are not trusted, and there is no terminal to ask on";
                    let error =
                        Error::new(helmdeck_forge::Category::Refused, "E_UNTRUSTED", message);
                    return Err(error
                        .hint("look at them with `helmdeck forge trust --show`, then say --yes")
                        .next("helmdeck forge trust --show")
                        .into());
                }
                self.output.text_on_stderr(&trust_text(&state));
                self.ask("run these commands in this clone", "nothing was trusted")?;
            }
            helmdeck_forge::trust::agree(&project, &state)?;
            state = helmdeck_forge::trust::state(&project)?;
        }
        self.print(&state, || trust_text(&state))
    }

    fn repair(&self, path: Option<&str>, yes: bool, from: Option<&str>) -> Answer {
        // Damaged settings can be repaired too.
        let project = Project::open_anyway(&self.folder, self.environment.clone())?;
        let Some(path) = path else {
            let damaged = helmdeck_forge::repair::damaged_files(&project.ok_or(Stop::NoMemory)?)?;
            return self.print(&damaged, || match serde_json::to_value(&damaged) {
                Ok(value) if !damaged.is_empty() => plain(&value),
                _ => "nothing is damaged".to_owned(),
            });
        };
        let project =
            project.ok_or_else(|| Error::not_found(NO_MEMORY).next("helmdeck forge init"))?;
        let project = self
            .allowed
            .iter()
            .fold(project, |project, rule| project.allowing(rule));
        let from = match from {
            None => None,
            Some("tag") => Some(Source::Tag),
            Some("merge") => Some(Source::Merge),
            Some("last_good") => Some(Source::LastGood),
            Some("git") => Some(Source::Git),
            Some("salvage") => Some(Source::Salvage),
            Some("skeleton") => Some(Source::Skeleton),
            Some(word) => {
                return Err(Error::usage(format!(
                    "{word:?} is not one of tag, merge, last_good, git, salvage, skeleton"
                ))
                .into());
            }
        };
        let repair = helmdeck_forge::repair::repair(&project, path, RepairRequest { yes, from })?;
        self.print(&repair, || match &repair.damage {
            Some(_) => serde_json::to_value(&repair)
                .map(|value| plain(&value))
                .unwrap_or_default(),
            None => format!("{path}: nothing is damaged"),
        })
    }

    fn health(&self, watch: bool, exit_code: bool) -> Answer {
        let project = self.examine()?;
        let health = helmdeck_forge::health::measure(&project);
        if watch {
            return self.watch(&project, health);
        }
        self.print(&health, || health_text(&health))?;
        Self::exit(match health.overall {
            Colour::Yellow if exit_code => Exit::Yellow,
            Colour::Red if exit_code => Exit::Red,
            _ => Exit::Ok,
        })
    }

    /// Prints the health colours when they change and records them, until a signal ends it.
    fn watch(&self, project: &Project, mut health: Health) -> Answer {
        let mut kept = Instant::now();
        let mut changed = true;
        loop {
            if changed || kept.elapsed() >= KEEP {
                kept = Instant::now();
                if let Err(error) = helmdeck_forge::health::record(project, &health) {
                    self.output
                        .note(&format!("the colours are not kept: {error}"));
                }
            }
            if changed {
                self.print(&health, || health_text(&health))?;
            }
            std::thread::sleep(LOOK);
            let now = helmdeck_forge::health::measure(project);
            changed = now.colours() != health.colours();
            health = now;
        }
    }

    /// Prints events of the journal, or of the event server once the waiting ones are sent.
    fn events(
        &self,
        lines: Option<usize>,
        after: u64,
        since: Option<&str>,
        server: bool,
    ) -> Answer {
        let project = self.look()?;
        let events = Events::new(&project);
        let since = since.map(Time::parse).transpose().map_err(Error::usage)?;
        let replay = Replay {
            after,
            since,
            last: lines,
            ..Replay::default()
        };
        let replayed = if server {
            events.drain(SEND)?;
            events.replay_stored(&replay, SEND)?
        } else {
            events.replay(&replay)?
        };
        let waiting = events.waiting()?;
        let mut data = serde_json::to_value(&replayed).map_err(Failure::internal)?;
        data["waiting"] = waiting.into();
        self.print(&data, || {
            let lines = replayed.events.iter().map(|event| {
                let session = event.session.as_deref().unwrap_or("-");
                format!(
                    "{}  {:>5}  {}  {session}",
                    event.ts.seconds(),
                    event.seq,
                    event.kind
                )
            });
            let waits = (waiting > 0).then(|| format!("{waiting} wait for the event server"));
            lines.chain(waits).collect::<Vec<_>>().join("\n")
        })
    }

    /// Prints the documents of the long-term memory, or writes them into a folder.
    fn export(&self, folder: Option<&Path>) -> Answer {
        let export = helmdeck_forge::export::export(&self.look()?)?;
        let Some(folder) = folder else {
            return self.print(&export, || {
                serde_json::to_string_pretty(&export).unwrap_or_default()
            });
        };
        let paths = export.write(&self.process.absolute(folder)?)?;
        self.print(&paths, || {
            paths
                .iter()
                .map(|path| path.display().to_string())
                .collect::<Vec<_>>()
                .join("\n")
        })
    }
}
