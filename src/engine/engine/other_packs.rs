//! Packs that a handler calls.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use helmdeck_core::call::CallingPack;
use helmdeck_core::context::Packs;
use helmdeck_core::memory::NoMemory;
use helmdeck_core::{Call, Code, Context, Error, Json, Outcome, PackName, Result, Version};

use super::{Engine, Inner};
use crate::layers::credentials::OuterSecrets;

/// The deepest chain of packs that call packs.
const MAX_DEPTH: u8 = 8;

/// The other packs, for a handler. Weak, because the engine holds the handler.
pub(super) struct OtherPacks(pub(super) Weak<Inner>);

#[async_trait]
impl Packs for OtherPacks {
    async fn call(&self, from: &Context, pack: &PackName, version: Option<Version>, input: Json) -> Result<Outcome> {
        let Some(engine) = self.0.upgrade().map(Engine) else {
            return Err(Error::new(Code::Cancelled, "the engine is shutting down"));
        };
        if from.depth >= MAX_DEPTH {
            return Err(Error::new(Code::InvalidInput, format!("packs call packs more than {MAX_DEPTH} deep")));
        }
        let mut call = Call::new(pack.clone(), input.bytes().clone(), Arc::clone(&from.identity));
        call.version = version;
        call.deadline = from.deadline;
        call.cancel.clone_from(&from.cancel);
        call.progress.clone_from(&from.progress);
        call.depth = from.depth + 1;
        call.stage.secrets = from.secrets.clone().map(|secrets| Arc::new(OuterSecrets(secrets)) as _);
        if engine.0.memory.is_some() {
            let shared = matches!(from.memory, Err(NoMemory::Shared));
            let grants = from.secrets.as_ref().filter(|_| shared).map_or(&[][..], |secrets| secrets.grants());
            let calling = CallingPack { name: from.pack.clone(), shared, grants: grants.to_vec() };
            call.stage.called_by = Some(Arc::new(calling));
        }
        Box::pin(engine.call(call)).await
    }
}
