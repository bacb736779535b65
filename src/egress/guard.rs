//! The guard and its client: every request goes to an address that was checked.

use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::duration::text;
use reqwest::{Client, Proxy, redirect};
use serde::Deserialize;
use tokio::sync::OnceCell;
use url::Url;

use crate::allowed::Allowed;
use crate::error::{Error, Refused};
use crate::resolver::{self, Lookup, NOWHERE, Resolver};
use crate::rules::Rules;

/// Maximum number of redirects to follow.
const MAX_REDIRECTS: usize = 5;

/// Settings of the guard: allowed hosts, timeouts and user agent.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Hosts that are allowed although they are not public. Default: none.
    pub allow: Vec<Allowed>,
    /// Timeout for connecting, TLS included. Default 10 s.
    #[serde(with = "text")]
    pub connect_timeout: Duration,
    /// Timeout for silence of the other side in the middle of an answer. Default 30 s.
    #[serde(with = "text")]
    pub read_timeout: Duration,
    /// `User-Agent` of requests that do not set one; `helmdeck/<version>` by default.
    #[serde(skip, default = "user_agent")]
    pub user_agent: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            connect_timeout: Duration::from_secs(10),
            read_timeout: Duration::from_secs(30),
            user_agent: user_agent(),
        }
    }
}

fn user_agent() -> String {
    concat!("helmdeck/", env!("CARGO_PKG_VERSION")).to_owned()
}

/// The guard. Cheap to clone; clones share one client and its connections.
#[derive(Clone)]
pub struct Egress(Arc<Inner>);

struct Inner {
    config: Config,
    rules: Arc<Rules>,
    lookup: Lookup,
    client: OnceCell<Client>,
    single: OnceCell<Client>,
}

impl Egress {
    /// Makes a guard. Opens nothing and reads nothing yet.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self::build(config, None, resolver::system())
    }

    /// Returns a guard that may also reach the host and port of this URL.
    ///
    /// The URL comes from the operator's configuration. The guard has its own client, so that an
    /// exception for one purpose does not apply to a URL from a call's input. A URL without a host
    /// adds nothing.
    #[must_use]
    pub fn naming(&self, url: &Url) -> Self {
        Self::build(
            self.0.config.clone(),
            Rules::target(url),
            Arc::clone(&self.0.lookup),
        )
    }

    /// Returns a guard that reaches the host and port of this URL and nothing else, not even by
    /// redirects.
    ///
    /// It lets the other side be silent for as long as `read_timeout` in the middle of an answer.
    /// It is for a server from the operator's configuration that gets headers which no other host
    /// may see.
    #[must_use]
    pub fn reaching_only(&self, url: &Url, read_timeout: Duration) -> Self {
        let config = Config {
            read_timeout,
            ..self.0.config.clone()
        };
        let rules = Rules {
            allow: config.allow.clone(),
            named: Rules::target(url),
            only_named: true,
        };
        Self::with_rules(config, rules, Arc::clone(&self.0.lookup))
    }

    /// Returns the components of a proxy.
    ///
    /// They are the rules, the name lookup, and the timeout for connecting.
    pub(crate) fn parts(&self) -> (Arc<Rules>, Lookup, Duration) {
        (
            Arc::clone(&self.0.rules),
            Arc::clone(&self.0.lookup),
            self.0.config.connect_timeout,
        )
    }

    /// Returns a guard with the same rules and another read timeout.
    ///
    /// The other side may be silent for as long as `read_timeout`, before an answer and in the
    /// middle of one. It is for servers that think before they answer.
    #[must_use]
    pub fn patient(&self, read_timeout: Duration) -> Self {
        let inner = &self.0;
        let config = Config {
            read_timeout,
            ..inner.config.clone()
        };
        let (rules, lookup) = (Arc::clone(&inner.rules), Arc::clone(&inner.lookup));
        Self(Arc::new(Inner {
            config,
            rules,
            lookup,
            client: OnceCell::new(),
            single: OnceCell::new(),
        }))
    }

    /// Makes a guard that resolves names as a test wants.
    #[cfg(test)]
    pub(crate) fn resolving_with(config: Config, lookup: Lookup) -> Self {
        Self::build(config, None, lookup)
    }

    fn build(config: Config, named: Option<(url::Host<String>, u16)>, lookup: Lookup) -> Self {
        let rules = Rules {
            allow: config.allow.clone(),
            named,
            only_named: false,
        };
        Self::with_rules(config, rules, lookup)
    }

    fn with_rules(config: Config, rules: Rules, lookup: Lookup) -> Self {
        let rules = Arc::new(rules);
        Self(Arc::new(Inner {
            config,
            rules,
            lookup,
            client: OnceCell::new(),
            single: OnceCell::new(),
        }))
    }

    /// Checks all of a URL that can be checked without resolving its name.
    ///
    /// That is the scheme, the port of a named host, and a host that is written as an address. The
    /// client checks the same and the rest by itself; this check refuses before anything is sent.
    ///
    /// # Errors
    /// [`Error::Refused`] or [`Error::NotHttp`].
    pub fn check_url(&self, url: &Url) -> Result<(), Error> {
        self.0.rules.check_url(url)
    }

    /// Checks the server of another protocol, such as `nats://host:4222`, before a client of it
    /// connects.
    ///
    /// That client resolves the name itself. So only a server passes that the operator named
    /// ([`Self::naming`],
    /// [`Self::reaching_only`]), or whose host the operator allows.
    ///
    /// # Errors
    /// [`Error::Refused`] or [`Error::NotServer`].
    pub fn check_server(&self, url: &Url) -> Result<(), Error> {
        self.0.rules.check_server(url)
    }

    /// Returns the client.
    ///
    /// It is made on first use, off the async runtime, because that reads the system's
    /// certificates. Its errors may hold a [`Refused`], found by [`crate::refusal`].
    ///
    /// # Errors
    /// [`Error::Setup`] if the client cannot be made; the next call tries again.
    pub async fn client(&self) -> Result<Client, Error> {
        self.0
            .client
            .get_or_try_init(|| self.make(true))
            .await
            .cloned()
    }

    /// Returns a client that follows no redirect.
    ///
    /// It is for callers that decide at each redirect what may go on to the next host. Every
    /// request of it is checked like those of [`Egress::client`].
    ///
    /// # Errors
    /// As [`Egress::client`].
    pub async fn single_step_client(&self) -> Result<Client, Error> {
        self.0
            .single
            .get_or_try_init(|| self.make(false))
            .await
            .cloned()
    }

    async fn make(&self, redirects: bool) -> Result<Client, Error> {
        let inner = Arc::clone(&self.0);
        tokio::task::spawn_blocking(move || inner.make_client(redirects))
            .await
            .map_err(|_| Error::Ending)?
    }
}

