//! Settings of a project: `.forge/config.toml`.
//!
//! Everything has a default, so the file may be empty or absent.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::events::subjects;
use crate::files::Damage;
use crate::recovery::Limits;

/// The settings of a project.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    /// Limits of files.
    pub files: FilesConfig,
    /// How features are verified.
    pub verify: Verify,
    /// What counts as small when work strays from a checkpoint.
    pub recovery: RecoveryConfig,
    /// How the health is judged.
    pub health: HealthConfig,
    /// Sessions.
    pub session: SessionConfig,
    /// Artifacts.
    pub artifacts: ArtifactsConfig,
    /// Git.
    pub git: GitConfig,
    /// Events.
    pub events: EventsConfig,
    /// Issues.
    pub linear: LinearConfig,
    /// Which tracker is synchronised.
    pub tracker: TrackerConfig,
    /// Issues of GitHub.
    pub github: GithubConfig,
    /// The file as it is, with the settings that this program does not know.
    #[serde(skip)]
    pub raw: toml::Table,
}

/// Settings that only the user's own configuration may have, and where they go.
const MISPLACED: [(&str, &[&str], &str); 3] = [
    (
        "events",
        &["url", "remote", "credentials", "certificates"],
        "define the server in your own helmdeck.toml, as [forge.events.NAME] with url, credentials and certificates, \
         and write use = \"NAME\" under [events]",
    ),
    ("linear", &["endpoint", "credential"], MISPLACED_TRACKER),
    ("github", &["endpoint", "credential"], MISPLACED_TRACKER),
];
const MISPLACED_TRACKER: &str = "define the tracker in your own helmdeck.toml, as [forge.trackers.NAME] with endpoint and \
                                 credential, and write use = \"NAME\" under [tracker]";

/// Limits of files: `[files]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FilesConfig {
    /// Limit for the size of one file, in bytes. Default: 16 MiB; at most 63 MiB.
    pub max_bytes: u64,
    /// Whether `features.json` and `knowledge.json` are kept beside the entries from which they are
    /// made. Default: no.
    pub rfc: bool,
}

/// How features and checkpoints are verified: `[verify]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Verify {
    /// Command that runs the tests of a feature. Default: `cargo test {prefix}`.
    ///
    /// `{prefix}` is the part of a test name before its `*`.
    pub runner: String,
    /// Pattern that counts the tests in the output of the runner.
    ///
    /// The count is the sum of its first group, or the number of its matches. Default: the form of
    /// cargo, pytest, go, node and npm; another program needs this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count_regex: Option<String>,
    /// The report in the form of `JUnit` that the runner leaves, as a path below the root.
    ///
    /// With it, one run of all tests is enough for many features. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub junit: Option<String>,
    /// Other runners by name, for tests written `name:pattern`.
    ///
    /// `cargo`, `pytest`, `go`, `node` and `npm` need no entry.
    pub runners: BTreeMap<String, Runner>,
    /// What a checkpoint runs; an assessment runs only the first. Default: `cargo test` and `cargo
    /// check`.
    pub commands: Vec<String>,
    /// How long one of them may take, in seconds. Default: 1800.
    pub timeout_s: u64,
    /// How long the check of an invariant may take, in seconds. Default: 60.
    pub invariant_timeout_s: u64,
}

/// A runner of tests: `[verify.runners.<name>]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runner {
    /// Runs them; `{prefix}` as in `runner`.
    pub command: String,
    /// What counts them, as in `count_regex`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count_regex: Option<String>,
    /// The report that it leaves, as in `junit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub junit: Option<String>,
}

/// What counts as small when work strays from a checkpoint: `[recovery]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecoveryConfig {
    /// Limits of a small change.
    #[serde(flatten)]
    pub limits: Limits,
    /// Patterns of paths whose change is never small. Default: CI files, skills and deny lists.
    pub protected: Vec<String>,
}

/// How the health is judged: `[health]`. The defaults are the letter of the RFC.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HealthConfig {
    /// Whether short-term memory that is old and not in use is green. Default: no.
    pub idle_ok: bool,
    /// Whether a feature that worked before lowers green to yellow: `yellow`, or `reason`
    /// (default).
    pub regression: Softer,
    /// Whether a branch that has diverged and merges cleanly is yellow: `yellow`, or `reason`
    /// (default).
    pub clean_divergence: Softer,
}

/// Whether a reason changes the colour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Softer {
    /// It is only listed with the other reasons: `reason`.
    #[default]
    Reason,
    /// It makes yellow: `yellow`.
    Yellow,
}

/// Sessions: `[session]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionConfig {
    /// How long the briefing may be, in estimated tokens. Default: 300.
    pub prime_tokens: u64,
    /// How many ended sessions are kept. Default: 20.
    pub archives: usize,
    /// How long `init.sh` may take, in seconds. Default: 120.
    pub bootstrap_timeout_s: u64,
    /// How many passing features are probed at the start. Default: 2.
    pub probes: usize,
}

