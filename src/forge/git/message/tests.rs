use proptest::prelude::*;

use super::*;

/// The example of the RFC, Commit Protocol.
const RFC: &str = include_str!("../../fixtures/commit-message.txt");

/// A complete message, as this program writes it.
fn full() -> Message {
    let mut message = parse(RFC).messages.remove(0);
    message.subject = "Wire the daemon".to_owned();
    message.what = vec!["Connects on startup".to_owned()];
    message.why = "It must hear commands.\n\nAnd answer.".to_owned();
    message.memory[0] = Note::Learned("connect once".to_owned());
    message.trailers = Trailers {
        parent: Some(format!("abc1234{}", "0".repeat(33))),
        linear: Some("SX9-123".to_owned()),
        session: Some("2025-12-24-session-001".to_owned()),
        session_id: Some("0193f8a0-0000-7000-8000-000000000000".to_owned()),
        code_tree: Some("1".repeat(40)),
        checkpoint: Some("checkpoint/SX9-123-v1".to_owned()),
        features: vec![Feature {
            id: "FORGE-002".to_owned(),
            status: "passing".to_owned(),
        }],
        other: vec![(
            "Signed-off-by".to_owned(),
            "Ann <ann@example.com>".to_owned(),
        )],
    };
    message
}

fn rules(text: &str) -> Vec<(String, Severity)> {
    lint(text)
        .into_iter()
        .map(|finding| (finding.rule, finding.severity))
        .collect()
}

#[test]
fn the_example_of_the_rfc_is_read_and_written_unchanged() {
    let parsed = parse(RFC);
    assert_eq!(parsed.messages.len(), 1);
    let message = &parsed.messages[0];
    assert_eq!(message.to_string(), RFC);
    assert_eq!(message.scope, Scope::Key("SX9-123".to_owned()));
    assert_eq!(message.what, ["Specific change 1", "Specific change 2"]);
    assert_eq!(message.why, "Rationale for the change");
    let updated = Note::Updated("features.json (FORGE-002 now passing)".to_owned());
    assert_eq!(
        message.memory,
        [Note::Learned("[key insight]".to_owned()), updated]
    );
    assert_eq!(message.backtrace.parent.as_deref(), Some("abc1234"));
    assert_eq!(
        message.backtrace.remark.as_deref(),
        Some("previous working state")
    );
    assert_eq!(
        (parsed.keys(), parsed.sessions()),
        (vec!["SX9-123"], vec!["2025-12-24-session-001"])
    );
}

#[test]
fn all_that_is_written_is_read_again() {
    for scope in [Scope::Key("SX9-123".to_owned()), Scope::Session] {
        let message = Message { scope, ..full() };
        let parsed = parse(&message.to_string());
        assert_eq!(parsed.messages, [message]);
    }
    let session = Message {
        scope: Scope::Session,
        subject: "Do it".to_owned(),
        ..Message::default()
    };
    assert_eq!(session.subject_line(), "[session] Do it");
}

#[test]
fn a_message_without_its_headings_says_the_same() {
    let mut message = full();
    let text: String = message
        .to_string()
        .lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(|l| [l, "\n"])
        .collect();
    assert!(!text.contains("##"));
    let parsed = parse(&text);
    assert_eq!(parsed.messages, [message.clone()]);
    assert_eq!(rules(&text), [("headings".to_owned(), Severity::Warning)]);
    // Even if only the trailers are left.
    let trailers = text.rsplit("\n\n").next().unwrap();
    let only = parse(&format!("[SX9-123] Wire the daemon\n\n{trailers}"));
    message = Message {
        what: vec![],
        why: String::new(),
        memory: vec![],
        backtrace: Backtrace::default(),
        ..message
    };
    assert_eq!(only.messages, [message]);
    assert_eq!(only.sessions(), ["2025-12-24-session-001"]);
}

#[test]
fn line_ends_of_another_system_change_nothing() {
    let text = full().to_string();
    let other = parse(&format!("\u{feff}{}", text.replace('\n', "\r\n")));
    assert_eq!(other.messages, parse(&text).messages);
}

