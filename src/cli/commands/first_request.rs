//! The answer to an MCP client over stdio whose server cannot start.

use std::io::{BufRead as _, IsTerminal as _, Read as _};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::exit::Failure;
use crate::output::Output;

/// Time that a client has for its first request, which a failed start answers.
const FIRST_REQUEST: Duration = Duration::from_secs(2);
/// Maximum length of that request in bytes.
const LONGEST_REQUEST: u64 = 1 << 20;

/// Answers the client's first request with why the server cannot start: few clients show what is on
/// stderr.
pub(super) fn answer_first_request(failure: &Failure, output: Output) {
    if std::io::stdin().is_terminal() {
        return;
    }
    let (sender, first) = mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        if std::io::stdin()
            .lock()
            .take(LONGEST_REQUEST)
            .read_line(&mut line)
            .is_ok()
        {
            let _ = sender.send(line);
        }
    });
    let request = first
        .recv_timeout(FIRST_REQUEST)
        .ok()
        .and_then(|line| serde_json::from_str::<Value>(&line).ok());
    let Some(id) = request.as_ref().and_then(|request| request.get("id")) else {
        return;
    };
    let hint = failure
        .hint()
        .map(|hint| format!("; {hint}"))
        .unwrap_or_default();
    let message = format!("helmdeck cannot start: {}{hint}", failure.message());
    // If the client has gone away, the exit code still tells.
    let _ = output
        .value(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32603, "message": message}}));
}