impl Inner {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that makes clients"
    )]
    fn make_client(&self, follow: bool) -> Result<Client, Error> {
        let rules = Arc::clone(&self.rules);
        // A client has no hook that can refuse a URL, and a host written as an address never meets
        // the resolver. So a refused URL is sent to a proxy whose name the resolver never resolves,
        // and no caller can forget the check.
        let gate = Proxy::custom(move |url| {
            rules
                .check_url(url)
                .err()
                .map(|_| format!("http://{NOWHERE}"))
        });
        let rules = Arc::clone(&self.rules);
        let redirects = redirect::Policy::custom(move |attempt| {
            let downgrade = attempt
                .previous()
                .last()
                .is_some_and(|last| last.scheme() == "https")
                && attempt.url().scheme() != "https";
            let host = attempt.url().host_str().unwrap_or_default();
            if attempt.previous().len() > MAX_REDIRECTS {
                let refused = Refused::new(
                    host,
                    format!("it was redirected more than {MAX_REDIRECTS} times"),
                );
                return attempt.error(refused);
            }
            if downgrade {
                let refused = Refused::new(host, "it was redirected from https to http");
                return attempt.error(refused);
            }
            match rules.check_url(attempt.url()) {
                Ok(()) => attempt.follow(),
                Err(error) => attempt.error(error),
            }
        });
        Client::builder()
            .no_proxy()
            .proxy(gate)
            .redirect(if follow {
                redirects
            } else {
                redirect::Policy::none()
            })
            .referer(false)
            .dns_resolver(Arc::new(Resolver {
                rules: Arc::clone(&self.rules),
                lookup: Arc::clone(&self.lookup),
            }))
            .connect_timeout(self.config.connect_timeout)
            .read_timeout(self.config.read_timeout)
            .user_agent(&self.config.user_agent)
            .build()
            .map_err(|error| Error::Setup(Arc::new(error)))
    }
}

helmdeck_core::redacted_debug!(Egress, this => rules = this.0.rules);

#[cfg(test)]
mod tests;
