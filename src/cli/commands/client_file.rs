//! Adds helmdeck to the configuration file of an MCP client. Every other byte of the file stays.

use std::ops::Range;

use serde_json::{Value, json};
use toml_edit::{Array, DocumentMut, Item, Table};

/// Name of the entry.
pub(super) const ENTRY: &str = "helmdeck";

/// What an edit comes to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Edit {
    /// The entry is there.
    Same,
    /// An entry with that name is there and differs.
    Differs,
    /// The new text of the file.
    Text(String),
}

/// Command line that starts helmdeck for a client.
#[derive(Debug, Clone)]
pub(super) struct Launch {
    /// The program.
    pub(super) program: String,
    /// Its arguments.
    pub(super) arguments: Vec<String>,
}

impl Launch {
    /// Returns the entry as JSON, with the transport if the client wants it.
    pub(super) fn entry(&self, typed: bool) -> Value {
        let mut entry = json!({"command": self.program, "args": self.arguments});
        if typed {
            entry["type"] = "stdio".into();
        }
        entry
    }
}

/// Adds the entry below `member` of a JSON file; blank text is a new file.
///
/// # Errors
/// A message if the text is not plain JSON, or has something else in that place.
pub(super) fn json(text: &str, member: &str, entry: &Value, force: bool) -> Result<Edit, String> {
    if text.trim().is_empty() {
        let whole = json!({member: {ENTRY: entry}});
        return Ok(Edit::Text(format!("{whole:#}\n")));
    }
    let parsed: Value = serde_json::from_str(text).map_err(|error| {
        format!("it is not plain JSON, so comments in it could be lost ({error})")
    })?;
    let object = parsed.as_object().ok_or("it is not a JSON object")?;
    let start = text.find('{').ok_or("it is not a JSON object")?;
    let Some(servers) = object.get(member) else {
        return Ok(Edit::Text(insert(
            text,
            start,
            member,
            &json!({ENTRY: entry}),
            object.is_empty(),
            1,
        )));
    };
    let servers = servers
        .as_object()
        .ok_or_else(|| format!("\"{member}\" in it is not an object"))?;
    let place = value_of(text, start, member).ok_or("its structure is not understood")?;
    let Some(old) = servers.get(ENTRY) else {
        return Ok(Edit::Text(insert(
            text,
            place.start,
            ENTRY,
            entry,
            servers.is_empty(),
            2,
        )));
    };
    if ["command", "args"]
        .iter()
        .all(|key| old.get(key) == entry.get(key))
    {
        return Ok(Edit::Same);
    }
    if !force {
        return Ok(Edit::Differs);
    }
    let place = value_of(text, place.start, ENTRY).ok_or("its structure is not understood")?;
    let mut new = text.to_owned();
    new.replace_range(place, &indented(entry, 2));
    Ok(Edit::Text(new))
}

/// Adds the entry to a TOML file with tables `[mcp_servers.<name>]`.
///
/// # Errors
/// A message if the text is not TOML, or has something else in that place.
pub(super) fn toml(text: &str, launch: &Launch, force: bool) -> Result<Edit, String> {
    let mut document: DocumentMut = text
        .parse()
        .map_err(|error: toml_edit::TomlError| error.message().replace('\n', ", "))?;
    let servers = document.entry("mcp_servers").or_insert_with(|| {
        let mut table = Table::new();
        table.set_implicit(true);
        Item::Table(table)
    });
    let servers = servers
        .as_table_like_mut()
        .ok_or("\"mcp_servers\" in it is not a table")?;
    if let Some(old) = servers.get(ENTRY) {
        let words = old
            .get("args")
            .and_then(Item::as_array)
            .map(|words| words.iter().map(|word| word.as_str()).collect());
        let wanted: Vec<Option<&str>> = launch
            .arguments
            .iter()
            .map(|word| Some(word.as_str()))
            .collect();
        if old.get("command").and_then(Item::as_str) == Some(&launch.program)
            && words == Some(wanted)
        {
            return Ok(Edit::Same);
        }
        if !force {
            return Ok(Edit::Differs);
        }
    }
    let mut table = Table::new();
    table["command"] = toml_edit::value(&launch.program);
    table["args"] = toml_edit::value(launch.arguments.iter().collect::<Array>());
    servers.insert(ENTRY, Item::Table(table));
    Ok(Edit::Text(document.to_string()))
}

/// Puts a member first into the object that starts at `start`.
fn insert(
    text: &str,
    start: usize,
    name: &str,
    value: &Value,
    empty: bool,
    depth: usize,
) -> String {
    let indent = "  ".repeat(depth);
    let after = start + 1;
    let (end, rest) = if empty {
        let close = text[after..].find('}').map_or(after, |at| after + at);
        (format!("\n{}", "  ".repeat(depth - 1)), &text[close..])
    } else {
        (",".to_owned(), &text[after..])
    };
    // A member on the same line gets a line of its own.
    let gap = if empty
        || rest
            .trim_start_matches([' ', '\t'])
            .starts_with(['\n', '\r'])
    {
        ""
    } else {
        "\n"
    };
    format!(
        "{}\n{indent}{}: {}{end}{gap}{rest}",
        &text[..after],
        Value::from(name),
        indented(value, depth)
    )
}

