//! What is counted of the requests of a route, for all consumers together or for one of them.

use super::series::{Families, Kong, Owner};
use services::metrics::{Counter, Family, OTHER};
use std::sync::OnceLock;

/// Number of lists that the statuses of a route are distributed over.
const LISTS: usize = 8;

/// The series of a route that have the label `consumer`. They are made when they first count.
#[derive(Default)]
pub(super) struct Counted {
    /// The label. It is empty if consumers are not told apart.
    pub(super) consumer: Box<str>,
    statuses: Statuses,
    /// What came from the client, and what was sent to it.
    bandwidth: OnceLock<[Counter; 2]>,
}

/// The counters of requests by status and source. A request finds its counter by a few comparisons: most routes have few
/// statuses, and lists never lose or move an entry, so they are read without a lock.
#[derive(Default)]
pub(super) struct Statuses([OnceLock<Box<Status>>; LISTS]);

struct Status {
    /// The status, and whether the response came from the upstream.
    key: u32,
    requests: Counter,
    next: OnceLock<Box<Status>>,
}

impl Statuses {
    #[inline]
    pub(super) fn get(
        &self,
        status: u16,
        by_upstream: bool,
        make: impl Fn() -> Counter,
    ) -> Option<&Counter> {
        let key = u32::from(status) << 1 | u32::from(by_upstream);
        let mut place = self.0.get(key as usize % LISTS)?;
        loop {
            let known = place.get_or_init(|| {
                Box::new(Status {
                    key,
                    requests: make(),
                    next: OnceLock::new(),
                })
            });
            if known.key == key {
                return Some(&known.requests);
            }
            place = &known.next;
        }
    }
}

impl Counted {
    pub(super) fn of(consumer: &str) -> Self {
        Self {
            consumer: consumer.into(),
            ..Self::default()
        }
    }

    /// Adds a request.
    #[inline]
    pub(super) fn add_request(
        &self,
        worker: usize,
        (status, by_upstream): (u16, bool),
        kong: &Kong,
        owner: Owner<'_>,
    ) {
        let Owner { service, route } = owner;
        let requests = self.statuses.get(status, by_upstream, || {
            let Families { requests, .. } = &kong.families;
            let (code, source) = (status.to_string(), source(by_upstream));
            let consumer = self.label(requests);
            requests.with(&[
                service,
                route,
                &code,
                source,
                super::series::WORKSPACE,
                consumer,
            ])
        });
        if let Some(requests) = requests {
            requests.add(worker, 1);
        }
    }

    /// Adds the bytes that came from the client, and those that were sent to it.
    #[inline]
    pub(super) fn add_bytes(
        &self,
        worker: usize,
        (received, sent): (u64, u64),
        kong: &Kong,
        owner: Owner<'_>,
    ) {
        let [ingress, egress] = self.bandwidth.get_or_init(|| {
            let Owner { service, route } = owner;
            let Families { bandwidth, .. } = &kong.families;
            let consumer = self.label(bandwidth);
            ["ingress", "egress"].map(|direction| {
                bandwidth.with(&[
                    service,
                    route,
                    direction,
                    super::series::WORKSPACE,
                    consumer,
                ])
            })
        });
        ingress.add(worker, received);
        egress.add(worker, sent);
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
