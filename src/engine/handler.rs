//! Innermost service: runs a handler once, under its deadline.
//!
//! A panic becomes `handler_failed`. The handler's output is redacted here, of the secrets that the
//! handler was given. So no outer layer (checks, cache, log, reply) ever sees one.

use parking_lot::Mutex;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::FutureExt;
use helmdeck_core::context::Packs;
use helmdeck_core::manifest::Respect;
use helmdeck_core::memory::{Memory, NoMemory, Owner, Views};
use helmdeck_core::outcome::{Remark, UsedGrant};
use helmdeck_core::trace::SpanKind;
use helmdeck_core::{
    Caching, Call, Clock, Code, Context, Error, Handler, Json, Manifest, Outcome, PackName, Reply,
    Result, RunId, Version,
};
use tower::Service;

use helmdeck_redact as redact;

/// Dependencies of one pack's handler. Shared, because each call clones the stack.
pub(crate) struct Runner {
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) packs: Arc<dyn Packs>,
    pub(crate) clock: Arc<dyn Clock>,
    /// This pack's view of the store, or why it has none.
    pub(crate) memory: Result<Arc<dyn Views>, NoMemory>,
}

/// Service that runs the handler of one pack.
#[derive(Clone)]
pub(crate) struct HandlerService(pub(crate) Arc<Runner>);

impl Service<Call> for HandlerService {
    type Response = Outcome;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Outcome>> + Send>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        Box::pin(run(Arc::clone(&self.0), call))
    }
}

async fn run(runner: Arc<Runner>, call: Call) -> Result<Outcome> {
    let Runner {
        manifest,
        handler,
        packs,
        clock,
        ..
    } = &*runner;
    let memory = memory(&runner, &call);
    let secrets = call.stage.secrets.clone();
    let progress = match (call.progress, &secrets) {
        (Some(inner), Some(secrets)) => Some(Arc::new(redact::CleanProgress {
            inner,
            secrets: Arc::clone(secrets),
        }) as _),
        (progress, _) => progress,
    };
    let limit = Instant::now() + manifest.timeout;
    let deadline = call.deadline.map_or(limit, |deadline| deadline.min(limit));
    let stale = call.stage.stale.clone();
    // Gate 1 is shut: nothing is stored, so used grants are not needed.
    let noting = (!matches!(memory, Err(NoMemory::Off | NoMemory::Unavailable(_))))
        .then(|| Arc::new(Noting::new(Arc::clone(packs))));
    let mut correlation = call.correlation;
    let mut span = correlation.begin_span(
        || format!("run {}", manifest.name).into(),
        SpanKind::Internal,
    );
    let context = Context {
        pack: manifest.name.clone(),
        version: manifest.version,
        identity: call.identity,
        run: call.stage.run.unwrap_or_else(|| RunId::next(clock.now())),
        deadline: Some(deadline),
        cancel: call.cancel.clone(),
        depth: call.depth,
        behind: call.behind,
        correlation: correlation.clone(),
        stale: call.stage.stale,
        covered: call.stage.covered_by.is_some(),
        progress,
        secrets: secrets.clone(),
        artifacts: call.stage.artifacts,
        session: call.stage.session,
        packs: Some(
            noting
                .clone()
                .map_or_else(|| Arc::clone(packs), |noting| noting as _),
        ),
        memory,
    };

    let handling = correlation.scope(handler.run(context, Json::from_trusted(call.input)));
    let running = AssertUnwindSafe(handling).catch_unwind();
    let guarded = tokio::time::timeout_at(deadline.into(), running);
    let ended = match &call.cancel {
        Some(cancel) => tokio::select! {
            biased;
            ended = guarded => Some(ended),
            () = cancel.cancelled() => None,
        },
        None => Some(guarded.await),
    };
    let result = match ended {
        None => Err(Error::new(Code::Cancelled, "the call was cancelled")),
        Some(Err(_)) => Err(timed_out(manifest)),
        // The panic's text may contain a secret, so it is not shown or logged.
        Some(Ok(Err(_panic))) => Err(Error::new(
            Code::HandlerFailed,
            format!("the handler of pack \"{}\" panicked", manifest.name),
        )),
        Some(Ok(Ok(result))) => result,
    };

    if let (Some(span), Err(error)) = (&mut span, &result) {
        // The message is not redacted yet.
        span.fail(error.code().as_str(), "");
    }
    drop(span);
    let revealed = secrets
        .map(|secrets| secrets.revealed())
        .unwrap_or_default();
    let reply = result.map_err(|error| redact::error(error, &revealed))?;
    let (output, had_secret, not_modified) = match reply.output.clone() {
        Some(output) => clean(output, &revealed, manifest)?,
        None => match stale {
            Some(stale) => (stale.output, false, true),
            None => {
                let message = format!(
                    "the handler of pack \"{}\" confirmed an answer that it was not given",
                    manifest.name
                );
                return Err(Error::new(Code::InvalidOutput, message));
            }
        },
    };
    let mut remark = remark(reply, had_secret, not_modified, &revealed);
    if let Some(noted) = noting.map(|noting| std::mem::take(&mut *noting.noted.lock())) {
        remark.used = noted.used;
        remark.caching.no_store |= noted.caching.no_store;
        remark.caching.private |= noted.caching.private;
    }
    if manifest
        .cache()
        .is_some_and(|spec| spec.respect == Respect::None)
    {
        remark.caching = Caching::default();
    }
    Ok(outcome(manifest, output, remark))
}

