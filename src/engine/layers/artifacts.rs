//! Gives a run its id and a collector of artifacts, and adds the artifacts to the outcome.

use std::sync::Arc;
use std::task::{Context, Poll};

use helmdeck_core::{Call, Clock, Error, Manifest, Outcome, Result, RunId};
use tower::{Layer, Service};

use super::finish::{After, Finish};
use helmdeck_artifacts::{ArtifactStore, Collector};

/// Location of the artifacts of one pack's runs. Shared, because each call clones the stack.
pub(crate) struct RunArtifacts {
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) store: Option<Arc<ArtifactStore>>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// Collects the artifacts of one pack's runs.
#[derive(Clone)]
pub(crate) struct ArtifactsLayer(pub(crate) Arc<RunArtifacts>);

impl<S> Layer<S> for ArtifactsLayer {
    type Service = Artifacts<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Artifacts {
            inner,
            files: Arc::clone(&self.0),
        }
    }
}

/// The service of [`ArtifactsLayer`].
#[derive(Clone)]
pub(crate) struct Artifacts<S> {
    inner: S,
    files: Arc<RunArtifacts>,
}

impl<S: Service<Call, Response = Outcome, Error = Error>> Service<Call> for Artifacts<S> {
    type Response = Outcome;
    type Error = Error;
    type Future = Finish<S::Future, Collect>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut call: Call) -> Self::Future {
        let run = RunId::next(self.files.clock.now());
        call.stage.run = Some(run);
        let collector = self.files.store.as_ref().map(|store| {
            Arc::new(Collector::new(
                Arc::clone(store),
                &self.files.manifest,
                run,
                &call.identity,
                call.stage.secrets.clone(),
            ))
        });
        call.stage.artifacts = collector.clone().map(|collector| collector as _);
        Finish::new(self.inner.call(call), Collect(collector))
    }
}

pub(crate) struct Collect(Option<Arc<Collector>>);

impl After for Collect {
    fn after(self, result: Result<Outcome>) -> Result<Outcome> {
        let mut outcome = result?;
        if let Some(collector) = self.0 {
            let written = collector.take();
            if !written.is_empty() {
                outcome.artifacts = written.into();
            }
        }
        Ok(outcome)
    }
}
