//! The conversation checks of `helmdeck check`.

use std::sync::Arc;

use helmdeck_conversation::{Config, Strategy};
use helmdeck_core::SystemClock;
use helmdeck_memory::Kind;
use helmdeck_memory::Quota;
use helmdeck_vault::{About, Book, VaultError};

use super::report::Report;
use crate::config::{Key, Origin, Setting};
use crate::conversations::{SUMMARIZE, lacks_summarizer};
use crate::exit::{Failure, Result};
use crate::wire::Setup;

/// Checks the settings of the conversation memory.
pub(super) async fn run(report: &mut Report, setup: &Setup) {
    let config = &setup.settings.conversation;
    if setup.ring.is_none() {
        let set = |(key, setting): (&Key, &Setting)| {
            key[0] == "conversation" && setting.origin != Origin::Default
        };
        if setup.layers.iter().any(set) {
            let message = "conversation settings are set, but no memory key, so nothing of a conversation is kept";
            report.warnings.push(message.to_owned());
        }
        // Without a key there is nothing to report, unless the settings are invalid.
        if config.strategy != Strategy::RollingSummary {
            return;
        }
    }
    if lacks_summarizer(config) {
        report.fact("conversation", "wrong");
        report.errors.push(
            "conversation.strategy is rolling_summary, which needs conversation.summarizer.endpoint and conversation.summarizer.model"
                .to_owned(),
        );
        return;
    }
    if config.strategy != Strategy::None {
        let limits = setup.settings.memory.store().limits;
        report
            .warnings
            .extend(crowded(limits.quota(Kind::Conversation), config));
    }
    let budget = match (config.strategy, config.budget_tokens) {
        (Strategy::None, _) => "nothing is kept".to_owned(),
        (_, 0) => "no budget".to_owned(),
        (_, tokens) => format!("{tokens} tokens"),
    };
    if config.strategy != Strategy::RollingSummary {
        return report.fact("conversation", format!("{}, {budget}", config.strategy));
    }
    let model = &config.summarizer.model;
    report.fact(
        "conversation",
        format!("{}, {budget}, summed up by {model}", config.strategy),
    );
    if !config.summarizer.credential.is_empty()
        && let Err(failure) = credential(report, setup, &config.summarizer.credential).await
    {
        report.failed("conversation", &failure);
    }
}

/// Warns if the store would refuse turns before the oldest ones are removed.
fn crowded(quota: Quota, config: &Config) -> Option<String> {
    // A conversation may exceed its limit by this much until its oldest turns go.
    let over = |most: u64| most.saturating_add(most / 16);
    let (most, limit) = match () {
        () if over(config.max_turns) >= quota.rows => ("max_turns", "rows"),
        () if over(config.max_bytes) >= quota.bytes => ("max_bytes", "bytes"),
        () => return None,
    };
    Some(format!(
        "conversation.{most} is too near to the most {limit} that the store takes of one conversation, so turns will be refused: \
         raise memory.kinds.conversation.{limit} or memory.max_{limit}"
    ))
}

/// Checks that the summarizer's credential exists and that a caller may use it.
async fn credential(report: &mut Report, setup: &Setup, name: &str) -> Result<()> {
    if setup.settings.credentials.contains_key(name) {
        // Another check reports whether its variable is set.
        return Ok(());
    }
    let missing = || {
        let name = name.escape_debug();
        Failure::config(format!(
            "conversation.summarizer.credential: there is no credential \"{name}\""
        ))
    };
    let Some(ring) = &setup.vault_ring else {
        return Err(missing());
    };
    let book = Book::new(
        setup.system()?,
        ring.clone(),
        Arc::new(SystemClock::default()),
    );
    match book.about(name).await {
        Ok(about) => report.warnings.extend(unusable(
            &about,
            name,
            &setup.settings.conversation.summarizer.endpoint,
        )),
        Err(VaultError::Missing(_) | VaultError::Invalid(_)) => return Err(missing()),
        // The vault check reports credentials that do not open.
        Err(_) => {}
    }
    Ok(())
}

/// Returns why the credential cannot be used for summaries.
fn unusable(about: &About, name: &str, endpoint: &str) -> Option<String> {
    if about.subjects.is_empty() || !about.packs.iter().any(|glob| glob.matches(SUMMARIZE)) {
        return Some(format!(
            "no conversation can be summarised with credential \"{name}\": `helmdeck vault grant {name} --pack {SUMMARIZE} --allow <callers>`"
        ));
    }
    let host = url::Url::parse(endpoint)
        .ok()?
        .host_str()?
        .trim_matches(['[', ']'])
        .to_ascii_lowercase();
    let allowed = about.hosts.iter().any(|glob| glob.matches(&host));
    (!allowed).then(|| {
        format!(
            "credential \"{name}\" is not for the host {host} of conversation.summarizer.endpoint"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(host: &str, allow: &str, pack: &str) -> About {
        let mut about = About::of(helmdeck_vault::Kind::ApiKey);
        let of = |text: &str| {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        about.hosts = of(host).iter().map(|host| host.parse().unwrap()).collect();
        about.subjects = of(allow)
            .iter()
            .map(|subjects| subjects.parse().unwrap())
            .collect();
        about.packs = of(pack).iter().map(|pack| pack.parse().unwrap()).collect();
        about
    }

    #[test]
    fn a_store_that_would_refuse_turns_is_told() {
        let config = Config {
            max_turns: 160,
            max_bytes: 1600,
            ..Config::default()
        };
        let why = |rows, bytes| crowded(Quota { rows, bytes }, &config);
        assert_eq!(why(171, 1701), None);
        assert!(
            why(170, 1701)
                .unwrap()
                .contains("memory.kinds.conversation.rows")
        );
        assert!(
            why(171, 1700)
                .unwrap()
                .contains("memory.kinds.conversation.bytes")
        );
    }

    #[test]
    fn a_credential_that_nothing_can_be_summed_up_with_is_told() {
        let why = |host, allow, pack| {
            unusable(
                &about(host, allow, pack),
                "llm",
                "https://API.example.com/v1",
            )
        };
        assert_eq!(why("api.example.com", "*/*", SUMMARIZE), None);
        assert_eq!(why("*.example.com", "local/*", "*"), None);
        for (host, allow, pack) in [
            ("api.example.com", "", "*"),
            ("api.example.com", "*/*", "swe.solve"),
        ] {
            assert!(
                why(host, allow, pack)
                    .unwrap()
                    .contains("--pack conversation.summarize")
            );
        }
        assert!(
            why("other.example.com", "*/*", "*")
                .unwrap()
                .contains("host api.example.com")
        );
    }
}
