//! Converts the tools that a server lists to manifests.
//!
//! The input is untrusted: it is bounded and compiled, and tools are refused one by one.

use std::time::{Duration, Instant};

use helmdeck_core::manifest::{HandlerSpec, Hints, ManifestError, Metadata};
use helmdeck_core::template::Template;
use helmdeck_core::text;
use helmdeck_core::{Manifest, PackName, Schema, Version};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::config::McpServer;

/// Limit of tools per server.
pub(crate) const MAX_TOOLS: usize = 500;
/// Limit of pages of a list of tools.
pub(crate) const MAX_PAGES: usize = 50;
/// Limit of a description, in bytes.
const MAX_DESCRIPTION_BYTES: usize = 8 << 10;
/// Limit of a title, in bytes.
const MAX_TITLE_BYTES: usize = 200;
/// Limit of a schema, in bytes.
const MAX_SCHEMA_BYTES: usize = 256 << 10;
/// Limit of the patterns of all schemas of one server, in bytes of memory.
const MAX_PATTERNS: usize = 64 << 20;
/// Time limit of reading the schemas of one server; those of usual servers take milliseconds.
const MAX_READING: Duration = Duration::from_secs(10);

/// One tool as the server describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Tool {
    pub(crate) name: String,
    pub(crate) title: Option<String>,
    pub(crate) description: String,
    pub(crate) input: Value,
    pub(crate) output: Option<Value>,
    /// The server's own `readOnlyHint`.
    pub(crate) read_only_hint: Option<bool>,
    /// Its other hints about the effects of a call.
    pub(crate) destructive_hint: Option<bool>,
    pub(crate) idempotent_hint: Option<bool>,
    pub(crate) open_world_hint: Option<bool>,
}

/// Why a list is incomplete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Cut {
    /// It has more tools than the limit.
    Tools,
    /// It has more pages than the limit.
    Pages,
}

/// A server's latest list of tools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Listing {
    /// Name and version that the server gives itself.
    pub(crate) server: String,
    /// The protocol revision that it speaks.
    pub(crate) protocol: String,
    pub(crate) tools: Vec<Tool>,
    /// Why it is incomplete, if it is.
    pub(crate) cut: Option<Cut>,
}

impl Tool {
    /// Reads a tool of a `tools/list` result. `None` if it has no name.
    pub(crate) fn read(value: &Value) -> Option<Self> {
        let name = value.get("name")?.as_str()?.to_owned();
        let text = |key: &str| {
            value
                .get(key)
                .and_then(Value::as_str)
                .map(str::trim)
                .filter(|text| !text.is_empty())
        };
        let description = text("description")
            .or_else(|| text("title"))
            .unwrap_or(&name);
        let cut = |text: &str, limit: usize| text[..text.floor_char_boundary(limit)].to_owned();
        let hint = |key: &str| value.get("annotations")?.get(key)?.as_bool();
        let title = text("title").or_else(|| {
            value
                .pointer("/annotations/title")
                .and_then(Value::as_str)
                .map(str::trim)
        });
        Some(Self {
            title: title
                .filter(|title| !title.is_empty())
                .map(|title| cut(title, MAX_TITLE_BYTES)),
            description: cut(description, MAX_DESCRIPTION_BYTES),
            input: value.get("inputSchema").cloned().unwrap_or(Value::Null),
            output: value
                .get("outputSchema")
                .cloned()
                .filter(|schema| !schema.is_null()),
            read_only_hint: hint("readOnlyHint"),
            destructive_hint: hint("destructiveHint"),
            idempotent_hint: hint("idempotentHint"),
            open_world_hint: hint("openWorldHint"),
            name,
        })
    }

    /// Returns the digest of all that this tool's answers depend on: the server and the
    /// description.
    pub(crate) fn digest(&self, server: &McpServer, listing: &Listing) -> Vec<u8> {
        let mut hash = Sha256::new();
        hash.update(server.digest());
        for part in [
            listing.server.as_str(),
            &self.name,
            &self.description,
            &self.input.to_string(),
            &self
                .output
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
        ] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hash.finalize().to_vec()
    }

    /// Compiles the schema of its input.
    ///
    /// # Errors
    /// A message that names the schema.
    pub(crate) fn input_schema(&self) -> Result<Schema, String> {
        if !self.input.is_object() {
            return Err("its inputSchema is not a JSON object".to_owned());
        }
        compile("inputSchema", &self.input)
    }

    /// Compiles the schema of its output; a tool that declares none answers with some object.
    ///
    /// # Errors
    /// A message that names the schema.
    pub(crate) fn output_schema(&self) -> Result<Schema, String> {
        match &self.output {
            Some(schema) => compile("outputSchema", schema),
            None => Schema::compile(json!({"type": "object"})),
        }
    }
}

fn compile(what: &str, schema: &Value) -> Result<Schema, String> {
    let size = schema.to_string().len();
    if size > MAX_SCHEMA_BYTES {
        return Err(format!(
            "its {what} is {size} bytes, the limit is {MAX_SCHEMA_BYTES}"
        ));
    }
    Schema::compile(schema.clone())
        .map_err(|message| format!("its {what} cannot be used: {message}"))
}

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tools => write!(
                f,
                "it lists more than {MAX_TOOLS} tools; the others are left out"
            ),
            Self::Pages => write!(
                f,
                "its list of tools has more than {MAX_PAGES} pages; the others are left out"
            ),
        }
    }
}

