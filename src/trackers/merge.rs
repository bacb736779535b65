//! Three-way merge of an issue, field by field. Pure functions of base, ours and theirs.

use std::collections::{BTreeMap, BTreeSet};

use helmdeck_forge_documents::tracking::{CheckItem, Field, Fields, Value};

/// Result of a merge.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Merged {
    /// The values here afterwards. A field in conflict keeps ours.
    pub fields: Fields,
    /// The values that both sides had last. A field in conflict keeps the old one.
    pub base: Fields,
    /// The fields whose value the tracker lacks.
    pub push: BTreeSet<Field>,
    /// The fields that were changed on both sides, to different values.
    pub conflicts: BTreeSet<Field>,
}

/// Merges the fields that are synchronised.
///
/// Changed on one side only: that side's value. Changed on both sides to the same value: that
/// value. Changed to different values: a conflict, which is neither taken nor pushed. Labels,
/// blockers and criteria are merged element by element, and have no conflicts.
#[must_use]
pub fn merge(base: &Fields, ours: &Fields, theirs: &Fields, fields: &[Field]) -> Merged {
    let mut merged = Merged {
        fields: ours.clone(),
        base: base.clone(),
        ..Merged::default()
    };
    for field in fields.iter().copied() {
        let (was, our, their) = (base.get(field), ours.get(field), theirs.get(field));
        let value = match field {
            Field::Labels | Field::BlockedBy => Some(set(
                &base.names(field),
                &ours.names(field),
                &theirs.names(field),
            )),
            Field::Criteria => Some(criteria(
                base.criteria(),
                ours.criteria(),
                theirs.criteria(),
            )),
            _ if our == their || their == was => our.cloned(),
            _ if our == was => their.cloned(),
            _ => {
                merged.conflicts.insert(field);
                continue;
            }
        };
        let value = value.filter(|value| !value.is_empty());
        if !same(value.as_ref(), their) {
            merged.push.insert(field);
        }
        merged.fields.set(field, value);
        merged.base.set(field, their.cloned());
    }
    merged
}

/// Says whether two values are the same; the order of criteria does not count.
#[must_use]
pub fn same(one: Option<&Value>, other: Option<&Value>) -> bool {
    match (one, other) {
        (Some(Value::Criteria(one)), Some(Value::Criteria(other))) => {
            one.iter().collect::<BTreeSet<_>>() == other.iter().collect::<BTreeSet<_>>()
        }
        _ => one == other,
    }
}

/// Keeps an element that both sides have, or that one side has added; drops one that a side has
/// removed.
fn set(base: &BTreeSet<String>, ours: &BTreeSet<String>, theirs: &BTreeSet<String>) -> Value {
    let all = ours.union(theirs).filter(|one| {
        let (was, our, their) = (
            base.contains(*one),
            ours.contains(*one),
            theirs.contains(*one),
        );
        if our == their { our } else { !was }
    });
    Value::Set(all.cloned().collect())
}

