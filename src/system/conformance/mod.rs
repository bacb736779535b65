//! Conformance suite of the system database: it runs on every driver.
//!
//! Each test case gets new handles on one empty database: two, as of two processes.

mod counters;
pub(crate) mod jobs;
mod keys;
pub(crate) mod queue;
mod schedules;
mod tokens;
pub(crate) mod transfer;
mod vault;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use helmdeck_core::Timestamp;

use crate::system::System;

pub(crate) const NOW: Timestamp = Timestamp(1_000_000_000);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const DAY: Duration = Duration::from_secs(86_400);

/// Two handles on one database, as of two processes.
pub(crate) struct Fixture {
    pub(crate) one: System,
    pub(crate) two: System,
}

/// Test case: panics if it fails.
type Case = Box<dyn Fn(Fixture) -> Pin<Box<dyn Future<Output = ()>>>>;

macro_rules! cases {
    ($($module:ident :: $case:ident),* $(,)?) => {
        vec![$((
            concat!(stringify!($module), "::", stringify!($case)),
            Box::new(|fixture| Box::pin($module::$case(fixture)) as Pin<Box<dyn Future<Output = ()>>>) as Case,
        ),)*]
    };
}

fn all() -> Vec<(&'static str, Case)> {
    cases! {
        counters::counters_add_up_over_handles,
        counters::statistics_add_up_and_old_ones_are_deleted,
        keys::a_key_is_new_then_in_flight_then_done_then_expired,
        keys::abandoned_and_expired_keys_are_free,
        keys::one_concurrent_call_gets_the_key,
        keys::a_key_of_a_lost_run_says_so,
        keys::a_repeatable_run_is_taken_over_and_fenced,
        keys::forget_deletes_all_keys_of_one_caller,
        keys::ended_sessions_are_known_until_no_clock_takes_them,
        keys::backoffs_are_seen_until_they_end,
        keys::last_refusal_of_an_answer_is_known,
        tokens::token_is_found_by_its_text_only,
        tokens::revocation_is_shared_and_keeps_its_time,
        tokens::pages_hold_every_token_once,
        tokens::token_is_used_up_once_while_valid,
        tokens::a_use_is_noted_once_a_minute,
        tokens::tokens_are_swept_90_days_after_their_end,
        tokens::forgetting_leaves_live_tokens,
        tokens::descendants_end_with_each_ancestor,
        tokens::token_outlives_no_ancestor,
        tokens::token_reaches_itself_and_its_descendants_only,
        tokens::revocation_and_creation_at_once_leave_no_orphan,
        tokens::nobody_without_the_key_makes_or_changes_a_token,
        tokens::a_new_key_seals_tokens_anew,
        vault::nothing_is_made_by_reading,
        vault::changes_are_counted_and_seen_by_another_handle,
        vault::concurrent_changes_see_each_other,
        vault::uses_add_up_by_day_latest_first,
        vault::uses_are_swept_and_forgotten,
        jobs::reads_find_nothing_without_a_database,
        jobs::only_the_newest_state_of_its_owner_is_kept,
        jobs::late_end_needs_no_lease_but_its_own_job,
        jobs::only_ended_jobs_make_room,
        jobs::concurrent_adds_keep_the_limit,
        jobs::job_list_filters_and_pages,
        jobs::a_cancel_reaches_the_owner_of_a_live_job_only,
        jobs::jobs_end_with_their_owner_and_not_before,
        jobs::ended_jobs_are_swept_and_forgotten,
        jobs::gone_jobs_returns_missing_ids_only,
        jobs::any_text_survives_a_save,
        queue::only_a_driver_with_a_queue_takes_jobs,
        queue::claims_are_fair_and_limited_over_replicas,
        queue::concurrent_claims_give_each_job_once,
        queue::only_able_live_replicas_get_jobs,
        queue::waiting_jobs_outlive_every_replica,
        queue::lost_runs_are_queued_again_while_they_may,
        queue::released_jobs_are_fenced,
        queue::waiting_jobs_end_when_cancelled_or_expired,
        queue::claims_whose_answer_was_lost_return,
        queue::limits_of_the_queue_hold,
        schedules::each_due_time_is_taken_once,
        schedules::a_run_that_goes_on_skips_the_next,
        schedules::old_runs_are_swept_but_the_last,
    }
}

/// Runs the whole suite. Each call of `make` returns two handles on a new, empty database.
pub(crate) async fn run(make: impl Fn() -> Fixture) {
    for (name, case) in all() {
        // Shown if the case panics.
        println!("{name}");
        case(make()).await;
    }
}
