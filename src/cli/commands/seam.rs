//! `helmdeck seam`: project memory for scripts and hooks, read-only but for `save`.
//!
//! It starts no runtime and opens no database. It exits with 0 for success and if memory is absent;
//! with 2 for a usage error and for corrupt or unsafe state; with 4 if the task must be named. If
//! the exit code is not 0, stdout is empty and stderr has one line.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use clap::Parser as _;
use helmdeck_seam::{Context, Seam, StateError, StateFault, Warning, Which, is_hidden, one_line};
use serde_json::{Map, Value, json};

use super::seam_save;
use crate::args::seam::{
    DoctorArgs, OfferArgs, RecallArgs, SaveArgs, SeamCli, SeamCommand, StatePathArgs, WhichPath,
};
use crate::config::SeamSettings;
use crate::env::ProcessEnvironment;
use crate::misread;
use crate::output::Output;
use crate::seam::{budgets, config};
use crate::terminal::Look;

/// The largest candidate, in bytes.
const MOST: u64 = 16 << 20;

/// Reason for a command to end early.
#[derive(Debug)]
pub(super) struct SeamFailure {
    pub(super) code: &'static str,
    pub(super) exit: u8,
    /// `<path>: <cause>; <remedy>`.
    pub(super) line: String,
}

impl SeamFailure {
    /// Makes the error of a usage mistake.
    pub(super) fn usage(
        place: impl std::fmt::Display,
        cause: impl std::fmt::Display,
        remedy: &str,
    ) -> Self {
        Self {
            code: "usage",
            exit: 2,
            line: format!("{place}: {cause}; {remedy}"),
        }
    }

    fn report(&self, output: Output) {
        let Self { code, exit, line } = self;
        if output.json {
            let kind = format!("urn:helmdeck:error:{code}");
            output.problem(
                &json!({"type": kind, "title": code, "code": code, "detail": line, "exit": exit}),
            );
        } else {
            let word = output
                .terminals
                .on_stderr()
                .text(Look::Red, &format!("error[{code}]:"));
            output.error_text(&format!("{word} {}", one_line(line)));
        }
    }
}

impl From<StateError> for SeamFailure {
    fn from(error: StateError) -> Self {
        Self {
            code: error.fault.code(),
            exit: error.fault.exit_code(),
            line: error.to_string(),
        }
    }
}

/// Runs the command that these arguments name, and returns the exit code.
pub(crate) fn main(arguments: Vec<OsString>, env: &ProcessEnvironment) -> u8 {
    match SeamCli::try_parse_from(&arguments) {
        Ok(SeamCli { global, command }) => {
            let output = Output {
                quiet: global.quiet,
                ..Output::of_process(env, global.json, global.verbose)
            };
            run(&command, global.config.as_deref(), env, output)
        }
        Err(error) if !error.use_stderr() => {
            // A failed write means that the reader is gone.
            let _ = error.print();
            0
        }
        Err(error) => {
            let output = Output::of_process(
                env,
                arguments.iter().any(|argument| argument == "--json"),
                0,
            );
            misread(&error, SeamCli::verb(&arguments).as_deref()).report(output);
            2
        }
    }
}

/// Returns clap's error on one line: what is wrong, a suggestion, and where to find help.
fn misread(error: &clap::Error, verb: Option<&str>) -> SeamFailure {
    let meant = misread::meant(error)
        .map(|word| format!("did you mean `{word}`? "))
        .unwrap_or_default();
    let verb = verb.map(|verb| format!(" {verb}")).unwrap_or_default();
    SeamFailure::usage(
        "helmdeck seam",
        misread::cause(error),
        &format!("{meant}see `helmdeck seam{verb} --help`"),
    )
}

/// Runs a command and returns the exit code.
pub(crate) fn run(
    command: &SeamCommand,
    file: Option<&Path>,
    env: &ProcessEnvironment,
    output: Output,
) -> u8 {
    let (settings, problem) = SeamSettings::alone(file, env);
    let queries = Queries {
        seam: Seam::on_disk(config(&settings, env)),
        output,
    };
    let mut warnings: Vec<Warning> = problem
        .map(|message| Warning {
            code: "memory-unreadable",
            message: one_line(&message),
        })
        .into_iter()
        .collect();
    if matches!(command, SeamCommand::RecallHere(_) | SeamCommand::Doctor(_)) {
        warnings.extend(budgets(env).1);
    }
    let answer = match command {
        SeamCommand::RecallHere(arguments) => queries.recall(arguments, &mut warnings),
        SeamCommand::StatePath(arguments) => queries.state_path(arguments, &mut warnings),
        SeamCommand::OfferSaveHere(arguments) => queries.offer(arguments, &mut warnings),
        SeamCommand::Save(arguments) => queries.save(arguments, (file, env), &mut warnings),
        SeamCommand::Plans { place } => queries.plans(place.cwd.clone(), &mut warnings),
        SeamCommand::Doctor(arguments) => queries.doctor(arguments, &mut warnings),
    };
    let written = answer.and_then(|bytes| match output.raw(&bytes) {
        Err(failure) if !failure.is_silent() => Err(SeamFailure {
            code: "output",
            exit: 2,
            line: format!("stdout: {}; give it room", failure.message()),
        }),
        // The reader closed the pipe: it has what it needs.
        _ => Ok(()),
    });
    match written {
        Ok(()) => {
            warn(&warnings, output);
            0
        }
        Err(stop) => {
            stop.report(output);
            stop.exit
        }
    }
}

