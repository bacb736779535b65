//! A long conversation and a real, small language model. It counts badly and goes round in circles:
//! what it says becomes a summary or does not, and either way no turn is lost and the health is
//! honest.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use helmdeck_conversation::summarizer::{ChatSummarizer, client_config};
use helmdeck_conversation::{
    Config, ConversationMemory, Dependencies, Health, Identity, NewTurn, Strategy, SummarizerConfig,
};
use helmdeck_conversation::{TurnFilter, TurnId};
use helmdeck_core::SystemClock;
use helmdeck_egress::Egress;
use helmdeck_events::Bus;
use helmdeck_llm::Client;

use crate::support::small_model::SmallModel;
use crate::support::{KEY, store};

const TURNS: u64 = 40;
const RECENT: usize = 4;
const BUDGET: u64 = 600;

/// Time limit of the model in all. On a busy machine it does not reach the end of the conversation.
const PATIENCE: Duration = Duration::from_secs(15);

/// What people and their assistant say to each other; `{day}` and the like are different each time.
const TALK: [(&str, &str); 25] = [
    (
        "I want to move our web shop to the new cluster before {day}.",
        "The web shop moves before {day}. I start with a list of its services.",
    ),
    (
        "Which database does the {service} use?",
        "PostgreSQL 16; its address is in the vault under {service}/database.",
    ),
    (
        "Please open a ticket for the slow search page.",
        "I opened T-{number}: the page takes four seconds when the cache is cold.",
    ),
    (
        "Who can look at that?",
        "{name} knows the search code best, so T-{number} went to {name}.",
    ),
    (
        "The tests of the {service} fail since this morning.",
        "A certificate ran out on {day}. I renewed it, and they pass again.",
    ),
    (
        "How much does the new cluster cost us?",
        "About {number} euros a month for three machines, without the backups.",
    ),
    (
        "That is too much. Can we do with two?",
        "Two are enough if the {service} runs at night only. That saves a third.",
    ),
    (
        "Good, let us do that.",
        "Decided: two machines, and the {service} runs at night.",
    ),
    (
        "Did the customer from Hamburg answer?",
        "Not yet. I wrote to {name} again and asked for an answer by {day}.",
    ),
    (
        "Write a short note to the team about the outage.",
        "Sent: a full disk was the cause, and alerts for disks are on now.",
    ),
    (
        "What is left to do for the release?",
        "The release notes, the translation into French, and a test of the payment page.",
    ),
    (
        "Can {name} take the translation?",
        "{name} agreed and wants to be done by {day}.",
    ),
    (
        "The logo on the start page is blurred on phones.",
        "I replaced it by a vector image of {number} kilobytes. Please look.",
    ),
    ("Looks good now. Thanks!", "You are welcome."),
    (
        "Remind me to call the tax office.",
        "I will remind you on {day} at nine in the morning.",
    ),
    (
        "Why did the {service} restart last night?",
        "It ran out of memory. I raised its limit to two gigabytes.",
    ),
    (
        "Is the backup of {day} complete?",
        "It holds {number} files and passed the check of its sums.",
    ),
    (
        "Book a room for twelve people.",
        "Room Elbe is booked for twelve people on {day}, from ten to twelve.",
    ),
    (
        "We need an interpreter for Polish there.",
        "An agency offers {name} for {number} euros a day.",
    ),
    ("Take that offer.", "Done. {name} confirmed for {day}."),
    (
        "How many users signed up this week?",
        "{number}, a tenth more than last week; most came from the newsletter.",
    ),
    (
        "Should we drop support for the old app?",
        "I suggest to announce the end on {day} and to switch it off a month later.",
    ),
    (
        "Ask the lawyers first.",
        "I sent them the question; {name} answers by {day}.",
    ),
    (
        "What was the password rule again?",
        "At least fourteen characters, and no rule about special ones.",
    ),
    (
        "Delete the test accounts, please.",
        "I deleted {number} of them and kept the one that the monitoring uses.",
    ),
];

/// Returns the turn with this number, which no other turn is like.
fn turn(number: usize) -> NewTurn {
    let days = ["3 May", "Friday", "12 June", "Monday", "1 July", "Thursday"];
    let services = [
        "mailer",
        "billing",
        "search",
        "image server",
        "report job",
        "crawler",
        "gateway",
    ];
    let names = [
        "Ana", "Bo", "Chen", "Dina", "Emre", "Farid", "Greta", "Hugo",
    ];
    let fill = |text: &str| {
        text.replace("{day}", days[number % days.len()])
            .replace("{service}", services[number % services.len()])
            .replace("{name}", names[number % names.len()])
            .replace("{number}", &(200 + number).to_string())
    };
    let (user, assistant) = TALK[number % TALK.len()];
    NewTurn::new(fill(user), fill(assistant))
}

/// Opens the memory as after a restart.
async fn open(path: &Path, settings: &SummarizerConfig) -> ConversationMemory {
    let client = Client::new(
        &Egress::new(helmdeck_egress::Config::default()),
        client_config(settings),
    )
    .unwrap();
    let config = Config {
        strategy: Strategy::RollingSummary,
        budget_tokens: BUDGET,
        recent_turns: RECENT,
        summarizer: settings.clone(),
        ..Config::default()
    };
    let clock = Arc::new(SystemClock::default());
    let dependencies = Dependencies {
        store: store(path, &[KEY]).await,
        events: Bus::new(1024, clock.clone()),
        clock,
        summarizer: Some(Arc::new(ChatSummarizer::new(client, settings, |_| {
            Ok(None)
        }))),
    };
    ConversationMemory::open(config, dependencies).unwrap()
}

