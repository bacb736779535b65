//! Lists conversations.

use std::sync::atomic::Ordering;
use std::time::Duration;

use helmdeck_memory::{Kind, Namespace, NamespaceStats, Page};
use tokio::task::JoinSet;

use super::ConversationMemory;
use super::turns::page_size;
use crate::error::{ConversationError, Result};
use crate::health::Health;
use crate::rows::encoding;
use crate::views::{ConversationFilter, ConversationInfo, ConversationPage};

/// Number of concurrent reads.
const AT_ONCE: usize = 16;
/// Up to this many matches, all are read to count those that have not expired, or will soon.
const READ_ALL: usize = 500;
const SOON: Duration = Duration::from_secs(3600);

impl ConversationMemory {
    /// Lists conversations, of all callers unless the filter narrows it. The caller checks
    /// permissions.
    ///
    /// # Errors
    /// `Invalid`, `Store`.
    pub async fn list_conversations(
        &self,
        filter: &ConversationFilter,
    ) -> Result<ConversationPage> {
        if self.0.closed.load(Ordering::Acquire) {
            return Err(ConversationError::Closed);
        }
        let limit = page_size(filter.limit)?;
        let after = filter.after.as_deref().map(read_mark).transpose()?;
        let shared = self.shared();
        let wanted =
            |name: &Option<String>, part: &str| name.as_deref().is_none_or(|name| name == part);
        let store = shared.rows.store();
        let mut held: Vec<NamespaceStats> = match (&filter.tenant, &filter.user) {
            (Some(tenant), Some(user)) => store.namespaces_of(tenant, user).await?,
            _ => store.namespaces().await?,
        };
        held.retain(|held| {
            held.kind == Kind::Conversation
                && held.namespace.session.is_some()
                && wanted(&filter.tenant, &held.namespace.tenant)
                && wanted(&filter.user, &held.namespace.subject)
        });
        held.sort_by(|a, b| a.namespace.cmp(&b.namespace));

        let now = shared.now();
        let (identity_rejected_24h, recovery_dropped_24h) = shared.counters.last_day(now);
        let mut page = ConversationPage {
            identity_rejected_24h,
            recovery_dropped_24h,
            ..ConversationPage::default()
        };
        let mut more = false;
        let many = held.len() > READ_ALL;
        if many {
            // Too many to read for one page.
            page.total = held.len() as u64;
            if let Some(after) = &after {
                held.drain(..held.partition_point(|held| held.namespace <= *after));
            }
        }
        for held in held.chunks(AT_ONCE) {
            if many && more {
                break;
            }
            let mut reads = JoinSet::new();
            for (place, held) in held.iter().cloned().enumerate() {
                let memory = self.clone();
                reads.spawn(async move { (place, memory.conversation(held).await) });
            }
            let mut found = Vec::with_capacity(held.len());
            while let Some(read) = reads.join_next().await {
                let (place, session) = read.map_err(helmdeck_memory::StoreError::unavailable)?;
                found.push((place, session?));
            }
            found.sort_by_key(|(place, _)| *place);
            for (place, session) in found {
                let Some(session) = session else { continue };
                page.total += u64::from(!many);
                let soon = session
                    .expires_at
                    .is_some_and(|end| end <= now.saturating_add(SOON));
                page.expiring_in_1h += u64::from(soon);
                if after
                    .as_ref()
                    .is_some_and(|after| held[place].namespace <= *after)
                {
                    continue;
                }
                if page.sessions.len() < limit {
                    page.sessions.push(session);
                } else {
                    more = true;
                }
            }
        }
        page.next = page.sessions.last().filter(|_| more).map(mark);
        Ok(page)
    }

    /// Reads a conversation; `None` if it has expired or never existed.
    async fn conversation(&self, held: NamespaceStats) -> Result<Option<ConversationInfo>> {
        let shared = self.shared();
        let Namespace {
            tenant,
            subject,
            session,
        } = &held.namespace;
        let name = session.as_deref().unwrap_or_default();
        let (turns, bytes, touched, health) = match shared.rows.state(&held.namespace).await {
            Ok(state) => (
                state.head.turns,
                state.head.bytes,
                state.touched_at,
                self.health_of(&state),
            ),
            // It is listed because it can be flushed and forgotten.
            Err(ConversationError::Corrupt(_)) => {
                let store = shared.rows.store();
                let page = Page {
                    limit: 1,
                    after: None,
                };
                let heads = store
                    .list(&held.namespace, Kind::Conversation, encoding::HEAD, page)
                    .await?;
                let touched = heads.entries.first().map(|meta| meta.updated_at);
                (
                    held.rows.saturating_sub(2),
                    held.bytes,
                    touched,
                    Health::Degraded,
                )
            }
            Err(error) => return Err(error),
        };
        let ttl = shared.config.ttl;
        let ends = |touched: helmdeck_core::Timestamp| {
            (!ttl.is_zero()).then(|| touched.saturating_add(ttl))
        };
        let Some(updated_at) =
            touched.filter(|touched| ends(*touched).is_none_or(|end| shared.now() < end))
        else {
            return Ok(None);
        };
        Ok(Some(ConversationInfo {
            tenant: tenant.as_ref().to_owned(),
            user: subject.as_ref().to_owned(),
            session: name.to_owned(),
            turns,
            bytes,
            updated_at,
            expires_at: ends(updated_at),
            health,
        }))
    }
}

/// Returns the mark after which the next page starts.
fn mark(session: &ConversationInfo) -> String {
    serde_json::to_string(&[&session.tenant, &session.user, &session.session]).unwrap_or_default()
}

fn read_mark(text: &str) -> Result<Namespace> {
    let [tenant, user, session]: [String; 3] = serde_json::from_str(text).map_err(|_| {
        ConversationError::Invalid("after must be the next of the page before".to_owned())
    })?;
    Ok(Namespace::new(&tenant, &user, Some(&session)))
}
