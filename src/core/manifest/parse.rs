//! Manifest parser and validation. Errors name the line.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use crate::suggest;
use serde_json::Value;
use serde_json::value::RawValue;
use toml::Spanned;

use super::{
    CacheSpec, Example, HandlerSpec, Hints, Manifest, ManifestError, MemorySpec, ReadFile, Respect,
    ScheduleSpec, SessionSpec, Timing, http, raw,
};
use crate::duration::{parse_duration, parse_size};
use crate::error::Code;
use crate::ids::{PackName, Version};
use crate::leaks;
use crate::schema::{self, Schema};
use crate::secrets::{CREDENTIAL_TAG, is_credential_tag};
use crate::template::Template;
use crate::text::line_of;

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
const DEFAULT_SESSION_TIMEOUT: Duration = Duration::from_secs(20 * 60);
const DEFAULT_STALE_IF_SLOW: Duration = Duration::from_secs(1);
/// The limit that clients of MCP have for what servers say.
const DEFAULT_MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);
const DEFAULT_REVALIDATE_FOR: Duration = Duration::from_secs(24 * 60 * 60);
const DEFAULT_MAX_BYTES: u64 = 1 << 20;
/// Upper bound of `[memory] max_bytes`: an answer is held in memory.
const MAX_MAX_BYTES: u64 = 64 << 20;
/// Limit of tags of an answer.
///
/// With their families (at most 8) and a tag for each credential they must fit the limit of a
/// store: 32, the default of `helmdeck_memory::Limits::tags`.
const MAX_TAGS: usize = 16;
const MAX_CREDENTIALS: usize = 8;
/// Errors that `[memory] errors` may name.
const STORED_ERRORS: [Code; 5] = [
    Code::NotFound,
    Code::InvalidInput,
    Code::Forbidden,
    Code::Conflict,
    Code::TooLarge,
];
/// Limit of `[job] retry`.
const MAX_RETRIES: u32 = 10;

/// Top-level keys of a manifest that are easily put below a table header by mistake.
const TOP_KEYS: &[&str] = &[
    "name",
    "version",
    "title",
    "description",
    "read_only",
    "destructive",
    "idempotent",
    "open_world",
    "credentials",
    "async",
    "no_audit",
];

const ONE_KIND: &str = "[handler] needs exactly one of `builtin`, `command`, `http` and `mcp`";

/// Turns byte offsets into lines, and messages into errors with a place.
pub(super) struct SourceText<'a> {
    file: &'a str,
    text: &'a str,
    /// Whether schemas, and what has to fit them, are only checked when a call needs them.
    is_lazy: bool,
    /// Schemas of packs that leave them out.
    schemas: &'a str,
}

impl SourceText<'_> {
    pub(super) fn error(
        &self,
        span: Option<Range<usize>>,
        message: impl Into<String>,
    ) -> ManifestError {
        let line = span.map(|span| line_of(self.text, span.start));
        ManifestError {
            file: self.file.to_owned(),
            line,
            message: message.into(),
        }
    }

    pub(super) fn read<T, R>(
        &self,
        value: &Spanned<T>,
        read: impl FnOnce(&T) -> Result<R, String>,
    ) -> Result<R, ManifestError> {
        read(value.get_ref()).map_err(|message| self.error(Some(value.span()), message))
    }

    fn schema(&self, json: Value) -> Result<Schema, String> {
        match self.is_lazy {
            true => Ok(Schema::trusted(json)),
            false => Schema::compile(json),
        }
    }

    fn duration(
        &self,
        value: Option<&Spanned<String>>,
        default: Duration,
    ) -> Result<Duration, ManifestError> {
        value.map_or(Ok(default), |value| {
            self.read(value, |text| parse_duration(text))
        })
    }

    fn templates(
        &self,
        values: &[Spanned<String>],
        input: &Schema,
    ) -> Result<Vec<Template>, ManifestError> {
        values
            .iter()
            .map(|value| self.read(value, |text| declared(Template::parse(text)?, input)))
            .collect()
    }

    fn at_most(
        &self,
        limit: usize,
        what: &str,
        values: &[Spanned<String>],
    ) -> Result<(), ManifestError> {
        let Some(first_too_many) = values.get(limit) else {
            return Ok(());
        };
        let message = format!(
            "{} {what} are too many; at most {limit} are allowed",
            values.len()
        );
        Err(self.error(Some(first_too_many.span()), message))
    }

    /// Reads tags: templates that do not begin with what is kept for credentials.
    fn tags(
        &self,
        values: &[Spanned<String>],
        input: &Schema,
    ) -> Result<Vec<Template>, ManifestError> {
        if let Some(taken) = values
            .iter()
            .find(|value| is_credential_tag(value.get_ref()))
        {
            let message = format!(
                "tags that begin with \"{CREDENTIAL_TAG}\" are set by the engine; take another word"
            );
            return Err(self.error(Some(taken.span()), message));
        }
        self.at_most(MAX_TAGS, "tags", values)?;
        self.templates(values, input)
    }
}

