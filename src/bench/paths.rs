//! The paths whose instructions are counted: each does the same thing a given number of times.
//!
//! `guard.sh` runs each path under callgrind with two numbers. The difference is what the
//! repetitions cost, in all threads, without the start.

use std::sync::Arc;

use helmdeck_conversation::Identity as Dialogue;
use helmdeck_core::{Call, Identity, ManualClock, PackName};
use helmdeck_engine::{Config, Engine};
use helmdeck_memory::{Kind, Namespace, Put};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

use crate::calls::{
    CACHE, FULL_OUTPUT, INPUT, cached_pack, call, pack, runtime_free, sealed_engine, without_audit,
};
use crate::{conversation, mcp, rest};

const PLAIN_OUTPUT: &str = "[output]\ntype = \"object\"\n";

/// A path: its name, and what does it so many times.
type Path = (&'static str, fn(usize));

/// The paths.
pub(crate) const PATHS: [Path; 14] = [
    ("shut", |count| shut(PLAIN_OUTPUT, "", count)),
    ("shut-opted-in", |count| shut(PLAIN_OUTPUT, CACHE, count)),
    ("shut-output-schema", |count| shut(FULL_OUTPUT, "", count)),
    ("hit", |count| hits(64 << 20, &|_| INPUT.to_owned(), count)),
    ("hit-spelled-anew", |count| hits(64 << 20, &spelled, count)),
    ("hit-sealed-sqlite", |count| {
        hits(0, &|_| INPUT.to_owned(), count)
    }),
    ("miss", misses),
    ("rest-hit", |count| {
        over_http(&|address| rest::rest_request(address), count)
    }),
    ("mcp-hit", |count| {
        over_http(&|address| mcp::newest(address), count)
    }),
    ("put-sealed", puts),
    ("get-sealed", gets),
    ("turn", turns),
    ("context", |count| contexts(true, count)),
    ("context-sealed-sqlite", |count| contexts(false, count)),
];

/// Runs a path; `arguments` are its name and the number of repetitions, or `--list` for the names.
///
/// # Panics
/// For an unknown path.
pub(crate) fn run(arguments: &[String]) {
    if arguments.first().is_some_and(|first| first == "--list") {
        return PATHS.iter().for_each(|(name, _)| println!("{name}"));
    }
    let named = |name: &String| PATHS.iter().find(|(known, _)| known == name);
    let (Some((_, path)), Some(Ok(count))) = (
        arguments.first().and_then(named),
        arguments.get(1).map(|count| count.parse()),
    ) else {
        panic!(
            "path NAME COUNT; names: {}",
            PATHS.map(|(name, _)| name).join(" ")
        );
    };
    path(count);
}

/// One thread, so that which thread does what is no matter of chance.
fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn shut(output: &str, memory: &str, count: usize) {
    let identity = Arc::new(Identity::local());
    let runtime = runtime();
    let _guard = runtime.enter();
    let packs = vec![pack(output, memory)];
    let engine = Engine::builder(Config::default())
        .builtins(packs)
        .clock(Arc::new(ManualClock::default()))
        .build();
    for _ in 0..count {
        runtime_free(engine.call(call(&identity))).unwrap();
    }
}

/// Writes the input with spaces, differently for each number: a call that no process has seen as
/// these bytes.
fn spelled(number: usize) -> String {
    let space = |at: usize| " ".repeat(1 + (number / 16_usize.pow(at as u32)) % 16);
    let [first, second, third] = [0, 1, 2].map(space);
    INPUT
        .replacen('{', &format!("{{{first}"), 1)
        .replacen(':', &format!(":{second}"), 1)
        .replacen(',', &format!(",{third}"), 1)
}

fn hits(hot_bytes: u64, input: &dyn Fn(usize) -> String, count: usize) {
    let (folder, identity, runtime) = (
        tempfile::tempdir().unwrap(),
        Arc::new(Identity::local()),
        runtime(),
    );
    runtime.block_on(async {
        let engine =
            sealed_engine(folder.path(), hot_bytes, vec![without_audit(cached_pack())]).await;
        engine.call(call(&identity)).await.unwrap();
        engine.memory().unwrap().flush().await;
        for number in 0..count {
            let call = Call::new(
                PackName::new("bench.issues").unwrap(),
                input(number),
                Arc::clone(&identity),
            );
            engine.call(call).await.unwrap();
        }
        engine.shutdown().await;
    });
}

fn misses(count: usize) {
    let (folder, identity, runtime) = (
        tempfile::tempdir().unwrap(),
        Arc::new(Identity::local()),
        runtime(),
    );
    runtime.block_on(async {
        let engine =
            sealed_engine(folder.path(), 64 << 20, vec![without_audit(cached_pack())]).await;
        for number in 0..count {
            let input = INPUT.replace("hello-world", &format!("hello-{number}"));
            let call = Call::new(
                PackName::new("bench.issues").unwrap(),
                input,
                Arc::clone(&identity),
            );
            engine.call(call).await.unwrap();
            engine.memory().unwrap().flush().await;
        }
        engine.shutdown().await;
    });
}

/// Sends a request over one connection, again and again; client and server share the thread.
fn over_http(request: &dyn Fn(&str) -> String, count: usize) {
    let (folder, runtime) = (tempfile::tempdir().unwrap(), runtime());
    runtime.block_on(async {
        let engine =
            sealed_engine(folder.path(), 64 << 20, vec![without_audit(cached_pack())]).await;
        engine
            .call(call(&Arc::new(Identity::local())))
            .await
            .unwrap();
        let stop = CancellationToken::new();
        let address = rest::cached(engine, &stop).await;
        let request = request(&address);
        let mut connection = TcpStream::connect(&address).await.unwrap();
        connection.set_nodelay(true).unwrap();
        let mut buffer = vec![0; 64 << 10];
        for _ in 0..count {
            connection.write_all(request.as_bytes()).await.unwrap();
            let mut filled = 0;
            while rest::answer_length(&buffer[..filled]) != Some(filled) {
                let read = connection.read(&mut buffer[filled..]).await.unwrap();
                assert!(read > 0, "the server closed the connection");
                filled += read;
            }
        }
        stop.cancel();
    });
}

fn puts(count: usize) {
    let (folder, runtime) = (tempfile::tempdir().unwrap(), runtime());
    runtime.block_on(async {
        let store = conversation::open(folder.path()).await;
        for number in 0..count {
            store.put(row(number)).await.unwrap();
        }
        store.close().await.unwrap();
    });
}

fn row(number: usize) -> Put {
    Put::new(
        Namespace::new("local", "local", None),
        Kind::Cache,
        format!("bench/{number}"),
        vec![7; 4096],
    )
}

fn gets(count: usize) {
    let (folder, runtime) = (tempfile::tempdir().unwrap(), runtime());
    runtime.block_on(async {
        let store = conversation::open(folder.path()).await;
        store.put(row(0)).await.unwrap();
        let (namespace, key) = (Namespace::new("local", "local", None), "bench/0");
        for _ in 0..count {
            store
                .get(&namespace, Kind::Cache, key)
                .await
                .unwrap()
                .unwrap();
        }
        store.close().await.unwrap();
    });
}

fn turns(count: usize) {
    let (folder, runtime) = (tempfile::tempdir().unwrap(), runtime());
    runtime.block_on(async {
        let store = conversation::open(folder.path()).await;
        let memory = conversation::memory(&store, |_| {});
        for turn in 0..count {
            memory
                .add_turn(
                    &Dialogue::new("local", "local", "one"),
                    conversation::new_turn(turn),
                )
                .await
                .unwrap();
        }
        conversation::close(&[memory], &*store).await;
    });
}

fn contexts(hot: bool, count: usize) {
    let (folder, runtime) = (tempfile::tempdir().unwrap(), runtime());
    runtime.block_on(async {
        let store = conversation::open(folder.path()).await;
        let memory = conversation::memory(&store, |config| {
            if hot {
                config.hot_for = std::time::Duration::from_secs(3600);
            } else {
                config.hot_bytes = 0;
            }
        });
        let identity = Dialogue::new("local", "local", "one");
        for turn in 0..50 {
            memory
                .add_turn(&identity, conversation::new_turn(turn))
                .await
                .unwrap();
        }
        for _ in 0..count {
            memory.context(&identity).await.unwrap();
        }
        conversation::close(&[memory], &*store).await;
    });
}