/// Writes the warnings: one line per code, for any number of warnings.
fn warn(warnings: &[Warning], output: Output) {
    let mut printed: Vec<&str> = Vec::new();
    for warning in warnings {
        if printed.contains(&warning.code) {
            continue;
        }
        printed.push(warning.code);
        let more = warnings
            .iter()
            .filter(|other| other.code == warning.code)
            .count()
            - 1;
        let more = if more == 0 {
            String::new()
        } else {
            format!(" (and {more} more)")
        };
        output.note(&one_line(&format!("{warning}{more}")));
    }
}

/// The seam and its output.
struct Queries {
    seam: Seam,
    output: Output,
}

impl Queries {
    fn recall(
        &self,
        arguments: &RecallArgs,
        warnings: &mut Vec<Warning>,
    ) -> Result<Vec<u8>, SeamFailure> {
        let context = context(arguments.place.cwd.clone(), arguments.phase.clone(), None);
        let limit = arguments
            .limit
            .and_then(|limit| usize::try_from(limit).ok());
        let recall = self
            .seam
            .recall(&context, arguments.query.as_deref(), limit);
        warnings.extend(recall.warnings.iter().cloned());
        if self.output.json {
            return Ok(line(&json!(recall)));
        }
        let mut text = recall.text;
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        Ok(text.into_bytes())
    }

    fn state_path(
        &self,
        arguments: &StatePathArgs,
        warnings: &mut Vec<Warning>,
    ) -> Result<Vec<u8>, SeamFailure> {
        // An empty name counts as none.
        let plan = arguments.plan.clone().filter(|plan| !plan.is_empty());
        let state = self
            .seam
            .state(&context(arguments.place.cwd.clone(), None, plan))?;
        warnings.extend(state.warnings.iter().cloned());
        if self.output.json {
            return Ok(line(&json!(state)));
        }
        let paths = match arguments.which {
            WhichPath::Plan => vec![state.path(Which::Plan)],
            WhichPath::Progress => vec![state.path(Which::Progress)],
            WhichPath::Tracker => vec![state.path(Which::Tracker)],
            WhichPath::Both => vec![state.path(Which::Plan), state.path(Which::Progress)],
        };
        let mut bytes = Vec::new();
        for path in paths {
            let path_bytes = path.as_os_str().as_bytes();
            if path.to_string_lossy().contains(is_hidden) {
                let line = format!(
                    "{}: the path holds a control character, or one that is not seen; give the folder another name",
                    path.display()
                );
                return Err(SeamFailure {
                    code: "unsafe-name",
                    exit: 2,
                    line,
                });
            }
            if !bytes.is_empty() {
                bytes.push(b'\t');
            }
            bytes.extend_from_slice(path_bytes);
        }
        bytes.push(b'\n');
        Ok(bytes)
    }

    fn offer(
        &self,
        arguments: &OfferArgs,
        warnings: &mut Vec<Warning>,
    ) -> Result<Vec<u8>, SeamFailure> {
        let candidate = candidate(arguments)?;
        let context = context(arguments.place.cwd.clone(), arguments.phase.clone(), None);
        let offer = self.seam.offer(&context, &candidate);
        warnings.extend(offer.warnings.iter().cloned());
        if self.output.json {
            return Ok(line(&json!(offer)));
        }
        let mut text = serde_json::to_string_pretty(&offer.candidates)
            .map_err(|error| SeamFailure::usage("candidate", error, "give another one"))?;
        text.push('\n');
        Ok(text.into_bytes())
    }

