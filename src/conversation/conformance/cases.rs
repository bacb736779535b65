//! The list of test cases. The compiler reports a case that is not listed.

use std::future::Future;
use std::pin::Pin;

use super::{
    Fixture, StoreUnderTest, basics, budgets, closing, faults, goals, identities, late_summaries,
    outages, random_operations, restarts, retention, snapshots, switches, turns, writers,
};
use crate::config::Strategy;

/// A test case; panics if it fails.
pub(super) type TestCase = Box<dyn Fn(Fixture) -> Pin<Box<dyn Future<Output = ()>>>>;

/// On which stores a test case says something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum On {
    /// On any one: what it is about happens above the store. It runs on the one in memory.
    One,
    /// On each: it is about transactions, orders, locks, lists, or rows that outlive a process.
    Every,
    /// On a file or a server; in memory `tests::random_operations` does the same more often.
    Real,
}

impl On {
    /// Says whether a case runs on this kind of store.
    pub(super) fn runs(self, store: StoreUnderTest) -> bool {
        match self {
            Self::One => store == StoreUnderTest::InMemory,
            Self::Every => true,
            Self::Real => store == StoreUnderTest::Real,
        }
    }
}

/// Every strategy.
const ALL: &[Strategy] = &Strategy::ALL;
/// Those that store turns.
const KEEPING: &[Strategy] = &[Strategy::Truncation, Strategy::RollingSummary];
const NONE: &[Strategy] = &[Strategy::None];
const ROLLING: &[Strategy] = &[Strategy::RollingSummary];

macro_rules! test_cases {
    ($($strategies:expr, $on:ident => { $($module:ident :: $test_case:ident),* $(,)? })*) => {
        vec![$($((
            stringify!($test_case),
            $strategies,
            On::$on,
            Box::new(|fixture| Box::pin($module::$test_case(fixture)) as Pin<Box<dyn Future<Output = ()>>>) as TestCase,
        ),)*)*]
    };
}

/// Returns every test case with its name, its strategies and its stores.
pub(super) fn all() -> Vec<(&'static str, &'static [Strategy], On, TestCase)> {
    test_cases! {
        ALL, One => {
            basics::a_fresh_conversation_is_empty,
            basics::flushing_what_is_not_there_is_fine,
            basics::an_empty_snapshot_goes_round,
            identities::every_method_refuses_an_incomplete_identity_with_one_event,
            identities::a_closed_memory_holds_on_to_nothing,
            snapshots::what_is_no_snapshot_is_refused,
            switches::settings_that_cannot_be_are_refused,
            closing::after_close_everything_answers_closed,
            goals::a_goal_that_is_none_is_refused,
        }
        ALL, Every => {
            identities::all_methods_at_once_on_many_conversations,
        }
        ALL, Real => {
            random_operations::any_operations_in_any_order_lose_nothing,
        }
        NONE, One => {
            basics::none_keeps_nothing,
        }
        NONE, Every => {
            switches::none_still_deletes_what_was_kept,
        }
        KEEPING, One => {
            basics::tokens_are_exact,
            basics::what_is_no_turn_is_refused_and_nothing_written,
            identities::a_run_is_accepted_and_ignored,
            budgets::a_budget_shows_the_newest_turns_that_fit,
            budgets::a_turn_over_the_budget_is_kept_whole,
            budgets::a_turn_over_the_budget_is_refused_if_that_is_wanted,
            budgets::the_newest_turn_is_always_in_sight,
            budgets::what_is_rendered_fits_its_budget,
            writers::a_read_from_memory_asks_nobody,
            writers::an_add_costs_the_same_however_long_the_conversation_is,
            faults::a_write_that_fails_changes_nothing,
            faults::a_lost_answer_loses_and_doubles_nothing,
            faults::a_read_that_fails_is_an_error_and_no_empty_conversation,
            switches::other_settings_over_the_same_conversation_lose_nothing,
            turns::ids_never_change,
            turns::what_an_administrator_does_is_told,
            turns::restored_turns_are_items,
            snapshots::a_snapshot_restores_what_did_not_fit,
            snapshots::a_snapshot_of_the_original_comes_out_byte_for_byte,
            snapshots::the_fixtures_come_out_byte_for_byte,
            retention::a_conversation_is_bounded_in_bytes,
            closing::nothing_goes_on_after_a_close,
            goals::the_goal_is_in_sight_in_every_state,
            goals::a_deleted_opening_leaves_the_next,
        }
        KEEPING, Every => {
            basics::turns_come_back_whole_and_in_order,
            basics::a_flush_leaves_nothing_of_anybody_but_the_others,
            identities::conversations_never_see_each_other,
            identities::conversations_of_everybody_are_listed,
            writers::writers_of_one_conversation_lose_nothing,
            writers::two_processes_lose_nothing_of_each_other,
            writers::what_another_process_wrote_is_seen_in_time,
            writers::a_turn_that_was_named_is_added_once,
            restarts::a_crash_at_any_write_loses_nothing,
            restarts::a_restart_changes_nothing,
            faults::a_caller_that_goes_away_leaves_nothing_half_done,
            switches::another_strategy_overwrites_nothing,
            turns::deletes_and_adds_at_once_lose_nothing_of_each_other,
            turns::items_are_listed_newest_first_in_pages,
            turns::a_search_finds_what_was_said,
            snapshots::a_snapshot_restores_what_was_seen,
            snapshots::a_restore_leaves_nothing_behind,
            snapshots::a_large_restore_is_all_or_nothing,
            retention::the_oldest_turns_go_first,
            retention::an_idle_conversation_ends,
            goals::a_pinned_goal_replaces_the_opening,
        }
        KEEPING, Real => {
            random_operations::any_operations_of_two_processes_lose_nothing,
        }
        &[Strategy::Truncation], One => {
            budgets::without_a_budget_everything_is_in_sight,
        }
        ROLLING, One => {
            basics::older_turns_are_folded_by_themselves,
            budgets::a_rolling_context_fits_its_budget,
            budgets::a_summary_over_its_limit_is_cut_and_told,
            budgets::a_summary_that_fits_when_asked_again_is_whole,
            budgets::turns_that_do_not_fit_are_folded_though_they_are_few,
            outages::an_outage_loses_nothing,
            outages::a_failure_is_tried_again,
            outages::what_is_no_summary_never_becomes_one,
            outages::a_backlog_over_its_cap_loses_nothing,
            outages::recovery_goes_batch_by_batch,
            outages::nobody_waits_for_a_summary,
            outages::nobody_leaves_a_recovery_behind,
            late_summaries::a_late_recovery_is_thrown_away,
            late_summaries::a_late_failure_changes_no_health,
            faults::a_summary_that_cannot_be_stored_is_not_lost,
            closing::close_does_not_wait_for_a_summarizer_that_hangs,
            goals::a_goal_pinned_during_a_summary_is_kept,
        }
        ROLLING, Every => {
            outages::conversations_are_folded_side_by_side_and_bounded,
            restarts::health_survives_a_restart_in_every_state,
            restarts::what_waits_is_folded_after_a_restart,
            late_summaries::a_late_summary_is_thrown_away,
            late_summaries::a_late_summary_stays_out_of_a_conversation_begun_anew,
            late_summaries::a_deleted_turn_is_gone_from_the_summary,
            retention::a_summary_outlives_its_turns,
        }
    }
}
