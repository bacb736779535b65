use std::borrow::Cow;

use helmdeck_core::Json;
use proptest::prelude::*;

use super::{Counter, MARK};
use crate::config::TokenCounter;
use crate::turn::{ConversationTurn, TrajectoryDigest};

fn counters() -> Vec<Counter> {
    let kinds = [TokenCounter::Chars, TokenCounter::Cl100kBase];
    kinds
        .into_iter()
        .filter_map(|kind| Counter::new(kind).ok())
        .collect()
}

#[test]
fn ascii_estimate_equals_the_originals() {
    for length in [1, 3, 4, 5, 4000] {
        assert_eq!(
            Counter::Chars.count(&"a".repeat(length)),
            length as u64 / 4 + 1
        );
    }
    assert_eq!(Counter::Chars.count(""), 0);
}

#[test]
fn the_estimate_weighs_a_character_by_its_script() {
    // Ten characters each: by bytes, as the original counts, the second would be 8.
    for (text, tokens) in [
        ("abcdefghij", 3),
        ("会議は三時から始まる", 11),
        ("오늘오늘오늘오늘오늘", 11),
        ("приветмиры", 6),
        ("😀😀😀😀😀😀😀😀😀😀", 11),
    ] {
        assert_eq!(Counter::Chars.count(text), tokens, "{text}");
    }
}

