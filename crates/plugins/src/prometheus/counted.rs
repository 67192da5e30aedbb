//! What is counted of the requests of a route, for all consumers together or for one of them.

use super::families::{BYTES, Families, status_cells};
use super::series::{Kong, Owner, WORKSPACE};
use services::metrics::{Counter, Family, Group, GroupCells, OTHER};
use services::workers::ThisWorker;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// Number of lists that further statuses are distributed over.
const LISTS: usize = 8;

/// Bits of [`Counted::is_shown`]. The lowest are those of the statuses in the group.
const SHOWS_BYTES: u8 = 1 << 4;
pub(super) const SHOWS_LATENCIES: u8 = 1 << 5;
pub(super) const SHOWS_UPSTREAM_LATENCY: u8 = 1 << 6;

/// What is counted of a request, apart from its latencies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Amounts {
    /// The status, and whether the response came from the upstream.
    pub(super) answer: Option<(u16, bool)>,
    /// Bytes that came from the client, and those that were sent to it.
    pub(super) bytes: Option<(u64, u64)>,
}

/// The counters of a route, or of a consumer on a route. The first `N` statuses have cells of the group. What every request
/// needs comes first, in one cache line.
#[repr(C, align(64))]
pub(super) struct Counted<const N: usize> {
    pub(super) group: Group,
    /// The statuses that have a cell, in the order of the cells. 0 is a free place.
    statuses: [AtomicU32; N],
    /// The cells of the group that have series, as bits. Series are made when they first count.
    is_shown: AtomicU8,
    /// The label `consumer`. It is empty if consumers are not told apart.
    pub(super) consumer: Box<str>,
    further: OnceLock<Box<Statuses>>,
}

/// Counters by status and source. Most routes have few statuses, and lists never lose or move an entry, so they are read
/// without a lock.
#[derive(Default)]
pub(super) struct Statuses([OnceLock<Box<Status>>; LISTS]);

struct Status {
    key: u32,
    counter: Counter,
    next: OnceLock<Box<Status>>,
}

/// A number for a status and whether the response came from the upstream. It is not 0.
#[inline]
fn key(status: u16, by_upstream: bool) -> u32 {
    (u32::from(status) << 1 | u32::from(by_upstream)) + 1
}

impl Statuses {
    #[inline]
    pub(super) fn get(
        &self,
        status: u16,
        by_upstream: bool,
        make: impl Fn() -> Counter,
    ) -> Option<&Counter> {
        let key = key(status, by_upstream);
        let mut place = self.0.get(key as usize % LISTS)?;
        loop {
            let known = place.get_or_init(|| {
                Box::new(Status {
                    key,
                    counter: make(),
                    next: OnceLock::new(),
                })
            });
            if known.key == key {
                return Some(&known.counter);
            }
            place = &known.next;
        }
    }
}

impl<const N: usize> Counted<N> {
    pub(super) fn new(consumer: &str, group: Group) -> Self {
        Self {
            group,
            statuses: [const { AtomicU32::new(0) }; N],
            is_shown: AtomicU8::new(0),
            consumer: consumer.into(),
            further: OnceLock::new(),
        }
    }

    #[inline]
    pub(super) fn add(&self, here: ThisWorker, amounts: Amounts, kong: &Kong, owner: Owner<'_>) {
        let cells = self.group.cells(here);
        if let Some((received, sent)) = amounts.bytes {
            let [ingress, egress] = BYTES;
            cells.add(ingress, received);
            cells.add(egress, sent);
            if !self.shows(SHOWS_BYTES) {
                self.show_bytes(kong, owner);
            }
        }
        if let Some((status, by_upstream)) = amounts.answer {
            self.add_request(here, cells, (status, by_upstream), kong, owner);
        }
    }

    #[inline]
    fn add_request(
        &self,
        here: ThisWorker,
        cells: GroupCells<'_>,
        (status, by_upstream): (u16, bool),
        kong: &Kong,
        owner: Owner<'_>,
    ) {
        let key = key(status, by_upstream);
        let places = (0_u8..).zip(&self.statuses).zip(status_cells::<N>());
        for ((number, place), cell) in places {
            let mut known = place.load(Ordering::Relaxed);
            if known == 0 {
                let taken = place.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed);
                known = taken.map_or_else(|by_another| by_another, |_| key);
            }
            if known == key {
                cells.add(cell, 1);
                if !self.shows(1 << number) {
                    self.show_status(number, cell, (status, by_upstream), kong, owner);
                }
                return;
            }
        }
        let further = self.further.get_or_init(Box::default);
        let requests = further.get(status, by_upstream, || {
            let Families { requests, .. } = &kong.families;
            self.with_labels(requests, (status, by_upstream), owner, |labels| {
                requests.with(labels)
            })
        });
        if let Some(requests) = requests {
            requests.add(here.number(), 1);
        }
    }

    #[cold]
    fn show_status(
        &self,
        number: u8,
        cell: usize,
        answer: (u16, bool),
        kong: &Kong,
        owner: Owner<'_>,
    ) {
        let Families { requests, .. } = &kong.families;
        let is_shown = self.with_labels(requests, answer, owner, |labels| {
            requests.attach(labels, &self.group, cell)
        });
        if is_shown {
            self.note_shown(1 << number);
        }
    }

    /// Calls `find` with the labels of the requests with a status.
    fn with_labels<R>(
        &self,
        requests: &Family<Counter>,
        (status, by_upstream): (u16, bool),
        Owner { service, route }: Owner<'_>,
        find: impl FnOnce(&[&str]) -> R,
    ) -> R {
        let (code, source) = (status.to_string(), source(by_upstream));
        let consumer = self.label(requests);
        find(&[service, route, &code, source, WORKSPACE, consumer])
    }

    #[cold]
    fn show_bytes(&self, kong: &Kong, Owner { service, route }: Owner<'_>) {
        let Families { bandwidth, .. } = &kong.families;
        let consumer = self.label(bandwidth);
        let mut directions = ["ingress", "egress"].into_iter().zip(BYTES);
        let are_shown = directions.all(|(direction, cell)| {
            let labels = [service, route, direction, WORKSPACE, consumer];
            bandwidth.attach(&labels, &self.group, cell)
        });
        if are_shown {
            self.note_shown(SHOWS_BYTES);
        }
    }

    /// Whether all these cells have series.
    #[inline]
    pub(super) fn shows(&self, bits: u8) -> bool {
        self.is_shown.load(Ordering::Relaxed) & bits == bits
    }

    pub(super) fn note_shown(&self, bits: u8) {
        self.is_shown.fetch_or(bits, Ordering::Relaxed);
    }

    /// The consumer as a label. Consumers must not take the last series of a metric: then they are counted together.
    fn label(&self, family: &Family<Counter>) -> &str {
        match &*self.consumer {
            "" => "",
            _ if family.is_nearly_full() => OTHER,
            name => name,
        }
    }
}

/// The label `source`.
pub(super) fn source(by_upstream: bool) -> &'static str {
    if by_upstream { "service" } else { "kong" }
}
