//! `helmdeck drain`: stops a running server in good order, over its REST API.

use std::time::Duration;

use helmdeck_core::{Clock, Code, Secret, SystemClock};
use helmdeck_system::tokens::NewToken;
use serde_json::Value;

use super::health::{Asked, named, send};
use crate::args::DrainArgs;
use crate::exit::{Exit, Failure, Result};
use crate::running;
use crate::wire::Setup;

/// The variable with the token of an administrator.
const TOKEN: &str = "HELMDECK_TOKEN";
/// Lifetime of a token that is made for this one request.
const TOKEN_LIVES: Duration = Duration::from_secs(60);
/// Time limit for the answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Asks the server to drain, and prints how long it still answers.
///
/// # Errors
/// A usage failure for a URL that is not `http`; exit 1 if the server does not answer or refuses; a
/// configuration failure if callers need a token and there is none.
pub(crate) async fn run(setup: &Setup, arguments: &DrainArgs) -> Result<()> {
    let (address, host) = match &arguments.url {
        Some(url) => named(url)?,
        None => {
            let address = running::address(&setup.settings);
            (address, address.to_string())
        }
    };
    let token = token(setup).await?;
    let asked = Asked {
        method: "POST",
        path: "/api/v1/drain",
        token: token.as_ref().map(Secret::expose),
    };
    let (status, body) = send(address, &host, &asked, TIMEOUT).map_err(|error| {
        Failure::new(
            Exit::Failed,
            format!("http://{host} does not answer: {error}"),
        )
        .with_hint("name the server with --url")
    })?;
    let value: Value = serde_json::from_str(&body).unwrap_or_default();
    if status != 202 {
        let why = value["detail"]
            .as_str()
            .map_or_else(|| format!("status {status}"), str::to_owned);
        let failure = Failure::new(Exit::Failed, format!("http://{host} does not drain: {why}"));
        let refused = value["code"] == Code::Unauthenticated.as_str()
            || value["code"] == Code::Forbidden.as_str();
        return Err(if refused {
            failure.with_hint(format!("put the token of an administrator in {TOKEN}"))
        } else {
            failure
        });
    }
    let still = Duration::from_millis(value["drain_for_ms"].as_u64().unwrap_or_default());
    setup.output.either(&value, || {
        format!(
            "draining: not ready any more, answers for {} s, then finishes what runs and ends",
            still.as_secs()
        )
    })
}

/// Returns the token of the request: that of the environment, or a new one from the system
/// database; `None` if callers need none.
async fn token(setup: &Setup) -> Result<Option<Secret>> {
    if let Some(token) = setup.env.text(TOKEN)? {
        return Ok(Some(Secret::new(token.trim().to_owned())));
    }
    if !setup.authenticates()? {
        return Ok(None);
    }
    if !setup.settings.auth.api_tokens {
        return Err(
            Failure::config(format!("callers need a token, and {TOKEN} is not set"))
                .with_hint("set it to the token of an administrator"),
        );
    }
    let now = SystemClock::default().now();
    let token = NewToken {
        name: "drain".to_owned(),
        tenant: "local".to_owned(),
        subject: "local".to_owned(),
        scope: "admin".to_owned(),
        created_at: now,
        expires_at: Some(now.saturating_add(TOKEN_LIVES)),
        ancestors: Vec::new(),
    };
    let (_, token) = setup.system()?.create_token(token).await?;
    Ok(Some(token))
}
