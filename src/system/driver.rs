//! Driver of the system database: one trait for each kind of rows, and all of them together.
//!
//! A driver keeps rows and decides who comes first. Digests, random parts and defaults are made by
//! [`System`](crate::System). Reading never creates the database: without one it finds nothing.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use helmdeck_core::Timestamp;
use helmdeck_memory::Result;

use crate::counters::Counter;
use crate::idempotency::{Begun, Fence};
use crate::jobs::{EndedJob, JobFilter, JobRow, LostErrors, LostJobs};
use crate::queue::{Accepted, Claim, ClaimId, ClaimedJob, JobLimits, QueuedCall};
use crate::replica::Lease;
use crate::schedules::{DueRun, Scheduled};
use crate::statistics::Statistic;
use crate::tokens::{ApiToken, TokenQuery, TokenReach};
use crate::transfer::TableRows;
use crate::vault::{VaultChange, VaultRow, VaultState, VaultUse};

/// All rows of the system database.
#[async_trait]
pub(crate) trait Driver:
    Debug
    + Send
    + Sync
    + CounterRows
    + StatisticRows
    + KeyRows
    + TokenRows
    + VaultRows
    + JobRows
    + QueueRows
    + TableRows
{
    /// Returns the location, without secrets.
    fn location(&self) -> String;

    /// Returns whether the database exists.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    async fn exists(&self) -> Result<bool>;

    /// Returns the number of processes that are known to be alive; `None` if the driver is not for
    /// replicas.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    async fn live_replicas(&self) -> Result<Option<u64>>;

    /// Makes this process known as one that is alive, under a new id, until the lease is dropped.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    async fn join(&self) -> Result<Arc<dyn Lease>>;

    /// Deletes expired rows of every kind, and returns how many.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    async fn sweep(&self, ended: SweepTimes) -> Result<u64>;
}

/// Times before which rows are swept, in microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SweepTimes {
    /// Idempotency keys and jobs that expired by then.
    pub(crate) now: i64,
    /// Uses of credentials before then.
    pub(crate) uses: i64,
    /// Tokens that ended before then.
    pub(crate) tokens: i64,
    /// Runs of schedules before then, but for the last one of each pack.
    pub(crate) schedules: i64,
}

/// Counters of the cache.
#[async_trait]
pub(crate) trait CounterRows {
    /// Adds to counters.
    async fn add_counters(&self, counters: Vec<Counter>) -> Result<()>;

    /// Returns every counter, by pack and name.
    async fn counters(&self) -> Result<Vec<Counter>>;
}

/// Statistics of calls.
#[async_trait]
pub(crate) trait StatisticRows {
    /// Adds to statistics, and deletes slots before the oldest of their length. Creates no
    /// database.
    async fn add_statistics(&self, rows: Vec<Statistic>, oldest: Vec<(u32, i64)>) -> Result<()>;

    /// Returns all statistics.
    async fn statistics(&self) -> Result<Vec<Statistic>>;
}

/// Idempotency keys.
#[async_trait]
pub(crate) trait KeyRows {
    /// Takes a key, or returns its state.
    async fn begin_key(&self, taking: TakeKey) -> Result<Begun>;

    /// Writes the end of a call, if its run still has the key; returns whether it has.
    async fn finish_key(
        &self,
        key: KeyName,
        fence: Fence,
        answer: Option<Vec<u8>>,
        expires_at: Timestamp,
    ) -> Result<bool>;

    /// Frees a key that its run still has.
    async fn abandon_key(&self, key: KeyName, fence: Fence) -> Result<()>;

    /// Writes a key that belongs to no run, or its new end.
    async fn mark_key(&self, key: KeyName, expires_at: Timestamp) -> Result<()>;

    /// Returns which of these keys of a scope are taken and have not expired.
    async fn taken_keys(
        &self,
        scope: String,
        keys: Vec<String>,
        now: Timestamp,
    ) -> Result<Vec<String>>;

