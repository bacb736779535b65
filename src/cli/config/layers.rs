//! Layered configuration: defaults, file, environment, flags. Every value keeps its origin.
//!
//! The compiled-in defaults define which settings exist and their types: there is no second list to
//! keep in step.

use std::collections::{BTreeMap, BTreeSet};

use helmdeck_core::duration::parse_size;
use toml::{Table, Value};

use super::origin::{Origin, Problem};
use helmdeck_core::suggest::did_you_mean;

/// Limit of settings that an error proposes.
const SAME_NAMES: usize = 3;

/// The defaults, with a comment for every key.
pub(crate) const DEFAULTS: &str = include_str!("../../../config/helmdeck.toml");

/// Path of a setting: the names of its tables and its key.
pub(crate) type Key = Vec<String>;

/// A value with its origin.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Setting {
    /// The value.
    pub(crate) value: Value,
    /// Its origin.
    pub(crate) origin: Origin,
}

/// All settings.
#[derive(Debug, Clone)]
pub(crate) struct Layers {
    settings: BTreeMap<Key, Setting>,
    /// Tables with free keys: those that are empty in the defaults.
    open: BTreeSet<Key>,
}

impl Layers {
    /// Starts with the defaults.
    pub(crate) fn defaults() -> Self {
        let mut layers = Self {
            settings: BTreeMap::new(),
            open: BTreeSet::new(),
        };
        // A test proves that the compiled-in file can be read.
        layers.add_defaults(&mut Vec::new(), DEFAULTS.parse().unwrap_or_default());
        layers
    }

    fn add_defaults(&mut self, at: &mut Key, table: Table) {
        if table.is_empty() {
            self.open.insert(at.clone());
        }
        for (name, value) in table {
            at.push(name);
            match value {
                Value::Table(inner) => self.add_defaults(at, inner),
                value => {
                    self.settings.insert(
                        at.clone(),
                        Setting {
                            value,
                            origin: Origin::Default,
                        },
                    );
                }
            }
            at.pop();
        }
    }

    /// Returns every setting in the order of its key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Key, &Setting)> {
        self.settings.iter()
    }

    /// Returns one setting.
    pub(crate) fn get(&self, key: &[&str]) -> Option<&Setting> {
        let key: Key = key.iter().map(|part| (*part).to_owned()).collect();
        self.settings.get(&key)
    }

    /// Returns the text of a setting, empty if it is not text.
    #[cfg(test)]
    pub(crate) fn text(&self, key: &[&str]) -> &str {
        self.get(key)
            .and_then(|setting| setting.value.as_str())
            .unwrap_or_default()
    }

    /// Says whether the key is in a table with free keys.
    pub(crate) fn is_open(&self, key: &[String]) -> bool {
        key.split_last()
            .is_some_and(|(_, table)| self.open.contains(table))
    }

    /// Returns the tables with free keys, such as `credentials`.
    pub(crate) fn open_tables(&self) -> impl Iterator<Item = &Key> {
        self.open.iter()
    }

    /// Says whether a key names a table.
    pub(crate) fn is_table(&self, key: &[String]) -> bool {
        self.open.contains(key)
            || self
                .settings
                .keys()
                .any(|known| known.len() > key.len() && known.starts_with(key))
    }

    /// Sets a value over the lower layers.
    ///
    /// # Errors
    /// A problem at the value's origin if the key is unknown or the type differs.
    pub(crate) fn set(&mut self, key: Key, value: Value, origin: Origin) -> Result<(), Problem> {
        let Some(known) = self.settings.get(&key) else {
            if self.is_open(&key) {
                self.settings.insert(key, Setting { value, origin });
                return Ok(());
            }
            return Err(Problem::new(origin, self.unknown(&key)));
        };
        if key.iter().eq(super::servers::KEY) {
            // The servers are read elsewhere; they are kept here only to be shown.
            if value
                .as_array()
                .is_none_or(|items| !items.iter().all(Value::is_table))
            {
                return Err(Problem::new(
                    origin,
                    "mcp.servers are tables of the file: [[mcp.servers]]",
                ));
            }
            self.settings.insert(key, Setting { value, origin });
            return Ok(());
        }
        let value = fitting(&known.value, value).map_err(|wanted| {
            Problem::new(&origin, format!("{} must be {wanted}", key.join(".")))
        })?;
        self.settings.insert(key, Setting { value, origin });
        Ok(())
    }

    /// Returns the keys whose values differ from these.
    #[cfg(feature = "serve")]
    pub(crate) fn changed(&self, other: &Self) -> Vec<Key> {
        let keys: BTreeSet<&Key> = self.settings.keys().chain(other.settings.keys()).collect();
        let value = |layers: &Self, key: &Key| {
            layers
                .settings
                .get(key)
                .map(|setting| setting.value.clone())
        };
        keys.into_iter()
            .filter(|key| value(self, key) != value(other, key))
            .cloned()
            .collect()
    }

    /// Copies one setting from other layers.
    #[cfg(feature = "serve")]
    pub(crate) fn take(&mut self, key: &Key, other: &Self) {
        match other.settings.get(key) {
            Some(setting) => self.settings.insert(key.clone(), setting.clone()),
            None => self.settings.remove(key),
        };
    }

    /// Builds the error of an unknown key, with a suggestion.
    pub(crate) fn unknown(&self, key: &[String]) -> String {
        let last = key.last().map_or("", String::as_str);
        let table = &key[..key.len().saturating_sub(1)];
        let beside: BTreeSet<&str> = self
            .settings
            .keys()
            .chain(&self.open)
            .filter(|known| known.starts_with(table))
            .filter_map(|known| known.get(table.len()).map(String::as_str))
            .collect();
        // The same name in other tables is meant more likely than a similar one in this table.
        let same = self
            .settings
            .keys()
            .filter(|known| known.last().is_some_and(|name| name == last));
        let same: Vec<String> = same
            .take(SAME_NAMES)
            .map(|known| format!("\"{}\"", known.join(".")))
            .collect();
        let hint = match same.as_slice() {
            [] => did_you_mean(last, beside),
            names => format!("; did you mean {}?", names.join(" or ")),
        };
        format!("unknown key \"{}\"{hint}", key.join("."))
    }

    /// Returns the values below a table as a table, with only the given overrides if `only` says
    /// so.
    pub(crate) fn table(&self, prefix: &[&str], take: impl Fn(&Key, &Setting) -> bool) -> Table {
        let mut table = Table::new();
        for (key, setting) in &self.settings {
            let below = key.len() > prefix.len() && key.iter().zip(prefix).all(|(a, b)| a == b);
            if below && take(key, setting) {
                insert(&mut table, &key[prefix.len()..], setting.value.clone());
            }
        }
        table
    }
}

