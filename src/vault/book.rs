//! Operator commands on credentials.
//!
//! Every change is one transaction: several processes may run them at once, and a killed one leaves
//! the old or the new state.

use std::sync::Arc;

use helmdeck_core::{Clock, Timestamp};
use helmdeck_memory::KeyRing;
use helmdeck_system::System;
use helmdeck_system::vault::{VaultChange, VaultRow, VaultState};

use crate::error::{Result, VaultError};
use crate::head::Head;
use crate::record::{About, Material, check_name};
use crate::seal::{Fields, Sealer};

/// Operator access to the credentials, with the key.
#[derive(Clone)]
pub struct Book {
    system: System,
    sealer: Sealer,
    clock: Arc<dyn Clock>,
}

/// Result of a change of a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Saved {
    /// The credential's version now.
    pub version: u64,
    /// Whether it replaced a credential of this name.
    pub replaced: bool,
}

/// Listed credential, without its secret.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: u64,
    /// The id of the key that sealed it.
    pub key_id: String,
    /// Creation time.
    pub created_at: Timestamp,
    /// Time of the last change.
    pub updated_at: Timestamp,
    /// Its hosts, type and grants; `None` if it was not opened, an error if it does not open.
    pub about: Option<Result<About>>,
}

/// Change of the grants of a credential.
#[derive(Debug, Default, Clone)]
pub struct Change {
    /// Callers to grant it to.
    pub allow: Vec<crate::Subjects>,
    /// Packs to grant it to.
    pub allow_packs: Vec<helmdeck_core::caller::Glob>,
    /// Callers to withdraw it from, written as when granted.
    pub revoke: Vec<crate::Subjects>,
    /// Packs to withdraw it from, written as when granted.
    pub revoke_packs: Vec<helmdeck_core::caller::Glob>,
}

/// Result of resealing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rekeyed {
    /// Number of resealed rows.
    pub resealed: u64,
    /// Number of rows already sealed with the current key.
    pub already: u64,
    /// Credentials that do not open with the given keys; they are left unchanged.
    pub unreadable: Vec<String>,
    /// The id of the current key.
    pub key_id: String,
}

helmdeck_core::redacted_debug!(Book, this => keys = this.sealer);

/// Changes of a transaction, and its answer.
type Decided<T> = (Option<VaultChange>, Result<T>);

impl Book {
    /// Opens the book of a system database with the vault's keys. Touches nothing.
    #[must_use]
    pub fn new(system: System, ring: KeyRing, clock: Arc<dyn Clock>) -> Self {
        Self {
            system,
            sealer: Sealer(ring),
            clock,
        }
    }

    /// Creates a credential, or replaces all of it.
    ///
    /// # Errors
    /// `Invalid`, `WrongKey`, `Store`.
    pub async fn set(&self, name: &str, about: About, material: Material) -> Result<Saved> {
        check_name(name)?;
        about.check()?;
        let (name, sealer, now) = (name.to_owned(), self.sealer.clone(), self.clock.now());
        self.change(true, move |head, rows| {
            let known = find(rows, &name);
            // A row that was put back is replaced, and nothing is taken from it.
            let fields = next(&name, known.filter(|row| head.admit(row).is_ok()), now);
            let saved = Saved {
                version: fields.version,
                replaced: known.is_some(),
            };
            Ok((put(sealer.seal(fields, &about, &material)?), saved))
        })
        .await?
        .ok_or_else(|| VaultError::Invalid("the vault could not be made".to_owned()))
    }

    /// Replaces the secret of a credential. Its attributes stay.
    ///
    /// # Errors
    /// `Missing`, `Refused` if the secret is not of the credential's type, `Unreadable`,
    /// `WrongKey`, `Store`.
    pub async fn rotate(&self, name: &str, material: Material) -> Result<Saved> {
        let (wanted, sealer, now) = (name.to_owned(), self.sealer.clone(), self.clock.now());
        let saved = self.change(false, move |head, rows| {
            let known = find(rows, &wanted).ok_or_else(|| VaultError::Missing(wanted.clone()))?;
            head.admit(known)?;
            let about = sealer.about(known)?;
            let material = Material::new(about.kind, material.text, material.passphrase)?;
            let fields = next(&wanted, Some(known), now);
            let saved = Saved {
                version: fields.version,
                replaced: true,
            };
            Ok((put(sealer.seal(fields, &about, &material)?), saved))
        });
        saved
            .await?
            .ok_or_else(|| VaultError::Missing(name.to_owned()))
    }

