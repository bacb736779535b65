//! The vault for the engine: attributes of credentials in memory, secrets sealed until use.

use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use helmdeck_core::secrets::{Grant, Secrets};
use helmdeck_core::{Clock, Code, Error, Identity, PackName, Secret};
use helmdeck_memory::KeyRing;
use helmdeck_system::System;
use helmdeck_system::vault::{VaultRow, VaultState};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::book::prove;
use crate::error::Result;
use crate::head::Head;
use crate::record::About;
use crate::seal::Sealer;
use crate::uses::Uses;

/// Interval between checks of the database for changes.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Number of such checks between two writes of the use log.
const LOOKS_PER_WRITE: u32 = 2;

/// Credentials for the engine. Cheap to clone; clones share their state.
#[derive(Clone)]
pub struct Vault(Arc<Inner>);

struct Inner {
    system: System,
    sealer: Sealer,
    clock: Arc<dyn Clock>,
    known: RwLock<Arc<VaultCache>>,
    /// Counter of seen changes. Unlike the database's number, it never returns to an old value.
    seen: AtomicU64,
    uses: Uses,
}

/// Last state that was read from the vault.
#[derive(Default)]
struct VaultCache {
    generation: u64,
    /// The highest counter of a head that was seen.
    counter: u64,
    credentials: HashMap<String, Credential>,
    /// Why the database was not read yet; `None` = it was.
    unread: Option<String>,
}

struct Credential {
    /// Its hosts, type and grants; `None` if the row does not open: then no caller may use it.
    about: Option<About>,
    /// Still sealed.
    row: VaultRow,
}

helmdeck_core::redacted_debug!(Vault, this => keys = this.0.sealer);

impl Vault {
    /// Reads the vault of a system database. Creates no file: a missing vault is empty.
    ///
    /// # Errors
    /// `WrongKey`, `Store`. A row that does not open is logged, and no caller may use it.
    pub async fn open(system: System, ring: KeyRing, clock: Arc<dyn Clock>) -> Result<Self> {
        let vault = Self::unread(system, ring, clock);
        vault.refresh().await?;
        Ok(vault)
    }

    /// As [`Vault::open`], but a database that cannot be reached is no error: [`Vault::watch`]
    /// reads it as soon as it can. Until then every credential is `overloaded`.
    ///
    /// # Errors
    /// `WrongKey`; `Store` for a database that is damaged.
    pub async fn open_when_reachable(
        system: System,
        ring: KeyRing,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let vault = Self::unread(system, ring, clock);
        match vault.refresh().await {
            Err(error) if !error.is_temporary() => Err(error),
            _ => Ok(vault),
        }
    }

    fn unread(system: System, ring: KeyRing, clock: Arc<dyn Clock>) -> Self {
        let unread = Some("it was not read yet".to_owned());
        let known = RwLock::new(Arc::new(VaultCache {
            unread,
            ..VaultCache::default()
        }));
        let (seen, uses) = (AtomicU64::new(0), Uses::default());
        Self(Arc::new(Inner {
            system,
            sealer: Sealer(ring),
            clock,
            known,
            seen,
            uses,
        }))
    }

    /// Reads the vault again if it has changed. Returns whether it did.
    ///
    /// # Errors
    /// `Store`, and `WrongKey` at the first time; then everything stays as it was read last.
    pub async fn refresh(&self) -> Result<bool> {
        let inner = &self.0;
        let before = inner.known();
        let read = async {
            if before.unread.is_none()
                && inner.system.vault_generation().await? == before.generation
            {
                return Ok(None);
            }
            let (state, rows) = inner.system.vault().await?;
            if before.unread.is_some() {
                prove(&inner.sealer, &state, &rows)?;
            }
            Ok(Some(read(&inner.sealer, &state, rows, before.counter)))
        };
        let answer: Result<Option<VaultCache>> = read.await;
        let known = match answer {
            Ok(None) => return Ok(false),
            Ok(Some(known)) => known,
            Err(error) => {
                if before.unread.is_some() {
                    let unread = Some(error.to_string());
                    *inner.known.write() = Arc::new(VaultCache {
                        unread,
                        ..VaultCache::default()
                    });
                }
                return Err(error);
            }
        };
        *inner.known.write() = Arc::new(known);
        inner.seen.fetch_add(1, Ordering::AcqRel);
        Ok(true)
    }

    /// Writes the uses that were counted.
    ///
    /// # Errors
    /// `Store`; then they are kept for the next time.
    pub async fn flush(&self) -> Result<()> {
        let uses = self.0.uses.take();
        if let Err(error) = self.0.system.add_vault_uses(uses.clone()).await {
            self.0.uses.put_back(uses);
            return Err(error.into());
        }
        Ok(())
    }

    /// Starts the task that follows other processes and writes the use log. It runs until
    /// [`Watch::stop`].
    #[must_use]
    pub fn watch(&self) -> Watch {
        let stop = CancellationToken::new();
        let task = tokio::spawn(follow(self.clone(), stop.clone()));
        Watch {
            vault: self.clone(),
            stop,
            task,
        }
    }
}

