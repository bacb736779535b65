//! Answers of the stand-in: the key, faults, execution.

use std::net::TcpStream;
use std::sync::mpsc::Sender;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Asked, Fault, Linear, execute};
use crate::small_http::{answer, read};

/// Reads a request and answers it.
pub(super) fn serve(linear: &Linear, stream: TcpStream) {
    let Some(request) = read(&stream) else { return };
    let mut headers = linear.shared.lock().headers.clone();
    headers.push(("Date".to_owned(), linear.with(|store| store.date())));
    if request.authorization != linear.key {
        let error = error(
            "AUTHENTICATION_ERROR",
            "authentication error",
            "Authentication required, not authenticated",
        );
        return answer(&stream, 401, &headers, &error.to_string());
    }
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let operation = body["operationName"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let asked = Asked {
        operation: operation.clone(),
        variables: body["variables"].clone(),
    };
    linear.shared.lock().asked.push(asked);
    let fault = linear.due(&operation);
    match &fault {
        Some(Fault::Http(status, more, body)) => {
            let headers: Vec<_> = headers.into_iter().chain(more.clone()).collect();
            return answer(&stream, *status, &headers, body);
        }
        Some(Fault::Code(code)) => {
            return answer(
                &stream,
                200,
                &headers,
                &error(code, &code.to_lowercase(), "words of Linear").to_string(),
            );
        }
        Some(Fault::CutBefore) => return,
        Some(Fault::Slow(wait)) => std::thread::sleep(*wait),
        Some(Fault::Hang(reached, false)) => return hang(reached),
        Some(Fault::CutAfter | Fault::Hang(_, true)) | None => {}
    }
    let (status, text) = match execute::execute(linear, &body) {
        Ok(answer) => (200, answer),
        Err(refused) => (400, refused.to_string()),
    };
    match &fault {
        Some(Fault::CutAfter) => {}
        Some(Fault::Hang(reached, _)) => hang(reached),
        _ => answer(&stream, status, &headers, &text),
    }
}

/// Tells the test, and keeps the connection open for as long as any client waits.
fn hang(reached: &Sender<()>) {
    let _ = reached.send(());
    std::thread::sleep(Duration::from_secs(60));
}

pub(super) fn error(code: &str, kind: &str, message: &str) -> Value {
    let extensions =
        json!({"code": code, "type": kind, "userError": true, "userPresentableMessage": message});
    json!({"data": null, "errors": [{"message": message, "extensions": extensions}]})
}