fn insert(table: &mut Table, key: &[String], value: Value) {
    match key {
        [] => {}
        [name] => {
            table.insert(name.clone(), value);
        }
        [name, rest @ ..] => {
            let inner = table
                .entry(name.clone())
                .or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(inner) = inner {
                insert(inner, rest, value);
            }
        }
    }
}

/// Checks that a value has the type of the default. A size can be a whole number or text.
fn fitting(default: &Value, value: Value) -> Result<Value, &'static str> {
    match (default, value) {
        (Value::String(_), value @ Value::String(_))
        | (Value::Integer(_), value @ Value::Integer(_))
        | (Value::Boolean(_), value @ Value::Boolean(_))
        | (Value::Float(_), value @ Value::Float(_)) => Ok(value),
        (Value::String(size), Value::Integer(number))
            if number >= 0 && parse_size(size).is_ok() =>
        {
            Ok(Value::String(number.to_string()))
        }
        (Value::Float(_), Value::Integer(number)) => Ok(Value::Float(number as f64)),
        (Value::Array(_), Value::Array(items)) if items.iter().all(Value::is_str) => {
            Ok(Value::Array(items))
        }
        (Value::String(_), _) => Err("text in quotes"),
        (Value::Integer(_), _) => Err("a whole number"),
        (Value::Boolean(_), _) => Err("true or false"),
        (Value::Float(_), _) => Err("a number"),
        (Value::Array(_), _) => Err("a list of texts"),
        _ => Err("something else"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compiled_in_defaults_can_be_read_and_are_not_empty() {
        DEFAULTS.parse::<Table>().unwrap();
        let layers = Layers::defaults();
        assert_eq!(layers.text(&["server", "listen"]), "127.0.0.1:7700");
        assert!(layers.is_open(&["credentials".to_owned(), "x".to_owned()]));
        assert!(layers.is_table(&["cache".to_owned()]) && !layers.is_table(&["nope".to_owned()]));
    }

    #[test]
    fn a_later_layer_wins_and_keeps_its_origin() {
        let mut layers = Layers::defaults();
        let key: Key = vec!["cache".into(), "hot_bytes".into()];
        layers
            .set(
                key.clone(),
                Value::Integer(4096),
                Origin::Env("HELMDECK_CACHE__HOT_BYTES".into()),
            )
            .unwrap();
        let setting = layers.get(&["cache", "hot_bytes"]).unwrap();
        assert_eq!(
            (setting.value.as_str(), setting.origin.to_string()),
            (Some("4096"), "HELMDECK_CACHE__HOT_BYTES".into())
        );
        let problem = layers
            .set(key, Value::Boolean(true), Origin::Flag("--x"))
            .unwrap_err();
        assert_eq!(
            problem.to_string(),
            "--x: cache.hot_bytes must be text in quotes"
        );
    }

    #[test]
    fn unknown_keys_are_answered_with_the_nearest() {
        let layers = Layers::defaults();
        let unknown = |key: &[&str]| {
            layers.unknown(
                &key.iter()
                    .map(|part| (*part).to_owned())
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(
            unknown(&["server", "lisen"]),
            "unknown key \"server.lisen\"; did you mean \"listen\"?"
        );
        assert_eq!(
            unknown(&["sever"]),
            "unknown key \"sever\"; did you mean \"server\"?"
        );
        assert_eq!(
            unknown(&["listen"]),
            "unknown key \"listen\"; did you mean \"memory.listen\" or \"server.listen\"?"
        );
    }
}
