//! Conditional requests for one or several pages, revalidated together or read again together.
//!
//! The validator of an answer lists everything that was read for it, each with its `ETag`. If all
//! of it is unchanged, the answer is still valid. Otherwise all is read again, since an unchanged
//! page comes without its content.

use std::sync::Arc;

use helmdeck_core::{Context, Reply, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::client::{GitHubClient, Received, Target};
use super::exchange::{Exchange, parse};
use super::link;

/// Maximum number of pages that one list reads.
pub(super) const MAX_PAGES: usize = 100;

/// Everything that was read for an answer, in order, with its `ETag`.
type Seen = Vec<(Target, String)>;

/// Result of reading one page.
pub(super) struct Taken {
    /// Number of items on the page, taken or not.
    pub(super) on_page: usize,
    /// Whether no more are wanted.
    pub(super) enough: bool,
    /// Whether the page has wanted items that were not taken.
    pub(super) left_over: bool,
}

/// Reading of one call.
pub(super) struct Reading<'a> {
    exchange: Exchange<'a>,
    stale: Option<(Seen, Arc<str>)>,
    /// A page that turned out to be changed while the stale answer was checked.
    changed: Option<(Target, Received)>,
    seen: Seen,
    /// Whether the validator can tell every change.
    confirmable: bool,
}

impl<'a> Reading<'a> {
    /// Starts a call.
    pub(super) fn new(client: &'a GitHubClient, context: &Context) -> Result<Self> {
        let stale = context.stale.as_ref().and_then(|stale| {
            let pages: Seen = serde_json::from_str(&stale.validator).ok()?;
            Some((pages, Arc::clone(&stale.validator)))
        });
        let exchange = Exchange::new(client, context)?;
        Ok(Self {
            exchange,
            stale,
            changed: None,
            seen: Vec::new(),
            confirmable: true,
        })
    }

    /// Asks whether all that the stale answer was made of is unchanged, and answers so if it is.
    pub(super) async fn unchanged(&mut self, first: &Target) -> Result<Option<Reply>> {
        let Some((pages, validator)) = self.stale.take() else {
            return Ok(None);
        };
        if pages.first().is_none_or(|(target, _)| target != first) {
            return Ok(None);
        }
        for (target, etag) in pages {
            if let Some(received) = self.exchange.get(&target, Some(&etag)).await? {
                self.changed = Some((target, received));
                return Ok(None);
            }
        }
        Ok(Some(self.exchange.not_modified().with_validator(validator)))
    }

    /// Reads one thing.
    pub(super) async fn read(&mut self, target: Target) -> Result<Received> {
        let received = match self.changed.take_if(|(changed, _)| *changed == target) {
            Some((_, received)) => Some(received),
            None => self.exchange.get(&target, None).await?,
        };
        // Without an ETag in the request there is no "not modified".
        let received = received.ok_or_else(|| {
            helmdeck_core::Error::new(
                helmdeck_core::Code::HandlerFailed,
                "GitHub answered 304 to a plain request",
            )
        })?;
        match received.header("etag") {
            Some(etag) => self.seen.push((target, etag.to_owned())),
            None => self.confirmable = false,
        }
        Ok(received)
    }

    /// Reads one JSON document.
    pub(super) async fn object<T: DeserializeOwned>(&mut self, target: Target) -> Result<T> {
        parse(&self.read(target).await?.body)
    }

    /// Reads pages until enough is taken, and says whether there is more.
    pub(super) async fn pages(
        &mut self,
        first: Target,
        per_page: usize,
        mut take: impl FnMut(&[u8]) -> Result<Taken> + Send,
    ) -> Result<bool> {
        let mut target = first;
        for _ in 0..MAX_PAGES {
            let page = self.read(target.clone()).await?;
            let taken = take(&page.body)?;
            let next = page.header("link").and_then(link::next);
            let Some(next) = next else {
                // A new item may open a page behind a full last one and leave that one's ETag as it
                // is.
                self.confirmable &= taken.left_over || taken.on_page < per_page;
                return Ok(taken.left_over);
            };
            if taken.enough {
                return Ok(true);
            }
            target = Target(target.0, self.exchange.client.follow(next)?);
        }
        Ok(true)
    }

    /// Reads the pages of a plain list and keeps at most `max_items` of the wanted items.
    pub(super) async fn list<T: DeserializeOwned + Send>(
        &mut self,
        first: Target,
        per_page: usize,
        max_items: usize,
        wanted: impl Fn(&T) -> bool + Send + Sync,
    ) -> Result<(Vec<T>, bool)> {
        let mut items = Vec::new();
        let truncated = self
            .pages(first, per_page, |body| {
                let page: Vec<T> = parse(body)?;
                Ok(fill(&mut items, page, max_items, &wanted))
            })
            .await?;
        Ok((items, truncated))
    }

    /// Ends the call with what was read.
    pub(super) fn reply<T: Serialize>(self, output: &T) -> Result<Reply> {
        let reply = self.exchange.reply(output)?;
        match serde_json::to_string(&self.seen) {
            Ok(validator) if self.confirmable && !self.seen.is_empty() => {
                Ok(reply.with_validator(validator))
            }
            _ => Ok(reply),
        }
    }
}

/// Moves the wanted items of a page over until there are `max_items`.
pub(super) fn fill<T>(
    items: &mut Vec<T>,
    page: Vec<T>,
    max_items: usize,
    wanted: impl Fn(&T) -> bool,
) -> Taken {
    let on_page = page.len();
    let mut left_over = false;
    for item in page.into_iter().filter(wanted) {
        if items.len() < max_items {
            items.push(item);
        } else {
            left_over = true;
        }
    }
    Taken {
        on_page,
        enough: items.len() >= max_items,
        left_over,
    }
}
