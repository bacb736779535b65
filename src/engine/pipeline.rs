//! The pipeline: one expression, a line a layer, outermost first, each with the reason for its
//! place.
//!
//! Whether the cache is part of it is decided here, once, when a pack is registered. With a gate
//! shut the layer does not exist, so a shut gate costs nothing and can change nothing.

use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_util::future::Either;
use helmdeck_core::{Call, Error, Outcome, Result};
use tower::util::option_layer;
use tower::{Layer, Service, ServiceBuilder, ServiceExt};

use crate::cache::hub::Hub;
use crate::cache::pack::PackCache;
use crate::handler::HandlerService;
use crate::layers::AnswerNow;
use crate::layers::artifacts::ArtifactsLayer;
use crate::layers::backoff::BackoffLayer;
use crate::layers::cache::CacheLayer;
use crate::layers::credentials::CredentialsLayer;
use crate::layers::invalidate::InvalidateLayer;
use crate::layers::observe::ObserveLayer;
use crate::layers::recall::RecallLayer;
use crate::layers::session::SessionLayer;
use crate::layers::validate_input::ValidateInputLayer;
use crate::layers::validate_output::ValidateOutputLayer;

/// A pack, ready to be called. Built once.
pub(crate) struct PackService(Box<dyn Pipeline>);

impl PackService {
    /// Runs a call. What can be answered at once costs no copy of the stack.
    pub(crate) fn call(&self, mut call: Call) -> Either<Ready<Result<Outcome>>, Running> {
        match self.0.answer_now(&mut call) {
            Some(result) => Either::Left(ready(result)),
            None => Either::Right(self.0.run(call)),
        }
    }
}

/// A call on its way through a stack.
type Running = Pin<Box<dyn Future<Output = Result<Outcome>> + Send>>;

trait Pipeline: AnswerNow + Send + Sync {
    fn run(&self, call: Call) -> Running;
}

/// A stack whose outer layers may answer at once.
struct Recalling<S>(S);

/// A stack that every call goes through.
struct Whole<S>(S);

impl<S: AnswerNow> AnswerNow for Recalling<S> {
    fn answer_now(&self, call: &mut Call) -> Option<Result<Outcome>> {
        self.0.answer_now(call)
    }
}

impl<S> AnswerNow for Whole<S> {
    fn answer_now(&self, _: &mut Call) -> Option<Result<Outcome>> {
        None
    }
}

impl<S: AnswerNow + Stack> Pipeline for Recalling<S> {
    fn run(&self, call: Call) -> Running {
        run_stack(self.0.clone(), call)
    }
}

impl<S: Stack> Pipeline for Whole<S> {
    fn run(&self, call: Call) -> Running {
        run_stack(self.0.clone(), call)
    }
}

/// A stack of layers around a handler.
trait Stack:
    Service<Call, Response = Outcome, Error = Error, Future: Send> + Clone + Send + Sync + 'static
{
}

impl<S> Stack for S where
    S: Service<Call, Response = Outcome, Error = Error, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static
{
}

fn run_stack<S: Stack>(mut stack: S, call: Call) -> Running {
    // No layer makes a caller wait for a place, so the future of that wait is not needed.
    match stack.poll_ready(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(())) => Box::pin(stack.call(call)),
        _ => Box::pin(stack.oneshot(call)),
    }
}

/// State of the two gates.
pub(crate) enum Gates {
    /// One of them is shut.
    Shut,
    /// Both are open: answers are cached.
    Cached(Arc<PackCache>),
    /// The store exists, and the manifest says what the pack's writes invalidate.
    Invalidating(Arc<Hub>),
}

/// Layers of a pack's pipeline.
pub(crate) struct PipelineLayers {
    pub(crate) observe: ObserveLayer,
    pub(crate) validate_input: ValidateInputLayer,
    pub(crate) credentials: Option<CredentialsLayer>,
    pub(crate) session: Option<SessionLayer>,
    pub(crate) artifacts: ArtifactsLayer,
    pub(crate) validate_output: ValidateOutputLayer,
    pub(crate) handler: HandlerService,
}

/// Builds the pipeline of one pack.
pub(crate) fn build(parts: PipelineLayers, gates: Gates) -> PackService {
    let manifest = Arc::clone(&parts.handler.0.manifest);
    match gates {
        Gates::Shut => whole(
            ServiceBuilder::new()
                .layer(parts.observe) //              sees every outcome, also refusals
                .layer(parts.validate_input) //       nothing further in sees a malformed input
                .layer(option_layer(parts.credentials)), // only if the manifest declares any: grants before work
            run(
                parts.session,
                parts.artifacts,
                parts.validate_output,
                parts.handler,
            ),
        ),
        Gates::Cached(cache) => recalling(
            ServiceBuilder::new()
                .layer(parts.observe) //              sees hits too
                .layer(RecallLayer(Arc::clone(&cache))) // the very same bytes again: answered before anything is parsed
                .layer(parts.validate_input) //       fills in the defaults that the key is made of
                .layer(option_layer(parts.credentials)) // the key names the credential; a revoked grant never hits
                .layer(CacheLayer(Arc::clone(&cache))) // before `session`: a hit starts none; outside `validate_output`: only checked outputs are stored
                .layer(BackoffLayer(cache)), //       inside `cache`, which covers what is not asked with a stale answer
            run(
                parts.session,
                parts.artifacts,
                parts.validate_output,
                parts.handler,
            ),
        ),
        Gates::Invalidating(hub) => whole(
            ServiceBuilder::new()
                .layer(parts.observe)
                .layer(parts.validate_input) //       a refused input wrote nothing, so it purges nothing
                .layer(option_layer(parts.credentials))
                .layer(InvalidateLayer { hub, manifest }), // outside the handler: whatever it came to, the tags go
            run(
                parts.session,
                parts.artifacts,
                parts.validate_output,
                parts.handler,
            ),
        ),
    }
}

/// The inner part, the same for all packs. It runs only when the handler must run.
fn run(
    session: Option<SessionLayer>,
    artifacts: ArtifactsLayer,
    validate_output: ValidateOutputLayer,
    handler: HandlerService,
) -> impl Service<Call, Response = Outcome, Error = Error, Future: Send> + Clone + Send + Sync + 'static
{
    ServiceBuilder::new()
        .layer(option_layer(session)) //              only if the manifest asks for one
        .layer(artifacts) //                          gives the run its id; reports what it wrote
        .layer(validate_output) //                    nothing outside sees an output that breaks the contract
        .service(handler) //                          deadline, panics, secrets
}

fn whole<S>(layers: ServiceBuilder<impl Layer<S, Service: Stack>>, inner: S) -> PackService {
    PackService(Box::new(Whole(layers.service(inner))))
}

fn recalling<S>(
    layers: ServiceBuilder<impl Layer<S, Service: Stack + AnswerNow>>,
    inner: S,
) -> PackService {
    PackService(Box::new(Recalling(layers.service(inner))))
}
