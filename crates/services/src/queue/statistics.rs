//! Counters of queues, and their metrics. The counters of a queue end with it. Those of its plugin do not, so that losses
//! stay visible when a configuration names another receiver.

use super::state::Listed;
use super::{Inner, Queues};
use crate::metrics::{Kind, Metrics, Page, Source};
use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::{Arc, Weak};

/// Counters of a queue since its start. Every pushed entry is in exactly one of the other fields, `retried` and `bytes`
/// apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub pushed: u64,
    /// Entries that the sender has accepted.
    pub sent: u64,
    /// Entries dropped because `max_entries` was reached.
    pub dropped_entries: u64,
    /// Entries dropped because `max_bytes` was reached.
    pub dropped_bytes: u64,
    /// Entries refused because they are larger than `max_bytes` or than the receiver accepts.
    pub refused: u64,
    /// Entries of batches that were given up after `max_retry_time`.
    pub given_up: u64,
    /// Entries that were not sent before the end of a shutdown.
    pub dropped_shutdown: u64,
    /// Entries of a queue that no plugin used any more, which its receiver did not accept in time.
    pub dropped_unused: u64,
    /// Entries that wait to be sent.
    pub waiting: u64,
    /// Entries in batches that are being sent, or that wait for a retry.
    pub sending: u64,
    /// Repeated attempts to send a batch.
    pub retried: u64,
    /// Size of the waiting entries.
    pub bytes: u64,
}

/// Counters of a queue, with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueCounts {
    pub plugin: Box<str>,
    /// The name of the queue. The user information of a URL in it is masked.
    pub name: Box<str>,
    pub counts: Counts,
}

impl Counts {
    /// Returns the number of entries that will never be sent.
    pub fn lost(&self) -> u64 {
        self.dropped().iter().map(|(_, count)| count).sum()
    }

    /// Returns the number of lost entries by cause.
    fn dropped(&self) -> [(&'static str, u64); 6] {
        [
            ("max_entries", self.dropped_entries),
            ("max_bytes", self.dropped_bytes),
            ("too_large", self.refused),
            ("max_retry_time", self.given_up),
            ("shutdown", self.dropped_shutdown),
            ("unused", self.dropped_unused),
        ]
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.pushed += other.pushed;
        self.sent += other.sent;
        self.dropped_entries += other.dropped_entries;
        self.dropped_bytes += other.dropped_bytes;
        self.refused += other.refused;
        self.given_up += other.given_up;
        self.dropped_shutdown += other.dropped_shutdown;
        self.dropped_unused += other.dropped_unused;
        self.waiting += other.waiting;
        self.sending += other.sending;
        self.retried += other.retried;
        self.bytes += other.bytes;
    }
}

impl Queues {
    /// Shows the counters of the queues among the metrics.
    pub fn expose(&self, metrics: &Metrics) {
        let source: Weak<Inner> = Arc::downgrade(&self.0);
        metrics.add_source(source);
    }
}

impl Inner {
    /// Returns the counters by plugin and shown name, sorted. Queues that differ only in what is masked are summed.
    pub(super) fn counts(&self) -> Vec<QueueCounts> {
        self.all_counts().0
    }

    /// Returns the counters of the queues, and those of each plugin since the start of the node. The latter include the
    /// queues that have ended, so they never decrease.
    pub(super) fn all_counts(&self) -> (Vec<QueueCounts>, BTreeMap<Box<str>, Counts>) {
        let mut registry = self.registry();
        registry.sweep();
        let (states, mut totals) = (registry.states(), registry.ended.clone());
        drop(registry);
        let queues = sums(&states);
        for queue in &queues {
            *totals.entry(queue.plugin.clone()).or_default() += queue.counts;
        }
        (queues, totals)
    }
}

fn sums(queues: &[Arc<dyn Listed>]) -> Vec<QueueCounts> {
    let mut sums: BTreeMap<(Box<str>, Box<str>), Counts> = BTreeMap::new();
    for queue in queues {
        let (plugin, name) = queue.names();
        *sums.entry((plugin.into(), name.into())).or_default() += queue.counts();
    }
    sums.into_iter()
        .map(|((plugin, name), counts)| QueueCounts {
            plugin,
            name,
            counts,
        })
        .collect()
}

/// A metric that is one field of [`Counts`].
struct Field {
    name: &'static str,
    /// Name of the metric that sums the queues of each plugin. Only counters have one.
    of_plugin: Option<&'static str>,
    help: &'static str,
    kind: Kind,
    value: fn(&Counts) -> u64,
}

const FIELDS: [Field; 6] = [
    Field {
        name: "silverback_queue_pushed_total",
        of_plugin: Some("silverback_plugin_queue_pushed_total"),
        help: "Entries that plugins have queued.",
        kind: Kind::Counter,
        value: |counts| counts.pushed,
    },
    Field {
        name: "silverback_queue_sent_total",
        of_plugin: Some("silverback_plugin_queue_sent_total"),
        help: "Queued entries that were sent.",
        kind: Kind::Counter,
        value: |counts| counts.sent,
    },
    Field {
        name: "silverback_queue_retries_total",
        of_plugin: Some("silverback_plugin_queue_retries_total"),
        help: "Repeated attempts to send a batch.",
        kind: Kind::Counter,
        value: |counts| counts.retried,
    },
    Field {
        name: "silverback_queue_waiting_entries",
        of_plugin: None,
        help: "Entries that wait to be sent.",
        kind: Kind::Gauge,
        value: |counts| counts.waiting,
    },
    Field {
        name: "silverback_queue_sending_entries",
        of_plugin: None,
        help: "Entries in batches that are being sent.",
        kind: Kind::Gauge,
        value: |counts| counts.sending,
    },
    Field {
        name: "silverback_queue_waiting_bytes",
        of_plugin: None,
        help: "Size of the entries that wait to be sent.",
        kind: Kind::Gauge,
        value: |counts| counts.bytes,
    },
];

impl Source for Inner {
    fn collect(&self, page: &mut Page) {
        let (queues, plugins) = self.all_counts();
        for field in &FIELDS {
            page.family(field.name, field.help, field.kind);
            for queue in &queues {
                let labels = [("plugin", &*queue.plugin), ("queue", &*queue.name)];
                page.sample(&labels, (field.value)(&queue.counts) as f64);
            }
            if let Some(name) = field.of_plugin {
                page.family(name, field.help, field.kind);
                for (plugin, counts) in &plugins {
                    page.sample(&[("plugin", &**plugin)], (field.value)(counts) as f64);
                }
            }
        }
        const LOST: &str = "Entries that were lost, by cause.";
        page.family("silverback_queue_dropped_total", LOST, Kind::Counter);
        for queue in &queues {
            let labels = [("plugin", &*queue.plugin), ("queue", &*queue.name)];
            write_dropped(page, &labels, &queue.counts);
        }
        page.family("silverback_plugin_queue_dropped_total", LOST, Kind::Counter);
        for (plugin, counts) in &plugins {
            write_dropped(page, &[("plugin", &**plugin)], counts);
        }
    }
}

fn write_dropped(page: &mut Page, labels: &[(&str, &str)], counts: &Counts) {
    for (cause, count) in counts.dropped() {
        page.sample(&[labels, &[("cause", cause)]].concat(), count as f64);
    }
}
