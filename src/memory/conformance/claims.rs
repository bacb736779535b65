//! The list of claims. A claim that is not listed here is not run, and the compiler says so.

use std::future::Future;
use std::pin::Pin;

use super::{Subject, deletes, entries, hostile, limits, lists};
use crate::config::{Config, Limits};

/// A claim: panics if it does not hold.
pub(super) type Claim = Box<dyn Fn(Subject) -> Pin<Box<dyn Future<Output = ()> + Send>>>;

macro_rules! claims {
    ($($config:expr => { $($module:ident :: $claim:ident),* $(,)? })*) => {
        vec![$($((
            stringify!($claim),
            $config,
            Box::new(|subject| Box::pin($module::$claim(subject)) as Pin<Box<dyn Future<Output = ()> + Send>>) as Claim,
        ),)*)*]
    };
}

/// Returns every claim with its name and the configuration that its store needs.
pub(super) fn all() -> Vec<(&'static str, Config, Claim)> {
    claims! {
        Config::default() => {
            entries::a_put_comes_back_whole,
            entries::an_absent_entry_is_none,
            entries::a_replacement_keeps_created_at_and_counts_up,
            entries::an_entry_ends_at_its_time_everywhere_at_once,
            entries::a_put_over_an_ended_entry_is_a_new_one,
            entries::a_replacement_sets_the_end_anew,
            entries::a_life_too_long_for_the_calendar_is_for_ever,
            entries::a_clock_that_goes_back_loses_nothing,
            entries::compare_and_set_has_one_winner,
            entries::a_batch_is_all_or_nothing,
            entries::operations_of_a_batch_see_each_other_in_order,
            entries::concurrent_puts_are_all_there,
            entries::after_close_everything_answers_closed,
            deletes::delete_removes_one_and_absent_is_no_error,
            deletes::delete_by_prefix_is_literal_and_stays_in_its_namespace,
            deletes::delete_by_prefix_can_mean_everybody_and_every_kind,
            deletes::delete_by_tag_finds_exactly_that_tag,
            deletes::tags_follow_replacements,
            deletes::the_sweep_takes_only_what_has_ended,
            deletes::deletes_raise_the_generation_and_nothing_else_does,
            lists::newest_first_ties_by_key,
            lists::pages_join_without_gap_or_repeat,
            lists::a_page_stays_stable_while_entries_are_added,
            lists::a_prefix_is_literal_and_case_sensitive,
            lists::a_scan_goes_by_key_in_both_directions,
            lists::namespaces_are_counted_live_and_busiest_first,
            lists::totals_add_up,
            lists::a_cursor_of_nobody_is_refused,
            hostile::keys_and_values_of_any_shape_come_back,
            hostile::namespaces_with_separators_stay_apart,
            hostile::kinds_are_separate_key_spaces,
            limits::what_is_too_large_is_refused_and_nothing_written,
            limits::the_largest_that_is_allowed_is_accepted,
        }
        Config { limits: Limits { rows: 3, ..Limits::default() }, ..Config::default() } => {
            limits::a_full_namespace_refuses_new_rows_only,
            limits::what_has_ended_makes_room,
        }
        Config { limits: Limits { bytes: 2000, ..Limits::default() }, ..Config::default() } => {
            limits::a_namespace_is_bounded_in_bytes,
        }
    }
}
