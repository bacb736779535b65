//! Settings types that no other crate owns.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use helmdeck_core::Identity;
use helmdeck_core::caller::Glob;
use helmdeck_core::duration::{parse_duration, parse_size, size, text};
use helmdeck_forge::Project;
use helmdeck_memory::Kind;
use helmdeck_memory::open::Location;
use helmdeck_memory::{Config, Fingerprint, KindLimits, Limits, Listen, PostgresConfig};
use serde::{Deserialize, Deserializer};
use url::Url;

/// `[log]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Log {
    /// A level or targets; empty = the command decides.
    pub(crate) level: String,
    /// How lines look.
    pub(crate) format: LogFormat,
}

/// How lines of the log look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    Auto,
    /// Text.
    Text,
    /// One JSON object a line.
    Json,
}

/// `[runtime]`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Runtime {
    /// Threads that serve uses; 0 = one per core, at most 4.
    #[cfg_attr(
        not(feature = "serve"),
        expect(dead_code, reason = "checked in every build")
    )]
    pub(crate) threads: usize,
}

/// `[memory]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Memory {
    /// Where memory is kept; empty = `memory.db` in the data folder.
    pub(crate) url: String,
    /// File with the memory key, with an absolute path; empty = none.
    pub(crate) key_file: PathBuf,
    #[serde(deserialize_with = "fingerprint")]
    fingerprint: Fingerprint,
    readers: usize,
    #[serde(with = "text")]
    busy_timeout: Duration,
    pool_size: usize,
    #[serde(with = "text")]
    connect_timeout: Duration,
    listen: Listen,
    #[serde(deserialize_with = "length")]
    max_key_bytes: usize,
    #[serde(deserialize_with = "length")]
    max_value_bytes: usize,
    max_rows: u64,
    #[serde(with = "size")]
    max_bytes: u64,
    #[serde(with = "size")]
    cache_bytes: u64,
    kinds: BTreeMap<Kind, OfKind>,
    /// How often `serve` and `mcp` sweep.
    #[serde(with = "text")]
    pub(crate) sweep_interval: Duration,
}

/// `[schedule]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScheduleSettings {
    /// Tenant and user that scheduled runs belong to, as `tenant/user`; empty = nobody said so.
    pub(crate) caller: String,
}

impl ScheduleSettings {
    pub(crate) fn check(&self) -> Result<(), String> {
        self.named().map(drop)
    }

    /// Returns the caller, if one is named.
    ///
    /// # Errors
    /// A message if it is no caller.
    pub(crate) fn named(&self) -> Result<Option<Identity>, String> {
        if self.caller.is_empty() {
            return Ok(None);
        }
        let form = || {
            format!(
                "schedule.caller is \"{}\"; write it as \"tenant/user\"",
                self.caller.escape_debug()
            )
        };
        let (tenant, user) = self.caller.split_once('/').ok_or_else(form)?;
        Identity::new(tenant, user)
            .map(Some)
            .map_err(|error| format!("schedule.caller: {error}"))
    }
}

/// `[system]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SystemSettings {
    /// Where the system database is; empty = where memory is, if that is PostgreSQL, else the data
    /// folder.
    pub(crate) url: String,
}

impl SystemSettings {
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.url.is_empty() {
            return Ok(());
        }
        match Location::parse(&self.url) {
            Ok(Location::Postgres(url)) => url
                .shown()
                .map(drop)
                .map_err(|error| format!("system.url: {error}")),
            Ok(Location::Sqlite(_)) => Ok(()),
            Ok(Location::Memory) => Err(
                "system.url is memory:, where API tokens would end with each process".to_owned(),
            ),
            Err(error) => Err(format!("system.url: {error}")),
        }
    }
}

/// `[memory.kinds.<kind>]`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct OfKind {
    rows: u64,
    #[serde(with = "size")]
    bytes: u64,
    #[serde(deserialize_with = "life")]
    retention: Option<Duration>,
}

impl OfKind {
    fn limits(self) -> KindLimits {
        let set = |number: u64| Some(number).filter(|number| *number > 0);
        KindLimits {
            rows: set(self.rows),
            bytes: set(self.bytes),
            retention: self.retention,
        }
    }
}

