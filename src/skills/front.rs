//! Front matter of a `SKILL.md`: a small subset of YAML.
//!
//! It has texts (plain, quoted, or blocks after `|` and `>`), lists of texts (`- a` or `[a, b]`) and maps of texts
//! one level deep. Everything else is refused, with its line. Plain texts stay texts: `1.0` is not a number, `yes` is
//! not a boolean.

use indexmap::IndexMap;

/// The largest front matter that is read, in bytes.
const LARGEST: usize = 64 * 1024;
/// The line that begins and ends it.
const FENCE: &str = "---";

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A text; one that is not given is empty.
    Text(String),
    /// A list of texts.
    List(Vec<String>),
    /// A map of texts.
    Map(IndexMap<String, String>),
}

/// Front matter: what comes before the body.
pub type Front = IndexMap<String, Value>;

/// Takes a `SKILL.md` apart: its front matter, and its body to the byte.
///
/// # Errors
/// What is wrong, with the line counted from 1.
pub(crate) fn parse(text: &str) -> Result<(Front, &str), String> {
    let inner = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = inner.split_inclusive('\n');
    if lines.next().map(str::trim_end) != Some(FENCE) {
        return Err("line 1: a SKILL.md begins with a line `---`".to_owned());
    }
    let mut own = Vec::new();
    let mut length = inner.split_inclusive('\n').next().map_or(0, str::len);
    for line in lines {
        length += line.len();
        if length > LARGEST {
            return Err(format!("the front matter is larger than {LARGEST} bytes"));
        }
        if line.trim_end() == FENCE {
            let front = Lines { lines: own, at: 0 }.front().map_err(|(line, why)| format!("line {line}: {why}"))?;
            return Ok((front, &inner[length..]));
        }
        own.push(line.trim_end_matches(['\n', '\r']));
    }
    Err("the front matter does not end: no second line `---`".to_owned())
}

type Wrong = (usize, String);

struct Lines<'a> {
    lines: Vec<&'a str>,
    at: usize,
}

impl<'a> Lines<'a> {
    /// Makes an error of the line that was read last. The first line of the file is the fence.
    fn wrong<T>(&self, why: impl Into<String>) -> Result<T, Wrong> {
        Err((self.at + 1, why.into()))
    }

    /// Returns the next line that is neither empty nor a comment, with its indentation.
    fn next(&mut self) -> Result<Option<(usize, &'a str)>, Wrong> {
        while let Some(line) = self.lines.get(self.at) {
            self.at += 1;
            let text = line.trim_start_matches(' ');
            if text.starts_with('\t') {
                return self.wrong("a tab at the beginning of a line");
            }
            if !text.trim_end().is_empty() && !text.starts_with('#') {
                return Ok(Some((line.len() - text.len(), text.trim_end())));
            }
        }
        Ok(None)
    }

    /// Looks at the next line without taking it.
    fn peek(&mut self) -> Result<Option<(usize, &'a str)>, Wrong> {
        let at = self.at;
        let line = self.next();
        if line.is_ok() {
            self.at = at;
        }
        line
    }

    fn front(mut self) -> Result<Front, Wrong> {
        let mut front = Front::new();
        while let Some((indent, line)) = self.next()? {
            if indent > 0 {
                return self.wrong("a line that is indented without need");
            }
            let (key, rest) = self.key(line)?;
            if front.contains_key(&key) {
                return self.wrong(format!("{key:?} stands there twice"));
            }
            let value = self.value(rest)?;
            front.insert(key, value);
        }
        Ok(front)
    }

    fn key(&self, line: &'a str) -> Result<(String, &'a str), Wrong> {
        let (key, rest) = match line.split_once(':') {
            Some((key, rest)) if rest.is_empty() || rest.starts_with(' ') => (key, rest.trim()),
            _ => return self.wrong("no `name: value`"),
        };
        let plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_' | '.');
        let key = key.trim_matches('"');
        if key.is_empty() || !key.chars().all(plain) {
            return self.wrong(format!("{key:?} is no name that is understood here"));
        }
        Ok((key.to_owned(), rest))
    }

