//! Linear's webhook: the server's receiver, and the thread that reads changed issues.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use helmdeck_core::{Clock as _, SystemClock};
use helmdeck_forge::{Category, Error, Project};
use helmdeck_server::{WebhookAnswer, WebhookReceiver};
use helmdeck_trackers::sync::{Pull, Sync, remember_deliveries, status};
use helmdeck_trackers::webhook::{DELIVERY, Rejected, SIGNATURE, Webhook};
use http::HeaderMap;

use crate::env::ProcessEnvironment;
use crate::exit::Failure;
use crate::output::Output;
use crate::runtime::block_on;
use crate::trackers::open;
use crate::wire::Setup;

/// The variable with the secret of Linear's webhook.
const WEBHOOK_SECRET: &str = "LINEAR_WEBHOOK_SECRET";
/// How long further deliveries are waited for before issues are read.
const GATHER: Duration = Duration::from_millis(200);

/// Receiver of Linear's webhook: hands the ids of issues to a thread that reads them again.
#[derive(Debug)]
struct Hints {
    webhook: Arc<Webhook>,
    changed: Sender<String>,
}

impl WebhookReceiver for Hints {
    fn receive(&self, headers: &HeaderMap, body: &[u8]) -> WebhookAnswer {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let now = SystemClock::default().now();
        match self
            .webhook
            .receive(body, header(SIGNATURE), header(DELIVERY), now)
        {
            Ok(hint) => {
                if let Some(issue) = hint.issue {
                    // The thread lives as long as the process.
                    let _ = self.changed.send(issue);
                }
                WebhookAnswer::Accepted
            }
            Err(Rejected::Repeated) => WebhookAnswer::Accepted,
            Err(Rejected::Signature | Rejected::Time) => WebhookAnswer::Unauthorised,
            Err(Rejected::Malformed | Rejected::TooLarge) => WebhookAnswer::Malformed,
        }
    }
}

/// Returns the receiver of Linear's webhook, if its secret is set and the server has a project.
///
/// # Errors
/// A configuration failure for a variable that is not text, or a secret without a project.
pub(crate) fn receiver(setup: &Setup) -> Result<Option<Arc<dyn WebhookReceiver>>, Failure> {
    let Some(secret) = setup
        .env
        .text(WEBHOOK_SECRET)?
        .map(str::trim)
        .filter(|text| !text.is_empty())
    else {
        return Ok(None);
    };
    let root = setup
        .settings
        .forge
        .packs(true, setup.env.working_dir())
        .root;
    let root = root.ok_or_else(|| {
        Failure::config(format!(
            "{WEBHOOK_SECRET} is set, and there is no project: start the server in one, or set [forge] root"
        ))
    })?;
    let environment = crate::project::environment(&setup.env, setup.config.as_deref(), None, None)?;
    let project = Project::open(&root, environment)?.ok_or_else(|| {
        Failure::config(format!(
            "{WEBHOOK_SECRET} is set, and {} has no .forge/",
            root.display()
        ))
    })?;
    let seen = status(&project)?.deliveries;
    let webhook = Arc::new(Webhook::new(secret, seen));
    let (changed, received) = channel();
    let worker = Worker {
        project,
        webhook: Arc::clone(&webhook),
        env: setup.env.clone(),
        output: setup.output,
    };
    std::thread::Builder::new()
        .name("issues".to_owned())
        .spawn(move || worker.run(&received))?;
    Ok(Some(Arc::new(Hints { webhook, changed })))
}

/// Reads changed issues, a few at a time.
struct Worker {
    project: Project,
    webhook: Arc<Webhook>,
    env: ProcessEnvironment,
    output: Output,
}

impl Worker {
    fn run(&self, received: &Receiver<String>) {
        while let Ok(first) = received.recv() {
            let mut ids = vec![first];
            while let Ok(next) = received.recv_timeout(GATHER) {
                if !ids.contains(&next) {
                    ids.push(next);
                }
            }
            if let Err(error) = self.pull(ids) {
                tracing::warn!(
                    error = error.message,
                    "issues named by the webhook were not read; the next pull reads them"
                );
            }
        }
    }

    fn pull(&self, ids: Vec<String>) -> helmdeck_forge::Result<()> {
        let tracker = open(&self.project, None, &self.env, self.output)?;
        let pull = Pull {
            only: Some(ids),
            ..Pull::default()
        };
        let pulled = block_on(async { Ok(Sync::new(&self.project, &*tracker).pull(&pull).await) });
        let failed = |failure: Failure| {
            Error::new(Category::Failed, "E_FAILED", failure.message().to_owned())
        };
        let pulled = pulled.map_err(failed)??;
        tracing::info!(
            read = pulled.read,
            changed = pulled.changed.len(),
            "issues named by the webhook were read"
        );
        remember_deliveries(&self.project, self.webhook.seen())
    }
}