/// Checks that every placeholder of a template is declared in `[input]`.
pub(super) fn declared(template: Template, input: &Schema) -> Result<Template, String> {
    let known = schema::properties(input.source());
    if let Some(unknown) = template.roots().find(|root| !known.contains_key(*root)) {
        let hint = suggest(unknown, known.keys().map(String::as_str));
        return Err(format!(
            "the template names \"{unknown}\", which [input] does not declare{hint}"
        ));
    }
    Ok(template)
}

pub(super) fn parse(
    file: &str,
    text: &str,
    read_file: ReadFile<'_>,
) -> Result<Manifest, ManifestError> {
    manifest_of(
        &SourceText {
            file,
            text,
            is_lazy: false,
            schemas: "",
        },
        read_file,
    )
}

pub(super) fn parse_builtin(
    file: &str,
    text: &str,
    schemas: &str,
    whole: bool,
) -> Result<Manifest, ManifestError> {
    let refuse = |named: &str| {
        Err(format!(
            "{named} cannot be read: built-in packs have no files"
        ))
    };
    manifest_of(
        &SourceText {
            file,
            text,
            is_lazy: !whole,
            schemas,
        },
        &refuse,
    )
}

fn manifest_of(
    source: &SourceText<'_>,
    read_file: ReadFile<'_>,
) -> Result<Manifest, ManifestError> {
    let raw: raw::Manifest = toml::from_str(source.text)
        .map_err(|error| source.error(error.span(), explain(error.message())))?;

    let name = source.read(&raw.name, |name| PackName::new(name))?;
    let version = source.read(&raw.version, |version| Version::parse(version))?;
    if raw.description.get_ref().trim().is_empty() {
        return Err(source.error(
            Some(raw.description.span()),
            "description is empty; say what the pack does",
        ));
    }
    if let Some(title) = raw
        .title
        .as_ref()
        .filter(|title| title.get_ref().trim().is_empty())
    {
        return Err(source.error(
            Some(title.span()),
            "title is empty; leave it out or give the pack a short name",
        ));
    }
    let hints = hints_of(source, &raw)?;
    let mut known = schemas_of(source, &name)?;
    let mut schema = |what: &str, value: Option<&Spanned<toml::Value>>| match value {
        Some(value) => schema_of(source, value, what, read_file),
        None => known.remove(what).map_or_else(
            || Ok(Schema::anything()),
            |json| {
                source
                    .schema(json)
                    .map_err(|error| source.error(None, error))
            },
        ),
    };
    let input = schema("input", raw.input.as_ref())?;
    let output = schema("output", raw.output.as_ref())?;
    let timeout = source.duration(raw.handler.get_ref().timeout.as_ref(), DEFAULT_TIMEOUT)?;
    if timeout.is_zero() {
        return Err(source.error(
            Some(raw.handler.span()),
            "timeout is 0; a handler needs some time",
        ));
    }
    source.at_most(MAX_CREDENTIALS, "credentials", &raw.credentials)?;
    let credentials = source.templates(&raw.credentials, &input)?;
    let handler = handler_of(source, &raw, &input, &credentials)?;
    let session = raw
        .session
        .as_ref()
        .map(|session| session_of(source, session))
        .transpose()?;
    let memory = match &raw.memory {
        Some(memory) => Some(memory_of(source, memory, raw.read_only, &input)?),
        None => None,
    };
    let artifact_retention = match raw
        .artifacts
        .as_ref()
        .and_then(|artifacts| artifacts.retention.as_ref())
    {
        Some(retention) => Some(source.read(retention, |text| parse_duration(text))?),
        None => None,
    };
    if let (Some(retention), Some(cache)) = (
        artifact_retention,
        memory.as_ref().and_then(|memory| memory.cache.as_ref()),
    ) && cache.ttl > retention
    {
        return Err(source.error(
            raw.memory.as_ref().map(Spanned::span),
            "ttl is longer than the artifacts' retention; a cached answer would name files that are gone",
        ));
    }
    let examples = raw
        .examples
        .iter()
        .map(|example| example_of(source, example, &input, &handler))
        .collect::<Result<_, _>>()?;

    let schedule = raw
        .schedule
        .as_ref()
        .map(|schedule| schedule_of(source, schedule, &input, &handler))
        .transpose()?;

    let manifest = Manifest {
        name,
        version,
        title: raw.title.map(|title| title.into_inner().trim().to_owned()),
        description: raw.description.into_inner().trim().to_owned(),
        read_only: raw.read_only,
        hints,
        metadata: raw.metadata,
        handler,
        timeout,
        input,
        output,
        session,
        credentials,
        asynchronous: raw.asynchronous,
        retry: 0,
        schedule,
        no_audit: raw.no_audit,
        artifact_retention,
        memory,
        examples,
        file: source.file.to_owned(),
    };
    let retry = match raw.job.as_ref().and_then(|job| job.retry.as_ref()) {
        Some(retry) => source.read(retry, |retry| retries(*retry, manifest.idempotent()))?,
        None => 0,
    };
    Ok(Manifest { retry, ..manifest })
}

