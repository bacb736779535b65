//! The registry: the packs with their versions, and the list of refused manifests.
//!
//! A reader takes a snapshot and never waits for a reload; a bad manifest never takes the others
//! down.

use helmdeck_core::suggest::did_you_mean;
use helmdeck_core::text;
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use helmdeck_core::manifest::{CacheSpec, Example, ManifestError, Metadata, Timing};
use helmdeck_core::{Code, Error, Manifest, PackName, Result, Version};
use serde::Serialize;
use serde_json::Value;

use crate::cache::pack::PackCache;
use crate::entry::PackEntry;
use crate::jobs::RunPlan;
use crate::layers::credentials::CredentialsLayer;
use crate::layers::validate_input::ValidateInputLayer;
use crate::pipeline::PackService;
use helmdeck_mcp_client::Listing;

/// Source of a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PackSource {
    /// Part of the binary.
    Builtin,
    /// A manifest in the operator's packs folder.
    Folder,
    /// A tool of an MCP server.
    Mcp,
}

/// One version of one pack, ready to be called.
pub(crate) struct Registered {
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) source: PackSource,
    pub(crate) contract: [u8; 32],
    pub(crate) service: PackService,
    pub(crate) cache: Option<Arc<PackCache>>,
    pub(crate) validate_input: ValidateInputLayer,
    pub(crate) credentials: Option<CredentialsLayer>,
    /// Name of the service that the handler asks, if it is known.
    pub(crate) upstream: Option<String>,
}

/// Snapshot of the registry.
#[derive(Default, Clone)]
pub(crate) struct Snapshot {
    /// Versions ascending; never empty.
    pub(crate) packs: BTreeMap<PackName, Vec<Arc<PackEntry>>>,
    /// The names as they are where dots are not allowed, with the pack.
    pub(crate) without_dots: HashMap<String, PackName>,
    pub(crate) refused: Vec<ManifestError>,
    /// Packs over a tool of a server that was not queried yet, with the server's name.
    pub(crate) pending: BTreeMap<PackName, String>,
    /// The list of each MCP server that this snapshot was made of.
    pub(crate) listings: BTreeMap<String, Arc<Listing>>,
    /// Names whose manifest or tool was refused, with the reason.
    pub(crate) refused_names: BTreeMap<String, ManifestError>,
    /// Packs whose manifest is refused now; their last good version stays.
    pub(crate) outdated: BTreeMap<(PackName, Version), ManifestError>,
    /// Packs that are not listed, with what they wait for.
    pub(crate) waiting: BTreeMap<PackName, &'static str>,
    /// Number of earlier snapshots.
    pub(crate) revision: u64,
}

impl Snapshot {
    /// Returns whether this was made of this list of a server.
    pub(crate) fn follows(&self, server: &str, listing: &Arc<Listing>) -> bool {
        self.listings
            .get(server)
            .is_some_and(|known| Arc::ptr_eq(known, listing))
    }

    /// Returns whether another snapshot was made of the same list of a server.
    pub(crate) fn same_listing(&self, other: &Self, server: &str) -> bool {
        match (self.listings.get(server), other.listings.get(server)) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }

    /// Records a name whose manifest is refused.
    pub(crate) fn note_refused(&mut self, name: Option<String>, error: &ManifestError) {
        self.refused_names
            .extend(name.map(|name| (name, error.clone())));
    }

    /// Keeps the last good version of a manifest that is refused now.
    pub(crate) fn keep(&mut self, previous: &Self, file: &str, error: &ManifestError) {
        let from_file =
            |pack: &&Arc<PackEntry>| pack.source == PackSource::Folder && pack.file == file;
        for pack in previous.packs.values().flatten().filter(from_file) {
            if self.conflict(&pack.name, pack.version).is_none() {
                self.add(Arc::clone(pack));
                self.outdated
                    .insert((pack.name.clone(), pack.version), error.clone());
            }
        }
    }

