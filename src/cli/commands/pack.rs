//! `helmdeck pack list` and `helmdeck pack show`.

use std::collections::BTreeSet;
use std::time::Duration;

use helmdeck_core::duration::format_duration;
use helmdeck_core::manifest::ManifestError;
use helmdeck_core::schema::properties;
use helmdeck_core::suggest::did_you_mean;
use helmdeck_core::template::Template;
use helmdeck_core::text::{collapse_whitespace, count, escaped};
use helmdeck_core::{Clock as _, SystemClock};
use helmdeck_engine::{Engine, PackInfo};
use serde_json::{Value, json};

use crate::args::{PackListArgs, PackRef};
use crate::exit::Result;
use crate::lookup;
use crate::output::printable;
use crate::progress::Progress;
use crate::terminal::{self, Look, Paint, cut, wrapped};
use crate::wire::{MemoryUse, Setup};
use helmdeck_core::text::columns;

/// Time limit for all MCP servers to list their tools.
pub(crate) const IMPORT_LIMIT: Duration = Duration::from_secs(20);

/// Returns the MCP servers that have not answered in [`IMPORT_LIMIT`], as refusals.
pub(crate) fn late(engine: &Engine) -> impl Iterator<Item = ManifestError> + use<> {
    engine
        .mcp_servers()
        .into_iter()
        .filter(|server| server.listed.is_none() && server.state == "starting")
        .map(|server| {
            let limit = format_duration(IMPORT_LIMIT);
            let message = format!(
                "the MCP server \"{}\" has not answered within {limit}",
                server.name
            );
            ManifestError {
                file: format!("mcp:{}", server.name),
                line: None,
                message,
            }
        })
}

/// Lists packs in their latest version, and the manifests that were refused.
///
/// A terminal gets them by family, each on a line that fits. Otherwise each pack is a whole line of
/// one table.
///
/// # Errors
/// A silent failure if the reader went away.
pub(crate) async fn list(setup: &Setup, wanted: &PackListArgs) -> Result<()> {
    let engine = setup.engine(MemoryUse::None, false).await?;
    Progress::of_call(setup.output, false)
        .beside(engine.import_unknown(IMPORT_LIMIT))
        .await;
    let (all, mut refused) = (engine.all_packs(), engine.refused());
    refused.extend(late(&engine));
    setup.shut_down(&engine).await;
    let matching = |pack: &&PackInfo| {
        wanted
            .filter
            .as_deref()
            .is_none_or(|text| pack.name.as_str().contains(text))
    };
    let (packs, hidden): (Vec<&PackInfo>, Vec<&PackInfo>) = all
        .iter()
        .filter(matching)
        .partition(|pack| wanted.all || pack.waits_for.is_none());
    let output = setup.output;
    if output.json {
        return output.value(&json!({
            "packs": packs,
            "refused": refused.iter().map(|error| json!({"file": error.file, "line": error.line, "message": error.message})).collect::<Vec<_>>(),
        }));
    }
    if packs.is_empty() && hidden.is_empty() {
        output.note(&nothing(wanted.filter.as_deref(), &all));
    }
    let mut text = if output.terminals.stdout {
        let view = View {
            width: terminal::width_of_stdout(),
            long: wanted.long,
            paint: output.terminals.on_stdout(),
        };
        let mut text = view.by_family(&packs);
        if !hidden.is_empty() {
            let hidden = count(hidden.len(), "pack");
            let more = format!("{hidden} wait for something: `helmdeck pack list --all`");
            text.push_str(&format!("{}\n", cut(&more, view.width)));
        }
        text
    } else {
        table(&packs, wanted.long)
    };
    for error in &refused {
        text.push_str(&printable(&format!("refused: {error}\n")));
    }
    output.painted(&text)
}