/// Returns the name that replaces a manifest's file in messages about a server.
pub(crate) fn place(server: &str) -> String {
    format!("mcp:{server}")
}

/// The manifest of a tool and the digest of its contract, or why it is refused.
type Made = Result<(Manifest, Vec<u8>), ManifestError>;

/// Returns the pack of every imported tool, with the name of the pack, if known.
///
/// A pack is the manifest and the digest of its contract, or the reason why the tool is refused.
pub(crate) fn import(server: &McpServer, listing: &Listing) -> Vec<(Option<String>, Made)> {
    let refuse = |message: String| ManifestError {
        file: place(&server.name),
        line: None,
        message,
    };
    let (begun, mut patterns) = (Instant::now(), 0);
    let mut packs: Vec<_> = listing
        .tools
        .iter()
        .filter(|tool| server.takes(&tool.name))
        .map(|tool| {
            let shown = text::escaped(&tool.name, 80);
            let made = match begun.elapsed() < MAX_READING {
                true => manifest(server, tool),
                false => Err("the schemas of the tools before it took too long to read".to_owned()),
            };
            let made = made.and_then(|made| {
                let size = made.input.patterns_size() + made.output.patterns_size();
                if patterns + size > MAX_PATTERNS {
                    return Err(format!(
                        "the patterns of its server take more than {} MiB together",
                        MAX_PATTERNS >> 20
                    ));
                }
                patterns += size;
                Ok(made)
            });
            let made = made.map_err(|why| refuse(format!("tool \"{shown}\": {why}")));
            let name = format!("mcp.{}.{}", server.name, tool.name);
            (
                Some(name),
                made.map(|manifest| (manifest, tool.digest(server, listing))),
            )
        })
        .collect();
    if let Some(cut) = listing.cut {
        packs.push((None, Err(refuse(cut.to_string()))));
    }
    packs
}

fn manifest(server: &McpServer, tool: &Tool) -> Result<Manifest, String> {
    let trusted = |hint: Option<bool>| hint.filter(|_| server.read_only_trust);
    Ok(Manifest {
        name: PackName::new(&format!("mcp.{}.{}", server.name, tool.name))?,
        version: Version::new(1).ok_or("there is no version 1")?,
        title: Some(tool.title.clone().unwrap_or_else(|| readable(&tool.name))),
        description: tool.description.clone(),
        read_only: server.read_only_trust && tool.read_only_hint == Some(true),
        hints: Hints {
            destructive: trusted(tool.destructive_hint),
            idempotent: trusted(tool.idempotent_hint),
            open_world: trusted(tool.open_world_hint),
        },
        metadata: Metadata::default(),
        handler: HandlerSpec::Mcp {
            server: server.name.clone(),
            tool: tool.name.clone(),
        },
        timeout: server.timeout.max(Duration::from_millis(1)),
        input: tool.input_schema()?,
        output: tool.output_schema()?,
        session: None,
        credentials: credentials(server)?,
        asynchronous: false,
        retry: 0,
        schedule: None,
        no_audit: false,
        artifact_retention: None,
        memory: None,
        examples: Vec::new(),
        file: place(&server.name),
    })
}

