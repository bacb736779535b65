//! What can be read about packs and about the caller: addresses under `helmdeck://`, to each caller its own.

use std::sync::Arc;
use std::time::Instant;

use base64::Engine as _;
use helmdeck_core::call::Call;
use helmdeck_core::memory::{ListFacts, NoMemory};
use helmdeck_core::{Caller, Code, Error, PackName, Permission, Result};
use helmdeck_engine::{Job, JobId, JobPage, JobQuery, MemoryControl, PackInfo};
use helmdeck_memory::Namespace;
use rmcp::model::{ReadResourceResult, Resource, ResourceContents, ResourceTemplate};
use serde::Serialize;

use super::door::Door;
use super::lists::{LIST_TTL_MS, OWN};
use super::table::tool_name;
use super::uri::{self, Place};

const JSON: &str = "application/json";
const MARKDOWN: &str = "text/markdown";
/// The packs that answer for the seam.
const SEAM_PLANS: &str = "seam.plans";
const SEAM_RECALL: &str = "seam.recall_here";
/// The most facts that one read lists.
const MAX_FACTS: u64 = 1000;
/// The most jobs that one read lists, the newest.
const MAX_JOBS: usize = 100;
/// How many of them have an address of their own in the list of resources; every one can be read.
const MAX_RESULTS: usize = 20;
/// The largest file or result that is handed out in a message; the REST door has no such limit.
const MAX_BYTES: usize = 8 << 20;

#[derive(Serialize)]
struct Summary {
    name: String,
    tool: String,
    uri: String,
    description: String,
    read_only: bool,
}

/// Returns what a caller can read, sorted by address: also the results of the caller's newest jobs. What needs a memory is there
/// only if there is one that the caller may read.
pub(crate) async fn list(door: &Door, caller: &Caller) -> Vec<Resource> {
    let resource = |uri: &str, name: &str, media_type: &str, description: &str| {
        Resource::new(uri, name).with_description(description).with_mime_type(media_type)
    };
    let mut all = Vec::with_capacity(4);
    if memory(door, caller).is_ok() {
        all.push(resource(
            uri::DEFAULTS,
            "my-defaults",
            JSON,
            "Your habits: packs, usual inputs, common findings, recent calls",
        ));
    }
    all.push(resource(uri::GUIDE, "guide", MARKDOWN, "Which pack to use for what"));
    if let Ok(jobs) = jobs(door, caller).await {
        all.push(resource(uri::JOBS, "my-jobs", JSON, "Your jobs: how each stands, and how it ended"));
        let mut results: Vec<Resource> =
            jobs.jobs.iter().filter(|job| job.state.is_final()).take(MAX_RESULTS).map(result).collect();
        results.sort_by(|a, b| a.uri.cmp(&b.uri));
        all.append(&mut results);
    }
    if memory(door, caller).is_ok() {
        all.push(resource(uri::MEMORY, "my-memory", JSON, "What is kept about you: facts, without their values"));
    }
    all.push(resource(uri::PACKS, "packs", JSON, "The packs that you may run"));
    for (address, name, pack, media_type, description) in [
        (uri::PLANS, "plans", SEAM_PLANS, JSON, "The plans of the project: where they lie, and how they stand"),
        (
            uri::RECALL,
            "recall",
            SEAM_RECALL,
            MARKDOWN,
            "What memory knows of the project, for work; add /plan, /review or another phase",
        ),
    ] {
        if may_ask(door, caller, pack) {
            all.push(resource(address, name, media_type, description));
        }
    }
    all
}

/// Returns the addresses with a part to fill in; the same for everybody. The one of the seam is there if its pack is.
pub(crate) fn templates(door: &Door) -> Vec<ResourceTemplate> {
    let mut all = vec![
        ResourceTemplate::new("helmdeck://artifacts/{+key}", "artifact")
            .with_description("A file that a run of yours wrote"),
        ResourceTemplate::new("helmdeck://jobs/{id}", "job")
            .with_description("A job of yours: how it stands, and what came of it")
            .with_mime_type(JSON),
        ResourceTemplate::new("helmdeck://packs/{name}", "pack")
            .with_description("One pack: its whole contract, with both schemas")
            .with_mime_type(JSON),
    ];
    if door.engine.pack(SEAM_RECALL, None).is_ok() {
        all.push(
            ResourceTemplate::new("helmdeck://seam/recall/{phase}", "recall")
                .with_description("What memory knows of the project, for a phase of work")
                .with_mime_type(MARKDOWN),
        );
    }
    all
}

