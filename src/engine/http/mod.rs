//! Handlers of kind `http`: send the request of a manifest through the egress guard.
//!
//! The request is filled from the input. The manifest's hosts are the pack author's choice, not the
//! operator's, so no request here is exempt from the guard.

mod answer;
mod exchange;

use std::sync::Arc;

use async_trait::async_trait;
use helmdeck_core::manifest::http::{HeaderPiece, HttpRequest, HttpSpec};
use helmdeck_core::template::Template;
use helmdeck_core::{Code, Context, Error, Handler, Json, Reply, Result, Secret, Upstream};
use helmdeck_egress::Egress;
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use answer::Validator;
use exchange::Exchange;

/// Handler that sends the request of a pack.
#[derive(Debug)]
pub(crate) struct HttpHandler {
    spec: HttpSpec,
    credentials: Vec<Template>,
    /// Whether an old answer can be revalidated.
    revalidate: bool,
    egress: Egress,
}

impl HttpHandler {
    pub(crate) fn new(
        spec: HttpSpec,
        credentials: Vec<Template>,
        revalidate: bool,
        egress: Egress,
    ) -> Self {
        Self {
            spec,
            credentials,
            revalidate,
            egress,
        }
    }

    /// Returns the headers of the first request.
    ///
    /// A header whose credential does not exist is left out: the request is anonymous.
    fn headers(
        &self,
        request: &HttpRequest,
        context: &Context,
        input: &Json,
    ) -> Result<(HeaderMap, bool)> {
        let (mut headers, mut with_credential) = (HeaderMap::new(), false);
        for (name, pieces) in &request.headers {
            let (mut value, mut secret, mut complete) = (String::new(), false, true);
            for piece in pieces {
                match piece {
                    HeaderPiece::Text(text) => value.push_str(text),
                    HeaderPiece::Credential(index) => {
                        match self.credential(*index, context, input)? {
                            Some(found) => {
                                value.push_str(sendable(&found, self.spec.url.host())?);
                                secret = true;
                            }
                            None => complete = false,
                        }
                    }
                }
            }
            if !complete {
                continue;
            }
            let wrong = |_| {
                Error::new(
                    Code::Internal,
                    format!("the header \"{name}\" cannot be written"),
                )
            };
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong(()))?;
            let mut value = HeaderValue::from_str(&value).map_err(|_| wrong(()))?;
            value.set_sensitive(secret);
            with_credential |= secret;
            headers.insert(name, value);
        }
        Ok((headers, with_credential))
    }

    /// Returns the secret of a declared credential; `None` if it does not exist and no input named
    /// it.
    fn credential(&self, index: usize, context: &Context, input: &Json) -> Result<Option<Secret>> {
        let name = self
            .credentials
            .get(index)
            .and_then(|template| template.fill(&input.to_value()));
        match (name, &context.secrets) {
            (Some(name), Some(secrets))
                if secrets.grants().iter().any(|grant| grant.name == name.text) =>
            {
                secrets.get(&name.text)
            }
            _ => Ok(None),
        }
    }
}

/// Adds what the headers of an answer tell.
fn told(reply: Reply, headers: &HeaderMap, requests: u32) -> Reply {
    reply
        .with_upstream_calls(requests)
        .with_quota(answer::quota(headers))
        .with_caching(answer::caching(headers))
}

/// Returns the header value of a credential.
///
/// # Errors
/// `forbidden` if it is not for this host; `credential_invalid` if no header can hold it.
fn sendable<'a>(secret: &'a Secret, host: &str) -> Result<&'a str> {
    // A file or a prompt leaves a line break at the end.
    let text = secret.expose_for(host.trim_matches(['[', ']']))?.trim();
    if text.is_empty()
        || !text
            .bytes()
            .all(|byte| byte == b' ' || byte.is_ascii_graphic())
    {
        let message = "the credential is empty or has characters that no header can hold";
        return Err(Error::new(Code::CredentialInvalid, message));
    }
    Ok(text)
}

#[async_trait]
impl Handler for HttpHandler {
    fn upstream(&self) -> Option<Upstream> {
        Some(Upstream {
            name: self.spec.url.host().to_owned(),
            keep_quota: self.spec.keep_quota,
        })
    }

    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        let request = self.spec.request(input.as_str())?;
        let (headers, with_credential) = self.headers(&request, &context, &input)?;
        let stale = context.stale.as_ref().filter(|_| self.revalidate);
        let validator = stale.and_then(|stale| Validator::read(&stale.validator));
        let mut exchange = Exchange {
            spec: &self.spec,
            egress: &self.egress,
            deadline: context.deadline,
            with_credential,
            requests: 0,
        };
        let response = exchange.send(request, headers, validator.as_ref()).await?;
        let (requests, with_credential) = (exchange.requests, exchange.with_credential);
        if let (Some(stale), StatusCode::NOT_MODIFIED, true) =
            (stale, response.status(), validator.is_some())
        {
            let validator = Validator::of(response.headers())
                .map_or(Arc::clone(&stale.validator), |new| new.text());
            return Ok(told(
                Reply::not_modified().with_validator(validator),
                response.headers(),
                requests,
            ));
        }
        if !self.spec.accepts(response.status().as_u16()) {
            let revealed = context
                .secrets
                .as_ref()
                .map(|secrets| secrets.revealed())
                .unwrap_or_default();
            return Err(answer::refusal(response, with_credential, &revealed).await);
        }
        let validator = Validator::of(response.headers()).filter(|_| self.revalidate);
        let headers = response.headers().clone();
        let reply = told(
            Reply::json(answer::read(response, &headers, &self.spec).await?),
            &headers,
            requests,
        );
        Ok(match validator {
            Some(validator) => reply.with_validator(validator.text()),
            None => reply,
        })
    }
}
