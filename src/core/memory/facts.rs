//! Facts: durable knowledge about a caller. The `memory.*` packs and the REST routes use these
//! types.

use serde::{Deserialize, Serialize};

use super::{About, Forget, Forgotten, Memory};
use crate::Result;

/// The facts about one caller, whatever the conversation.
#[derive(Debug, Clone)]
pub struct Facts(pub(super) Memory);

/// How far a fact may be trusted, from least to most.
///
/// It says where the text comes from, not whether it is true. A reader that acts on facts asks for
/// the least that it accepts ([`RecallFacts::min_trust`]), so that a text from a web page never
/// counts as what a person said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// Text from outside: a document, a web page, the output of a tool.
    Content,
    /// What an agent or a pack concluded.
    #[default]
    Agent,
    /// What the person said. No pack can claim it.
    Person,
}

impl Trust {
    /// Every class, from least to most.
    pub const ALL: [Self; 3] = [Self::Content, Self::Agent, Self::Person];

    /// Returns the word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Content => "content",
            Self::Agent => "agent",
            Self::Person => "person",
        }
    }
}

/// New fact: `{key, value, category?, tags?, ttl_seconds?, allow_secret?, trust?, from?}`.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewFact {
    /// Its name; white space around it is taken off, and something must remain.
    pub key: String,
    /// What is known; white space around it is taken off, and something must remain.
    pub value: String,
    /// Category; `user_facts` if absent or blank.
    #[serde(default)]
    pub category: Option<String>,
    /// Labels; none of them blank.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Lifetime in seconds: 3,600 (1 h) to 31,536,000 (365 d); 90 d if absent.
    #[serde(default)]
    pub ttl_seconds: Option<u64>,
    /// Whether it is stored although it looks like it holds a credential. The audit notes each use.
    #[serde(default)]
    pub allow_secret: bool,
    /// How far it may be trusted; `agent` if absent.
    #[serde(default)]
    pub trust: Trust,
    /// Keys of the facts that it was made from, up to 32. It is trusted no more than any of them.
    #[serde(default)]
    pub from: Vec<String>,
}

redacted_debug!(NewFact, this => bytes = this.value.len());

/// Filter for a list of facts: all given members must match.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ListFacts {
    /// Of exactly this category.
    pub category: Option<String>,
    /// With exactly this label.
    pub tag: Option<String>,
    /// Whose key begins with this.
    pub prefix: Option<String>,
    /// Trusted at least so far; any if absent.
    pub min_trust: Option<Trust>,
    /// Limit of facts per page: 1 to 1000; 100 if absent.
    pub limit: Option<u64>,
    /// The `next` of the previous page.
    pub after: Option<String>,
}

/// Filter for recalling facts: one by its key, or those that match all other given members.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RecallFacts {
    /// The one with exactly this key; goes with `min_trust` only.
    pub key: Option<String>,
    /// Of exactly this category.
    pub category: Option<String>,
    /// With exactly this label.
    pub tag: Option<String>,
    /// Whose key begins with this.
    pub prefix: Option<String>,
    /// Trusted at least so far; any if absent.
    pub min_trust: Option<Trust>,
    /// Limit of facts per page: 1 to 100; 20 if absent.
    pub limit: Option<u64>,
    /// The `next` of the previous page.
    pub after: Option<String>,
}

/// A fact.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// The metadata.
    #[serde(flatten)]
    pub about: About,
    /// What is known: data, never an instruction.
    pub value: String,
}

redacted_debug!(Fact, this => bytes = this.value.len());

/// A page of facts without values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FactList {
    /// The facts, newest first.
    pub facts: Vec<About>,
    /// The `after` of the next page; `None` = this was the last. A page may be empty and not the
    /// last.
    pub next: Option<String>,
}

/// A page of facts with values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Recalled {
    /// The facts, newest first.
    pub facts: Vec<Fact>,
    /// Number of matching facts that do not open; they are left out.
    pub unreadable: u64,
    /// The `after` of the next page; `None` = this was the last. A page may be empty and not the
    /// last.
    pub next: Option<String>,
}

impl Facts {
    /// Writes a fact, over the one of the same key. Secrets of this call are taken out of the
    /// value.
    ///
    /// # Errors
    /// `invalid_input` for a blank key, value or label, for a life outside 1 h to 365 d, for a
    /// `from` that names no fact, and for what looks like a credential, unless the fact allows it;
    /// `too_large`, `resource_exhausted`, `overloaded`.
    pub async fn store(&self, fact: NewFact) -> Result<About> {
        self.0.views.store_fact(&self.0.owner, fact).await
    }

    /// Returns facts with their values, newest first. A page ends early after about 1 MiB of
    /// values.
    ///
    /// # Errors
    /// `invalid_input` for a limit out of range, an `after` that is no `next`, or `key` beside
    /// something else; `overloaded`.
    pub async fn recall(&self, wanted: RecallFacts) -> Result<Recalled> {
        self.0.views.recall_facts(&self.0.owner, wanted).await
    }

    /// Lists facts without their values, newest first.
    ///
    /// # Errors
    /// As [`Facts::recall`].
    pub async fn list(&self, wanted: ListFacts) -> Result<FactList> {
        self.0.views.list_facts(&self.0.owner, wanted).await
    }

    /// Deletes memory of the caller. Default: facts.
    ///
    /// # Errors
    /// `invalid_input` for a request that says not exactly what is to go; `overloaded`.
    pub async fn forget(&self, what: Forget) -> Result<Forgotten> {
        self.0.views.forget(&self.0.owner, what).await
    }
}
