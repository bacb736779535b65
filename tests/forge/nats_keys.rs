//! A server that knows its users by their keys.
//!
//! A client with the file of credentials is let in, and no other.

use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use helmdeck_events::nats::{Nats, NatsOptions};
use helmdeck_events::{Message, Sink as _, SinkError};
use helmdeck_testkit::{Nats as Server, STUCK};
use serde_json::{Value, json};

use super::nats::guard;

/// What stands before a key, by whose it is, and before a seed: as NATS writes them.
const OPERATOR: u8 = 14 << 3;
const ACCOUNT: u8 = 0;
const USER: u8 = 20 << 3;
const SEED: u8 = 18 << 3;

/// Runs openssl in a folder.
fn openssl(folder: &Path, arguments: &[&str]) -> Vec<u8> {
    let output = Command::new("openssl")
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

/// The checksum of XMODEM.
fn checksum(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |sum, byte| {
        (0..8).fold(sum ^ (u16::from(*byte) << 8), |sum, _| {
            if sum & 0x8000 == 0 {
                sum << 1
            } else {
                (sum << 1) ^ 0x1021
            }
        })
    })
}

/// Writes bytes with their checksum in base 32 (RFC 4648), without padding.
fn base32(mut bytes: Vec<u8>) -> String {
    bytes.extend(checksum(&bytes).to_le_bytes());
    let bits: Vec<u8> = bytes
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1))
        .collect();
    let letter = |five: &[u8]| {
        let value = (0..5).fold(0, |value, at| {
            value << 1 | five.get(at).copied().unwrap_or(0)
        });
        char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[usize::from(value)])
    };
    bits.chunks(5).map(letter).collect()
}

/// The key pair of a user, account or operator.
struct Key<'a> {
    folder: &'a Path,
    name: &'a str,
    whose: u8,
}

impl<'a> Key<'a> {
    fn new(folder: &'a Path, name: &'a str, whose: u8) -> Self {
        openssl(
            folder,
            &[
                "genpkey",
                "-algorithm",
                "ed25519",
                "-outform",
                "DER",
                "-out",
                name,
            ],
        );
        Self {
            folder,
            name,
            whose,
        }
    }

    fn public(&self) -> String {
        let der = openssl(
            self.folder,
            &[
                "pkey", "-in", self.name, "-inform", "DER", "-pubout", "-outform", "DER",
            ],
        );
        base32([&[self.whose], &der[der.len() - 32..]].concat())
    }

    fn seed(&self) -> String {
        let der = std::fs::read(self.folder.join(self.name)).unwrap();
        base32(
            [
                &[SEED | self.whose >> 5, (self.whose & 31) << 3],
                &der[der.len() - 32..],
            ]
            .concat(),
        )
    }

    /// Signs claims about another key.
    fn says(&self, of: &Key<'_>, what: Value) -> String {
        let mut what = what;
        what["version"] = json!(2);
        let claims = json!({"jti": "1", "iat": 1_700_000_000, "iss": self.public(), "sub": of.public(), "name": of.name, "nats": what});
        let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let text = format!(
            "{}.{}",
            part(&json!({"typ": "JWT", "alg": "ed25519-nkey"})),
            part(&claims)
        );
        std::fs::write(self.folder.join("text"), &text).unwrap();
        let sign = [
            "pkeyutl", "-sign", "-rawin", "-keyform", "DER", "-inkey", self.name, "-in", "text",
        ];
        format!(
            "{text}.{}",
            BASE64_URL_SAFE_NO_PAD.encode(openssl(self.folder, &sign))
        )
    }
}

/// Writes the credentials of a user.
fn credentials(folder: &Path, account: &Key<'_>, user: &Key<'_>) -> std::path::PathBuf {
    let jwt = account.says(
        user,
        json!({"type": "user", "subs": -1, "data": -1, "payload": -1}),
    );
    let block = |name: &str, text: &str| {
        format!("-----BEGIN {name}-----\n{text}\n------END {name}------\n\n")
    };
    let path = folder.join(format!("{}.creds", user.name));
    std::fs::write(
        &path,
        block("NATS USER JWT", &jwt) + &block("USER NKEY SEED", &user.seed()),
    )
    .unwrap();
    path
}

#[test]
fn only_valid_credentials_are_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let key = |name, whose| Key::new(folder, name, whose);
    let (operator, system, account) = (
        key("operator", OPERATOR),
        key("system", ACCOUNT),
        key("account", ACCOUNT),
    );
    let (user, stranger) = (key("user", USER), key("stranger", ACCOUNT));
    let limits = |stored: i32| {
        json!({"type": "account", "limits": {"subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "conn": -1,
            "leaf": -1, "wildcards": true, "mem_storage": stored, "disk_storage": stored, "streams": stored, "consumer": stored}})
    };
    let server = Server::configured(&format!(
        "operator: {}\nresolver: MEMORY\nsystem_account: {}\nresolver_preload: {{ {}: {}, {}: {} }}\n",
        operator.says(&operator, json!({"type": "operator"})),
        system.public(),
        system.public(),
        operator.says(&system, limits(0)),
        account.public(),
        operator.says(&account, limits(-1)),
    ));
    let message = |id: &str| Message {
        subject: "sx9.forge.memory.learning".to_owned(),
        id: id.to_owned(),
        body: b"{}".to_vec(),
    };
    let open = |credentials| {
        let options = NatsOptions {
            credentials,
            ..NatsOptions::new(server.url(), "sx9.forge.memory.>")
        };
        Nats::open(options, &guard(&server.url())).unwrap()
    };
    let stored = open(Some(credentials(folder, &account, &user))).publish(&message("1"), STUCK);
    assert!(
        matches!(stored, Ok(receipt) if receipt.sequence == 1),
        "{stored:?}"
    );
    // Signed by an account that the server's operator does not know.
    for wrong in [None, Some(credentials(folder, &stranger, &user))] {
        let refused = open(wrong).publish(&message("2"), STUCK);
        assert!(
            matches!(refused, Err(SinkError::Unreachable(_))),
            "{refused:?}"
        );
    }
}
