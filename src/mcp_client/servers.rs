//! The configured MCP servers of an engine: their states, and the packs made of their tools.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::join_all;
use helmdeck_core::manifest::{HandlerSpec, ManifestError};
use helmdeck_core::suggest::did_you_mean;
use helmdeck_core::{Error, Handler, Manifest, PackName, Result};
use serde::Serialize;
use tokio::time::Instant;

use crate::config::{McpReach, McpServer};
use crate::handler::McpHandler;
use crate::listing::{self, Listing};
use crate::metrics::McpMetrics;
use crate::server::{Changed, Discovery, Server, Surroundings};

/// Longest wait for a server's first list of tools.
pub const FIRST_ANSWER: Duration = Duration::from_secs(10);

/// State of one server, for people.
#[derive(Debug, Clone, Serialize)]
pub struct McpStatus {
    /// Its name.
    pub name: String,
    /// `command` or `http`.
    pub kind: &'static str,
    /// `up`, `down` (not needed, so far), `starting` or `failed`.
    pub state: &'static str,
    /// Name and version that it reports; empty if it never answered.
    pub server: String,
    /// Its protocol revision; empty if it never answered.
    pub protocol: String,
    /// Number of listed tools; `None` if it never answered.
    pub listed: Option<usize>,
    /// Whether this is the stored list of an earlier start: the server has not answered in this
    /// process.
    pub remembered: bool,
    /// Names of the imported tools.
    pub tools: Vec<String>,
    /// How often this process started it.
    pub starts: u64,
    /// How often it ended unexpectedly in this process.
    pub crashes: u64,
    /// Why it is not up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// An imported tool: manifest, handler, and digest of its contract.
pub type Imported = (Manifest, Arc<dyn Handler>, Vec<u8>);

/// Result of the match of a manifest with the tool that it names.
pub enum Fitted {
    /// The manifest with what it inherits, the handler, and the digest of the tool.
    Ready(Box<Manifest>, Arc<dyn Handler>, Vec<u8>),
    /// The server was not queried yet, or its stored list does not match.
    Pending(PackName),
    /// The server does not answer. A call queries it again.
    Failed(PackName, ManifestError),
    /// The manifest does not match the tool.
    Refused(ManifestError),
}

helmdeck_core::redacted_debug!(Fitted);

impl Fitted {
    /// Returns the refusal of a manifest whose server is not configured.
    #[must_use]
    pub fn none(manifest: &Manifest, server: &str) -> Self {
        let message = format!(
            "there is no MCP server \"{server}\"; add it with `helmdeck mcp add {server} -- <command>`"
        );
        Self::Refused(ManifestError {
            file: manifest.file.clone(),
            line: None,
            message,
        })
    }
}

/// All servers of an engine.
pub struct Servers {
    servers: BTreeMap<String, Arc<Server>>,
    around: Surroundings,
    /// Time at which all were queried in the background.
    asked: OnceLock<Instant>,
}

helmdeck_core::redacted_debug!(Servers);

impl Servers {
    /// Creates the servers, and starts none.
    #[must_use]
    pub fn new(configs: Vec<McpServer>, around: Surroundings, metrics: &McpMetrics) -> Self {
        let servers = configs.into_iter().map(|config| {
            let (name, metrics) = (config.name.clone(), metrics.server(&config.name));
            (name, Server::new(config, around.clone(), metrics))
        });
        Self {
            servers: servers.collect(),
            around,
            asked: OnceLock::new(),
        }
    }

    /// Returns all servers, sorted by name.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Server>> {
        self.servers.values()
    }

