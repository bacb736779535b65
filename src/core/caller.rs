//! Authenticated callers and their permissions.
//!
//! Transports (REST, MCP) make one per request from what the request proves, and check it before
//! they act. Past the transport only the [`Identity`] travels: a pack that calls another pack needs
//! no permission for it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::error::{Code, Error, Result};
use crate::{Identity, PackName, Timestamp};

/// Permission of a token: a word of its `scope` (RFC 6749, section 3.3).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Permission {
    /// `metrics:read`: `/metrics` and other data about the whole server, not about a caller.
    MetricsRead,
    /// `packs:run`: every pack.
    RunAny,
    /// `packs:run:<glob>`: packs whose name matches; `*` matches any characters, including none.
    Run(Glob),
    /// `memory:read`: read the caller's own memory.
    MemoryRead,
    /// `memory:write`: write, forget and purge the caller's own memory.
    MemoryWrite,
    /// `tokens:write`: make API tokens, with at most the rights and the lifetime of the caller's
    /// own.
    TokensWrite,
    /// `admin`: everything, including data of other callers.
    Admin,
}

impl FromStr for Permission {
    type Err = String;

    fn from_str(word: &str) -> std::result::Result<Self, String> {
        Ok(match word {
            "metrics:read" => Self::MetricsRead,
            "packs:run" => Self::RunAny,
            "memory:read" => Self::MemoryRead,
            "memory:write" => Self::MemoryWrite,
            "tokens:write" => Self::TokensWrite,
            "admin" => Self::Admin,
            _ => match word.strip_prefix("packs:run:") {
                Some(glob) => Self::Run(glob.parse()?),
                None => {
                    return Err(format!(
                        "there is no scope {word:?}; there are metrics:read, packs:run, packs:run:<glob>, memory:read, \
                         memory:write, tokens:write and admin"
                    ));
                }
            },
        })
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MetricsRead => f.write_str("metrics:read"),
            Self::RunAny => f.write_str("packs:run"),
            Self::Run(glob) => write!(f, "packs:run:{glob}"),
            Self::MemoryRead => f.write_str("memory:read"),
            Self::MemoryWrite => f.write_str("memory:write"),
            Self::TokensWrite => f.write_str("tokens:write"),
            Self::Admin => f.write_str("admin"),
        }
    }
}

/// Pattern over names: `*` matches any characters, including none; all else is literal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Glob(Box<str>);

/// The longest [`Glob`], in bytes.
const MAX_GLOB_BYTES: usize = 256;

impl Glob {
    /// Returns whether a name matches.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = name.strip_prefix(first) else {
            return false;
        };
        let Some(last) = parts.next_back() else {
            return rest.is_empty();
        };
        for part in parts {
            match rest.find(part) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
        rest.ends_with(last)
    }
}

