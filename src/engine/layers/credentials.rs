//! Resolves the credentials that a manifest declares to grants, before the cache is asked.
//!
//! So an entry made with one credential is never served to a call with another, or to one whose
//! grant was revoked.

use parking_lot::Mutex;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::Either;
use helmdeck_core::context::CallSecrets;
use helmdeck_core::outcome::UsedGrant;
use helmdeck_core::secrets::{Grant, Secrets};
use helmdeck_core::{Call, Code, Error, Identity, Manifest, Outcome, PackName, Result, Secret};
use tower::{Layer, Service};

use super::{Answered, answer};

/// Resolves the credentials of one pack.
#[derive(Clone)]
pub(crate) struct CredentialsLayer {
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) secrets: Arc<dyn Secrets>,
}

impl<S> Layer<S> for CredentialsLayer {
    type Service = Credentials<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Credentials {
            inner,
            layer: self.clone(),
        }
    }
}

/// The service of [`CredentialsLayer`].
#[derive(Clone)]
pub(crate) struct Credentials<S> {
    inner: S,
    layer: CredentialsLayer,
}

/// The inner service's future, with or without a change of its outcome.
type Noted<F> = Either<F, Pin<Box<dyn Future<Output = Result<Outcome>> + Send>>>;

impl<S> Service<Call> for Credentials<S>
where
    S: Service<Call, Response = Outcome, Error = Error>,
    S::Future: Send + 'static,
{
    type Response = Outcome;
    type Error = Error;
    type Future = Answered<Noted<S::Future>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut call: Call) -> Self::Future {
        match resolve(&self.layer, &call) {
            Ok(bound) => {
                let used = used(&call, &bound.grants);
                call.stage.secrets = Some(Arc::new(bound));
                let running = self.inner.call(call);
                if used.is_empty() {
                    return Either::Right(Either::Left(running));
                }
                Either::Right(Either::Right(Box::pin(async move {
                    let mut outcome = running.await?;
                    outcome.remark.used.extend(used);
                    Ok(outcome)
                })))
            }
            Err(error) => answer(Err(error)),
        }
    }
}

/// Returns the grants to record for the calling pack, if there is one.
fn used(call: &Call, grants: &[Grant]) -> Vec<UsedGrant> {
    let grants = if call.stage.called_by.is_some() {
        grants
    } else {
        &[]
    };
    grants
        .iter()
        .map(|grant| UsedGrant {
            pack: call.pack.clone(),
            grant: grant.clone(),
        })
        .collect()
}

pub(crate) fn resolve(layer: &CredentialsLayer, call: &Call) -> Result<BoundSecrets> {
    let mut grants = Vec::with_capacity(layer.manifest.credentials.len());
    for template in &layer.manifest.credentials {
        let value = call
            .stage
            .value
            .as_deref()
            .unwrap_or(&serde_json::Value::Null);
        let Some(name) = template.fill(value) else {
            continue;
        };
        match layer
            .secrets
            .grant(&name.text, &call.identity, &call.pack)?
        {
            Some(grant) if !may_use(call, &grant) => {
                let message = format!(
                    "callers share the answer of the pack that calls \"{}\": it can use the credential \"{}\" only if that \
                     pack declares it too",
                    call.pack,
                    name.text.escape_debug()
                );
                return Err(Error::new(Code::Forbidden, message));
            }
            Some(grant) => grants.push(grant),
            // A default name that is not configured means anonymous. A name from the input must
            // never silently mean that.
            None if !name.from_input => {}
            None => return Err(layer.secrets.missing(&name.text)),
        }
    }
    Ok(BoundSecrets {
        grants,
        revealed: Mutex::new(Vec::new()),
        secrets: Arc::clone(&layer.secrets),
        identity: Arc::clone(&call.identity),
        pack: call.pack.clone(),
        outer: call.stage.secrets.clone(),
    })
}

/// Returns whether a grant may be used for this call.
///
/// A shared answer is kept under the grants of its own pack: one made with another grant would go
/// to callers without it.
fn may_use(call: &Call, grant: &Grant) -> bool {
    call.stage
        .called_by
        .as_ref()
        .is_none_or(|calling| !calling.shared || calling.grants.contains(grant))
}

/// Credentials of one call.
///
/// They remember which secrets were revealed, so that these are redacted from all that leaves the
/// handler.
pub(crate) struct BoundSecrets {
    grants: Vec<Grant>,
    revealed: Mutex<Vec<Secret>>,
    secrets: Arc<dyn Secrets>,
    identity: Arc<Identity>,
    pack: PackName,
    /// Credentials of the handler that makes this call, if one does.
    outer: Option<Arc<dyn CallSecrets>>,
}

impl CallSecrets for BoundSecrets {
    fn grants(&self) -> &[Grant] {
        &self.grants
    }

    fn get(&self, name: &str) -> Result<Option<Secret>> {
        let Some(grant) = self.grants.iter().find(|grant| grant.name == name) else {
            let message = format!(
                "pack \"{}\" does not declare credential \"{}\"",
                self.pack,
                name.escape_debug()
            );
            return Err(Error::new(Code::Forbidden, message));
        };
        let secret = self.secrets.reveal(grant, &self.identity, &self.pack)?;
        self.revealed.lock().push(secret.clone());
        Ok(Some(secret))
    }

    fn revealed(&self) -> Vec<Secret> {
        let mut revealed = self.revealed.lock().clone();
        revealed.extend(self.outer.iter().flat_map(|outer| outer.revealed()));
        revealed
    }
}

/// Credentials of a handler, as a pack that it calls sees them: for redaction only.
///
/// The called pack can get none of them. The revealed secrets are redacted from its output too,
/// since the handler may have put one into the input.
pub(crate) struct OuterSecrets(pub(crate) Arc<dyn CallSecrets>);

impl CallSecrets for OuterSecrets {
    fn grants(&self) -> &[Grant] {
        &[]
    }

    fn get(&self, name: &str) -> Result<Option<Secret>> {
        let message = format!(
            "this pack does not declare credential \"{}\"",
            name.escape_debug()
        );
        Err(Error::new(Code::Forbidden, message))
    }

    fn revealed(&self) -> Vec<Secret> {
        self.0.revealed()
    }
}
