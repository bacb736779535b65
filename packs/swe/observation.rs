//! Formats the result of a command for a model: how it ended, and its output, cut in the middle.

use std::borrow::Cow;

use helmdeck_core::session::{Captured, Ended, Executed};

/// Returns the text for the model.
pub(super) fn text(executed: &Executed, limit: usize) -> String {
    let (shown, _) = output(&executed.stdout, limit);
    let ended = ended(executed);
    if shown.is_empty() {
        format!("[{ended}, no output]")
    } else {
        format!("[{ended}]\n{shown}")
    }
}

/// Describes how a command ended.
pub(super) fn ended(executed: &Executed) -> String {
    let seconds = executed.duration.as_secs_f64();
    match executed.ended {
        Ended::Exited(status) => format!("exit {status} after {seconds:.1} s"),
        Ended::Signalled(signal) => format!("ended by signal {signal} after {seconds:.1} s"),
        Ended::TimedOut => format!("killed after {seconds:.1} s: no command may take longer"),
        Ended::OutOfMemory => {
            format!("killed after {seconds:.1} s: it took more memory than there is")
        }
        Ended::OutOfDisk => format!("killed after {seconds:.1} s: it filled the disk"),
    }
}

/// Returns output as text of about `limit` bytes.
///
/// Also returns how many bytes are left out between its head and its tail.
pub(super) fn output(captured: &Captured, limit: usize) -> (String, u64) {
    let Captured {
        head,
        tail,
        left_out,
    } = captured;
    let (head, tail, left_out) = if *left_out == 0 {
        let whole: Cow<'_, [u8]> = if tail.is_empty() {
            head.into()
        } else {
            [head.as_slice(), tail.as_slice()].concat().into()
        };
        if whole.len() <= limit {
            return (readable(&whole), 0);
        }
        let (from, to) = (limit / 2, whole.len() - limit / 2);
        (
            Cow::from(whole[..from].to_vec()),
            Cow::from(whole[to..].to_vec()),
            (to - from) as u64,
        )
    } else {
        (
            Cow::from(head.as_slice()),
            Cow::from(tail.as_slice()),
            *left_out,
        )
    };
    let (head, tail) = (whole_start(&head), whole_end(&tail));
    let (head, tail) = (readable(head), readable(tail));
    let note = "print less, with head, tail, grep or sed -n";
    (
        format!("{head}\n[... {left_out} bytes left out here: {note} ...]\n{tail}"),
        left_out,
    )
}

/// Returns bytes as text, with markers for invalid and control characters.
///
/// Control characters can steer a terminal, and not every endpoint takes them.
fn readable(bytes: &[u8]) -> String {
    let mark = |c: char| {
        if c.is_control() && !matches!(c, '\n' | '\r' | '\t') {
            '\u{fffd}'
        } else {
            c
        }
    };
    String::from_utf8_lossy(bytes).chars().map(mark).collect()
}

/// Drops what a cut left of a character at the end.
fn whole_start(bytes: &[u8]) -> &[u8] {
    match std::str::from_utf8(bytes) {
        // No length: the bytes end within a character.
        Err(error) if error.error_len().is_none() => &bytes[..error.valid_up_to()],
        _ => bytes,
    }
}

/// Drops what a cut left of a character at the start: at most three bytes that none begins with.
fn whole_end(bytes: &[u8]) -> &[u8] {
    let rest = bytes
        .iter()
        .take(3)
        .take_while(|byte| **byte & 0xC0 == 0x80)
        .count();
    &bytes[rest..]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn printed(bytes: &[u8]) -> Captured {
        Captured {
            head: bytes.to_vec(),
            tail: Vec::new(),
            left_out: 0,
        }
    }

    fn executed(ended: Ended, stdout: Captured) -> Executed {
        Executed {
            stdout,
            stderr: Captured::default(),
            ended,
            duration: Duration::from_millis(1234),
        }
    }

    #[test]
    fn the_end_of_a_command_comes_first() {
        assert_eq!(
            text(&executed(Ended::Exited(3), printed(b"a\n")), 100),
            "[exit 3 after 1.2 s]\na\n"
        );
        assert_eq!(
            text(&executed(Ended::Exited(0), printed(b"")), 100),
            "[exit 0 after 1.2 s, no output]"
        );
        for (end, word) in [
            (Ended::TimedOut, "longer"),
            (Ended::OutOfMemory, "memory"),
            (Ended::OutOfDisk, "disk"),
            (Ended::Signalled(9), "signal 9"),
        ] {
            assert!(text(&executed(end, printed(b"x")), 100).contains(word));
        }
    }

    #[test]
    fn long_output_keeps_head_and_tail_and_says_how_much_is_missing() {
        let long = [b"HEAD".as_slice(), &[b'x'; 1000], b"TAIL"].concat();
        let (text, left_out) = output(&printed(&long), 100);
        assert_eq!(left_out, 908);
        assert!(
            text.starts_with("HEAD") && text.ends_with("TAIL") && text.contains("908 bytes"),
            "{text}"
        );
        let cut = Captured {
            head: b"a".to_vec(),
            tail: b"b".to_vec(),
            left_out: 1 << 30,
        };
        assert!(output(&cut, 100).0.contains("1073741824 bytes"));
    }

    #[test]
    fn cuts_leave_whole_characters_and_garbage_is_shown_as_such() {
        let (text, _) = output(&printed("ö".repeat(500).as_bytes()), 101);
        assert!(!text.contains('\u{fffd}'), "{text}");
        let split = Captured {
            head: "aö".as_bytes()[..2].to_vec(),
            tail: "öb".as_bytes()[1..].to_vec(),
            left_out: 5,
        };
        let (text, _) = output(&split, 100);
        assert!(text.starts_with("a\n[") && text.ends_with("]\nb"), "{text}");
        assert_eq!(output(&printed(b"a\xff\xfeb"), 100).0, "a\u{fffd}\u{fffd}b");
        assert!(output(&printed(&[0xff; 300]), 100).0.contains('\u{fffd}'));
        assert_eq!(
            output(&printed(b"\x1b[31mred\0\t\r\n"), 100).0,
            "\u{fffd}[31mred\u{fffd}\t\r\n"
        );
    }
}
