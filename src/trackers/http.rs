//! Requests to a tracker: bounded answers, rate limits, retries with jitter. The key goes to its
//! host only.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use helmdeck_core::jitter::jittered;
use helmdeck_core::{Clock, Secret, Timestamp};
use helmdeck_egress::{Egress, never_connected, refusal};
use helmdeck_forge::Time;
use parking_lot::Mutex;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Method, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;
use url::Url;

use crate::error::{Error, Kind, Result};

/// Limit of an answer, in bytes.
const MAX_BODY_BYTES: usize = 16 << 20;
/// Maximum number of retries of a request.
const MAX_RETRIES: u32 = 4;
/// The longest wait that a tracker is believed.
const MAX_WAIT: Duration = Duration::from_secs(300);
/// Requests are no longer sent when fewer than this are left until the limit is reset.
const RESERVE: u64 = 100;
/// Silence of the tracker after which a request fails.
const SILENCE: Duration = Duration::from_secs(30);

/// Endpoint and key of a tracker.
#[derive(Clone)]
pub struct Connection {
    /// Checks and opens connections.
    pub egress: Egress,
    /// The endpoint. It must be https, or on this machine.
    pub endpoint: Url,
    /// The key.
    pub key: Secret,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The time for a request with its retries. Default: 20 s.
    pub patience: Duration,
    /// The wait before the first retry, doubled for each further one. Default: 500 ms.
    pub retry_wait: Duration,
}

impl Connection {
    /// Makes a connection with default times.
    #[must_use]
    pub fn new(egress: Egress, endpoint: Url, key: Secret, clock: Arc<dyn Clock>) -> Self {
        let (patience, retry_wait) = (Duration::from_secs(20), Duration::from_millis(500));
        Self {
            egress,
            endpoint,
            key,
            clock,
            patience,
            retry_wait,
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("endpoint", &self.endpoint.as_str())
            .finish_non_exhaustive()
    }
}

/// A rate limit, as the tracker last reported it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Limit {
    /// What it counts: `requests`, `complexity`.
    pub name: String,
    /// The total.
    pub limit: u64,
    /// How much of it is left.
    pub remaining: u64,
    /// Seconds until it is reset.
    pub reset_s: u64,
}

#[derive(Debug, Clone)]
struct KnownLimit {
    name: &'static str,
    limit: u64,
    remaining: u64,
    reset: Timestamp,
}

/// Names of the headers of a rate limit: its name, total, rest, and time of the reset in the unit
/// given.
pub(crate) struct LimitHeaders {
    pub(crate) name: &'static str,
    pub(crate) limit: &'static str,
    pub(crate) remaining: &'static str,
    pub(crate) reset: &'static str,
    /// Microseconds in a unit of the reset time.
    pub(crate) unit: i64,
}

/// Whether a request may be sent again after its answer got lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It only reads.
    Safe,
    /// It changes something: the caller looks whether it was carried out.
    Once,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.header(name)?.trim().parse().ok()
    }

    /// Returns the wait of `Retry-After`, at most 300 s.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let wait = helmdeck_core::upstream::retry_after(|name| self.header(name))?;
        Some(wait.clamp(Duration::from_secs(1), MAX_WAIT))
    }
}

/// What is sent.
pub(crate) struct Sent<'a> {
    pub(crate) method: Method,
    pub(crate) url: &'a Url,
    pub(crate) body: Option<&'a [u8]>,
    pub(crate) repeat: Repeat,
}

/// The HTTP client of a tracker.
pub(crate) struct Http {
    name: &'static str,
    connection: Connection,
    egress: Egress,
    authorization: HeaderValue,
    headers: &'static [(&'static str, &'static str)],
    limits: &'static [LimitHeaders],
    known: Mutex<Vec<KnownLimit>>,
    /// The tracker's clock, as it last said.
    date: Mutex<Option<Time>>,
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http")
            .field("connection", &self.connection)
            .finish_non_exhaustive()
    }
}

