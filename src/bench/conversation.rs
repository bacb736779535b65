//! Conversations: what a turn costs as its conversation grows, what a context costs, and what ten
//! thousand conversations take.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use helmdeck_conversation::{
    Config, ConversationMemory, Dependencies, Identity, NewTurn, Strategy, wire,
};
use helmdeck_core::SystemClock;
use helmdeck_events::Bus;
use helmdeck_memory::{KeyRing, Kind, Limits, Namespace, Put, Store};

use crate::calls::{KEY, runtime};
use crate::measure::{Table, percentile, resident_mib};

/// Number of turns of a conversation whose context is read.
const TURNS: usize = 50;
/// Size of a turn's two texts in bytes.
const TEXT: usize = 400;
/// The lengths at which a turn is timed.
const LENGTHS: [usize; 4] = [10, 100, 1000, 5000];
/// Number of timed turns at each length.
const TIMED: usize = 41;
/// Number of conversations of the scale part.
const SESSIONS: usize = 10_000;
/// The store limit of the scale part.
const CAP: u64 = 32 << 20;
/// What else may grow with use: the page caches of the store's five connections, 8 MiB each, and
/// what the allocator keeps for the threads that freed it.
const BESIDES: u64 = (40 + 32) << 20;

/// Contexts and turns.
pub(crate) fn conversations(table: &mut Table) {
    runtime().block_on(async {
        contexts(table).await;
        growth(table).await;
    });
}

async fn contexts(table: &mut Table) {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    // A long life in memory: what is measured is a hit, not how often it is validated.
    let hot = memory(&store, |config| config.hot_for = Duration::from_secs(3600));
    let cold = memory(&store, |config| config.hot_bytes = 0);
    let identity = |n: usize| Identity::new("local", "local", &format!("dialogue-{n}"));
    const CONVERSATIONS: usize = 200;
    for n in 0..CONVERSATIONS {
        for turn in 0..TURNS {
            hot.add_turn(&identity(n), new_turn(turn)).await.unwrap();
        }
    }
    let (mut of_hot, mut of_store) = (Vec::new(), Vec::new());
    for round in 0..20 {
        for n in 0..CONVERSATIONS {
            for (memory, times) in [(&hot, &mut of_hot), (&cold, &mut of_store)] {
                let (identity, started) = (identity(n), Instant::now());
                let patch = black_box(memory.context(&identity).await.unwrap());
                let took = started.elapsed();
                assert_eq!(patch.recent_turns.len(), TURNS);
                // The first round warms up.
                if round > 0 {
                    times.push(took);
                }
            }
        }
    }
    for (what, times, target) in [
        (
            format!("context of {TURNS} turns, from memory, p50"),
            &mut of_hot,
            20.0,
        ),
        (
            format!("context of {TURNS} turns, from sealed SQLite, p50"),
            &mut of_store,
            200.0,
        ),
    ] {
        let (half, most) = (percentile(times, 50.0), percentile(times, 99.0));
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let figure = format!("{:.1} us (p99 {:.1})", micros(half), micros(most));
        table.add(
            &what,
            figure,
            &format!("< {target:.0} us"),
            micros(half) < target,
        );
    }
    close(&[hot, cold], &*store).await;
}

/// Time of a turn at the end of ever longer conversations, against rewriting a whole buffer.
///
/// The buffer has a separate store: its writes would push our pages out of memory.
async fn growth(table: &mut Table) {
    let (folder, folder_of_buffer) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (store, store_of_buffer) = (
        open(folder.path()).await,
        open(folder_of_buffer.path()).await,
    );
    let memory = memory(&store, |_| {});
    let identity = Identity::new("local", "local", "long");
    let (mut length, mut buffer) = (0, Vec::new());
    let mut first = None;
    for target in LENGTHS {
        while length < target {
            memory.add_turn(&identity, new_turn(length)).await.unwrap();
            buffer.push(
                new_turn(length)
                    .into_turn(helmdeck_core::Timestamp(0))
                    .unwrap(),
            );
            length += 1;
        }
        let (mut ours, mut whole) = (Vec::new(), Vec::new());
        for _ in 0..TIMED {
            let turn = new_turn(length);
            let started = Instant::now();
            memory.add_turn(&identity, turn.clone()).await.unwrap();
            ours.push(started.elapsed());
            length += 1;
            buffer.push(turn.into_turn(helmdeck_core::Timestamp(0)).unwrap());
            let started = Instant::now();
            rewrite(&*store_of_buffer, &buffer).await;
            whole.push(started.elapsed());
        }
        let (ours, whole) = (percentile(&mut ours, 50.0), percentile(&mut whole, 50.0));
        let first = *first.get_or_insert(ours);
        let grown = ours.as_secs_f64() / first.as_secs_f64();
        table.add(
            &format!("a turn after {target} turns, p50"),
            format!(
                "{:.0} us, {grown:.2} of the first",
                ours.as_secs_f64() * 1e6
            ),
            "<= 1.5 of the first",
            grown <= 1.5,
        );
        table.add(
            "  a buffer written as a whole",
            format!(
                "{:.0} us, {:.1} times ours",
                whole.as_secs_f64() * 1e6,
                whole.as_secs_f64() / ours.as_secs_f64()
            ),
            "",
            true,
        );
    }
    close(&[memory], &*store).await;
    store_of_buffer.close().await.unwrap();
}