/// Returns every turn that is kept, oldest first, and whether it is in the summary.
async fn items(memory: &ConversationMemory, identity: &Identity) -> BTreeMap<TurnId, bool> {
    let mut filter = TurnFilter {
        limit: Some(60),
        ..TurnFilter::default()
    };
    let mut items = BTreeMap::new();
    loop {
        let page = memory.list_turns(identity, &filter).await.unwrap();
        items.extend(page.items.into_iter().map(|item| (item.key, item.folded)));
        filter.after = page.next;
        if filter.after.is_none() {
            return items;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn real_small_model_summaries_lose_no_turn() {
    let model = tokio::task::spawn_blocking(SmallModel::start)
        .await
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory.db");
    let settings = SummarizerConfig {
        endpoint: model.url.clone(),
        model: "small".to_owned(),
        summary_tokens: 100,
        batch_turns: 4,
        // Shorter than all of the patience: what is too slow shows as that.
        timeout: Duration::from_secs(10),
        concurrency: 1,
        retry_wait: Duration::from_millis(100),
        max_retry_wait: Duration::from_secs(1),
        ..SummarizerConfig::default()
    };
    let memory = open(&path, &settings).await;
    let identity = Identity::new("acme", "ana", "s1");
    let mut added = Vec::new();
    for number in 0..TURNS as usize {
        added.push(
            memory
                .add_turn(&identity, turn(number))
                .await
                .unwrap()
                .id
                .unwrap(),
        );
    }

    let started = Instant::now();
    let mut waiting = u64::MAX;
    while waiting > 0 && started.elapsed() < PATIENCE {
        let left = PATIENCE
            .saturating_sub(started.elapsed())
            .min(Duration::from_secs(10));
        waiting = memory.summarise(&identity, left).await.unwrap();
        // At every moment each turn is in the summary, in sight, or counted as left out.
        let patch = memory.context(&identity).await.unwrap();
        assert!(
            patch.tokens <= BUDGET && !patch.over_budget,
            "{} tokens",
            patch.tokens
        );
        let shown: Vec<_> = patch.recent_turns.iter().map(|recent| recent.id).collect();
        assert_eq!(
            shown,
            added[added.len() - shown.len()..],
            "the newest, in order"
        );
        assert!(!shown.is_empty() && patch.unreadable == 0);
    }
    let (metrics, seconds) = (memory.metrics(), started.elapsed().as_secs());
    memory.close(Duration::from_secs(10)).await;
    drop((memory, model));

    // After a restart each turn is still there, and each is in the summary or after it. Nothing is
    // summarised meanwhile, because the endpoint does not answer.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}/v1", silent.local_addr().unwrap());
    let silence = SummarizerConfig {
        endpoint,
        timeout: Duration::from_secs(3600),
        ..settings
    };
    let memory = open(&path, &silence).await;
    let folded = items(&memory, &identity).await;
    assert_eq!(folded.keys().copied().collect::<Vec<_>>(), added);
    assert!(
        folded.values().is_sorted_by_key(|folded| !folded),
        "the summary holds the oldest"
    );
    let covered = folded.values().filter(|folded| **folded).count() as u64;
    let trace = memory.trace(&identity).await.unwrap();
    println!(
        "{} folds and failures {:?} in {seconds} s; {covered} of {TURNS} turns in a summary of {} bytes, {} tokens in sight, {}",
        metrics.summaries,
        metrics.summary_failures,
        trace.summary.len(),
        trace.estimated_tokens,
        trace.health,
    );
    println!("{}", trace.summary);
    assert_eq!(
        (
            trace.covers_through,
            trace.kept_turns,
            metrics.turns_dropped
        ),
        (covered, TURNS, 0)
    );
    let patch = memory.context(&identity).await.unwrap();
    assert_eq!(
        covered + patch.omitted_turns + patch.recent_turns.len() as u64,
        TURNS
    );
    if covered > 0 {
        let opening = turn(0).user_message;
        assert!(
            !patch.summary.is_empty() && patch.goal.as_deref() == Some(&*opening),
            "{:?}",
            patch.goal
        );
    }

    // Something was folded, unless the machine was too slow for one answer; a model that answers
    // and is never understood is a defect.
    let too_slow = !metrics.summary_failures.is_empty()
        && metrics
            .summary_failures
            .keys()
            .all(|failure| *failure == "timeout");
    assert!(
        (metrics.summaries > 0 && covered > 0) || too_slow,
        "{:?}",
        metrics.summary_failures
    );
    // It came to the end, or says why not.
    if trace.backlog_turns == 0 {
        assert!(covered >= TURNS - RECENT as u64, "{covered}");
        assert_eq!((trace.health, trace.failures), (Health::Healthy, 0));
    } else if trace.failures > 0 {
        assert!(
            trace.health != Health::Healthy && trace.last_failure.is_some(),
            "{trace:?}"
        );
    }
    memory.close(Duration::from_secs(10)).await;
}
