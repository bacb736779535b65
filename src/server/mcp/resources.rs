//! Resources about packs and about the caller: addresses under `helmdeck://`, resolved per caller.

use std::sync::Arc;
use std::time::Instant;

use base64::Engine as _;
use helmdeck_core::call::Call;
use helmdeck_core::memory::{ListFacts, NoMemory};
use helmdeck_core::{Caller, Code, Correlation, Error, PackName, Permission, Result};
use helmdeck_engine::{Job, JobId, JobPage, JobQuery, MemoryControl, PackInfo};
use rmcp::model::{ReadResourceResult, Resource, ResourceContents, ResourceTemplate};
use serde::Serialize;

use super::lists::{LIST_TTL_MS, OWN};
use super::state::McpState;
use super::table::tool_name;
use super::uri::{self, ResourceUri};
use crate::access::need_token;

const JSON: &str = "application/json";
const MARKDOWN: &str = "text/markdown";
/// Packs that answer the resources of the seam.
const SEAM_PLANS: &str = "seam.plans";
const SEAM_RECALL: &str = "seam.recall_here";
/// Limit of facts in one read.
const MAX_FACTS: u64 = 1000;
/// Limit of jobs in one read; the newest are listed.
const MAX_JOBS: usize = 100;
/// Limit of jobs in the list of resources. Every job can be read.
const MAX_RESULTS: usize = 20;
/// Limit of a file or result in one message; the REST transport has no such limit.
const MAX_BYTES: usize = 8 << 20;

#[derive(Serialize)]
struct Summary {
    name: String,
    tool: String,
    uri: String,
    description: String,
    read_only: bool,
}

/// Returns the resources that a caller can read, sorted by address.
///
/// They include the results of the caller's newest jobs. Resources of the memory need a memory that
/// the caller may read.
pub(crate) async fn list(mcp: &McpState, caller: &Caller) -> Vec<Resource> {
    let resource = |uri: &str, name: &str, media_type: &str, description: &str| {
        Resource::new(uri, name)
            .with_description(description)
            .with_mime_type(media_type)
    };
    let mut all = Vec::with_capacity(4);
    all.push(resource(
        uri::GUIDE,
        "guide",
        MARKDOWN,
        "Which pack to use for what",
    ));
    if let Ok(jobs) = jobs(mcp, caller).await {
        all.push(resource(
            uri::JOBS,
            "my-jobs",
            JSON,
            "Your jobs: how each stands, and how it ended",
        ));
        let mut results: Vec<Resource> = jobs
            .jobs
            .iter()
            .filter(|job| job.state.is_final())
            .take(MAX_RESULTS)
            .map(result)
            .collect();
        results.sort_by(|a, b| a.uri.cmp(&b.uri));
        all.append(&mut results);
    }
    if memory(mcp, caller).is_ok() {
        all.push(resource(
            uri::MEMORY,
            "my-memory",
            JSON,
            "What is kept about you: facts, without their values",
        ));
    }
    all.push(resource(
        uri::PACKS,
        "packs",
        JSON,
        "The packs that you may run",
    ));
    for (address, name, pack, media_type, description) in [
        (
            uri::PLANS,
            "plans",
            SEAM_PLANS,
            JSON,
            "The plans of the project: where they lie, and how they stand",
        ),
        (
            uri::RECALL,
            "recall",
            SEAM_RECALL,
            MARKDOWN,
            "What memory knows of the project, for work; add /plan, /review or another phase",
        ),
    ] {
        if may_ask(mcp, caller, pack) {
            all.push(resource(address, name, media_type, description));
        }
    }
    all
}

/// Returns the resource templates, which are the same for all callers.
///
/// The template of the seam is included if its pack is listed.
pub(crate) fn templates(mcp: &McpState) -> Vec<ResourceTemplate> {
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
    if is_listed(mcp, SEAM_RECALL) {
        all.push(
            ResourceTemplate::new("helmdeck://seam/recall/{phase}", "recall")
                .with_description("What memory knows of the project, for a phase of work")
                .with_mime_type(MARKDOWN),
        );
    }
    all
}