/// Checks how often jobs are run again.
fn retries(retry: u32, idempotent: bool) -> Result<u32, String> {
    if retry > MAX_RETRIES {
        return Err(format!(
            "retry = {retry} is too much; at most {MAX_RETRIES} are allowed"
        ));
    }
    if retry > 0 && !idempotent {
        return Err(
            "retry needs idempotent = true: nobody knows what a lost run has done".to_owned(),
        );
    }
    Ok(retry)
}

fn schedule_of(
    source: &SourceText<'_>,
    schedule: &Spanned<raw::Schedule>,
    input: &Schema,
    handler: &HandlerSpec,
) -> Result<ScheduleSpec, ManifestError> {
    let raw = schedule.get_ref();
    let timing = match (&raw.every, &raw.cron) {
        (Some(every), None) => source.read(every, |text| Timing::every(text))?,
        (None, Some(cron)) => source.read(cron, |text| Timing::cron(text))?,
        _ => {
            return Err(source.error(
                Some(schedule.span()),
                "[schedule] needs exactly one of `every` and `cron`",
            ));
        }
    };
    let (value, span) = match &raw.input {
        Some(input) => (to_json(input.get_ref()), input.span()),
        None => (Value::Object(serde_json::Map::new()), schedule.span()),
    };
    fits(source, "the schedule", &span, &value, input, handler)?;
    Ok(ScheduleSpec {
        timing,
        input: value.to_string(),
    })
}

fn hints_of(source: &SourceText<'_>, raw: &raw::Manifest) -> Result<Hints, ManifestError> {
    if raw.read_only {
        let written = [
            (&raw.destructive, true, "destructive = true"),
            (&raw.idempotent, false, "idempotent = false"),
        ];
        for (hint, wrong, shown) in written {
            if let Some(hint) = hint.as_ref().filter(|hint| *hint.get_ref() == wrong) {
                return Err(source.error(
                    Some(hint.span()),
                    format!("{shown} is for packs that write; this one says read_only = true"),
                ));
            }
        }
    }
    let value = |hint: &Option<Spanned<bool>>| hint.as_ref().map(|hint| *hint.get_ref());
    Ok(Hints {
        destructive: value(&raw.destructive),
        idempotent: value(&raw.idempotent),
        open_world: raw.open_world,
    })
}

