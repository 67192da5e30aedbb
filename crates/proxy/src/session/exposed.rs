//! The metrics of the data plane. They are summed up from the workers' counters when they are read.

use super::counts::{Counter, Counters, Handshake};
use super::plane::DataPlane;
use super::times::{Times, TimesTotal};
use plugin::Reason;
use plugin::services::metrics::{Kind, Page, Source};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

const CLASSES: [&str; 6] = ["other", "1xx", "2xx", "3xx", "4xx", "5xx"];

impl Source for DataPlane {
    fn collect(&self, page: &mut Page) {
        self.write_requests(page);
        self.write_upstreams(page);
        self.write_handshakes(page);
        self.write_workers(page);
        self.write_stalls(page);
    }
}

impl DataPlane {
    fn sum(&self, of: impl Fn(&Counters) -> &Counter) -> u64 {
        self.all_counters().iter().map(|one| of(one).value()).sum()
    }

    fn write_times(&self, page: &mut Page, name: &str, help: &str, of: fn(&Counters) -> &Times) {
        page.family(name, help, Kind::Histogram);
        let total = TimesTotal::of(self.all_counters().iter().map(of));
        write_times(page, &[], &total);
    }

    fn write_requests(&self, page: &mut Page) {
        page.family(
            "silverback_requests_total",
            "Requests by the class of their status, also those without a route.",
            Kind::Counter,
        );
        // Class 0 has statuses outside of 100 to 599, which are rare.
        for (class, name) in CLASSES.iter().enumerate().skip(1).chain([(0, &CLASSES[0])]) {
            let count = self.sum(|counters| &counters.requests[class]);
            page.sample(&[("status_class", name)], count as f64);
        }
        self.write_times(
            page,
            "silverback_request_seconds",
            "Time from the first byte of a request until its response was complete.",
            |counters| &counters.request_times,
        );
        page.family(
            "silverback_answers_total",
            "Responses that are not an upstream's complete one, by reason.",
            Kind::Counter,
        );
        for reason in Reason::all() {
            let count = self.sum(|counters| &counters.answers[reason as usize]);
            page.sample(&[("reason", reason.name())], count as f64);
        }
        page.family(
            "silverback_stream_ends_total",
            "Sessions of TCP, TLS and UDP that the gateway has ended, by reason.",
            Kind::Counter,
        );
        for reason in Reason::all() {
            let count = self.sum(|counters| &counters.stream_ends[reason as usize]);
            page.sample(&[("reason", reason.name())], count as f64);
        }
        page.family(
            "silverback_plugin_answers_total",
            "Requests that a plugin has answered, or for which it has failed, by status.",
            Kind::Counter,
        );
        let mut position = 0;
        while let Some(plugin) = self.plugin_name(position) {
            let mut statuses = BTreeMap::<u16, u64>::new();
            for counters in self.all_counters() {
                for (status, count) in counters.plugin_answers(position) {
                    *statuses.entry(status).or_default() += count;
                }
            }
            for (status, count) in statuses {
                let status = match status {
                    0 => "other".to_owned(),
                    status => status.to_string(),
                };
                page.sample(&[("plugin", plugin), ("status", &status)], count as f64);
            }
            position += 1;
        }
    }

    fn write_upstreams(&self, page: &mut Page) {
        page.family(
            "silverback_upstream_retries_total",
            "Requests that were sent to another target after a failure, by attempt.",
            Kind::Counter,
        );
        page.sample(&[], self.sum(|counters| &counters.retries) as f64);
        self.write_times(
            page,
            "silverback_upstream_connect_seconds",
            "Time to open a TCP connection to an upstream.",
            |counters| &counters.connections.connect,
        );
        self.write_times(
            page,
            "silverback_upstream_tls_seconds",
            "Time of TLS handshakes with upstreams.",
            |counters| &counters.connections.tls,
        );
        self.write_times(
            page,
            "silverback_upstream_first_byte_seconds",
            "Time from contacting an upstream to the head of its response.",
            |counters| &counters.first_byte_times,
        );
        page.family(
            "silverback_upstream_connections",
            "Connections to upstreams: idle, busy with a request, or shared (HTTP/2).",
            Kind::Gauge,
        );
        let states = [
            ("idle", self.sum(|counters| &counters.idle_upstreams)),
            ("busy", self.sum(|counters| &counters.busy_upstreams)),
            ("shared", self.sum(|counters| &counters.shared_upstreams)),
        ];
        for (state, count) in states {
            page.sample(&[("state", state)], count as f64);
        }
    }