impl Memory {
    /// Validates the settings.
    ///
    /// # Errors
    /// A message that names the setting.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.readers == 0 {
            return Err("memory.readers is 0; give at least 1".to_owned());
        }
        if self.pool_size == 0 {
            return Err("memory.pool_size is 0; give at least 1".to_owned());
        }
        if self.connect_timeout.is_zero() {
            return Err("memory.connect_timeout is 0; no server answers that fast".to_owned());
        }
        if self.cache_bytes == 0 {
            return Err(
                "memory.cache_bytes is 0; to cache nothing, leave out the memory key".to_owned(),
            );
        }
        if let Some((kind, _)) = self
            .kinds
            .iter()
            .find(|(_, of_kind)| of_kind.retention == Some(Duration::ZERO))
        {
            return Err(format!(
                "memory.kinds.{kind}.retention is 0; leave it empty to keep what its writer says"
            ));
        }
        if self
            .kinds
            .get(&Kind::Conversation)
            .is_some_and(|of_kind| of_kind.retention.is_some())
        {
            return Err("memory.kinds.conversation.retention would take conversations apart row by row; \
                        leave it empty and set conversation.ttl, after which a conversation ends as a whole"
                .to_owned());
        }
        if self.sweep_interval < Duration::from_secs(1) {
            return Err("memory.sweep_interval is under 1s; sweeping would never stop".to_owned());
        }
        Ok(())
    }

    /// Returns the settings of the store.
    pub(crate) fn store(&self) -> Config {
        Config {
            limits: Limits {
                key_bytes: self.max_key_bytes,
                value_bytes: self.max_value_bytes,
                rows: self.max_rows,
                bytes: self.max_bytes,
                cache_bytes: self.cache_bytes,
                kinds: self
                    .kinds
                    .iter()
                    .map(|(kind, of_kind)| (*kind, of_kind.limits()))
                    .filter(|(_, limits)| *limits != KindLimits::default())
                    .collect(),
                ..Limits::default()
            },
            fingerprint: self.fingerprint,
            readers: self.readers,
            busy_timeout: self.busy_timeout,
            postgres: PostgresConfig {
                pool_size: self.pool_size,
                connect_timeout: self.connect_timeout,
                listen: self.listen,
                ..PostgresConfig::default()
            },
            #[cfg(feature = "postgres")]
            connections: None,
        }
    }
}

fn fingerprint<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Fingerprint, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "plain" => Ok(Fingerprint::Plain),
        "keyed" => Ok(Fingerprint::Keyed),
        _ => Err(serde::de::Error::custom(
            "fingerprint is \"plain\" or \"keyed\"",
        )),
    }
}

fn life<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "" => Ok(None),
        text => parse_duration(text)
            .map(Some)
            .map_err(serde::de::Error::custom),
    }
}

fn length<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    let bytes =
        parse_size(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)?;
    usize::try_from(bytes).map_err(serde::de::Error::custom)
}

/// `[github]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GitHub {
    /// The API's address.
    pub(crate) base_url: url::Url,
    /// Requests of a quota that cached packs leave for other uses.
    #[cfg_attr(
        not(feature = "github"),
        expect(dead_code, reason = "settings are checked in every build")
    )]
    pub(crate) keep_quota: u64,
}

impl GitHub {
    /// Returns the settings of the `github.*` packs.
    #[cfg(feature = "github")]
    pub(crate) fn packs(&self) -> helmdeck_packs::github::Config {
        let config = helmdeck_packs::github::Config::new(self.base_url.clone());
        helmdeck_packs::github::Config {
            keep_quota: self.keep_quota,
            ..config
        }
    }

    /// Validates the address.
    ///
    /// # Errors
    /// A message that names the setting.
    pub(crate) fn check(&self) -> Result<(), String> {
        if !matches!(self.base_url.scheme(), "http" | "https") || self.base_url.host().is_none() {
            return Err(
                "github.base_url must be an http or https address, like \"https://api.github.com\""
                    .to_owned(),
            );
        }
        if !self.base_url.username().is_empty() || self.base_url.password().is_some() {
            return Err(
                "github.base_url must not hold a user or password; use [credentials]".to_owned(),
            );
        }
        Ok(())
    }
}

/// `[forge]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Forge {
    /// A folder of the project, absolute once the settings are read; empty = the command decides.
    pub(crate) root: PathBuf,
    run: Run,
    /// `[forge.events.<name>]`: the event servers that a project may ask for by name.
    #[serde(default)]
    pub(crate) events: BTreeMap<String, EventServer>,
    /// `[forge.trackers.<name>]`: the trackers that a project may ask for by name.
    #[serde(default)]
    pub(crate) trackers: BTreeMap<String, TrackerServer>,
}

/// `[forge.events.<name>]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventServer {
    /// `nats://host:port` or `tls://host:port`.
    pub(crate) url: String,
    /// File with the credentials, absolute once the settings are read; empty = none.
    #[serde(default)]
    pub(crate) credentials: PathBuf,
    /// File with certificates to trust, likewise; empty = those of the system.
    #[serde(default)]
    pub(crate) certificates: PathBuf,
}

/// `[forge.trackers.<name>]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TrackerServer {
    /// The API.
    pub(crate) endpoint: String,
    /// The credential with the key; empty = that of the public tracker.
    #[serde(default)]
    pub(crate) credential: String,
}

/// Whether programs of the project may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Run {
    /// For the user that started the program, not for other callers.
    Auto,
    /// Yes.
    Yes,
    /// No.
    No,
}