    fn value(&mut self, rest: &str) -> Result<Value, Wrong> {
        if rest.starts_with(['|', '>']) {
            return self.block(rest, 0).map(Value::Text);
        }
        if rest.starts_with('[') {
            return self.flow(rest).map(Value::List);
        }
        if !rest.is_empty() && !rest.starts_with('#') {
            let text = self.scalar(rest)?;
            return self.alone().map(|()| Value::Text(text));
        }
        match self.peek()? {
            Some((_, line)) if line == "-" || line.starts_with("- ") => self.list().map(Value::List),
            Some((indent, _)) if indent > 0 => self.map(indent).map(Value::Map),
            _ => Ok(Value::Text(String::new())),
        }
    }

    /// A text on one line is not continued on the next.
    fn alone(&mut self) -> Result<(), Wrong> {
        match self.peek()? {
            Some((indent, _)) if indent > 0 => {
                self.next()?;
                self.wrong("a text that goes on without `|` or `>`")
            }
            _ => Ok(()),
        }
    }

    fn list(&mut self) -> Result<Vec<String>, Wrong> {
        let mut items = Vec::new();
        let mut own = None;
        while let Some((indent, line)) = self.peek()? {
            let Some(item) = line.strip_prefix('-').filter(|item| item.is_empty() || item.starts_with(' ')) else {
                break;
            };
            self.next()?;
            if *own.get_or_insert(indent) != indent {
                return self.wrong("an item of a list with another indentation");
            }
            let item = item.trim();
            if item.starts_with("- ") || item.starts_with('[') || is_pair(item) {
                return self.wrong("a list of something else than texts");
            }
            items.push(self.scalar(item)?);
        }
        self.alone()?;
        Ok(items)
    }

    fn map(&mut self, own: usize) -> Result<IndexMap<String, String>, Wrong> {
        let mut map = IndexMap::new();
        while let Some((indent, line)) = self.peek()?.filter(|(indent, _)| *indent > 0) {
            self.next()?;
            if indent != own {
                return self.wrong("maps are understood one level deep, equally indented");
            }
            let (key, rest) = self.key(line)?;
            if rest.starts_with('[') || rest.starts_with("- ") {
                return self.wrong("a map of something else than texts");
            }
            let text = if rest.starts_with(['|', '>']) { self.block(rest, own)? } else { self.scalar(rest)? };
            if map.insert(key.clone(), text).is_some() {
                return self.wrong(format!("{key:?} stands there twice"));
            }
        }
        Ok(map)
    }

    /// Reads `|` (lines stay) and `>` (lines are joined), each with or without `-`.
    fn block(&mut self, mark: &str, outer: usize) -> Result<String, Wrong> {
        let mark = mark.split(" #").next().unwrap_or(mark).trim();
        let (fold, strip) = match mark {
            "|" => (false, false),
            "|-" => (false, true),
            ">" => (true, false),
            ">-" => (true, true),
            _ => return self.wrong(format!("{mark:?} is not understood here: use `|`, `|-`, `>` or `>-`")),
        };
        let mut own = None;
        let mut lines: Vec<&str> = Vec::new();
        while let Some(line) = self.lines.get(self.at) {
            let indent = line.len() - line.trim_start_matches(' ').len();
            if line.trim().is_empty() {
                lines.push("");
            } else if indent > outer && indent >= *own.get_or_insert(indent) {
                lines.push(&line[own.unwrap_or(indent)..]);
            } else {
                break;
            }
            self.at += 1;
        }
        while lines.last().is_some_and(|line| line.is_empty()) {
            lines.pop();
        }
        let mut text = String::new();
        let mut broken = false;
        for (at, line) in lines.iter().enumerate() {
            if !fold {
                text.push_str(if at > 0 { "\n" } else { "" });
            } else if line.is_empty() {
                text.push('\n');
                broken = true;
                continue;
            } else if at > 0 && !broken {
                text.push(' ');
            }
            broken = false;
            text.push_str(line);
        }
        if !strip && !text.is_empty() {
            text.push('\n');
        }
        Ok(text)
    }

