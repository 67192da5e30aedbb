//! `GET /metrics`: metrics in the text format of Prometheus.

use crate::fake::{Api, Fake};
use admin::control::{Database, Metric, Reading, Timed};
use std::time::Duration;

fn metrics() -> Vec<Metric> {
    let timed = |what, milliseconds, count| Timed {
        what,
        sum: Duration::from_millis(milliseconds),
        count,
    };
    vec![
        Metric {
            name: "silverback_rebuild_seconds",
            help: "Time.",
            reading: Reading::Durations {
                label: "part",
                of: vec![timed("plans", 1250, 3), timed("router", 0, 0)],
            },
        },
        Metric {
            name: "silverback_rebuilt_total",
            help: "Number.",
            reading: Reading::Counters {
                label: "part",
                of: vec![("plans", 30), ("router", 0)],
            },
        },
        Metric {
            name: "silverback_revision",
            help: "Revision.",
            reading: Reading::Gauge(7),
        },
    ]
}

#[tokio::test]
async fn metrics_are_in_the_text_format_of_prometheus() {
    let api = Api::new(Fake::new(Database::Off).with_metrics(metrics()));
    let answer = api.get("/metrics").await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), "text/plain; charset=UTF-8");
    let expected = "\
# HELP silverback_rebuild_seconds Time.
# TYPE silverback_rebuild_seconds summary
silverback_rebuild_seconds_sum{part=\"plans\"} 1.25
silverback_rebuild_seconds_count{part=\"plans\"} 3
silverback_rebuild_seconds_sum{part=\"router\"} 0
silverback_rebuild_seconds_count{part=\"router\"} 0
# HELP silverback_rebuilt_total Number.
# TYPE silverback_rebuilt_total counter
silverback_rebuilt_total{part=\"plans\"} 30
silverback_rebuilt_total{part=\"router\"} 0
# HELP silverback_revision Revision.
# TYPE silverback_revision gauge
silverback_revision 7
";
    assert_eq!(answer.text, expected);
    let refused = api.send("POST", "/metrics", &[], "").await;
    assert_eq!(refused.status, 405);
}

#[tokio::test]
async fn a_client_gets_the_format_and_the_compression_that_it_accepts() {
    let api = Api::new(Fake::new(Database::Off).with_metrics(metrics()));
    let accept = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,*/*;q=0.2";
    let answer = api.send("GET", "/metrics", &[("accept", accept)], "").await;
    assert_eq!(
        answer.header("content-type"),
        "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
    );
    let open = [("accept", "application/openmetrics-text")];
    let answer = api.send("GET", "/metrics", &open, "").await;
    assert_eq!(
        answer.header("content-type"),
        "text/plain; charset=UTF-8",
        "it is not offered"
    );
    let gzip = [("accept-encoding", "gzip")];
    let answer = api.send("GET", "/metrics", &gzip, "").await;
    assert_eq!(answer.header("content-encoding"), "gzip");
}
