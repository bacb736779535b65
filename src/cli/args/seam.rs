//! Command line of `helmdeck seam`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};

use super::Global;

// Read by itself, without all the other commands: to make ready for those takes longer than the
// answer.
/// What a process sees of memory: only save writes, and all works without any memory
///
/// Memory is a folder of notes (`MEMORY_VAULT_PATH`, or `[seam] vault`) and what the project
/// learned in `.forge/`. No key is needed: it is neither the store of `HELMDECK_MEMORY_KEY` nor the
/// vault of credentials.
#[derive(Debug, Parser)]
#[command(name = "helmdeck seam", bin_name = "helmdeck seam", max_term_width = 100, after_help = EXAMPLES)]
pub(crate) struct SeamCli {
    /// What every command takes.
    #[command(flatten)]
    pub(crate) global: Global,
    /// What is asked.
    #[command(subcommand)]
    pub(crate) command: SeamCommand,
}

/// Shown below the commands.
const EXAMPLES: &str = "Examples:
  helmdeck seam recall-here --phase plan
  helmdeck seam state-path plan
  helmdeck seam state-path both --plan foo
  helmdeck seam offer-save-here --kind decision --slug foo <body.md
  helmdeck seam doctor

It ends with 0 where memory is absent, 2 for mistakes and for state that is corrupt, 4 if a task must be named.";

/// Shown below the flags of each command.
const RECALL: &str = "Examples:
  helmdeck seam recall-here --phase plan
  helmdeck seam recall-here --phase work --limit 2000
  helmdeck seam recall-here --cwd ~/widget --json";
const STATE: &str = "Examples:
  helmdeck seam state-path plan
  helmdeck seam state-path progress --plan foo
  IFS=$'\\t' read -r plan progress < <(helmdeck seam state-path both)";
const OFFER: &str = "Examples:
  echo 'Events go over NATS.' | helmdeck seam offer-save-here --kind decision --slug use-nats
  helmdeck seam offer-save-here --kind known-issue --slug retry-on-429 --body-file issue.md
  helmdeck seam offer-save-here --candidate-json candidate.json";
const SAVE: &str = "Examples:
  helmdeck seam save --kind decision --slug use-nats --body-file decision.md
  echo 'Events go over NATS.' | helmdeck seam save --kind decision --slug use-nats --yes";
const PLANS: &str = "Examples:
  helmdeck seam plans
  helmdeck seam plans --cwd ~/widget --json";
const DOCTOR: &str = "Examples:
  helmdeck seam doctor
  helmdeck seam doctor --phase plan --plan foo";

impl SeamCli {
    /// Returns the arguments as [`SeamCli`] reads them, `None` if the command is another one. Flags
    /// of every command may stand before it.
    pub(crate) fn arguments(
        arguments: impl IntoIterator<Item = OsString>,
    ) -> Option<Vec<OsString>> {
        let mut arguments: Vec<OsString> = arguments.into_iter().collect();
        let mut at = 1;
        loop {
            match arguments.get(at)?.to_str()? {
                "seam" => break,
                "--config" => at += 2,
                "--" | "--help" | "-h" | "--version" | "-V" => return None,
                flag if flag.starts_with('-') => at += 1,
                _ => return None,
            }
        }
        arguments.remove(at);
        Some(arguments)
    }

    /// Returns the command that arguments as of [`Self::arguments`] name, if there is such a one.
    pub(crate) fn verb(arguments: &[OsString]) -> Option<String> {
        let mut arguments = arguments.iter().skip(1);
        let word = loop {
            match arguments.next()?.to_str()? {
                "--config" => drop(arguments.next()),
                flag if flag.starts_with('-') => {}
                word => break word,
            }
        };
        Self::command()
            .find_subcommand(word)
            .map(|command| command.get_name().to_owned())
    }
}

/// `helmdeck seam`.
#[derive(Debug, Subcommand)]
pub(crate) enum SeamCommand {
    /// Print what memory knows of where the caller works, as Markdown within a budget; nothing if
    /// there is none
    #[command(after_help = RECALL)]
    RecallHere(RecallArgs),
    /// Print where the plan, its progress or its tracker lies, whether it is there or not
    #[command(after_help = STATE)]
    StatePath(StatePathArgs),
    /// Print a candidate with the project and the place it would be saved in, as a JSON list; []
    /// without memory. Nothing is saved
    #[command(after_help = OFFER)]
    OfferSaveHere(OfferArgs),
    /// Save a candidate in the place that offer-save-here names, if a person says yes; print the
    /// note
    #[command(after_help = SAVE)]
    Save(SaveArgs),
    /// List the plans: path, status and last line of progress, apart by tabs; then
    /// active-binding=<name>
    #[command(after_help = PLANS)]
    Plans {
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Say what the seam sees here and what says so, and everything that is wrong with it, a line
    /// each
    #[command(after_help = DOCTOR)]
    Doctor(DoctorArgs),
}

/// `helmdeck seam doctor`.
#[derive(Debug, Clone, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// The phase whose notes are counted
    #[arg(long)]
    pub(crate) phase: Option<String>,
    /// The plan, as for state-path
    #[arg(long, value_name = "NAME")]
    pub(crate) plan: Option<String>,
}