    fn save(
        &self,
        arguments: &SaveArgs,
        (file, env): (Option<&Path>, &ProcessEnvironment),
        warnings: &mut Vec<Warning>,
    ) -> Result<Vec<u8>, SeamFailure> {
        let (offer, place) = (&arguments.offer, &arguments.offer.place);
        let context = context(place.cwd.clone(), offer.phase.clone(), None);
        let offered = self.seam.offer(&context, &candidate(offer)?);
        warnings.extend(offered.warnings);
        let Some(candidate) = offered.candidates.first() else {
            let cause = "there is neither a note vault nor a .forge/ for this project";
            return Err(SeamFailure::usage(
                "memory",
                cause,
                "see `helmdeck seam doctor`",
            ));
        };
        let environment =
            crate::project::environment(env, file, None, None).map_err(|failure| {
                SeamFailure::usage("environment", failure.message(), "correct the variable")
            })?;
        let saved = seam_save::save(
            candidate,
            &context,
            &environment,
            (self.output, arguments.yes),
        )?;
        if self.output.json {
            return Ok(line(&json!(saved)));
        }
        let known = if saved.saved { "" } else { "known already: " };
        Ok(format!("{known}{}\n", one_line(&saved.path)).into_bytes())
    }

    #[expect(clippy::unnecessary_wraps, reason = "as the others")]
    fn plans(
        &self,
        cwd: Option<PathBuf>,
        warnings: &mut Vec<Warning>,
    ) -> Result<Vec<u8>, SeamFailure> {
        let plans = self.seam.plans(&context(cwd, None, None));
        warnings.extend(plans.warnings.iter().cloned());
        if self.output.json {
            return Ok(line(&json!(plans)));
        }
        let mut rows = Vec::new();
        for plan in &plans.plans {
            rows.extend(shown(&plan.path));
            let state =
                [&plan.status, &plan.last_progress].map(|text| text.as_deref().unwrap_or_default());
            rows.extend_from_slice(format!("\t{}\n", state.join("\t")).as_bytes());
        }
        if let Some(active) = &plans.active {
            rows.extend_from_slice(format!("active-binding={active}\n").as_bytes());
        }
        Ok(rows)
    }
}

impl Queries {
    /// Prints the diagnosis. Other problems are part of the answer, one per line.
    fn doctor(
        &self,
        arguments: &DoctorArgs,
        warnings: &mut Vec<Warning>,
    ) -> Result<Vec<u8>, SeamFailure> {
        let DoctorArgs { place, phase, plan } = arguments.clone();
        let mut doctor = self.seam.doctor(&context(
            place.cwd,
            phase,
            plan.filter(|plan| !plan.is_empty()),
        ));
        if let Some(error) = doctor
            .error
            .clone()
            .filter(|error| error.fault != StateFault::TaskNameRequired)
        {
            return Err(error.into());
        }
        doctor.ok &= warnings.is_empty();
        doctor.warnings.splice(0..0, warnings.drain(..));
        if !self.output.json {
            return Ok(doctor.to_string().into_bytes());
        }
        Ok(line(&json!(doctor)))
    }
}

fn context(cwd: Option<PathBuf>, phase: Option<String>, plan: Option<String>) -> Context {
    Context { cwd, phase, plan }
}

fn line(value: &Value) -> Vec<u8> {
    format!("{value}\n").into_bytes()
}

/// Returns a path on one line: line ends and invisible characters are escaped, all else is
/// unchanged.
fn shown(path: &Path) -> Vec<u8> {
    let mut shown = Vec::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        shown.extend_from_slice(one_line(chunk.valid()).as_bytes());
        shown.extend_from_slice(chunk.invalid());
    }
    shown
}

/// Builds a candidate from arguments, or reads a whole one.
fn candidate(arguments: &OfferArgs) -> Result<Value, SeamFailure> {
    if let Some(path) = &arguments.candidate_json {
        let text = read(path)?;
        return serde_json::from_str(&text).map_err(|error| {
            SeamFailure::usage(
                name(path),
                format!("it is not JSON: {error}"),
                "give one JSON value",
            )
        });
    }
    let mut members = Map::new();
    members.insert("kind".to_owned(), json!(arguments.kind));
    members.insert("slug".to_owned(), json!(arguments.slug));
    members.insert("body".to_owned(), read(&arguments.body_file)?.into());
    if let Some(confidence) = arguments.confidence {
        let number = serde_json::Number::from_f64(confidence).ok_or_else(|| {
            SeamFailure::usage(
                "--confidence",
                format!("{confidence} is not a number"),
                "give one from 0 to 1",
            )
        })?;
        members.insert("confidence".to_owned(), number.into());
    }
    if let Some(reason) = &arguments.confidence_reason {
        members.insert("confidence_reason".to_owned(), reason.as_str().into());
    }
    Ok(members.into())
}

/// Reads a text that the arguments name; `-` is stdin.
fn read(path: &Path) -> Result<String, SeamFailure> {
    let mut bytes = Vec::new();
    let done = if path.as_os_str() == "-" {
        std::io::stdin()
            .lock()
            .take(MOST + 1)
            .read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(MOST + 1).read_to_end(&mut bytes))
    };
    done.map_err(|error| SeamFailure::usage(name(path), error, "name a file that can be read"))?;
    if bytes.len() as u64 > MOST {
        return Err(SeamFailure::usage(
            name(path),
            "it is over 16 MiB",
            "offer less at once",
        ));
    }
    String::from_utf8(bytes)
        .map_err(|_| SeamFailure::usage(name(path), "it is not UTF-8 text", "give it as UTF-8"))
}

