//! Reader of the YAML in which forms are written.
//!
//! It knows block and flow mappings and lists, plain and quoted texts, block texts (`|` and `>`) and comments. What
//! else YAML has (anchors, tags, several documents, keys that are no text) is refused, with its line.

use crate::json::{Json, Members};

/// Maximum depth of nested values.
const DEEPEST: usize = 32;

/// Where and why a text is not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wrong {
    /// Its line, from 1.
    pub(super) line: usize,
    /// What is wrong.
    pub(super) what: String,
}

/// A line that says something.
struct Line<'a> {
    number: usize,
    indent: usize,
    text: &'a str,
}

/// Reads a text.
///
/// # Errors
/// Where and why it is not read.
pub(super) fn parse(text: &str) -> Result<Json, Wrong> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let all: Vec<&str> = text.lines().map(|line| line.trim_end_matches('\r')).collect();
    let mut reader = Reader { all, at: 0 };
    if reader.peek()?.is_some_and(|line| line.text == "---" && line.indent == 0) {
        reader.at += 1;
    }
    let Some(first) = reader.peek()? else { return Ok(Json::Null) };
    let value = reader.block(first.indent, 0)?;
    match reader.peek()? {
        None => Ok(value),
        Some(line) => Err(wrong(line.number, "it does not belong to what stands above it")),
    }
}

fn wrong(line: usize, what: impl Into<String>) -> Wrong {
    Wrong { line, what: what.into() }
}

struct Reader<'a> {
    all: Vec<&'a str>,
    at: usize,
}