    /// Returns why a pack with this name and version cannot be added, if it cannot.
    pub(crate) fn conflict(&self, name: &PackName, version: Version) -> Option<String> {
        let there = self.packs.get(name).map(Vec::as_slice).unwrap_or_default();
        if let Some(other) = there.iter().find(|pack| pack.version == version) {
            let file = &other.file;
            return Some(format!(
                "pack \"{name}\" {version} is already defined by {file}; give this one another version"
            ));
        }
        let spelled = name.without_dots();
        let other = self
            .without_dots
            .get(&spelled)
            .filter(|other| *other != name)?;
        Some(format!(
            "pack \"{name}\" and pack \"{other}\" have the same name where dots are not allowed ({spelled}); rename one"
        ))
    }

    /// Adds a version of a pack.
    pub(crate) fn add(&mut self, pack: Arc<PackEntry>) {
        self.without_dots
            .entry(pack.name.without_dots())
            .or_insert_with(|| pack.name.clone());
        self.packs.entry(pack.name.clone()).or_default().push(pack);
    }

    /// Returns whether an older version stays although this manifest is refused.
    pub(crate) fn is_kept(&self, error: &ManifestError) -> bool {
        self.outdated.values().any(|kept| kept == error)
    }
}

/// The registry.
#[derive(Default)]
pub(crate) struct Registry(RwLock<Arc<Snapshot>>);

impl Registry {
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.0.read())
    }

    pub(crate) fn replace(&self, mut snapshot: Snapshot) {
        let mut current = self.0.write();
        snapshot.revision = current.revision + 1;
        *current = Arc::new(snapshot);
    }

    pub(crate) fn revision(&self) -> u64 {
        self.0.read().revision
    }

    /// Returns a pack in a version, the highest if none is named.
    ///
    /// # Errors
    /// `not_found`, with the nearest name there is.
    pub(crate) fn find(&self, name: &str, version: Option<Version>) -> Result<Arc<PackEntry>> {
        let snapshot = self.snapshot();
        let Some(versions) = snapshot.packs.get(name) else {
            return Err(Error::new(Code::NotFound, unknown(name, &snapshot)));
        };
        let found = match version {
            Some(version) => versions.iter().find(|pack| pack.version == version),
            None => versions.last(),
        };
        found.map(Arc::clone).ok_or_else(|| {
            let there: Vec<String> = versions
                .iter()
                .map(|pack| pack.version.to_string())
                .collect();
            let wanted = version
                .map(|version| version.to_string())
                .unwrap_or_default();
            Error::new(
                Code::NotFound,
                format!(
                    "pack \"{name}\" has no version {wanted}; it has {}",
                    there.join(", ")
                ),
            )
        })
    }
}

fn unknown(name: &str, snapshot: &Snapshot) -> String {
    let shown = text::escaped(name, 80);
    if let Some(error) = snapshot.refused_names.get(name) {
        return format!(
            "pack \"{shown}\" is not registered: its manifest was refused: {}",
            public_reason(error)
        );
    }
    let hint = did_you_mean(&shown, snapshot.packs.keys().map(|known| known.as_str()));
    format!("pack \"{shown}\" is not registered{hint}")
}

/// Returns why a manifest is refused, without the path of its folder.
fn public_reason(error: &ManifestError) -> String {
    let file = std::path::Path::new(&error.file)
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    ManifestError {
        file: file.unwrap_or_else(|| error.file.clone()),
        ..error.clone()
    }
    .to_string()
}

