//! Identity of a caller. It travels with every call; there is no ambient caller.

use std::sync::Arc;

/// The longest tenant, user or session, in bytes.
pub const MAX_PART_BYTES: usize = 256;

/// Tenant and user of the anonymous caller. No other caller has them.
const ANONYMOUS: (&str, &str) = ("local", "anonymous");

/// Tenant, user, and the agent's conversation (`session`) if it named one.
///
/// *Caller* means (tenant, user). The parts are kept apart everywhere: no joined string that a `:`
/// could break.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    tenant: Arc<str>,
    user: Arc<str>,
    session: Option<Arc<str>>,
    anonymous: bool,
}

impl Identity {
    /// Makes the identity of an authenticated caller.
    ///
    /// # Errors
    /// A message if a part is empty, longer than [`MAX_PART_BYTES`], or has a control character; or
    /// if it is the name of [`Identity::anonymous`], whose files and rows would be this caller's.
    pub fn new(tenant: &str, user: &str) -> Result<Self, String> {
        check("tenant", tenant)?;
        check("user", user)?;
        if (tenant, user) == ANONYMOUS {
            let (tenant, user) = ANONYMOUS;
            return Err(format!(
                "the user \"{user}\" of the tenant \"{tenant}\" stands for callers without a token"
            ));
        }
        Ok(Self {
            tenant: tenant.into(),
            user: user.into(),
            session: None,
            anonymous: false,
        })
    }

    /// Returns the local identity: `{tenant: "local", user: "local"}`.
    ///
    /// Every caller of a machine without configured auth has it. The CLI has it too, so a server
    /// and a shell on one machine share their cached answers.
    #[must_use]
    pub fn local() -> Self {
        Self {
            tenant: "local".into(),
            user: "local".into(),
            session: None,
            anonymous: false,
        }
    }

    /// Returns the anonymous identity: that of an unauthenticated caller at a server with
    /// authentication.
    ///
    /// Such a caller is never cached, unless the pack's scope is `shared`: then with others like
    /// it, and with no tenant.
    #[must_use]
    pub fn anonymous() -> Self {
        let (tenant, user) = ANONYMOUS;
        Self {
            tenant: tenant.into(),
            user: user.into(),
            session: None,
            anonymous: true,
        }
    }

    /// Adds a conversation to the identity.
    ///
    /// # Errors
    /// As [`Identity::new`].
    pub fn with_session(mut self, session: &str) -> Result<Self, String> {
        check("session", session)?;
        self.session = Some(session.into());
        Ok(self)
    }

    /// Returns the caller without a session: for limits and whatever else is of all sessions of one
    /// caller.
    #[must_use]
    pub fn without_session(self: &Arc<Self>) -> Arc<Self> {
        if self.session.is_none() {
            Arc::clone(self)
        } else {
            Arc::new(Self {
                session: None,
                ..(**self).clone()
            })
        }
    }

    /// Returns the tenant.
    #[must_use]
    pub fn tenant(&self) -> &str {
        &self.tenant
    }

    /// Returns the user.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Returns the conversation, if the caller named one.
    #[must_use]
    pub fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// Returns whether the caller is anonymous: it is not authenticated.
    #[must_use]
    pub const fn is_anonymous(&self) -> bool {
        self.anonymous
    }
}

/// Checks a part of an identity: a tenant, a user, or a session.
///
/// # Errors
/// A message that names `what`, if the part is empty, longer than [`MAX_PART_BYTES`], or has a
/// control character.
pub fn check(what: &str, text: &str) -> Result<(), String> {
    if text.is_empty() || text.len() > MAX_PART_BYTES || text.chars().any(char::is_control) {
        return Err(format!(
            "the {what} must be 1 to {MAX_PART_BYTES} bytes without control characters"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_checked() {
        assert!(Identity::new("a:b", "c|d").is_ok());
        assert!(Identity::new("", "c").is_err());
        assert!(Identity::new("a", "c\n").is_err());
        assert!(Identity::local().with_session(&"x".repeat(257)).is_err());
        assert!(check("session", &"x".repeat(256)).is_ok() && check("session", "a\nb").is_err());
    }

    #[test]
    fn nobody_is_vouched_for_as_the_one_whom_nobody_vouches_for() {
        let anonymous = Identity::anonymous();
        assert!(Identity::new(anonymous.tenant(), anonymous.user()).is_err());
        assert!(
            Identity::new("t", anonymous.user()).is_ok()
                && Identity::new(anonymous.tenant(), "u").is_ok()
        );
    }
}
