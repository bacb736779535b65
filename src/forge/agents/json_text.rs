//! Edits of JSON as text: everything that is not edited keeps its bytes. Comments and trailing commas are accepted.

/// Maximum depth of nested values.
const DEEPEST: usize = 64;

/// A value, and where it is in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) value: Value,
}

/// The parts of a value that matter for edits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Object(Vec<Member>),
    Array(Vec<Node>),
    Text(String),
    Other,
}

/// A member of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) name: String,
    /// Where its name begins.
    pub(super) start: usize,
    pub(super) node: Node,
}

impl Node {
    /// Returns a member of an object.
    pub(super) fn member(&self, name: &str) -> Option<&Self> {
        let Value::Object(members) = &self.value else { return None };
        members.iter().find(|member| member.name == name).map(|member| &member.node)
    }

    /// Returns the elements of an array.
    pub(super) fn elements(&self) -> &[Self] {
        if let Value::Array(elements) = &self.value { elements } else { &[] }
    }

    /// Returns a text.
    pub(super) fn text(&self) -> Option<&str> {
        if let Value::Text(text) = &self.value { Some(text) } else { None }
    }

    /// Returns where the members or elements begin and end.
    fn children(&self) -> Vec<(usize, usize)> {
        match &self.value {
            Value::Object(members) => members.iter().map(|member| (member.start, member.node.end)).collect(),
            Value::Array(elements) => elements.iter().map(|node| (node.start, node.end)).collect(),
            _ => Vec::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.children().is_empty()
    }
}

/// Parses a text.
///
/// # Errors
/// What is wrong, with the line.
pub(super) fn parse(text: &str) -> Result<Node, String> {
    let mut parser = Parser { text, at: 0 };
    let node = parser.value(0)?;
    parser.skip();
    if parser.at < text.len() { Err(parser.wrong("the end")) } else { Ok(node) }
}

/// Adds a child at the end of an object or array at a depth. The text of its later lines is indented to fit.
pub(super) fn insert(text: &str, parent: &Node, child: &str, unit: &str, depth: usize) -> String {
    let (outer, inner) = (unit.repeat(depth), unit.repeat(depth + 1));
    let child = child.replace('\n', &format!("\n{inner}"));
    let (at, added) = match parent.children().last() {
        Some((_, end)) => (*end, format!(",\n{inner}{child}")),
        None => (parent.start + 1, format!("\n{inner}{child}\n{outer}")),
    };
    format!("{}{added}{}", &text[..at], &text[at..])
}

/// Removes a child of an object or array at a depth: what [`insert`] added, if it added it.
pub(super) fn remove(text: &str, parent: &Node, child: usize, unit: &str, depth: usize) -> String {
    let children = parent.children();
    let Some((start, end)) = children.get(child).copied() else { return text.to_owned() };
    let before = child.checked_sub(1).and_then(|before| children.get(before));
    let (from, to) = match (before, children.get(child + 1)) {
        (Some((_, before)), _) => (*before, end),
        (None, Some((next, _))) => (start, *next),
        (None, None) => {
            let inside = &text[parent.start + 1..start];
            let from = if inside.trim().is_empty() { parent.start + 1 } else { start };
            // A comma after the last element, as comments and commas are allowed in some settings.
            let rest = &text[end..];
            let comma = rest.len() - rest.trim_start().strip_prefix(',').unwrap_or(rest).len();
            let rest = &text[end + comma..];
            let closing = format!("\n{}", unit.repeat(depth));
            (from, end + comma + if rest.starts_with(&closing) { closing.len() } else { 0 })
        }
    };
    format!("{}{}", &text[..from], &text[to..])
}

/// Returns the indentation of a text: that of its first indented line, else two spaces.
pub(super) fn unit(text: &str) -> String {
    let indented = text.lines().find(|line| line.starts_with([' ', '\t']) && line.trim_start().starts_with('"'));
    indented.map_or_else(|| "  ".to_owned(), |line| line[..line.len() - line.trim_start().len()].to_owned())
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn wrong(&self, wanted: &str) -> String {
        let line = self.text.get(..self.at).unwrap_or_default().matches('\n').count() + 1;
        format!("line {line}: expected {wanted}")
    }

    /// Skips blanks and comments.
    fn skip(&mut self) {
        loop {
            let rest = self.rest();
            let blank = rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n', '\u{feff}']).len();
            let comment = match rest.get(blank..).unwrap_or_default() {
                rest if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
                rest if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
                _ => 0,
            };
            self.at += blank + comment;
            if blank + comment == 0 {
                return;
            }
        }
    }

    fn takes(&mut self, mark: char) -> bool {
        self.skip();
        let is_there = self.rest().starts_with(mark);
        if is_there {
            self.at += mark.len_utf8();
        }
        is_there
    }

    fn value(&mut self, depth: usize) -> Result<Node, String> {
        if depth > DEEPEST {
            return Err(self.wrong("less nesting"));
        }
        self.skip();
        let start = self.at;
        let value = match self.rest().chars().next() {
            Some('{') => self.object(depth)?,
            Some('[') => self.array(depth)?,
            Some('"') => Value::Text(self.string()?),
            _ => {
                let rest = self.rest();
                let len = rest.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '+' | '.'));
                let word = &rest[..len.unwrap_or(rest.len())];
                if serde_json::from_str::<serde_json::Value>(word).is_err() {
                    return Err(self.wrong("a value"));
                }
                self.at += word.len();
                Value::Other
            }
        };
        Ok(Node { start, end: self.at, value })
    }

    fn object(&mut self, depth: usize) -> Result<Value, String> {
        self.at += 1;
        let mut members = Vec::new();
        loop {
            if self.takes('}') {
                return Ok(Value::Object(members));
            }
            self.skip();
            let start = self.at;
            let name = self.string()?;
            if !self.takes(':') {
                return Err(self.wrong("a colon"));
            }
            members.push(Member { name, start, node: self.value(depth + 1)? });
            if !self.takes(',') && !self.rest().starts_with('}') {
                return Err(self.wrong("a comma or }"));
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value, String> {
        self.at += 1;
        let mut elements = Vec::new();
        loop {
            if self.takes(']') {
                return Ok(Value::Array(elements));
            }
            elements.push(self.value(depth + 1)?);
            if !self.takes(',') && !self.rest().starts_with(']') {
                return Err(self.wrong("a comma or ]"));
            }
        }
    }

    fn string(&mut self) -> Result<String, String> {
        let rest = self.rest();
        let mut escaped = false;
        let inner = rest.strip_prefix('"').ok_or_else(|| self.wrong("a text in quotes"))?;
        let end = inner.find(|c: char| match c {
            _ if std::mem::take(&mut escaped) => false,
            '\\' => {
                escaped = true;
                false
            }
            c => c == '"',
        });
        let Some(end) = end else { return Err(self.wrong("the end of a text")) };
        let text = serde_json::from_str(&rest[..end + 2]).map_err(|_| self.wrong("a valid text"))?;
        self.at += end + 2;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_know_where_they_are() {
        let text = "// mine\n{ \"a\": [1, {\"b\": \"c\\\"d\"},], /* x */ \"e\": -1.5e3, }\n";
        let node = parse(text).unwrap();
        let list = node.member("a").unwrap();
        assert_eq!(&text[list.start..list.end], "[1, {\"b\": \"c\\\"d\"},]");
        assert_eq!(list.elements()[1].member("b").unwrap().text(), Some("c\"d"));
        for wrong in ["", "{", "{\"a\" 1}", "[1 2]", "{} x", "{a: 1}", "nul", "\"a", "{\"a\": }", &"[".repeat(200)] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn removal_undoes_an_insertion() {
        for text in ["{}", "{ }\n", "{\n}\n", "{\"a\": 1}", "{\n\t\"a\": [\n\t\t1\n\t]\n}\n", "{\"a\": 1, // last\n}"] {
            let node = parse(text).unwrap();
            let with = insert(text, &node, "\"n\": {\n  \"x\": 1\n}", &unit(text), 0);
            let parsed = parse(&with).unwrap();
            assert!(parsed.member("n").is_some(), "{with}");
            let Value::Object(members) = &parsed.value else { panic!("{with}") };
            let at = members.iter().position(|member| member.name == "n").unwrap();
            assert_eq!(remove(&with, &parsed, at, &unit(text), 0), text, "{with}");
        }
    }
}
