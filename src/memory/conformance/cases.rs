//! List of test cases. A case that is not listed does not run, and the compiler warns.

use std::future::Future;
use std::pin::Pin;

use super::{
    Fixture, clocks, deletes, entries, eviction, hostile, limits, lists, locks, restores, room,
    walks,
};
use crate::config::{Config, Limits};

/// Test case: panics if it fails.
pub(super) type Case = Box<dyn Fn(Fixture) -> Pin<Box<dyn Future<Output = ()> + Send>>>;

macro_rules! cases {
    ($($config:expr => { $($module:ident :: $case:ident),* $(,)? })*) => {
        vec![$($((
            stringify!($module),
            stringify!($case),
            $config,
            Box::new(|subject| Box::pin($module::$case(subject)) as Pin<Box<dyn Future<Output = ()> + Send>>) as Case,
        ),)*)*]
    };
}

/// Returns every test case with its module, its name and the configuration of its store.
pub(super) fn all() -> Vec<(&'static str, &'static str, Config, Case)> {
    cases! {
        Config::default() => {
            entries::put_and_get_return_the_same_entry,
            entries::an_absent_entry_is_none,
            entries::a_replacement_keeps_created_at_and_counts_up,
            entries::an_entry_ends_at_its_time_everywhere_at_once,
            entries::a_put_over_an_ended_entry_is_a_new_one,
            entries::a_replacement_sets_the_end_anew,
            entries::compare_and_set_has_one_winner,
            entries::a_batch_is_all_or_nothing,
            entries::operations_of_a_batch_see_each_other_in_order,
            entries::concurrent_puts_are_all_there,
            entries::after_close_everything_answers_closed,
            deletes::delete_removes_one_and_absent_is_no_error,
            deletes::prefix_delete_is_literal_within_its_namespace,
            deletes::delete_by_prefix_can_mean_everybody_and_every_kind,
            deletes::delete_by_tag_finds_exactly_that_tag,
            deletes::delete_by_tag_reaches_caller_and_shared_entries,
            deletes::tags_follow_replacements,
            deletes::sweep_deletes_only_expired_entries,
            deletes::deletes_raise_the_generation_and_nothing_else_does,
            lists::newest_first_ties_by_key,
            lists::pages_join_without_gap_or_repeat,
            lists::a_page_stays_stable_while_entries_are_added,
            lists::a_prefix_is_literal_and_case_sensitive,
            lists::a_scan_goes_by_key_in_both_directions,
            lists::namespaces_are_counted_live_and_busiest_first,
            lists::namespaces_of_a_caller_are_its_own,
            lists::totals_add_up,
            lists::foreign_cursor_is_refused,
            lists::namespaces_neither_get_nor_list_each_other,
            hostile::keys_and_values_of_any_shape_come_back,
            hostile::namespaces_with_separators_stay_apart,
            hostile::texts_of_any_shape_are_any_part_of_an_entry,
            hostile::lookalike_keys_are_distinct,
            hostile::kinds_are_separate_key_spaces,
            clocks::a_clock_that_goes_back_loses_nothing,
            clocks::expiry_is_an_instant_despite_clock_changes,
            clocks::lists_follow_restored_times,
            clocks::durations_ignore_summer_time,
            clocks::no_number_of_seconds_is_too_large_for_a_time,
            clocks::times_before_1970_are_times_too,
            clocks::a_life_too_long_for_the_calendar_is_for_ever,
            clocks::no_life_at_all_is_no_life,
            locks::one_of_two_has_a_lock_until_it_is_released,
            locks::a_lock_is_free_after_its_time,
            locks::a_lock_can_be_held_on_to,
            locks::a_dropped_lock_is_free_soon,
            locks::of_many_at_once_one_gets_the_lock,
            restores::a_restored_entry_keeps_its_version_and_times,
            restores::restore_replaces_only_older_entries,
            restores::restore_ignores_expired_entries,
            restores::restored_entries_stand_in_lists_where_they_stood,
            restores::restored_version_is_clamped,
            restores::a_restored_entry_can_be_conditional,
            restores::an_entry_is_ended_and_none_that_took_its_place,
            walks::a_walk_comes_by_every_row_of_everybody_once,
            walks::a_part_of_a_walk_is_bounded_in_bytes,
            walks::foreign_mark_is_refused,
            walks::a_scan_from_the_newest_on_goes_as_a_list_goes,
            walks::a_broad_prefix_is_answered_as_a_narrow_one,
            limits::writes_over_a_limit_are_refused_whole,
            limits::the_largest_that_is_allowed_is_accepted,
        }
        Config { limits: Limits { rows: 3, ..Limits::default() }, ..Config::default() } => {
            limits::a_full_namespace_refuses_new_rows_only,
            limits::expired_entries_make_room,
        }
        Config { limits: Limits { bytes: 2000, ..Limits::default() }, ..Config::default() } => {
            limits::a_namespace_is_bounded_in_bytes,
        }
        room::small() => {
            room::full_cache_evicts_and_full_notes_refuse,
            room::a_quota_of_bytes_is_kept_by_dropping_too,
            room::refused_put_evicts_nothing,
            room::expired_entries_are_evicted_first,
        }
        eviction::few() => {
            eviction::zipf_calls_hit_as_often_as_with_lru,
            eviction::dear_answers_stay_longer_than_cheap_ones,
            eviction::unread_answers_go_before_read_ones,
            eviction::answers_that_are_all_read_are_evicted,
        }
        room::retained() => {
            room::a_kind_keeps_nothing_longer_than_its_retention,
        }
        room::capped() => {
            room::the_cache_stays_under_its_cap_and_the_oldest_go,
            room::largest_namespace_is_evicted_first,
            room::every_namespace_keeps_its_fair_share,
            room::trimming_goes_in_steps_from_the_oldest_on,
        }
    }
}