#[test]
fn each_message_of_a_squash_is_read() {
    let first = full();
    let second = Message {
        scope: Scope::Key("SX9-124".to_owned()),
        backtrace: Backtrace {
            session: Some("2025-12-25-session-002".to_owned()),
            ..Backtrace::default()
        },
        trailers: Trailers {
            session: Some("2025-12-25-session-002".to_owned()),
            ..Trailers::default()
        },
        ..full()
    };
    let (a, b) = (first.to_string(), second.to_string());
    let indent = |text: &str| {
        text.lines()
            .map(|line| format!("    {line}\n"))
            .collect::<String>()
    };
    let oid = "a".repeat(40);
    let squashes = [
        format!("{a}\n{b}"),
        format!(
            "# This is a combination of 2 commits.\n# This is the 1st commit message:\n\n{a}\n# This is the commit message #2:\n\n{b}"
        ),
        format!(
            "Squashed commit of the following:\n\ncommit {oid}\nAuthor: A <a@b>\nDate:   Mon\n\n{}\ncommit {oid}\n\
             Author: A <a@b>\nDate:   Mon\n\n{}",
            indent(&a),
            indent(&b)
        ),
        format!("* {a}\n* {b}"),
    ];
    for text in squashes {
        let parsed = parse(&text);
        assert_eq!(parsed.messages, [first.clone(), second.clone()], "{text}");
        assert_eq!(parsed.keys(), ["SX9-123", "SX9-124"]);
        assert_eq!(
            parsed.sessions(),
            ["2025-12-24-session-001", "2025-12-25-session-002"]
        );
    }
    // Below a title written by a person.
    let parsed = parse(&format!("Merge the work (#12)\n\n* {a}\n* {b}"));
    assert_eq!(parsed.messages.len(), 3);
    assert_eq!(
        (parsed.messages[0].subject.as_str(), parsed.keys()),
        ("Merge the work (#12)", vec!["SX9-123", "SX9-124"])
    );
}

#[test]
fn messages_of_people_are_read_as_they_are() {
    let parsed = parse(
        "Fix the build\n\nIt was broken since RFC-9060.\n- one\n- two\n\nFixes: #3\nSigned-off-by: A <a@b>\n",
    );
    let message = &parsed.messages[0];
    assert_eq!(
        (message.subject.as_str(), &message.scope, message.is_ours()),
        ("Fix the build", &Scope::None, false)
    );
    assert_eq!(message.what, ["one", "two"]);
    assert_eq!(message.trailers.other.len(), 2);
    assert_eq!(
        parse("fix(parser): handle it").messages[0].subject,
        "fix(parser): handle it"
    );
    assert_eq!(parse(" \n\n").messages, []);
    assert_eq!(
        keys("see SX9-12, sx9-3, A-0, RFC-9060 and (SX9-12)"),
        ["SX9-12", "RFC-9060"]
    );
    assert_eq!(
        keys("factory/SX9-123-atlas-nats A-B-7 -1 2025-12-24"),
        ["SX9-123", "B-7"]
    );
}

#[test]
fn other_sections_are_kept() {
    let text = RFC.replace("## Memory", "## Risks\nNone known\n- yet\n\n## Memory");
    let message = parse(&text).messages.remove(0);
    assert_eq!(
        message.sections,
        [Section {
            title: "Risks".to_owned(),
            text: "None known\n- yet".to_owned()
        }]
    );
    assert_eq!(message.to_string(), text);
}

#[test]
fn text_cannot_pass_for_another_part() {
    let mut message = full();
    message.why = "One.\n## Memory\n- Learned: forged\n\n[SX9-9] forged\nForge-Session: forged\n\n\
                   * [SX9-8] forged\n\nSquashed commit of the following:\n    text"
        .to_owned();
    message.what = vec!["item\n\nForge-Parent: forged\n## Why".to_owned()];
    let parsed = parse(&message.to_string());
    assert_eq!(parsed.messages.len(), 1);
    assert_eq!(parsed.messages[0].trailers, message.trailers);
    assert_eq!(parsed.messages[0].memory, message.memory);
    assert_eq!(
        parsed.messages[0].what,
        ["item Forge-Parent: forged ## Why"]
    );
}

#[test]
fn a_message_that_keeps_every_rule_has_no_finding() {
    assert_eq!(lint(&full().to_string()), []);
    let session = Message {
        scope: Scope::Session,
        backtrace: Backtrace {
            linear: Some("none".to_owned()),
            ..full().backtrace
        },
        trailers: Trailers {
            linear: Some("none".to_owned()),
            ..full().trailers
        },
        ..full()
    };
    assert_eq!(lint(&session.to_string()), []);
}

#[test]
fn a_text_that_says_nothing_is_a_placeholder() {
    for nothing in [
        "TODO",
        " tbd ",
        "FIXME:",
        "TODO...",
        "...",
        "-",
        "<why>",
        "[Why]",
        "{{why}}",
        "{{ why }}",
        "…",
        "[key insight] and more",
    ] {
        assert!(placeholder(nothing).is_some(), "{nothing}");
    }
    for said in [
        "Remove the TODO",
        "[1, 2]",
        "{a: 1}",
        "<T>(x)",
        "x",
        "Why not",
        "`-`a",
        "[a] and [b]",
        "Add todo.rs",
        "{\"a\": 1}",
    ] {
        assert_eq!(placeholder(said), None, "{said}");
    }
}