/// Adds a suggestion to the parser's "unknown field" messages.
fn explain(message: &str) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    match (message.starts_with("unknown field"), quoted.next()) {
        (true, Some(unknown)) => {
            let known: Vec<&str> = quoted.collect();
            let hint = if TOP_KEYS.contains(&unknown) && !known.contains(&unknown) {
                format!("; `{unknown}` stands at the top of the file, before the first [table]")
            } else {
                suggest(unknown, known.iter().copied())
            };
            format!("unknown key `{unknown}`{hint}")
        }
        _ => message.replace("missing field", "missing key"),
    }
}

/// Returns "; did you mean `...`?" for the nearest known word, or nothing.
pub(super) fn suggest<'a>(unknown: &str, known: impl Iterator<Item = &'a str>) -> String {
    suggest::nearest(unknown, known)
        .map_or_else(String::new, |word| format!("; did you mean `{word}`?"))
}

/// Returns the schemas that the family of a built-in pack has for it.
fn schemas_of(
    source: &SourceText<'_>,
    name: &PackName,
) -> Result<BTreeMap<String, Value>, ManifestError> {
    if source.schemas.is_empty() {
        return Ok(BTreeMap::new());
    }
    let wrong = |error: serde_json::Error| source.error(None, format!("its schemas: {error}"));
    let all: BTreeMap<&str, &RawValue> = serde_json::from_str(source.schemas).map_err(wrong)?;
    all.get(name.as_str()).map_or_else(
        || Ok(BTreeMap::new()),
        |own| serde_json::from_str(own.get()).map_err(wrong),
    )
}

fn schema_of(
    source: &SourceText<'_>,
    value: &Spanned<toml::Value>,
    what: &str,
    read_file: ReadFile<'_>,
) -> Result<Schema, ManifestError> {
    let fail = |message: String| source.error(Some(value.span()), format!("[{what}]: {message}"));
    let toml::Value::Table(table) = value.get_ref() else {
        return Err(fail(
            "must be a table with a JSON Schema, or `file = \"schema.json\"`".to_owned(),
        ));
    };
    let json = match (table.get("file").and_then(toml::Value::as_str), table.len()) {
        (Some(file), 1) => {
            let text = read_file(file).map_err(fail)?;
            serde_json::from_str(&text)
                .map_err(|error| fail(format!("{file} is not JSON: {error}")))?
        }
        _ => to_json(value.get_ref()),
    };
    source.schema(json).map_err(fail)
}

pub(super) fn to_json(value: &toml::Value) -> Value {
    match value {
        toml::Value::String(text) => Value::from(text.as_str()),
        toml::Value::Integer(number) => Value::from(*number),
        toml::Value::Float(number) => Value::from(*number),
        toml::Value::Boolean(flag) => Value::from(*flag),
        toml::Value::Datetime(time) => Value::from(time.to_string()),
        toml::Value::Array(items) => Value::Array(items.iter().map(to_json).collect()),
        toml::Value::Table(table) => Value::Object(
            table
                .iter()
                .map(|(key, value)| (key.clone(), to_json(value)))
                .collect(),
        ),
    }
}

