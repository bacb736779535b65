//! Conversations, the endpoint that spoils their summaries, and the process that keeps them.

use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use helmdeck_core::{ManualClock, Secret};
use helmdeck_llm::Client;
use helmdeck_llm::egress::{self, Egress};
use helmdeck_memory::Store;
use helmdeck_testkit::{ChatReply, ChatRequest, ChatServer};
use tokio::sync::watch;

use super::known::{Case, good};
use super::watched::{Cases, Watched, lock};
use super::{BATCH, BUDGET, MAX_ATTEMPTS, PATIENT, RECENT, TURNS};
use crate::conformance::fixture::{STUCK, sized};
use crate::conformance::{Fixture, eventually};
use crate::summarizer::{ChatSummarizer, client_config};
use crate::{
    Config, ConversationMemory, Dependencies, Health, Identity, Strategy, SummarizerConfig, Trace,
};

/// Conversations on a store, and the endpoint that spoils their summaries.
pub(super) struct Trial {
    pub(super) cases: Cases,
    pub(super) server: ChatServer,
    pub(super) s: Fixture,
}

/// The process of a trial.
pub(super) struct Process {
    pub(super) watched: Arc<Watched>,
    pub(super) folding: ConversationMemory,
    pub(super) reading: ConversationMemory,
}

pub(super) fn reply(cases: &Cases, request: &ChatRequest) -> ChatReply {
    // Each conversation has a separate key, so the endpoint knows whose request it is.
    let session = request
        .header("authorization")
        .and_then(|key| key.strip_prefix("Bearer "))
        .unwrap();
    let mut cases = lock(cases);
    let case = cases.get_mut(session).unwrap();
    let act = case
        .fault
        .act
        .filter(|_| case.spoilt.contains(&(case.started.len() - 1)));
    case.hung |= act.is_some() && case.fault.hangs;
    act.map_or_else(
        || ChatReply::text(&good(request.content(1))),
        |act| act(&good(request.content(1))),
    )
}

impl Trial {
    pub(super) async fn of(
        clock: Arc<ManualClock>,
        store: Arc<dyn Store>,
        cases: Vec<Case>,
    ) -> Self {
        let cases = cases
            .into_iter()
            .map(|case| (Arc::clone(&case.identity.session), case))
            .collect();
        let cases: Cases = Arc::new(Mutex::new(cases));
        let known = Arc::clone(&cases);
        let server = ChatServer::start(move |_, request| reply(&known, request)).await;
        Self {
            cases,
            server,
            s: Fixture::new(Strategy::RollingSummary, store, clock),
        }
    }

    pub(super) fn identities(&self) -> Vec<Identity> {
        lock(&self.cases)
            .values()
            .map(|case| case.identity.clone())
            .collect()
    }

    /// Opens the memory, with all turns; `free` = no attempt has to wait.
    pub(super) async fn open(
        &self,
        timeout: Duration,
        free: bool,
        change: impl FnOnce(&mut SummarizerConfig),
    ) -> Process {
        let mut config = Config {
            budget_tokens: BUDGET,
            recent_turns: RECENT,
            ..self.s.config()
        };
        let settings = &mut config.summarizer;
        (settings.endpoint, settings.model) = (self.server.url(), "small".to_owned());
        (
            settings.timeout,
            settings.max_attempts,
            settings.batch_turns,
        ) = (timeout, MAX_ATTEMPTS, BATCH);
        settings.concurrency = lock(&self.cases).len();
        change(settings);
        lock(&self.cases)
            .values_mut()
            .for_each(|case| case.hasty = timeout < PATIENT);
        let nowhere = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .unwrap()
            .local_addr()
            .unwrap();
        let chat = |endpoint: String| {
            let settings = SummarizerConfig {
                endpoint,
                ..config.summarizer.clone()
            };
            let client = Client::new(
                &Egress::new(egress::Config::default()),
                client_config(&settings),
            );
            let key = |identity: &Identity| Ok(Some(Secret::new(identity.session.to_string())));
            ChatSummarizer::new(client.unwrap(), &settings, key)
        };
        let watched = Arc::new(Watched {
            cases: Arc::clone(&self.cases),
            real: chat(self.server.url()),
            alone: chat(format!("http://{nowhere}/v1")),
            memories: OnceLock::new(),
            free: watch::Sender::new(free),
            waiting: watch::Sender::new(0),
            broken: Arc::default(),
        });
        let dependencies = Dependencies {
            store: Arc::clone(&self.s.bare),
            events: self.s.bus.clone(),
            clock: self.s.clock.clone(),
            summarizer: Some(watched.clone()),
        };
        let looking = Config {
            hot_for: Duration::ZERO,
            ..config.clone()
        };
        let reading = ConversationMemory::open_briefly(looking, dependencies.clone()).unwrap();
        // All turns are there before anything is summarised: the first sweep comes soon.
        for identity in self.identities() {
            for mark in reading.trace(&identity).await.unwrap().kept_turns as usize..TURNS {
                reading
                    .add_turn(&identity, sized(mark, 100, 100))
                    .await
                    .unwrap();
            }
        }
        let folding = ConversationMemory::open(config, dependencies).unwrap();
        watched
            .memories
            .set((folding.clone(), reading.clone()))
            .unwrap();
        Process {
            watched,
            folding,
            reading,
        }
    }
}

impl Process {
    /// Has all conversations summarised: a read of one that waits triggers it.
    pub(super) async fn go_on(&self, trial: &Trial) {
        for identity in trial.identities() {
            self.folding.context(&identity).await.unwrap();
        }
    }

    /// Waits until something is so of a conversation.
    pub(super) async fn until(
        &self,
        what: &str,
        trial: &Trial,
        identity: &Identity,
        so: impl Fn(&Case, &Trace) -> bool,
    ) {
        eventually(&format!("{what}: {}", identity.session), async || {
            self.watched.is_sound();
            let trace = self.reading.trace(identity).await.unwrap();
            so(&lock(&trial.cases)[&identity.session], &trace)
        })
        .await;
    }

    /// Waits until all conversations are summarised, and checks what became of them.
    pub(super) async fn settles(&self, trial: &Trial) {
        for identity in trial.identities() {
            self.until("all to be folded", trial, &identity, |case, trace| {
                trace.health == Health::Healthy
                    && trace.covers_through == (case.turns - RECENT) as u64
            })
            .await;
            let trace = self.reading.trace(&identity).await.unwrap();
            // What is stored is seen from memory a moment later.
            eventually("memory to follow", async || {
                self.folding.trace(&identity).await.unwrap() == trace
            })
            .await;
            let moves = {
                let mut cases = lock(&trial.cases);
                let case = cases.get_mut(&identity.session).unwrap();
                case.learn(&trace);
                assert!(
                    case.spoilt.end <= case.started.len() || case.fault.word.is_none(),
                    "it was spoilt"
                );
                case.known.moves.clone()
            };
            let published = || trial.s.moves(&identity, Health::Healthy);
            // An event comes after what it tells of.
            eventually("the last event", async || published().len() >= moves.len()).await;
            assert_eq!(published(), moves, "{}", identity.session);
            for memory in [&self.folding, &self.reading] {
                let patch = memory.context(&identity).await.unwrap();
                lock(&trial.cases)[&identity.session].agrees(&trace, &patch);
            }
        }
        self.watched.is_sound();
        assert_eq!(trial.s.dropped(), []);
        self.close().await;
    }

    pub(super) async fn close(&self) {
        let started = Instant::now();
        self.folding.close(STUCK).await;
        assert!(started.elapsed() < STUCK, "something did not end");
        self.reading.close(STUCK).await;
    }
}
