//! An entry of the registry: one version of one pack, read or not yet read.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use helmdeck_core::manifest::ManifestError;
use helmdeck_core::{Builtin, Code, Error, Manifest, Need, PackName, Result, Version};

use crate::engine::Inner;
use crate::registry::{PackSource, Registered};

/// One version of one pack in the registry.
///
/// A built-in pack is read when it is first needed: a server starts with dozens, and uses few. What
/// a start needs of them is known without: name, version, and the condition for being listed.
pub(crate) struct PackEntry {
    pub(crate) name: PackName,
    pub(crate) version: Version,
    pub(crate) source: PackSource,
    /// The manifest's file.
    pub(crate) file: Cow<'static, str>,
    /// Condition for the pack to be listed.
    pub(crate) need: Need,
    /// What it is read from; `None` if it was read at once.
    builtin: Option<Builtin>,
    registered: OnceLock<Result<Arc<Registered>, ManifestError>>,
}

impl PackEntry {
    /// Returns the entry of a pack that was read.
    pub(crate) fn read(registered: Registered, need: Need) -> Self {
        let manifest = &registered.manifest;
        Self {
            name: manifest.name.clone(),
            version: manifest.version,
            source: registered.source,
            file: manifest.file.clone().into(),
            need,
            builtin: None,
            registered: OnceLock::from(Ok(Arc::new(registered))),
        }
    }

    /// Returns the entry of a built-in pack that is read later; `None` if its manifest has to be
    /// read now.
    pub(crate) fn unread(builtin: &Builtin) -> Option<Self> {
        let (name, version) = Manifest::head(builtin.manifest)?;
        Some(Self {
            name,
            version,
            source: PackSource::Builtin,
            file: builtin.file.into(),
            need: builtin.need.clone(),
            builtin: Some(builtin.clone()),
            registered: OnceLock::new(),
        })
    }

    /// Returns the pack, which is read now if nobody needed it before.
    ///
    /// # Errors
    /// Why the manifest of a built-in pack is refused.
    pub(crate) fn registered(
        &self,
        inner: &Arc<Inner>,
    ) -> Result<&Arc<Registered>, &ManifestError> {
        let read = || {
            let refuse = |message: &str| ManifestError {
                file: self.file.to_string(),
                line: None,
                message: message.into(),
            };
            let builtin = self
                .builtin
                .as_ref()
                .ok_or_else(|| refuse("the pack was not read"))?;
            let manifest =
                Manifest::parse_builtin(builtin.file, builtin.manifest, builtin.schemas)?;
            let (handler, contract) = (Arc::clone(&builtin.handler), manifest.contract(&[]));
            Ok(Arc::new(inner.register(
                manifest,
                handler,
                contract,
                None,
                PackSource::Builtin,
            )))
        };
        self.registered.get_or_init(read).as_ref()
    }

    /// As [`PackEntry::registered`], with an error for callers.
    ///
    /// # Errors
    /// `internal` if the manifest of a built-in pack is refused.
    pub(crate) fn callable(&self, inner: &Arc<Inner>) -> Result<Arc<Registered>> {
        self.registered(inner).map(Arc::clone).map_err(|error| {
            let message = format!(
                "pack \"{}\" cannot be called: its manifest is refused: {error}",
                self.name
            );
            Error::new(Code::Internal, message)
        })
    }

    /// Returns the pack if it was read.
    pub(crate) fn known(&self) -> Option<&Arc<Registered>> {
        self.registered.get()?.as_ref().ok()
    }

    /// Returns why the pack could not be read, if that was tried.
    pub(crate) fn refusal(&self) -> Option<&ManifestError> {
        self.registered.get()?.as_ref().err()
    }

    /// Returns whether two entries stand for the same contract.
    ///
    /// The manifest of a built-in pack does not change while a process runs.
    pub(crate) fn same_contract(&self, other: &Self) -> bool {
        match (self.known(), other.known()) {
            _ if std::ptr::eq(self, other) => true,
            (Some(one), Some(other)) => one.contract == other.contract,
            _ => false,
        }
    }
}
