//! Table of the tools, built once per set of packs. Each caller sees the tools that it may use.

use helmdeck_core::suggest;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;

use helmdeck_core::{Caller, PackName};
use helmdeck_engine::PackSource;
use helmdeck_engine::{Engine, PackInfo};
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::Value;

use super::names::Names;

/// Families with many packs, and those of their packs that are listed. The others can be called,
/// too.
const SHORT: &[(&str, &[&str])] = &[(
    "forge",
    &["commit", "done", "prime", "remember", "start", "verify"],
)];

/// A pack as a tool.
#[derive(Debug, PartialEq)]
pub(crate) struct ToolEntry {
    pub(crate) tool: Tool,
    pub(crate) pack: PackName,
    /// Whether the pack can work and is on the short list of its family, if that has one. Others
    /// can be called, too: the error of a pack that cannot work says what is missing.
    listed: bool,
    /// Whether headers must repeat parts of the input (`x-mcp-header`).
    pub(crate) has_headers: bool,
    /// Whether the pack is `async`.
    pub(crate) is_long: bool,
    /// Schema of its input, if that has paths of this machine.
    pub(crate) paths: Option<Value>,
}

impl ToolEntry {
    /// Says whether the pack writes.
    pub(crate) fn writes(&self) -> bool {
        self.tool
            .annotations
            .as_ref()
            .is_none_or(|annotations| annotations.read_only_hint != Some(true))
    }
}

/// All tools, in the order of their names.
#[derive(Debug, Default)]
pub(crate) struct Table {
    revision: u64,
    entries: Vec<Arc<ToolEntry>>,
    by_name: HashMap<Box<str>, usize>,
    names: Names,
}

impl Table {
    fn new(engine: &Engine, families: &[String]) -> Self {
        // Read first: if packs change meanwhile, the table is only built again.
        let revision = engine.revision();
        let packs = engine.all_packs();
        let names = Names::new(packs.iter().map(|info| &info.name));
        let mut entries: Vec<Arc<ToolEntry>> = packs
            .iter()
            .filter_map(|info| entry(info, &names, families))
            .map(Arc::new)
            .collect();
        entries.sort_by(|a, b| a.tool.name.cmp(&b.tool.name));
        // Two packs with one tool name are ambiguous.
        let mut alike: Vec<String> = entries
            .windows(2)
            .filter(|pair| pair[0].tool.name == pair[1].tool.name)
            .map(|pair| pair[0].name())
            .collect();
        alike.dedup();
        for name in &alike {
            tracing::error!(
                tool = name,
                "two packs have the same tool name, so neither is offered over MCP; rename one"
            );
        }
        entries.retain(|entry| !alike.contains(&entry.name()));
        let by_name = entries
            .iter()
            .enumerate()
            .map(|(at, entry)| (entry.tool.name.as_ref().into(), at))
            .collect();
        Self {
            revision,
            entries,
            by_name,
            names,
        }
    }

    /// Returns the tool of this name, or of the pack of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<ToolEntry>> {
        let by_name = |name: &str| self.by_name.get(name).and_then(|at| self.entries.get(*at));
        by_name(name).or_else(|| {
            name.contains('.')
                .then(|| by_name(&name.replace('.', "__")))?
        })
    }

    /// Returns the most similar name among the tools that a caller may use.
    pub(crate) fn nearest(&self, name: &str, caller: &Caller) -> Option<String> {
        let wanted: String = name.replace('.', "__").chars().take(80).collect();
        suggest::nearest(&wanted, self.visible(caller).map(|entry| &*entry.tool.name))
            .map(str::to_owned)
    }

    /// Returns the names of packs that are tools.
    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    /// Returns the listed tools that a caller may use, in the order of their names.
    pub(crate) fn visible<'a>(
        &'a self,
        caller: &'a Caller,
    ) -> impl Iterator<Item = &'a Arc<ToolEntry>> {
        self.entries
            .iter()
            .filter(|entry| entry.listed && caller.need_run(&entry.pack).is_ok())
    }
}

impl ToolEntry {
    fn name(&self) -> String {
        self.tool.name.clone().into_owned()
    }
}

/// Table of the packs that are registered now, built when it is first asked for.
#[derive(Debug)]
pub(crate) struct Tables {
    engine: Engine,
    /// Families of which every pack is listed.
    families: Vec<String>,
    current: RwLock<Option<Arc<Table>>>,
}

impl Tables {
    pub(crate) fn new(engine: Engine, families: Vec<String>) -> Self {
        Self {
            engine,
            families,
            current: RwLock::default(),
        }
    }

    pub(crate) fn current(&self) -> Arc<Table> {
        let revision = self.engine.revision();
        {
            let table = self.current.read();
            if let Some(table) = table.as_ref().filter(|table| table.revision >= revision) {
                return Arc::clone(table);
            }
        }
        let fresh = Arc::new(Table::new(&self.engine, &self.families));
        let mut table = self.current.write();
        if table
            .as_ref()
            .is_none_or(|table| table.revision < fresh.revision)
        {
            *table = Some(Arc::clone(&fresh));
        }
        fresh
    }
}

/// Returns the tool's name for a pack: MCP clients refuse dots.
pub(crate) fn tool_name(pack: &PackName) -> String {
    pack.as_str().replace('.', "__")
}

