//! `.agentm-config.json`: where a vault is, and whether state is stored in it.
//!
//! It is only read: an old form stays unchanged.

use std::path::Path;

use crate::readers::Look;
use serde_json::{Map, Value};

use crate::text::{Short, read};

/// The name of the file.
const FILE: &str = ".agentm-config.json";
/// The largest one, in bytes.
const MOST: usize = 1 << 20;
/// Name of the plugin of the vault; its settings have this name and a dot in front.
const PLUGIN: &str = "plugins.obsidian-vault";
/// Names of the setting for the vault; the old name last.
const VAULT: [&str; 2] = ["plugins.obsidian-vault.vault_path", "vault_path"];

/// Settings. Texts are trimmed, and blank ones absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The path of the vault, and what it is called here.
    pub(crate) vault: Option<(&'static str, String)>,
    /// The folder in the vault that is its root.
    pub(crate) memory_root: Option<String>,
    /// Folders of the spaces of the vault.
    pub(crate) spaces: Vec<(String, String)>,
    /// Where state is stored.
    pub(crate) state_mode: Option<String>,
    /// Whether a vault is configured, wherever it is.
    pub(crate) wants_vault: bool,
    /// Settings of a wrong kind.
    pub(crate) wrong: Vec<String>,
}

impl Settings {
    /// Reads the settings in a folder; without a file they are empty.
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
            Ok(Value::Object(members)) => {
                let mut settings = Self::of(&members);
                settings.wrong.iter_mut().for_each(|why| *why = wrong(why));
                Ok(settings)
            }
            Ok(_) => Err(wrong("it holds no JSON object")),
            Err(error) => Err(wrong(&format!("it is no JSON: {error}"))),
        }
    }

    fn of(members: &Map<String, Value>) -> Self {
        let mut settings = Self::default();
        let mut wrong = Vec::new();
        // Where agentm finds a vault, the same one is found here: it knows no objects in objects.
        let vaults = VAULT
            .iter()
            .filter_map(|name| Some((*name, members.get(*name)?)));
        let vaults = vaults.chain(
            nested(members, VAULT[0])
                .into_iter()
                .map(|value| (VAULT[0], value)),
        );
        for (name, value) in vaults {
            settings.vault = settings
                .vault
                .or_else(|| Some((name, text(value, name, &mut wrong)?)));
        }
        let mut find = |name: &str| {
            values(members, name)
                .into_iter()
                .find_map(|value| text(value, name, &mut wrong))
        };
        settings.memory_root = find("plugins.obsidian-vault.memory_root");
        settings.state_mode = find("state_mode");
        settings.wants_vault = find("storage.backend").is_some_and(|backend| backend == "vault");
        let name = "plugins.obsidian-vault.spaces";
        let mut spaces = None;
        for value in values(members, name) {
            match value {
                Value::Object(all) => spaces = spaces.or(Some(all)),
                other => wrong.push(passed_over(name, other, "an object")),
            }
        }
        for (space, path) in spaces
            .into_iter()
            .flatten()
            .filter(|(_, path)| !path.is_null())
        {
            match path.as_str() {
                Some(path) => settings.spaces.push((space.clone(), path.to_owned())),
                None => wrong.push(passed_over(&format!("{name}.{space}"), path, "a text")),
            }
        }
        // Whether a plugin is switched on is no matter of this.
        for value in values(members, PLUGIN)
            .into_iter()
            .filter(|value| !value.is_object() && !value.is_boolean())
        {
            wrong.push(passed_over(PLUGIN, value, "an object"));
        }
        settings.wrong = wrong;
        settings
    }
}

/// Returns the values of a setting.
///
/// First comes that of its whole name, which is how agentm writes it. Then come those in objects,
/// `{"plugins": {"obsidian-vault": {...}}}`. What is `null` is absent.
fn values<'a>(members: &'a Map<String, Value>, name: &str) -> Vec<&'a Value> {
    let whole = members.get(name).filter(|value| !value.is_null());
    whole.into_iter().chain(nested(members, name)).collect()
}

/// Returns the same as [`values`], without that of the whole name.
fn nested<'a>(members: &'a Map<String, Value>, name: &str) -> Vec<&'a Value> {
    let inner = |(at, _): (usize, &str)| {
        Some(values(
            members.get(&name[..at])?.as_object()?,
            &name[at + 1..],
        ))
    };
    name.match_indices('.')
        .filter_map(inner)
        .flatten()
        .collect()
}