    /// Changes the grants of a credential, and returns its hosts, type and grants.
    ///
    /// The secret and its version stay.
    ///
    /// # Errors
    /// `Missing`, `Invalid` if a grant to revoke does not exist, `Unreadable`, `WrongKey`, `Store`.
    pub async fn regrant(&self, name: &str, change: Change) -> Result<About> {
        let (wanted, sealer, now) = (name.to_owned(), self.sealer.clone(), self.clock.now());
        let about = self.change(false, move |head, rows| {
            let known = find(rows, &wanted).ok_or_else(|| VaultError::Missing(wanted.clone()))?;
            head.admit(known)?;
            let mut about = sealer.about(known)?;
            regrant(&mut about, change)?;
            let fields = Fields {
                updated_at: now.max(known.updated_at),
                ..Fields::from(known)
            };
            Ok((
                put(sealer.seal(fields, &about, &sealer.material(known)?)?),
                about,
            ))
        });
        about
            .await?
            .ok_or_else(|| VaultError::Missing(name.to_owned()))
    }

    /// Returns every credential by name, with its attributes and without its secret.
    ///
    /// # Errors
    /// `WrongKey`, `Store`.
    pub async fn list(&self) -> Result<Vec<Listed>> {
        let (state, rows) = self.system.vault().await?;
        prove(&self.sealer, &state, &rows)?;
        let head = Head::read(&self.sealer.0, &state, &rows);
        let about = |row: &VaultRow| head.admit(row).and_then(|()| self.sealer.about(row));
        Ok(rows
            .iter()
            .map(|row| listed(row, Some(about(row))))
            .collect())
    }

    /// Returns the attributes of one credential.
    ///
    /// # Errors
    /// `Missing`, `Unreadable`, `WrongKey`, `Store`.
    pub async fn about(&self, name: &str) -> Result<About> {
        let found = self
            .list()
            .await?
            .into_iter()
            .find(|listed| listed.name == name);
        found
            .and_then(|listed| listed.about)
            .ok_or_else(|| VaultError::Missing(name.to_owned()))?
    }

    /// Opens every credential, secrets too, and returns how many there are and why which do not
    /// open or are missing.
    ///
    /// # Errors
    /// `WrongKey`, `Store`.
    pub async fn check(&self) -> Result<(usize, Vec<VaultError>)> {
        let (state, rows) = self.system.vault().await?;
        prove(&self.sealer, &state, &rows)?;
        let head = Head::read(&self.sealer.0, &state, &rows);
        let open = |row: &VaultRow| {
            head.admit(row)
                .and_then(|()| self.sealer.about(row))
                .and_then(|_| self.sealer.material(row))
                .err()
        };
        Ok((
            rows.len(),
            rows.iter()
                .filter_map(open)
                .chain(head.missing(&rows))
                .collect(),
        ))
    }

    /// Reseals every row with the current key, in one transaction.
    ///
    /// Secrets, versions and grants stay. It may be repeated.
    ///
    /// # Errors
    /// `WrongKey` if the key of the vault is not in the ring, `Store`.
    pub async fn rekey(&self) -> Result<Option<Rekeyed>> {
        let sealer = self.sealer.clone();
        self.change(false, move |head, rows| {
            let current = sealer.0.current_id().to_owned();
            let mut done = Rekeyed {
                resealed: 0,
                already: 0,
                unreadable: Vec::new(),
                key_id: current.clone(),
            };
            let mut change = VaultChange::default();
            for row in rows {
                let resealed = head
                    .admit(row)
                    .and_then(|()| sealer.about(row))
                    .and_then(|about| {
                        let material = sealer.material(row)?;
                        if row.key_id == current {
                            Ok(None)
                        } else {
                            sealer.seal(Fields::from(row), &about, &material).map(Some)
                        }
                    });
                match resealed {
                    Ok(Some(row)) => change.put.push(row),
                    Ok(None) => done.already += 1,
                    Err(VaultError::Unreadable { name, .. }) => done.unreadable.push(name),
                    Err(error) => return Err(error),
                }
            }
            done.resealed = change.put.len() as u64;
            // A row that another key may still open keeps the vault with that key.
            change.key_id = done.unreadable.is_empty().then_some(current);
            Ok((change, done))
        })
        .await
    }

    /// Removes a credential.
    ///
    /// # Errors
    /// `Missing`, `WrongKey`, `Store`.
    pub async fn remove(&self, name: &str) -> Result<()> {
        let wanted = name.to_owned();
        let removed = self.change(false, move |head, rows| {
            // Its row may be gone without the key.
            if find(rows, &wanted).is_none() && !head.names(&wanted) {
                return Err(VaultError::Missing(wanted));
            }
            Ok((
                VaultChange {
                    remove: vec![wanted],
                    ..VaultChange::default()
                },
                (),
            ))
        });
        removed
            .await?
            .ok_or_else(|| VaultError::Missing(name.to_owned()))
    }

