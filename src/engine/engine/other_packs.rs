//! Packs that a handler calls.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use helmdeck_core::call::CallingPack;
use helmdeck_core::context::Packs;
use helmdeck_core::memory::NoMemory;
use helmdeck_core::{Call, Code, Context, Error, Json, Outcome, PackName, Result, Version};

use crate::call_runner::CallRunner;
use crate::layers::credentials::OuterSecrets;

/// Limit of nested calls: packs that call packs.
const MAX_DEPTH: u8 = 8;

/// Handle by which a handler calls other packs.
pub(super) struct OtherPacks {
    /// Weak, because the engine holds the handler.
    runner: Weak<dyn CallRunner>,
    /// Gate 1 is open.
    has_memory: bool,
}

impl OtherPacks {
    pub(super) fn new(runner: Weak<dyn CallRunner>, has_memory: bool) -> Self {
        Self { runner, has_memory }
    }
}

#[async_trait]
impl Packs for OtherPacks {
    async fn call(
        &self,
        from: &Context,
        pack: &PackName,
        version: Option<Version>,
        input: Json,
    ) -> Result<Outcome> {
        let Some(runner) = self.runner.upgrade() else {
            return Err(Error::new(Code::Cancelled, "the engine is shutting down"));
        };
        if from.depth >= MAX_DEPTH {
            return Err(Error::new(
                Code::InvalidInput,
                format!("packs call packs more than {MAX_DEPTH} deep"),
            ));
        }
        let mut call = Call::new(
            pack.clone(),
            input.bytes().clone(),
            Arc::clone(&from.identity),
        );
        call.version = version;
        call.deadline = from.deadline;
        call.cancel.clone_from(&from.cancel);
        call.progress.clone_from(&from.progress);
        call.depth = from.depth + 1;
        call.behind = from.behind;
        call.correlation.clone_from(&from.correlation);
        call.stage.secrets = from
            .secrets
            .clone()
            .map(|secrets| Arc::new(OuterSecrets(secrets)) as _);
        if self.has_memory {
            let shared = matches!(from.memory, Err(NoMemory::Shared));
            let grants = from
                .secrets
                .as_ref()
                .filter(|_| shared)
                .map_or(&[][..], |secrets| secrets.grants());
            let calling = CallingPack {
                name: from.pack.clone(),
                shared,
                grants: grants.to_vec(),
            };
            call.stage.called_by = Some(Arc::new(calling));
        }
        runner.run_call(call).await
    }
}