/// Returns what a text says, unless it is blank. What is no text is wrong; `null` is absent.
pub(crate) fn text(value: &Value, name: &str, wrong: &mut Vec<String>) -> Option<String> {
    let Some(text) = value.as_str() else {
        if !value.is_null() {
            wrong.push(passed_over(name, value, "a text"));
        }
        return None;
    };
    Some(text.trim())
        .filter(|text| !text.is_empty())
        .map(str::to_owned)
}

/// Returns the message for a member of a wrong kind.
pub(crate) fn passed_over(name: &str, value: &Value, kind: &str) -> String {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    format!("{name} is {found}, and is passed over; it must be {kind}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(value: &Value) -> Settings {
        Settings::of(value.as_object().unwrap())
    }

    #[test]
    fn names_with_dots_and_objects_in_objects_say_the_same() {
        let spaces = json!({"projects": "work/projects"});
        let flat = of(&json!({
            "plugins.obsidian-vault.vault_path": " /v ", "plugins.obsidian-vault.memory_root": "brain",
            "plugins.obsidian-vault.spaces": spaces, "storage.backend": "vault", "state_mode": "local",
        }));
        assert_eq!(
            (flat.vault.as_ref().unwrap().1.as_str(), flat.wants_vault),
            ("/v", true)
        );
        assert_eq!(
            (
                flat.memory_root.as_deref(),
                flat.spaces.len(),
                flat.wrong.len()
            ),
            (Some("brain"), 1, 0)
        );
        let plugin = json!({"vault_path": "/v", "memory_root": "brain", "spaces": spaces});
        for plugins in [
            json!({"plugins": {"obsidian-vault": plugin}}),
            json!({"plugins.obsidian-vault": plugin}),
            json!({"plugins": {
                "obsidian-vault.vault_path": "/v", "obsidian-vault.memory_root": "brain", "obsidian-vault.spaces": spaces
            }}),
        ] {
            let mut all = plugins.as_object().unwrap().clone();
            all.insert("storage".to_owned(), json!({"backend": "vault"}));
            all.insert("state_mode".to_owned(), json!("local"));
            assert_eq!(Settings::of(&all), flat, "{plugins}");
        }
    }

    #[test]
    fn a_name_with_dots_comes_before_objects_and_a_blank_one_does_not() {
        let inner = json!({"obsidian-vault": {"vault_path": "/inner"}});
        for (name, value, vault) in [
            ("plugins.obsidian-vault.vault_path", json!("/flat"), "/flat"),
            ("vault_path", json!("/old"), "/old"),
            ("vault_path", json!(" "), "/inner"),
            ("plugins.obsidian-vault.vault_path", json!(null), "/inner"),
        ] {
            let settings = of(&json!({"plugins": inner, name: value}));
            assert_eq!(
                (settings.vault.unwrap().1.as_str(), settings.wrong.len()),
                (vault, 0),
                "{name}: {value}"
            );
        }
    }

    #[test]
    fn what_is_of_another_kind_is_told_and_hides_nothing_else() {
        for (value, told) in [
            (
                json!({"vault_path": 42}),
                "vault_path is a number, and is passed over; it must be a text",
            ),
            (
                json!({"plugins.obsidian-vault.vault_path": ["a"]}),
                "vault_path is a list",
            ),
            (
                json!({"plugins": {"obsidian-vault": {"vault_path": {}}}}),
                "plugins.obsidian-vault.vault_path is an object",
            ),
            (
                json!({"plugins.obsidian-vault.spaces": 5}),
                "plugins.obsidian-vault.spaces is a number",
            ),
            (
                json!({"plugins.obsidian-vault.spaces": {"projects": ["a"]}}),
                "spaces.projects is a list",
            ),
            (
                json!({"plugins.obsidian-vault.memory_root": true}),
                "memory_root is true or false",
            ),
            (
                json!({"plugins": {"obsidian-vault": "/v"}}),
                "plugins.obsidian-vault is a text",
            ),
            (json!({"state_mode": 1}), "state_mode is a number"),
            (
                json!({"storage": {"backend": []}}),
                "storage.backend is a list",
            ),
        ] {
            let settings = of(&value);
            assert!(
                settings.wrong.len() == 1 && settings.wrong[0].contains(told),
                "{value}: {:?}",
                settings.wrong
            );
        }
        let other =
            of(&json!({"vault_path": 42, "state_mode": "local", "plugins": ["a"], "other": 5}));
        assert_eq!(
            (other.state_mode.as_deref(), other.wrong.len()),
            (Some("local"), 1)
        );
        let quiet =
            of(&json!({"vault_path": null, "plugins": {"obsidian-vault": true}, "storage": "x"}));
        assert_eq!(
            quiet,
            Settings::default(),
            "what is null is absent, and what is not known is passed over"
        );
    }
}
