//! Test fixture: the engine as the program wires it, with a manual clock and given credentials.
//!
//! It opens nothing outside the given folder.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use helmdeck_conversation::Conversations;
use helmdeck_core::secrets::{Grant, Secrets};
use helmdeck_core::{
    Builtin, CacheStatus, Clock, Code, Error, Identity, Outcome, PackName, Result, Secret,
};
use helmdeck_egress::Egress;
use helmdeck_engine::{Engine, Memory};
use helmdeck_system::System;
use helmdeck_testkit::{ManualClock, keyring};

/// Credentials by name. Every caller and pack may use each.
#[derive(Debug, Default)]
pub(crate) struct Wallet(BTreeMap<&'static str, Secret>);

impl Wallet {
    /// Makes a wallet of names and tokens.
    pub(crate) fn of(credentials: &[(&'static str, &str)]) -> Arc<Self> {
        Arc::new(Self(
            credentials
                .iter()
                .map(|(name, token)| (*name, Secret::new((*token).to_owned())))
                .collect(),
        ))
    }
}

impl Secrets for Wallet {
    fn grant(&self, name: &str, _: &Identity, _: &PackName) -> Result<Option<Grant>> {
        Ok(self.0.get(name).map(|_| Grant {
            name: name.to_owned(),
            version: 1,
        }))
    }

    fn reveal(&self, grant: &Grant, _: &Identity, _: &PackName) -> Result<Secret> {
        self.0
            .get(grant.name.as_str())
            .cloned()
            .ok_or_else(|| Error::new(Code::CredentialInvalid, "no such credential"))
    }

    fn generation(&self) -> u64 {
        0
    }
}

/// Returns every pack of the program, with GitHub at this address.
pub(crate) fn builtins(github: &str, clock: &Arc<ManualClock>) -> Vec<Builtin> {
    builtins_with(github, clock, &Conversations::default())
}

/// Returns every pack of the program, with conversations in this place.
pub(crate) fn builtins_with(
    github: &str,
    clock: &Arc<ManualClock>,
    conversations: &Conversations,
) -> Vec<Builtin> {
    let mut config = helmdeck_packs::github::Config::new(github.parse().unwrap());
    config.retry_wait = Duration::from_millis(1);
    let egress = Egress::new(helmdeck_egress::Config::default());
    helmdeck_packs::all(&helmdeck_packs::Dependencies {
        llm: helmdeck_llm::Client::new(&egress, helmdeck_llm::Config::default()).unwrap(),
        swe: helmdeck_packs::swe::Config::default(),
        conversations: conversations.clone(),
        forge: helmdeck_packs::forge::Config::default(),
        seam: helmdeck_packs::seam::Config::default(),
        egress,
        clock: Arc::clone(clock) as Arc<dyn Clock>,
        github: config,
        repo: helmdeck_packs::repo::Config::default(),
    })
}

/// Opens gate 1: a sealed file and the system database, both in this folder.
pub(crate) async fn memory(folder: &Path, clock: &Arc<ManualClock>) -> Memory {
    let url = format!("sqlite:{}", folder.join("memory.db").display());
    let config = helmdeck_memory::Config::default();
    let store = helmdeck_memory::open(&url, keyring(), config, Arc::clone(clock) as _)
        .await
        .unwrap();
    Memory {
        store,
        keyring: Arc::new(keyring()),
        system: Some(System::at(folder.join("helmdeck.db"))),
    }
}

/// Puts an engine together whose files are in this folder.
pub(crate) fn engine(
    builtins: Vec<Builtin>,
    clock: &Arc<ManualClock>,
    wallet: &Arc<Wallet>,
    folder: &Path,
    memory: Option<Memory>,
) -> Engine {
    let mut builder = Engine::builder(helmdeck_testkit::patient())
        .builtins(builtins)
        .secrets(Arc::clone(wallet) as _)
        .artifacts(folder.join("artifacts"))
        .clock(Arc::clone(clock) as _);
    if let Some(memory) = memory {
        builder = builder.memory(memory);
    }
    let engine = builder.build();
    assert!(engine.refused().is_empty(), "{:?}", engine.refused());
    engine
}

/// Returns what the cache did; both gates must be open.
pub(crate) fn status(outcome: &Outcome) -> CacheStatus {
    outcome.cache.unwrap().status
}

/// A log that is kept to be read by a test. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Returns all that was logged so far.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
