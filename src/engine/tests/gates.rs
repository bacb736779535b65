//! The two gates: with either shut, every reply is byte for byte the same as with both shut.

use std::sync::Arc;

use helmdeck_core::{Builtin, CacheStatus, Json, Reply};
use helmdeck_engine::Engine;
use helmdeck_testkit::{ManualClock, call, function, manifest, memory, patient};
use proptest::prelude::*;

use crate::support::{echo, status};

fn pack(opted_in: bool, output: &'static str, fails: bool) -> Builtin {
    let memory = if opted_in {
        "[memory]\ncache = true\nttl = \"60s\""
    } else {
        ""
    };
    let text = manifest(
        "t.gate",
        "read_only = true",
        &format!(
            "[input]\ntype = \"object\"\n[input.properties]\na = {{ type = \"integer\", default = 3 }}\n{memory}"
        ),
    );
    function(&text, move |_, _| async move {
        if fails {
            return Err(helmdeck_core::Error::new(
                helmdeck_core::Code::HandlerFailed,
                "no",
            ));
        }
        Ok(Reply::json(Json::parse(output).unwrap()))
    })
    .0
}

async fn answers(builtin: Builtin, gate_one: bool, inputs: &[String]) -> Vec<String> {
    let clock = Arc::new(ManualClock::default());
    let mut builder = Engine::builder(patient())
        .builtins(vec![builtin])
        .clock(Arc::clone(&clock) as _);
    if gate_one {
        builder = builder.memory(memory(clock).await);
    }
    let engine = builder.build();
    let mut answers = Vec::new();
    for input in inputs {
        answers.push(match engine.call(call("t.gate", input)).await {
            Ok(outcome) => String::from_utf8(outcome.to_json()).unwrap(),
            Err(error) => error.problem().to_string(),
        });
    }
    engine.shutdown().await;
    answers
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_shut_gate_changes_nothing(
        inputs in prop::collection::vec(prop_oneof!["\\{\\}", "\\{\"a\":[0-9]{1,20}\\}", "\\{\"b\":\"[a-z]{0,8}\"\\}", "\\{\"a\":\"x\"\\}", "[\\[\\{a1]{0,4}"], 1..6),
        output in prop::sample::select(vec!["{}", "{ \"x\" : 1.0 }", "[1,2]", "\"t\"", "null"]),
        fails in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let plain = answers(pack(false, output, fails), false, &inputs).await;
            assert_eq!(answers(pack(true, output, fails), false, &inputs).await, plain);
            assert_eq!(answers(pack(false, output, fails), true, &inputs).await, plain);
            assert!(plain.iter().all(|answer| !answer.contains("\"cache\":")));
        });
    }
}

#[tokio::test]
async fn only_both_gates_open_make_a_hit() {
    for (gate_one, opted_in, hits) in [
        (false, false, false),
        (false, true, false),
        (true, false, false),
        (true, true, true),
    ] {
        let second = answers(
            pack(opted_in, "{}", false),
            gate_one,
            &["{}".to_owned(), "{}".to_owned()],
        )
        .await
        .remove(1);
        assert_eq!(
            second.contains("\"status\":\"hit\""),
            hits,
            "{gate_one} {opted_in}"
        );
    }
}

#[test]
fn with_gate_one_shut_no_task_runs() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (pack, counted) = echo("");
        let engine = Engine::builder(patient()).builtins(vec![pack]).build();
        for _ in 0..3 {
            engine.call(call("t.echo", "{}")).await.unwrap();
        }
        assert_eq!(counted.runs(), 3);
        assert_eq!(
            tokio::runtime::Handle::current()
                .metrics()
                .num_alive_tasks(),
            0
        );
        assert!(engine.memory().is_none() && !engine.metrics().contains("cache_answers_total{"));
    });
}

#[tokio::test]
async fn replaced_store_key_makes_misses_not_errors() {
    let clock = Arc::new(ManualClock::default());
    let (pack, _) = echo("");
    let opened = memory(Arc::clone(&clock) as _).await;
    let engine = |keyring| {
        let memory = helmdeck_engine::Memory {
            keyring: Arc::new(keyring),
            ..opened.clone()
        };
        Engine::builder(patient())
            .builtins(vec![pack.clone()])
            .memory(memory)
            .clock(Arc::clone(&clock) as _)
            .build()
    };
    let first = engine(helmdeck_testkit::keyring());
    first.call(call("t.echo", "{}")).await.unwrap();
    first.memory().unwrap().flush().await;
    let again = engine(helmdeck_testkit::keyring());
    assert_eq!(
        status(&again.call(call("t.echo", "{}")).await.unwrap()),
        CacheStatus::Hit
    );
    let other = engine(
        helmdeck_memory::KeyRing::parse(("KEY", helmdeck_testkit::OTHER_KEY), None).unwrap(),
    );
    assert_eq!(
        status(&other.call(call("t.echo", "{}")).await.unwrap()),
        CacheStatus::Miss
    );
}

