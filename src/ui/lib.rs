#![doc = include_str!("README.md")]

mod assets;
mod chart;
mod escape;
mod frame;
mod json;
mod live;
mod pages;
mod request;
mod rest;
mod schema_form;
mod shown;
mod sign_in;

use std::sync::Arc;

use axum::Router;
use helmdeck_core::{Caller, Clock, hex};
use sha2::{Digest, Sha256};

use crate::rest::Rest;

pub use crate::sign_in::{sign_in_page, signed_in_page};

/// Settings of the pages.
#[derive(Clone)]
pub struct Settings {
    /// Whether the engine has a store, so that the pages about memory are there.
    pub memory: bool,
    /// Whether there is a system database, which has the API tokens.
    pub tokens: bool,
    /// Whether there is a vault.
    pub vault: bool,
    /// Whether callers must sign in.
    pub signs_in: bool,
    /// Secret bytes that the tokens of forms are made from. Servers with the same ones accept each
    /// other's forms.
    pub form_key: [u8; 32],
    /// The time.
    pub clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("memory", &self.memory)
            .field("signs_in", &self.signs_in)
            .finish_non_exhaustive()
    }
}

/// State of the pages. Cloning is cheap.
#[derive(Clone)]
struct Ui {
    rest: Rest,
    memory: bool,
    tokens: bool,
    vault: bool,
    signs_in: bool,
    form_key: [u8; 32],
    clock: Arc<dyn Clock>,
}

impl Ui {
    /// Returns the token that forms of a caller must send back, so that no other site can send
    /// them.
    fn form_token(&self, caller: &Caller) -> String {
        self.seal(caller, "form", "")
    }

    /// Returns a seal of a text for a caller and a purpose, which nobody else can make.
    fn seal(&self, caller: &Caller, purpose: &str, text: &str) -> String {
        let mut digest = Sha256::new();
        // The key has a fixed length and is secret; the parts after it have their lengths in front.
        digest.update(self.form_key);
        for part in [
            caller.identity.tenant(),
            caller.identity.user(),
            purpose,
            text,
        ] {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        hex(&digest.finalize()[..16])
    }
}

/// Returns the routes of the pages, all below `/ui`.
///
/// `rest` has the REST routes: the pages get and change everything through them, with the rights of
/// their caller. Each request needs a [`Caller`] in its extensions.
pub fn router(rest: Router, settings: Settings) -> Router {
    let Settings {
        memory,
        tokens,
        vault,
        signs_in,
        form_key,
        clock,
    } = settings;
    pages::routes().with_state(Ui {
        rest: Rest::new(rest),
        memory,
        tokens,
        vault,
        signs_in,
        form_key,
        clock,
    })
}