impl<'a> Reader<'a> {
    /// Returns the next line that says something, without going on.
    fn peek(&mut self) -> Result<Option<Line<'a>>, Wrong> {
        while let Some(line) = self.all.get(self.at) {
            let text = line.trim_start_matches(' ');
            if text.starts_with('\t') {
                return Err(wrong(self.at + 1, "indent with spaces, not with tabs"));
            }
            if !text.trim().is_empty() && !text.starts_with('#') {
                let indent = line.len() - text.len();
                return Ok(Some(Line { number: self.at + 1, indent, text: uncommented(text) }));
            }
            self.at += 1;
        }
        Ok(None)
    }

    /// Reads the value of the lines that begin at an indent.
    fn block(&mut self, indent: usize, depth: usize) -> Result<Json, Wrong> {
        let Some(line) = self.peek()? else { return Ok(Json::Null) };
        if depth > DEEPEST {
            return Err(wrong(line.number, "it is nested too deep"));
        }
        if is_item(line.text) {
            return self.list(indent, depth);
        }
        if key_of(line.text).is_some() {
            return self.mapping(indent, depth);
        }
        self.at += 1;
        scalar(line.text, line.number)
    }

    fn list(&mut self, indent: usize, depth: usize) -> Result<Json, Wrong> {
        let mut items = Vec::new();
        while let Some(line) = self.peek()?.filter(|line| line.indent == indent && is_item(line.text)) {
            let rest = line.text[1..].trim_start_matches(' ');
            if rest.is_empty() {
                self.at += 1;
                items.push(self.below(indent, depth)?);
            } else if is_item(rest) || key_of(rest).is_some() {
                // A value that begins on the line of its mark: as if the mark were spaces.
                let inner = indent + (line.text.len() - rest.len());
                items.push(self.marked(inner, rest, depth)?);
            } else {
                self.at += 1;
                items.push(self.inline(rest, &line, indent)?);
            }
        }
        Ok(Json::Array(items))
    }

    /// Reads a mapping or a list whose first line follows a mark.
    fn marked(&mut self, indent: usize, rest: &'a str, depth: usize) -> Result<Json, Wrong> {
        if depth > DEEPEST {
            return Err(wrong(self.at + 1, "it is nested too deep"));
        }
        if is_item(rest) {
            return Err(wrong(self.at + 1, "a list in a list begins on a line of its own"));
        }
        let mut members = Members::default();
        self.member(&mut members, Line { number: self.at + 1, indent, text: rest }, depth)?;
        self.members(&mut members, indent, depth)?;
        Ok(Json::Object(members))
    }

    fn mapping(&mut self, indent: usize, depth: usize) -> Result<Json, Wrong> {
        let mut members = Members::default();
        self.members(&mut members, indent, depth)?;
        Ok(Json::Object(members))
    }

    fn members(&mut self, members: &mut Members, indent: usize, depth: usize) -> Result<(), Wrong> {
        while let Some(line) = self.peek()?.filter(|line| line.indent == indent && !is_item(line.text)) {
            self.member(members, line, depth)?;
        }
        Ok(())
    }

    fn member(&mut self, members: &mut Members, line: Line<'a>, depth: usize) -> Result<(), Wrong> {
        let Some((key, rest)) = key_of(line.text) else {
            return Err(wrong(line.number, format!("expected `name: value`, found {:?}", line.text)));
        };
        let Json::String(name) = text_of(key, line.number)? else {
            return Err(wrong(line.number, "the name of a member is a text"));
        };
        self.at += 1;
        let value = if rest.is_empty() {
            // A list may stand at the indent of its member.
            match self.peek()? {
                Some(next) if next.indent == line.indent && is_item(next.text) => self.list(line.indent, depth + 1)?,
                _ => self.below(line.indent, depth)?,
            }
        } else {
            self.inline(rest, &line, line.indent)?
        };
        if members.0.insert(name.clone(), value).is_some() {
            return Err(wrong(line.number, format!("{name:?} stands there twice")));
        }
        Ok(())
    }

    /// Reads the value that is indented more than its member.
    fn below(&mut self, indent: usize, depth: usize) -> Result<Json, Wrong> {
        match self.peek()? {
            Some(next) if next.indent > indent => self.block(next.indent, depth + 1),
            _ => Ok(Json::Null),
        }
    }

    /// Reads a value that begins on the line of its member or mark.
    fn inline(&mut self, rest: &str, line: &Line<'_>, indent: usize) -> Result<Json, Wrong> {
        match rest.as_bytes() {
            [b'|' | b'>', ..] => self.text_block(rest, line, indent),
            [b'[' | b'{', ..] => {
                let mut whole = rest.to_owned();
                // A flow value may go on over lines.
                while !is_closed(&whole) {
                    let Some(next) = self.peek()? else {
                        return Err(wrong(line.number, "a bracket is not closed"));
                    };
                    self.at += 1;
                    whole.push(' ');
                    whole.push_str(next.text);
                }
                Flow { text: &whole, at: 0, line: line.number }.whole()
            }
            _ => scalar(rest, line.number),
        }
    }

    /// Reads a text of several lines, after `|` (as written) or `>` (lines joined).
    fn text_block(&mut self, mark: &str, line: &Line<'_>, indent: usize) -> Result<Json, Wrong> {
        let (style, end) = mark.split_at(1);
        if !matches!(end.trim(), "" | "-" | "+") {
            return Err(wrong(line.number, format!("{mark:?} is not read here: use | or >")));
        }
        let mut lines: Vec<&str> = Vec::new();
        let mut inner = None;
        while let Some(text) = self.all.get(self.at) {
            let depth = text.len() - text.trim_start_matches(' ').len();
            if !text.trim().is_empty() && depth <= indent {
                break;
            }
            if !text.trim().is_empty() && inner.is_none() {
                inner = Some(depth);
            }
            lines.push(text.get(inner.unwrap_or(depth).min(text.len())..).unwrap_or_default());
            self.at += 1;
        }
        while lines.last().is_some_and(|line| line.trim().is_empty()) {
            lines.pop();
        }
        let mut text = if style == "|" {
            lines.join("\n")
        } else {
            let paragraphs = lines.split(|line| line.trim().is_empty());
            paragraphs.map(|lines| lines.join(" ")).collect::<Vec<_>>().join("\n")
        };
        if end.trim() != "-" {
            text.push('\n');
        }
        Ok(Json::String(text))
    }
}

/// Says whether a line is an item of a list.
fn is_item(text: &str) -> bool {
    text == "-" || text.starts_with("- ")
}

/// Splits `name: value`. `None` if the line is no member.
fn key_of(text: &str) -> Option<(&str, &str)> {
    let end = match text.as_bytes().first()? {
        quote @ (b'"' | b'\'') => 1 + text[1..].find(char::from(*quote))? + 1,
        b'[' | b'{' | b'&' | b'*' | b'!' | b'|' | b'>' | b'%' | b'@' | b'`' => return None,
        _ => {
            let colon = text.match_indices(':').map(|(at, _)| at);
            colon.into_iter().find(|at| text[at + 1..].is_empty() || text[at + 1..].starts_with(' '))?
        }
    };
    let rest = text[end..].trim_start_matches(' ').strip_prefix(':')?;
    (rest.is_empty() || rest.starts_with(' ')).then(|| (text[..end].trim_end(), rest.trim()))
}