/// Reads an address, `None` if it is none of ours.
///
/// # Errors
/// `forbidden` or `unauthenticated` for a pack that the caller may not run, whether there is one or not; `not_found` for one that
/// there is not, and for a file that there is not, or not for this caller; whatever the memory answers.
pub(crate) async fn read(door: &Door, caller: &Caller, address: &str) -> Result<Option<ReadResourceResult>> {
    let Some(place) = uri::parse(address) else { return Ok(None) };
    let text = |text: String, media_type: &str| ResourceContents::text(text, address).with_mime_type(media_type);
    let (contents, ttl_ms) = match place {
        Place::Packs => (text(json(&summaries(&packs(door, caller)))?, JSON), LIST_TTL_MS),
        Place::Guide => (text(guide(&packs(door, caller)), MARKDOWN), LIST_TTL_MS),
        Place::Pack(name) => (text(json(&pack(door, caller, &name)?)?, JSON), LIST_TTL_MS),
        Place::Memory => {
            let facts = memory(door, caller)?.facts(&caller.identity)?;
            let wanted = ListFacts { limit: Some(MAX_FACTS), ..ListFacts::default() };
            (text(json(&facts.list(wanted).await?)?, JSON), 0)
        }
        Place::Defaults => {
            let whose = Namespace::of_caller(&caller.identity);
            (text(json(&memory(door, caller)?.defaults(&whose).await?)?, JSON), 0)
        }
        Place::Jobs => (text(json(&jobs(door, caller).await?)?, JSON), 0),
        Place::Job(id) => (text(job(door, caller, &id).await?, JSON), 0),
        Place::Plans => (text(seam(door, caller, SEAM_PLANS, "{}".to_owned()).await?.to_string(), JSON), 0),
        Place::Recall(phase) => {
            let input = serde_json::json!({"phase": phase}).to_string();
            let recalled = seam(door, caller, SEAM_RECALL, input).await?;
            (text(recalled["text"].as_str().unwrap_or_default().to_owned(), MARKDOWN), 0)
        }
        Place::Artifact(key) => (artifact(door, caller, &key, address).await?, 0),
    };
    Ok(Some(ReadResourceResult::new(vec![contents]).with_ttl_ms(ttl_ms).with_cache_scope(OWN)))
}

/// Returns a pack that a caller may run. Others learn nothing, not even whether there is one.
fn pack(door: &Door, caller: &Caller, name: &str) -> Result<PackInfo> {
    let missing = || Error::new(Code::NotFound, format!("pack \"{}\" is not registered", name.escape_debug()));
    caller.need_run(&PackName::new(name).map_err(|_| missing())?)?;
    let found = door.engine.pack(name, None);
    // The engine suggests packs with a similar name, of all that there are.
    found.map_err(|error| if caller.permissions.allow(&Permission::RunAny) { error } else { missing() })
}

/// Says whether a caller may ask a pack of the seam, and it is there. Callers who are not known would be refused.
fn may_ask(door: &Door, caller: &Caller, name: &str) -> bool {
    let may = PackName::new(name).is_ok_and(|name| caller.need_run(&name).is_ok());
    may && !caller.identity.is_anonymous() && door.engine.pack(name, None).is_ok()
}

/// Asks a pack of the seam, as a call of a tool would.
async fn seam(door: &Door, caller: &Caller, name: &str, input: String) -> Result<serde_json::Value> {
    let name = PackName::new(name).map_err(|message| Error::new(Code::Internal, message))?;
    caller.need_run(&name)?;
    let mut call = Call::new(name, input, Arc::clone(&caller.identity));
    call.deadline = Instant::now().checked_add(door.deadline);
    Ok(door.engine.call(call).await?.output.to_value())
}

/// Returns the memory that a caller may read.
fn memory<'a>(door: &'a Door, caller: &Caller) -> Result<&'a MemoryControl> {
    caller.need(&Permission::MemoryRead)?;
    if caller.identity.is_anonymous() {
        return Err(Error::new(Code::Unauthenticated, "nothing is kept for a caller whom nobody vouches for"));
    }
    door.engine.memory().ok_or_else(|| NoMemory::Off.into())
}

/// All callers whom nobody vouches for would be one.
fn need_owner(caller: &Caller) -> Result<()> {
    if caller.identity.is_anonymous() {
        return Err(Error::new(Code::Unauthenticated, "a job is for whom a token proves to be its owner"));
    }
    Ok(())
}