/// Artifacts: `[artifacts]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ArtifactsConfig {
    /// The largest artifact, in bytes. Default: 10 MiB.
    pub max_bytes: u64,
    /// How large all of them may be before a warning, in bytes. Default: 500 MiB.
    pub total_bytes: u64,
}

/// Git: `[git]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GitConfig {
    /// Whether the project is in a repository; `init --no-git` sets it to no. Default: yes.
    pub enabled: bool,
    /// What divergence is measured against. Default: `origin/main`, `main`, then `origin/HEAD`.
    pub base: Option<String>,
    /// How long a git command may take, in seconds. Default: 60.
    pub timeout_s: u64,
    /// Whether `checkpoint create` pushes its tag. Default: no.
    ///
    /// With the tag pushed, other clones and CI have the checkpoint.
    pub push_checkpoints: bool,
}

/// Events: `[events]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventsConfig {
    /// What subjects begin with. Default: `sx9`.
    pub prefix: String,
    /// Name of the event server, which the user's own settings define: `[forge.events.NAME]`.
    /// Default: none.
    #[serde(rename = "use")]
    pub server: Option<String>,
}

impl EventsConfig {
    /// Returns what subjects begin with; the default if the configured prefix is not valid.
    #[must_use]
    pub fn valid_prefix(&self) -> &str {
        if subjects::check_prefix(&self.prefix).is_ok() {
            &self.prefix
        } else {
            subjects::PREFIX
        }
    }
}

/// Issues: `[linear]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinearConfig {
    /// How issues are kept: `offline` (default), `live` or `off`.
    pub mode: LinearMode,
    /// The assignee that counts as "me". Default: none.
    pub me: Option<String>,
    /// The key of the team: `SX9`.
    pub team: Option<String>,
    /// States: a word of the project, and the team's name for it.
    pub states: BTreeMap<String, String>,
    /// Types (`feature`, `bug`, `task`, `chore`), each with the label that stands for it.
    pub types: BTreeMap<String, String>,
    /// People: a name of the project, and the person's name or e-mail address in the tracker.
    pub users: BTreeMap<String, String>,
    /// Labels that the tracker lacks: `existing` (default) keeps them here, `create` creates them
    /// there.
    pub labels: LabelMode,
    /// Whether the end of a session adds a comment to its issue. Default: no.
    pub notes: bool,
    /// When to synchronise besides on request: `start`, `end`, or `start,end` of a session.
    /// Default: never.
    pub sync: String,
}

/// How issues are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinearMode {
    /// In files only: `offline`.
    #[default]
    Offline,
    /// In files and in the tracker: `live`.
    Live,
    /// Not at all: `off`.
    Off,
}

/// What happens to labels that the tracker lacks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LabelMode {
    /// They stay here: `existing`.
    #[default]
    Existing,
    /// They are created there: `create`.
    Create,
}

/// Which tracker is synchronised in the mode `live`: `[tracker]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TrackerConfig {
    /// `linear` (default) or `github`.
    pub kind: TrackerKind,
    /// Name of a tracker that the user's own settings define: `[forge.trackers.NAME]`. Default: the
    /// public one.
    #[serde(rename = "use")]
    pub server: Option<String>,
}

/// A tracker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrackerKind {
    /// Linear: `linear`.
    #[default]
    Linear,
    /// Issues of a GitHub repository: `github`.
    Github,
}

/// Issues of GitHub: `[github]`. The names of states, types and people are those of `[linear]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GithubConfig {
    /// The repository: `owner/name`.
    pub repository: Option<String>,
    /// The label of issues that somebody works on. Default: `in progress`.
    pub in_progress: Option<String>,
    /// Further states of such issues, and the label of each.
    pub states: BTreeMap<String, String>,
    /// What keys begin with: `GH` makes `GH-12` of issue 12. Default: `GH`.
    pub prefix: Option<String>,
}

impl FilesConfig {
    /// Returns how many bytes a file may have: as configured, but at most 64 MiB.
    #[must_use]
    pub fn largest(&self) -> u64 {
        self.max_bytes.min(4 * crate::files::MAX_FILE)
    }
}

impl Default for FilesConfig {
    fn default() -> Self {
        Self {
            max_bytes: crate::files::MAX_FILE,
            rfc: false,
        }
    }
}

impl Default for Verify {
    fn default() -> Self {
        Self {
            runner: "cargo test {prefix}".into(),
            count_regex: None,
            junit: None,
            runners: BTreeMap::new(),
            commands: vec!["cargo test".into(), "cargo check".into()],
            timeout_s: 1_800,
            invariant_timeout_s: 60,
        }
    }
}

impl Default for RecoveryConfig {
    fn default() -> Self {
        let protected = [
            ".github/**",
            ".gitlab-ci.yml",
            ".circleci/**",
            "Jenkinsfile",
            ".forge/skills/**",
            "deny.toml",
        ];
        Self {
            limits: Limits::default(),
            protected: protected.map(str::to_owned).to_vec(),
        }
    }
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            prime_tokens: 300,
            archives: 20,
            bootstrap_timeout_s: 120,
            probes: 2,
        }
    }
}