/// Turns `read_text-file` into "Read text file".
fn readable(name: &str) -> String {
    let words = name.replace(['_', '-', '.', '/'], " ");
    let mut letters = words.trim().chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

fn credentials(server: &McpServer) -> Result<Vec<Template>, String> {
    server
        .credentials()
        .iter()
        .map(|name| Template::parse(name))
        .collect()
}

/// Fits a manifest of the packs folder to the tool that it names: it inherits missing schemas, and
/// callers without the server's credentials cannot use the pack.
///
/// # Errors
/// Why the manifest does not fit the tool.
pub(crate) fn fit(
    mut manifest: Manifest,
    server: &McpServer,
    tool: &Tool,
) -> Result<Manifest, ManifestError> {
    let refuse = |message: String| ManifestError {
        file: manifest.file.clone(),
        line: None,
        message,
    };
    if manifest.read_only && tool.read_only_hint == Some(false) {
        return Err(refuse(format!(
            "it says read_only = true, but the MCP server \"{}\" says that its tool \"{}\" writes",
            server.name, tool.name
        )));
    }
    let anything = |schema: &Schema| *schema.source() == Value::Bool(true);
    let inherited = |why: String| refuse(format!("tool \"{}\": {why}", tool.name));
    let input = anything(&manifest.input)
        .then(|| tool.input_schema())
        .transpose()
        .map_err(inherited)?;
    let output = anything(&manifest.output)
        .then(|| tool.output_schema())
        .transpose()
        .map_err(inherited)?;
    let credentials = credentials(server).map_err(refuse)?;
    manifest.input = input.unwrap_or(manifest.input);
    manifest.output = output.unwrap_or(manifest.output);
    for credential in credentials {
        if !manifest
            .credentials
            .iter()
            .any(|known| known.source() == credential.source())
        {
            manifest.credentials.push(credential);
        }
    }
    Ok(manifest)
}

#[cfg(test)]
mod tests {
    use super::super::config::McpReach;
    use super::*;

    fn server() -> McpServer {
        McpServer::new(
            "x",
            McpReach::Command {
                argv: vec!["x".into()],
                cwd: None,
                env: Default::default(),
            },
        )
    }

    fn listing(tools: &[Value]) -> Listing {
        let tools = tools.iter().filter_map(Tool::read).collect();
        Listing {
            server: "test 1".into(),
            protocol: "2025-11-25".into(),
            tools,
            cut: None,
        }
    }

    fn names(server: &McpServer, listing: &Listing) -> Vec<String> {
        let told = |pack: Result<(Manifest, Vec<u8>), ManifestError>| match pack {
            Ok((manifest, _)) => manifest.name.to_string(),
            Err(error) => error.to_string(),
        };
        import(server, listing)
            .into_iter()
            .map(|(_, pack)| told(pack))
            .collect()
    }

    #[test]
    fn bad_tool_is_refused_and_harms_no_other() {
        let object = json!({"type": "object"});
        let listing = listing(&[
            json!({"name": "get-Sum", "inputSchema": object}),
            json!({"name": "a/b", "inputSchema": object}),
            json!({"name": "none"}),
            json!({"name": "bad", "inputSchema": {"type": "objekt"}}),
            json!({"name": "big", "inputSchema": {"type": "object", "description": "x".repeat(MAX_SCHEMA_BYTES)}}),
            json!({"name": "out", "inputSchema": object, "outputSchema": {"$ref": "http://x/y"}}),
            json!({"nameless": true}),
        ]);
        let told = names(&server(), &listing);
        assert_eq!(told[0], "mcp.x.get-Sum");
        assert!(
            told[1].starts_with("mcp:x: tool \"a/b\": \"mcp.x.a/b\" is not a pack name"),
            "{told:?}"
        );
        assert!(
            told[2].contains("inputSchema is not a JSON object"),
            "{told:?}"
        );
        assert!(
            told[3].contains("its inputSchema cannot be used"),
            "{told:?}"
        );
        assert!(told[4].contains("the limit is"), "{told:?}");
        assert!(
            told[5].contains("its outputSchema cannot be used"),
            "{told:?}"
        );
        assert_eq!(told.len(), 6);
    }

    #[test]
    fn operator_selects_tools_without_trust() {
        let read = json!({"name": "read", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}});
        let listing = listing(&[
            read,
            json!({"name": "write", "inputSchema": {"type": "object"}}),
        ]);
        let mut server = server();
        server.tools = vec!["re*".parse().unwrap()];
        assert_eq!(names(&server, &listing), ["mcp.x.read"]);
        let read_only =
            |server: &McpServer| import(server, &listing)[0].1.as_ref().unwrap().0.read_only;
        assert!(!read_only(&server));
        server.read_only_trust = true;
        assert!(read_only(&server));
    }

    #[test]
    fn changed_description_schema_or_server_changes_contract() {
        let base = json!({"name": "a", "description": "d", "inputSchema": {"type": "object"}});
        let digest = |server: &McpServer, tool: &Value| {
            let listing = listing(std::slice::from_ref(tool));
            listing.tools[0].digest(server, &listing)
        };
        let first = digest(&server(), &base);
        assert_eq!(first, digest(&server(), &base));
        for (key, value) in [
            ("description", json!("e")),
            ("inputSchema", json!({"type": "object", "required": ["x"]})),
            ("outputSchema", json!({"type": "object"})),
        ] {
            let mut changed = base.clone();
            changed[key] = value;
            assert_ne!(first, digest(&server(), &changed), "{key}");
        }
        let mut other = server();
        other.reach = McpReach::Command {
            argv: vec!["x".into(), "y".into()],
            cwd: None,
            env: Default::default(),
        };
        assert_ne!(first, digest(&other, &base));
    }

    #[test]
    fn manifest_cannot_mark_writing_tool_read_only() {
        let text = "name = \"a.b\"\nversion = \"v1\"\ndescription = \"x\"\nread_only = true\n[handler]\nmcp = { server = \"x\", tool = \"t\" }\n[memory]\ncache = true\nttl = \"5m\"\n";
        let manifest = || Manifest::parse("m.toml", text, &|_| Err(String::new())).unwrap();
        let tool = |hint: Value| {
            Tool::read(&json!({"name": "t", "inputSchema": {"type": "object", "required": ["q"]}, "annotations": hint}))
                .unwrap()
        };
        let error = fit(manifest(), &server(), &tool(json!({"readOnlyHint": false}))).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("says that its tool \"t\" writes"),
            "{error}"
        );
        let fitted = fit(manifest(), &server(), &tool(json!({}))).unwrap();
        assert_eq!(
            fitted.input.source()["required"],
            json!(["q"]),
            "inherited from the tool"
        );
        assert_eq!(fitted.output.source(), &json!({"type": "object"}));
    }
}
