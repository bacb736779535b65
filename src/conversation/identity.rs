//! Owner of a conversation.

use std::sync::Arc;

use helmdeck_core::identity::check;
use helmdeck_events::Who;
use helmdeck_memory::Namespace;

use crate::error::{ConversationError, Result};

/// Tenant, user, conversation id and run, not yet checked to be complete.
///
/// Every method needs tenant, user and session. A run is accepted and ignored: a conversation
/// outlives its runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Identity {
    /// The tenant.
    pub tenant: Arc<str>,
    /// The user.
    pub user: Arc<str>,
    /// The conversation.
    pub session: Arc<str>,
    /// The run; of no effect.
    pub run: Option<Arc<str>>,
}

impl Identity {
    /// Makes an identity without a run.
    #[must_use]
    pub fn new(tenant: &str, user: &str, session: &str) -> Self {
        Self {
            tenant: tenant.into(),
            user: user.into(),
            session: session.into(),
            run: None,
        }
    }

    /// Returns the identity of a caller in a conversation: `session`, or the one that the caller
    /// names.
    ///
    /// With neither, every method refuses it.
    #[must_use]
    pub fn of(caller: &helmdeck_core::Identity, session: Option<&str>) -> Self {
        Self::new(
            caller.tenant(),
            caller.user(),
            session.or(caller.session()).unwrap_or_default(),
        )
    }

    /// Returns the namespace of the conversation.
    ///
    /// # Errors
    /// `IdentityRequired` if a part is empty; `Invalid` if one is longer than 256 bytes or contains
    /// a control character.
    pub fn namespace(&self) -> Result<Namespace> {
        if let Some(reason) = self.missing() {
            return Err(ConversationError::IdentityRequired { reason });
        }
        for (what, part) in [
            ("tenant", &self.tenant),
            ("user", &self.user),
            ("session", &self.session),
        ] {
            check(what, part).map_err(ConversationError::Invalid)?;
        }
        Ok(Namespace {
            tenant: Arc::clone(&self.tenant),
            subject: Arc::clone(&self.user),
            session: Some(Arc::clone(&self.session)),
        })
    }

    /// Returns the identity as events name it; empty parts are unknown.
    pub(crate) fn who(&self) -> Who {
        let known = |part: &str| {
            Some(part)
                .filter(|part| !part.is_empty())
                .map(str::to_owned)
        };
        Who {
            tenant: known(&self.tenant),
            user: known(&self.user),
            session: known(&self.session),
        }
    }

    /// Returns which parts are missing, in a fixed order and fixed words.
    ///
    /// For example `tenant_id empty`, `tenant_id and user_id empty`, `tenant_id, user_id and
    /// session_id empty`.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        let parts = [
            ("tenant_id", &self.tenant),
            ("user_id", &self.user),
            ("session_id", &self.session),
        ];
        let empty: Vec<&str> = parts
            .into_iter()
            .filter(|(_, part)| part.is_empty())
            .map(|(name, _)| name)
            .collect();
        match empty[..] {
            [] => None,
            [only] => Some(format!("{only} empty")),
            [one, two] => Some(format!("{one} and {two} empty")),
            [ref first @ .., last] => Some(format!("{} and {last} empty", first.join(", "))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_parts_have_a_fixed_order() {
        let missing = |tenant, user, session| Identity::new(tenant, user, session).missing();
        assert_eq!(missing("t", "u", "s"), None);
        assert_eq!(missing("", "u", "s").unwrap(), "tenant_id empty");
        assert_eq!(
            missing("t", "", "").unwrap(),
            "user_id and session_id empty"
        );
        assert_eq!(
            missing("", "u", "").unwrap(),
            "tenant_id and session_id empty"
        );
        assert_eq!(
            missing("", "", "").unwrap(),
            "tenant_id, user_id and session_id empty"
        );
        // Only emptiness counts: white space is a name like any other.
        assert_eq!(missing(" ", "<missing>", " "), None);
    }

    #[test]
    fn a_namespace_keeps_the_parts_apart() {
        let of = |tenant, user, session| Identity::new(tenant, user, session).namespace().unwrap();
        assert_ne!(of("a|b", "c", "d"), of("a", "b|c", "d"));
        assert_ne!(of("a:b", "c", "d"), of("a", "b:c", "d"));
        let run = Identity {
            run: Some("r".into()),
            ..Identity::new("t", "u", "s")
        };
        assert_eq!(run.namespace().unwrap(), of("t", "u", "s"));
        assert!(matches!(
            Identity::new("t\n", "u", "s").namespace(),
            Err(ConversationError::Invalid(_))
        ));
    }
}
