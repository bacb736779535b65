//! Session ids that contain their session, sealed with the memory key.
//!
//! Every replica has the key, so each can continue a session that another began. Nothing is stored.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use helmdeck_core::{Clock, Identity, Timestamp};
use helmdeck_memory::{KeyRing, Namespace, StoreError};
use rmcp::model::{
    ClientCapabilities, ExtensionCapabilities, Implementation, InitializeRequestParams, JsonObject,
    TASKS_EXTENSION_ID,
};
use serde::{Deserialize, Serialize};

/// Purpose of the derived key.
const PURPOSE: &str = "mcp session";
/// Limit of the capabilities in an id, in bytes of JSON: an id is a header of each request.
const MAX_CAPABILITIES: usize = 1024;
/// Limit of the client's name, and of its version, in characters.
const MAX_NAME: usize = 64;
/// Limit of an id that is looked at, in bytes.
const MAX_ID: usize = 4096;

/// Seals and opens session ids.
#[derive(Clone)]
pub(crate) struct SessionSeal {
    ring: Arc<KeyRing>,
    clock: Arc<dyn Clock>,
    lifetime: Duration,
}

helmdeck_core::redacted_debug!(SessionSeal);

/// Content of a session id.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SealedSession {
    /// Id of the session within a replica; random, and the same on all replicas.
    pub(crate) id: Arc<str>,
    /// When the session ends.
    #[serde(rename = "end")]
    pub(crate) ends_at: Timestamp,
    /// Parameters of the client's `initialize`: revision, capabilities, name.
    #[serde(rename = "hello")]
    pub(crate) handshake: InitializeRequestParams,
}

impl SessionSeal {
    /// Makes a seal with the keys that all replicas have.
    pub(crate) fn new(ring: Arc<KeyRing>, clock: Arc<dyn Clock>, lifetime: Duration) -> Self {
        Self {
            ring,
            clock,
            lifetime,
        }
    }

    /// Begins a session: returns what its id contains.
    pub(crate) fn begin(&self, id: &str, handshake: InitializeRequestParams) -> SealedSession {
        let ends_at = self.clock.now().saturating_add(self.lifetime);
        SealedSession {
            id: id.into(),
            ends_at,
            handshake: shortened(handshake),
        }
    }

    /// Returns the id of a session for its client. Only this caller can open it.
    ///
    /// # Errors
    /// `Unavailable` if the system cannot provide randomness.
    pub(crate) fn seal(
        &self,
        caller: &Identity,
        session: &SealedSession,
    ) -> Result<String, StoreError> {
        let content = serde_json::to_vec(session).map_err(StoreError::unavailable)?;
        let sealed = self
            .ring
            .seal_blob(&namespace(caller), PURPOSE, bound(caller), &content)?;
        Ok(URL_SAFE_NO_PAD.encode(sealed))
    }

    /// Opens an id; `None` if it was altered, has ended, or belongs to another caller.
    pub(crate) fn open(&self, caller: &Identity, id: &str) -> Option<SealedSession> {
        let sealed = URL_SAFE_NO_PAD
            .decode(id)
            .ok()
            .filter(|_| id.len() <= MAX_ID)?;
        let content = self
            .ring
            .open_blob(&namespace(caller), PURPOSE, bound(caller), &sealed)
            .ok()?;
        let session: SealedSession = serde_json::from_slice(&content).ok()?;
        (session.ends_at > self.clock.now()).then_some(session)
    }
}

/// The key is derived for the caller without its conversation, as the owner of a session is
/// compared.
fn namespace(caller: &Identity) -> Namespace {
    Namespace::new(caller.tenant(), caller.user(), None)
}

/// A caller without a token is none that has the same name.
fn bound(caller: &Identity) -> &'static [u8] {
    if caller.is_anonymous() {
        b"anonymous"
    } else {
        b""
    }
}

/// Keeps of a handshake what answers depend on, within limits.
fn shortened(handshake: InitializeRequestParams) -> InitializeRequestParams {
    let cut = |text: &str| text.chars().take(MAX_NAME).collect::<String>();
    let client = Implementation::new(
        cut(&handshake.client_info.name),
        cut(&handshake.client_info.version),
    );
    let mut capabilities = handshake.capabilities;
    capabilities.experimental = None;
    if serde_json::to_vec(&capabilities).map_or(true, |text| text.len() > MAX_CAPABILITIES) {
        let mut short = ClientCapabilities::default();
        if capabilities.supports_tasks() {
            let tasks = (TASKS_EXTENSION_ID.to_owned(), JsonObject::new());
            short.extensions = Some(ExtensionCapabilities::from([tasks]));
        }
        capabilities = short;
    }
    let mut kept = InitializeRequestParams::new(capabilities, client);
    kept.protocol_version = handshake.protocol_version;
    kept
}