impl FromStr for Glob {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if text.is_empty()
            || text.len() > MAX_GLOB_BYTES
            || !text.bytes().all(|byte| byte.is_ascii_graphic())
        {
            return Err(format!(
                "{:?} is not a pattern; write 1 to {MAX_GLOB_BYTES} visible ASCII characters, `*` for any",
                text.chars().take(40).collect::<String>()
            ));
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Permissions of a caller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Permissions(Vec<Permission>);

impl Permissions {
    /// Allows everything: for the local caller of a machine without authentication.
    #[must_use]
    pub fn all() -> Self {
        Self(vec![Permission::Admin])
    }

    /// Allows only what is open to every caller.
    #[must_use]
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// Reads the `scope` of a token from another issuer: words separated by spaces.
    ///
    /// Unknown words are ignored.
    #[must_use]
    pub fn of_scope(scope: &str) -> Self {
        scope
            .split_ascii_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect()
    }

    /// Returns these permissions as a scope.
    #[must_use]
    pub fn to_scope(&self) -> String {
        self.0
            .iter()
            .map(Permission::to_string)
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// Returns each permission.
    pub fn iter(&self) -> impl Iterator<Item = &Permission> {
        self.0.iter()
    }

    /// Returns whether there are no permissions.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether a permission is granted.
    #[must_use]
    pub fn allow(&self, wanted: &Permission) -> bool {
        self.0.iter().any(|held| {
            held == wanted
                || *held == Permission::Admin
                || (*held == Permission::RunAny && matches!(wanted, Permission::Run(_)))
        })
    }

    /// Returns whether running a pack is allowed.
    #[must_use]
    pub fn allow_run(&self, pack: &str) -> bool {
        self.0.iter().any(|held| match held {
            Permission::Admin | Permission::RunAny => true,
            Permission::Run(glob) => glob.matches(pack),
            _ => false,
        })
    }
}

impl FromIterator<Permission> for Permissions {
    fn from_iter<I: IntoIterator<Item = Permission>>(permissions: I) -> Self {
        let mut permissions: Vec<_> = permissions.into_iter().collect();
        permissions.sort();
        permissions.dedup();
        Self(permissions)
    }
}

/// What proved a caller. It bounds the tokens that the caller can make, list and revoke.
#[derive(Debug, Clone, Default)]
pub enum Credential {
    /// None: the local caller, or an anonymous one.
    #[default]
    None,
    /// An API token, or that of a browser.
    Token(Arc<TokenCredential>),
    /// A JSON Web Token.
    Jwt {
        /// When it expires.
        expires_at: Timestamp,
    },
}

/// API token that proved a caller.
#[derive(Debug, Clone, Default)]
pub struct TokenCredential {
    /// Id of the token.
    pub id: String,
    /// Ids of the tokens that it descends from, the one that made it last.
    pub ancestors: Vec<String>,
    /// When it expires; `None` = never.
    pub expires_at: Option<Timestamp>,
    /// For the token of a browser, what its person signed in with.
    pub browser: Option<SignIn>,
}

/// What a person signed in to the pages with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignIn {
    /// An API token, the last of the ancestors.
    Token,
    /// A sign-in link, which is used up.
    Link,
    /// A JSON Web Token, also that of an identity provider.
    Jwt,
}

impl Credential {
    /// Returns when it expires; `None` = never.
    #[must_use]
    pub fn expires_at(&self) -> Option<Timestamp> {
        match self {
            Self::None => None,
            Self::Token(token) => token.expires_at,
            Self::Jwt { expires_at } => Some(*expires_at),
        }
    }

    /// Returns whether it is a JSON Web Token, or the token of a browser that was signed in with
    /// one.
    #[must_use]
    pub fn is_of_jwt(&self) -> bool {
        match self {
            Self::None => false,
            Self::Token(token) => token.browser == Some(SignIn::Jwt),
            Self::Jwt { .. } => true,
        }
    }

    /// Returns the ids of the tokens that a token made with it descends from.
    ///
    /// The token of a browser only stands for what its person signed in with: it ends at the next
    /// sign-in, and what was made with it does not.
    #[must_use]
    pub fn ancestors_of_child(&self) -> Vec<String> {
        match self {
            Self::Token(token) if matches!(token.browser, Some(SignIn::Token | SignIn::Link)) => {
                token.ancestors.clone()
            }
            Self::Token(token) => token.ancestors.iter().chain([&token.id]).cloned().collect(),
            Self::None | Self::Jwt { .. } => Vec::new(),
        }
    }
}

/// Caller at a transport: its identity, its permissions, and what proved it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The identity.
    pub identity: Arc<Identity>,
    /// The permissions.
    pub permissions: Arc<Permissions>,
    /// What proved them.
    pub credential: Credential,
}

impl Caller {
    /// Makes a caller that nothing proved: the local caller, or an anonymous one.
    #[must_use]
    pub fn new(identity: Identity, permissions: Permissions) -> Self {
        Self::proven(identity, permissions, Credential::None)
    }

    /// Makes a caller that a credential proved.
    #[must_use]
    pub fn proven(identity: Identity, permissions: Permissions, credential: Credential) -> Self {
        Self {
            identity: Arc::new(identity),
            permissions: Arc::new(permissions),
            credential,
        }
    }