    fn flow(&self, rest: &str) -> Result<Vec<String>, Wrong> {
        let mut items = Vec::new();
        let mut rest = rest[1..].trim_start();
        loop {
            if let Some(after) = rest.strip_prefix(']') {
                let after = after.trim();
                return if after.is_empty() || after.starts_with('#') {
                    Ok(items)
                } else {
                    self.wrong("text after a list")
                };
            }
            let end = match rest.chars().next() {
                Some(quote @ ('"' | '\'')) => quoted(rest, quote).or_else(|why| self.wrong(why))?.1,
                _ => rest.find([',', ']']).unwrap_or(rest.len()),
            };
            let (item, after) = rest.split_at(end);
            if item.trim().is_empty() || item.contains(['[', '{', '}']) && !item.starts_with(['"', '\'']) {
                return self.wrong("a list of something else than texts");
            }
            items.push(self.scalar(item.trim())?);
            rest = after.trim_start();
            match rest.strip_prefix(',') {
                Some(after) => rest = after.trim_start(),
                None if rest.starts_with(']') => {}
                None => return self.wrong("a list that does not end on its line"),
            }
        }
    }

    fn scalar(&self, text: &str) -> Result<String, Wrong> {
        if let Some(quote @ ('"' | '\'')) = text.chars().next() {
            let (value, end) = quoted(text, quote).or_else(|why| self.wrong(why))?;
            let after = text[end..].trim();
            return if after.is_empty() || after.starts_with('#') {
                Ok(value)
            } else {
                self.wrong("text after a quote")
            };
        }
        if text.starts_with(['&', '*', '!', '{', '}', '[', ']', '|', '>', '%', '@', '`', ',', '?']) {
            return self.wrong(format!("{text:?} is not understood here: put it in quotes"));
        }
        let text = text.split(" #").next().unwrap_or(text).trim();
        if text.starts_with('#') {
            return Ok(String::new());
        }
        if is_pair(text) {
            return self.wrong("a second `: ` on a line: put the text in quotes");
        }
        Ok(text.to_owned())
    }
}

fn is_pair(text: &str) -> bool {
    !text.starts_with(['"', '\'']) && (text.contains(": ") || text.ends_with(':'))
}

/// Reads a quoted text, and returns the byte after it.
fn quoted(text: &str, quote: char) -> Result<(String, usize), String> {
    let mut value = String::new();
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, char)) = chars.next() {
        if char == quote {
            if quote == '\'' && chars.next_if(|(_, next)| *next == quote).is_some() {
                value.push(quote);
                continue;
            }
            return Ok((value, at + 1));
        }
        if quote == '\'' || char != '\\' {
            value.push(char);
            continue;
        }
        let escape = chars.next().map(|(_, char)| char);
        value.push(match escape {
            Some('n') => '\n',
            Some('t') => '\t',
            Some('r') => '\r',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some(same @ ('"' | '\\' | '/')) => same,
            Some('u') => {
                let hex: String = chars.by_ref().take(4).map(|(_, char)| char).collect();
                let code = u32::from_str_radix(&hex, 16).ok().filter(|_| hex.len() == 4).and_then(char::from_u32);
                code.ok_or_else(|| format!("`\\u{hex}` is no character"))?
            }
            _ => return Err("an escape that is not understood here".to_owned()),
        });
    }
    Err("a quote that does not end on its line".to_owned())
}

/// Writes front matter with its fences. The body follows unchanged.
#[must_use]
pub(crate) fn print(front: &Front) -> String {
    let mut text = format!("{FENCE}\n");
    for (key, value) in front {
        match value {
            Value::Text(value) => text.push_str(&format!("{key}: {}\n", scalar(value))),
            Value::List(items) => {
                let items: Vec<String> = items.iter().map(|item| quote(item)).collect();
                text.push_str(&format!("{key}: [{}]\n", items.join(", ")));
            }
            Value::Map(map) => {
                text.push_str(&format!("{key}:\n"));
                for (key, value) in map {
                    text.push_str(&format!("  {key}: {}\n", scalar(value)));
                }
            }
        }
    }
    text.push_str(FENCE);
    text.push('\n');
    text
}

/// Writes a text plainly if every reader of YAML takes it for the same text.
fn scalar(text: &str) -> String {
    let plain = text.starts_with(|char: char| char.is_alphabetic())
        && text.chars().all(|char| char.is_alphanumeric() || " -_./,;()'+".contains(char))
        && !text.ends_with(' ')
        && !matches!(
            text.to_ascii_lowercase().as_str(),
            "true" | "false" | "yes" | "no" | "on" | "off" | "null" | "y" | "n"
        );
    if plain { text.to_owned() } else { quote(text) }
}

