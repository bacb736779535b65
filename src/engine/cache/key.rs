//! Cache key: an HMAC-SHA-256 over everything that an answer depends on.
//!
//! The HMAC key is derived for the namespace. Key order, white space, `1` or `1.0` and an omitted
//! default make no difference; a changed version, schema, handler, epoch, caller, credential or any
//! value does. Without the memory key, the cache key reveals nothing about the input.

pub(crate) use helmdeck_core::hex;
use std::sync::Arc;

use bytes::Bytes;
use helmdeck_core::canonical::{CanonicalError, canonical, canonical_for_handler};
use helmdeck_core::manifest::Scope;
use helmdeck_core::secrets::Grant;
use helmdeck_core::{Call, Identity, PackName, Version};
use helmdeck_memory::{KeyRing, Namespace};

/// Cache key of one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key(pub(crate) [u8; 32]);

impl Key {
    /// Returns the first 8 bytes, which are shown.
    pub(crate) fn short(&self) -> [u8; 8] {
        let mut short = [0; 8];
        short.copy_from_slice(&self.0[..8]);
        short
    }

    /// Returns the key under which the store holds the answer: `<pack>/<version>/<64 hex digits>`.
    pub(crate) fn stored(&self, pack: &PackName, version: Version) -> String {
        format!("{pack}/{version}/{}", hex(&self.0))
    }
}

/// Parts of a key, besides the caller.
pub(crate) struct KeyParts<'a> {
    pub(crate) pack: &'a PackName,
    pub(crate) version: Version,
    pub(crate) contract: &'a [u8; 32],
    pub(crate) scope: Scope,
    pub(crate) grants: &'a [Grant],
    /// The canonical form of the input, defaults filled in.
    pub(crate) input: &'a [u8],
}

impl KeyParts<'_> {
    /// Computes the key. Cost: one HMAC over the input.
    pub(crate) fn key(&self, keyring: &KeyRing, namespace: &Namespace) -> Key {
        let version = self.version.number().to_be_bytes();
        let credentials = credentials(self.grants);
        Key(keyring.mac(
            namespace,
            "cache-key/v2",
            &[
                self.pack.as_str().as_bytes(),
                &version,
                self.contract,
                self.scope.as_str().as_bytes(),
                &credentials,
                self.input,
            ],
        ))
    }

    /// Returns digests of the key's parts, for `cache explain`.
    ///
    /// They are stored unencrypted beside an entry, so that `cache explain` can say which part
    /// differs. Credentials and input are digested under the namespace's key, so that they cannot
    /// be guessed from the file.
    pub(crate) fn digests(&self, keyring: &KeyRing, namespace: &Namespace) -> Digests {
        let keyed = |part: &[u8]| hex(&keyring.mac(namespace, "cache-part/v1", &[part])[..8]);
        Digests {
            contract: hex(&self.contract[..8]),
            credentials: keyed(&credentials(self.grants)),
            input: keyed(self.input),
        }
    }
}

/// Digests of the parts of a key, 16 hex digits each.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Digests {
    pub(crate) contract: String,
    pub(crate) credentials: String,
    pub(crate) input: String,
}

/// Names and versions, never tokens: a refreshed token of the same credential still hits.
fn credentials(grants: &[Grant]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for grant in grants {
        bytes.extend_from_slice(&(grant.name.len() as u64).to_be_bytes());
        bytes.extend_from_slice(grant.name.as_bytes());
        bytes.extend_from_slice(&grant.version.to_be_bytes());
    }
    bytes
}

/// Returns the canonical form of a call's input.
pub(crate) fn canonical_input(call: &Call) -> Result<Vec<u8>, CanonicalError> {
    canonical(std::str::from_utf8(&call.input).map_err(|_| CanonicalError::Malformed)?)
}

/// Returns a canonical input as the handler gets it: with every integer in plain digits.
pub(crate) fn for_handler(canonical: &Bytes) -> Bytes {
    // Most inputs have no number of more than 21 digits.
    if !canonical.windows(2).any(|pair| pair == b"e+") {
        return canonical.clone();
    }
    let text = std::str::from_utf8(canonical).ok();
    text.and_then(|text| canonical_for_handler(text).ok())
        .map_or_else(|| canonical.clone(), Bytes::from)
}

/// Returns the namespace of an answer; `None` if calls of this caller are not cached.
pub(crate) fn namespace(
    identity: &Identity,
    scope: Scope,
    pinned_session: Option<&Arc<str>>,
) -> Option<Namespace> {
    match scope {
        _ if identity.is_anonymous() && (scope != Scope::Shared || pinned_session.is_some()) => {
            None
        }
        // A call in a pinned session sees that session's files, so its answers are never shared, in
        // any scope.
        _ if pinned_session.is_some() => Some(Namespace::new(
            identity.tenant(),
            identity.user(),
            pinned_session.map(AsRef::as_ref),
        )),
        // Anonymous callers share with each other, and with no tenant.
        Scope::Shared if identity.is_anonymous() => Some(Namespace::of_caller(identity)),
        Scope::Shared => Some(Namespace::new(identity.tenant(), "", None)),
        // Without a session the answers of all of the caller's conversations would be one.
        Scope::Session => identity
            .session()
            .map(|own| Namespace::new(identity.tenant(), identity.user(), Some(own))),
        Scope::Caller => Some(Namespace::new(identity.tenant(), identity.user(), None)),
    }
}
