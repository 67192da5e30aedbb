//! Reads pages of metrics, in the text format 0.0.4 and in OpenMetrics.

use std::collections::BTreeMap;

/// The labels of a series, with its name as `__name__`. Empty labels are left out, as Prometheus does.
pub(super) type Series = BTreeMap<String, String>;

pub(super) const NAME: &str = "__name__";

#[derive(Debug, Default, PartialEq)]
pub(super) struct Page {
    /// Type by name of the metric.
    pub(super) types: BTreeMap<String, String>,
    pub(super) samples: BTreeMap<Series, f64>,
}

impl Page {
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let mut page = Self::default();
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(comment) = line.strip_prefix('#') {
                if let Some((name, kind)) = comment
                    .strip_prefix(" TYPE ")
                    .and_then(|typed| typed.split_once(' '))
                {
                    page.types.insert(name.to_owned(), kind.to_owned());
                }
                continue;
            }
            let (series, value) = sample(line).ok_or_else(|| format!("no sample: {line}"))?;
            if page.samples.insert(series, value).is_some() {
                return Err(format!("a series occurs twice: {line}"));
            }
        }
        Ok(page)
    }
}

/// Sets a label in the form in which series are compared. Bounds of buckets are numbers: Prometheus 3 writes them in its own
/// way.
pub(super) fn set(series: &mut Series, name: &str, value: &str) {
    if value.is_empty() {
        return;
    }
    let value = match value.parse::<f64>() {
        Ok(bound) if name == "le" => bound.to_string(),
        _ => value.to_owned(),
    };
    series.insert(name.to_owned(), value);
}

/// Reads a line such as `name{label="value"} 1`. An exemplar after the value is not read.
fn sample(line: &str) -> Option<(Series, f64)> {
    let (name, mut rest) = line.split_at(line.find(['{', ' '])?);
    let mut series = Series::new();
    set(&mut series, NAME, name);
    if let Some(labels) = rest.strip_prefix('{') {
        rest = read_labels(labels, &mut series)?;
    }
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some((series, value))
}

/// Reads labels up to the closing bracket. Returns the text after it.
fn read_labels<'t>(mut text: &'t str, series: &mut Series) -> Option<&'t str> {
    loop {
        if let Some(rest) = text.strip_prefix('}') {
            return Some(rest);
        }
        let (name, quoted) = text.split_once("=\"")?;
        let (value, rest) = unquoted(quoted)?;
        set(series, name.trim_start_matches(','), &value);
        text = rest;
    }
}

/// Reads a value up to its closing quote. Returns the value and the text after the quote.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match letters.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(labels: &[(&str, &str)]) -> Series {
        let mut series = Series::new();
        for (name, value) in labels {
            set(&mut series, name, value);
        }
        series
    }

    #[test]
    fn both_text_formats_are_read() {
        let text = "# HELP a Some { text }\n# TYPE a counter\na_total{x=\"}\\\"\\\\\\n\",y=\"\"} 1e3\n\
                    # TYPE b histogram\nb_bucket{le=\"5\"} 2 # {trace_id=\"f\"} 3 1.5\nb_bucket{le=\"+Inf\"} 3\nc -0.5\n# EOF\n";
        let page = Page::read(text).expect("a page");
        let kinds = [("a", "counter"), ("b", "histogram")];
        assert!(
            page.types
                .iter()
                .map(|(name, kind)| (name.as_str(), kind.as_str()))
                .eq(kinds)
        );
        let samples = BTreeMap::from([
            (series(&[(NAME, "a_total"), ("x", "}\"\\\n")]), 1000.0),
            (series(&[(NAME, "b_bucket"), ("le", "5.0")]), 2.0),
            (series(&[(NAME, "b_bucket"), ("le", "+Inf")]), 3.0),
            (series(&[(NAME, "c")]), -0.5),
        ]);
        assert_eq!(page.samples, samples);
    }

    #[test]
    fn what_is_no_page_is_refused() {
        for text in ["a", "a{", "a{b=\"", "a{b=\"c\" 1", "a x", "a 1\na 2"] {
            assert!(Page::read(text).is_err(), "{text}");
        }
    }
}
