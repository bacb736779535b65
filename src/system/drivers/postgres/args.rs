//! Parameters of statements with their types, so that no statement has to be prepared on the server
//! first.

use tokio_postgres::types::{ToSql, Type};

/// A value whose type in PostgreSQL is known.
pub(super) trait Typed {
    /// Returns the type.
    fn sql_type() -> Type;
}

macro_rules! typed {
    ($($of:ty => $name:ident),* $(,)?) => {
        $(impl Typed for $of {
            fn sql_type() -> Type {
                Type::$name
            }
        })*
    };
}

typed! {
    bool => BOOL,
    f64 => FLOAT8,
    i64 => INT8,
    str => TEXT,
    String => TEXT,
    [u8] => BYTEA,
    Vec<u8> => BYTEA,
    Vec<i64> => INT8_ARRAY,
    Vec<Option<i64>> => INT8_ARRAY,
    Vec<Option<f64>> => FLOAT8_ARRAY,
    Vec<String> => TEXT_ARRAY,
    Vec<Option<String>> => TEXT_ARRAY,
    Vec<&str> => TEXT_ARRAY,
    Vec<Option<&[u8]>> => BYTEA_ARRAY,
    Vec<Vec<u8>> => BYTEA_ARRAY,
}

impl<T: Typed> Typed for Option<T> {
    fn sql_type() -> Type {
        T::sql_type()
    }
}

impl<T: Typed + ?Sized> Typed for &T {
    fn sql_type() -> Type {
        T::sql_type()
    }
}

/// Returns a parameter with its type.
pub(super) fn arg<T: Typed + ToSql + Sync>(value: &T) -> (&(dyn ToSql + Sync), Type) {
    (value, T::sql_type())
}

/// Lists parameters for the `_typed` methods of a connection.
macro_rules! args {
    ($($value:expr),* $(,)?) => {
        &[$($crate::drivers::postgres::args::arg(&$value)),*]
    };
}
pub(super) use args;
