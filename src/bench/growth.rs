//! What a call costs as everything around it grows: packs, callers, rows, connections,
//! conversations.
//!
//! Each figure is processor time per call, so that another program on the machine disturbs it
//! little.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use helmdeck_conversation::Identity as Dialogue;
use helmdeck_core::{
    Builtin, Call, Context, Handler, Identity, Json, ManualClock, Need, PackName, Reply, Result,
};
use helmdeck_engine::{Config, Engine};
use helmdeck_memory::{Kind, Namespace, Store};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::calls::{cached_pack, call, runtime, runtime_free, sealed_engine, without_audit};
use crate::measure::{Table, median, process_cpu, thread_cpu};
use crate::{conversation, rest, scale};

const PACKS: [usize; 4] = [10, 100, 1000, 10_000];
const CALLERS: [usize; 4] = [1, 100, 10_000, 100_000];
const ROWS: [usize; 3] = [1000, 100_000, 10_000_000];
const CONNECTIONS: [usize; 4] = [1, 4, 16, 64];
const CONVERSATIONS: [usize; 3] = [1, 1000, 100_000];

/// Factor that a cost may grow by over the whole range.
const FLAT: f64 = 1.5;
const ROUNDS: usize = 11;

/// Runs the selected parts.
pub(crate) fn growth(table: &mut Table, wants: impl Fn(&str) -> bool) {
    if wants("packs") {
        packs(table);
    }
    if wants("callers") {
        callers(table);
    }
    if wants("connections") {
        connections(table);
    }
    if wants("conversations") {
        conversations(table);
    }
    if wants("rows") {
        rows(table);
    }
}

/// Adds a row with the cost at each size, in microseconds.
fn curve(table: &mut Table, what: &str, sizes: &[usize], costs: &[f64]) {
    let points: Vec<String> = sizes
        .iter()
        .zip(costs)
        .map(|(size, cost)| format!("{size}: {cost:.2}"))
        .collect();
    let grown = costs.last().unwrap() / costs[0];
    let figure = format!("{} us ({grown:.2}x)", points.join(", "));
    table.add(what, figure, &format!("<= {FLAT}x"), grown <= FLAT);
}

/// Answers a small object.
struct Small;

#[async_trait]
impl Handler for Small {
    async fn run(&self, _: Context, _: Json) -> Result<Reply> {
        Ok(Reply::json(Json::from(serde_json::json!({"ok": true}))))
    }
}

fn small_pack(number: usize, memory: &str) -> Builtin {
    let manifest = format!(
        "name = \"bench.p{number}\"\nversion = \"v1\"\ndescription = \"x\"\nread_only = true\nno_audit = true\n\
         [handler]\nbuiltin = \"x\"\n[input]\ntype = \"object\"\n[output]\ntype = \"object\"\n{memory}"
    );
    let manifest: &'static str = Box::leak(manifest.into_boxed_str());
    Builtin {
        file: "bench.toml",
        schemas: "",
        manifest,
        handler: Arc::new(Small),
        need: Need::Nothing,
    }
}

/// Returns the processor time of this thread per call, in microseconds, over some rounds of `count`
/// calls.
fn per_call(count: usize, mut one: impl FnMut(usize)) -> f64 {
    let rounds = (0..=ROUNDS).map(|_| {
        let before = thread_cpu();
        for number in 0..count {
            one(number);
        }
        (thread_cpu() - before).as_secs_f64() * 1e6 / count as f64
    });
    // The first round warms up.
    median(rounds.collect::<Vec<_>>().into_iter().skip(1))
}