/// Returns a line without its comment.
fn uncommented(text: &str) -> &str {
    let mut quote = None;
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (None, '"' | '\'') if matches!(before, ' ' | '[' | '{' | ',' | ':') => quote = Some(c),
            (Some(open), c) if c == open && (open == '\'' || before != '\\') => quote = None,
            (None, '#') if before == ' ' => return text[..at].trim_end(),
            _ => {}
        }
        before = c;
    }
    text.trim_end()
}

/// Says whether every bracket of a flow value is closed.
fn is_closed(text: &str) -> bool {
    let (mut open, mut quote, mut before) = (0_i32, None, ' ');
    for c in text.chars() {
        match (quote, c) {
            (None, '"' | '\'') => quote = Some(c),
            (Some(end), c) if c == end && (end == '\'' || before != '\\') => quote = None,
            (None, '[' | '{') => open += 1,
            (None, ']' | '}') => open -= 1,
            _ => {}
        }
        before = c;
    }
    open <= 0 && quote.is_none()
}

/// Reads a value on one line.
fn scalar(text: &str, line: usize) -> Result<Json, Wrong> {
    match text.as_bytes().first() {
        Some(b'"' | b'\'') => text_of(text, line),
        Some(b'[' | b'{') => Flow { text, at: 0, line }.whole(),
        _ => plain(text, line),
    }
}

/// Reads a plain text as what it looks like: YAML's core schema.
fn plain(text: &str, line: usize) -> Result<Json, Wrong> {
    if let Some(mark @ ('&' | '*' | '!' | '%' | '@' | '`')) = text.chars().next() {
        return Err(wrong(line, format!("{mark:?} is not read here: put the text in quotes")));
    }
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => Json::Null,
        "true" | "True" | "TRUE" => Json::Bool(true),
        "false" | "False" | "FALSE" => Json::Bool(false),
        _ if text.bytes().next().is_some_and(|byte| byte.is_ascii_digit() || byte == b'-') => {
            serde_json::from_str(text).map_or_else(|_| Json::String(text.to_owned()), Json::Number)
        }
        _ => Json::String(text.to_owned()),
    })
}

/// Reads a text, quoted or plain.
fn text_of(text: &str, line: usize) -> Result<Json, Wrong> {
    let unclosed = || wrong(line, "a quote is not closed");
    match text.as_bytes().first() {
        Some(b'"') => {
            if text.len() < 2 || !text.ends_with('"') {
                return Err(unclosed());
            }
            // The escapes of JSON are YAML's, and the only ones that are read.
            serde_json::from_str::<String>(text)
                .map(Json::String)
                .map_err(|error| wrong(line, format!("this text is not read: {error}")))
        }
        Some(b'\'') => {
            let inner = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')).filter(|_| text.len() > 1);
            Ok(Json::String(inner.ok_or_else(unclosed)?.replace("''", "'")))
        }
        _ => Ok(Json::String(text.to_owned())),
    }
}