/// Makes 40 packs that opt in, of every scope and most settings; each answers with the bytes of its
/// input.
fn opted_in_packs() -> Vec<Builtin> {
    let settings = [
        "",
        "tags = [\"x:{v}\"]",
        "stale_if_error = \"1h\"\nstale_if_slow = \"10m\"",
        "stale_while_revalidate = \"1h\"\nttl_jitter = 0.5",
        "revalidate = true",
        "errors = { not_found = \"30s\" }",
        "max_bytes = \"64B\"",
        "epoch = 3\ncategory = \"other\"",
        "single_flight = \"cluster\"",
        "respect = \"none\"\nearly = true",
    ];
    let scopes = ["caller", "shared", "session"];
    let packs = scopes
        .iter()
        .flat_map(|scope| settings.map(|settings| format!("scope = \"{scope}\"\n{settings}")));
    let with_defaults =
        settings.map(|settings| format!("{settings}\n[input.properties.d]\ndefault = 1e1"));
    let echo = |(n, memory): (usize, String)| {
        let (memory, schema) = memory
            .split_once("[input")
            .map_or((memory.as_str(), String::new()), |(memory, schema)| {
                (memory, format!("[input{schema}\n"))
            });
        let rest = format!(
            "[input]\ntype = \"object\"\n[input.properties.v]\n{schema}[memory]\ncache = true\nttl = \"60s\"\n{memory}"
        );
        function(&manifest(&format!("t.p{n}"), "read_only = true", &rest), |_, input: Json| async move {
            Reply::value(&serde_json::json!({ "read": input.as_str() }))
        })
        .0
    };
    packs.chain(with_defaults).enumerate().map(echo).collect()
}

#[tokio::test]
async fn handler_reads_the_same_bytes_with_a_key_and_without() {
    let values = [
        "null",
        "true",
        "false",
        "0",
        "-0",
        "-0.0",
        "1",
        "5.0",
        "1e1",
        "10",
        "1E+2",
        "0.1",
        "1e-7",
        "123456789012345678",
        "9007199254740993",
        "1e21",
        "1.5e300",
        "5e-324",
        "\"\"",
        "\"a\"",
        "\"\\u0041\\n\\/\"",
        "\"\\ud83d\\ude00\"",
        "\"\u{e9}\u{2028}\"",
        "[]",
        "[ ]",
        "[1, [2.0, [null]]]",
        "{}",
        "{ }",
        "{\"b\": 1, \"a\": {\"d\": 2, \"c\": []}}",
    ];
    let inputs: Vec<String> = values
        .iter()
        .map(|value| format!("{{ \"v\" : {value}, \"a\": [{value}] }}"))
        .collect();
    let run = async |gate_one: bool| {
        let clock = Arc::new(ManualClock::default());
        let mut builder = Engine::builder(patient())
            .builtins(opted_in_packs())
            .clock(Arc::clone(&clock) as _);
        if gate_one {
            builder = builder.memory(memory(clock).await);
        }
        let engine = builder.build();
        assert!(engine.refused().is_empty(), "{:?}", engine.refused());
        let (mut answers, mut cached) = (Vec::new(), 0);
        for pack in engine.all_packs() {
            for input in &inputs {
                let mut call = call(pack.name.as_str(), input);
                let identity = helmdeck_core::Identity::local().with_session("s").unwrap();
                call.identity = Arc::new(identity);
                answers.push(match engine.call(call).await {
                    Ok(mut outcome) => {
                        cached += usize::from(outcome.cache.take().is_some());
                        outcome.duration = std::time::Duration::ZERO;
                        String::from_utf8(outcome.to_json()).unwrap()
                    }
                    Err(error) => error.problem().to_string(),
                });
            }
        }
        (answers, cached)
    };
    let ((shut, none), (open, cached)) = (run(false).await, run(true).await);
    assert_eq!(shut.len(), 40 * inputs.len());
    assert_eq!(
        (none, cached),
        (0, open.len()),
        "the member `cache` is the only difference"
    );
    for (shut, open) in shut.iter().zip(&open) {
        assert_eq!(shut, open);
    }
}