    /// Runs a change on the rows in one transaction, and writes the next head with it. `None` if
    /// there is no vault and none is created.
    async fn change<T: Send + 'static>(
        &self,
        make: bool,
        decide: impl FnOnce(&Head, &[VaultRow]) -> Result<(VaultChange, T)> + Send + 'static,
    ) -> Result<Option<T>> {
        let sealer = self.sealer.clone();
        let now = self.clock.now();
        let answer = self
            .system
            .change_vault(make, move |state, rows| -> Decided<T> {
                let change = || {
                    prove(&sealer, state, &rows)?;
                    let head = Head::read(&sealer.0, state, &rows);
                    let (mut change, answer) = decide(&head, &rows)?;
                    if rows.is_empty() || state.key_id.is_none() {
                        change.key_id = Some(sealer.0.current_id().to_owned());
                    }
                    // Servers that do not have a new key yet go on, until a rekey.
                    let like = state.head.as_deref().filter(|_| change.key_id.is_none());
                    head.add_to((&sealer.0, like), &rows, &mut change, now)?;
                    Ok((change, answer))
                };
                match change() {
                    Ok((change, answer)) => (Some(change), Ok(answer)),
                    Err(error) => (None, Err(error)),
                }
            });
        answer.await?.transpose()
    }
}

/// Removes a credential without the key, for a lost one. With the key use [`Book::remove`]: it
/// keeps the head.
///
/// # Errors
/// `Missing`, `Store`.
pub async fn remove(system: &System, name: &str) -> Result<()> {
    let wanted = name.to_owned();
    let removed = system.change_vault(false, move |_, rows| {
        let known = find(&rows, &wanted).is_some();
        (
            known.then(|| VaultChange {
                remove: vec![wanted],
                ..VaultChange::default()
            }),
            known,
        )
    });
    match removed.await? {
        Some(true) => Ok(()),
        _ => Err(VaultError::Missing(name.to_owned())),
    }
}

/// Returns what is in the clear of every credential: name, version, key and times.
///
/// # Errors
/// `Store`.
pub async fn list_in_the_clear(system: &System) -> Result<Vec<Listed>> {
    Ok(system
        .vault()
        .await?
        .1
        .iter()
        .map(|row| listed(row, None))
        .collect())
}

/// Checks that the vault belongs to a key of the ring. An empty vault belongs to its first writer.
pub(crate) fn prove(sealer: &Sealer, state: &VaultState, rows: &[VaultRow]) -> Result<()> {
    match &state.key_id {
        Some(id) if !rows.is_empty() && !sealer.0.knows(id) => Err(VaultError::WrongKey {
            vault: id.clone(),
            given: sealer.0.ids().collect::<Vec<_>>().join(", "),
        }),
        _ => Ok(()),
    }
}

fn find<'a>(rows: &'a [VaultRow], name: &str) -> Option<&'a VaultRow> {
    rows.iter().find(|row| row.name == name)
}

fn put(row: VaultRow) -> VaultChange {
    VaultChange {
        put: vec![row],
        ..VaultChange::default()
    }
}

/// Returns the clear fields of a row with a new secret.
///
/// Its version is the time in Unix microseconds, and always higher than the previous one. So a
/// credential that was removed and set again never passes for the previous one, even in a new
/// database.
fn next(name: &str, known: Option<&VaultRow>, now: Timestamp) -> Fields {
    let version = u64::try_from(now.micros()).unwrap_or(1);
    Fields {
        name: name.to_owned(),
        version: known.map_or(version, |row| version.max(row.version + 1)),
        created_at: known.map_or(now, |row| row.created_at),
        updated_at: known.map_or(now, |row| now.max(row.updated_at)),
    }
}

fn regrant(about: &mut About, change: Change) -> Result<()> {
    for subjects in &change.revoke {
        take(&mut about.subjects, subjects)?;
    }
    for glob in &change.revoke_packs {
        take(&mut about.packs, glob)?;
    }
    about.subjects.extend(change.allow);
    about.packs.extend(change.allow_packs);
    about.subjects.sort();
    about.subjects.dedup();
    about.packs.sort();
    about.packs.dedup();
    Ok(())
}

fn take<T: PartialEq + std::fmt::Display>(from: &mut Vec<T>, what: &T) -> Result<()> {
    let before = from.len();
    from.retain(|held| held != what);
    if from.len() == before {
        let held = from
            .iter()
            .map(|held| format!("\"{held}\""))
            .collect::<Vec<_>>()
            .join(", ");
        let held = if held.is_empty() {
            "nothing is".to_owned()
        } else {
            format!("allowed are {held}")
        };
        return Err(VaultError::Invalid(format!(
            "\"{what}\" is not allowed as such; {held}"
        )));
    }
    Ok(())
}

fn listed(row: &VaultRow, about: Option<Result<About>>) -> Listed {
    Listed {
        name: row.name.clone(),
        version: row.version,
        key_id: row.key_id.clone(),
        created_at: row.created_at,
        updated_at: row.updated_at,
        about,
    }
}
