//! Keeps credentials out of the memory of a project. The rules are those of
//! [`helmdeck_core::leaks`].

mod pieces;

use crate::error::{Category, Error};
pub use helmdeck_core::leaks::{Finding, rules, scan};
pub use pieces::Pieces;

/// Returns a text for display, or a placeholder if it looks like it contains a credential.
pub fn shown(text: String) -> String {
    match scan(&text).first() {
        None => text,
        Some(Finding { rule, .. }) => {
            format!(
                "[what is wrong is not shown, for it looks as if a credential stood in it (rule {rule})]"
            )
        }
    }
}

/// The error of a write that was refused.
pub fn refuse(path: &str, first: &Finding, count: usize) -> Error {
    let Finding { rule, line, column } = first;
    let more = if count > 1 {
        format!(", and {} more", count - 1)
    } else {
        String::new()
    };
    let message = format!(
        "{path}:{line}:{column}: this looks like a credential (rule {rule}{more}): nothing was written"
    );
    Error::new(Category::Secret, "E_SECRET", message).hint(format!(
        "take it out, and replace it at its service if others could have seen it; if it is no secret, allow the rule: --allow-secret {rule}"
    ))
}

#[cfg(test)]
mod tests;
