//! `.agentm-config.json`: where a vault is, and whether state is kept in it. It is only read: an old form stays as it is.

use std::path::Path;

use helmdeck_project::readers::Look;
use serde_json::{Map, Value};

use crate::text::{Short, read};

/// The name of the file.
const FILE: &str = ".agentm-config.json";
/// The largest one, in bytes.
const MOST: usize = 1 << 20;
/// Where the vault is; the old name last.
const VAULT: [&str; 2] = ["plugins.obsidian-vault.vault_path", "vault_path"];

/// What is set. Texts are trimmed, and blank ones absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The path of the vault, and what it is called here.
    pub(crate) vault: Option<(&'static str, String)>,
    /// The folder in the vault that is its root.
    pub(crate) memory_root: Option<String>,
    /// Where the spaces of the vault lie.
    pub(crate) spaces: Vec<(String, String)>,
    /// Where state is kept.
    pub(crate) state_mode: Option<String>,
    /// Whether a vault is asked for, wherever it is.
    pub(crate) wants_vault: bool,
}

impl Settings {
    /// Reads the settings in a folder; damaged ones are none.
    ///
    /// # Errors
    /// Why they are damaged.
    pub(crate) fn read(look: &dyn Look, folder: &Path) -> Result<Self, String> {
        let path = folder.join(FILE);
        let wrong = |why: &str| format!("{}: {why}", path.display());
        let text = match read(look, &path, MOST) {
            Short::Absent => return Ok(Self::default()),
            Short::Text(text) => text,
            Short::Lossy(_) => return Err(wrong("it is no UTF-8 text")),
            Short::Wrong(why) => return Err(wrong(&why)),
        };
        match serde_json::from_str::<Value>(&text) {
            Ok(Value::Object(members)) => Ok(Self::of(&members)),
            Ok(_) => Err(wrong("it holds no JSON object")),
            Err(error) => Err(wrong(&format!("it is no JSON: {error}"))),
        }
    }

    fn of(members: &Map<String, Value>) -> Self {
        let text = |name: &str| {
            let value = members.get(name).and_then(Value::as_str).map(str::trim);
            value.filter(|value| !value.is_empty()).map(str::to_owned)
        };
        let spaces = members.get("plugins.obsidian-vault.spaces").and_then(Value::as_object);
        Self {
            vault: VAULT.iter().find_map(|name| Some((*name, text(name)?))),
            memory_root: text("plugins.obsidian-vault.memory_root"),
            spaces: spaces
                .into_iter()
                .flatten()
                .filter_map(|(name, path)| Some((name.clone(), path.as_str()?.to_owned())))
                .collect(),
            state_mode: text("state_mode"),
            wants_vault: text("storage.backend").is_some_and(|backend| backend == "vault"),
        }
    }
}
