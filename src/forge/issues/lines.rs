//! Issues in a few lines, for people.

use super::Issue;

/// Returns an issue on one line: `LOCAL-1 Fix the login (bug, urgent, Open)`.
#[must_use]
pub fn line(issue: &Issue) -> String {
    let mut about: Vec<&str> = issue.kind.as_deref().into_iter().collect();
    about.extend(priority(issue.priority));
    about.extend(issue.state.as_deref());
    about.extend(issue.owner());
    let about = match about.is_empty() {
        true => String::new(),
        false => format!(" ({})", about.join(", ")),
    };
    format!("{} {}{about}", issue.linear_id, issue.title)
}

/// Returns a priority in words.
#[must_use]
pub const fn priority(number: Option<u8>) -> Option<&'static str> {
    match number {
        Some(1) => Some("urgent"),
        Some(2) => Some("high"),
        Some(3) => Some("normal"),
        Some(4) => Some("low"),
        _ => None,
    }
}

/// Returns the criteria of an issue, a line for each.
#[must_use]
pub fn criteria(issue: &Issue) -> Vec<String> {
    (1..)
        .zip(&issue.acceptance_criteria)
        .map(|(number, criterion)| {
            let mark = if criterion.is_done() { 'x' } else { ' ' };
            format!("  {number}. [{mark}] {}", criterion.text())
        })
        .collect()
}
