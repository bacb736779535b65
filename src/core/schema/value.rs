//! Equality and order of JSON values as JSON Schema defines them: numbers by their value, objects
//! in any order.

use std::cmp::Ordering;
use std::hash::{BuildHasher, Hasher, RandomState};

use serde_json::{Number, Value};

use super::effort::{Effort, Unfinished, reading};

/// A number by its value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Numeric {
    Whole(i128),
    /// With a fraction, or too large for the other.
    Float(f64),
}

impl Numeric {
    pub(super) fn of(number: &Number) -> Self {
        if let Some(whole) = number.as_i64() {
            return Self::Whole(whole.into());
        }
        if let Some(whole) = number.as_u64() {
            return Self::Whole(whole.into());
        }
        let float = number.as_f64().unwrap_or(f64::NAN);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "it has no fraction and is in range"
        )]
        if float.fract() == 0.0 && float.abs() < 1e38 {
            Self::Whole(float as i128)
        } else {
            Self::Float(float)
        }
    }

    /// Returns whether JSON Schema counts it as an integer.
    pub(super) fn is_integer(self) -> bool {
        match self {
            Self::Whole(_) => true,
            Self::Float(float) => float.fract() == 0.0,
        }
    }

    pub(super) fn compare(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Whole(one), Self::Whole(other)) => one.cmp(&other),
            (Self::Float(one), Self::Float(other)) => one.total_cmp(&other),
            (Self::Whole(whole), Self::Float(float)) => against(whole, float),
            (Self::Float(float), Self::Whole(whole)) => against(whole, float).reverse(),
        }
    }
}

/// Compares a whole number with one that is not, or that is beyond all of them.
fn against(whole: i128, float: f64) -> Ordering {
    if float.abs() >= 1e38 {
        return if float > 0.0 {
            Ordering::Less
        } else {
            Ordering::Greater
        };
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "it is in range, and the fraction is looked at below"
    )]
    let floor = float.floor() as i128;
    // Its fraction is above zero.
    if whole <= floor {
        Ordering::Less
    } else {
        Ordering::Greater
    }
}

/// Returns whether two values are equal.
///
/// The work is bounded by the smaller of the two.
pub(super) fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            Numeric::of(one).compare(Numeric::of(other)).is_eq()
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .all(|(name, one)| other.get(name).is_some_and(|other| equal(one, other)))
        }
        (one, other) => one == other,
    }
}

/// Returns the units for comparing a value with another once.
pub(super) fn weight(value: &Value) -> u64 {
    match value {
        Value::String(text) => reading(text.len()),
        Value::Array(items) => 1 + items.iter().map(weight).sum::<u64>(),
        Value::Object(members) => {
            1 + members
                .iter()
                .map(|(name, member)| reading(name.len()) + weight(member))
                .sum::<u64>()
        }
        _ => 1,
    }
}

/// Returns whether no two elements are equal.
pub(super) fn are_unique(items: &[Value], effort: &mut Effort<'_>) -> Result<bool, Unfinished> {
    if items.len() < 2 {
        return Ok(true);
    }
    let keys = RandomState::new();
    let mut hashes = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        hashes.push((hash(item, &keys, effort)?, index));
    }
    effort.spend(4 * hashes.len() as u64)?;
    hashes.sort_unstable();
    for pair in hashes.windows(2) {
        // Nobody knows the keys, so equal hashes are equal values.
        if pair[0].0 == pair[1].0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Hashes a value to 128 bits, so that equal values have equal hashes.
fn hash(value: &Value, keys: &RandomState, effort: &mut Effort<'_>) -> Result<u128, Unfinished> {
    effort.spend(4)?;
    let mut parts = [keys.build_hasher(), keys.build_hasher()];
    parts[1].write_u8(1);
    let mut write = |bytes: &[u8]| parts.iter_mut().for_each(|part| part.write(bytes));
    match value {
        Value::Null => write(&[0]),
        Value::Bool(flag) => write(&[1, u8::from(*flag)]),
        Value::Number(number) => match Numeric::of(number) {
            Numeric::Whole(whole) => {
                write(&[2]);
                write(&whole.to_le_bytes());
            }
            Numeric::Float(float) => {
                write(&[3]);
                write(&float.to_bits().to_le_bytes());
            }
        },
        Value::String(text) => {
            effort.spend(reading(text.len() * 4))?;
            write(&[4]);
            write(text.as_bytes());
        }
        Value::Array(items) => {
            write(&[5]);
            for item in items {
                let inner = hash(item, keys, effort)?;
                write(&inner.to_le_bytes());
            }
        }
        Value::Object(members) => {
            write(&[6]);
            let mut inner = Vec::with_capacity(members.len());
            for (name, member) in members {
                effort.spend(reading(name.len() * 4))?;
                inner.push((name, hash(member, keys, effort)?));
            }
            inner.sort_unstable();
            for (name, member) in inner {
                write(&(name.len() as u64).to_le_bytes());
                write(name.as_bytes());
                write(&member.to_le_bytes());
            }
        }
    }
    Ok(u128::from(parts[0].finish()) << 64 | u128::from(parts[1].finish()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn unique(items: Value) -> bool {
        are_unique(items.as_array().unwrap(), &mut Effort::light()).unwrap()
    }

    #[test]
    fn numbers_are_compared_by_value() {
        let rising = [
            json!(-1e300),
            json!(-1.5),
            json!(-1),
            json!(-0.5),
            json!(0),
            json!(0.5),
            json!(9_007_199_254_740_992_u64),
            json!(9_007_199_254_740_993_u64),
            json!(u64::MAX),
            json!(1e38),
            json!(1e300),
        ];
        let of = |value: &Value| Numeric::of(value.as_number().unwrap());
        for (at, one) in rising.iter().enumerate() {
            for (other_at, other) in rising.iter().enumerate() {
                assert_eq!(
                    of(one).compare(of(other)),
                    at.cmp(&other_at),
                    "{one} {other}"
                );
                assert_eq!(equal(one, other), at == other_at);
            }
        }
        assert!(equal(&json!(1), &json!(1.0)) && equal(&json!(0), &json!(-0.0)));
        assert!(of(&json!(1e300)).is_integer() && !of(&json!(0.5)).is_integer());
    }

    #[test]
    fn unique_elements_are_those_that_differ_in_value() {
        assert!(unique(
            json!([1, "1", [1], {"a": 1}, true, null, 1.5, "", [], {}, [[]]])
        ));
        for twice in [
            json!([1, 2, 1.0]),
            json!([0, -0.0]),
            json!([{"a": 1, "b": [2]}, {"b": [2.0], "a": 1}]),
            json!([["x"], ["x"]]),
            json!([null, null]),
        ] {
            assert!(!unique(twice.clone()), "{twice}");
        }
        assert!(unique(
            json!([["a", "b"], ["ab"], [["a"], "b"], {"a": "b"}])
        ));
    }

    #[test]
    fn many_elements_take_no_square_of_work() {
        let items: Vec<Value> = (0..3_000).map(|n| json!([n, "x"])).collect();
        assert_eq!(are_unique(&items, &mut Effort::light()), Ok(true));
        let more: Vec<Value> = (0..1_000_000).map(Value::from).collect();
        assert_eq!(
            are_unique(&more, &mut Effort::light()),
            Err(Unfinished::TooMuch)
        );
        assert_eq!(are_unique(&more, &mut Effort::patient()), Ok(true));
    }
}
