//! Reads the text that `/metrics` answers (`OpenMetrics` 1.0), as far as this program writes it.

/// A metric family with its samples.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Family {
    pub(crate) name: String,
    /// `counter`, `gauge`, `histogram`, `info`, ...
    pub(crate) kind: String,
    pub(crate) unit: String,
    pub(crate) help: String,
    pub(crate) samples: Vec<Sample>,
}

/// A line with a value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    /// What follows the name of the family: `_total`, `_bucket`, or nothing.
    pub(crate) suffix: String,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) value: f64,
}

/// Returns the families, in order. A line that cannot be read is left out.
pub(crate) fn families(text: &str) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.splitn(3, ' ');
            let (Some(keyword), Some(name)) = (words.next(), words.next()) else {
                continue;
            };
            let value = words.next().unwrap_or_default();
            let family = named(&mut families, name);
            match keyword {
                "TYPE" => value.clone_into(&mut family.kind),
                "UNIT" => value.clone_into(&mut family.unit),
                "HELP" => family.help = unescaped(value),
                _ => {}
            }
        } else if let (Some(family), Some((name, labels, value))) =
            (families.last_mut(), sample(line))
            && let Some(suffix) = name.strip_prefix(family.name.as_str())
        {
            family.samples.push(Sample {
                suffix: suffix.to_owned(),
                labels,
                value,
            });
        }
    }
    families.retain(|family| !family.kind.is_empty());
    families
}

fn named<'a>(families: &'a mut Vec<Family>, name: &str) -> &'a mut Family {
    if families.last().is_none_or(|last| last.name != name) {
        families.push(Family {
            name: name.to_owned(),
            ..Family::default()
        });
    }
    let last = families.len() - 1;
    &mut families[last]
}

/// Names and values of labels.
type Labels = Vec<(String, String)>;

/// Splits `name{label="value",...} 1.5`.
fn sample(line: &str) -> Option<(&str, Labels, f64)> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, after) = rest.trim_start_matches(',').split_once("=\"")?;
            let close = closing_quote(after)?;
            labels.push((label.to_owned(), unescaped(&after[..close])));
            rest = &after[close + 1..];
        }
        rest = &rest[1..];
    }
    let value = rest.trim_start().split(' ').next()?.parse().ok()?;
    Some((name, labels, value))
}

fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes
    })
}

fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => match chars.next() {
                Some('n') => out.push('\n'),
                Some(other) => out.push(other),
                None => out.push('\\'),
            },
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_their_samples() {
        let text = "# HELP x_calls Calls.\n# TYPE x_calls counter\nx_calls_total{pack=\"a.b\",note=\"a \\\"q\\\"\\n}\"} 3\n\
                    # HELP x_took_seconds Time.\n# TYPE x_took_seconds histogram\n# UNIT x_took_seconds seconds\n\
                    x_took_seconds_sum 0.5\nx_took_seconds_bucket{le=\"+Inf\"} 2\n# TYPE x_up gauge\nx_up NaN\n# EOF\n";
        let families = families(text);
        let names: Vec<&str> = families.iter().map(|family| family.name.as_str()).collect();
        assert_eq!(names, ["x_calls", "x_took_seconds", "x_up"]);
        let [calls, took, up] = &families[..] else {
            panic!("{families:?}")
        };
        let labels = vec![
            ("pack".to_owned(), "a.b".to_owned()),
            ("note".to_owned(), "a \"q\"\n}".to_owned()),
        ];
        assert_eq!(
            calls.samples,
            [Sample {
                suffix: "_total".to_owned(),
                labels,
                value: 3.0
            }]
        );
        assert_eq!(
            (calls.kind.as_str(), calls.help.as_str()),
            ("counter", "Calls.")
        );
        assert_eq!(
            (
                took.unit.as_str(),
                took.samples.len(),
                took.samples[1].suffix.as_str()
            ),
            ("seconds", 2, "_bucket")
        );
        assert!(up.samples[0].value.is_nan());
    }
}