/// Where the caller works.
#[derive(Debug, Clone, Args)]
pub(crate) struct PlaceArgs {
    /// The root of the project, taken as it is; empty or not given: the project around the working
    /// folder
    #[arg(long, value_name = "FOLDER", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub(crate) cwd: Option<PathBuf>,
}

/// `helmdeck seam recall-here`.
#[derive(Debug, Args)]
pub(crate) struct RecallArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// setup, plan, work, review, release, bugfix or documenter, in small letters; anything else is
    /// work
    #[arg(long)]
    pub(crate) phase: Option<String>,
    /// Reserved: does nothing, unless the configuration has [seam] query = "filter"
    #[arg(long, allow_hyphen_values = true, value_name = "WORDS")]
    pub(crate) query: Option<String>,
    /// The budget; zero or less is that of the phase
    #[arg(long, allow_negative_numbers = true, value_name = "TOKENS")]
    pub(crate) limit: Option<i64>,
}

/// `helmdeck seam state-path`.
#[derive(Debug, Args)]
pub(crate) struct StatePathArgs {
    /// Which file; both prints the paths of plan and progress, apart by a tab
    #[arg(value_enum)]
    pub(crate) which: WhichPath,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// The plan: foo, PLAN-foo or PLAN-foo.md, or a task: foo or 001-foo; else the one that
    /// .harness/active-plan names
    #[arg(long, value_name = "NAME")]
    pub(crate) plan: Option<String>,
}

/// Which path is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WhichPath {
    /// That of the plan
    Plan,
    /// That of its progress
    Progress,
    /// That of its tracker
    Tracker,
    /// Those of plan and progress
    Both,
}

/// `helmdeck seam offer-save-here`.
#[derive(Debug, Args)]
pub(crate) struct OfferArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// The phase the candidate comes from, as for recall-here
    #[arg(long)]
    pub(crate) phase: Option<String>,
    /// What kind of note it is: decision, fix, convention, ...
    #[arg(long, required_unless_present = "candidate_json")]
    pub(crate) kind: Option<String>,
    /// The name of the note
    #[arg(long, required_unless_present = "candidate_json")]
    pub(crate) slug: Option<String>,
    /// Its text; - for stdin
    #[arg(long, value_name = "FILE|-", default_value = "-")]
    pub(crate) body_file: PathBuf,
    /// How sure the caller is
    #[arg(long, allow_negative_numbers = true, value_name = "NUMBER")]
    pub(crate) confidence: Option<f64>,
    /// Why
    #[arg(long, value_name = "TEXT")]
    pub(crate) confidence_reason: Option<String>,
    /// The whole candidate as JSON; - for stdin
    #[arg(long, value_name = "FILE|-", conflicts_with_all = ["kind", "slug", "body_file", "confidence", "confidence_reason"])]
    pub(crate) candidate_json: Option<PathBuf>,
}

/// `helmdeck seam save`.
#[derive(Debug, Args)]
pub(crate) struct SaveArgs {
    #[command(flatten)]
    pub(crate) offer: OfferArgs,
    /// Save without asking: a person said yes
    #[arg(long)]
    pub(crate) yes: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(words: &[&str]) -> Option<Vec<String>> {
        let found = SeamCli::arguments(words.iter().map(OsString::from))?;
        Some(
            found
                .into_iter()
                .map(|word| word.into_string().unwrap())
                .collect(),
        )
    }

    #[test]
    fn the_command_line_is_sound() {
        SeamCli::command().debug_assert();
    }

    #[test]
    fn flags_of_every_command_may_stand_before_the_word() {
        assert_eq!(
            arguments(&["helmdeck", "seam", "plans"]).unwrap(),
            ["helmdeck", "plans"]
        );
        let with_flags = [
            "helmdeck", "--json", "--config", "seam", "-v", "seam", "plans",
        ];
        assert_eq!(
            arguments(&with_flags).unwrap(),
            ["helmdeck", "--json", "--config", "seam", "-v", "plans"]
        );
        for other in [
            &["helmdeck"][..],
            &["helmdeck", "run", "seam"],
            &["helmdeck", "help", "seam"],
            &["helmdeck", "--help", "seam"],
        ] {
            assert_eq!(arguments(other), None, "{other:?}");
        }
    }

    #[test]
    fn a_command_is_known_whatever_stands_before_it() {
        let verb =
            |words: &[&str]| SeamCli::verb(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(
            verb(&["helmdeck", "plans", "--bogus"]).as_deref(),
            Some("plans")
        );
        assert_eq!(
            verb(&["helmdeck", "--json", "--config", "plans", "state-path"]).as_deref(),
            Some("state-path")
        );
        for other in [
            &["helmdeck"][..],
            &["helmdeck", "plan"],
            &["helmdeck", "--config", "plans"],
        ] {
            assert_eq!(verb(other), None, "{other:?}");
        }
    }

    #[test]
    fn a_candidate_is_given_whole_or_in_parts() {
        let parse = |words: &[&str]| {
            SeamCli::try_parse_from([&["helmdeck seam", "offer-save-here"][..], words].concat())
        };
        assert!(parse(&["--kind", "fix", "--slug", "a"]).is_ok());
        assert!(parse(&["--candidate-json", "-"]).is_ok());
        assert!(parse(&["--kind", "fix"]).is_err());
        assert!(parse(&["--candidate-json", "-", "--kind", "fix"]).is_err());
    }
}
