//! Opens a bucket of an S3-compatible store.
//!
//! Every request goes through egress, and only to the server of the address.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use helmdeck_core::{Clock, Secret, SystemClock};
use helmdeck_egress::Egress;
use object_store::aws::AmazonS3Builder;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use object_store::prefix::PrefixStore;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};

use crate::location::{S3Credentials, S3Location};
use crate::place::{ArtifactBackend, Opened};
use crate::skew::Skew;

/// Timeout of one request: long enough for one part of an upload over a slow line.
const SILENCE: Duration = Duration::from_secs(60);
/// Retries of an idempotent request.
const RETRIES: usize = 3;
/// No retry begins later than this after the first attempt.
const PATIENCE: Duration = Duration::from_secs(30);

/// Opens a bucket. Sends no request yet.
pub fn open(
    location: &S3Location,
    credentials: &S3Credentials,
    egress: &Egress,
) -> ArtifactBackend {
    let hidden = [
        Some(Secret::new(credentials.key_id.clone())),
        Some(credentials.secret.clone()),
    ]
    .into_iter()
    .chain([credentials.token.clone()])
    .flatten()
    .collect();
    ArtifactBackend::bucket(
        bucket(location, credentials, egress),
        location.shown(),
        hidden,
    )
}

fn bucket(
    location: &S3Location,
    credentials: &S3Credentials,
    egress: &Egress,
) -> Opened<Arc<dyn ObjectStore>> {
    let endpoint = &location.endpoint;
    let retry = RetryConfig {
        max_retries: RETRIES,
        retry_timeout: PATIENCE,
        backoff: BackoffConfig {
            max_backoff: Duration::from_secs(2),
            ..BackoffConfig::default()
        },
    };
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(&location.bucket)
        .with_region(&location.region)
        .with_endpoint(endpoint.as_str().trim_end_matches('/'))
        .with_allow_http(endpoint.scheme() == "http")
        .with_virtual_hosted_style_request(false)
        .with_access_key_id(&credentials.key_id)
        .with_secret_access_key(credentials.secret.expose())
        .with_retry(retry)
        .with_http_connector(Connector(Guarded {
            egress: egress.reaching_only(endpoint, SILENCE),
            skew: Arc::new(Skew::new(credentials.secret.clone())),
            clock: Arc::new(SystemClock::default()),
        }));
    if let Some(token) = &credentials.token {
        builder = builder.with_token(token.expose());
    }
    let store = builder.build()?;
    if location.prefix.is_empty() {
        return Ok(Arc::new(store));
    }
    Ok(Arc::new(PrefixStore::new(store, location.prefix.as_str())))
}

/// Passes the client of egress to `object_store`, so that it creates none itself.
#[derive(Debug)]
struct Connector(Guarded);

impl HttpConnector for Connector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.0.clone()))
    }
}

/// Client of egress, made by the first request.
#[derive(Clone)]
struct Guarded {
    egress: Egress,
    skew: Arc<Skew>,
    clock: Arc<dyn Clock>,
}

helmdeck_core::redacted_debug!(Guarded);

#[async_trait]
impl HttpService for Guarded {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        // A redirect would carry the signature to another host.
        let client = self.egress.single_step_client().await;
        let client = client.map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
        let signed = self.skew.correct(&mut request, self.clock.now());
        let mut again = request.clone();
        let response = HttpService::call(&client, request).await?;
        if !self.skew.note(
            signed,
            response.status(),
            response.headers(),
            self.clock.now(),
        ) {
            return Ok(response);
        }
        self.skew.sign(&mut again, self.clock.now());
        HttpService::call(&client, again).await
    }
}