impl Default for ArtifactsConfig {
    fn default() -> Self {
        Self {
            max_bytes: 10 << 20,
            total_bytes: 500 << 20,
        }
    }
}

impl Default for GitConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            base: None,
            timeout_s: 60,
            push_checkpoints: false,
        }
    }
}

impl Default for EventsConfig {
    fn default() -> Self {
        Self {
            prefix: "sx9".into(),
            server: None,
        }
    }
}

impl Verify {
    /// How long a command may take.
    #[must_use]
    pub const fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_s)
    }

    /// Returns the report that the runner with a command leaves.
    pub(crate) fn junit(&self, command: &str) -> Option<&str> {
        let own = (command == self.runner).then_some(&self.junit);
        let all = own.into_iter().chain(
            self.runners
                .values()
                .filter(|one| one.command == command)
                .map(|one| &one.junit),
        );
        all.flatten().next().map(String::as_str)
    }
}

impl Config {
    /// Reads `config.toml`.
    ///
    /// Unknown members stay in the file and have no effect: see [`Self::unknown`].
    ///
    /// # Errors
    /// Where and how it is damaged.
    pub fn parse(text: &str) -> Result<Self, Damage> {
        let damage = |error: toml::de::Error| {
            let before = text
                .get(..error.span().map_or(0, |span| span.start))
                .unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().unwrap_or_default().len() + 1;
            Damage {
                line,
                column,
                what: error.message().to_owned(),
            }
        };
        let mut config: Self = toml::from_str(text).map_err(damage)?;
        config.raw = text.parse().map_err(damage)?;
        if !(1 << 10..64 << 20).contains(&config.files.max_bytes) {
            let what = "expected max_bytes under [files] to be between 1 KiB and less than 64 MiB"
                .to_owned();
            return Err(Damage {
                line: 1,
                column: 1,
                what,
            });
        }
        Ok(config)
    }

    /// Returns the first setting that only the user's own configuration may have, and where it
    /// goes.
    ///
    /// A repository may come from anybody, so it names no host, no credential and no path outside
    /// of it.
    #[must_use]
    pub fn misplaced(&self) -> Option<(String, &'static str)> {
        MISPLACED.iter().find_map(|(table, names, home)| {
            let given = self.raw.get(*table)?.as_table()?;
            let name = names.iter().find(|name| given.contains_key(**name))?;
            Some((format!("{table}.{name}"), *home))
        })
    }

    /// Returns the settings in a text that this program does not know, as `table.name`.
    #[must_use]
    pub fn unknown(text: &str) -> Vec<String> {
        let Ok(config) = Self::parse(text) else {
            return Vec::new();
        };
        // What is not written again was not read.
        let Ok(known) = toml::Table::try_from(&config) else {
            return Vec::new();
        };
        let mut unknown = Vec::new();
        for (table, value) in &config.raw {
            match (known.get(table), value.as_table()) {
                (Some(toml::Value::Table(known)), Some(given)) => {
                    let names = given.keys().filter(|name| !known.contains_key(*name));
                    unknown.extend(names.map(|name| format!("{table}.{name}")));
                }
                _ => unknown.push(table.clone()),
            }
        }
        unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_file_has_every_default() {
        let config = Config::parse("").unwrap();
        assert_eq!(config, Config::default());
        assert_eq!(
            toml::Table::try_from(&config.recovery).unwrap()["lines"].as_integer(),
            Some(400)
        );
        assert_eq!(config.verify.commands, ["cargo test", "cargo check"]);
    }

    #[test]
    fn invalid_settings_are_reported_with_their_place() {
        let config = Config::parse("[recovery]\nfiles = 3\n").unwrap();
        assert_eq!(
            (config.recovery.limits.files, config.recovery.limits.lines),
            (3, 400)
        );
        let error = Config::parse("[files]\n  max_bytes = \"many\"\n").unwrap_err();
        assert_eq!((error.line, error.column), (2, 15), "{error:?}");
        for no in [
            "[files]\nmax_bytes = 67108864",
            "[files\n",
            "[files]\nmax_bytes = 1",
        ] {
            assert!(Config::parse(no).is_err(), "{no}");
        }
    }

    #[test]
    fn servers_and_credentials_are_misplaced_in_a_repository() {
        for (table, names, home) in MISPLACED {
            for name in names {
                for value in ["true", "\"x\"", "[]", "{}"] {
                    let config = Config::parse(&format!("[{table}]\n{name} = {value}\n")).unwrap();
                    assert_eq!(config.misplaced(), Some((format!("{table}.{name}"), home)));
                }
            }
        }
        let fine = "[events]\nuse = \"team\"\n[tracker]\nuse = \"work\"\n";
        assert!(
            Config::parse(fine).unwrap().misplaced().is_none() && Config::unknown(fine).is_empty()
        );
    }

    #[test]
    fn unknown_settings_are_named() {
        let text = "new = 1\n[git]\nbase = \"main\"\nbasis = 2\n[later]\na = 1\n";
        assert_eq!(Config::unknown(text), ["git.basis", "later", "new"]);
        assert!(Config::parse(text).is_ok());
    }
}
