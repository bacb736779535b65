//! Charts as SVG, made here: bars by slot of time, without a script and without a style in the
//! page.

use std::fmt::Write;

use askama::filters::Escaper;

use crate::escape::Visible;

/// Width and height of the drawing. The style sheet scales it.
const SIZE: (u64, u64) = (600, 100);

/// Bar of a chart: a slot of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bar {
    /// What a reader sees when pointing at it.
    pub(crate) title: String,
    /// The whole bar.
    pub(crate) value: u64,
    /// The part of it that stands out, at the bottom.
    pub(crate) marked: u64,
}

/// Draws bars, scaled to the highest. `title` says in words what the chart shows, `class` how it
/// looks.
pub(crate) fn bars(class: &str, title: &str, bars: &[Bar]) -> String {
    let (width, height) = SIZE;
    let most = bars.iter().map(|bar| bar.value).max().unwrap_or(0).max(1);
    let count = (bars.len() as u64).max(1);
    let scaled = |value: u64| value.saturating_mul(height).div_ceil(most).min(height);
    let mut svg = format!(
        "<svg class=\"chart {class}\" viewBox=\"0 0 {width} {height}\" preserveAspectRatio=\"none\" role=\"img\">"
    );
    // Writing to a String cannot fail.
    let _ = write!(svg, "<title>{}</title>", escaped(title));
    for (index, bar) in (0_u64..).zip(bars) {
        if bar.value == 0 {
            continue;
        }
        let (x, next) = (index * width / count, (index + 1) * width / count);
        let (w, tall, marked) = (
            (next - x).saturating_sub(1).max(1),
            scaled(bar.value),
            scaled(bar.marked),
        );
        let _ = write!(svg, "<g><title>{}</title>", escaped(&bar.title));
        let _ = write!(
            svg,
            "<rect x=\"{x}\" y=\"{}\" width=\"{w}\" height=\"{tall}\"/>",
            height - tall
        );
        if bar.marked > 0 {
            let y = height - marked;
            let _ = write!(
                svg,
                "<rect class=\"marked\" x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{marked}\"/>"
            );
        }
        svg.push_str("</g>");
    }
    svg.push_str("</svg>");
    svg
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let _ = Visible.write_escaped_str(&mut out, text);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(title: &str, value: u64, marked: u64) -> Bar {
        Bar {
            title: title.to_owned(),
            value,
            marked,
        }
    }

    #[test]
    fn highest_bar_fills_the_chart() {
        let svg = bars(
            "calls",
            "Calls",
            &[bar("a", 10, 0), bar("b", 0, 0), bar("c", 5, 1)],
        );
        assert!(
            svg.contains(
                "<g><title>a</title><rect x=\"0\" y=\"0\" width=\"199\" height=\"100\"/></g>"
            ),
            "{svg}"
        );
        assert!(
            svg.contains("<rect class=\"marked\" x=\"400\" y=\"90\" width=\"199\" height=\"10\"/>"),
            "{svg}"
        );
        assert!(
            !svg.contains("<title>b</title>") && svg.matches("<g>").count() == 2,
            "{svg}"
        );
    }

    #[test]
    fn titles_are_escaped_and_nothing_is_styled() {
        let svg = bars("calls", "<b>", &[bar("\"><script>", u64::MAX, 3)]);
        assert!(
            !svg.contains("<script") && !svg.contains("<b>") && !svg.contains("style"),
            "{svg}"
        );
        assert!(bars("calls", "none", &[]).contains("<title>none</title></svg>"));
    }
}