#[test]
fn every_rule_is_found_broken() {
    use Severity::{Error, Warning};
    let text = full().to_string();
    let long =
        |count: usize| text.replace("Wire the daemon", &"x".repeat(count - "[SX9-123] ".len()));
    let cases: &[(&str, String, Severity)] = &[
        ("subject-key", text.replace("[SX9-123] ", ""), Error),
        ("subject-length", long(73), Warning),
        ("subject-length", long(101), Error),
        (
            "subject-period",
            text.replace("the daemon", "the daemon."),
            Warning,
        ),
        ("blank-line", text.replace("daemon\n\n", "daemon\n"), Error),
        (
            "section",
            text.replace("## Why\nIt must hear commands.\n\nAnd answer.\n\n", ""),
            Error,
        ),
        (
            "section-order",
            text.replace("## What", "## X")
                .replace("## Why", "## What")
                .replace("## X", "## Why"),
            Warning,
        ),
        (
            "placeholder",
            text.replace("connect once", "[key insight]"),
            Error,
        ),
        ("memory", text.replace("Learned: ", "Noted: "), Error),
        (
            "memory",
            text.replace("- Learned: connect once", "- None"),
            Error,
        ),
        (
            "parent",
            text.replace("Parent: abc1234", "Parent: last"),
            Error,
        ),
        (
            "linear",
            text.replace("- Linear: SX9-123", "- Linear: SX9-124"),
            Error,
        ),
        ("linear", text.replace("- Linear: SX9-123\n", ""), Error),
        ("session", text.replace("session-001", "session-1"), Error),
        (
            "trailers",
            text.replace("Forge-Code-Tree", "Code-Tree"),
            Warning,
        ),
        (
            "trailers",
            text.replace("Forge-Parent: abc", "Forge-Parent: abd"),
            Error,
        ),
        (
            "trailers",
            text.replace("Forge-Session: 2025", "Forge-Session: 2024"),
            Error,
        ),
        ("line-ends", text.replace('\n', "\r\n"), Warning),
        ("squash", format!("{text}\n{text}"), Warning),
        ("empty", String::new(), Error),
    ];
    for (rule, text, severity) in cases {
        assert!(
            rules(text).contains(&((*rule).to_owned(), *severity)),
            "{rule}: {:?}\n{text}",
            rules(text)
        );
    }
    for fine in [72, 11] {
        assert_eq!(rules(&long(fine)), []);
    }
    assert_eq!(rules(&long(100)), [("subject-length".to_owned(), Warning)]);
    let placeholder = lint(RFC)
        .into_iter()
        .find(|finding| finding.message.contains("insight"))
        .unwrap();
    assert_eq!(placeholder.line, 11);
}

#[test]
fn what_an_editor_was_shown_is_taken_away() {
    let text = "[A-1] x\n\n## What\n- y\n# Please enter\n#\tmodified: z\n#\n# ------------------------ >8 ------------------------\ndiff\n";
    assert_eq!(strip_comments(text), "[A-1] x\n\n## What\n- y\n");
}

fn any_line() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ -~]{0,40}",
        "\\PC{0,20}",
        "(## (What|Why|Memory|Backtrace|Other)|- (Parent|Linear|Session|Learned|Updated): [a-f0-9A-Z -]{0,12}|- None)",
        "(Forge-(Parent|Linear|Session|Feature|Code-Tree): [a-z0-9=-]{0,12}|\\[(SX9-12|session)\\] .{0,9}|feat\\(A-1\\)!?: x)",
        "(commit [a-f0-9]{7,40}|Squashed commit of the following:|# This is the 1st commit message:|    x|\\* \\[A-1\\] y|)",
    ]
}

proptest! {
    #[test]
    fn nothing_makes_it_fail(text in prop_oneof![any::<String>(), "(?s).{0,200}"]) {
        let parsed = parse(&text);
        let _ = lint(&text);
        let _ = strip_comments(&text);
        prop_assert_eq!(parsed.messages.is_empty(), text.trim_start_matches('\u{feff}').trim().is_empty());
    }

    #[test]
    fn what_was_read_and_written_is_read_the_same(lines in prop::collection::vec(any_line(), 0..20)) {
        let text = lines.join("\n");
        let _ = lint(&text);
        for message in parse(&text).messages {
            let written = message.to_string();
            let again = parse(&written);
            prop_assert_eq!(again.messages.len(), 1, "{}", written);
            prop_assert_eq!(again.messages[0].to_string(), written);
        }
    }
}