/// Reads a resource, `None` if the address is not one of ours.
///
/// # Errors
/// `forbidden` or `unauthenticated` for a pack that the caller may not run, whether it exists or
/// not; `not_found` for a pack that does not exist, and for a file that does not exist or that
/// belongs to another caller; any error of the memory.
pub(crate) async fn read(
    mcp: &McpState,
    caller: &Caller,
    address: &str,
) -> Result<Option<ReadResourceResult>> {
    let Some(place) = uri::parse(address) else {
        return Ok(None);
    };
    let text = |text: String, media_type: &str| {
        ResourceContents::text(text, address).with_mime_type(media_type)
    };
    let (contents, ttl_ms) = match place {
        ResourceUri::Packs => (
            text(json(&summaries(&packs(mcp, caller)))?, JSON),
            LIST_TTL_MS,
        ),
        ResourceUri::Guide => (text(guide(&packs(mcp, caller)), MARKDOWN), LIST_TTL_MS),
        ResourceUri::Pack(name) => (text(json(&pack(mcp, caller, &name)?)?, JSON), LIST_TTL_MS),
        ResourceUri::Memory => {
            let facts = memory(mcp, caller)?.facts(&caller.identity)?;
            let wanted = ListFacts {
                limit: Some(MAX_FACTS),
                ..ListFacts::default()
            };
            (text(json(&facts.list(wanted).await?)?, JSON), 0)
        }
        ResourceUri::Jobs => (text(json(&jobs(mcp, caller).await?)?, JSON), 0),
        ResourceUri::Job(id) => (text(job(mcp, caller, &id).await?, JSON), 0),
        ResourceUri::Plans => (
            text(
                ask(mcp, caller, SEAM_PLANS, "{}".to_owned())
                    .await?
                    .to_string(),
                JSON,
            ),
            0,
        ),
        ResourceUri::Recall(phase) => {
            let input = serde_json::json!({"phase": phase}).to_string();
            let recalled = ask(mcp, caller, SEAM_RECALL, input).await?;
            (
                text(
                    recalled["text"].as_str().unwrap_or_default().to_owned(),
                    MARKDOWN,
                ),
                0,
            )
        }
        ResourceUri::Artifact(key) => (artifact(mcp, caller, &key, address).await?, 0),
    };
    Ok(Some(
        ReadResourceResult::new(vec![contents])
            .with_ttl_ms(ttl_ms)
            .with_cache_scope(OWN),
    ))
}

/// Returns a pack that a caller may run. Other callers cannot learn whether it exists.
fn pack(mcp: &McpState, caller: &Caller, name: &str) -> Result<PackInfo> {
    let missing = || {
        Error::new(
            Code::NotFound,
            format!("pack \"{}\" is not registered", name.escape_debug()),
        )
    };
    caller.need_run(&PackName::new(name).map_err(|_| missing())?)?;
    let found = mcp.engine.pack(name, None);
    // The engine suggests packs with a similar name, from all packs.
    found.map_err(|error| {
        if caller.permissions.allow(&Permission::RunAny) {
            error
        } else {
            missing()
        }
    })
}

/// Says whether a pack is registered and waits for nothing.
pub(crate) fn is_listed(mcp: &McpState, name: &str) -> bool {
    mcp.engine
        .pack(name, None)
        .is_ok_and(|pack| pack.waits_for.is_none())
}

/// Says whether a pack of the seam or of a project is listed and the caller may run it.
///
/// Anonymous callers would be refused.
pub(crate) fn may_ask(mcp: &McpState, caller: &Caller, name: &str) -> bool {
    let may = PackName::new(name).is_ok_and(|name| caller.need_run(&name).is_ok());
    may && !caller.identity.is_anonymous() && is_listed(mcp, name)
}

/// Runs a pack of the seam or of a project, as a tool call would.
pub(crate) async fn ask(
    mcp: &McpState,
    caller: &Caller,
    name: &str,
    input: String,
) -> Result<serde_json::Value> {
    let name = PackName::new(name).map_err(|message| Error::new(Code::Internal, message))?;
    caller.need_run(&name)?;
    let mut call = Call::new(name, input, Arc::clone(&caller.identity));
    call.correlation = Correlation::current();
    call.deadline = Instant::now().checked_add(mcp.deadline);
    Ok(mcp.engine.call(call).await?.output.to_value())
}