fn quote(text: &str) -> String {
    // YAML reads a text that JSON wrote in quotes.
    serde_json::to_string(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str) -> Value {
        Value::Text(value.to_owned())
    }

    fn list(items: &[&str]) -> Value {
        Value::List(items.iter().map(|item| (*item).to_owned()).collect())
    }

    #[test]
    fn texts_lists_and_maps_are_read() {
        let file = "---\n# comment\nname: pdf-work\ndescription: Fill in forms. Use it's \"now\" # why\nversion: 1.0\n\
                    quoted: \"a: b\\n\\u00e9\"\nsingle: 'it''s # so'\nempty:\nurl: http://x/y\n\
                    block: |\n  one\n\n    two\n  three\nfolded: >-\n  one\n  two\n\n  three\n\
                    triggers:\n- a\n- \"b, c\"\nindented:\n  - x  # one\n  - 'y'\nflow: [a, \"b]\", 'c, d']\nnone: []\n\
                    metadata:\n  author: me\n  text: >\n    long\n    line\n  last: \"1.0\"\n---\nbody\n---\nmore";
        let (front, body) = parse(file).unwrap();
        assert_eq!(body, "body\n---\nmore");
        for (key, value) in [
            ("name", text("pdf-work")),
            ("description", text("Fill in forms. Use it's \"now\"")),
            ("version", text("1.0")),
            ("quoted", text("a: b\né")),
            ("single", text("it's # so")),
            ("empty", text("")),
            ("url", text("http://x/y")),
            ("block", text("one\n\n  two\nthree\n")),
            ("folded", text("one two\nthree")),
            ("triggers", list(&["a", "b, c"])),
            ("indented", list(&["x", "y"])),
            ("flow", list(&["a", "b]", "c, d"])),
            ("none", list(&[])),
        ] {
            assert_eq!(front.get(key), Some(&value), "{key}");
        }
        let Some(Value::Map(map)) = front.get("metadata") else { panic!("no map") };
        assert_eq!(map.get("text").unwrap(), "long line\n");
        assert_eq!(map.get("last").unwrap(), "1.0");
        assert_eq!(front.len(), 14);
    }

    #[test]
    fn what_is_not_understood_is_refused_with_its_line() {
        for (front, line) in [
            ("a: &x b", 2),
            ("a: *x", 2),
            ("a: !!str b", 2),
            ("a: {b: c}", 2),
            ("a: 1\na: 2", 3),
            ("a: b: c", 2),
            ("a: b\n  c", 3),
            ("a:\n  b:\n    c: d", 4),
            ("a:\n  b: 1\n  b: 2", 4),
            ("a:\n  b: [c]", 3),
            ("a:\n  - b: c", 3),
            ("a:\n  - - b", 3),
            ("a:\n  - b\n - c", 4),
            ("a:\n\tb: c", 3),
            ("a: [b, [c]]", 2),
            ("a: [b", 2),
            ("a: \"b", 2),
            ("a: 'b' c", 2),
            ("a: \"\\x\"", 2),
            ("a: |2\n  b", 2),
            ("no", 2),
            ("? a", 2),
            ("  a: b", 2),
        ] {
            let error = parse(&format!("---\n{front}\n---\n")).unwrap_err();
            assert!(error.starts_with(&format!("line {line}: ")), "{front:?}: {error}");
        }
        for file in ["", "# no front matter", "---\na: b\n", "---"] {
            assert!(parse(file).is_err(), "{file:?}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        for value in
            ["plain text", "", "yes", "1.0", "a: b", " x", "x ", "é\n\"q\" \\ \t", "- a", "#", "it's", "{", "\u{1f600}"]
        {
            let map = IndexMap::from([("k".to_owned(), value.to_owned())]);
            let front = Front::from([
                ("t".to_owned(), text(value)),
                ("l".to_owned(), list(&[value, "b"])),
                ("m".to_owned(), Value::Map(map)),
            ]);
            let file = print(&front) + "body";
            assert_eq!(parse(&file), Ok((front, "body")), "{file}");
        }
    }

    #[test]
    fn crlf_is_read_and_the_body_keeps_it() {
        let (front, body) = parse("---\r\nname: a\r\n---\r\none\r\ntwo").unwrap();
        assert_eq!((front.get("name"), body), (Some(&text("a")), "one\r\ntwo"));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(---\n)?[a-c:\\-\\[\\]|>\"'# \n\t{},&]{0,60}\n---\n.{0,9}") {
            let _ = parse(&text);
        }
    }
}