fn name(path: &Path) -> String {
    if path.as_os_str() == "-" {
        "stdin".to_owned()
    } else {
        path.display().to_string()
    }
}

#[cfg(test)]
mod tests {
    use helmdeck_seam::Phase;

    use super::*;

    #[test]
    fn the_environment_comes_before_the_configuration() {
        let env = ProcessEnvironment::of(&[
            ("MEMORY_VAULT_PATH", "/third"),
            ("HELMDECK_MEMORY", "/first"),
            ("MEMORY_ROOT", ""),
            ("HOME", "/home/a"),
            ("HARNESS_RECALL_BUDGET_PLAN", " 30 "),
            ("HARNESS_RECALL_BUDGET_WORK", "much"),
        ]);
        let settings = SeamSettings {
            vault: "/set".into(),
            ..SeamSettings::default()
        };
        let config = config(&settings, &env);
        let by: Vec<&str> = config
            .vaults
            .iter()
            .map(|given| given.by.as_str())
            .collect();
        assert_eq!(by, ["HELMDECK_MEMORY", "MEMORY_VAULT_PATH", "seam.vault"]);
        assert_eq!(
            config.budgets.into_iter().collect::<Vec<_>>(),
            [(Phase::Plan, 30)]
        );
        assert_eq!(config.home, Some("/home/a".into()));
    }

    #[test]
    fn a_budget_that_is_no_number_is_told() {
        let told = |text: &str| {
            budgets(&ProcessEnvironment::of(&[(
                "HARNESS_RECALL_BUDGET_WORK",
                text,
            )]))
        };
        for wrong in ["12k", "much", "1.5", "99999999999999999999"] {
            let (budgets, warning) = told(wrong);
            let warning = warning.unwrap();
            assert!(
                budgets.is_empty() && warning.code == "budget-unknown",
                "{wrong}"
            );
            assert!(
                warning.message.starts_with("HARNESS_RECALL_BUDGET_WORK: ")
                    && warning.message.contains(wrong)
            );
        }
        for (quiet, count) in [("", 0), (" ", 0), ("-5", 0), ("0", 1), (" 30 ", 1)] {
            let (budgets, warning) = told(quiet);
            assert_eq!((budgets.len(), warning), (count, None), "{quiet:?}");
        }
    }

    #[test]
    fn relative_paths_begin_where_the_process_works() {
        let env = ProcessEnvironment::of(&[
            ("HELMDECK_MEMORY", " v "),
            ("MEMORY_ROOT", "~/v"),
            ("MEMORY_VAULT_PATH", " "),
            ("AGENTM_INSTALL_PREFIX", "p"),
        ]);
        let settings = SeamSettings {
            vault: "s".into(),
            ..SeamSettings::default()
        };
        let config = config(&settings, &env);
        let paths: Vec<_> = config
            .vaults
            .iter()
            .map(|given| given.path.to_str().unwrap())
            .collect();
        assert_eq!(
            (paths, config.prefix),
            (vec!["/work/v", "~/v", "/work/s"], Some("/work/p".into()))
        );
    }

    #[test]
    fn paths_are_shown_as_they_are_but_for_what_would_end_the_line() {
        use std::os::unix::ffi::OsStrExt as _;

        for (path, line) in [
            (
                &b"/re  po/a\xe3\x80\x80b\xc2\xa0c/PLAN.md"[..],
                &b"/re  po/a\xe3\x80\x80b\xc2\xa0c/PLAN.md"[..],
            ),
            (b"/a\nb\tc", b"/a\\nb\\tc"),
            (b"/a\xffb\x1b", b"/a\xffb\\u{1b}"),
        ] {
            let path = Path::new(std::ffi::OsStr::from_bytes(path));
            assert_eq!(shown(path), line, "{}", path.display());
        }
    }

    #[test]
    fn a_mistake_is_told_on_one_line() {
        for words in [
            &["helmdeck"][..],
            &["helmdeck", "state-path"],
            &["helmdeck", "state-path", "bogus"],
            &["helmdeck", "x"],
        ] {
            let error = SeamCli::try_parse_from(words).unwrap_err();
            let stop = misread(&error, None);
            assert_eq!((stop.exit, stop.code), (2, "usage"), "{words:?}");
            assert!(
                !stop.line.contains('\n') && stop.line.starts_with("helmdeck seam: "),
                "{}",
                stop.line
            );
        }
    }
}