#[cfg(test)]
mod tests {
    use helmdeck_memory::MemoryKey;
    use helmdeck_testkit::ManualClock;
    use serde_json::json;

    use super::*;

    fn key(digit: &str) -> MemoryKey {
        MemoryKey::parse("K", &digit.repeat(64)).unwrap()
    }

    fn handshake(capabilities: serde_json::Value) -> InitializeRequestParams {
        serde_json::from_value(json!({
            "protocolVersion": "2025-06-18", "capabilities": capabilities,
            "clientInfo": {"name": "n".repeat(500), "version": "1", "description": "d".repeat(5000)},
        }))
        .unwrap()
    }

    fn seal_with(clock: &Arc<ManualClock>, ring: KeyRing) -> SessionSeal {
        SessionSeal::new(
            Arc::new(ring),
            Arc::clone(clock) as _,
            Duration::from_secs(60),
        )
    }

    #[test]
    fn id_opens_for_its_caller_only() {
        let clock = Arc::new(ManualClock::default());
        let seal = seal_with(&clock, KeyRing::new(key("a"), Vec::new()));
        let alice = Identity::new("t", "alice").unwrap();
        let id = seal
            .seal(&alice, &seal.begin("s-1", handshake(json!({}))))
            .unwrap();
        let opened = seal.open(&alice, &id).unwrap();
        assert_eq!(
            (&*opened.id, opened.handshake.protocol_version.as_str()),
            ("s-1", "2025-06-18")
        );
        assert!(
            seal.open(&alice.clone().with_session("c").unwrap(), &id)
                .is_some()
        );
        for other in [Identity::new("t", "bob"), Identity::new("s", "alice")] {
            assert!(seal.open(&other.unwrap(), &id).is_none());
        }
        let nobody = Identity::anonymous();
        let named_alike = Identity::new(nobody.tenant(), nobody.user());
        if let Ok(named_alike) = named_alike {
            let id = seal
                .seal(&nobody, &seal.begin("s-2", handshake(json!({}))))
                .unwrap();
            assert!(seal.open(&nobody, &id).is_some() && seal.open(&named_alike, &id).is_none());
        }
        for index in 0..id.len() {
            let mut altered = id.clone().into_bytes();
            altered[index] = if altered[index] == b'A' { b'B' } else { b'A' };
            assert!(
                seal.open(&alice, std::str::from_utf8(&altered).unwrap())
                    .is_none(),
                "byte {index}"
            );
        }
        clock.advance(Duration::from_secs(60));
        assert!(seal.open(&alice, &id).is_none(), "it has ended");
    }

    #[test]
    fn id_survives_a_new_key_while_the_old_one_opens() {
        let clock = Arc::new(ManualClock::default());
        let alice = Identity::new("t", "alice").unwrap();
        let old = seal_with(&clock, KeyRing::new(key("a"), Vec::new()));
        let id = old
            .seal(&alice, &old.begin("s", handshake(json!({}))))
            .unwrap();
        assert!(
            seal_with(&clock, KeyRing::new(key("b"), vec![key("a")]))
                .open(&alice, &id)
                .is_some()
        );
        assert!(
            seal_with(&clock, KeyRing::new(key("b"), Vec::new()))
                .open(&alice, &id)
                .is_none()
        );
    }

    #[test]
    fn ids_are_short_whatever_the_client_says() {
        let clock = Arc::new(ManualClock::default());
        let seal = seal_with(&clock, KeyRing::new(key("a"), Vec::new()));
        let alice = Identity::new("t", "alice").unwrap();
        let noisy = json!({
            "experimental": {"x": {"y": "z".repeat(9000)}},
            "extensions": {TASKS_EXTENSION_ID: {}, "com.example/other": {"y": "z".repeat(9000)}},
        });
        let id = seal
            .seal(&alice, &seal.begin("s", handshake(noisy)))
            .unwrap();
        assert!(id.len() < 1024, "{}", id.len());
        assert!(
            seal.open(&alice, &id)
                .unwrap()
                .handshake
                .capabilities
                .supports_tasks()
        );
        assert!(seal.open(&alice, &"A".repeat(MAX_ID + 1)).is_none());
    }
}
