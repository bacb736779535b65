//! Record of a credential: name, type, attributes, and secret.

use std::fmt;
use std::str::FromStr;

use helmdeck_core::Identity;
use helmdeck_core::caller::Glob;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::error::{Result, VaultError};

/// The longest name, in bytes.
const MAX_NAME_BYTES: usize = 64;
/// The longest secret, in bytes. An RSA key of 16384 bits has 12 KiB.
const MAX_SECRET_BYTES: usize = 64 << 10;
/// The longest user of a login, in bytes.
const MAX_USER_BYTES: usize = 256;

/// Type of a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// One text: a key or token.
    ApiKey,
    /// A user and a password.
    Login,
    /// A private key, and the passphrase that it is encrypted with, if it is.
    Ssh,
}

impl Kind {
    /// Returns the name: `api_key`, `login` or `ssh`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Callers of a credential: `tenant/user`, with `*` in each part for any characters.
///
/// The two parts are matched separately, so no user name can reach into another tenant. An
/// anonymous caller never matches.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Subjects {
    tenant: Glob,
    user: Glob,
}

impl Subjects {
    /// Returns whether a caller matches.
    #[must_use]
    pub fn cover(&self, identity: &Identity) -> bool {
        !identity.is_anonymous()
            && self.tenant.matches(identity.tenant())
            && self.user.matches(identity.user())
    }
}

impl FromStr for Subjects {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let wrong = |_| {
            format!(
                "{text:?} names no caller; write tenant/user, with `*` for any, like local/local or acme/*"
            )
        };
        let (tenant, user) = text.split_once('/').ok_or(()).map_err(wrong)?;
        Ok(Self {
            tenant: tenant.parse()?,
            user: user.parse()?,
        })
    }
}

impl TryFrom<String> for Subjects {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        text.parse()
    }
}

impl From<Subjects> for String {
    fn from(subjects: Subjects) -> Self {
        subjects.to_string()
    }
}

impl fmt::Display for Subjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.tenant, self.user)
    }
}

/// Attributes of a credential: everything but the secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// Type of a secret.
    pub kind: Kind,
    /// Hosts that may receive it: patterns over host names in lower case. Empty = none.
    pub hosts: Vec<Glob>,
    /// Callers that may use it. Empty = none.
    pub subjects: Vec<Subjects>,
    /// The packs that may use it. Empty = none.
    pub packs: Vec<Glob>,
    /// The user of a login, `None` for other types.
    pub user: Option<String>,
}

impl About {
    /// Creates a credential without grants.
    #[must_use]
    pub const fn of(kind: Kind) -> Self {
        Self {
            kind,
            hosts: Vec::new(),
            subjects: Vec::new(),
            packs: Vec::new(),
            user: None,
        }
    }

    /// Returns whether a caller may use it with a pack: both must be meant.
    #[must_use]
    pub fn allows(&self, identity: &Identity, pack: &str) -> bool {
        self.subjects
            .iter()
            .any(|subjects| subjects.cover(identity))
            && self.packs.iter().any(|glob| glob.matches(pack))
    }

    /// Checks that the parts fit the type.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn check(&self) -> Result<()> {
        let wrong = |message: &str| Err(VaultError::Invalid(message.to_owned()));
        match (self.kind, self.user.as_deref()) {
            (Kind::Login, None) => wrong("a login needs its user"),
            // RFC 7617, section 2: a user with a colon cannot be separated from its password.
            (Kind::Login, Some(user))
                if user.is_empty()
                    || user.len() > MAX_USER_BYTES
                    || user.contains(|c: char| c == ':' || c.is_control()) =>
            {
                wrong(
                    "the user of a login is 1 to 256 bytes, without a colon or control characters",
                )
            }
            (Kind::ApiKey | Kind::Ssh, Some(_)) => wrong("only a login has a user"),
            _ => Ok(()),
        }
    }
}

/// Serialized form of [`About`].
#[derive(Serialize, Deserialize)]
pub(crate) struct StoredAbout {
    kind: Kind,
    hosts: Vec<String>,
    subjects: Vec<Subjects>,
    packs: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user: Option<String>,
}

impl From<&About> for StoredAbout {
    fn from(about: &About) -> Self {
        let texts = |globs: &[Glob]| globs.iter().map(Glob::to_string).collect();
        Self {
            kind: about.kind,
            hosts: texts(&about.hosts),
            subjects: about.subjects.clone(),
            packs: texts(&about.packs),
            user: about.user.clone(),
        }
    }
}

impl TryFrom<StoredAbout> for About {
    type Error = String;

    fn try_from(written: StoredAbout) -> std::result::Result<Self, String> {
        let globs = |texts: &[String]| {
            texts
                .iter()
                .map(|text| text.parse())
                .collect::<std::result::Result<_, String>>()
        };
        Ok(Self {
            kind: written.kind,
            hosts: globs(&written.hosts)?,
            subjects: written.subjects,
            packs: globs(&written.packs)?,
            user: written.user,
        })
    }
}

/// The secret of a credential. Wiped when dropped; `Debug` shows nothing.
pub struct Material {
    pub(crate) text: Zeroizing<String>,
    pub(crate) passphrase: Option<Zeroizing<String>>,
}