#[test]
fn turn_counts_what_a_prompt_shows() {
    let bare = ConversationTurn {
        user_message: "a".repeat(40),
        ..ConversationTurn::default()
    };
    let digest = TrajectoryDigest {
        tools_invoked: Some(vec!["b".repeat(40)]),
        observations_summary: "c".repeat(400),
        reasoning_summary: "d".repeat(4000),
        artifacts_refs: Some(vec!["e".repeat(4), "f".repeat(4)]),
        ..TrajectoryDigest::default()
    };
    let full = ConversationTurn {
        trajectory_digest: Some(digest),
        artifacts_shown: Some(Json::parse(format!(r#"{{"a":"{}"}}"#, "g".repeat(392))).unwrap()),
        artifacts_hidden_refs: Some(vec!["h".repeat(40)]),
        ..bare.clone()
    };
    assert_eq!(Counter::Chars.turn(&bare), 11 + 1);
    assert_eq!(
        Counter::Chars.turn(&full),
        11 + 1,
        "no prompt shows digest or artifacts"
    );
    assert_eq!(
        Counter::Chars.sent(&full),
        11 + 1 + 11 + 101,
        "the summarizer is sent tools and observations"
    );
    for counter in counters() {
        // As in the original, and so that no number of them is free.
        assert_eq!(counter.turn(&ConversationTurn::default()), 2);
        assert!(counter.sent(&full) > counter.turn(&full));
    }
}

#[test]
fn fitting_text_is_unchanged() {
    for counter in counters() {
        for text in ["", "one", "one two. three\n"] {
            assert!(
                matches!(counter.clamp(text, counter.count(text)), Cow::Borrowed(same) if same == text)
            );
            assert_eq!(counter.clamp(text, u64::MAX), text);
        }
    }
}

#[test]
fn ascii_prefix_is_the_longest_that_fits() {
    for (length, max) in (0..40).flat_map(|length| (0..12).map(move |max| (length, max))) {
        let text = "a".repeat(length);
        let longest = (0..=length)
            .rev()
            .find(|end| Counter::Chars.count(&text[..*end]) <= max)
            .unwrap();
        assert_eq!(Counter::Chars.prefix(&text, max), longest, "{length} {max}");
    }
}

#[test]
fn text_is_cut_at_sentence_or_word() {
    let sentences = "The port is 5433. It was moved in March. ".repeat(40);
    let short = Counter::Chars.clamp(&sentences, 200);
    let kept = short.strip_suffix(MARK).unwrap();
    assert!(
        kept.ends_with("in March.") || kept.ends_with("is 5433."),
        "{kept}"
    );
    assert!(kept.len() > 550, "{}", kept.len());

    let words = "port ".repeat(400);
    let short = Counter::Chars.clamp(&words, 100);
    assert!(
        short.strip_suffix(MARK).unwrap().ends_with(" port"),
        "{short}"
    );

    let japanese = "会議は三時から始まる。".repeat(50);
    assert!(
        Counter::Chars
            .clamp(&japanese, 200)
            .strip_suffix(MARK)
            .unwrap()
            .ends_with("始まる。")
    );
}

#[test]
fn no_room_means_no_cut_mark() {
    for counter in counters() {
        let long = "word ".repeat(100);
        assert_eq!(counter.clamp(&long, 0), "");
        for max in 1..8 {
            let short = counter.clamp(&long, max);
            assert!(
                !short.contains('…') && counter.count(&short) <= max,
                "{counter:?} {max}: {short}"
            );
        }
        assert_eq!(counter.clamp(&long, 3).split(' ').next(), Some("word"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn clamped_text_is_a_fitting_prefix(text in "(\\PC|[a-z ]{1,12}|[.\n 。🙂]){0,120}", max in 0..200_u64) {
        for counter in counters() {
            let short = counter.clamp(&text, max);
            prop_assert!(counter.count(&short) <= max, "{:?}: {} > {}", counter, counter.count(&short), max);
            prop_assert!(text.starts_with(short.strip_suffix(MARK).unwrap_or(&short)));
            if counter.count(&text) <= max {
                prop_assert_eq!(&*short, &*text);
            } else if max > 60 {
                // Not much is given up.
                prop_assert!(counter.count(&short) * 2 >= max, "{:?}: {} of {}", counter, counter.count(&short), max);
            }
        }
    }
}

#[cfg(feature = "tiktoken")]
mod bpe {
    use super::*;

    fn counter(kind: TokenCounter) -> Counter {
        let counter = Counter::new(kind).unwrap();
        counter.warm();
        counter
    }

    #[test]
    fn the_tokenizers_count_as_their_publisher_says() {
        // The examples of OpenAI's guide to counting tokens, but for the last, which is no special
        // token in a text.
        for (text, cl100k, o200k) in [
            ("tiktoken is great!", 6, 6),
            ("antidisestablishmentarianism", 6, 6),
            ("2 + 2 = 4", 7, 7),
            ("お誕生日おめでとう", 9, 8),
            ("<|endoftext|>", 7, 7),
        ] {
            assert_eq!(
                counter(TokenCounter::Cl100kBase).count(text),
                cl100k,
                "{text}"
            );
            assert_eq!(
                counter(TokenCounter::O200kBase).count(text),
                o200k,
                "{text}"
            );
        }
    }

    #[test]
    fn a_text_in_pieces_counts_as_a_whole() {
        let text = "The port is 5433, and it was moved in March.\n".repeat(3000);
        let line = "The port is 5433, and it was moved in March.\n";
        for kind in [TokenCounter::Cl100kBase, TokenCounter::O200kBase] {
            let counter = counter(kind);
            let (pieces, whole) = (counter.count(&text), counter.count(line) * 3000);
            // Nine pieces; each seam may add one.
            assert!(pieces.abs_diff(whole) <= 9, "{pieces}, {whole}");
        }
    }

    #[test]
    fn hard_texts_are_counted_and_cut_too() {
        for kind in [TokenCounter::Cl100kBase, TokenCounter::O200kBase] {
            let counter = counter(kind);
            for unit in ["a", " ", " \n", "字", "👩‍👩‍👧", "aA", "<|endoftext|>", "\0"]
            {
                let text = unit.repeat(18_000 / unit.len());
                let count = counter.count(&text);
                assert!(count > 0 && count <= text.len() as u64, "{unit:?}");
                let short = counter.clamp(&text, 100);
                assert!(counter.count(&short) <= 100, "{unit:?}");
            }
        }
    }

    #[test]
    fn estimate_error_is_as_documented() {
        let counter = counter(TokenCounter::O200kBase);
        for (what, text, least, most) in [
            ("English", include_str!("../fixtures/README.md"), 0.8, 1.25),
            ("Rust", include_str!("mod.rs"), 0.8, 1.25),
            (
                "Chinese",
                "我们决定在三月份把数据库迁移到新的服务器上，端口改为5433。还有谁没有通知运维团队？",
                1.0,
                1.6,
            ),
            (
                "Japanese",
                "三月にデータベースを新しいサーバーへ移すことに決めました。ポートは5433です。運用チームには誰が知らせますか。",
                1.0,
                1.6,
            ),
            (
                "Korean",
                "우리는 3월에 데이터베이스를 새 서버로 옮기기로 했습니다. 포트는 5433입니다. 운영팀에는 누가 알리나요?",
                1.0,
                1.6,
            ),
            (
                "Russian",
                "Мы решили перенести базу данных на новый сервер в марте. Порт 5433. Кто сообщит команде?",
                1.0,
                1.6,
            ),
            (
                "Arabic",
                "قررنا نقل قاعدة البيانات إلى خادم جديد في شهر مارس. المنفذ هو 5433. من سيخبر الفريق؟",
                1.0,
                1.6,
            ),
            (
                "Hindi",
                "हमने मार्च में डेटाबेस को नए सर्वर पर ले जाने का फैसला किया। पोर्ट 5433 है। टीम को कौन बताएगा?",
                1.0,
                1.6,
            ),
            (
                "German",
                "Wir haben beschlossen, die Datenbank im März auf den neuen Server zu verlegen. Wer sagt es der Betriebsgruppe?",
                1.0,
                1.6,
            ),
            (
                "hex",
                "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
                0.3,
                0.5,
            ),
            ("emoji", "🎉👍😂🚀🔥🙏✅❤️", 0.7, 1.0),
        ] {
            let ratio = Counter::Chars.count(text) as f64 / counter.count(text) as f64;
            assert!((least..=most).contains(&ratio), "{what}: {ratio:.2}");
        }
    }
}

#[cfg(not(feature = "tiktoken"))]
#[test]
fn missing_tokenizer_is_a_clear_error() {
    for kind in [TokenCounter::Cl100kBase, TokenCounter::O200kBase] {
        assert!(Counter::new(kind).unwrap_err().contains("no tokenizers"));
    }
}
