//! `GET /metrics`: the metrics of the node for Prometheus.

mod negotiate;
mod scrape;

pub(crate) use scrape::Scrapes;

use crate::control::Control;
use crate::request::Call;
use crate::respond::ApiResult;
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, VARY};
use scrape::Wanted;
use services::metrics::{Format, Kind, Page};
use std::time::Duration;

/// One metric with all its samples. Names and labels are constants of the program, so they need no escaping.
#[derive(Debug, Clone)]
pub struct Metric {
    pub name: &'static str,
    pub help: &'static str,
    pub reading: Reading,
}

#[derive(Debug, Clone)]
pub enum Reading {
    Gauge(u64),
    Counter(u64),
    /// One counter per value of a label.
    Counters {
        label: &'static str,
        of: Vec<(&'static str, u64)>,
    },
    /// Count and total duration per value of a label.
    Durations {
        label: &'static str,
        of: Vec<Timed>,
    },
}

#[derive(Debug, Clone, Copy)]
pub struct Timed {
    /// The value of the label.
    pub what: &'static str,
    pub sum: Duration,
    pub count: u64,
}

pub(crate) async fn show(call: &Call<'_>) -> ApiResult {
    let wanted = Wanted {
        format: negotiate::format(call.accept, call.control.offers_openmetrics()),
        is_compressed: negotiate::accepts_gzip(call.accept_encoding),
    };
    let control = call.app.shared();
    let write = move |page: &mut Page| write_all(&*control, page);
    let directory = call.control.store().directory();
    let mut response = call.app.scrapes().answer(wanted, directory, write).await?;
    let headers = response.headers_mut();
    let content_type = match wanted.format {
        // The exact content type that Kong sends.
        Format::Text => "text/plain; charset=UTF-8",
        Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        Format::Protobuf => {
            "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
        }
        // No scraper asks for it.
        Format::Otlp => "application/x-protobuf",
    };
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    if wanted.is_compressed {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Ok(response)
}

/// Writes all metrics.
pub fn write_all(control: &dyn Control, page: &mut Page) {
    for metric in control.metrics() {
        write(page, &metric);
    }
    control.write_metrics(page);
}

fn write(page: &mut Page, metric: &Metric) {
    let Metric {
        name,
        help,
        reading,
    } = metric;
    match reading {
        Reading::Gauge(value) => {
            page.family(name, help, Kind::Gauge);
            page.count(&[], *value);
        }
        Reading::Counter(value) => {
            page.family(name, help, Kind::Counter);
            page.count(&[], *value);
        }
        Reading::Counters { label, of } => {
            page.family(name, help, Kind::Counter);
            for (what, value) in of {
                page.count(&[(*label, *what)], *value);
            }
        }
        Reading::Durations { label, of } => {
            // A summary without quantiles: Prometheus computes rates and means from sum and count.
            page.family(name, help, Kind::Summary);
            for Timed { what, sum, count } in of {
                page.summary(&[(*label, *what)], sum.as_secs_f64(), *count);
            }
        }
    }
}
