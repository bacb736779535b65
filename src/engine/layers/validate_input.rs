//! Refuses input that does not fit the pack's schema, and hands on the rest with the schema's defaults filled in.
//!
//! The input is parsed here for the first time. What the caller wrote is handed on digit for digit; the engine's own field
//! (`_session_id`) is taken off before the schema sees it. The same with gates open or shut.

use std::borrow::Cow;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::Either;
use helmdeck_core::{Call, Code, Error, Manifest, Outcome, Result, identity, json, schema};
use tower::{Layer, Service};

use super::{Answered, answer};

const SESSION_FIELD: &str = "_session_id";

/// Checks input against a manifest.
#[derive(Debug, Clone)]
pub(crate) struct ValidateInputLayer {
    manifest: Arc<Manifest>,
    keep_value: bool,
}

impl ValidateInputLayer {
    /// `memory` says whether gate 1 is open: only then do tags need the input parsed further in.
    pub(crate) fn new(manifest: Arc<Manifest>, memory: bool) -> Self {
        let spec = manifest.memory.as_ref().filter(|_| memory);
        let tags =
            spec.is_some_and(|m| !m.invalidates.is_empty() || m.cache.as_ref().is_some_and(|c| !c.tags.is_empty()));
        let keep_value = tags || !manifest.credentials.is_empty();
        Self { manifest, keep_value }
    }
}

impl<S> Layer<S> for ValidateInputLayer {
    type Service = ValidateInput<S>;

    fn layer(&self, inner: S) -> Self::Service {
        ValidateInput { inner, layer: self.clone() }
    }
}

/// The service of [`ValidateInputLayer`].
#[derive(Debug, Clone)]
pub(crate) struct ValidateInput<S> {
    inner: S,
    layer: ValidateInputLayer,
}

impl<S: Service<Call, Response = Outcome, Error = Error>> Service<Call> for ValidateInput<S> {
    type Response = Outcome;
    type Error = Error;
    type Future = Answered<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut call: Call) -> Self::Future {
        match validate(&self.layer, &mut call) {
            Ok(()) => Either::Right(self.inner.call(call)),
            Err(error) => answer(Err(error)),
        }
    }
}

pub(crate) fn validate(layer: &ValidateInputLayer, call: &mut Call) -> Result<()> {
    let malformed = |error: serde_json::Error| {
        let place = format!("the input is not acceptable JSON (line {}, column {})", error.line(), error.column());
        Error::new(Code::InvalidInput, place).with_source(error)
    };
    if call.input.trim_ascii().is_empty() {
        call.input = Bytes::from_static(b"{}");
    }
    let mut value = json::read_strict(&call.input).map_err(malformed)?;
    let text = std::str::from_utf8(&call.input).unwrap_or_default();

    let mut rest: Option<String> = None;
    if let Some(session) = value.as_object_mut().and_then(|object| object.remove(SESSION_FIELD)) {
        let session = session.as_str().ok_or_else(|| Error::new(Code::InvalidInput, "_session_id must be text"))?;
        // It becomes part of a namespace, as the sessions of identities do.
        identity::check(SESSION_FIELD, session).map_err(|message| Error::new(Code::InvalidInput, message))?;
        call.stage.pinned_session = Some(Arc::from(session));
        rest = schema::take_member(text, SESSION_FIELD).map(|(_, rest)| rest);
    }
    let schema = &layer.manifest.input;
    let text = rest.as_deref().unwrap_or(text);
    if let Cow::Owned(filled) = schema.fill(text) {
        value = json::read_strict(filled.as_bytes()).map_err(malformed)?;
        call.input = filled.into_bytes().into();
    } else if let Some(rest) = rest {
        call.input = rest.into_bytes().into();
    }
    schema.validate(&value).map_err(|violations| {
        Error::new(Code::InvalidInput, format!("the input does not fit the schema of pack \"{}\"", layer.manifest.name))
            .with_violations(violations)
    })?;
    if layer.keep_value {
        call.stage.value = Some(Arc::new(value));
    }
    Ok(())
}