impl Forge {
    /// Validates the servers. A message never repeats a URL, which may hold a password.
    ///
    /// # Errors
    /// A message that names the setting.
    pub(crate) fn check(&self) -> Result<(), String> {
        let wrong = |text: &str, schemes: &[&str]| {
            Url::parse(text).map_or(true, |url| {
                !schemes.contains(&url.scheme())
                    || url.host().is_none()
                    || !url.username().is_empty()
                    || url.password().is_some()
            })
        };
        if let Some((name, _)) = self
            .events
            .iter()
            .find(|(_, server)| wrong(&server.url, &["nats", "tls"]))
        {
            return Err(format!(
                "forge.events.{name}.url must be like nats://host:4222 or tls://host:4222, without a password"
            ));
        }
        if let Some((name, _)) = self
            .trackers
            .iter()
            .find(|(_, one)| wrong(&one.endpoint, &["http", "https"]))
        {
            return Err(format!(
                "forge.trackers.{name}.endpoint must be like https://host/path, without a password"
            ));
        }
        Ok(())
    }

    /// Places files that the settings name relative to the folder of the configuration file.
    pub(crate) fn place(&mut self, folder: &Path) {
        for server in self.events.values_mut() {
            for file in [&mut server.credentials, &mut server.certificates] {
                if !file.as_os_str().is_empty() {
                    *file = folder.join(&*file);
                }
            }
        }
    }

    /// Returns the settings of the `forge.*` packs.
    ///
    /// `serves` says that callers other than the user that started the program use them; `here` is
    /// that user's folder. A server has its project only if there is one.
    pub(crate) fn packs(&self, serves: bool, here: Option<&Path>) -> helmdeck_packs::forge::Config {
        let set = Some(&*self.root).filter(|root| !root.as_os_str().is_empty());
        helmdeck_packs::forge::Config {
            root: set
                .or(here.filter(|here| !serves || matches!(Project::exists(here), Ok(true))))
                .map(Path::to_owned),
            run: match self.run {
                Run::Auto => !serves,
                Run::Yes => true,
                Run::No => false,
            },
            ..helmdeck_packs::forge::Config::default()
        }
    }
}

/// `[seam]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SeamSettings {
    /// Folder of the vault if no variable names one; empty = none.
    ///
    /// In the file it is absolute or begins with `~`.
    pub(crate) vault: PathBuf,
    /// How the words of a query are used.
    pub(crate) query: helmdeck_seam::QueryUse,
}

/// `[repo]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Repo {
    git: PathBuf,
    known_hosts: PathBuf,
    paths: Vec<PathBuf>,
    #[serde(deserialize_with = "globs")]
    credential_hosts: Vec<Glob>,
    #[serde(with = "size")]
    max_bytes: u64,
    author_name: String,
    author_email: String,
}

impl Repo {
    /// Returns the settings of the `repo.*` packs.
    ///
    /// `path` is the search path for programs; `open` says that every caller is the user that runs
    /// this program; `known_hosts` is that user's file; `program` is this program.
    pub(crate) fn packs(
        &self,
        path: &str,
        open: bool,
        known_hosts: Option<PathBuf>,
        program: Option<PathBuf>,
    ) -> helmdeck_packs::repo::Config {
        use helmdeck_packs::repo::{Config, Paths};
        let set = |path: &PathBuf| Some(path.clone()).filter(|path| !path.as_os_str().is_empty());
        Config {
            program: self.git.clone(),
            path: path.to_owned(),
            connect: program,
            known_hosts: set(&self.known_hosts).or(known_hosts),
            paths: if open && self.paths.is_empty() {
                Paths::All
            } else {
                Paths::Below(self.paths.clone())
            },
            credential_hosts: self.credential_hosts.clone(),
            max_bytes: self.max_bytes,
            author_name: self.author_name.clone(),
            author_email: self.author_email.clone(),
        }
    }

    /// Validates the settings.
    ///
    /// # Errors
    /// A message that names the setting.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.git.as_os_str().is_empty() {
            return Err("repo.git is empty; name the git program".to_owned());
        }
        if let Some(path) = self.paths.iter().find(|path| !path.is_absolute()) {
            return Err(format!(
                "repo.paths has \"{}\", which is not an absolute path",
                path.display()
            ));
        }
        if !self.known_hosts.as_os_str().is_empty() && !self.known_hosts.is_absolute() {
            return Err("repo.known_hosts must be an absolute path".to_owned());
        }
        // git writes them into one line of a commit, between these signs.
        let plain =
            |text: &str| !text.trim().is_empty() && !text.contains(['<', '>', '\n', '\r', '\0']);
        if !plain(&self.author_name) || !plain(&self.author_email) {
            return Err(
                "repo.author_name and repo.author_email must be one line each, without < and >"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

fn globs<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Glob>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts
        .iter()
        .map(|text| {
            text.to_ascii_lowercase()
                .parse()
                .map_err(serde::de::Error::custom)
        })
        .collect()
}
