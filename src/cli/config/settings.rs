//! Typed settings from the layers: each value is read as its crate's type, and errors name the
//! origin.

use std::collections::BTreeMap;
use std::path::PathBuf;

use helmdeck_engine::{McpServer, S3Location};
use helmdeck_memory::open::Location;
use helmdeck_server_config::{AuthConfig, McpConfig, ServerConfig, check_listen};
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::file::ConfigFile;
use super::layers::{Key, Layers, Setting};
use super::origin::{Origin, Problem};
use super::parts::{
    Forge, GitHub, Log, Memory, Repo, Runtime, ScheduleSettings, SeamSettings, SystemSettings,
};
use super::servers;
use crate::env::ProcessEnvironment;
use crate::exit::{Failure, Result};
use crate::logging;

/// The tables that make up the engine's settings.
const ENGINE: &[&str] = &[
    "cache",
    "audit",
    "artifacts",
    "commands",
    "sessions",
    "jobs",
    "prices",
];

/// All settings, parsed.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    data_dir: Option<PathBuf>,
    /// Folder of the operator's packs; `None` without a home folder.
    pub(crate) packs_dir: Option<PathBuf>,
    /// `[log]`.
    pub(crate) log: Log,
    /// `[runtime]`.
    #[cfg_attr(
        not(feature = "serve"),
        expect(dead_code, reason = "checked in every build")
    )]
    pub(crate) runtime: Runtime,
    /// `[server]`.
    pub(crate) server: ServerConfig,
    /// `[auth]`; a file in it has an absolute path.
    pub(crate) auth: AuthConfig,
    /// `[mcp]`.
    pub(crate) mcp: McpConfig,
    /// `[memory]`.
    pub(crate) memory: Memory,
    /// `[schedule]`.
    pub(crate) schedule: ScheduleSettings,
    /// `[system]`.
    pub(crate) system: SystemSettings,
    /// `[conversation]`.
    pub(crate) conversation: helmdeck_conversation::Config,
    /// `[cache]`, `[audit]`, `[artifacts]`, `[commands]`, `[sessions]`, `[jobs]` and `[prices]`.
    pub(crate) engine: helmdeck_engine::Config,
    /// `[egress]`.
    pub(crate) egress: helmdeck_egress::Config,
    /// `[github]`.
    #[cfg_attr(
        not(feature = "github"),
        expect(
            dead_code,
            reason = "checked in every build, so that one configuration serves all"
        )
    )]
    pub(crate) github: GitHub,
    /// `[forge]`; the folder in it has an absolute path.
    pub(crate) forge: Forge,
    /// `[seam]`.
    pub(crate) seam: SeamSettings,
    /// `[repo]`.
    pub(crate) repo: Repo,
    /// `[llm]`.
    pub(crate) llm: helmdeck_llm::Config,
    /// `[swe]`.
    pub(crate) swe: helmdeck_packs::swe::Config,
    /// `[telemetry]`; a file in it has an absolute path.
    #[cfg_attr(
        not(feature = "serve"),
        expect(dead_code, reason = "checked in every build")
    )]
    pub(crate) telemetry: helmdeck_telemetry::Config,
    /// `[credentials]`: the variable of the environment that holds each.
    pub(crate) credentials: BTreeMap<String, String>,
    /// `[[mcp.servers]]`.
    pub(crate) mcp_servers: Vec<McpServer>,
}

impl Settings {
    /// Returns the data folder, which need not exist.
    ///
    /// # Errors
    /// A configuration failure if it is not set and there is no home folder.
    pub(crate) fn data_dir(&self) -> Result<&PathBuf> {
        self.data_dir.as_ref().ok_or_else(|| {
            Failure::config(
                "there is no data folder: neither HELMDECK_DATA_DIR, XDG_DATA_HOME nor HOME is set",
            )
        })
    }

    /// Returns where memory is kept.
    ///
    /// # Errors
    /// As [`Settings::data_dir`].
    pub(crate) fn memory_url(&self) -> Result<String> {
        if self.memory.url.is_empty() {
            return Ok(format!(
                "sqlite:{}",
                self.data_dir()?.join("memory.db").display()
            ));
        }
        Ok(self.memory.url.clone())
    }

    /// Returns where the system database is kept, as a URL.
    ///
    /// # Errors
    /// As [`Settings::data_dir`].
    pub(crate) fn system_url(&self) -> Result<String> {
        if !self.system.url.is_empty() {
            return Ok(self.system.url.clone());
        }
        if matches!(Location::parse(&self.memory.url), Ok(Location::Postgres(_))) {
            return Ok(self.memory.url.clone());
        }
        Ok(format!(
            "sqlite:{}",
            self.data_dir()?.join("helmdeck.db").display()
        ))
    }
}

/// Reads all settings.
///
/// # Errors
/// Every problem, each with its place.
pub(super) fn resolve(
    layers: &Layers,
    file: Option<&ConfigFile>,
    env: &ProcessEnvironment,
) -> std::result::Result<Settings, Vec<Problem>> {
    let mut reading = Reading {
        layers,
        problems: Vec::new(),
    };
    let settings = reading.settings(file, env);
    settings
        .filter(|_| reading.problems.is_empty())
        .ok_or(reading.problems)
}