/// Public description of a pack.
#[derive(Debug, Clone, Serialize)]
pub struct PackInfo {
    /// Its name.
    pub name: PackName,
    /// This version.
    pub version: Version,
    /// All versions, ascending; the last is served as `latest`.
    pub versions: Vec<Version>,
    /// A short name for people, if its author gave one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Description of the pack.
    pub description: String,
    /// Whether it never changes anything.
    pub read_only: bool,
    /// Whether a call may delete or overwrite something.
    pub destructive: bool,
    /// Whether a second call with the same input changes nothing more.
    pub idempotent: bool,
    /// Whether it reaches systems outside this machine.
    pub open_world: bool,
    /// Hints for routing.
    pub metadata: Metadata,
    /// Kind of its handler.
    pub handler: &'static str,
    /// Name of the service that the handler asks, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// Timeout of the handler, in seconds.
    pub timeout_s: f64,
    /// The schema of its input.
    pub input: Value,
    /// The schema of its output.
    pub output: Value,
    /// Cache settings of its manifest; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheSpec>,
    /// Whether both gates are open, so that its answers are cached.
    pub cached: bool,
    /// The tags that a call of it purges, as templates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub invalidates: Vec<String>,
    /// The credentials it may ask for, as templates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<String>,
    /// Whether it runs as a job unless the caller waits.
    #[serde(rename = "async")]
    pub asynchronous: bool,
    /// How often a job is run again whose server was lost or stopped.
    #[serde(skip_serializing_if = "is_zero")]
    pub retry: u32,
    /// When it runs by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleSummary>,
    /// Whether it needs a session.
    pub needs_session: bool,
    /// Where it comes from.
    pub source: PackSource,
    /// The manifest's file.
    pub file: String,
    /// Why that file is refused now; the last good version is served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outdated: Option<String>,
    /// What the pack waits for and how to supply it; absent if it is listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<&'static str>,
    /// Example inputs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Example>,
}

impl PackInfo {
    /// Returns the family of the pack: its name up to the first dot.
    #[must_use]
    pub fn family(&self) -> &str {
        self.name
            .as_str()
            .split_once('.')
            .map_or(self.name.as_str(), |(family, _)| family)
    }
}

/// Schedule of a manifest.
#[derive(Debug, Clone, Serialize)]
pub struct ScheduleSummary {
    /// `every 1h`, or `cron 0 3 * * *`: in UTC.
    pub when: String,
    /// Input of each run.
    pub input: Value,
    /// The times.
    #[serde(skip)]
    pub timing: Timing,
}

impl Registered {
    /// Returns how its jobs run.
    pub(crate) fn plan(&self) -> RunPlan {
        RunPlan {
            version: self.manifest.version,
            contract: self.contract,
            retries: self.manifest.retry,
            bound: false,
        }
    }

    pub(crate) fn info(&self, snapshot: &Snapshot) -> PackInfo {
        let manifest = &self.manifest;
        let versions = snapshot
            .packs
            .get(&manifest.name)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let sources = |templates: &[helmdeck_core::template::Template]| {
            templates.iter().map(|t| t.source().to_owned()).collect()
        };
        PackInfo {
            name: manifest.name.clone(),
            version: manifest.version,
            versions: versions.iter().map(|pack| pack.version).collect(),
            title: manifest.title.clone(),
            description: manifest.description.clone(),
            read_only: manifest.read_only,
            destructive: manifest.destructive(),
            idempotent: manifest.idempotent(),
            open_world: manifest.open_world(),
            metadata: manifest.metadata.clone(),
            handler: manifest.handler.kind(),
            upstream: self.upstream.clone(),
            timeout_s: manifest.timeout.as_secs_f64(),
            input: manifest.input.source().clone(),
            output: manifest.output.source().clone(),
            cache: manifest.cache().cloned(),
            cached: self.cache.is_some(),
            invalidates: manifest
                .memory
                .as_ref()
                .map(|memory| sources(&memory.invalidates))
                .unwrap_or_default(),
            credentials: sources(&manifest.credentials),
            asynchronous: manifest.asynchronous,
            retry: manifest.retry,
            schedule: manifest.schedule.as_ref().map(|schedule| ScheduleSummary {
                when: schedule.timing.to_string(),
                input: serde_json::from_str(&schedule.input).unwrap_or_default(),
                timing: schedule.timing.clone(),
            }),
            needs_session: manifest.session.is_some(),
            source: self.source,
            file: manifest.file.clone(),
            outdated: snapshot
                .outdated
                .get(&(manifest.name.clone(), manifest.version))
                .map(public_reason),
            waits_for: snapshot.waiting.get(&manifest.name).copied(),
            examples: manifest.examples.clone(),
        }
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the form that serde asks for"
)]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}
