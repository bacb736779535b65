//! `Debug` without texts: no log or error shows the texts of users.

/// Implements `Debug` for a type from the fields given; texts appear as their lengths only.
macro_rules! redacted_debug {
    ($type:ty, $name:literal $(, $this:ident => $($field:ident = $value:expr),+)?) => {
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $(let $this = self;)?
                f.debug_struct($name)$($(.field(stringify!($field), &$value))+)?.finish_non_exhaustive()
            }
        }
    };
}