/// Writes all turns as one value.
async fn rewrite(store: &dyn Store, buffer: &[helmdeck_conversation::ConversationTurn]) {
    let mut value = b"[".to_vec();
    for turn in buffer {
        value.extend_from_slice(&wire::write_turn(turn));
        value.push(b',');
    }
    let namespace = Namespace::new("local", "local", Some("buffer"));
    store
        .put(Put::new(
            namespace,
            Kind::Conversation,
            "buffer",
            Bytes::from(value),
        ))
        .await
        .unwrap();
}

/// Ten thousand conversations of fifty turns under a cap.
pub(crate) fn scale(table: &mut Table) {
    runtime().block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path()).await;
        let memory = memory(&store, |config| config.hot_bytes = CAP);
        // What SQLite and the allocator keep for themselves is there before the first conversation
        // is.
        let process = std::process::id();
        for turn in 0..TURNS {
            memory
                .add_turn(&Identity::new("local", "local", "warm"), new_turn(turn))
                .await
                .unwrap();
        }
        let before = resident_mib(process);
        let started = Instant::now();
        let mut peak = before;
        let writers = 64;
        let tasks: Vec<_> = (0..writers)
            .map(|writer| {
                let memory = memory.clone();
                tokio::spawn(async move {
                    for n in (writer..SESSIONS).step_by(writers) {
                        let identity = Identity::new(
                            "local",
                            &format!("user-{}", n % 100),
                            &format!("dialogue-{n}"),
                        );
                        for turn in 0..TURNS {
                            memory.add_turn(&identity, new_turn(turn)).await.unwrap();
                        }
                    }
                })
            })
            .collect();
        while !tasks.iter().all(tokio::task::JoinHandle::is_finished) {
            peak = peak.max(resident_mib(process));
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        for task in tasks {
            task.await.unwrap();
        }
        let took = started.elapsed();
        let rate = (SESSIONS * TURNS) as f64 / took.as_secs_f64();
        let mut reads = Vec::new();
        for n in (0..SESSIONS).step_by(7) {
            let identity = Identity::new(
                "local",
                &format!("user-{}", n % 100),
                &format!("dialogue-{n}"),
            );
            let started = Instant::now();
            assert_eq!(
                memory.context(&identity).await.unwrap().recent_turns.len(),
                TURNS
            );
            reads.push(started.elapsed());
            peak = peak.max(resident_mib(process));
        }
        let growth = peak - before;
        let [cap, besides] = [CAP, BESIDES].map(|bytes| bytes as f64 / 1_048_576.0);
        table.add(
            &format!("{SESSIONS} conversations x {TURNS} turns: growth of the process"),
            format!("{growth:.1} MiB, cap {cap:.0} MiB"),
            &format!("<= cap + {besides:.0} MiB"),
            growth <= cap + besides,
        );
        table.add(
            "  turns added by 64 writers",
            format!("{rate:.0}/s"),
            "",
            true,
        );
        let half = percentile(&mut reads, 50.0);
        table.add(
            "  context of one of them, p50",
            format!("{:.0} us", half.as_secs_f64() * 1e6),
            "",
            true,
        );
        close(&[memory], &*store).await;
    });
}

pub(crate) async fn close(memories: &[ConversationMemory], store: &dyn Store) {
    for memory in memories {
        memory.close(Duration::from_secs(5)).await;
    }
    store.close().await.unwrap();
}

pub(crate) async fn open(folder: &Path) -> Arc<dyn Store> {
    let limits = Limits {
        value_bytes: 64 << 20,
        rows: u64::MAX,
        bytes: u64::MAX,
        ..Limits::default()
    };
    let config = helmdeck_memory::Config {
        limits,
        ..helmdeck_memory::Config::default()
    };
    let ring = KeyRing::parse(("KEY", KEY), None).unwrap();
    let url = format!("sqlite:{}", folder.join("memory.db").display());
    helmdeck_memory::open(&url, ring, config, Arc::new(SystemClock::default()))
        .await
        .unwrap()
}

pub(crate) fn memory(store: &Arc<dyn Store>, set: impl FnOnce(&mut Config)) -> ConversationMemory {
    let mut config = Config {
        strategy: Strategy::Truncation,
        ..Config::default()
    };
    set(&mut config);
    let clock = Arc::new(SystemClock::default());
    let dependencies = Dependencies {
        store: Arc::clone(store),
        events: Bus::new(64, Arc::clone(&clock) as _),
        clock,
        summarizer: None,
    };
    ConversationMemory::open(config, dependencies).unwrap()
}

pub(crate) fn new_turn(n: usize) -> NewTurn {
    let text = |what: &str| {
        let mut text = format!("{what} number {n}: ");
        while text.len() < TEXT / 2 {
            text.push_str("a few more words ");
        }
        text
    };
    NewTurn::new(text("question"), text("answer"))
}
