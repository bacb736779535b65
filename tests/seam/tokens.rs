//! The words of a Rust source, without its comments: as much of a lexer as the gate needs. What it cannot read is an error, never passed over.

/// A word of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// A name, a keyword or a number.
    Word(String),
    /// What stands in a string, escapes as they are written.
    Text(String),
    /// Any other character.
    Sign(char),
}

/// A word, and the line it begins on, from 1.
pub(super) type Placed = (usize, Token);

/// Reads the words of a source.
pub(super) fn tokens(source: &[u8]) -> Result<Vec<Placed>, String> {
    let text = std::str::from_utf8(source).map_err(|_| "it is no UTF-8".to_owned())?;
    let mut lexer = Lexer { chars: text.chars().collect(), at: 0, line: 1, tokens: Vec::new(), open: Vec::new() };
    lexer.run()?;
    match lexer.open.last() {
        None => Ok(lexer.tokens),
        Some((line, sign)) => Err(format!("the {sign} of line {line} is not closed")),
    }
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    line: usize,
    tokens: Vec<Placed>,
    open: Vec<(usize, char)>,
}

impl Lexer {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek(0)?;
        self.at += 1;
        self.line += usize::from(c == '\n');
        Some(c)
    }

    fn run(&mut self) -> Result<(), String> {
        while let Some(c) = self.peek(0) {
            let line = self.line;
            match (c, self.peek(1)) {
                ('/', Some('/')) => {
                    while self.peek(0).is_some_and(|c| c != '\n') {
                        self.next();
                    }
                }
                ('/', Some('*')) => self.block(line)?,
                ('"', _) => {
                    self.next();
                    self.string(line)?
                }
                ('\'', _) => self.quote(line)?,
                _ if c.is_alphanumeric() || c == '_' => self.word(line)?,
                _ if c.is_whitespace() => {
                    self.next();
                }
                _ => {
                    self.next();
                    self.sign(line, c)?
                }
            }
        }
        Ok(())
    }

    fn sign(&mut self, line: usize, c: char) -> Result<(), String> {
        let opened = match c {
            '(' | '[' | '{' => {
                self.open.push((line, c));
                None
            }
            ')' => Some('('),
            ']' => Some('['),
            '}' => Some('{'),
            _ => None,
        };
        if let Some(opened) = opened
            && self.open.pop().is_none_or(|(_, sign)| sign != opened)
        {
            return Err(format!("the {c} of line {line} closes nothing"));
        }
        self.tokens.push((line, Token::Sign(c)));
        Ok(())
    }

    /// Comments of this kind have others within them.
    fn block(&mut self, line: usize) -> Result<(), String> {
        let mut depth = 0;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some('/'), Some('*')) => {
                    depth += 1;
                    self.at += 2;
                }
                (Some('*'), Some('/')) => {
                    depth -= 1;
                    self.at += 2;
                }
                (None, _) => return Err(format!("the comment of line {line} does not end")),
                _ => {
                    self.next();
                }
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    fn string(&mut self, line: usize) -> Result<(), String> {
        let mut text = String::new();
        loop {
            match self.next() {
                Some('"') => break,
                Some('\\') => {
                    text.push('\\');
                    text.extend(self.next());
                }
                Some(c) => text.push(c),
                None => return Err(format!("the string of line {line} does not end")),
            }
        }
        self.tokens.push((line, Token::Text(text)));
        Ok(())
    }

    fn raw(&mut self, line: usize) -> Result<(), String> {
        let mut hashes = 0;
        while self.peek(0) == Some('#') {
            self.next();
            hashes += 1;
        }
        self.next();
        let mut text = String::new();
        loop {
            match self.next() {
                Some('"') if (0..hashes).all(|ahead| self.peek(ahead) == Some('#')) => break,
                Some(c) => text.push(c),
                None => return Err(format!("the string of line {line} does not end")),
            }
        }
        self.at += hashes;
        self.tokens.push((line, Token::Text(text)));
        Ok(())
    }

    /// A character or a lifetime.
    fn quote(&mut self, line: usize) -> Result<(), String> {
        self.next();
        if self.peek(0) == Some('\\') {
            self.next();
            self.next();
            while let Some(c) = self.next() {
                if c == '\'' {
                    return Ok(());
                }
                if c == '\n' {
                    break;
                }
            }
            return Err(format!("the character of line {line} does not end"));
        }
        if self.peek(1) == Some('\'') {
            self.next();
            self.next();
        }
        Ok(())
    }

    fn word(&mut self, line: usize) -> Result<(), String> {
        let mut word = String::new();
        while let Some(c) = self.peek(0).filter(|c| c.is_alphanumeric() || *c == '_') {
            word.push(c);
            self.next();
        }
        let raw = matches!(word.as_str(), "r" | "br" | "cr");
        let after = (0..).map(|ahead| self.peek(ahead)).find(|c| *c != Some('#')).flatten();
        match self.peek(0) {
            Some('"' | '#') if raw && after == Some('"') => return self.raw(line),
            // A name that is a keyword elsewhere: r#path.
            Some('#') if word == "r" => {
                self.next();
                return self.word(line);
            }
            Some('"') if matches!(word.as_str(), "b" | "c") => {
                self.next();
                return self.string(line);
            }
            Some('\'') if word == "b" => return self.quote(line),
            _ => self.tokens.push((line, Token::Word(word))),
        }
        Ok(())
    }
}

#[test]
fn words_are_told_from_comments_strings_and_lifetimes() {
    let read =
        |text: &str| tokens(text.as_bytes()).map(|all| all.into_iter().map(|(_, token)| token).collect::<Vec<_>>());
    let word = |text: &str| Token::Word(text.to_owned());
    assert_eq!(read("a // b\n/* c /* d */ e */ f").unwrap(), [word("a"), word("f")]);
    assert_eq!(read("&'a b'\\'' 'x' '\"' c").unwrap(), [Token::Sign('&'), word("a"), word("c")]);
    let text = |text: &str| Token::Text(text.to_owned());
    assert_eq!(
        read(r####"r#"a"b"# "c\"d" br"e" r#f"####).unwrap(),
        [text("a\"b"), text("c\\\"d"), text("e"), word("f")]
    );
    assert_eq!(tokens(b"\n\na").unwrap(), [(3, word("a"))]);
    for bad in [&b"\xff"[..], b"fn a() {", b"\"a", b"/* a", b"r#\"a\"", b"(]", b")"] {
        assert!(tokens(bad).is_err(), "{}", String::from_utf8_lossy(bad));
    }
}