    /// Returns the keys of a scope that have not expired, with their ends; at most `limit`.
    async fn key_ends(
        &self,
        scope: String,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<(String, Timestamp)>>;

    /// Deletes every key of a caller's digest, and returns how many.
    async fn forget_keys(&self, caller: String) -> Result<u64>;
}

/// Name of an idempotency key.
#[derive(Debug, Clone)]
pub(crate) struct KeyName {
    /// Caller and operation.
    pub(crate) scope: String,
    /// The key.
    pub(crate) key: String,
}

/// Request for an idempotency key.
#[derive(Debug, Clone)]
pub(crate) struct TakeKey {
    /// The key.
    pub(crate) name: KeyName,
    /// Digest of the request.
    pub(crate) digest: Vec<u8>,
    /// The replica that runs the call.
    pub(crate) owner: Arc<str>,
    /// The run.
    pub(crate) fence: Fence,
    /// The time.
    pub(crate) now: Timestamp,
    /// End of the key, if it is neither finished nor abandoned.
    pub(crate) expires_at: Timestamp,
    /// Take the key of a run whose replica is gone.
    pub(crate) repeatable: bool,
}

/// API tokens.
#[async_trait]
pub(crate) trait TokenRows {
    /// Writes a new token with the digest of its secret; `false` if an ancestor has ended or
    /// expires before the token.
    ///
    /// An ancestor that is revoked at the same time revokes the token, or prevents it.
    async fn insert_token(
        &self,
        token: ApiToken,
        digest: [u8; 32],
        seal: Option<Vec<u8>>,
    ) -> Result<bool>;

    /// Returns the token of an id.
    async fn token(&self, id: String) -> Result<Option<TokenRow>>;

    /// Returns the head with its generation; `None` without a database.
    async fn token_head(&self) -> Result<Option<(u64, Option<Vec<u8>>)>>;

    /// Writes the first head. One that is there stays.
    async fn first_token_head(&self, head: Vec<u8>) -> Result<()>;

    /// Changes head and seals in one transaction, which no other change of the head can be between.
    async fn seal_tokens(&self, decide: DecideSeals) -> Result<()>;

    /// Returns every token, oldest first.
    async fn tokens(&self) -> Result<Vec<ApiToken>>;

    /// Returns a page of tokens, newest first.
    async fn token_page(&self, query: TokenQuery) -> Result<Vec<ApiToken>>;

    /// Revokes a valid token as its only use; `false` if it is not valid.
    async fn use_up_token(&self, id: String, now: Timestamp, next: NextHead) -> Result<bool>;

    /// Revokes a token within a reach with its descendants; `false` if there is none. The first
    /// time stays.
    async fn revoke_token(
        &self,
        id: String,
        reach: TokenReach,
        now: Timestamp,
        next: NextHead,
    ) -> Result<bool>;

    /// Deletes the ended tokens of a caller; returns how many it deleted and how many are left.
    async fn forget_ended_tokens(
        &self,
        tenant: String,
        subject: String,
        now: Timestamp,
    ) -> Result<(u64, u64)>;

    /// Writes the time of a use, if the last one is not after `last`.
    async fn token_used(&self, id: String, now: Timestamp, last: i64) -> Result<()>;
}

/// A token as it is stored.
#[derive(Debug)]
pub(crate) struct TokenRow {
    pub(crate) token: ApiToken,
    /// Digest of its secret.
    pub(crate) digest: Vec<u8>,
    pub(crate) seal: Option<Vec<u8>>,
    /// Grows with every change of the head.
    pub(crate) generation: u64,
}

/// A token that ends: its id, and when it would have expired, in microseconds.
pub(crate) type Ended = (String, Option<i64>);

/// Makes the next head from the one that is stored, when tokens end; `None` = it stays.
pub(crate) type NextHead = Arc<dyn Fn(Option<&[u8]>, &[Ended]) -> Option<Vec<u8>> + Send + Sync>;

/// A change of the seals of tokens.
#[derive(Debug)]
pub(crate) struct TokenSeals {
    pub(crate) head: Vec<u8>,
    /// By id.
    pub(crate) rows: Vec<(String, Vec<u8>)>,
}

/// Decides on new seals, from the head and the tokens. It is called at most once.
pub(crate) type DecideSeals =
    Box<dyn FnOnce(Option<&[u8]>, Vec<TokenRow>) -> Result<Option<TokenSeals>> + Send>;

/// Decides on a change of the vault, from its state and rows. It is called at most once.
pub(crate) type Decide = Box<dyn FnOnce(&VaultState, Vec<VaultRow>) -> Option<VaultChange> + Send>;

/// The vault.
#[async_trait]
pub(crate) trait VaultRows {
    /// Returns the number that grows with every change.
    async fn vault_generation(&self) -> Result<u64>;

