//! `helmdeck audit verify`: checks the chains of the audit.

use helmdeck_core::text::count;
use helmdeck_core::{Clock, SystemClock};
use helmdeck_memory::audit::{self, Verified};
use helmdeck_memory::{Kind, Store};
use serde_json::json;

use crate::args::AuditCommand;
use crate::exit::{Exit, Failure, Result};
use crate::table::table;
use crate::wire::Setup;

/// Who acts: whoever runs this program has the key.
pub(super) const OPERATOR: &str = "operator";

/// Runs `helmdeck audit`.
///
/// # Errors
/// Exit 3 without a key; 8 if something is wrong with the audit.
pub(crate) async fn run(setup: &Setup, command: &AuditCommand) -> Result<()> {
    let AuditCommand::Verify { accept } = command;
    if setup.ring.is_none() {
        return Err(Failure::new(
            Exit::Absent,
            "no memory key is set, so audit entries cannot be opened",
        ));
    }
    let Some(store) = setup.sealed_store().await? else {
        return Err(Failure::new(
            Exit::Absent,
            "there is no store yet; the first write creates it",
        ));
    };
    let answer = verify(setup, &*store, *accept).await;
    store.close().await?;
    let verified = answer?;
    setup.output.either(
        &json!({"whole": verified.is_whole(), "audit": verified}),
        || text(&verified),
    )?;
    if verified.is_whole() || *accept {
        Ok(())
    } else {
        Err(Failure::silent(Exit::Corrupt))
    }
}

async fn verify(setup: &Setup, store: &dyn Store, accept: bool) -> Result<Verified> {
    let clock = SystemClock::default();
    let limit = setup.settings.memory.store().limits.quota(Kind::Audit);
    let verified = audit::verify(store, limit, &clock).await?;
    if accept && !verified.is_whole() {
        audit::accept(store, &verified, OPERATOR, clock.now()).await?;
    }
    Ok(verified)
}

fn text(verified: &Verified) -> String {
    let rows = verified.callers.iter().map(|caller| {
        [
            format!("{}/{}", caller.tenant, caller.user),
            caller.entries.to_string(),
            caller.unchained.to_string(),
            caller.dropped.to_string(),
            if caller.findings.is_empty() {
                "whole"
            } else {
                "WRONG"
            }
            .to_owned(),
            caller.head.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    });
    let mut text = match verified.callers.is_empty() {
        true => "there is no audit\n".to_owned(),
        false => table(
            ["CALLER", "ENTRIES", "UNCHAINED", "DROPPED", "AUDIT", "HEAD"],
            rows,
        ),
    };
    for removal in &verified.removed {
        text.push_str(&format!(
            "{}: {} removed {} of {}/{}\n",
            removal.at.to_rfc3339(),
            removal.by,
            count(removal.calls, "call"),
            removal.tenant,
            removal.user
        ));
    }
    for caller in &verified.callers {
        let wrong = caller.findings.iter();
        text.extend(
            wrong.map(|finding| format!("wrong: {}/{}: {finding}\n", caller.tenant, caller.user)),
        );
    }
    text.extend(
        verified
            .findings
            .iter()
            .map(|finding| format!("wrong: {finding}\n")),
    );
    text
}