    /// Returns a server by its name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Server>> {
        self.servers.get(name)
    }

    /// Sets the callback for changed lists of tools.
    pub fn on_change(&self, changed: &Changed) {
        self.all()
            .for_each(|server| server.on_change(Arc::clone(changed)));
    }

    /// Matches a manifest that names a tool with the server's list of tools.
    pub fn fit(&self, manifest: Manifest, server: &str, tool: &str) -> Fitted {
        let refuse = |message: String| {
            Fitted::Refused(ManifestError {
                file: manifest.file.clone(),
                line: None,
                message,
            })
        };
        let Some(found) = self.servers.get(server) else {
            return Fitted::none(&manifest, server);
        };
        let Some(listing) = found.listing() else {
            return match found.failure() {
                Some(error) => {
                    let why = ManifestError {
                        file: manifest.file,
                        line: None,
                        message: error.message().to_owned(),
                    };
                    Fitted::Failed(manifest.name, why)
                }
                None => Fitted::Pending(manifest.name),
            };
        };
        // A manifest that does not match an old list may match the current one.
        let (old, name) = (found.known() < Discovery::Listed, manifest.name.clone());
        let Some(listed) = listing.tools.iter().find(|listed| listed.name == tool) else {
            if old {
                return Fitted::Pending(name);
            }
            let hint = did_you_mean(tool, listing.tools.iter().map(|listed| &*listed.name));
            return refuse(format!(
                "the MCP server \"{server}\" has no tool \"{tool}\"{hint}"
            ));
        };
        match listing::fit(manifest, &found.config, listed) {
            Ok(manifest) => {
                let digest = listed.digest(&found.config, &listing);
                Fitted::Ready(
                    Box::new(manifest),
                    Self::handler(found, tool, &digest),
                    digest,
                )
            }
            Err(_) if old => Fitted::Pending(name),
            Err(error) => Fitted::Refused(error),
        }
    }

    fn handler(server: &Arc<Server>, tool: &str, digest: &[u8]) -> Arc<dyn Handler> {
        Arc::new(McpHandler {
            server: Arc::clone(server),
            tool: tool.to_owned(),
            digest: digest.to_owned(),
        })
    }

    /// Returns all imported tools, each with the name of its pack, if known.
    ///
    /// A tool comes with its handler and digest, or with the reason why it is refused. Servers that
    /// were not queried yet have none; a failed one is refused as a whole.
    pub fn import(&self) -> Vec<(Option<String>, Result<Imported, ManifestError>)> {
        let mut packs = Vec::new();
        for server in self.all() {
            match (server.listing(), server.failure()) {
                (Some(listing), _) => {
                    packs.extend(listing::import(&server.config, &listing).into_iter().map(
                        |(name, pack)| {
                            let (manifest, digest) = match pack {
                                Ok(pack) => pack,
                                Err(error) => return (name, Err(error)),
                            };
                            let tool = match &manifest.handler {
                                HandlerSpec::Mcp { tool, .. } => tool.clone(),
                                _ => String::new(),
                            };
                            let handler = Self::handler(server, &tool, &digest);
                            (name, Ok((manifest, handler, digest)))
                        },
                    ))
                }
                (None, Some(error)) => {
                    let (file, message) =
                        (listing::place(server.name()), error.message().to_owned());
                    packs.push((
                        None,
                        Err(ManifestError {
                            file,
                            line: None,
                            message,
                        }),
                    ));
                }
                (None, None) => {}
            }
        }
        packs
    }

    /// Returns the list of tools of each server, by the server's name.
    pub fn listings(&self) -> impl Iterator<Item = (String, Arc<Listing>)> {
        self.all()
            .filter_map(|server| Some((server.name().to_owned(), server.listing()?)))
    }

    /// Returns the state of each server.
    pub fn status(&self) -> Vec<McpStatus> {
        self.all()
            .map(|server| {
                let (listing, (state, error)) = (server.listing(), server.state());
                let kind = match server.config.reach {
                    McpReach::Command { .. } => "command",
                    McpReach::Http { .. } => "http",
                };
                let tools = listing
                    .iter()
                    .flat_map(|listing| &listing.tools)
                    .map(|tool| tool.name.clone());
                McpStatus {
                    name: server.name().to_owned(),
                    kind,
                    state,
                    server: listing
                        .as_ref()
                        .map(|listing| listing.server.clone())
                        .unwrap_or_default(),
                    protocol: listing
                        .as_ref()
                        .map(|listing| listing.protocol.clone())
                        .unwrap_or_default(),
                    listed: listing.as_ref().map(|listing| listing.tools.len()),
                    remembered: server.known() == Discovery::Remembered,
                    tools: tools.filter(|tool| server.config.takes(tool)).collect(),
                    starts: server.metrics.starts.get(),
                    crashes: server.metrics.crashes.get(),
                    error: error.map(|error| error.message().to_owned()),
                }
            })
            .collect()
    }

    /// Queries a server for its tools, unless it has answered in this process.
    ///
    /// # Errors
    /// Why it does not answer.
    pub async fn ask(server: &Arc<Server>) -> Result<(), Error> {
        match server.known() {
            Discovery::Listed => Ok(()),
            _ => server.connection().await.map(drop),
        }
    }

    /// Queries all servers for their tools in the background, until the engine stops.
    pub fn ask_in_background(&self) {
        let _ = self.asked.set(Instant::now());
        for server in self.all().cloned() {
            let stop = self.around.stop.clone();
            tokio::spawn(async move {
                tokio::select! {
                    () = Self::ask_until_it_answers(server) => {}
                    () = stop.cancelled() => {}
                }
            });
        }
    }

    /// Waits until each server's tools are known or it has failed.
    ///
    /// It waits for a server's `start_timeout`, at most [`FIRST_ANSWER`], from the start of the
    /// background queries.
    pub async fn settled(&self) {
        let Some(asked) = self.asked.get().copied() else {
            return;
        };
        let waiting = self
            .all()
            .filter(|server| server.known() == Discovery::Nothing)
            .map(|server| {
                let until = asked + server.config.start_timeout.min(FIRST_ANSWER);
                async move {
                    let _ = tokio::time::timeout_at(until, server.settled()).await;
                }
            });
        join_all(waiting.collect::<Vec<_>>()).await;
    }

    /// Returns whether the tools of all servers are known.
    pub fn all_known(&self) -> bool {
        self.all()
            .all(|server| server.known() >= Discovery::Remembered)
    }

    /// Queries a server for its tools until it answers.
    pub async fn ask_until_it_answers(server: Arc<Server>) {
        while Self::ask(&server).await.is_err() {
            // Failures without backoff (a missing credential) are retried too.
            tokio::time::sleep(server.left_alone().max(Duration::from_secs(1))).await;
        }
    }

    /// Ends all servers and waits for at most three seconds.
    pub async fn shutdown(&self) {
        self.around.stop.cancel();
        self.around.tasks.close();
        if tokio::time::timeout(Duration::from_secs(3), self.around.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!("an MCP server did not end in time and is killed");
        }
    }
}
