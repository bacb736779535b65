//! Folder colours. A colour says what a folder is, and nothing about its health.

/// The colour of each folder, as the RFC prints it.
pub const MEMORY_COLOURS: [(&str, &str); 5] = [
    ("long-term", "#4CAF50"),
    ("short-term", "#2196F3"),
    ("artifacts", "#9C27B0"),
    ("linear", "#FF9800"),
    ("git", "#607D8B"),
];

/// Returns the folder colours as custom properties of CSS: `--long-term: #4CAF50`.
#[must_use]
pub fn colours_css() -> String {
    let lines: Vec<String> = MEMORY_COLOURS
        .iter()
        .map(|(name, colour)| format!("  --{name}: {colour};\n"))
        .collect();
    format!(":root {{\n{}}}\n", lines.concat())
}

/// Returns the folder colours as a JSON object.
#[must_use]
pub fn colours_json() -> String {
    let lines: Vec<String> = MEMORY_COLOURS
        .iter()
        .map(|(name, colour)| format!("  \"{name}\": \"{colour}\""))
        .collect();
    format!("{{\n{}\n}}\n", lines.join(",\n"))
}

/// Returns the folder colours as a constant of TypeScript.
#[must_use]
pub fn colours_ts() -> String {
    let lines: Vec<String> = MEMORY_COLOURS
        .iter()
        .map(|(name, colour)| format!("  \"{name}\": \"{colour}\",\n"))
        .collect();
    format!(
        "export const MEMORY_COLORS = {{\n{}}} as const;\n",
        lines.concat()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the names and colours of a text that has them in quotes.
    fn quoted(text: &str) -> Vec<(&str, &str)> {
        let pair = |line| {
            let mut quoted = str::split(line, '"').skip(1).step_by(2);
            Some((quoted.next()?, quoted.next()?))
        };
        text.lines().filter_map(pair).collect()
    }

    #[test]
    fn colours_are_those_of_the_rfc() {
        assert_eq!(
            quoted(include_str!("../fixtures/colours.ts")),
            MEMORY_COLOURS
        );
    }

    #[test]
    fn css_json_and_typescript_have_the_same_colours() {
        let rfc = quoted(include_str!("../fixtures/colours.ts"));
        let (css, json, script) = (colours_css(), colours_json(), colours_ts());
        assert_eq!(quoted(&script), rfc);
        assert_eq!(quoted(&json), rfc);
        let read: std::collections::BTreeMap<String, String> = serde_json::from_str(&json).unwrap();
        assert_eq!(read.len(), rfc.len());
        let lines = css.lines().filter_map(|line| {
            line.trim()
                .strip_prefix("--")?
                .strip_suffix(';')?
                .split_once(": ")
        });
        assert_eq!(lines.collect::<Vec<_>>(), rfc);
    }
}
