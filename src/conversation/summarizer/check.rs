//! Checks that an answer is a summary. A partial or degenerate one must not replace the turns.

use std::collections::{HashMap, HashSet};

use helmdeck_llm::{Answer, Finish};

use super::Failure;
use super::prompt::NOTHING;

/// Blocks of reasoning before an answer.
const THOUGHTS: [(&str, &str); 2] = [("<think>", "</think>"), ("<thinking>", "</thinking>")];

/// Beginnings of refusals. A summary speaks of the user and the assistant, never as "I".
const EXCUSES: [&str; 9] = [
    "i'm sorry",
    "i am sorry",
    "sorry,",
    "i can't",
    "i cannot",
    "i can not",
    "i'm unable",
    "i am unable",
    "as an ai",
];

/// Maximum bytes of a refusal.
const MAX_EXCUSE_BYTES: usize = 400;

/// Size of the window, in words, in which loops are searched.
const WINDOW: usize = 60;

/// Repetitions of a sentence that count as a loop.
const MAX_SAID: usize = 4;

/// Why an answer is not a summary: the reason and details.
pub(super) type Flaw = (Failure, &'static str);

/// Returns the summary in an answer to a request of at most `max_tokens` about `asked_bytes` of
/// text.
///
/// # Errors
/// The reason, if there is none.
pub(super) fn summary(
    answer: &Answer,
    max_tokens: u32,
    asked_bytes: usize,
) -> Result<String, Flaw> {
    if !answer.tool_calls.is_empty() || answer.finish == Finish::ToolCalls {
        return Err((Failure::Garbage, "the model wants tools called"));
    }
    let said = answer.text.as_deref().unwrap_or_default();
    let text = undressed(said);
    let words = words(text);
    if is_looping(text, &words) {
        return Err((Failure::Looping, "the model repeats itself"));
    }
    if let Some(flaw) = cut_off(answer, max_tokens) {
        return Err(flaw);
    }
    if words.is_empty() || text == NOTHING {
        return Err((Failure::Garbage, "the answer is empty"));
    }
    if is_binary(text) {
        return Err((Failure::Garbage, "the answer is no text"));
    }
    if is_page(text) {
        return Err((
            Failure::Garbage,
            "the answer is a page or an error of a server",
        ));
    }
    if is_excuse(text) {
        return Err((Failure::Refused, "the model refuses in words"));
    }
    if words.len() < 3 && text.len().saturating_mul(100) < asked_bytes {
        return Err((Failure::Garbage, "the answer is too short to be a summary"));
    }
    Ok(text
        .chars()
        .filter(|&character| !is_odd(character))
        .collect())
}

fn cut_off(answer: &Answer, max_tokens: u32) -> Option<Flaw> {
    let reached = answer
        .usage
        .is_some_and(|usage| usage.completion_tokens >= u64::from(max_tokens));
    match answer.finish {
        Finish::Length => Some((Failure::Truncated, "the summary was cut off")),
        Finish::ContentFilter => Some((
            Failure::Truncated,
            "the endpoint withheld a part of the summary",
        )),
        // Not every endpoint reports why it stopped.
        Finish::Other if reached => Some((Failure::Truncated, "the summary was cut off")),
        Finish::Stop | Finish::ToolCalls | Finish::Other => None,
    }
}

/// Removes reasoning before an answer, and a code fence around it.
fn undressed(said: &str) -> &str {
    let text = unfenced(unthought(said.trim()));
    // Reasoning may be inside a fence, and a fence after reasoning.
    unfenced(unthought(text))
}

fn unthought(mut text: &str) -> &str {
    for (open, close) in THOUGHTS {
        while let Some(thought) = text.strip_prefix(open) {
            // Unfinished reasoning is all of the answer.
            text = thought
                .split_once(close)
                .map_or("", |(_, after)| after)
                .trim();
        }
        // Some templates start the reasoning, so the answer contains only its end.
        let headless = text
            .split_once(close)
            .filter(|(before, _)| !before.contains(open));
        if let Some((_, after)) = headless.filter(|(_, after)| after.starts_with(['\n', '\r'])) {
            text = after.trim();
        }
    }
    text
}

fn unfenced(text: &str) -> &str {
    let Some((_, inside)) = text
        .strip_prefix("```")
        .and_then(|fenced| fenced.split_once('\n'))
    else {
        return text;
    };
    let inside = inside.trim_end();
    inside.strip_suffix("```").unwrap_or(inside).trim()
}

/// Returns the words in lower case; in scripts without spaces each character is a word.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    for character in text.chars() {
        let alone = matches!(character, '\u{2e80}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}' | '\u{20000}'..='\u{3ffff}');
        let ends = alone || !character.is_alphanumeric();
        if ends && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if alone && character.is_alphanumeric() {
            words.push(character.to_string());
        } else if character.is_alphanumeric() {
            word.extend(character.to_lowercase());
        }
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    words
}

