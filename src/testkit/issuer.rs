//! Issuers of JSON Web Tokens: fresh keys, and tokens of any shape, including invalid ones.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot make its keys has failed"
)]

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{self, KeySize};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256,
    RsaPublicKeyComponents,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

/// A key that signs tokens.
#[derive(Debug)]
pub struct Issuer {
    key: Key,
    /// The id of the key, in its public form and in the header of tokens.
    pub key_id: String,
}

#[derive(Debug)]
enum Key {
    Shared(Vec<u8>),
    Rsa(Box<rsa::KeyPair>),
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
}

impl Issuer {
    /// Makes an issuer with a shared secret (HS256).
    #[must_use]
    pub fn shared(secret: &[u8]) -> Self {
        Self {
            key: Key::Shared(secret.to_vec()),
            key_id: "shared".to_owned(),
        }
    }

    /// Makes an issuer with a new RSA key of 2048 bits (RS256).
    #[must_use]
    pub fn rsa(key_id: &str) -> Self {
        Self::of(
            Key::Rsa(Box::new(rsa::KeyPair::generate(KeySize::Rsa2048).unwrap())),
            key_id,
        )
    }

    /// Makes an issuer with a new key on P-256 (ES256).
    #[must_use]
    pub fn ec(key_id: &str) -> Self {
        Self::of(
            Key::Ec(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap()),
            key_id,
        )
    }

    /// Makes an issuer with a new Ed25519 key (`EdDSA`).
    #[must_use]
    pub fn ed(key_id: &str) -> Self {
        Self::of(Key::Ed(Ed25519KeyPair::generate().unwrap()), key_id)
    }

    fn of(key: Key, key_id: &str) -> Self {
        Self {
            key,
            key_id: key_id.to_owned(),
        }
    }

    /// Returns the algorithm that the key is for.
    #[must_use]
    pub const fn algorithm(&self) -> &'static str {
        match self.key {
            Key::Shared(_) => "HS256",
            Key::Rsa(_) => "RS256",
            Key::Ec(_) => "ES256",
            Key::Ed(_) => "EdDSA",
        }
    }

    /// Returns the public key as a member of a JSON Web Key set.
    #[must_use]
    pub fn jwk(&self) -> Value {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let mut jwk = match &self.key {
            Key::Shared(secret) => json!({"kty": "oct", "k": text(secret)}),
            Key::Rsa(pair) => {
                let public = RsaPublicKeyComponents::<Vec<u8>>::from(pair.public_key());
                json!({"kty": "RSA", "n": text(&public.n), "e": text(&public.e)})
            }
            Key::Ec(pair) => {
                let point = pair.public_key().as_ref();
                json!({"kty": "EC", "crv": "P-256", "x": text(&point[1..33]), "y": text(&point[33..])})
            }
            Key::Ed(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": text(pair.public_key().as_ref())})
            }
        };
        jwk["kid"] = self.key_id.as_str().into();
        jwk["alg"] = self.algorithm().into();
        jwk["use"] = "sig".into();
        jwk
    }

    /// Returns the RSA public key in the common forms. Empty for other keys.
    ///
    /// The forms are DER (X.509), DER (PKCS #1), and PEM with and without a final line feed.
    #[must_use]
    pub fn public_forms(&self) -> Vec<Vec<u8>> {
        let Key::Rsa(pair) = &self.key else {
            return Vec::new();
        };
        let der: PublicKeyX509Der<'_> = pair.public_key().as_der().unwrap();
        let base64 = STANDARD.encode(der.as_ref());
        let lines: Vec<_> = base64
            .as_bytes()
            .chunks(64)
            .map(|line| str::from_utf8(line).unwrap())
            .collect();
        let pem = format!(
            "-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n",
            lines.join("\n")
        );
        vec![
            der.as_ref().to_vec(),
            pair.public_key().as_ref().to_vec(),
            pem.clone().into_bytes(),
            pem.trim_end().as_bytes().to_vec(),
        ]
    }

    /// Signs claims with a correct header.
    #[must_use]
    pub fn token(&self, claims: &Value) -> String {
        self.token_with(
            &json!({"alg": self.algorithm(), "typ": "JWT", "kid": self.key_id}),
            claims,
        )
    }

    /// Signs claims with any header.
    #[must_use]
    pub fn token_with(&self, header: &Value, claims: &Value) -> String {
        self.token_of(&header.to_string(), &claims.to_string())
    }

    /// Signs the given texts of header and claims, valid or not.
    #[must_use]
    pub fn token_of(&self, header: &str, claims: &str) -> String {
        let message = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(header),
            URL_SAFE_NO_PAD.encode(claims)
        );
        format!(
            "{message}.{}",
            URL_SAFE_NO_PAD.encode(self.sign(message.as_bytes()))
        )
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.key {
            Key::Shared(secret) => hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message)
                .as_ref()
                .to_vec(),
            Key::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature)
                    .unwrap();
                signature
            }
            Key::Ec(pair) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Key::Ed(pair) => pair.sign(message).as_ref().to_vec(),
        }
    }
}

/// Returns a key set of these issuers' public keys.
#[must_use]
pub fn key_set(issuers: &[&Issuer]) -> String {
    json!({"keys": issuers.iter().map(|issuer| issuer.jwk()).collect::<Vec<_>>()}).to_string()
}