/// A call of one pack among many, with the gates shut.
fn packs(table: &mut Table) {
    let (runtime, identity) = (runtime(), Arc::new(Identity::local()));
    let _guard = runtime.enter();
    let costs = PACKS.map(|packs| {
        let all = (0..packs).map(|number| small_pack(number, "")).collect();
        let engine = Engine::builder(Config::default())
            .builtins(all)
            .clock(Arc::new(ManualClock::default()))
            .build();
        let names: Vec<PackName> = (0..10)
            .map(|n| PackName::new(&format!("bench.p{}", n * packs / 10)).unwrap())
            .collect();
        per_call(2000, |number| {
            let call = Call::new(
                names[number % names.len()].clone(),
                "{}",
                Arc::clone(&identity),
            );
            runtime_free(engine.call(call)).unwrap();
        })
    });
    curve(
        table,
        "a call among so many packs, gates shut",
        &PACKS,
        &costs,
    );
}

/// A hit of each of many callers in turn, all of them in memory.
fn callers(table: &mut Table) {
    let runtime = runtime();
    let _guard = runtime.enter();
    let costs = CALLERS.map(|callers| {
        let folder = tempfile::tempdir().unwrap();
        let memory = "[memory]\ncache = true\nttl = \"1h\"\n";
        let engine = runtime.block_on(sealed_engine(
            folder.path(),
            1 << 30,
            vec![small_pack(0, memory)],
        ));
        let identities: Vec<Arc<Identity>> = (0..callers)
            .map(|n| Arc::new(Identity::new("local", &format!("user-{n}")).unwrap()))
            .collect();
        let name = PackName::new("bench.p0").unwrap();
        runtime.block_on(async {
            for identity in &identities {
                engine
                    .call(Call::new(name.clone(), "{}", Arc::clone(identity)))
                    .await
                    .unwrap();
            }
            engine.memory().unwrap().flush().await;
        });
        // Far apart, so that no processor cache holds what the next call needs.
        let cost = per_call(callers.max(2000), |number| {
            let identity = &identities[number.wrapping_mul(7919) % callers];
            runtime_free(engine.call(Call::new(name.clone(), "{}", Arc::clone(identity)))).unwrap();
        });
        runtime.block_on(engine.shutdown());
        cost
    });
    curve(
        table,
        "a hit in memory, of so many callers in turn",
        &CALLERS,
        &costs,
    );
}

/// A hit over HTTP, from so many connections at once. The client is another process.
fn connections(table: &mut Table) {
    let (folder, runtime, stop) = (
        tempfile::tempdir().unwrap(),
        runtime(),
        CancellationToken::new(),
    );
    let address = runtime.block_on(async {
        let engine =
            sealed_engine(folder.path(), 64 << 20, vec![without_audit(cached_pack())]).await;
        engine
            .call(call(&Arc::new(Identity::local())))
            .await
            .unwrap();
        rest::cached(engine, &stop).await
    });
    let request = rest::rest_request(&address);
    let costs = CONNECTIONS.map(|connections| {
        let rounds = (0..5).map(|_| {
            let before = process_cpu();
            let answered = rest::rate(&address, &request, connections) * rest::SECONDS as f64;
            (process_cpu() - before).as_secs_f64() * 1e6 / answered
        });
        median(rounds.collect::<Vec<_>>().into_iter())
    });
    stop.cancel();
    curve(
        table,
        "a hit over HTTP, from so many connections",
        &CONNECTIONS,
        &costs,
    );
}

/// Returns the processor time of the process per call, in microseconds.
async fn per_await<F: Future<Output = ()>>(count: usize, one: impl Fn(usize) -> F) -> f64 {
    let mut rounds = Vec::new();
    for round in 0..=ROUNDS {
        let before = process_cpu();
        for number in 0..count {
            one(round * count + number).await;
        }
        rounds.push((process_cpu() - before).as_secs_f64() * 1e6 / count as f64);
    }
    median(rounds.into_iter().skip(1))
}