/// Returns whether the text repeats itself.
///
/// It does so with few distinct runs of words, or with the same sentence again and again.
fn is_looping(text: &str, words: &[String]) -> bool {
    let circles = |words: &[String], parts: usize| {
        let runs = words.windows(4);
        let all = runs.len();
        all > 0 && runs.collect::<HashSet<_>>().len() * parts < all
    };
    let somewhere = (0..words.len())
        .step_by(WINDOW / 2)
        .filter_map(|start| words.get(start..start + WINDOW));
    if (words.len() >= WINDOW && circles(words, 2))
        || somewhere.into_iter().any(|window| circles(window, 3))
    {
        return true;
    }
    let mut said: HashMap<Vec<String>, usize> = HashMap::new();
    for sentence in text
        .split('\n')
        .flat_map(|line| line.split_inclusive(['.', '!', '?', '。', ';']))
    {
        // Skip the number of a list item.
        let sentence: Vec<String> = self::words(sentence)
            .into_iter()
            .skip_while(|word| word.bytes().all(|byte| byte.is_ascii_digit()))
            .collect();
        if !sentence.is_empty() {
            *said.entry(sentence).or_default() += 1;
        }
    }
    said.into_iter()
        .any(|(sentence, times)| times >= MAX_SAID && times * sentence.len() * 3 >= words.len())
}

fn is_odd(character: char) -> bool {
    (character.is_control() && !matches!(character, '\n' | '\t')) || character == '\u{fffd}'
}

fn is_binary(text: &str) -> bool {
    let odd = text
        .chars()
        .filter(|&character| is_odd(character) && character != '\r')
        .count();
    odd * 50 > text.chars().count()
}

fn is_page(text: &str) -> bool {
    let start = text[..text.floor_char_boundary(16)].to_ascii_lowercase();
    if ["<!doctype", "<html", "<?xml"]
        .iter()
        .any(|tag| start.starts_with(tag))
    {
        return true;
    }
    let object: Option<serde_json::Map<String, serde_json::Value>> =
        serde_json::from_str(text).ok();
    object.is_some_and(|object| object.contains_key("error"))
}

fn is_excuse(text: &str) -> bool {
    let start = text[..text.floor_char_boundary(32)]
        .to_lowercase()
        .replace('’', "'");
    text.len() <= MAX_EXCUSE_BYTES
        && !text.contains('\n')
        && EXCUSES.iter().any(|excuse| start.starts_with(excuse))
}

#[cfg(test)]
mod tests {
    use helmdeck_llm::{ToolCall, Usage};

    use super::*;

    const GOOD: &str = "- The user plans a release on 3 May.\n- Ana owns T-17.\n- Open: which port does the mailer use?";

    fn answer(text: &str) -> Answer {
        let text = Some(text.to_owned());
        Answer {
            text,
            tool_calls: Vec::new(),
            finish: Finish::Stop,
            usage: None,
            cost: None,
            attempts: 1,
        }
    }

    fn read(text: &str) -> Result<String, Failure> {
        summary(&answer(text), 1000, 4000).map_err(|(failure, _)| failure)
    }

    #[test]
    fn a_summary_is_freed_of_thoughts_and_fences() {
        for text in [
            GOOD.to_owned(),
            format!("\n\n{GOOD}\r\n "),
            format!("<think>what do they want?\n</think>\n\n{GOOD}"),
            format!("<thinking>a</thinking><think>b</think>{GOOD}"),
            format!("they want a summary\n</think>\n{GOOD}"),
            format!("```markdown\n{GOOD}\n```"),
            format!("```\n{GOOD}"),
            format!("<think>x</think>\n```\n{GOOD}\n```"),
            format!("```\n<think>x</think>{GOOD}\n```\n"),
        ] {
            assert_eq!(read(&text).as_deref(), Ok(GOOD), "{text}");
        }
        // What is part of the summary stays.
        for text in [
            "- The user asks what <think> and </think> are for",
            "- The fix is:\n```\nx = 1\n```\n- Done by Bo",
        ] {
            assert_eq!(read(text).as_deref(), Ok(text));
        }
        assert_eq!(
            read("- a\u{1b} name, a number, a date\r\n- and so on, as it was said\r\n- x y z")
                .as_deref(),
            Ok("- a name, a number, a date\n- and so on, as it was said\n- x y z")
        );
    }