/// The task that follows other processes and writes the use log.
#[derive(Debug)]
pub struct Watch {
    vault: Vault,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Watch {
    /// Ends the task and writes what was counted last.
    pub async fn stop(self) {
        self.stop.cancel();
        // Fails only if the task panicked, which was logged.
        let _ = self.task.await;
        if let Err(error) = self.vault.flush().await {
            tracing::warn!(%error, "uses of credentials were not written to the use log");
        }
    }
}

async fn follow(vault: Vault, stop: CancellationToken) {
    let mut failing = false;
    for look in 1_u32.. {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        let mut result = vault.refresh().await.map(|_| ());
        if look % LOOKS_PER_WRITE == 0 {
            result = result.and(vault.flush().await);
        }
        match result {
            Ok(()) => failing = false,
            Err(error) if !failing => {
                failing = true;
                tracing::warn!(%error, "the vault cannot be read or written; what was read last still holds");
            }
            Err(_) => {}
        }
    }
}

/// Opens what is in the clear of the rows. `seen` is the highest counter that this process knows.
fn read(sealer: &Sealer, state: &VaultState, rows: Vec<VaultRow>, seen: u64) -> VaultCache {
    let head = Head::read(&sealer.0, state, &rows);
    let put_back = head.counter() < seen;
    if put_back {
        tracing::error!(
            "the vault was put back to an earlier state: its head has counter {}, and had {seen}; no credential is handed \
             out until it is changed again or this server is started again",
            head.counter()
        );
    }
    for error in head.missing(&rows) {
        tracing::warn!(%error, "a credential of the vault is missing");
    }
    let credential = |row: VaultRow| {
        let about = head.admit(&row).and_then(|()| sealer.about(&row));
        if let Err(error) = &about {
            tracing::warn!(%error, "a credential of the vault is left out");
        }
        (
            row.name.clone(),
            Credential {
                about: about.ok().filter(|_| !put_back),
                row,
            },
        )
    };
    VaultCache {
        generation: state.generation,
        counter: head.counter().max(seen),
        unread: None,
        credentials: rows.into_iter().map(credential).collect(),
    }
}

impl Inner {
    fn known(&self) -> Arc<VaultCache> {
        Arc::clone(&self.known.read())
    }

    /// Runs `then` with a credential that this caller may use with this pack; `None` if it does not
    /// exist.
    fn with<T>(
        &self,
        name: &str,
        identity: &Identity,
        pack: &PackName,
        then: impl FnOnce(&About, &VaultRow) -> helmdeck_core::Result<T>,
    ) -> helmdeck_core::Result<Option<T>> {
        let known = self.known();
        if let Some(why) = &known.unread {
            let message = format!("the vault cannot be read yet: {why}");
            return Err(Error::new(Code::Overloaded, message).with_retry_after(LOOK_EVERY));
        }
        let Some(credential) = known.credentials.get(name) else {
            return Ok(None);
        };
        match &credential.about {
            Some(about) if about.allows(identity, pack.as_str()) => {
                then(about, &credential.row).map(Some)
            }
            _ => {
                self.uses
                    .note(name, identity, pack, false, self.clock.now());
                Err(refusal(name))
            }
        }
    }
}

/// The same error for a credential that the caller may not use, and for one that does not exist.
fn refusal(name: &str) -> Error {
    let name = name.escape_debug();
    Error::new(
        Code::Forbidden,
        format!(
            "credential \"{name}\" does not exist, or this caller may not use it with this pack"
        ),
    )
}

impl Secrets for Vault {
    fn grant(
        &self,
        name: &str,
        identity: &Identity,
        pack: &PackName,
    ) -> helmdeck_core::Result<Option<Grant>> {
        self.0.with(name, identity, pack, |_, row| {
            Ok(Grant {
                name: name.to_owned(),
                version: row.version,
            })
        })
    }

    fn reveal(
        &self,
        grant: &Grant,
        identity: &Identity,
        pack: &PackName,
    ) -> helmdeck_core::Result<Secret> {
        let name = grant.name.as_str();
        let secret = self.0.with(name, identity, pack, |about, row| {
            let material = self.0.sealer.material(row).map_err(|error| {
                let message = format!("credential \"{name}\" cannot be opened");
                Error::new(Code::CredentialInvalid, message).with_source(error)
            })?;
            let mut secret = Secret::new(material.text.as_str().to_owned())
                .for_hosts(about.hosts.as_slice().into());
            if let Some(user) = &about.user {
                secret = secret.of_user(user);
            }
            if let Some(passphrase) = &material.passphrase {
                secret = secret.with_passphrase(passphrase.as_str().to_owned());
            }
            self.0
                .uses
                .note(name, identity, pack, true, self.0.clock.now());
            Ok(secret)
        })?;
        // It was there when the call began.
        secret.ok_or_else(|| refusal(name))
    }

    fn missing(&self, name: &str) -> Error {
        refusal(name)
    }

    fn trouble(&self) -> Option<String> {
        self.0.known().unread.clone()
    }

    fn generation(&self) -> u64 {
        self.0.seen.load(Ordering::Acquire)
    }
}