/// Says that no pack matches, with the nearest name.
fn nothing(filter: Option<&str>, all: &[PackInfo]) -> String {
    let Some(filter) = filter else {
        return "there are no packs".to_owned();
    };
    let names = || all.iter().map(|pack| pack.name.as_str());
    let parts = names().flat_map(|name| std::iter::once(name).chain(name.split('.')));
    format!(
        "no pack has \"{}\" in its name{}",
        escaped(filter, 80),
        did_you_mean(filter, parts)
    )
}

const fn access(pack: &PackInfo) -> &'static str {
    if pack.read_only { "reads" } else { "writes" }
}

/// Lays packs out in one table, a line each; `long` has whole descriptions.
fn table(packs: &[&PackInfo], long: bool) -> String {
    let mut rows = vec![
        ["PACK", "VERSION", "HANDLER", "ACCESS", "DESCRIPTION"]
            .map(str::to_owned)
            .to_vec(),
    ];
    rows.extend(packs.iter().map(|pack| {
        let about = if long {
            collapse_whitespace(&pack.description)
        } else {
            first_line(&pack.description)
        };
        vec![
            pack.name.to_string(),
            pack.version.to_string(),
            pack.handler.to_owned(),
            access(pack).to_owned(),
            printable(&about).into_owned(),
        ]
    }));
    let mut text = columns(&rows);
    let waiting: BTreeSet<&str> = packs.iter().filter_map(|pack| pack.waits_for).collect();
    for missing in waiting {
        let names: Vec<&str> = packs
            .iter()
            .filter(|pack| pack.waits_for == Some(missing))
            .map(|pack| pack.name.as_str())
            .collect();
        text.push_str(&format!("waiting for {missing}: {}\n", names.join(", ")));
    }
    text
}

/// How a terminal shows a list.
struct View {
    width: usize,
    long: bool,
    paint: Paint,
}

impl View {
    /// Lays packs out below their families.
    fn by_family(&self, packs: &[&PackInfo]) -> String {
        let wide = packs
            .iter()
            .map(|pack| pack.name.as_str().len())
            .max()
            .unwrap_or_default();
        let mut text = String::new();
        for group in packs.chunk_by(|a, b| a.family() == b.family()) {
            text.push_str(&self.paint.text(Look::Bold, group[0].family()));
            text.push('\n');
            let waiting: BTreeSet<&str> = group.iter().filter_map(|pack| pack.waits_for).collect();
            for missing in waiting {
                text.push_str(&format!(
                    "  {}\n",
                    cut(&format!("(waits for {missing})"), self.width - 2)
                ));
            }
            for pack in group {
                if self.long {
                    text.push_str(&self.whole(pack));
                } else {
                    let about = first_line(&pack.description);
                    let line = format!(
                        "  {:wide$}  {:6}  {}",
                        pack.name.as_str(),
                        access(pack),
                        printable(&about)
                    );
                    text.push_str(&cut(&line, self.width));
                    text.push('\n');
                }
            }
            text.push('\n');
        }
        text
    }

    /// Shows all of a pack's description, indented.
    fn whole(&self, pack: &PackInfo) -> String {
        let mut text = format!(
            "  {} {}  {}  {}\n",
            pack.name,
            pack.version,
            pack.handler,
            access(pack)
        );
        for line in wrapped(&printable(&pack.description), self.width - 4) {
            text.push_str(format!("    {line}").trim_end());
            text.push('\n');
        }
        text
    }
}

/// Shows one pack.
///
/// # Errors
/// `not_found`, with the packs that were probably meant.
pub(crate) async fn show(setup: &Setup, pack: &PackRef) -> Result<()> {
    let engine = setup.engine(MemoryUse::None, false).await?;
    let found = Progress::of_call(setup.output, false)
        .beside(lookup::find(&engine, pack, setup.output))
        .await;
    setup.shut_down(&engine).await;
    let mut info = found?;
    // The engine was built without the store, so that none is created; gate 1 is the key.
    info.cached = info.cache.is_some() && setup.ring.is_some();
    let value = serde_json::to_value(&info).unwrap_or_default();
    setup.output.either(&value, || describe(&info))
}

