//! `helmdeck key`: makes a key for memory or vault, validates the memory key and says where it
//! comes from.
//!
//! It prints the memory key only on request and at a terminal.

use helmdeck_memory::{KeyRing, MemoryKey};
use serde_json::json;

use crate::args::{Global, KeyCommand};
use crate::config::{self, Loaded};
use crate::env::ProcessEnvironment;
use crate::exit::{Exit, Failure, Result};
use crate::gate::{self, KeySource};
use crate::output::Output;
use crate::secret_file::{self, Readers};
use crate::{auth, key_file, s3};

/// Runs `helmdeck key`.
///
/// # Errors
/// A configuration failure if configuration or key are malformed; exit 3 if there is no key.
pub(crate) fn run(
    command: &KeyCommand,
    global: &Global,
    env: &ProcessEnvironment,
    output: &Output,
) -> Result<()> {
    match command {
        KeyCommand::Generate => generate(output),
        KeyCommand::Check => check(global, env, output),
        KeyCommand::Init => init(global, env, output),
        KeyCommand::Show { reveal } => show(*reveal, global, env, output),
        KeyCommand::Path => path(global, env, output),
    }
}

fn generate(output: &Output) -> Result<()> {
    let key = MemoryKey::generate()?;
    output.text(key.expose())
}

/// Returns the path of the setting `memory.key_file`.
///
/// With a mistake elsewhere in the configuration, the environment alone decides.
fn setting(loaded: &Loaded) -> std::path::PathBuf {
    loaded
        .settings
        .as_ref()
        .map(|settings| settings.memory.key_file.clone())
        .unwrap_or_default()
}

fn ring(loaded: Loaded, env: &ProcessEnvironment) -> Result<(KeyRing, std::path::PathBuf)> {
    let path = setting(&loaded);
    match gate::key_ring(env, &path)? {
        Some(ring) => Ok((ring, path)),
        None => {
            loaded.settings()?;
            Err(Failure::new(Exit::Absent, "no memory key is set, so memory is off").with_hint(format!(
                "`helmdeck key init` makes a key file for good; or `helmdeck key generate` makes a key: put it in {} or in a \
                 file named by {}",
                gate::KEY,
                gate::KEY_FILE
            )))
        }
    }
}

fn check(global: &Global, env: &ProcessEnvironment, output: &Output) -> Result<()> {
    let (ring, _) = ring(
        config::load(global.config.as_deref(), Vec::new(), env)?,
        env,
    )?;
    for path in secret_file::exposed(env, &[auth::SECRET_FILE, s3::SECRET_FILE]) {
        output.note(&format!(
            "warning: others than its owner can read the secret file {}; chmod 600 it",
            path.display()
        ));
    }
    let previous: Vec<&str> = ring.ids().skip(1).collect();
    let value = json!({"key_id": ring.current_id(), "previous_key_ids": previous});
    output.either(&value, || {
        let mut text = format!(
            "the memory key is well-formed; its id is {}",
            ring.current_id()
        );
        if !previous.is_empty() {
            text.push_str(&format!("\nprevious keys: {}", previous.join(", ")));
        }
        text
    })
}

/// Writes a key file, unless there is a key.
fn init(global: &Global, env: &ProcessEnvironment, output: &Output) -> Result<()> {
    let loaded = config::load(global.config.as_deref(), Vec::new(), env)?;
    key_file::configuration(&loaded)?;
    if !loaded.problems.is_empty() {
        return loaded.settings().map(drop);
    }
    let path = setting(&loaded);
    let missing = gate::missing_file(env, &path);
    if missing.is_none()
        && let Some(ring) = gate::key_ring(env, &path)?
    {
        let from = gate::source(env, &path)
            .map(|source| source.to_string())
            .unwrap_or_default();
        let value = json!({"created": false, "key_id": ring.current_id(), "source": from});
        return output.either(&value, || {
            format!(
                "memory is on already, with key {} from {from}; nothing was changed",
                ring.current_id()
            )
        });
    }
    let settings = loaded
        .settings
        .as_ref()
        .ok_or_else(|| Failure::internal("the configuration has no settings"))?;
    crate::runtime::block_on(super::init::refuse_lost_store(settings))?;
    let (file, id) = match missing {
        Some(file) => (
            file.to_owned(),
            key_file::create(file, key_file::configuration(&loaded)?)?,
        ),
        None => key_file::write(&loaded, true)?
            .key
            .ok_or_else(|| Failure::internal("no key was made"))?,
    };
    let value = json!({"created": true, "key_id": id, "source": file});
    output.either(&value, || {
        format!(
            "wrote the memory key {id} to {}\nMemory is on for every command. Keep a copy of the key apart from the store: \
             without it, the store cannot be read.",
            file.display()
        )
    })
}

fn show(reveal: bool, global: &Global, env: &ProcessEnvironment, output: &Output) -> Result<()> {
    let (ring, path) = ring(
        config::load(global.config.as_deref(), Vec::new(), env)?,
        env,
    )?;
    let source = gate::source(env, &path);
    if reveal {
        if !output.terminals.stdout {
            return Err(
                Failure::new(Exit::Refused, "the key is shown at a terminal only")
                    .with_hint("copy the key file instead; `helmdeck key path` prints where it is"),
            );
        }
        let key = match source {
            Some(KeySource::Setting(path)) => Some(secret_file::read(
                gate::KEY_SETTING,
                path,
                Readers::OwnerOnly,
            )?),
            _ => secret_file::of_environment(env, gate::KEY, gate::KEY_FILE, Readers::OwnerOnly)?
                .map(|(_, key)| key),
        };
        return output.text(key.as_ref().map_or("", |key| key.trim()));
    }
    let from = source.map(|source| source.to_string()).unwrap_or_default();
    let previous: Vec<&str> = ring.ids().skip(1).collect();
    let value = json!({"key_id": ring.current_id(), "source": from, "previous_key_ids": previous});
    output.either(&value, || {
        let mut text = format!("key {} from {from}", ring.current_id());
        if let (Some(KeySource::Variable(name)), false) = (source, path.as_os_str().is_empty()) {
            text.push_str(&format!(
                "\n{name} wins over the key file {}",
                path.display()
            ));
        }
        if !previous.is_empty() {
            text.push_str(&format!("\nprevious keys: {}", previous.join(", ")));
        }
        text
    })
}

fn path(global: &Global, env: &ProcessEnvironment, output: &Output) -> Result<()> {
    let loaded = config::load(global.config.as_deref(), Vec::new(), env)?;
    let setting = setting(&loaded);
    let path = match gate::source(env, &setting) {
        Some(KeySource::Setting(path)) => path.to_owned(),
        Some(KeySource::Variable(gate::KEY_FILE)) => {
            env.absolute(&env.path(gate::KEY_FILE).unwrap_or_default())?
        }
        Some(KeySource::Variable(name)) => {
            return Err(Failure::new(
                Exit::Absent,
                format!("the memory key comes from {name}, not from a file"),
            ));
        }
        None => {
            let path = key_file::configuration(&loaded)?.with_file_name(key_file::NAME);
            return Err(Failure::new(Exit::Absent, "there is no memory key file")
                .with_hint(format!("`helmdeck key init` writes {}", path.display())));
        }
    };
    output.either(&json!({"path": path, "exists": path.exists()}), || {
        path.display().to_string()
    })
}
