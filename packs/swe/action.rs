//! Parses the commands in a model's answer.
//!
//! They are calls of the tool, or one fenced block from models without tools.

use helmdeck_llm::{Answer, Finish, Tool};
use serde::Deserialize;
use serde_json::json;

/// The name of the tool.
pub(super) const TOOL: &str = "bash";

/// Maximum commands of one answer that are run.
const MAX_COMMANDS: usize = 8;

/// Maximum bytes of a command: one argument of a program can have 128 KiB on Linux.
const MAX_COMMAND_BYTES: usize = 96 << 10;

/// A command of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Action {
    /// The tool call that it answers; `None` for a fenced block.
    pub(super) id: Option<String>,
    /// The command, or what is wrong with it.
    pub(super) command: Result<String, String>,
}

/// Returns the definition of the tool for models.
pub(super) fn tool() -> Tool {
    Tool {
        name: TOOL.to_owned(),
        description: "Runs a command with bash in the root of the repository and returns its exit status and output"
            .to_owned(),
        parameters: json!({
            "type": "object",
            "properties": {"command": {"type": "string", "description": "The command"}},
            "required": ["command"],
        }),
    }
}

/// Returns the commands of an answer, at least one.
///
/// # Errors
/// What is wrong with the answer, for the model, if it has none.
pub(super) fn find(answer: &Answer) -> Result<Vec<Action>, String> {
    if !answer.tool_calls.is_empty() {
        let calls = answer.tool_calls.iter().enumerate();
        return Ok(calls
            .map(|(index, call)| Action {
                id: Some(call.id.clone()),
                command: if index < MAX_COMMANDS {
                    command(&call.name, &call.arguments).and_then(check)
                } else {
                    Err(format!(
                        "not run: an answer can have {MAX_COMMANDS} commands at most"
                    ))
                },
            })
            .collect());
    }
    if answer.finish == Finish::Length {
        return Err(
            "The answer was cut off before its command: it was too long. Think less and give a shorter command.".into(),
        );
    }
    let blocks = blocks(answer.text.as_deref().unwrap_or_default());
    match blocks.as_slice() {
        [one] => check(one.clone()).map(|command| {
            vec![Action {
                id: None,
                command: Ok(command),
            }]
        }),
        [] => Err("The answer has no command.".into()),
        many => Err(format!(
            "The answer has {} commands in blocks; give exactly one.",
            many.len()
        )),
    }
}

fn command(tool: &str, arguments: &str) -> Result<String, String> {
    #[derive(Deserialize)]
    struct Arguments {
        command: String,
    }
    if tool != TOOL {
        return Err(format!(
            "There is no tool {tool:?}; there is only `{TOOL}`."
        ));
    }
    let arguments: Arguments = serde_json::from_str(arguments).map_err(|_| {
        format!("The arguments of `{TOOL}` must be a JSON object with the text `command`.")
    })?;
    Ok(arguments.command)
}

fn check(command: String) -> Result<String, String> {
    if command.trim().is_empty() {
        return Err("The command is empty.".into());
    }
    if command.contains('\0') {
        return Err("The command holds a NUL character.".into());
    }
    if command.len() > MAX_COMMAND_BYTES {
        return Err(format!(
            "The command is over {MAX_COMMAND_BYTES} bytes; write long files in parts."
        ));
    }
    Ok(command)
}

/// Returns the text of every fenced block with a shell as its language.
///
/// A fence ends at a line of at least as many backticks (`CommonMark` 0.31 section 4.5).
fn blocks(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let line = line.trim();
        let ticks = line.bytes().take_while(|byte| *byte == b'`').count();
        if ticks < 3 {
            continue;
        }
        let mut block = Vec::new();
        let mut closed = false;
        for inner in lines.by_ref() {
            let end = inner.trim();
            if end.len() >= ticks && end.bytes().all(|byte| byte == b'`') {
                closed = true;
                break;
            }
            block.push(inner);
        }
        let language = line[ticks..].split_whitespace().next().unwrap_or_default();
        if closed && matches!(language, "bash" | "sh" | "shell") {
            found.push(block.join("\n"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use helmdeck_llm::ToolCall;

    use super::*;

    fn answer(text: &str, calls: &[(&str, &str)]) -> Answer {
        let call = |(index, (name, arguments)): (usize, &(&str, &str))| ToolCall {
            id: index.to_string(),
            name: (*name).to_owned(),
            arguments: (*arguments).to_owned(),
        };
        Answer {
            text: Some(text.to_owned()),
            tool_calls: calls.iter().enumerate().map(call).collect(),
            finish: Finish::Stop,
            usage: None,
            cost: None,
            attempts: 1,
        }
    }

    fn fenced(text: &str) -> Option<String> {
        find(&answer(text, &[]))
            .ok()
            .and_then(|mut actions| actions.remove(0).command.ok())
    }

    #[test]
    fn one_fenced_block_is_a_command() {
        assert_eq!(
            fenced("I look.\n```bash\nls -la\npwd\n```\nThen.").unwrap(),
            "ls -la\npwd"
        );
        assert_eq!(fenced("```sh\nls\n```").unwrap(), "ls");
        assert_eq!(
            fenced("This is wrong:\n```python\nx = 1\n```\n  ```bash\nls\n  ```").unwrap(),
            "ls"
        );
        assert_eq!(
            fenced("````bash\ncat <<'E'\n```\nE\n````").unwrap(),
            "cat <<'E'\n```\nE"
        );
    }

    #[test]
    fn none_several_and_open_blocks_are_no_command() {
        for text in [
            "",
            "ls",
            "```bash\nls",
            "```\nls\n```",
            "```bash\n\n```",
            "```bash\na\n```\n```bash\nb\n```",
        ] {
            assert_eq!(fenced(text), None, "{text}");
        }
        assert!(
            find(&Answer {
                finish: Finish::Length,
                ..answer("", &[])
            })
            .unwrap_err()
            .contains("cut off")
        );
    }

    #[test]
    fn tool_calls_are_commands_and_bad_ones_say_why() {
        let long = format!(r#"{{"command":"{}"}}"#, "x".repeat(MAX_COMMAND_BYTES + 1));
        let calls = [
            ("bash", r#"{"command":"ls"}"#),
            ("python", r#"{"command":"ls"}"#),
            ("bash", "ls"),
            ("bash", r#"{"command":" "}"#),
            ("bash", r#"{"command":"a\u0000b"}"#),
            ("bash", &long),
        ];
        let actions = find(&answer("```bash\nno\n```", &calls)).unwrap();
        assert_eq!(
            actions[0],
            Action {
                id: Some("0".into()),
                command: Ok("ls".into())
            }
        );
        assert_eq!(actions.len(), 6);
        assert!(actions[1..].iter().all(|action| action.command.is_err()));
    }

    #[test]
    fn commands_beyond_the_eighth_are_not_run() {
        let actions = find(&answer("", &[("bash", r#"{"command":"ls"}"#); 10])).unwrap();
        assert_eq!(
            actions
                .iter()
                .filter(|action| action.command.is_ok())
                .count(),
            MAX_COMMANDS
        );
        assert_eq!(actions.len(), 10);
    }
}
