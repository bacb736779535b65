//! The leak scan of facts and notes.
//!
//! A fact or note that looks like it holds a credential is refused with the name of the rule,
//! unless its writer allows it. Then it is stored, counted, and the audit of the caller gets a row
//! with the rule.

use bytes::Bytes;
use helmdeck_core::memory::Owner;
use helmdeck_core::{Code, Error, PackName, Result, Version};
use helmdeck_memory::leaks::first_leak;

use super::EngineViews;
use crate::audit::Record;

/// The pack in the audit if the caller writes a fact through a transport: the routes do what this
/// pack does.
const AT_A_TRANSPORT: &str = "memory.store";

/// What is about to be stored.
pub(super) struct Scanned<'a> {
    /// `fact` or `note`.
    pub(super) kind: &'static str,
    /// Its names, the key first. Names are stored in plain text.
    pub(super) names: &'a [&'a str],
    /// Its value.
    pub(super) value: &'a Bytes,
    /// Whether the writer allows a credential in it.
    pub(super) allowed: bool,
}

/// Scans an entry. Returns the rule that finds a credential that the writer allows.
///
/// # Errors
/// `invalid_input` with the rule, never with the text that it found, if the writer does not allow
/// it.
pub(super) async fn scan(views: &EngineViews, entry: Scanned<'_>) -> Result<Option<&'static str>> {
    let Scanned {
        kind,
        names,
        value,
        allowed,
    } = entry;
    // The key stands before the value: it may be what says that the value is a password.
    let (key, others) = names.split_first().unwrap_or((&"", &[]));
    let text = [
        others.join("\n").as_bytes(),
        b"\n",
        key.as_bytes(),
        b": ",
        value,
    ]
    .concat();
    let Some(rule) = first_leak(&text.into()).await else {
        return Ok(None);
    };
    let in_names = match allowed {
        true => first_leak(&names.join("\n").into()).await,
        false => None,
    };
    views.hub.metrics.secret(
        kind,
        if allowed && in_names.is_none() {
            "allowed"
        } else {
            "refused"
        },
    );
    if let Some(rule) = in_names {
        let message = format!(
            "a name of the {kind} looks like it holds a credential (rule {rule}), so it was not stored: names are not \
             sealed, and \"allow_secret\" is for the value alone"
        );
        return Err(Error::new(Code::InvalidInput, message));
    }
    if allowed {
        return Ok(Some(rule));
    }
    let message = format!(
        "the {kind} looks like it holds a credential (rule {rule}), so it was not stored; take it out, keep it in the vault, or allow it: \"allow_secret\": true"
    );
    Err(Error::new(Code::InvalidInput, message))
}

/// Writes a row into the audit of the owner: a credential was stored because its writer allowed it.
pub(super) fn note_allowed(
    views: &EngineViews,
    owner: &Owner,
    kind: &'static str,
    rule: &'static str,
) {
    tracing::warn!(
        kind,
        rule,
        "an entry that looks like it holds a credential was stored, as its writer asked"
    );
    let writer = match &views.pack {
        Some((pack, version)) => Some((pack.clone(), *version)),
        None => PackName::new(AT_A_TRANSPORT).ok().zip(Version::new(1)),
    };
    if let Some((pack, version)) = writer {
        let at = views.hub.clock.now();
        views.audit.push(Record::of_allowed_secret(
            pack,
            version,
            owner.identity.clone(),
            (kind, rule),
            at,
        ));
    }
}
