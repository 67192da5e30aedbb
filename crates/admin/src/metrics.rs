//! `GET /metrics`: the node's metrics in the text format of Prometheus.
//!
//! Kong serves this path with the metrics of its plugin `prometheus`, which are not implemented yet.

use crate::control::Control;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use std::fmt::{self, Write};
use std::time::Duration;

/// The exact content type that Kong sends.
const CONTENT: &str = "text/plain; charset=UTF-8";

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

pub(crate) fn show(control: &dyn Control) -> Response {
    let mut text = String::with_capacity(4096);
    for metric in control.metrics() {
        write(&mut text, &metric).expect("writing to memory does not fail");
    }
    text.push_str(&control.plugin_metrics());
    ([(CONTENT_TYPE, CONTENT)], text).into_response()
}

fn write(out: &mut String, metric: &Metric) -> fmt::Result {
    let Metric {
        name,
        help,
        reading,
    } = metric;
    writeln!(out, "# HELP {name} {help}")?;
    match reading {
        Reading::Gauge(value) => writeln!(out, "# TYPE {name} gauge\n{name} {value}"),
        Reading::Counter(value) => writeln!(out, "# TYPE {name} counter\n{name} {value}"),
        Reading::Counters { label, of } => {
            writeln!(out, "# TYPE {name} counter")?;
            for (what, value) in of {
                writeln!(out, "{name}{{{label}=\"{what}\"}} {value}")?;
            }
            Ok(())
        }
        Reading::Durations { label, of } => {
            // A summary without quantiles: Prometheus computes rates and means from sum and count.
            writeln!(out, "# TYPE {name} summary")?;
            for Timed { what, sum, count } in of {
                let seconds = sum.as_secs_f64();
                writeln!(out, "{name}_sum{{{label}=\"{what}\"}} {seconds}")?;
                writeln!(out, "{name}_count{{{label}=\"{what}\"}} {count}")?;
            }
            Ok(())
        }
    }
}