    /// Returns state and rows of one moment.
    async fn vault(&self) -> Result<(VaultState, Vec<VaultRow>)>;

    /// Changes the vault in one transaction, which no other change can be between.
    async fn change_vault(&self, decide: Decide) -> Result<()>;

    /// Adds to the use log.
    async fn add_vault_uses(&self, uses: Vec<VaultUse>) -> Result<()>;

    /// Deletes the use log of a caller.
    async fn forget_vault_uses(&self, tenant: String, subject: String) -> Result<u64>;

    /// Returns the use log of one credential or of all, of one caller or of all, latest first.
    async fn vault_uses(
        &self,
        name: Option<String>,
        caller: Option<(String, String)>,
        limit: usize,
    ) -> Result<Vec<VaultUse>>;
}

/// Jobs.
#[async_trait]
pub(crate) trait JobRows {
    /// Writes a new job, unless its caller has `limit` unfinished jobs. The caller's oldest ended
    /// jobs make room.
    ///
    /// `Unavailable` if the lease of its owner is over.
    async fn add_job(&self, row: JobRow, limit: u64) -> Result<bool>;

    /// Saves jobs of an owner, with their results; `false` if its lease is over: then nothing is
    /// written.
    async fn save_jobs(
        &self,
        owner: Arc<str>,
        rows: Vec<(JobRow, Option<Vec<u8>>)>,
    ) -> Result<bool>;

    /// Writes the end of a job of its owner, whether that is alive or not, unless the job has
    /// another end.
    async fn end_job(&self, end: EndedJob) -> Result<()>;

    /// Returns a job that has not expired.
    async fn job(&self, id: String, now: Timestamp) -> Result<Option<JobRow>>;

    /// Returns the sealed result of a job.
    async fn job_result(&self, id: String) -> Result<Option<Vec<u8>>>;

    /// Returns the ids without a row.
    async fn gone_jobs(&self, ids: Vec<String>) -> Result<Vec<String>>;

    /// Lists jobs that have not expired, newest first.
    async fn jobs(&self, filter: JobFilter, limit: usize, now: Timestamp) -> Result<Vec<JobRow>>;

    /// Asks for the end of a job; returns whether it exists and has not ended. One without a
    /// replica ends at once.
    async fn ask_to_cancel_job(
        &self,
        id: String,
        now: Timestamp,
        expires_at: Timestamp,
    ) -> Result<bool>;

    /// Returns the unfinished jobs of an owner that shall end.
    async fn jobs_to_cancel(&self, owner: String) -> Result<Vec<String>>;

    /// Queues or ends every job whose owner is gone, and ends those that nobody took.
    async fn end_lost_jobs(
        &self,
        errors: LostErrors,
        now: Timestamp,
        expires_at: Timestamp,
    ) -> Result<LostJobs>;

    /// Deletes the ended jobs of a caller; returns how many it deleted and how many are left.
    async fn forget_ended_jobs(&self, tenant: String, subject: String) -> Result<(u64, u64)>;
}

/// The queue that replicas share. A driver without one refuses to queue, and has nothing to claim.
#[async_trait]
pub(crate) trait QueueRows {
    /// Returns whether there is one.
    fn has_queue(&self) -> bool;

    /// Writes a new job for any replica, unless its caller or the queue has too many.
    async fn queue_job(&self, row: JobRow, call: QueuedCall, limits: JobLimits)
    -> Result<Accepted>;

    /// Gives jobs to a replica; none if its lease is over.
    async fn claim_jobs(&self, claim: Claim) -> Result<Vec<ClaimedJob>>;

    /// Queues running jobs of a replica again, each with its last revision, and returns the ids of
    /// those that may run again; none if its lease is over. They wait until `expires_at`.
    async fn release_jobs(
        &self,
        owner: Arc<str>,
        jobs: Vec<(String, u64)>,
        expires_at: Timestamp,
    ) -> Result<Vec<String>>;

    /// Queues the jobs of claims again, which have not begun; returns how many.
    async fn return_claims(&self, claims: Vec<ClaimId>) -> Result<u64>;

    /// Takes a due time of a schedule, and writes the job of its run, in one transaction.
    async fn run_schedule(&self, run: DueRun) -> Result<Scheduled>;
}