struct Reading<'a> {
    layers: &'a Layers,
    problems: Vec<Problem>,
}

impl Reading<'_> {
    /// Reads every part, also after a problem; `None` if one cannot be read.
    fn settings(
        &mut self,
        file: Option<&ConfigFile>,
        env: &ProcessEnvironment,
    ) -> Option<Settings> {
        let log: Option<Log> = self.part("log", |log: &Log| logging::check(&log.level));
        let runtime = self.part("runtime", |_: &Runtime| Ok(()));
        let server = self.part("server", ServerConfig::validate);
        let auth = self.auth(file, env);
        if let (Some(server), Some(auth)) = (&server, &auth) {
            self.listen(server, auth, env);
        }
        let of_mcp = |key: &Key| key.len() > 1 && key[0] == "mcp" && !key.iter().eq(servers::KEY);
        let mcp = self.read(of_mcp, &["mcp"], McpConfig::validate);
        let memory = self.memory(file, env);
        let schedule = self.part("schedule", ScheduleSettings::check);
        let system = self.part("system", SystemSettings::check);
        let conversation = self.part("conversation", conversation);
        let egress = self.part("egress", |_: &helmdeck_egress::Config| Ok(()));
        let github = self.part("github", GitHub::check);
        let forge = self.forge(file, env);
        let seam = self.seam(file);
        let repo = self.part("repo", Repo::check);
        let llm = self.part("llm", helmdeck_llm::Config::validate);
        let swe = self.part("swe", helmdeck_packs::swe::Config::validate);
        let telemetry = self.telemetry(file, env);
        let engine = self.read(
            |key| {
                key.first()
                    .is_some_and(|table| ENGINE.contains(&table.as_str()))
            },
            &[],
            engine_parts,
        );
        let credentials = self.credentials();
        let data_dir = self
            .path(&["data_dir"], file, env)
            .or_else(|| env.xdg("XDG_DATA_HOME", ".local/share"));
        let packs_dir = self.path(&["packs_dir"], file, env).or_else(|| {
            file.and_then(|found| found.path.parent())
                .map(|folder| folder.join("packs"))
        });
        Some(Settings {
            data_dir,
            packs_dir,
            log: log?,
            runtime: runtime?,
            server: server?,
            auth: auth?,
            mcp: mcp?,
            memory: memory?,
            schedule: schedule?,
            system: system?,
            conversation: conversation?,
            engine: engine?,
            egress: egress?,
            github: github?,
            forge: forge?,
            seam: seam?,
            repo: repo?,
            llm: llm?,
            swe: swe?,
            telemetry: telemetry?,
            credentials,
            mcp_servers: Vec::new(),
        })
    }

    fn part<T: DeserializeOwned>(
        &mut self,
        name: &str,
        check: impl Fn(&T) -> std::result::Result<(), String>,
    ) -> Option<T> {
        self.read(|key| key.len() > 1 && key[0] == name, &[name], check)
    }

    /// Reads the settings that `belongs` picks as `T`.
    ///
    /// If that fails, each value that is not a default is tried alone over the defaults. The error
    /// can then name the line or variable that the value came from.
    fn read<T: DeserializeOwned>(
        &mut self,
        belongs: impl Fn(&Key) -> bool,
        prefix: &[&str],
        check: impl Fn(&T) -> std::result::Result<(), String>,
    ) -> Option<T> {
        let attempt = |table: Table| -> std::result::Result<T, String> {
            let value =
                T::deserialize(Value::Table(table)).map_err(|error| error.message().to_owned())?;
            check(&value).map(|()| value)
        };
        let whole = match attempt(self.layers.table(prefix, |key, _| belongs(key))) {
            Ok(value) => return Some(value),
            Err(message) => message,
        };
        let (mut found, defaults) = (Vec::new(), Layers::defaults());
        for (key, setting) in self
            .layers
            .iter()
            .filter(|(key, setting)| belongs(key) && set_by_hand(setting))
        {
            let mut alone = defaults.clone();
            let table = match alone.set(key.clone(), setting.value.clone(), setting.origin.clone())
            {
                Ok(()) => alone.table(prefix, |key, _| belongs(key)),
                Err(_) => continue,
            };
            if let Err(message) = attempt(table) {
                found.push(Problem::new(
                    &setting.origin,
                    format!("{}: {message}", key.join(".")),
                ));
            }
        }
        if found.is_empty() {
            // Each value is fine by itself, and together they are not.
            found.push(Problem::new(format!("[{}]", prefix.join(".")), whole));
        }
        self.problems.extend(found);
        None
    }

    fn credentials(&mut self) -> BTreeMap<String, String> {
        let mut credentials = BTreeMap::new();
        for (key, setting) in self
            .layers
            .iter()
            .filter(|(key, _)| key.len() == 2 && key[0] == "credentials")
        {
            let variable = setting
                .value
                .as_str()
                .and_then(|text| text.strip_prefix("env:"))
                .map(str::trim);
            match variable {
                Some(variable) if !variable.is_empty() && !variable.contains(['=', '\0']) => {
                    credentials.insert(key[1].clone(), variable.to_owned());
                }
                // The value may be the secret itself, written there by mistake: it is not repeated.
                _ => self.problems.push(Problem::new(
                    &setting.origin,
                    format!(
                        "credentials.{} must name a variable of the environment, like \"env:GITHUB_TOKEN\"; a secret itself does not belong here",
                        key[1]
                    ),
                )),
            }
        }
        credentials
    }

    fn auth(&mut self, file: Option<&ConfigFile>, env: &ProcessEnvironment) -> Option<AuthConfig> {
        let mut auth: AuthConfig = self.part("auth", AuthConfig::validate)?;
        if let Err(message) = auth.validate_together() {
            self.at(&["auth", "jwks"], &message);
        }
        if !auth.jwks.contains("://")
            && let Some(path) = self.path(&["auth", "jwks"], file, env)
        {
            auth.jwks = path.to_string_lossy().into_owned();
        }
        Some(auth)
    }

    fn memory(&mut self, file: Option<&ConfigFile>, env: &ProcessEnvironment) -> Option<Memory> {
        let mut memory: Memory = self.part("memory", Memory::check)?;
        if let Some(key_file) = self.path(&["memory", "key_file"], file, env) {
            memory.key_file = key_file;
        }
        Some(memory)
    }

    fn telemetry(
        &mut self,
        file: Option<&ConfigFile>,
        env: &ProcessEnvironment,
    ) -> Option<helmdeck_telemetry::Config> {
        let mut telemetry = self.part("telemetry", helmdeck_telemetry::Config::validate)?;
        if let Some(path) = self.path(&["telemetry", "headers_file"], file, env) {
            telemetry.headers_file = path;
        }
        Some(telemetry)
    }

    fn forge(&mut self, file: Option<&ConfigFile>, env: &ProcessEnvironment) -> Option<Forge> {
        let mut forge: Forge = self.part("forge", Forge::check)?;
        if let Some(folder) = file.and_then(|found| found.path.parent()) {
            forge.place(folder);
        }
        if let Some(root) = self.path(&["forge", "root"], file, env) {
            forge.root = root;
        }
        Some(forge)
    }

    fn seam(&mut self, file: Option<&ConfigFile>) -> Option<SeamSettings> {
        let mut seam: SeamSettings = self.part("seam", |_: &SeamSettings| Ok(()))?;
        let set = self
            .layers
            .get(&["seam", "vault"])
            .is_some_and(|set| matches!(set.origin, Origin::File { .. }));
        if let Some(folder) = file.and_then(|found| found.path.parent()).filter(|_| set) {
            seam.vault = super::seam::placed(&seam.vault, folder);
        }
        Some(seam)
    }

    /// Checks the listen address: without authentication only this machine may reach the server.
    fn listen(&mut self, server: &ServerConfig, auth: &AuthConfig, env: &ProcessEnvironment) {
        let authenticated = auth.api_tokens || !auth.jwks.is_empty() || crate::auth::is_set(env);
        if let Err(message) = check_listen(server.listen, authenticated) {
            self.at(&["server", "listen"], &message);
        }
    }

    /// Records a problem with a setting, at its origin.
    fn at(&mut self, key: &[&str], message: &str) {
        if let Some(setting) = self.layers.get(key) {
            self.problems.push(Problem::new(
                &setting.origin,
                format!("{}: {message}", key.join(".")),
            ));
        }
    }

    /// Returns a path that was set: relative to the file that names it, or to the working
    /// directory.
    fn path(
        &mut self,
        key: &[&str],
        file: Option<&ConfigFile>,
        env: &ProcessEnvironment,
    ) -> Option<PathBuf> {
        let setting = self.layers.get(key)?;
        let path = PathBuf::from(setting.value.as_str().filter(|text| !text.is_empty())?);
        match (&setting.origin, file.and_then(|found| found.path.parent())) {
            (Origin::File { .. }, Some(folder)) => Some(folder.join(path)),
            _ => match env.absolute(&path) {
                Ok(path) => Some(path),
                Err(failure) => {
                    self.problems
                        .push(Problem::new(&setting.origin, failure.message()));
                    None
                }
            },
        }
    }
}

/// Checks the conversation settings; the model client checks the summarizer's endpoint.
///
/// That client has other names for the settings, so its message is renamed.
fn conversation(conversation: &helmdeck_conversation::Config) -> std::result::Result<(), String> {
    conversation.validate()?;
    let endpoint = conversation.summarizer.endpoint.clone();
    let client = helmdeck_llm::Config {
        endpoint,
        ..helmdeck_llm::Config::default()
    };
    client
        .validate()
        .map_err(|message| message.replacen("llm.", "conversation.summarizer.", 1))
}

fn engine_parts(engine: &helmdeck_engine::Config) -> std::result::Result<(), String> {
    let url = &engine.artifacts.url;
    if !url.is_empty() {
        S3Location::parse(url)?;
    }
    engine.sessions.validate()
}

fn set_by_hand(setting: &Setting) -> bool {
    setting.origin != Origin::Default
}

#[cfg(test)]
mod tests;