fn describe(pack: &PackInfo) -> String {
    let mut text = format!("{} {}: {}\n\n", pack.name, pack.version, pack.description);
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut fact = |name: &str, value: String| rows.push(vec![name.to_owned(), value]);
    let versions: Vec<String> = pack.versions.iter().map(ToString::to_string).collect();
    fact("versions", versions.join(", "));
    fact(
        "access",
        if pack.read_only {
            "reads only"
        } else {
            "writes"
        }
        .to_owned(),
    );
    fact(
        "handler",
        format!("{}, at most {} s", pack.handler, pack.timeout_s),
    );
    fact("file", pack.file.clone());
    if let Some(why) = &pack.outdated {
        fact(
            "outdated",
            format!("its manifest is refused now, the last good version is served: {why}"),
        );
    }
    if let Some(missing) = pack.waits_for {
        fact("waits for", missing.to_owned());
    }
    fact("cache", cache(pack));
    if !pack.invalidates.is_empty() {
        fact(
            "purges",
            format!("cached answers with tag {}", pack.invalidates.join(", ")),
        );
    }
    if !pack.credentials.is_empty() {
        fact("credentials", pack.credentials.join(", "));
    }
    if pack.needs_session {
        fact("session", "needed".to_owned());
    }
    if pack.retry > 0 {
        fact(
            "retry",
            format!(
                "{}, if the server of a job is lost or stopped",
                times(pack.retry)
            ),
        );
    }
    if let Some(schedule) = &pack.schedule {
        let next = schedule.timing.next(SystemClock::default().now());
        fact(
            "schedule",
            format!("{} (UTC), next at {}", schedule.when, next.to_rfc3339()),
        );
    }
    text.push_str(&columns(&rows));
    text.push_str(&members("\ninput:\n", &pack.input, true));
    text.push_str(&members("\noutput:\n", &pack.output, false));
    for example in &pack.examples {
        let description = example.description.as_deref().unwrap_or("example");
        text.push_str(&format!(
            "\n{description}:\n  helmdeck run {}{}\n",
            pack.name,
            arguments(&example.input)
        ));
    }
    text
}

fn times(count: u32) -> String {
    if count == 1 {
        "once".to_owned()
    } else {
        format!("{count} times")
    }
}

/// Formats an input as arguments: `key=value` if exact and free of shell quotes, else `--input`.
fn arguments(input: &Value) -> String {
    let pairs = input.as_object().and_then(|object| {
        object
            .iter()
            .map(|(key, value)| Some(format!(" {key}={}", word(value)?)))
            .collect::<Option<String>>()
    });
    pairs.unwrap_or_else(|| format!(" --input '{}'", input.to_string().replace('\'', r"'\''")))
}