/// Returns the newest jobs of a caller, of packs that the caller may run.
async fn jobs(door: &Door, caller: &Caller) -> Result<JobPage> {
    need_owner(caller)?;
    let query = JobQuery { limit: MAX_JOBS, ..JobQuery::default() };
    let mut page = door.engine.jobs(Some(&caller.identity), &query).await?;
    page.jobs.retain(|job| caller.need_run(&job.pack).is_ok());
    Ok(page)
}

fn result(job: &Job) -> Resource {
    let created = job.created_at.to_rfc3339();
    Resource::new(uri::job(&job.id), format!("job {}", job.id))
        .with_description(format!("{} of {created}: {}", job.pack, job.state.as_str()))
        .with_mime_type(JSON)
}

/// Returns a job and what came of it: `{"job": …}`, with `outcome` or `problem` if it has ended.
async fn job(door: &Door, caller: &Caller, id: &str) -> Result<String> {
    let unknown = || Error::new(Code::NotFound, "there is no such job; it may have been forgotten after its end");
    need_owner(caller)?;
    let (engine, owner) = (&door.engine, Some(&*caller.identity));
    let id = JobId::parse(id).map_err(|_| unknown())?;
    let found = engine.job(owner, &id).await;
    let job = found.map_err(|error| if error.code() == Code::NotFound { unknown() } else { error })?;
    caller.need_run(&job.pack).map_err(|_| unknown())?;
    let mut text = format!("{{\"job\":{}", json(&job)?);
    if job.state.is_final() {
        match engine.job_outcome(owner, &id).await {
            Ok(outcome) => {
                let outcome = outcome.to_json();
                if outcome.len() > MAX_BYTES {
                    let message = format!("the result has {} bytes; get it from the REST door", outcome.len());
                    return Err(Error::new(Code::TooLarge, message));
                }
                text.push_str(",\"outcome\":");
                text.push_str(&String::from_utf8_lossy(&outcome));
            }
            Err(error) => text.push_str(&format!(",\"problem\":{}", error.problem())),
        }
    }
    text.push('}');
    Ok(text)
}

async fn artifact(door: &Door, caller: &Caller, key: &str, address: &str) -> Result<ResourceContents> {
    if caller.identity.is_anonymous() {
        return Err(Error::new(Code::Unauthenticated, "an artifact is for whom a token proves to be its owner"));
    }
    let read = door.engine.artifact_up_to(&caller.identity, key, MAX_BYTES as u64).await;
    let (about, bytes) = read.map_err(|error| match error.code() {
        Code::TooLarge => {
            let message = format!("{}; get it from the REST door at /api/v1/artifacts/", error.message());
            Error::new(Code::TooLarge, message)
        }
        _ => error,
    })?;
    let written = about.media_type.starts_with("text/") || about.media_type.starts_with(JSON);
    let contents = match std::str::from_utf8(&bytes) {
        Ok(text) if written => ResourceContents::text(text, address),
        _ => ResourceContents::blob(base64::engine::general_purpose::STANDARD.encode(&bytes), address),
    };
    Ok(contents.with_mime_type(about.media_type))
}

fn packs(door: &Door, caller: &Caller) -> Vec<PackInfo> {
    let mut packs = door.engine.packs();
    packs.retain(|info| caller.need_run(&info.name).is_ok());
    packs
}

fn summaries(packs: &[PackInfo]) -> Vec<Summary> {
    let summary = |info: &PackInfo| Summary {
        name: info.name.to_string(),
        tool: tool_name(&info.name),
        uri: uri::pack(info.name.as_str()),
        description: info.description.clone(),
        read_only: info.read_only,
    };
    packs.iter().map(summary).collect()
}

/// Writes what the authors say about when to use their packs.
fn guide(packs: &[PackInfo]) -> String {
    let mut text = String::from("# Which pack for what\n");
    for info in packs {
        let metadata = &info.metadata;
        text.push_str(&format!("\n## {} (tool `{}`)\n\n{}\n", info.name, tool_name(&info.name), info.description));
        let mut line = |label: &str, value: &str| {
            if !value.is_empty() {
                text.push_str(&format!("- {label}: {value}\n"));
            }
        };
        line("Use it", &metadata.typical_use);
        line("Takes", &metadata.accepts.join(", "));
        line("Gives", &metadata.produces.join(", "));
        line("Asked for as", &metadata.intent_keywords.join(", "));
        line("Limits", &metadata.limitations.join("; "));
        line("Changes things", if info.read_only { "" } else { "yes" });
        line("Answers may be cached", if info.cached { "yes" } else { "" });
    }
    text
}

fn json<T: Serialize + ?Sized>(value: &T) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|error| Error::new(Code::Internal, "the resource cannot be written").with_source(error))
}
