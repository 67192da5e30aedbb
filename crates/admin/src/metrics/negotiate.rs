//! The format and the compression that a scraper accepts.

use services::metrics::Format;

/// Maximum number of alternatives that are looked at in a header.
const MAX_ALTERNATIVES: usize = 32;

/// Returns the format that the client prefers. If it prefers none, the text format, as in Kong. Prometheus asks for
/// protobuf only if it is to store native histograms.
pub(super) fn format(accept: Option<&str>, offers_openmetrics: bool) -> Format {
    let mut best = (0.0, Format::Text);
    for (name, parameters) in alternatives(accept) {
        let format = match name {
            "application/vnd.google.protobuf" if is_of_metrics(parameters) => Format::Protobuf,
            "application/openmetrics-text" if offers_openmetrics => Format::OpenMetrics,
            "text/plain" | "text/*" | "*/*" => Format::Text,
            _ => continue,
        };
        let quality = quality(parameters);
        if quality > best.0 {
            best = (quality, format);
        }
    }
    best.1
}

pub(super) fn accepts_gzip(accept_encoding: Option<&str>) -> bool {
    let mut gzip = alternatives(accept_encoding).filter(|(name, _)| *name == "gzip");
    gzip.next()
        .is_some_and(|(_, parameters)| quality(parameters) > 0.0)
}

/// Whether a type of protobuf is the one of Prometheus.
fn is_of_metrics(parameters: &str) -> bool {
    let is = |name, value| parameter(parameters, name) == Some(value);
    is("proto", "io.prometheus.client.MetricFamily") && is("encoding", "delimited")
}

/// Returns the alternatives in a header, each with its parameters.
fn alternatives(header: Option<&str>) -> impl Iterator<Item = (&str, &str)> {
    let alternatives = header.unwrap_or_default().split(',').take(MAX_ALTERNATIVES);
    alternatives.map(|alternative| {
        let (name, parameters) = alternative.split_once(';').unwrap_or((alternative, ""));
        (name.trim(), parameters)
    })
}

fn quality(parameters: &str) -> f64 {
    let quality = parameter(parameters, "q").map(str::parse);
    match quality {
        None => 1.0,
        Some(Ok(quality)) if (0.0..=1.0).contains(&quality) => quality,
        Some(_) => 0.0,
    }
}

fn parameter<'a>(parameters: &'a str, name: &str) -> Option<&'a str> {
    parameters.split(';').find_map(|parameter| {
        let (known, value) = parameter.split_once('=')?;
        (known.trim() == name).then(|| value.trim().trim_matches('"'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Prometheus 2.42 and 3.16 send by default, and what 2.42 and 3.16 send if they store native histograms.
    const PROMETHEUS_2: &str = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
    const PROMETHEUS_3: &str = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.7,application/openmetrics-text;version=0.0.1;q=0.6,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.3";
    const NATIVE_2: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
    const NATIVE_3: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";

    #[test]
    fn prometheus_gets_the_format_that_keeps_the_names() {
        for accept in [PROMETHEUS_2, PROMETHEUS_3] {
            assert_eq!(format(Some(accept), false), Format::Text);
            assert_eq!(format(Some(accept), true), Format::OpenMetrics);
        }
        for accept in [NATIVE_2, NATIVE_3] {
            for offers in [false, true] {
                assert_eq!(format(Some(accept), offers), Format::Protobuf);
            }
        }
    }

    #[test]
    fn what_is_not_understood_gets_text() {
        for accept in [
            None,
            Some(""),
            Some("*/*"),
            Some("text/html"),
            Some("application/vnd.google.protobuf"),
            Some(
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text",
            ),
            Some("application/openmetrics-text;q=0"),
            Some("application/openmetrics-text;q=x"),
            Some(",;=,;q"),
        ] {
            assert_eq!(format(accept, true), Format::Text, "{accept:?}");
        }
    }

    #[test]
    fn a_client_is_sent_gzip_only_if_it_accepts_it() {
        for (accept, expected) in [
            (None, false),
            (Some("gzip"), true),
            (Some("deflate, gzip;q=0.5"), true),
            (Some("gzip;q=0"), false),
            (Some("identity"), false),
        ] {
            assert_eq!(accepts_gzip(accept), expected, "{accept:?}");
        }
    }
}
