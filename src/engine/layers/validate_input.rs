//! Refuses input that does not match the pack's schema, and fills in the schema's defaults.
//!
//! The input is parsed here for the first time. The caller's values are passed on digit for digit;
//! the engine's own field (`_session_id`) is removed before the schema check. This is the same with
//! gates open or shut. A check that is not done after the work of the usual one starts again on a
//! thread of its own (`heavy.rs`).

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::Either;
use helmdeck_core::error::Violation;
use helmdeck_core::schema::Effort;
use helmdeck_core::{Call, Code, Error, Manifest, Outcome, Result, identity, json, schema};
use serde_json::Value;
use tower::{Layer, Service, ServiceExt};

use super::heavy::{self, Patience, Side};
use super::{Answered, answer};
use crate::cache::key::{canonical_input, for_handler};

const SESSION_FIELD: &str = "_session_id";

/// Checks input against a manifest.
#[derive(Debug, Clone)]
pub(crate) struct ValidateInputLayer {
    manifest: Arc<Manifest>,
    keep_value: bool,
    /// Whether the handler gets the canonical input, which `cache` makes if it is there.
    canonical: bool,
}

impl ValidateInputLayer {
    /// `memory` says whether gate 1 is open: only then do tags need the input parsed further in.
    pub(crate) fn new(manifest: Arc<Manifest>, memory: bool) -> Self {
        let spec = manifest.memory.as_ref().filter(|_| memory);
        let tags = spec.is_some_and(|m| {
            !m.invalidates.is_empty() || m.cache.as_ref().is_some_and(|c| !c.tags.is_empty())
        });
        let keep_value = tags || !manifest.credentials.is_empty();
        let canonical = !memory && manifest.cache().is_some();
        Self {
            manifest,
            keep_value,
            canonical,
        }
    }
}

impl<S> Layer<S> for ValidateInputLayer {
    type Service = ValidateInput<S>;

    fn layer(&self, inner: S) -> Self::Service {
        ValidateInput {
            inner,
            layer: self.clone(),
        }
    }
}

/// The service of [`ValidateInputLayer`].
#[derive(Debug, Clone)]
pub(crate) struct ValidateInput<S> {
    inner: S,
    layer: ValidateInputLayer,
}

/// The future of a check off the runtime and the call behind it.
type Heavy = Pin<Box<dyn Future<Output = Result<Outcome>> + Send>>;

impl<S> Service<Call> for ValidateInput<S>
where
    S: Service<Call, Response = Outcome, Error = Error, Future: Send> + Clone + Send + 'static,
{
    type Response = Outcome;
    type Error = Error;
    type Future = Either<Answered<S::Future>, Heavy>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut call: Call) -> Self::Future {
        let value = match prepare(&self.layer, &mut call) {
            Ok(value) => value,
            Err(error) => return Either::Left(answer(Err(error))),
        };
        match self
            .layer
            .manifest
            .input
            .check(&value, &mut Effort::light())
        {
            Ok(checked) => Either::Left(match keep(&self.layer, &mut call, value, checked) {
                Ok(()) => Either::Right(self.inner.call(call)),
                Err(error) => answer(Err(error)),
            }),
            Err(_) => {
                let (layer, inner) = (self.layer.clone(), self.inner.clone());
                Either::Right(Box::pin(async move {
                    drop(value);
                    check_off(&layer, &mut call).await?;
                    inner.oneshot(call).await
                }))
            }
        }
    }
}

/// Checks the input of a call without running it.
///
/// # Errors
/// As the layer.
pub(crate) async fn validate(layer: &ValidateInputLayer, call: &mut Call) -> Result<()> {
    let value = prepare(layer, call)?;
    let checked = layer.manifest.input.check(&value, &mut Effort::light());
    match checked {
        Ok(checked) => keep(layer, call, value, checked),
        Err(_) => {
            drop(value);
            check_off(layer, call).await
        }
    }
}

/// Checks the prepared input off the runtime.
async fn check_off(layer: &ValidateInputLayer, call: &mut Call) -> Result<()> {
    let (manifest, text) = (Arc::clone(&layer.manifest), call.input.clone());
    let (value, checked) = heavy::check(manifest, Side::Input, text, Patience::of(call)).await?;
    keep(layer, call, value, checked)
}

fn keep(
    layer: &ValidateInputLayer,
    call: &mut Call,
    value: Value,
    checked: Result<(), Vec<Violation>>,
) -> Result<()> {
    checked.map_err(|violations| {
        Error::new(
            Code::InvalidInput,
            format!(
                "the input does not fit the schema of pack \"{}\"",
                layer.manifest.name
            ),
        )
        .with_violations(violations)
    })?;
    if layer.keep_value {
        call.stage.value = Some(Arc::new(value));
    }
    // The gate of the operator changes nothing that a handler can see. What has no canonical form
    // stays as it is.
    if layer.canonical
        && let Ok(input) = canonical_input(call)
    {
        call.input = for_handler(&input.into());
    }
    Ok(())
}

/// Parses the input, removes the engine's own field and fills in defaults.
fn prepare(layer: &ValidateInputLayer, call: &mut Call) -> Result<Value> {
    let malformed = |error: serde_json::Error| {
        let place = format!(
            "the input is not acceptable JSON (line {}, column {})",
            error.line(),
            error.column()
        );
        Error::new(Code::InvalidInput, place).with_source(error)
    };
    if call.input.trim_ascii().is_empty() {
        call.input = Bytes::from_static(b"{}");
    }
    let mut value = json::read_exact(&call.input).map_err(malformed)?;
    let text = std::str::from_utf8(&call.input).unwrap_or_default();

    let mut rest: Option<String> = None;
    if let Some(session) = value
        .as_object_mut()
        .and_then(|object| object.remove(SESSION_FIELD))
    {
        let session = session
            .as_str()
            .ok_or_else(|| Error::new(Code::InvalidInput, "_session_id must be text"))?;
        // It becomes part of a namespace, as the sessions of identities do.
        identity::check(SESSION_FIELD, session)
            .map_err(|message| Error::new(Code::InvalidInput, message))?;
        call.stage.pinned_session = Some(Arc::from(session));
        rest = schema::take_member(text, SESSION_FIELD).map(|(_, rest)| rest);
    }
    let schema = &layer.manifest.input;
    let text = rest.as_deref().unwrap_or(text);
    let filled = schema
        .fill(text)
        .map_err(|error| Error::new(Code::TooLarge, format!("the input is too large: {error}")))?;
    if let Cow::Owned(filled) = filled {
        value = json::read_exact(filled.as_bytes()).map_err(malformed)?;
        call.input = filled.into_bytes().into();
    } else if let Some(rest) = rest {
        call.input = rest.into_bytes().into();
    }
    Ok(value)
}