    #[test]
    fn a_summary_that_is_cut_off_is_none() {
        for finish in [Finish::Length, Finish::ContentFilter] {
            let cut = Answer {
                finish,
                ..answer(GOOD)
            };
            assert_eq!(summary(&cut, 1000, 4000).unwrap_err().0, Failure::Truncated);
        }
        let spent = |completion_tokens, finish| Answer {
            finish,
            usage: Some(Usage {
                prompt_tokens: 1,
                completion_tokens,
                cached_tokens: 0,
            }),
            ..answer(GOOD)
        };
        assert_eq!(
            summary(&spent(1000, Finish::Other), 1000, 4000)
                .unwrap_err()
                .0,
            Failure::Truncated
        );
        assert!(summary(&spent(999, Finish::Other), 1000, 4000).is_ok());
        assert!(summary(&spent(1000, Finish::Stop), 1000, 4000).is_ok());
        // All of it went into thoughts.
        let thinking = Answer {
            finish: Finish::Length,
            ..answer("<think>so they want")
        };
        assert_eq!(
            summary(&thinking, 1000, 4000).unwrap_err().0,
            Failure::Truncated
        );
    }

    #[test]
    fn non_answer_of_model_is_garbage() {
        for text in [
            "",
            " \n\t",
            "...",
            "- \n- \n",
            "(none)",
            "```\n```",
            "<think>and now I",
            "ok",
            "<!DOCTYPE html><title>Bad gateway</title>",
            "<html><body>busy, come back in a while</body></html>",
            "{\"error\": {\"message\": \"the server is overloaded, try again\"}}",
            "\0\u{1}\u{2}ELF binary \u{fffd}\u{fffd} and more",
        ] {
            assert_eq!(read(text), Err(Failure::Garbage), "{text:?}");
        }
        let call = ToolCall {
            id: "a".to_owned(),
            name: "bash".to_owned(),
            arguments: "{}".to_owned(),
        };
        let calling = Answer {
            tool_calls: vec![call],
            ..answer(GOOD)
        };
        assert_eq!(
            summary(&calling, 1000, 4000).unwrap_err().0,
            Failure::Garbage
        );
        let silent = Answer {
            text: None,
            ..answer("")
        };
        assert_eq!(
            summary(&silent, 1000, 4000).unwrap_err().0,
            Failure::Garbage
        );
    }

    #[test]
    fn short_summary_needs_short_conversation() {
        assert_eq!(
            summary(&answer("ok"), 1000, 201).unwrap_err().0,
            Failure::Garbage
        );
        assert_eq!(summary(&answer("ok"), 1000, 200), Ok("ok".to_owned()));
        assert_eq!(
            read("They greeted each other.").as_deref(),
            Ok("They greeted each other.")
        );
        assert_eq!(
            read("用户问好").as_deref(),
            Ok("用户问好"),
            "each of these characters is a word"
        );
    }

    #[test]
    fn a_refusal_in_words_is_no_summary() {
        for text in [
            "I'm sorry, but I can't assist with that.",
            "I’m sorry, I cannot help with this request.",
            "As an AI language model I have no access to that.",
        ] {
            assert_eq!(read(text), Err(Failure::Refused), "{text}");
        }
        for text in [
            "- I'm sorry, said the assistant, as the build was red.",
            "The assistant is sorry that it is late.",
        ] {
            assert!(read(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn saying_the_same_over_and_over_is_looping() {
        for text in [
            "I see. I see. I see. I see.".to_owned(),
            "- The build is red.\n".repeat(4),
            "1. The build is red\n2. The build is red\n3. The build is red\n4. The build is red"
                .to_owned(),
            format!("{GOOD}\n{}", "test gate ".repeat(60)),
            format!(
                "{GOOD}\n{}",
                "the build of the mailer is red and the release waits for Ana, ".repeat(8)
            ),
            "用户要求检查构建。".repeat(5),
            "and then ".repeat(40),
        ] {
            assert_eq!(read(&text), Err(Failure::Looping), "{text}");
        }
        // A loop ends where the tokens end; what it is tells more than where it was cut.
        let endless = Answer {
            finish: Finish::Length,
            ..answer(&"no, no, ".repeat(99))
        };
        assert_eq!(
            summary(&endless, 1000, 4000).unwrap_err().0,
            Failure::Looping
        );
    }

    #[test]
    fn a_list_of_like_things_is_not_looping() {
        let tickets: String = (0..40)
            .map(|id| format!("- Ticket T-{id} belongs to Bo.\n"))
            .collect();
        assert!(read(&tickets).is_ok());
        let states: String = (0..6)
            .map(|id| {
                format!(
                    "Ticket {id}: build {} of service {id}\n  - state: open\n",
                    id * 7
                )
            })
            .collect();
        assert!(read(&states).is_ok());
        assert!(
            read("Goals: ship\nDecisions: none\nQuestions: none\nNames: none\nNumbers: none")
                .is_ok()
        );
    }
}