/// Returns the pack whose tool would have this name, if its own name has no two underscores in a
/// row.
pub(crate) fn pack_name(tool: &str) -> Option<PackName> {
    PackName::new(&tool.replace("__", ".")).ok()
}

/// Makes the tool of a pack, `None` if its input is not an object, as MCP requires.
fn entry(info: &PackInfo, names: &Names, families: &[String]) -> Option<ToolEntry> {
    // Texts of MCP servers do not mention our packs.
    let own = Names::default();
    let names = if info.source == PackSource::Mcp {
        &own
    } else {
        names
    };
    let mut schema = info.input.clone();
    names.in_schema(&mut schema);
    let Some(input) = object_schema(&schema) else {
        tracing::debug!(pack = %info.name, "not offered over MCP: its input is not an object");
        return None;
    };
    let annotations = ToolAnnotations::new()
        .read_only(info.read_only)
        .destructive(info.destructive)
        .idempotent(info.idempotent)
        .open_world(info.open_world);
    let described = names.in_text(&description(info)).into_owned();
    let mut tool = Tool::new(tool_name(&info.name), described, input)
        .with_title(info.title.clone().unwrap_or_else(|| title(&info.name)))
        .with_annotations(annotations);
    // Up to revision 2025-11-25 an output schema must describe an object; other schemas are left
    // out.
    if let Value::Object(output) = &info.output
        && output.get("type").is_some_and(|kind| kind == "object")
    {
        let mut output = Value::Object(output.clone());
        names.in_schema(&mut output);
        if let Value::Object(output) = output {
            tool = tool.with_raw_output_schema(Arc::new(output));
        }
    }
    let text = info.input.to_string();
    let has_headers = text.contains("\"x-mcp-header\"");
    let paths = text
        .contains("\"x-helmdeck-path\"")
        .then(|| info.input.clone());
    let (pack, listed) = (
        info.name.clone(),
        info.waits_for.is_none() && is_on_list(&info.name, families),
    );
    Some(ToolEntry {
        tool,
        pack,
        listed,
        has_headers,
        is_long: info.asynchronous,
        paths,
    })
}

/// Says whether a pack is listed as far as its family goes.
fn is_on_list(pack: &PackName, families: &[String]) -> bool {
    let Some((family, verb)) = pack.as_str().split_once('.') else {
        return true;
    };
    let short = SHORT.iter().find(|(short, _)| *short == family);
    short.is_none_or(|(_, verbs)| {
        verbs.contains(&verb) || families.iter().any(|whole| whole == family)
    })
}

/// Returns the schema with `"type": "object"` at its root, `None` if it accepts no objects.
///
/// MCP requires that type.
fn object_schema(schema: &Value) -> Option<JsonObject> {
    let mut object = match schema {
        Value::Bool(true) => JsonObject::new(),
        Value::Object(object) => object.clone(),
        _ => return None,
    };
    let takes_objects = match object.get("type") {
        None => true,
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        Some(kind) => kind == "object",
    };
    object.insert("type".to_owned(), "object".into());
    takes_objects.then_some(object)
}

/// Formats a pack's name as a title: `github.list_issues` becomes `List issues (github)`.
fn title(pack: &PackName) -> String {
    let (family, rest) = pack.as_str().split_once('.').unwrap_or((pack.as_str(), ""));
    let words = rest.replace(['.', '_'], " ");
    let mut letters = words.chars();
    let words: String = letters
        .next()
        .into_iter()
        .flat_map(char::to_uppercase)
        .chain(letters)
        .collect();
    format!("{words} ({family})")
}

fn description(info: &PackInfo) -> String {
    let mut text = info.description.clone();
    if !info.metadata.typical_use.is_empty() {
        text.push_str("\n\n");
        text.push_str(&info.metadata.typical_use);
    }
    if !info.metadata.limitations.is_empty() {
        text.push_str("\n\nLimits: ");
        text.push_str(&info.metadata.limitations.join("; "));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn input_schema_root_becomes_an_object() {
        let made = |schema: Value| object_schema(&schema).map(Value::Object);
        assert_eq!(made(json!(true)), Some(json!({"type": "object"})));
        assert_eq!(
            made(json!({"required": ["a"]})),
            Some(json!({"type": "object", "required": ["a"]}))
        );
        assert_eq!(
            made(json!({"type": ["null", "object"]})),
            Some(json!({"type": "object"}))
        );
        assert_eq!(made(json!({"type": "string"})), None);
        assert_eq!(made(json!(false)), None);
    }

    #[test]
    fn large_families_list_a_few_packs() {
        let listed = |pack: &str, families: &[&str]| {
            let families: Vec<String> =
                families.iter().map(|family| (*family).to_owned()).collect();
            is_on_list(&PackName::new(pack).unwrap(), &families)
        };
        assert!(listed("forge.prime", &[]) && listed("github.issue_list", &[]));
        assert!(!listed("forge.issue_list", &[]) && !listed("forge.issue_list", &["github"]));
        assert!(listed("forge.issue_list", &["forge"]));
    }

    #[test]
    fn names_have_no_dots_and_titles_can_be_read() {
        let pack = PackName::new("github.list_issues").unwrap();
        assert_eq!(tool_name(&pack), "github__list_issues");
        assert_eq!(
            (pack_name("github__list_issues"), pack_name("a b")),
            (Some(pack.clone()), None)
        );
        assert_eq!(title(&pack), "List issues (github)");
    }
}