impl Material {
    /// Checks a secret of a type: a key or token, a password, or a private key with its passphrase.
    ///
    /// # Errors
    /// `Refused` if it is empty, too long, has characters that no header or form can carry, or is
    /// not a private key.
    pub fn new(
        kind: Kind,
        text: Zeroizing<String>,
        passphrase: Option<Zeroizing<String>>,
    ) -> Result<Self> {
        let refused = |why| Err(VaultError::Refused(why));
        let line = |text: &str| !text.contains(char::is_control);
        if text.trim().is_empty() {
            return refused("it is empty");
        }
        if text.len() > MAX_SECRET_BYTES {
            return refused("it is over 64 KiB");
        }
        match kind {
            Kind::ApiKey | Kind::Login if !line(&text) => {
                return refused("it has more than one line, or control characters");
            }
            Kind::ApiKey | Kind::Login if passphrase.is_some() => {
                return refused("only an ssh key has a passphrase");
            }
            Kind::Ssh
                if !(text.trim_start().starts_with("-----BEGIN ")
                    && text.contains("PRIVATE KEY-----")) =>
            {
                return refused("it is not a private key in PEM or OpenSSH form");
            }
            Kind::ApiKey | Kind::Login | Kind::Ssh => {}
        }
        if passphrase
            .as_ref()
            .is_some_and(|passphrase| passphrase.is_empty() || !line(passphrase))
        {
            return refused("the passphrase is empty, or has more than one line");
        }
        Ok(Self { text, passphrase })
    }
}

impl fmt::Debug for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Material(..)")
    }
}

/// Checks the name of a credential: a to z, digits, `.`, `_` and `-`, starting with a letter or
/// digit.
///
/// # Errors
/// `Invalid`, with what a name looks like.
pub fn check_name(name: &str) -> Result<()> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let first = name.bytes().next().is_some_and(plain);
    if first
        && name.len() <= MAX_NAME_BYTES
        && name
            .bytes()
            .all(|byte| plain(byte) || b"._-".contains(&byte))
    {
        return Ok(());
    }
    Err(VaultError::Invalid(format!(
        "a credential's name is 1 to {MAX_NAME_BYTES} of a-z 0-9 . _ - and starts with a letter or digit, like github-token"
    )))
}

/// Parses a host pattern: a name or address in lower case, `*` for any characters.
///
/// It has no scheme, port or path.
///
/// # Errors
/// `Invalid`, with the expected form.
pub fn parse_host(text: &str) -> Result<Glob> {
    let host = text.to_ascii_lowercase();
    let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '*');
    let fits = host.chars().all(known) || host.parse::<std::net::Ipv6Addr>().is_ok();
    host.parse().ok().filter(|_| fits).ok_or_else(|| {
        VaultError::Invalid(format!(
            "{text:?} is not a host; write a name or address without scheme and port, like api.github.com or *.example.com"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn material(kind: Kind, text: &str) -> Result<Material> {
        Material::new(kind, Zeroizing::new(text.to_owned()), None)
    }

    #[test]
    fn secrets_must_look_like_their_type() {
        let key = "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n";
        for (kind, text) in [
            (Kind::ApiKey, "t"),
            (Kind::Login, "pass word"),
            (Kind::Ssh, key),
        ] {
            assert_eq!(
                format!("{:?}", material(kind, text).unwrap()),
                "Material(..)"
            );
        }
        for (kind, text) in [
            (Kind::ApiKey, ""),
            (Kind::ApiKey, " \n"),
            (Kind::ApiKey, "two\nlines"),
            (Kind::Login, "nul\0"),
            (Kind::Ssh, "ssh-ed25519 AAAA public"),
            (Kind::Ssh, ""),
        ] {
            let error = material(kind, text).unwrap_err();
            assert!(matches!(error, VaultError::Refused(_)), "{kind:?} {error}");
            assert!(
                text.trim().is_empty() || !error.to_string().contains(text),
                "{error}"
            );
        }
        assert!(material(Kind::ApiKey, &"x".repeat(MAX_SECRET_BYTES + 1)).is_err());
        let with = |passphrase: &str| {
            Material::new(
                Kind::Ssh,
                Zeroizing::new(key.into()),
                Some(Zeroizing::new(passphrase.into())),
            )
        };
        assert!(with("open sesame").is_ok() && with("").is_err() && with("a\nb").is_err());
    }

    #[test]
    fn names_hosts_and_subjects_are_read() {
        for good in ["github-token", "a", "9.b_c"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "A", "a b", "a/b", "ä", &"a".repeat(65)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
        for good in ["api.github.com", "*.Example.com", "127.0.0.1", "::1", "*"] {
            assert!(parse_host(good).is_ok(), "{good}");
        }
        for bad in ["", "https://a", "a:80", "a/b", "a b", "[::1]"] {
            assert!(parse_host(bad).is_err(), "{bad}");
        }
        assert!("acme/*".parse::<Subjects>().is_ok());
        assert!(
            "acme".parse::<Subjects>().is_err()
                && "/u".parse::<Subjects>().is_err()
                && "t/".parse::<Subjects>().is_err()
        );
    }

    #[test]
    fn tenant_and_user_are_matched_apart() {
        let caller = |tenant, user| Identity::new(tenant, user).unwrap();
        let covers = |subjects: &str, identity: &Identity| {
            subjects.parse::<Subjects>().unwrap().cover(identity)
        };
        assert!(covers("acme/*", &caller("acme", "a/b")));
        assert!(
            !covers("acme/b", &caller("acme/x", "b")) && !covers("acme/*", &caller("acme/x", "b"))
        );
        assert!(covers("*/*", &caller("t", "u")) && !covers("*/*", &Identity::anonymous()));
    }
}
