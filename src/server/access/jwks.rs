//! Public keys of the issuer of tokens: a JSON Web Key Set (RFC 7517), from a file or a URL,
//! refreshed.

use parking_lot::RwLock;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use helmdeck_core::Clock;
use helmdeck_egress::Egress;
use http::StatusCode;
use jsonwebtoken::{Algorithm, DecodingKey};
use reqwest::Url;
use serde::Deserialize;
use serde_json::Value;

/// Age at which keys are read again.
///
/// A withdrawn key is accepted for at most this time, plus the time for which a verified token is
/// cached.
pub(crate) const REFRESH: Duration = Duration::from_secs(5 * 60);
/// Shortest time between two reads.
pub(crate) const PAUSE: Duration = Duration::from_secs(30);
/// Time limit of a read.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of a key set.
const MAX_BYTES: usize = 256 << 10;
/// Maximum number of keys in a set.
const MAX_KEYS: usize = 100;

/// A public key with its only algorithm.
#[derive(Debug)]
struct PublicKey {
    id: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
}

/// The usable keys of a set.
#[derive(Debug)]
pub(crate) struct KeySet(Vec<PublicKey>);

/// A key in its wire format (RFC 7517, section 4; RFC 7518, section 6; RFC 8037).
#[derive(Deserialize)]
struct JsonWebKey {
    kty: String,
    #[serde(rename = "use")]
    purpose: Option<String>,
    key_ops: Option<Vec<String>>,
    alg: Option<String>,
    kid: Option<String>,
    crv: Option<String>,
    #[serde(default)]
    n: String,
    #[serde(default)]
    e: String,
    #[serde(default)]
    x: String,
    #[serde(default)]
    y: String,
    /// The private part, which a public key set must not contain.
    d: Option<Value>,
}

impl KeySet {
    /// Reads a set and keeps the keys that can verify tokens.
    ///
    /// # Errors
    /// A message that repeats nothing of the set: it is malformed, or no key of it can be used.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let set: Value = serde_json::from_slice(bytes).map_err(|error| {
            format!(
                "it is not JSON (line {}, column {})",
                error.line(),
                error.column()
            )
        })?;
        let keys = set["keys"]
            .as_array()
            .ok_or("it is no key set: it has no list \"keys\"")?;
        if keys.len() > MAX_KEYS {
            return Err(format!("it has more than {MAX_KEYS} keys"));
        }
        let mut usable = Vec::new();
        let mut reasons = Vec::new();
        for (index, key) in keys.iter().enumerate() {
            match serde_json::from_value::<JsonWebKey>(key.clone())
                .map_err(|_| "it is malformed")
                .and_then(JsonWebKey::read)
            {
                Ok(key) => usable.push(key),
                Err(reason) => reasons.push(format!("key {}: {reason}", index + 1)),
            }
        }
        if usable.is_empty() {
            let why = if reasons.is_empty() {
                "it is empty".to_owned()
            } else {
                reasons.join("; ")
            };
            return Err(format!("it holds no key that can be used ({why})"));
        }
        for reason in reasons {
            tracing::debug!(%reason, "a key of the key set is left out");
        }
        Ok(Self(usable))
    }

    /// Returns how many keys there are.
    pub(crate) const fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the keys for a token: those with its key id, or without one the only key of its
    /// algorithm.
    pub(crate) fn candidates(&self, algorithm: Algorithm, id: Option<&str>) -> Vec<&DecodingKey> {
        let fits = |key: &&PublicKey| {
            key.algorithm == algorithm && (id.is_none() || key.id.as_deref() == id)
        };
        let keys: Vec<_> = self.0.iter().filter(fits).map(|key| &key.key).collect();
        if id.is_none() && keys.len() > 1 {
            Vec::new()
        } else {
            keys
        }
    }
}

impl JsonWebKey {
    fn read(self) -> Result<PublicKey, &'static str> {
        if self.d.is_some() {
            return Err("it is a private key, which belongs to its issuer alone");
        }
        if self
            .purpose
            .as_deref()
            .is_some_and(|purpose| purpose != "sig")
        {
            return Err("it is not for signatures");
        }
        if self
            .key_ops
            .as_ref()
            .is_some_and(|ops| !ops.iter().any(|op| op == "verify"))
        {
            return Err("it is not for checking signatures");
        }
        let bytes = |text: &str| {
            URL_SAFE_NO_PAD
                .decode(text)
                .map_err(|_| "a number of it is not base64url")
        };
        let (algorithm, name, key) = match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) => {
                let modulus = bytes(&self.n)?;
                let size = modulus.iter().skip_while(|byte| **byte == 0).count();
                if !(256..=1024).contains(&size) {
                    return Err("its RSA modulus is not of 2048 to 8192 bits");
                }
                let key = DecodingKey::from_rsa_raw_components(&modulus, &bytes(&self.e)?);
                (Algorithm::RS256, "RS256", key)
            }
            ("EC", Some("P-256")) => {
                if bytes(&self.x)?.len() != 32 || bytes(&self.y)?.len() != 32 {
                    return Err("its point is not one of P-256");
                }
                let key = DecodingKey::from_ec_components(&self.x, &self.y)
                    .map_err(|_| "its point is malformed")?;
                (Algorithm::ES256, "ES256", key)
            }
            ("OKP", Some("Ed25519")) => {
                if bytes(&self.x)?.len() != 32 {
                    return Err("its point is not one of Ed25519");
                }
                let key = DecodingKey::from_ed_components(&self.x)
                    .map_err(|_| "its point is malformed")?;
                (Algorithm::EdDSA, "EdDSA", key)
            }
            ("oct", _) => {
                return Err("it is a shared secret, which does not belong into a key set");
            }
            _ => return Err("its kind is none of RSA, EC P-256 and OKP Ed25519"),
        };
        // RFC 9864 names EdDSA with this curve "Ed25519".
        let named = |alg: &str| alg == name || (algorithm == Algorithm::EdDSA && alg == "Ed25519");
        if self.alg.as_deref().is_some_and(|alg| !named(alg)) {
            return Err("its algorithm is none of RS256, ES256 and EdDSA");
        }
        Ok(PublicKey {
            id: self.kid,
            algorithm,
            key,
        })
    }
}