/// Returns the memory, if the caller may read it.
fn memory<'a>(mcp: &'a McpState, caller: &Caller) -> Result<&'a MemoryControl> {
    caller.need(&Permission::MemoryRead)?;
    if caller.identity.is_anonymous() {
        return Err(Error::new(
            Code::Unauthenticated,
            "nothing is kept for a caller whom nobody vouches for",
        ));
    }
    mcp.engine.memory().ok_or_else(|| NoMemory::Off.into())
}

/// Returns a caller's newest jobs, of packs that the caller may run.
async fn jobs(mcp: &McpState, caller: &Caller) -> Result<JobPage> {
    need_token(caller, "a job")?;
    let query = JobQuery {
        limit: MAX_JOBS,
        ..JobQuery::default()
    };
    let mut page = mcp.engine.jobs(Some(&caller.identity), &query).await?;
    page.jobs.retain(|job| caller.need_run(&job.pack).is_ok());
    Ok(page)
}

fn result(job: &Job) -> Resource {
    let created = job.created_at.to_rfc3339();
    Resource::new(uri::job(&job.id), format!("job {}", job.id))
        .with_description(format!("{} of {created}: {}", job.pack, job.state.as_str()))
        .with_mime_type(JSON)
}

/// Returns a job and its result: `{"job": …}`, with `outcome` or `problem` if it has ended.
async fn job(mcp: &McpState, caller: &Caller, id: &str) -> Result<String> {
    let unknown = || {
        Error::new(
            Code::NotFound,
            "there is no such job; it may have been forgotten after its end",
        )
    };
    let (engine, owner) = (&mcp.engine, Some(need_token(caller, "a job")?));
    let id = JobId::parse(id).map_err(|_| unknown())?;
    let found = engine.job(owner, &id).await;
    let job = found.map_err(|error| {
        if error.code() == Code::NotFound {
            unknown()
        } else {
            error
        }
    })?;
    caller.need_run(&job.pack).map_err(|_| unknown())?;
    let mut text = format!("{{\"job\":{}", json(&job)?);
    if job.state.is_final() {
        match engine.job_outcome(owner, &id).await {
            Ok(outcome) => {
                let outcome = outcome.to_json();
                if outcome.len() > MAX_BYTES {
                    let message = format!(
                        "the result has {} bytes; get it from the REST door",
                        outcome.len()
                    );
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

async fn artifact(
    mcp: &McpState,
    caller: &Caller,
    key: &str,
    address: &str,
) -> Result<ResourceContents> {
    let owner = need_token(caller, "an artifact")?;
    let read = mcp
        .engine
        .artifact_up_to(owner, key, MAX_BYTES as u64)
        .await;
    let (about, bytes) = read.map_err(|error| match error.code() {
        Code::TooLarge => {
            let message = format!(
                "{}; get it from the REST door at /api/v1/artifacts/",
                error.message()
            );
            Error::new(Code::TooLarge, message)
        }
        _ => error,
    })?;
    let written = about.media_type.starts_with("text/") || about.media_type.starts_with(JSON);
    let contents = match std::str::from_utf8(&bytes) {
        Ok(text) if written => ResourceContents::text(text, address),
        _ => ResourceContents::blob(
            base64::engine::general_purpose::STANDARD.encode(&bytes),
            address,
        ),
    };
    Ok(contents.with_mime_type(about.media_type))
}

fn packs(mcp: &McpState, caller: &Caller) -> Vec<PackInfo> {
    let mut packs = mcp.engine.packs();
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

/// Writes the authors' advice on when to use their packs.
fn guide(packs: &[PackInfo]) -> String {
    let mut text = String::from("# Which pack for what\n");
    for info in packs {
        let metadata = &info.metadata;
        text.push_str(&format!(
            "\n## {} (tool `{}`)\n\n{}\n",
            info.name,
            tool_name(&info.name),
            info.description
        ));
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
        line(
            "Answers may be cached",
            if info.cached { "yes" } else { "" },
        );
    }
    text
}

fn json<T: Serialize + ?Sized>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|error| {
        Error::new(Code::Internal, "the resource cannot be written").with_source(error)
    })
}