    fn write_handshakes(&self, page: &mut Page) {
        page.family(
            "silverback_client_tls_handshakes_total",
            "TLS handshakes with clients, by outcome.",
            Kind::Counter,
        );
        for outcome in Handshake::ALL {
            let count = self.sum(|counters| &counters.handshakes[outcome as usize]);
            page.sample(&[("outcome", outcome.name())], count as f64);
        }
        self.write_times(
            page,
            "silverback_client_tls_handshake_seconds",
            "Time of completed TLS handshakes with clients.",
            |counters| &counters.handshake_times,
        );
    }

    fn write_workers(&self, page: &mut Page) {
        page.family(
            "silverback_worker_loop_delay_seconds",
            "Time that a new task waits until the worker runs it, measured ten times a second.",
            Kind::Histogram,
        );
        for (worker, counters) in self.all_counters().iter().enumerate() {
            let total = TimesTotal::of([&counters.loop_delays]);
            write_times(page, &[("worker", &worker.to_string())], &total);
        }
        let times = self.pulses.iter().map(|pulse| pulse.time());
        let times: Vec<_> = times.map(Option::unwrap_or_default).collect();
        page.family(
            "silverback_worker_busy_seconds_total",
            "Time that the worker's thread has run on a processor.",
            Kind::Counter,
        );
        for (worker, time) in times.iter().enumerate() {
            let seconds = time.running.as_secs_f64();
            page.sample(&[("worker", &worker.to_string())], seconds);
        }
        page.family(
            "silverback_worker_waiting_seconds_total",
            "Time that the worker's thread could run but had no processor.",
            Kind::Counter,
        );
        for (worker, time) in times.iter().enumerate() {
            let seconds = time.waiting.as_secs_f64();
            page.sample(&[("worker", &worker.to_string())], seconds);
        }
    }

    fn write_stalls(&self, page: &mut Page) {
        page.family(
            "silverback_worker_stalls_total",
            "How often the worker has not responded for half a second.",
            Kind::Counter,
        );
        for (worker, pulse) in self.pulses.iter().enumerate() {
            let stalls = pulse.stalls.load(Ordering::Relaxed);
            page.sample(&[("worker", &worker.to_string())], stalls as f64);
        }
        page.family(
            "silverback_worker_stalled_seconds",
            "For how long the worker has not responded now, and which plugin it runs. 0 if it responds.",
            Kind::Gauge,
        );
        for (worker, pulse) in self.pulses.iter().enumerate() {
            let worker = worker.to_string();
            let stalled = pulse.stalled();
            let seconds = stalled.as_ref().map_or(0.0, |stalled| stalled.seconds());
            let doing = stalled.and_then(|stalled| stalled.doing);
            match doing {
                None => page.sample(&[("worker", &worker)], seconds),
                Some(doing) => page.sample(
                    &[
                        ("worker", &worker),
                        ("plugin", &doing.plugin),
                        ("phase", doing.phase),
                        ("route", &doing.route),
                    ],
                    seconds,
                ),
            }
        }
    }
}

fn write_times(page: &mut Page, labels: &[(&str, &str)], total: &TimesTotal) {
    let bounds = TimesTotal::bounds();
    page.buckets(labels, &bounds, total.buckets(), total.seconds());
}
