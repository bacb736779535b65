//! Events of the conversation memory: ids, fixed words and counts, never a turn's text.

use helmdeck_events::{Bus, EventKind, Who};

use crate::error::ConversationError;
use crate::health::{Health, Reason};
use crate::identity::Identity;

/// Tells that a method was refused for its identity, and returns the error.
pub(crate) fn identity_rejected(
    bus: &Bus,
    identity: &Identity,
    operation: &'static str,
    reason: String,
) -> ConversationError {
    bus.publish(EventKind::MemoryIdentityRejected { who: who(identity), operation, reason: reason.clone() });
    ConversationError::IdentityRequired { reason }
}

/// Tells that the health changed, if the move is legal.
///
/// # Errors
/// `InvalidHealthTransition`: nothing was told.
pub(crate) fn health_changed(
    bus: &Bus,
    identity: &Identity,
    prior: Health,
    new: Health,
    reason: Reason,
) -> Result<(), ConversationError> {
    prior.change(new, reason)?;
    if prior != new {
        let Identity { tenant, user, session, .. } = identity;
        tracing::info!(%tenant, %user, %session, %prior, %new, reason = reason.as_str(), "the health of a conversation changed");
    }
    bus.publish(EventKind::MemoryHealthChanged {
        who: who(identity),
        prior: prior.as_str(),
        new: new.as_str(),
        reason: reason.as_str(),
    });
    Ok(())
}

/// Tells that turns were dropped before they were summarised; nothing if none was.
pub(crate) fn recovery_dropped(bus: &Bus, identity: &Identity, reason: &'static str, count: u64) {
    if count > 0 {
        let Identity { tenant, user, session, .. } = identity;
        tracing::warn!(%tenant, %user, %session, reason, count, "turns of a conversation were dropped unsummarised");
        bus.publish(EventKind::MemoryRecoveryDropped { who: who(identity), reason, count });
    }
}

/// Tells whose conversation is meant; what is empty is not known.
pub(crate) fn who(identity: &Identity) -> Who {
    let known = |part: &str| Some(part).filter(|part| !part.is_empty()).map(str::to_owned);
    Who { tenant: known(&identity.tenant), user: known(&identity.user), session: known(&identity.session) }
}