fn handler_of(
    source: &SourceText<'_>,
    manifest: &raw::Manifest,
    input: &Schema,
    credentials: &[Template],
) -> Result<HandlerSpec, ManifestError> {
    let handler = &manifest.handler;
    let raw = handler.get_ref();
    if let Some(mcp) = &raw.mcp {
        return mcp_of(source, handler, mcp);
    }
    if let (Some(http), None, None) = (&raw.http, &raw.builtin, &raw.command) {
        if !raw.env.is_empty() {
            return Err(source.error(
                Some(handler.span()),
                "`env` is only for handlers of kind `command`",
            ));
        }
        let revalidate = manifest
            .memory
            .as_ref()
            .is_some_and(|memory| memory.get_ref().revalidate);
        let around = http::Around {
            input,
            credentials,
            read_only: manifest.read_only,
            revalidate,
        };
        return http::read(source, http, &around).map(|spec| HandlerSpec::Http(Box::new(spec)));
    }
    match (&raw.builtin, &raw.command) {
        (Some(name), None) if raw.http.is_none() && raw.env.is_empty() => {
            Ok(HandlerSpec::Builtin(name.clone()))
        }
        (Some(_), None) if raw.http.is_none() => Err(source.error(
            Some(handler.span()),
            "`env` is only for handlers of kind `command`",
        )),
        (None, Some(command)) if raw.http.is_none() => {
            if command
                .get_ref()
                .first()
                .is_none_or(|program| program.trim().is_empty())
            {
                return Err(source.error(
                    Some(command.span()),
                    "command is empty; write [\"program\", \"argument\", ...]",
                ));
            }
            if let Some(name) = raw.env.keys().find(|name| {
                name.starts_with("HELMDECK_") || name.is_empty() || name.contains(['=', '\0'])
            }) {
                return Err(source.error(
                    Some(handler.span()),
                    format!("env \"{name}\" cannot be set for a command"),
                ));
            }
            programs_get_no_credentials(source, manifest)?;
            Ok(HandlerSpec::Command {
                argv: command.get_ref().clone(),
                env: raw.env.clone(),
            })
        }
        _ => Err(source.error(Some(handler.span()), ONE_KIND)),
    }
}

/// Refuses keys that a handler of kind `command` does not support.
///
/// It cannot get a credential in its `env`, confirm a cached answer, or have a secret in its `env`.
/// Declared `credentials` are allowed: they restrict its callers, and its cached answers belong to
/// them.
fn programs_get_no_credentials(
    source: &SourceText<'_>,
    manifest: &raw::Manifest,
) -> Result<(), ManifestError> {
    const INSTEAD: &str = "use `[handler.http]`, or an MCP server with `env` in [[mcp.servers]]";
    if let Some(memory) = manifest
        .memory
        .as_ref()
        .filter(|memory| memory.get_ref().revalidate)
    {
        let message = "`revalidate` has no effect for a handler of kind `command`: a program cannot confirm a cached answer; remove it";
        return Err(source.error(Some(memory.span()), message));
    }
    let ttl = manifest
        .memory
        .as_ref()
        .and_then(|memory| memory.get_ref().ttl.as_ref());
    if let Some(ttl) = ttl.filter(|ttl| ttl.get_ref() == "upstream") {
        let message = "ttl = \"upstream\" is for handlers of kind `http` and `mcp`: a program has no upstream that says how long its answer is fresh; write a duration";
        return Err(source.error(Some(ttl.span()), message));
    }
    for (name, value) in &manifest.handler.get_ref().env {
        let message = if value.contains("{credential:") {
            format!("env \"{name}\": a handler of kind `command` gets no credential; {INSTEAD}")
        } else if leaks::has_leak(value.as_bytes()) {
            format!("env \"{name}\" looks like a secret; a manifest must not hold one: {INSTEAD}")
        } else {
            continue;
        };
        return Err(source.error(Some(manifest.handler.span()), message));
    }
    Ok(())
}

/// Checks that a name can be that of a server in `[[mcp.servers]]`: `^[a-z0-9_]+$`.
fn server_name(name: &str) -> Result<(), String> {
    if !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    {
        return Ok(());
    }
    Err(format!(
        "\"{}\" is not the name of an MCP server; a name is made of a-z, 0-9 and _",
        name.escape_debug()
    ))
}

fn mcp_of(
    source: &SourceText<'_>,
    handler: &Spanned<raw::Handler>,
    mcp: &raw::McpTool,
) -> Result<HandlerSpec, ManifestError> {
    let raw = handler.get_ref();
    if raw.builtin.is_some() || raw.command.is_some() || raw.http.is_some() {
        return Err(source.error(Some(handler.span()), ONE_KIND));
    }
    if !raw.env.is_empty() {
        let message = "`env` is only for handlers of kind `command`; that of an MCP server stands in [[mcp.servers]]";
        return Err(source.error(Some(handler.span()), message));
    }
    source.read(&mcp.server, |name| server_name(name))?;
    if mcp.tool.get_ref().trim().is_empty() {
        return Err(source.error(
            Some(mcp.tool.span()),
            "tool is empty; name a tool that the server lists",
        ));
    }
    Ok(HandlerSpec::Mcp {
        server: mcp.server.get_ref().clone(),
        tool: mcp.tool.get_ref().clone(),
    })
}