/// As [`set`], by the sentence. A change of the mark wins over a removal, so that no work is lost.
fn criteria(base: &[CheckItem], ours: &[CheckItem], theirs: &[CheckItem]) -> Value {
    let by_text = |items: &[CheckItem]| -> BTreeMap<String, bool> {
        items
            .iter()
            .map(|item| (item.text.clone(), item.done))
            .collect()
    };
    let (was, our, their) = (by_text(base), by_text(ours), by_text(theirs));
    let mut seen = BTreeSet::new();
    let mut merged = Vec::new();
    for item in ours.iter().chain(theirs) {
        let text = &item.text;
        if !seen.insert(text.as_str()) {
            continue;
        }
        let done = match (was.get(text), our.get(text), their.get(text)) {
            // Without a common value, a mark that one side has set stays.
            (None, Some(our), Some(their)) => Some(*our || *their),
            (Some(was), Some(our), Some(their)) => Some(if our == was { *their } else { *our }),
            (None, Some(done), None) | (None, None, Some(done)) => Some(*done),
            (Some(was), Some(done), None) | (Some(was), None, Some(done)) => {
                (done != was).then_some(*done)
            }
            (_, None, None) => None,
        };
        merged.extend(done.map(|done| CheckItem {
            text: text.clone(),
            done,
        }));
    }
    Value::Criteria(merged)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(text: &str) -> Option<Value> {
        Some(Value::Text(text.to_owned()))
    }

    fn titled(title: &str) -> Fields {
        let mut fields = Fields::default();
        fields.set(Field::Title, text(title));
        fields
    }

    #[test]
    fn one_side_changed_wins_and_both_conflict() {
        for (base, ours, theirs, is, push, conflict) in [
            ("a", "a", "a", "a", false, false),
            ("a", "b", "a", "b", true, false),
            ("a", "a", "b", "b", false, false),
            ("a", "b", "b", "b", false, false),
            ("a", "b", "c", "b", false, true),
            ("a", "", "a", "", true, false),
            ("a", "a", "", "", false, false),
            ("", "b", "c", "b", false, true),
        ] {
            let merged = merge(&titled(base), &titled(ours), &titled(theirs), &Field::ALL);
            let found = (
                merged.fields.text(Field::Title),
                !merged.push.is_empty(),
                !merged.conflicts.is_empty(),
            );
            assert_eq!(found, (is, push, conflict), "{base} {ours} {theirs}");
            assert_eq!(
                merged.base.text(Field::Title),
                if conflict { base } else { theirs }
            );
        }
    }

    #[test]
    fn fields_that_are_not_synchronised_stay() {
        let merged = merge(&titled("a"), &titled("b"), &titled("c"), &[Field::Labels]);
        assert_eq!(
            (merged.fields, merged.push.len(), merged.conflicts.len()),
            (titled("b"), 0, 0)
        );
    }

    #[test]
    fn a_removed_criterion_that_was_marked_elsewhere_stays() {
        let items = |all: &[(&str, bool)]| {
            let items = all.iter().map(|(text, done)| CheckItem {
                text: (*text).to_owned(),
                done: *done,
            });
            let mut fields = Fields::default();
            fields.set(Field::Criteria, Some(Value::Criteria(items.collect())));
            fields
        };
        let base = items(&[("a", false), ("b", false)]);
        let merged = merge(
            &base,
            &items(&[("b", false)]),
            &items(&[("a", true), ("b", false), ("c", true)]),
            &Field::ALL,
        );
        assert_eq!(
            merged.fields,
            items(&[("b", false), ("a", true), ("c", true)])
        );
        let merged = merge(&base, &items(&[("b", true)]), &base, &Field::ALL);
        assert_eq!(merged.fields, items(&[("b", true)]));
    }

    fn fields() -> impl Strategy<Value = Fields> {
        let word = || prop::option::of(prop::sample::select(vec!["a", "b", "c"]));
        let names = || prop::collection::btree_set(prop::sample::select(vec!["x", "y", "z"]), 0..3);
        let items = prop::collection::btree_map(
            prop::sample::select(vec!["1", "2", "3"]),
            any::<bool>(),
            0..3,
        );
        (word(), word(), 0_u8..5, names(), names(), items).prop_map(
            |(title, state, priority, labels, keys, items)| {
                let mut fields = Fields::default();
                let set = |names: BTreeSet<&str>| {
                    Some(Value::Set(names.into_iter().map(str::to_owned).collect()))
                };
                fields.set(Field::Title, title.and_then(text));
                fields.set(Field::State, state.and_then(text));
                fields.set(Field::Priority, Some(Value::Number(priority)));
                fields.set(Field::Labels, set(labels));
                fields.set(Field::BlockedBy, set(keys));
                let items = items.into_iter().map(|(text, done)| CheckItem {
                    text: text.to_owned(),
                    done,
                });
                fields.set(Field::Criteria, Some(Value::Criteria(items.collect())));
                fields
            },
        )
    }

    /// The tracker after a push: the pushed fields are ours.
    fn pushed(theirs: &Fields, merged: &Merged) -> Fields {
        let mut after = theirs.clone();
        for field in &merged.push {
            after.set(*field, merged.fields.get(*field).cloned());
        }
        after
    }

    proptest! {
        #[test]
        fn a_second_round_changes_nothing(base in fields(), ours in fields(), theirs in fields()) {
            let first = merge(&base, &ours, &theirs, &Field::ALL);
            let theirs = pushed(&theirs, &first);
            let mut base = first.base.clone();
            for field in &first.push {
                base.set(*field, theirs.get(*field).cloned());
            }
            let second = merge(&base, &first.fields, &theirs, &Field::ALL);
            prop_assert_eq!(&second.fields, &first.fields);
            prop_assert_eq!(&second.conflicts, &first.conflicts);
            prop_assert!(second.push.is_empty());
            for field in Field::ALL.iter().filter(|field| !first.conflicts.contains(field)) {
                prop_assert!(same(second.fields.get(*field), theirs.get(*field)));
            }
        }

        #[test]
        fn both_sides_merge_to_the_same(base in fields(), ours in fields(), theirs in fields()) {
            let here = merge(&base, &ours, &theirs, &Field::ALL);
            let there = merge(&base, &theirs, &ours, &Field::ALL);
            prop_assert_eq!(&here.conflicts, &there.conflicts);
            for field in Field::ALL.iter().filter(|field| !here.conflicts.contains(field)) {
                prop_assert!(same(here.fields.get(*field), there.fields.get(*field)), "{}", field);
            }
        }

        #[test]
        fn no_change_of_one_side_is_lost(base in fields(), ours in fields()) {
            let pushed = merge(&base, &ours, &base, &Field::ALL);
            let pulled = merge(&base, &base, &ours, &Field::ALL);
            prop_assert!(pushed.conflicts.is_empty() && pulled.conflicts.is_empty() && pulled.push.is_empty());
            for field in Field::ALL {
                prop_assert!(same(pushed.fields.get(field), ours.get(field)));
                prop_assert!(same(pulled.fields.get(field), ours.get(field)));
            }
        }

        #[test]
        fn elements_are_added_and_removed_one_by_one(base in fields(), ours in fields(), theirs in fields()) {
            let merged = merge(&base, &ours, &theirs, &Field::ALL).fields.names(Field::Labels);
            for name in ["x", "y", "z"] {
                let [was, our, their] = [&base, &ours, &theirs].map(|side| side.names(Field::Labels).contains(name));
                let expected = if our == was { their } else { our };
                prop_assert_eq!(merged.contains(name), expected, "{}", name);
            }
        }
    }
}
