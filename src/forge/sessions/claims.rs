//! Work claims across all work trees of a repository: no two sessions get the same feature or
//! issue.
//!
//! A claim is valid while its session is active and has it in its focus. The record in the
//! session's work tree tells whether it is active, so a session that dies has nothing to release.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Sessions;
use super::record::{ActiveSessions, Session};
use crate::error::{Error, Result};
use crate::focus::{Focus, Set, SetFocus};
use crate::layout::{LIVING, LOCAL};
use crate::shared;
use crate::work::Elsewhere;

/// Name of the claims file, in the folder shared by all work trees, or else in this clone's.
const NAME: &str = "claims.json";

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Claims {
    claims: Vec<Claim>,
}

/// A feature or an issue that a session works on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Claim {
    /// The feature id, or the issue key.
    what: String,
    /// The session.
    session: String,
    /// The unique id of the session.
    uuid: String,
    /// The root of its work tree.
    worktree: PathBuf,
}

impl Sessions<'_> {
    /// Returns the features and issues that other sessions work on, in any work tree.
    ///
    /// Unreadable claims are ignored, so they block no session.
    pub(crate) fn claimed(&self) -> BTreeSet<String> {
        let mine = self.current().ok().flatten().map(|session| session.uuid);
        let others = self
            .read_claims()
            .claims
            .into_iter()
            .filter(|claim| Some(&claim.uuid) != mine.as_ref());
        others
            .filter(|claim| self.lives_elsewhere(claim))
            .map(|claim| claim.what)
            .collect()
    }

    /// Returns what sessions in other work trees work on.
    pub(crate) fn elsewhere(&self) -> Vec<Elsewhere> {
        let others = self
            .read_claims()
            .claims
            .into_iter()
            .filter(|claim| claim.worktree != self.project.root());
        let alive = others.filter(|claim| self.lives_elsewhere(claim));
        alive
            .map(
                |Claim {
                     what,
                     session,
                     worktree,
                     ..
                 }| Elsewhere {
                    what,
                    session,
                    worktree,
                },
            )
            .collect()
    }

    /// Changes the focus of the caller's session, and claims what the focus names.
    ///
    /// # Errors
    /// As [`Self::acting`]; errors from changing the focus.
    pub fn set_focus(&self, change: &SetFocus) -> Result<Set> {
        let session = self.acting()?;
        let (focus, id) = self.focus_to_change()?;
        let set = focus.set(&SetFocus {
            session: id,
            ..change.clone()
        })?;
        self.take(session.as_ref(), &set.now.focus);
        Ok(set)
    }

    /// Clears the focus of the caller's session, and releases its claims.
    ///
    /// # Errors
    /// As [`Self::set_focus`].
    pub fn clear_focus(&self, reason: Option<&str>) -> Result<Set> {
        let session = self.acting()?;
        let (focus, id) = self.focus_to_change()?;
        let set = focus.clear(id.as_deref(), reason)?;
        self.take(session.as_ref(), &set.now.focus);
        Ok(set)
    }

    fn take(&self, session: Option<&Session>, focus: &Focus) {
        let Some(session) = session else { return };
        let taken = self
            .project
            .common_lock()
            .and_then(|_common| self.claim(session, focus));
        if let Err(error) = taken {
            tracing::warn!(%error, "others are not told what is worked on");
        }
    }

    /// Claims what a focus names for a session, and releases its other claims.
    ///
    /// Claims of other sessions stay theirs. The caller holds the common lock.
    pub(super) fn claim(&self, session: &Session, focus: &Focus) -> Result<()> {
        let before = self.read_claims();
        let mut claims: Vec<Claim> = before
            .claims
            .iter()
            .filter(|claim| claim.uuid != session.uuid && self.lives_elsewhere(claim))
            .cloned()
            .collect();
        for what in focus.feature_id.iter().chain(&focus.linear_issue) {
            if !claims.iter().any(|claim| claim.what == *what) {
                claims.push(Claim {
                    what: what.clone(),
                    session: session.id.clone(),
                    uuid: session.uuid.clone(),
                    worktree: self.project.root().to_owned(),
                });
            }
        }
        let after = Claims { claims };
        if after == before {
            Ok(())
        } else {
            self.write_claims(&after)
        }
    }

    /// Says whether the session of a claim is active.
    fn lives_elsewhere(&self, claim: &Claim) -> bool {
        let living = || -> Option<ActiveSessions> {
            serde_json::from_slice(&shared::read(&claim.worktree.join(LIVING))?).ok()
        };
        let alive = |session: &Session| {
            let now = self.project.environment().now();
            session.state.is_alive() && session.given_up(now).is_none()
        };
        living().is_some_and(|living| {
            living.sessions.iter().any(|session| {
                (&session.id, &session.uuid) == (&claim.session, &claim.uuid) && alive(session)
            })
        })
    }

    fn claims_path(&self) -> PathBuf {
        match self.git() {
            Some(git) => git.common_dir().join("forge").join(NAME),
            None => self.project.root().join(LOCAL).join(NAME),
        }
    }

    fn read_claims(&self) -> Claims {
        shared::read(&self.claims_path())
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default()
    }

    fn write_claims(&self, claims: &Claims) -> Result<()> {
        let path = self.claims_path();
        let write = || shared::write(&path, &serde_json::to_vec_pretty(claims)?);
        write().map_err(|error| Error::io("cannot write", &path, &error))
    }
}
