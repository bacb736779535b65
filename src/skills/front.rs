//! Front matter of a `SKILL.md`: YAML of texts, lists of texts, and maps of texts one level deep.
//!
//! Everything else is refused, with its line. Plain texts stay texts: `1.0` is not a number, `yes` is not a boolean.

use helmdeck_forge_files::yaml::{self, MAX_BYTES, Yaml};
use indexmap::IndexMap;

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
/// What is wrong, with the line counted from 1 if it is one line.
pub(crate) fn parse(text: &str) -> Result<(Front, &str), String> {
    let inner = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = inner.split_inclusive('\n');
    let begin = lines.next().filter(|line| line.trim_end() == FENCE).map(str::len);
    let begin = begin.ok_or("line 1: a SKILL.md begins with a line `---`")?;
    let mut length = begin;
    for line in lines {
        if length + line.len() > MAX_BYTES {
            return Err(format!("the front matter is larger than {MAX_BYTES} bytes"));
        }
        if line.trim_end() == FENCE {
            return Ok((front(&inner[begin..length])?, &inner[length + line.len()..]));
        }
        length += line.len();
    }
    Err("the front matter does not end: no second line `---`".to_owned())
}

fn front(text: &str) -> Result<Front, String> {
    // The first line of the file is the fence.
    let read = yaml::parse(text).map_err(|damage| format!("line {}: {}", damage.line + 1, damage.what))?;
    let members = match read {
        Yaml::Map(members) => members,
        Yaml::Text { text, plain: true } if text.is_empty() => IndexMap::new(),
        _ => return Err("line 2: no `name: value`".to_owned()),
    };
    members.into_iter().map(|(name, value)| Ok((plain_name(name)?, of(value)?))).collect()
}

fn of(value: Yaml) -> Result<Value, String> {
    Ok(match value {
        Yaml::Text { text, .. } => Value::Text(text),
        Yaml::List(items) => Value::List(items.into_iter().map(|item| text(item, "a list")).collect::<Result<_, _>>()?),
        Yaml::Map(members) => {
            let members = members.into_iter().map(|(name, value)| Ok((plain_name(name)?, text(value, "a map")?)));
            Value::Map(members.collect::<Result<_, String>>()?)
        }
    })
}

fn plain_name(name: String) -> Result<String, String> {
    let plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_' | '.');
    match !name.is_empty() && name.chars().all(plain) {
        true => Ok(name),
        false => Err(format!("{name:?} is no name that is understood here")),
    }
}

fn text(value: Yaml, within: &str) -> Result<String, String> {
    match value {
        Yaml::Text { text, .. } => Ok(text),
        _ => Err(format!("{within} of something else than texts")),
    }
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
    fn refused_front_matter_says_what_and_where() {
        for (front, told) in [
            ("a: &x b", "line 2: an anchor"),
            ("a: *x", "line 2: "),
            ("a: !!str b", "line 2: a tag"),
            ("a: 1\na: 2", "line 3: \"a\" stands there twice"),
            ("a: b: c", "line 2: "),
            ("a:\n  b:\n    c: d", "a map of something else than texts"),
            ("a:\n  b: 1\n  b: 2", "line 4: \"b\" stands there twice"),
            ("a:\n  b: [c]", "a map of something else than texts"),
            ("a:\n  - b: c", "a list of something else than texts"),
            ("a:\n  - - b", "a list of something else than texts"),
            ("a:\n  - b\n - c", "line 4: "),
            ("a:\n\tb: c", "line 3: tabs"),
            ("a: [b, [c]]", "a list of something else than texts"),
            ("a: [b", "line "),
            ("a: \"b", "line 2: "),
            ("a: 'b' c", "line 2: "),
            ("a: \"\\x\"", "line 2: "),
            ("no", "line 2: no `name: value`"),
            ("- a", "line 2: no `name: value`"),
            ("a b: c", "\"a b\" is no name"),
        ] {
            let error = parse(&format!("---\n{front}\n---\n")).unwrap_err();
            assert!(error.starts_with(told), "{front:?}: {error}");
        }
        for file in ["", "# no front matter", "---\na: b\n", "---"] {
            assert!(parse(file).is_err(), "{file:?}");
        }
        let huge = format!("---\na: [x\n{}---\n", "x\n".repeat(MAX_BYTES));
        assert!(parse(&huge).unwrap_err().contains("larger than"));
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