impl Http {
    /// Makes a client. `scheme` says how the key is written into the header.
    ///
    /// # Errors
    /// `Settings` for an endpoint over plain HTTP on another machine; `Auth` for a key that fits no
    /// header.
    pub(crate) fn new(
        name: &'static str,
        connection: Connection,
        authorization: impl FnOnce(&str) -> String,
        headers: &'static [(&'static str, &'static str)],
        limits: &'static [LimitHeaders],
    ) -> Result<Self> {
        let endpoint = &connection.endpoint;
        let host = endpoint.host_str().unwrap_or_default();
        let is_local = match endpoint.host() {
            Some(url::Host::Domain(name)) => name == "localhost",
            Some(url::Host::Ipv4(address)) => address.is_loopback(),
            Some(url::Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        };
        if endpoint.scheme() != "https" && !(endpoint.scheme() == "http" && is_local) {
            let message = format!(
                "the endpoint of {name} must be https: a key is not sent to {host} in the clear"
            );
            return Err(Error::new(Kind::Settings, message));
        }
        let unfit = || {
            Error::new(
                Kind::Auth,
                format!("the key of {name} is empty, or has characters that no key has"),
            )
        };
        let key = connection.key.expose_for(host).map_err(|_| {
            Error::new(
                Kind::Auth,
                format!("the credential of {name} is not for {host}"),
            )
        })?;
        if key.trim().is_empty() {
            return Err(unfit());
        }
        let mut authorization =
            HeaderValue::try_from(authorization(key.trim())).map_err(|_| unfit())?;
        authorization.set_sensitive(true);
        let egress = connection.egress.reaching_only(endpoint, SILENCE);
        Ok(Self {
            name,
            connection,
            egress,
            authorization,
            headers,
            limits,
            known: Mutex::default(),
            date: Mutex::default(),
        })
    }

    pub(crate) const fn endpoint(&self) -> &Url {
        &self.connection.endpoint
    }

    /// Sends a request until it succeeds, fails for good, or the time is up.
    ///
    /// `problem` returns the error that an answer means, if it means one.
    pub(crate) async fn send(
        &self,
        sent: &Sent<'_>,
        problem: impl Fn(&Received) -> Option<Error>,
    ) -> Result<Received> {
        let began = Instant::now();
        let mut retries = 0;
        loop {
            self.check_limits()?;
            let error = match self.once(sent).await {
                Ok(received) => {
                    self.note_limits(&received);
                    match problem(&received) {
                        None => return Ok(received),
                        Some(mut error) => {
                            if error.kind == Kind::RateLimited && error.retry_after.is_none() {
                                error.retry_after = received.retry_after().or_else(|| self.reset());
                            }
                            error
                        }
                    }
                }
                Err(error) => error,
            };
            let error = self.redacted(error);
            let again = match error.kind {
                Kind::RateLimited | Kind::Unreachable => true,
                Kind::Server | Kind::Lost => sent.repeat == Repeat::Safe,
                _ => false,
            };
            let step = self.connection.retry_wait * 2_u32.pow(retries);
            let wait = error
                .retry_after
                .unwrap_or_default()
                .max(jittered(step, 0.5..=1.0));
            if !again || retries == MAX_RETRIES || began.elapsed() + wait > self.connection.patience
            {
                return Err(error);
            }
            tracing::debug!(tracker = self.name, error = %error, "asks again");
            tokio::time::sleep(wait).await;
            retries += 1;
        }
    }

    async fn once(&self, sent: &Sent<'_>) -> Result<Received> {
        let refused = |error: helmdeck_egress::Error| Error::new(Kind::Settings, error.to_string());
        self.egress.check_url(sent.url).map_err(refused)?;
        let client = self.egress.single_step_client().await.map_err(refused)?;
        let mut request = client
            .request(sent.method.clone(), sent.url.clone())
            .header(AUTHORIZATION, self.authorization.clone())
            .header(ACCEPT, "application/json");
        for (name, value) in self.headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = sent.body {
            request = request
                .header(CONTENT_TYPE, "application/json")
                .body(body.to_vec());
        }
        let mut response = helmdeck_egress::send(request)
            .await
            .map_err(|error| self.trouble(&error))?;
        let (status, headers) = (response.status(), response.headers().clone());
        let mut body = Vec::new();
        while let Some(part) = response
            .chunk()
            .await
            .map_err(|error| self.trouble(&error))?
        {
            if body.len() + part.len() > MAX_BODY_BYTES {
                let message = format!(
                    "the answer of {} is over {} MiB",
                    self.name,
                    MAX_BODY_BYTES >> 20
                );
                return Err(Error::new(Kind::TooLarge, message));
            }
            body.extend_from_slice(&part);
        }
        Ok(Received {
            status,
            headers,
            body,
        })
    }

    fn trouble(&self, error: &reqwest::Error) -> Error {
        if let Some(refused) = refusal(error) {
            return Error::new(Kind::Settings, refused.to_string());
        }
        if never_connected(error) {
            return Error::new(
                Kind::Unreachable,
                format!("{} cannot be reached", self.name),
            );
        }
        Error::new(
            Kind::Lost,
            format!(
                "the connection to {} broke; the request may have been carried out",
                self.name
            ),
        )
    }

    /// A tracker may repeat parts of a request in its messages; the key must not come back that
    /// way.
    fn redacted(&self, mut error: Error) -> Error {
        let key = self.connection.key.expose().trim();
        if key.len() >= 8 && error.message.contains(key) {
            error.message = error.message.replace(key, "[redacted]");
        }
        error
    }

    fn note_limits(&self, received: &Received) {
        if let Some(date) = received
            .header("date")
            .and_then(|date| jiff::fmt::rfc2822::parse(date).ok())
        {
            *self.date.lock() = Some(Time(date.timestamp()));
        }
        let mut known = self.known.lock();
        for headers in self.limits {
            let (Some(limit), Some(remaining)) = (
                received.number(headers.limit),
                received.number(headers.remaining),
            ) else {
                continue;
            };
            let reset = received
                .number(headers.reset)
                .and_then(|reset| i64::try_from(reset).ok())
                .unwrap_or(0);
            let reset = Timestamp(reset.saturating_mul(headers.unit));
            known.retain(|one| one.name != headers.name);
            known.push(KnownLimit {
                name: headers.name,
                limit,
                remaining,
                reset,
            });
        }
    }

    fn check_limits(&self) -> Result<()> {
        let now = self.connection.clock.now();
        for one in &*self.known.lock() {
            if one.remaining < RESERVE.min(one.limit / 10) && one.reset > now {
                let message = format!(
                    "only {} of {} {} are left at {}",
                    one.remaining, one.limit, one.name, self.name
                );
                return Err(Error::new(Kind::RateLimited, message)
                    .after(Some(one.reset.since(now).min(MAX_WAIT))));
            }
        }
        Ok(())
    }

    /// Returns the time until the first used-up limit is reset.
    fn reset(&self) -> Option<Duration> {
        let now = self.connection.clock.now();
        let known = self.known.lock();
        let used_up = known
            .iter()
            .filter(|one| one.remaining == 0 && one.reset > now);
        used_up.map(|one| one.reset.since(now).min(MAX_WAIT)).max()
    }

    /// Returns the tracker's time, as it last said.
    pub(crate) fn now(&self) -> Option<Time> {
        *self.date.lock()
    }

    /// Returns the limits as last reported.
    pub(crate) fn limits(&self) -> Vec<Limit> {
        let now = self.connection.clock.now();
        let shown = |one: &KnownLimit| Limit {
            name: one.name.to_owned(),
            limit: one.limit,
            remaining: one.remaining,
            reset_s: one.reset.since(now).as_secs(),
        };
        self.known.lock().iter().map(shown).collect()
    }
}