    /// Returns the local caller, the caller of a machine without authentication. It has every
    /// permission.
    #[must_use]
    pub fn local() -> Self {
        Self::new(Identity::local(), Permissions::all())
    }

    /// Checks that the caller has a permission.
    ///
    /// # Errors
    /// `forbidden`, with the missing scope; `unauthenticated` if the caller is anonymous.
    pub fn need(&self, permission: &Permission) -> Result<()> {
        if self.permissions.allow(permission) {
            Ok(())
        } else {
            Err(self.refusal(&permission.to_string()))
        }
    }

    /// Checks that the caller may run a pack.
    ///
    /// # Errors
    /// As [`Caller::need`].
    pub fn need_run(&self, pack: &PackName) -> Result<()> {
        if self.permissions.allow_run(pack.as_str()) {
            Ok(())
        } else {
            Err(self.refusal(&format!("packs:run:{pack}")))
        }
    }

    fn refusal(&self, scope: &str) -> Error {
        if self.identity.is_anonymous() {
            Error::new(Code::Unauthenticated, "this needs a bearer token")
        } else {
            Error::new(
                Code::Forbidden,
                format!("the token does not have the scope \"{scope}\""),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_fit_whole_names() {
        let fits = |glob: &str, name: &str| glob.parse::<Glob>().unwrap().matches(name);
        for (glob, name) in [
            ("*", "a.b"),
            ("github.*", "github.list_issues"),
            ("*.list_*", "github.list_issues"),
            ("a.b", "a.b"),
            ("a*a", "aa"),
        ] {
            assert!(fits(glob, name), "{glob} {name}");
        }
        for (glob, name) in [
            ("github.*", "githubx.a"),
            ("a.b", "a.bc"),
            ("a.b", "xa.b"),
            ("a*a", "a"),
            ("*.x*y", "a.y"),
            ("a*b*b", "ab"),
        ] {
            assert!(!fits(glob, name), "{glob} {name}");
        }
        assert!("".parse::<Glob>().is_err() && "a b".parse::<Glob>().is_err());
    }

    #[test]
    fn a_scope_allows_what_it_says_and_no_more() {
        let some =
            Permissions::of_scope("packs:run:github.* memory:read other:thing openid packs:run:");
        assert!(some.allow_run("github.search") && !some.allow_run("memory.store"));
        assert!(some.allow(&Permission::MemoryRead) && !some.allow(&Permission::MemoryWrite));
        assert!(!some.allow(&Permission::Admin) && !some.allow(&Permission::RunAny));
        assert_eq!(some.to_scope(), "packs:run:github.* memory:read");
        assert_eq!(Permissions::of_scope(&some.to_scope()), some);
        for wanted in [
            "metrics:read",
            "packs:run",
            "packs:run:x",
            "memory:write",
            "tokens:write",
            "admin",
        ] {
            assert!(
                Permissions::all().allow(&wanted.parse().unwrap()),
                "{wanted}"
            );
            assert!(
                !Permissions::none().allow(&wanted.parse().unwrap()),
                "{wanted}"
            );
        }
        assert!(
            "packs:walk"
                .parse::<Permission>()
                .unwrap_err()
                .contains("memory:write")
        );
    }

    #[test]
    fn a_refusal_names_the_scope_or_asks_for_a_token() {
        let nobody = Caller::new(Identity::anonymous(), Permissions::none());
        assert_eq!(
            nobody.need(&Permission::MemoryRead).unwrap_err().code(),
            Code::Unauthenticated
        );
        let known = Caller {
            identity: Arc::new(Identity::new("t", "u").unwrap()),
            ..nobody
        };
        let error = known.need_run(&PackName::new("a.b").unwrap()).unwrap_err();
        assert_eq!(error.code(), Code::Forbidden);
        assert!(error.message().contains("packs:run:a.b"), "{error}");
        assert!(Caller::local().need(&Permission::Admin).is_ok());
    }
}