/// A value in brackets.
struct Flow<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl<'a> Flow<'a> {
    fn whole(mut self) -> Result<Json, Wrong> {
        let value = self.value(0)?;
        self.skip();
        if self.at < self.text.len() {
            return Err(wrong(self.line, "something follows a closed bracket"));
        }
        Ok(value)
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn skip(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn eat(&mut self, c: char) -> bool {
        self.skip();
        let found = self.rest().starts_with(c);
        if found {
            self.at += c.len_utf8();
        }
        found
    }

    fn value(&mut self, depth: usize) -> Result<Json, Wrong> {
        if depth > DEEPEST {
            return Err(wrong(self.line, "it is nested too deep"));
        }
        if self.eat('[') {
            let mut items = Vec::new();
            while !self.eat(']') {
                let value = self.value(depth + 1)?;
                // `[from: skills]` is a list of one mapping.
                items.push(match value {
                    Json::String(name) if self.eat(':') => {
                        let value = self.value(depth + 1)?;
                        Json::Object(Members([(name, value)].into_iter().collect()))
                    }
                    value => value,
                });
                self.separator(']')?;
            }
            return Ok(Json::Array(items));
        }
        if self.eat('{') {
            let mut members = Members::default();
            while !self.eat('}') {
                let Json::String(name) = self.value(depth + 1)? else {
                    return Err(wrong(self.line, "the name of a member is a text"));
                };
                let value = if self.eat(':') { self.value(depth + 1)? } else { Json::Null };
                if members.0.insert(name.clone(), value).is_some() {
                    return Err(wrong(self.line, format!("{name:?} stands there twice")));
                }
                self.separator('}')?;
            }
            return Ok(Json::Object(members));
        }
        self.skip();
        let rest = self.rest();
        let end = match rest.chars().next() {
            None => return Err(wrong(self.line, "a bracket is not closed")),
            Some(quote @ ('"' | '\'')) => {
                let mut letters = rest.char_indices().skip(1).peekable();
                let mut end = None;
                while let Some((at, c)) = letters.next() {
                    match c {
                        // The next one is part of the text.
                        '\\' if quote == '"' => {
                            letters.next();
                        }
                        c if c == quote && quote == '\'' && letters.next_if(|(_, c)| *c == quote).is_some() => {}
                        c if c == quote => {
                            end = Some(at + 1);
                            break;
                        }
                        _ => {}
                    }
                }
                end.ok_or_else(|| wrong(self.line, "a quote is not closed"))?
            }
            Some(_) => {
                let ends = |at: usize, c: char| {
                    matches!(c, ',' | ']' | '}' | '[' | '{')
                        || c == ':'
                            && rest[at + 1..].chars().next().is_none_or(|next| matches!(next, ' ' | ',' | ']' | '}'))
                };
                rest.char_indices().find(|(at, c)| ends(*at, *c)).map_or(rest.len(), |(at, _)| at)
            }
        };
        self.at += end;
        scalar(rest[..end].trim(), self.line)
    }

    fn separator(&mut self, end: char) -> Result<(), Wrong> {
        self.skip();
        if self.eat(',') || self.rest().starts_with(end) {
            return Ok(());
        }
        Err(wrong(self.line, format!("expected `,` or `{end}`")))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> String {
        serde_json::to_string(&parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"))).unwrap()
    }

    #[test]
    fn what_forms_are_written_in_is_read() {
        for (text, json) in [
            ("", "null"),
            ("a: 1\nb: two words # not this\n", r#"{"a":1,"b":"two words"}"#),
            ("---\na:\n  b: true\n  c: ~\n", r#"{"a":{"b":true,"c":null}}"#),
            ("a:\n- 1\n- x: 2\n  y: 3\n-\n  z: 4\n", r#"{"a":[1,{"x":2,"y":3},{"z":4}]}"#),
            ("a: [from: skills]\n", r#"{"a":[{"from":"skills"}]}"#),
            ("a: [x, \"y, z\", 'it''s', {b: 1}]\n", r#"{"a":["x","y, z","it's",{"b":1}]}"#),
            ("a: [x,\n    y]\nb: 1\n", r#"{"a":["x","y"],"b":1}"#),
            ("a: \"RFC-\\\\d{4}\"\n", r#"{"a":"RFC-\\d{4}"}"#),
            ("a: '[BUG] *'\nb: http://x/y\n", r#"{"a":"[BUG] *","b":"http://x/y"}"#),
            ("a: |\n  one\n    two\n\n  # three\nb: >-\n  x\n  y\n", r##"{"a":"one\n  two\n\n# three\n","b":"x y"}"##),
            ("'a b': 1\r\n\"c\": -2.5\r\n", r#"{"a b":1,"c":-2.5}"#),
            ("- a\n- b: c\n", r#"["a",{"b":"c"}]"#),
            ("a: 2025-12-24\n", r#"{"a":"2025-12-24"}"#),
        ] {
            assert_eq!(read(text), json, "{text}");
        }
    }

    #[test]
    fn what_is_not_read_is_named_with_its_line() {
        for (text, line) in [
            ("a: 1\na: 2\n", 2),
            ("a: &x 1\n", 1),
            ("a: !tag x\n", 1),
            ("a: [x\n", 1),
            ("a: \"x\n", 1),
            ("a: 1\n    b: 2\n", 2),
            ("a:\n\tb: 1\n", 2),
            ("a: 1\nword\n", 2),
            ("a: [x] y\n", 1),
            ("- - a\n", 1),
        ] {
            assert_eq!(parse(text).unwrap_err().line, line, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_reader(text in "[-a: \\n\\[\\]{}'\"|>#,&*\\t]{0,60}") {
            let _ = parse(&text);
        }
    }
}