fn word(value: &Value) -> Option<String> {
    let bare = |text: &str| {
        text.bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_./:@-".contains(&b))
    };
    match value {
        Value::String(text) if !text.is_empty() && bare(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Array(items) if !items.is_empty() && items.iter().all(|item| !item.is_array()) => {
            items
                .iter()
                .map(word)
                .collect::<Option<Vec<_>>>()
                .map(|words| words.join(","))
        }
        _ => None,
    }
}

fn cache(pack: &PackInfo) -> String {
    let Some(cache) = &pack.cache else {
        return "never: its manifest does not say cache = true".to_owned();
    };
    let state = if pack.cached {
        "on"
    } else {
        "off: no memory key is set"
    };
    let of_upstream = if cache.ttl_of_upstream {
        "as long as the upstream says, at most "
    } else {
        ""
    };
    let ttl = format_duration(cache.ttl);
    let mut parts = vec![format!(
        "{state}; fresh for {of_upstream}{ttl}, scope {}",
        cache.scope.as_str()
    )];
    if cache.early {
        parts.push("renewed shortly before its end".to_owned());
    }
    let windows = [
        (
            cache.stale_while_revalidate,
            "while it is renewed".to_owned(),
        ),
        (
            cache.stale_if_error,
            format!(
                "if the handler fails or takes over {}",
                format_duration(cache.stale_if_slow)
            ),
        ),
    ];
    let served = |(window, when): &(Duration, String)| {
        format!("stale for {} {when}", format_duration(*window))
    };
    parts.extend(
        windows
            .iter()
            .filter(|(window, _)| !window.is_zero())
            .map(served),
    );
    if cache.revalidate {
        parts.push("then confirmed at its source".to_owned());
    }
    parts.extend(
        cache
            .errors
            .iter()
            .map(|(code, ttl)| format!("{} for {}", code.as_str(), format_duration(*ttl))),
    );
    if !cache.tags.is_empty() {
        let tags: Vec<&str> = cache.tags.iter().map(Template::source).collect();
        parts.push(format!("tags {}", tags.join(", ")));
    }
    parts.join(", ")
}

fn members(title: &str, schema: &Value, with_default: bool) -> String {
    let properties = properties(schema);
    if properties.is_empty() {
        return format!("{title}  any JSON\n");
    }
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut rows: Vec<(bool, Vec<String>)> = properties
        .iter()
        .map(|(name, property)| {
            let needed = required.contains(&name.as_str());
            let mut words = Vec::new();
            if needed && with_default {
                words.push("required".to_owned());
            }
            if let Some(default) = property.get("default").filter(|_| with_default) {
                words.push(format!("default {default}"));
            }
            words.extend(
                property
                    .get("description")
                    .and_then(Value::as_str)
                    .map(first_line),
            );
            (
                !(needed && with_default),
                vec![format!("  {name}"), kind(property), words.join("; ")],
            )
        })
        .collect();
    // Required members come first; the sort is stable, so the rest stays in order.
    rows.sort_by_key(|(optional, _)| *optional);
    format!(
        "{title}{}",
        columns(&rows.into_iter().map(|(_, row)| row).collect::<Vec<_>>())
    )
}

fn kind(property: &Value) -> String {
    if let Some(words) = property.get("enum").and_then(Value::as_array) {
        let words: Vec<String> = words
            .iter()
            .map(|word| {
                word.as_str()
                    .map_or_else(|| word.to_string(), str::to_owned)
            })
            .collect();
        return words.join("|");
    }
    match property.get("type") {
        Some(Value::String(kind)) if kind == "array" => property.get("items").map_or_else(
            || "list".to_owned(),
            |items| format!("list of {}", self::kind(items)),
        ),
        Some(Value::Array(kinds)) => kinds
            .iter()
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join("|"),
        Some(Value::String(kind)) => kind.clone(),
        _ => "any".to_owned(),
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_written_as_one_would_type_them() {
        assert_eq!(
            arguments(&json!({"path": ".", "n": 5, "labels": ["a", "b"]})),
            " labels=a,b n=5 path=."
        );
        assert_eq!(
            arguments(&json!({"text": "it's"})),
            r#" --input '{"text":"it'\''s"}'"#
        );
        assert_eq!(
            arguments(&json!({"o": {"a": 1}})),
            r#" --input '{"o":{"a":1}}'"#
        );
        assert_eq!(arguments(&json!({})), "");
    }

    #[test]
    fn members_are_listed_with_what_must_be_given_first() {
        let schema = json!({"properties": {
            "a": {"type": "integer", "default": 5, "description": "A number\nand more"},
            "b": {"type": "array", "items": {"enum": ["s", "t"]}},
            "c": {"enum": ["x", "y"]},
            "d": {"type": ["string", "null"]},
        }, "required": ["c"]});
        let expected = "in:\n  c  x|y          required\n  a  integer      default 5; A number\n  b  list of s|t\n  d  string|null\n";
        assert_eq!(members("in:\n", &schema, true), expected);
        assert_eq!(members("in:\n", &json!(true), true), "in:\n  any JSON\n");
    }
}