/// A turn and a context of one conversation among many, from sealed SQLite.
fn conversations(table: &mut Table) {
    let runtime = runtime();
    let costs =
        CONVERSATIONS.map(|conversations| runtime.block_on(among_conversations(conversations)));
    curve(
        table,
        "a turn, among so many conversations",
        &CONVERSATIONS,
        &costs.map(|(turn, _)| turn),
    );
    curve(
        table,
        "a context of 10 turns, among so many",
        &CONVERSATIONS,
        &costs.map(|(_, context)| context),
    );
}

async fn among_conversations(conversations: usize) -> (f64, f64) {
    const CALLS: usize = 200;
    let folder = tempfile::tempdir().unwrap();
    let store = conversation::open(folder.path()).await;
    let memory = conversation::memory(&store, |config| config.hot_bytes = 0);
    let dialogue = |n: usize| {
        Dialogue::new(
            "local",
            &format!("user-{}", n % 1000),
            &format!("dialogue-{n}"),
        )
    };
    let writers = 64;
    let filling: Vec<_> = (0..writers)
        .map(|writer| {
            let memory = memory.clone();
            tokio::spawn(async move {
                for n in (writer..conversations).step_by(writers) {
                    for turn in 0..if n < CALLS { 10 } else { 1 } {
                        memory
                            .add_turn(&dialogue(n), conversation::new_turn(turn))
                            .await
                            .unwrap();
                    }
                }
            })
        })
        .collect();
    for writer in filling {
        writer.await.unwrap();
    }
    let some = conversations.min(CALLS);
    let context = per_await(CALLS, |number| {
        let (memory, dialogue) = (&memory, dialogue(number % some));
        async move { drop(memory.context(&dialogue).await.unwrap()) }
    })
    .await;
    // New ones, so that each turn is the first of its conversation.
    let turn = per_await(CALLS, |number| {
        let (memory, dialogue) = (&memory, dialogue(conversations + number));
        async move {
            memory
                .add_turn(&dialogue, conversation::new_turn(0))
                .await
                .unwrap();
        }
    })
    .await;
    conversation::close(&[memory], &*store).await;
    (turn, context)
}

/// A read, a replacement and a new row among many rows of sealed SQLite.
fn rows(table: &mut Table) {
    let runtime = runtime();
    let costs = ROWS.map(|rows| among_rows(&runtime, rows));
    let cost = |pick: fn(&[f64; 3]) -> f64| costs.map(|costs| pick(&costs));
    curve(
        table,
        "a read, among so many rows",
        &ROWS,
        &cost(|costs| costs[0]),
    );
    curve(
        table,
        "a replacement, among so many rows",
        &ROWS,
        &cost(|costs| costs[1]),
    );
    curve(
        table,
        "a new row, among so many",
        &ROWS,
        &cost(|costs| costs[2]),
    );
}

fn among_rows(runtime: &Runtime, rows: usize) -> [f64; 3] {
    const CALLS: usize = 500;
    runtime.block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::default());
        let store: Arc<dyn Store> =
            scale::open(&folder.path().join("rows.db"), u64::MAX, &clock).await;
        let alice = Namespace::new("local", "alice", None);
        scale::fill(
            &store,
            0..rows,
            |n| scale::row(&alice, n, 100),
            |_| clock.advance(Duration::from_millis(1)),
        )
        .await;
        let spread = |number: usize| number.wrapping_mul(7_919_993) % rows;
        let read = per_await(CALLS, |number| {
            let (store, alice, key) = (&store, &alice, scale::key(spread(number)));
            async move { assert!(store.get(alice, Kind::Cache, &key).await.unwrap().is_some()) }
        })
        .await;
        let replacement = per_await(CALLS, |number| {
            let (store, put) = (&store, scale::row(&alice, spread(number), 100));
            async move { drop(store.put(put).await.unwrap()) }
        })
        .await;
        let new = per_await(CALLS, |number| {
            let (store, put) = (&store, scale::row(&alice, rows + number, 100));
            async move { drop(store.put(put).await.unwrap()) }
        })
        .await;
        store.close().await.unwrap();
        [read, replacement, new]
    })
}