/// Binds the memory to the caller. With gate 1 shut this copies one small value.
fn memory(runner: &Runner, call: &Call) -> Result<Memory, NoMemory> {
    let views = runner.memory.as_ref().map_err(Clone::clone)?;
    if call
        .stage
        .called_by
        .as_ref()
        .is_some_and(|calling| calling.shared)
    {
        return Err(NoMemory::Shared);
    }
    let owner = Owner {
        identity: Arc::clone(&call.identity),
        in_session: false,
        called_by: call.stage.called_by.clone(),
        secrets: call.stage.secrets.clone(),
        // A pack does not know what its caller may do.
        administrator: None,
    };
    Memory::bind(Arc::clone(views), owner)
}

fn timed_out(manifest: &Manifest) -> Error {
    let limit: Duration = manifest.timeout;
    let limit = helmdeck_core::duration::format_duration(limit);
    Error::new(
        Code::Timeout,
        format!(
            "pack \"{}\" did not answer in time (its limit is {limit})",
            manifest.name
        ),
    )
}

fn clean(
    output: Json,
    revealed: &[helmdeck_core::Secret],
    manifest: &Manifest,
) -> Result<(Json, bool, bool)> {
    match redact::bytes(output.bytes(), revealed) {
        std::borrow::Cow::Borrowed(_) => Ok((output, false, false)),
        std::borrow::Cow::Owned(bytes) => {
            // A secret outside a string, such as a number, cannot be redacted without breaking the
            // document.
            let output = Json::parse(bytes).map_err(|_| {
                Error::new(
                    Code::InvalidOutput,
                    format!("the output of pack \"{}\" holds a secret", manifest.name),
                )
            })?;
            Ok((output, true, false))
        }
    }
}

fn remark(
    reply: Reply,
    had_secret: bool,
    not_modified: bool,
    revealed: &[helmdeck_core::Secret],
) -> Remark {
    let validator = reply.validator.filter(|validator| {
        matches!(
            redact::text(validator, revealed),
            std::borrow::Cow::Borrowed(_)
        )
    });
    Remark {
        no_store: reply.no_store,
        confirm_always: reply.confirm_always,
        not_modified,
        validator,
        upstream_calls: reply.upstream_calls,
        quota: reply.quota,
        caching: reply.caching,
        had_secret,
        used: Vec::new(),
    }
}

/// Handle on other packs, and what their answers are made with.
struct Noting {
    packs: Arc<dyn Packs>,
    noted: Mutex<Noted>,
}

#[derive(Default)]
struct Noted {
    used: Vec<UsedGrant>,
    caching: Caching,
}

impl Noting {
    fn new(packs: Arc<dyn Packs>) -> Self {
        Self {
            packs,
            noted: Mutex::default(),
        }
    }
}

#[async_trait]
impl Packs for Noting {
    async fn call(
        &self,
        from: &Context,
        pack: &PackName,
        version: Option<Version>,
        input: Json,
    ) -> Result<Outcome> {
        let outcome = self.packs.call(from, pack, version, input).await?;
        let mut noted = self.noted.lock();
        for one in &outcome.remark.used {
            if !noted.used.contains(one) {
                noted.used.push(one.clone());
            }
        }
        noted.caching.no_store |= outcome.remark.caching.no_store;
        noted.caching.private |= outcome.remark.caching.private;
        drop(noted);
        Ok(outcome)
    }
}

fn outcome(manifest: &Manifest, output: Json, remark: Remark) -> Outcome {
    Outcome {
        pack: manifest.name.clone(),
        version: manifest.version,
        output,
        artifacts: no_artifacts(),
        duration: Duration::ZERO,
        session_id: None,
        cache: None,
        pending: false,
        remark,
    }
}

/// Most runs write no files; they share one empty list.
fn no_artifacts() -> Arc<[helmdeck_core::ArtifactRef]> {
    static NONE: std::sync::LazyLock<Arc<[helmdeck_core::ArtifactRef]>> =
        std::sync::LazyLock::new(|| Arc::new([]));
    Arc::clone(&NONE)
}