fn session_of(
    source: &SourceText<'_>,
    raw: &raw::SessionTable,
) -> Result<SessionSpec, ManifestError> {
    Ok(SessionSpec {
        timeout: source.duration(raw.timeout.as_ref(), DEFAULT_SESSION_TIMEOUT)?,
        optional: raw.optional,
        preserve: raw.preserve,
        network: raw.network,
        memory_bytes: raw
            .memory
            .as_ref()
            .map(|memory| source.read(memory, |text| parse_size(text)))
            .transpose()?,
    })
}

fn memory_of(
    source: &SourceText<'_>,
    memory: &Spanned<raw::Memory>,
    read_only: bool,
    input: &Schema,
) -> Result<MemorySpec, ManifestError> {
    let raw = memory.get_ref();
    let invalidates = source.tags(&raw.invalidates, input)?;
    if let (Some(first), true) = (raw.invalidates.first(), read_only) {
        return Err(source.error(
            Some(first.span()),
            "invalidates is for packs that write; this one says read_only = true",
        ));
    }
    let Some(flag) = raw.cache.as_ref().filter(|flag| *flag.get_ref()) else {
        if let Some(ttl) = &raw.ttl {
            return Err(source.error(Some(ttl.span()), "ttl has no meaning without cache = true"));
        }
        return Ok(MemorySpec {
            cache: None,
            invalidates,
        });
    };
    if !read_only {
        return Err(source.error(
            Some(flag.span()),
            "cache = true needs read_only = true; a pack that writes can never be cached",
        ));
    }
    let Some(ttl) = &raw.ttl else {
        return Err(source.error(
            Some(flag.span()),
            "cache = true needs a ttl, for example ttl = \"5m\"",
        ));
    };
    let ttl_of_upstream = ttl.get_ref() == "upstream";
    let fresh = if ttl_of_upstream {
        source.duration(raw.max_ttl.as_ref(), DEFAULT_MAX_TTL)?
    } else if let Some(max) = &raw.max_ttl {
        return Err(source.error(
            Some(max.span()),
            "max_ttl is the limit of ttl = \"upstream\"; this ttl is its own",
        ));
    } else {
        source.read(ttl, |text| parse_duration(text))?
    };
    if fresh.is_zero() {
        return Err(source.error(
            Some(ttl.span()),
            "ttl is 0; leave out cache = true to run the handler every time",
        ));
    }
    if ttl_of_upstream && raw.respect == Respect::None {
        let message = "ttl = \"upstream\" is what the upstream says, which respect = \"none\" does not count; write a duration";
        return Err(source.error(Some(ttl.span()), message));
    }
    if let (Some(slow), None) = (&raw.stale_if_slow, &raw.stale_if_error) {
        let message = "stale_if_slow needs stale_if_error, which says how stale an answer may be";
        return Err(source.error(Some(slow.span()), message));
    }
    let category = match &raw.category {
        Some(category) if category.get_ref().trim().is_empty() => {
            return Err(source.error(Some(category.span()), "category is empty"));
        }
        Some(category) => category.get_ref().clone(),
        None => "cache".to_owned(),
    };
    let cache = CacheSpec {
        ttl: fresh,
        ttl_of_upstream,
        respect: raw.respect,
        category,
        scope: raw.scope,
        stale_while_revalidate: source
            .duration(raw.stale_while_revalidate.as_ref(), Duration::ZERO)?,
        stale_if_error: source.duration(raw.stale_if_error.as_ref(), Duration::ZERO)?,
        stale_if_slow: source.duration(raw.stale_if_slow.as_ref(), DEFAULT_STALE_IF_SLOW)?,
        errors: errors_of(source, &raw.errors)?,
        early: raw.early.unwrap_or(raw.stale_while_revalidate.is_some()),
        ttl_jitter: raw.ttl_jitter.as_ref().map_or(Ok(0.0), |jitter| {
            source.read(jitter, |part| ttl_jitter(*part))
        })?,
        revalidate: raw.revalidate,
        revalidate_for: source.duration(raw.revalidate_for.as_ref(), DEFAULT_REVALIDATE_FOR)?,
        tags: source.tags(&raw.tags, input)?,
        epoch: raw.epoch.unwrap_or(1),
        single_flight: raw.single_flight,
        max_bytes: raw
            .max_bytes
            .as_ref()
            .map_or(Ok(DEFAULT_MAX_BYTES), |size| {
                source.read(size, |text| max_bytes(text))
            })?,
    };
    Ok(MemorySpec {
        cache: Some(cache),
        invalidates,
    })
}