/// Source of a key set.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// A file of this machine.
    File(PathBuf),
    /// A URL, and the egress client that allows it.
    Url(Url, Egress),
}

impl Source {
    async fn read(&self) -> Result<KeySet, String> {
        let bytes = match self {
            Self::File(path) => read_file(path.clone()).await?,
            Self::Url(url, egress) => match tokio::time::timeout(TIMEOUT, fetch(url, egress)).await
            {
                Ok(bytes) => bytes?,
                Err(_) => return Err(format!("no answer within {} s", TIMEOUT.as_secs())),
            },
        };
        KeySet::parse(&bytes)
    }
}

async fn read_file(path: PathBuf) -> Result<Vec<u8>, String> {
    use std::io::Read;

    let read = move || {
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path)?;
        file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        Ok::<_, std::io::Error>(bytes)
    };
    let bytes = tokio::task::spawn_blocking(read)
        .await
        .map_err(|_| "the program is ending".to_owned())?;
    let bytes = bytes.map_err(|error| error.to_string())?;
    if bytes.len() > MAX_BYTES {
        Err(too_large())
    } else {
        Ok(bytes)
    }
}

async fn fetch(url: &Url, egress: &Egress) -> Result<Vec<u8>, String> {
    let client = egress.client().await.map_err(|error| error.to_string())?;
    // The URL may be confidential to the operator, so no error repeats it.
    let failed = |error: reqwest::Error| match helmdeck_egress::refusal(&error) {
        Some(refused) => refused.to_string(),
        None => error.without_url().to_string(),
    };
    let mut answer = client.get(url.clone()).send().await.map_err(failed)?;
    if answer.status() != StatusCode::OK {
        return Err(format!("the answer was {}", answer.status()));
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(failed)? {
        if bytes.len() + chunk.len() > MAX_BYTES {
            return Err(too_large());
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

fn too_large() -> String {
    format!("it is larger than {MAX_BYTES} bytes")
}

/// Current keys. They are read when a token needs them; there is no background task.
pub(crate) struct Jwks {
    source: Source,
    clock: Arc<dyn Clock>,
    current: RwLock<Option<Current>>,
    /// The generation of `current`, readable without its lock.
    generation: AtomicU64,
    /// When the last read began. The lock also allows only one read at a time.
    tried: tokio::sync::Mutex<Option<Duration>>,
}

/// A key set with its generation and the time it was read.
#[derive(Debug, Clone)]
pub(crate) struct Current {
    /// The keys.
    pub(crate) set: Arc<KeySet>,
    /// Grows with each read. A token that was verified under another number is verified again.
    pub(crate) generation: u64,
    read_at: Duration,
}

helmdeck_core::redacted_debug!(Jwks, this => source = this.source);

impl Jwks {
    pub(crate) fn new(source: Source, clock: Arc<dyn Clock>) -> Self {
        Self {
            source,
            clock,
            current: RwLock::default(),
            generation: AtomicU64::new(0),
            tried: tokio::sync::Mutex::default(),
        }
    }

    /// Returns the current keys, `None` if none could be read yet.
    pub(crate) fn current(&self) -> Option<Current> {
        self.current.read().clone()
    }

    /// Returns the generation of the current keys.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns the keys for a token, refreshed if they are old or lack its key.
    ///
    /// If the refresh fails, the current keys stay.
    pub(crate) async fn keys_for(&self, algorithm: Algorithm, id: Option<&str>) -> Option<Current> {
        let fits = |current: &Current| !current.set.candidates(algorithm, id).is_empty();
        let fresh =
            |current: &Current| self.clock.monotonic().saturating_sub(current.read_at) < REFRESH;
        match self.current() {
            Some(current) if fresh(&current) && fits(&current) => Some(current),
            _ => {
                self.refresh().await;
                self.current()
            }
        }
    }

    async fn refresh(&self) {
        let mut tried = self.tried.lock().await;
        let now = self.clock.monotonic();
        if tried.is_some_and(|before| now.saturating_sub(before) < PAUSE) {
            return;
        }
        *tried = Some(now);
        if let Err(reason) = self.read().await {
            tracing::warn!(%reason, "the key set for tokens cannot be read; what was read before stays in force");
        }
    }

    /// Reads the keys now and returns their number.
    ///
    /// # Errors
    /// A message with the reason; the current keys stay.
    pub(crate) async fn read(&self) -> Result<usize, String> {
        let set = Arc::new(self.source.read().await?);
        let (count, read_at) = (set.len(), self.clock.monotonic());
        let mut current = self.current.write();
        let generation = current.as_ref().map_or(0, |current| current.generation + 1);
        *current = Some(Current {
            set,
            generation,
            read_at,
        });
        self.generation.store(generation, Ordering::Release);
        Ok(count)
    }
}

#[cfg(test)]
mod tests;
