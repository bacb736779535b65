//! Code blocks of a page, and what is expected of each.

/// Code block of a page.
#[derive(Debug)]
pub(crate) struct Block {
    /// Line of the page on which its text begins.
    pub(crate) line: usize,
    /// First word of its info string.
    pub(crate) language: String,
    /// Whether the info string says `no-run` or, for a part of a file, `fragment`.
    pub(crate) exempt: bool,
    /// Its text, with a newline at the end of each line.
    pub(crate) text: String,
}

/// Command of a block, and the output that the page shows for it.
#[derive(Debug)]
pub(crate) struct Step {
    /// Line of the page on which it begins.
    pub(crate) line: usize,
    /// Shell text: a whole `sh` block, or one command of a `console` block.
    pub(crate) script: String,
    /// Output of a `console` block. `None` for `sh`: any output, but no failure.
    pub(crate) output: Option<String>,
}

/// Returns the code blocks of a page.
pub(crate) fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open = false;
    for (at, line) in page.lines().enumerate() {
        if let Some(info) = line.strip_prefix("```") {
            open = !open;
            if open {
                let mut words = info.split_whitespace();
                let language = words.next().unwrap_or_default().to_owned();
                let exempt = words.any(|word| word == "no-run" || word == "fragment");
                blocks.push(Block {
                    line: at + 2,
                    language,
                    exempt,
                    text: String::new(),
                });
            }
        } else if open {
            let block = blocks.last_mut().unwrap();
            block.text.push_str(line);
            block.text.push('\n');
        }
    }
    assert!(!open, "a code block does not end");
    blocks
}

impl Block {
    /// Says whether a shell runs it.
    pub(crate) fn is_run(&self) -> bool {
        !self.exempt && (self.language == "sh" || self.language == "console")
    }

    /// Returns what the shell runs, in order.
    pub(crate) fn steps(&self) -> Vec<Step> {
        if self.language == "sh" {
            return vec![Step {
                line: self.line,
                script: self.text.clone(),
                output: None,
            }];
        }
        let mut steps: Vec<Step> = Vec::new();
        for (at, line) in self.text.lines().enumerate() {
            if let Some(command) = line.strip_prefix("$ ") {
                steps.push(Step {
                    line: self.line + at,
                    script: format!("{command}\n"),
                    output: Some(String::new()),
                });
                continue;
            }
            let step = steps
                .last_mut()
                .unwrap_or_else(|| panic!("line {}: output before a command", self.line));
            let output = step.output.get_or_insert_default();
            match line.strip_prefix("> ") {
                Some(more) if output.is_empty() => step.script.push_str(&format!("{more}\n")),
                _ => output.push_str(&format!("{line}\n")),
            }
        }
        steps
    }
}