/// Parses the limit of a stored answer.
fn max_bytes(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        size if size > MAX_MAX_BYTES => {
            Err("max_bytes is over 64MiB, the most there is".to_owned())
        }
        size => Ok(size),
    }
}

/// Checks the part of a ttl that is random.
fn ttl_jitter(part: f64) -> Result<f64, String> {
    match part {
        0.0..=1.0 => Ok(part),
        _ => Err(format!(
            "ttl_jitter = {part} is no part of the ttl; it is from 0 to 1"
        )),
    }
}

/// Reads how long errors are stored. Only those can be that say something about the request.
fn errors_of(
    source: &SourceText<'_>,
    raw: &BTreeMap<String, Spanned<String>>,
) -> Result<BTreeMap<Code, Duration>, ManifestError> {
    let stored = |name: &str| STORED_ERRORS.into_iter().find(|code| code.as_str() == name);
    raw.iter()
        .map(|(name, ttl)| {
            source.read(ttl, |text| {
                let names: Vec<&str> = STORED_ERRORS.into_iter().map(Code::as_str).collect();
                let code = stored(name).ok_or_else(|| {
                    let hint = suggest(name, names.iter().copied());
                    format!(
                        "\"{name}\" is no error that can be stored; those are {}{hint}",
                        names.join(", ")
                    )
                })?;
                Ok((code, parse_duration(text)?))
            })
        })
        .collect()
}

fn example_of(
    source: &SourceText<'_>,
    example: &Spanned<raw::Example>,
    input: &Schema,
    handler: &HandlerSpec,
) -> Result<Example, ManifestError> {
    let raw = example.get_ref();
    let value = to_json(&raw.input);
    fits(
        source,
        "the example",
        &example.span(),
        &value,
        input,
        handler,
    )?;
    Ok(Example {
        input: value,
        output: raw.output.as_ref().map(to_json),
        description: raw.description.clone(),
    })
}

/// Checks that an input fits the schema, and that a request can be made of it.
fn fits(
    source: &SourceText<'_>,
    what: &str,
    span: &Range<usize>,
    value: &Value,
    input: &Schema,
    handler: &HandlerSpec,
) -> Result<(), ManifestError> {
    if source.is_lazy {
        return Ok(());
    }
    let text = input.fill(&value.to_string()).map(Cow::into_owned);
    let text = text.map_err(|why| {
        source.error(
            Some(span.clone()),
            format!("{what}'s input cannot be used: {why}"),
        )
    })?;
    let filled: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
    input.validate(&filled).map_err(|violations| {
        let places: Vec<String> = violations
            .iter()
            .map(|v| {
                format!(
                    "at {}: {}",
                    if v.pointer.is_empty() {
                        "/"
                    } else {
                        &v.pointer
                    },
                    v.detail
                )
            })
            .collect();
        source.error(
            Some(span.clone()),
            format!("{what}'s input does not fit [input]: {}", places.join("; ")),
        )
    })?;
    if let HandlerSpec::Http(spec) = handler {
        spec.request(&text).map_err(|error| {
            source.error(
                Some(span.clone()),
                format!("{what} makes no request: {}", error.message()),
            )
        })?;
    }
    Ok(())
}
