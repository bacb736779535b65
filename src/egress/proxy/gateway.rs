//! Serves connections: checks password, target and rules, then opens a tunnel or forwards the
//! request.

use parking_lot::Mutex;
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use http::header::{self, HeaderMap, HeaderName};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use reqwest::Body;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use url::{Host, Url};

use super::dial::Dial;
use super::{ProxyConfig, Target, Trouble, authorization, settled, target_of, tunnel};
use crate::Egress;
use crate::error::{Refused, never_connected, refusal};

/// Hop-by-hop headers (RFC 9110, section 7.6.1), and those between a program and this proxy.
const OF_THE_HOP: &[&str] = &[
    "connection",
    "expect",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The smallest buffer that hyper takes for a request's head.
const LEAST_HEADER_BYTES: usize = 8 << 10;

/// A proxy without a socket: it serves the connections that it is handed. Cheap to clone.
#[derive(Clone)]
pub struct Gateway(Arc<Inner>);

struct Inner {
    target: Target,
    config: ProxyConfig,
    /// The whole value of the header that a request has to have.
    credential: Option<String>,
    dial: Dial,
    /// For requests that are passed on; its client is made on first use.
    egress: Egress,
    room: Arc<Semaphore>,
    trouble: Mutex<Option<Trouble>>,
    end: CancellationToken,
}

impl Gateway {
    pub(super) fn new(
        egress: &Egress,
        target: Target,
        config: ProxyConfig,
        password: Option<&str>,
        end: CancellationToken,
    ) -> Self {
        let (rules, lookup, timeout) = egress.parts();
        let credential = password.map(authorization);
        Self(Arc::new(Inner {
            target,
            config,
            credential,
            dial: Dial {
                rules,
                lookup,
                timeout,
            },
            egress: egress.patient(config.idle_timeout),
            room: Arc::new(Semaphore::new(config.max_connections)),
            trouble: Mutex::default(),
            end,
        }))
    }

    /// Returns why a target was last not reached, if one was not.
    #[must_use]
    pub fn trouble(&self) -> Option<Trouble> {
        self.0.trouble.lock().clone()
    }

    /// Serves one connection to its end; waits first while there are too many.
    ///
    /// A tunnel goes on after this returns.
    pub async fn serve_connection<S>(&self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        if let Ok(permit) = Arc::clone(&self.0.room).acquire_owned().await {
            self.serve(stream, permit).await;
        }
    }

    pub(super) async fn listen(self, listener: TcpListener) {
        let end = self.0.end.clone();
        let accepting = async {
            // A connection that cannot be accepted is gone; without room the next one waits in the
            // kernel.
            while let Ok(permit) = Arc::clone(&self.0.room).acquire_owned().await {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let gateway = self.clone();
                        tokio::spawn(async move { gateway.serve(stream, permit).await });
                    }
                    Err(_) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
                }
            }
        };
        tokio::select! {
            () = end.cancelled() => {}
            () = accepting => {}
        }
    }

    async fn serve<S>(&self, stream: S, permit: OwnedSemaphorePermit)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let permit = Arc::new(permit);
        let service = service_fn(|request| {
            let (gateway, permit) = (self.clone(), Arc::clone(&permit));
            async move { Ok::<_, std::convert::Infallible>(gateway.answer(request, permit).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.0.config.header_timeout)
            .max_buf_size(self.0.config.max_header_bytes.max(LEAST_HEADER_BYTES))
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        tokio::select! {
            () = self.0.end.cancelled() => {}
            ended = connection => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection to the proxy broke");
                }
            }
        }
    }

    async fn answer(
        self,
        request: Request<Incoming>,
        permit: Arc<OwnedSemaphorePermit>,
    ) -> Response<Body> {
        if !self.knows(request.headers()) {
            let mut response = status(StatusCode::PROXY_AUTHENTICATION_REQUIRED);
            let realm = header::HeaderValue::from_static("Basic realm=\"helmdeck\"");
            response
                .headers_mut()
                .insert(header::PROXY_AUTHENTICATE, realm);
            return response;
        }
        if request.method() == Method::CONNECT {
            self.connect(request, permit).await
        } else {
            self.pass(request).await
        }
    }

    fn knows(&self, headers: &HeaderMap) -> bool {
        let Some(expected) = &self.0.credential else {
            return true;
        };
        let given = headers
            .get(header::PROXY_AUTHORIZATION)
            .map_or(&[][..], |value| value.as_bytes());
        verify_slices_are_equal(given, expected.as_bytes()).is_ok()
    }

    /// Opens a tunnel.
    async fn connect(
        self,
        request: Request<Incoming>,
        permit: Arc<OwnedSemaphorePermit>,
    ) -> Response<Body> {
        let bare = request
            .uri()
            .authority()
            .filter(|_| request.uri().scheme().is_none());
        let Some((host, port)) = bare.and_then(|authority| target_of(authority.as_str())) else {
            return status(StatusCode::BAD_REQUEST);
        };
        let far = match self.open(&host, port).await {
            Ok(far) => far,
            Err(trouble) => return self.refuse(trouble),
        };
        let gateway = self.0;
        tokio::spawn(async move {
            let _permit = permit;
            let tunnel = async {
                if let Ok(near) = hyper::upgrade::on(request).await {
                    tunnel::run(TokioIo::new(near), far, gateway.config.idle_timeout).await;
                }
            };
            tokio::select! {
                () = gateway.end.cancelled() => {}
                () = tunnel => {}
            }
        });
        status(StatusCode::OK)
    }

    async fn open(&self, host: &Host<String>, port: u16) -> Result<tokio::net::TcpStream, Trouble> {
        self.admit(host, port)?;
        self.0.dial.connect(host, port).await
    }

    fn admit(&self, host: &Host<String>, port: u16) -> Result<(), Trouble> {
        if self.0.target.admits(host, port) {
            return Ok(());
        }
        Err(Trouble::Refused(Refused::new(
            &host.to_string(),
            "it is not what this connection is for",
        )))
    }

    /// Passes a request on, through a client that follows no redirect.
    async fn pass(self, request: Request<Incoming>) -> Response<Body> {
        let Ok(url) = Url::parse(&request.uri().to_string()) else {
            return status(StatusCode::BAD_REQUEST);
        };
        let (Some(host), Some(port), "http") =
            (url.host(), url.port_or_known_default(), url.scheme())
        else {
            return status(StatusCode::BAD_REQUEST);
        };
        if !url.username().is_empty() || url.password().is_some() {
            return status(StatusCode::BAD_REQUEST);
        }
        if let Err(trouble) = self.admit(&settled(host.to_owned()), port) {
            return self.refuse(trouble);
        }
        if let Err(crate::Error::Refused(refused)) = self.0.egress.check_url(&url) {
            return self.refuse(Trouble::Refused(refused));
        }
        let Ok(client) = self.0.egress.single_step_client().await else {
            return status(StatusCode::BAD_GATEWAY);
        };
        let (parts, body) = request.into_parts();
        let mut sent = client
            .request(parts.method, url)
            .headers(between_ends(parts.headers));
        if !hyper::body::Body::is_end_stream(&body) {
            sent = sent.body(Body::wrap(body));
        }
        match sent.send().await {
            Ok(response) => {
                let (mut parts, body) = Response::<Body>::from(response).into_parts();
                parts.headers = between_ends(parts.headers);
                Response::from_parts(parts, body)
            }
            Err(error) => match refusal(&error) {
                Some(refused) => self.refuse(Trouble::Refused(refused.clone())),
                None if never_connected(&error) => self.refuse(Trouble::Unreachable),
                None => status(StatusCode::BAD_GATEWAY),
            },
        }
    }

    fn refuse(&self, trouble: Trouble) -> Response<Body> {
        let code = match &trouble {
            Trouble::Refused(_) => StatusCode::FORBIDDEN,
            Trouble::Unresolved | Trouble::Unreachable => StatusCode::BAD_GATEWAY,
        };
        *self.0.trouble.lock() = Some(trouble);
        status(code)
    }
}

helmdeck_core::redacted_debug!(Gateway, this => target = this.0.target);

fn status(code: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::from(""));
    *response.status_mut() = code;
    response
}

/// Removes the hop-by-hop headers.
fn between_ends(mut headers: HeaderMap) -> HeaderMap {
    // A peer may name more hop-by-hop headers (RFC 9110, section 7.6.1).
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in OF_THE_HOP {
        headers.remove(*name);
    }
    headers
}
