//! Tables for people: a line of headings, then rows.

use helmdeck_core::text::columns;

/// Writes a table with aligned columns.
pub(crate) fn table<const N: usize>(
    headings: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let rows = rows.into_iter().map(|row| row.to_vec());
    columns(
        &std::iter::once(headings.map(str::to_owned).to_vec())
            .chain(rows)
            .collect::<Vec<_>>(),
    )
}