fn indented(value: &Value, depth: usize) -> String {
    format!("{value:#}").replace('\n', &format!("\n{}", "  ".repeat(depth)))
}

/// Finds the value of a member in the valid JSON object that starts at `start`. The last one of a
/// name counts.
fn value_of(text: &str, start: usize, name: &str) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let blank = |mut at: usize| {
        while bytes.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        at
    };
    let (mut at, mut found) = (blank(start + 1), None);
    while bytes.get(at) == Some(&b'"') {
        let key = at..end_of(bytes, at)?;
        let value = blank(blank(key.end) + 1);
        let end = end_of(bytes, value)?;
        if serde_json::from_str::<String>(text.get(key)?).ok()? == name {
            found = Some(value..end);
        }
        at = blank(end);
        if bytes.get(at) == Some(&b',') {
            at = blank(at + 1);
        }
    }
    found
}

/// Returns where the JSON value that starts at `at` ends.
fn end_of(bytes: &[u8], mut at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    loop {
        match bytes.get(at)? {
            b'"' => {
                at += 1;
                while *bytes.get(at)? != b'"' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            b'{' | b'[' => {
                depth += 1;
                at += 1;
            }
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                at += 1;
            }
            _ if depth > 0 => at += 1,
            _ => {
                // A number or a word.
                while bytes
                    .get(at)
                    .is_some_and(|byte| !b",}] \t\r\n".contains(byte))
                {
                    at += 1;
                }
            }
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch() -> Launch {
        Launch {
            program: "/bin/helmdeck".into(),
            arguments: vec!["mcp".into()],
        }
    }

    fn added(text: &str) -> String {
        match json(text, "mcpServers", &launch().entry(false), false).unwrap() {
            Edit::Text(new) => new,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_other_byte_of_json_stays() {
        for text in [
            "",
            "{}",
            "{ }\n",
            "{\"a\":[1,{\"mcpServers\":\"}\"}],\"z\\\"\":1.50}",
            "{\n\t\"z\": 1,\n\t\"mcpServers\": {},\n\t\"a\": null\n}\n",
            "{\n  \"z\": \"{\\\"\",\n  \"mcpServers\": {\n    \"x\": {\"command\": \"y\"}\n  }\n}\n",
            "{\"mcpServers\":{\"x\":{\"command\":\"y\"}}}",
        ] {
            let new = added(text);
            let mut value: Value =
                serde_json::from_str(&new).unwrap_or_else(|error| panic!("{error}: {new}"));
            assert_eq!(
                value["mcpServers"]["helmdeck"],
                launch().entry(false),
                "{new}"
            );
            assert_eq!(
                json(&new, "mcpServers", &launch().entry(false), false),
                Ok(Edit::Same)
            );
            value["mcpServers"]
                .as_object_mut()
                .unwrap()
                .remove("helmdeck");
            let mut old: Value =
                serde_json::from_str(if text.is_empty() { "{}" } else { text }).unwrap();
            if old.get("mcpServers").is_none() {
                old["mcpServers"] = json!({});
            }
            assert_eq!(value, old, "{new}");
            let plain = |text: &str| text.split_whitespace().collect::<String>();
            let rest: String = text
                .trim_end()
                .chars()
                .rev()
                .take_while(|c| *c != '{')
                .collect();
            assert!(
                plain(&new).ends_with(&plain(&rest.chars().rev().collect::<String>())),
                "{new}"
            );
        }
    }

    #[test]
    fn different_entry_needs_force_and_comments_are_refused() {
        let text = "{\"mcpServers\": {\"helmdeck\": {\"command\": \"old\"}, \"x\": 1}}";
        let entry = launch().entry(true);
        assert_eq!(json(text, "mcpServers", &entry, false), Ok(Edit::Differs));
        let Ok(Edit::Text(new)) = json(text, "mcpServers", &entry, true) else {
            panic!()
        };
        let value: Value = serde_json::from_str(&new).unwrap();
        assert_eq!(
            (&value["mcpServers"]["helmdeck"], &value["mcpServers"]["x"]),
            (&entry, &json!(1))
        );
        for bad in ["{ // mine\n}", "{\"a\": 1,}", "[]", "{\"mcpServers\": []}"] {
            assert!(json(bad, "mcpServers", &entry, true).is_err(), "{bad}");
        }
    }

    #[test]
    fn toml_keeps_comments_and_other_servers() {
        let text = "model = \"x\" # mine\n\n[mcp_servers.other]\ncommand = \"y\"\n";
        let Ok(Edit::Text(new)) = toml(text, &launch(), false) else {
            panic!()
        };
        assert!(
            new.starts_with(text)
                && new.contains("[mcp_servers.helmdeck]\ncommand = \"/bin/helmdeck\""),
            "{new}"
        );
        assert_eq!(toml(&new, &launch(), false), Ok(Edit::Same));
        let other = Launch {
            program: "/other".into(),
            ..launch()
        };
        assert_eq!(toml(&new, &other, false), Ok(Edit::Differs));
        assert!(
            matches!(toml(&new, &other, true), Ok(Edit::Text(text)) if text.contains("/other"))
        );
        assert!(toml("a = ", &launch(), false).is_err());
    }
}
