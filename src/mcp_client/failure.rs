//! Errors of servers, classified by type, never by their text.

use std::process::ExitStatus;

use helmdeck_core::{Code, Error, Secret};
use rmcp::model::ErrorCode;
use rmcp::service::{ClientInitializeError, ServiceError};
use rmcp::transport::streamable_http_client::StreamableHttpError;

use super::client::redacted;
use super::connection::{Connection, ConnectionEnd};
use super::process::how;
use super::sieve::{NOT_READABLE, WHY};

/// Text that rmcp writes before the first part of a body.
///
/// It is dropped with all that follows, because a cut body can contain half a secret, which
/// redaction would not find.
const BEFORE_A_CUT_BODY: &str = "could not parse JSON response as ServerJsonRpcMessage";

type Cause = dyn std::error::Error + 'static;

fn chain(error: &Cause) -> impl Iterator<Item = &Cause> {
    std::iter::successors(Some(error), |error| error.source())
}

/// Returns the text of an error with its sources: redacted, and cut to a limit.
pub(crate) fn cause(error: &Cause, secrets: &[Secret]) -> String {
    let mut text = chain(error)
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ");
    if let Some(at) = text.find(BEFORE_A_CUT_BODY) {
        text.truncate(at + BEFORE_A_CUT_BODY.len());
    }
    redacted(&text, secrets)
}

/// Classifies an error of the transport: refused by egress, missing login, HTTP status.
fn of_transport(name: &str, error: &Cause) -> Option<Error> {
    if let Some(refused) = helmdeck_egress::refusal(error) {
        return Some(refused.clone().into());
    }
    let http = chain(error)
        .find_map(|error| error.downcast_ref::<StreamableHttpError<reqwest::Error>>())?;
    let (code, what) = match http {
        StreamableHttpError::AuthRequired(_) | StreamableHttpError::InsufficientScope(_) => (
            Code::CredentialInvalid,
            "refuses the credentials it is given".to_owned(),
        ),
        StreamableHttpError::HttpStatus(status) => match status.status {
            401 | 403 => (
                Code::CredentialInvalid,
                "refuses the credentials it is given".to_owned(),
            ),
            429 => (Code::RateLimited, "asks for fewer requests".to_owned()),
            status => (
                Code::HandlerFailed,
                format!("answered with HTTP status {status}"),
            ),
        },
        StreamableHttpError::ResponseBodyTooLarge { max_size } => (
            Code::InvalidOutput,
            format!("sent more than {max_size} bytes"),
        ),
        StreamableHttpError::SessionExpired => {
            (Code::HandlerFailed, "forgot its session".to_owned())
        }
        StreamableHttpError::Client(error) if error.is_timeout() => {
            (Code::HandlerFailed, "did not answer in time".to_owned())
        }
        StreamableHttpError::Client(error) if error.is_connect() => {
            (Code::HandlerFailed, "cannot be reached".to_owned())
        }
        _ => (
            Code::HandlerFailed,
            "answered with something that is not MCP".to_owned(),
        ),
    };
    let error = Error::new(code, format!("the MCP server \"{name}\" {what}"));
    let refuses_all =
        matches!(http, StreamableHttpError::HttpStatus(status) if status.status == 503);
    Some(if refuses_all {
        error.of_upstream()
    } else {
        error
    })
}

/// Returns the error of a connection that failed to open. Redacts `secrets` in the server's text.
pub(crate) fn not_started(
    name: &str,
    error: &ClientInitializeError,
    status: Option<ExitStatus>,
    too_long: Option<&usize>,
    last_line: String,
    secrets: &[Secret],
) -> Error {
    let typed = of_transport(name, error).unwrap_or_else(|| {
        let message = match (error, too_long, status) {
            (_, Some(limit), _) => format!("wrote a message of more than {limit} bytes"),
            (ClientInitializeError::JsonRpcError(data), ..) => {
                format!(
                    "refuses the handshake: {}",
                    redacted(&data.message, secrets)
                )
            }
            (_, _, Some(_)) => format!("ended before it answered: {}", how(status)),
            _ => "did not answer the handshake".to_owned(),
        };
        Error::new(
            Code::HandlerFailed,
            format!("the MCP server \"{name}\" {message}"),
        )
    });
    let mut cause = cause(error, secrets);
    if !last_line.is_empty() {
        cause = format!("{cause}; its stderr ends: {last_line}");
    }
    helmdeck_redact::error(typed.with_source(cause), secrets)
}

/// Returns the error of a failed request. Redacts the connection's secrets in the server's text.
pub(crate) async fn of_request(
    name: &str,
    doing: &str,
    error: ServiceError,
    connection: &Connection,
) -> Error {
    helmdeck_redact::error(
        typed(name, doing, error, connection).await,
        &connection.secrets,
    )
}

async fn typed(name: &str, doing: &str, error: ServiceError, connection: &Connection) -> Error {
    let secrets = &connection.secrets;
    let failed = |what: String| {
        Error::new(
            Code::HandlerFailed,
            format!("the MCP server \"{name}\" {what}"),
        )
    };
    match error {
        ServiceError::McpError(data) if data.code.0 == NOT_READABLE => Error::new(
            Code::InvalidOutput,
            format!("the MCP server \"{name}\" answered {doing} with {WHY}"),
        ),
        ServiceError::McpError(data) => {
            // -32602 is the only code that blames the caller (JSON-RPC 2.0, section 5.1).
            let code = if data.code == ErrorCode::INVALID_PARAMS {
                Code::InvalidInput
            } else {
                Code::HandlerFailed
            };
            let message = format!(
                "the MCP server \"{name}\" refused {doing}: {}",
                redacted(&data.message, secrets)
            );
            Error::new(code, message)
        }
        ServiceError::TransportClosed => match connection.why_ended().await {
            Some(ConnectionEnd { code, why }) => Error::new(
                code,
                format!("the MCP server \"{name}\" ended while {doing}: {why}"),
            ),
            None => failed(format!("ended while {doing}")),
        },
        ServiceError::TransportSend(error) => {
            let typed = of_transport(name, &error);
            // If the server lost the session or has ended, the next call makes a new handshake.
            if typed
                .as_ref()
                .is_none_or(|typed| typed.code() == Code::HandlerFailed)
            {
                connection.retire.cancel();
            }
            match typed {
                Some(typed) => typed.with_source(cause(&error, secrets)),
                None => match connection.why_ended().await {
                    Some(ConnectionEnd { code, why }) => Error::new(
                        code,
                        format!("the MCP server \"{name}\" ended while {doing}: {why}"),
                    ),
                    None => failed(format!("took no more requests while {doing}"))
                        .with_source(cause(&error, secrets)),
                },
            }
        }
        ServiceError::UnexpectedResponse => failed(format!("answered {doing} with something else")),
        other => failed(format!("did not finish {doing}")).with_source(cause(&other, secrets)),
    }
}
