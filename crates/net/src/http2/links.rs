//! The HTTP/2 connections of one worker to upstreams, by address and then by [`LinkKey`]. A request gets a stream on
//! one of them, waits for the attempt of another request, or connects itself.

use super::dial::{Dial, Dialer};
use super::link::Link;
use super::upstream_stream::UpstreamStream;
use crate::pool::Slot;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum connections per address and key. At this number, requests wait for a stream instead of opening another
/// connection. Requests with [`Wanted::OpenedAfter`] may exceed it.
const MAX_PER_KEY: usize = 16;

/// The part of Kong's `upstream_keepalive_*` that applies to shared connections.
#[derive(Debug, Clone, Copy)]
pub struct LinkSettings {
    /// Maximum connections per address and worker, for all keys together. Connections with an open stream may exceed
    /// it. With zero, a connection is not used again once it has no stream.
    pub size: usize,
    /// Maximum requests per connection. Zero means no limit.
    pub max_requests: u32,
    /// Maximum time that a connection without a stream is kept. Zero means no limit.
    pub idle: Duration,
}

/// Requests with equal keys may share a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LinkKey {
    /// Identity of the TLS settings.
    pub tls: Option<usize>,
    pub sni: Option<Arc<str>>,
}

/// Connections that a request may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    Any,
    /// Only connections that were opened after this time. Older ones may have failed too, like the one that the request
    /// has just used.
    OpenedAfter(Instant),
}

/// Result of a request for a stream to an address.
#[derive(Debug)]
pub enum Found {
    Call(Box<UpstreamStream>),
    /// Another request is connecting; wait for its result.
    Dialing(Dial),
    /// The caller must connect and report the result.
    Dial(Dialer),
}

/// The connections of one key.
#[derive(Debug, Default)]
struct Group {
    links: Vec<Link>,
    dial: Option<Dial>,
}

/// The HTTP/2 connections of one worker to upstreams.
#[derive(Debug, Default)]
pub struct Links {
    by_address: HashMap<SocketAddr, HashMap<LinkKey, Group>>,
    /// Counts the uses of all connections, which gives them an order.
    uses: u64,
}

impl Links {
    /// Returns the number of open connections.
    pub fn len(&self) -> usize {
        let groups = self.by_address.values().flat_map(HashMap::values);
        groups.map(|group| group.links.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a stream on the connection with the most room. If no connection has room and there are few of them, one
    /// caller must connect, and the others wait for it. `slot` belongs to the target; an idle connection closes when
    /// that target is removed.
    pub fn take(
        &mut self,
        address: SocketAddr,
        key: &LinkKey,
        slot: &Arc<Slot>,
        wanted: Wanted,
        settings: &LinkSettings,
        cx: &mut Context<'_>,
    ) -> Found {
        let groups = self.by_address.entry(address).or_default();
        let group = groups.entry(key.clone()).or_default();
        let best = group.best(wanted, settings, cx);
        let is_full = group.links.len() >= MAX_PER_KEY;
        match best.filter(|(_, room)| *room > 0 || is_full) {
            Some((at, _)) => {
                self.uses += 1;
                Found::Call(Box::new(group.links[at].call(self.uses, slot)))
            }
            None => group.dial(),
        }
    }

    /// Returns a stream on an existing connection, for callers that cannot open another one. The request may have to
    /// wait until the upstream allows another stream.
    pub fn take_existing(
        &mut self,
        address: SocketAddr,
        key: &LinkKey,
        slot: &Arc<Slot>,
        settings: &LinkSettings,
        cx: &mut Context<'_>,
    ) -> Option<Box<UpstreamStream>> {
        let group = self.by_address.get_mut(&address)?.get_mut(key)?;
        let (at, _) = group.best(Wanted::Any, settings, cx)?;
        self.uses += 1;
        Some(Box::new(group.links[at].call(self.uses, slot)))
    }

    /// Adds a new connection and returns its first stream. If there are too many, unused connections are closed.
    pub fn add(
        &mut self,
        address: SocketAddr,
        mut link: Link,
        slot: &Arc<Slot>,
        settings: &LinkSettings,
    ) -> Box<UpstreamStream> {
        self.uses += 1;
        let call = link.call(self.uses, slot);
        let groups = self.by_address.entry(address).or_default();
        let group = groups.entry(link.key().clone()).or_default();
        group.links.push(link);
        close_unused(groups, settings.size);
        Box::new(call)
    }

    /// Closes connections that have ended, have been idle for too long, are too many, or belong to removed targets. A
    /// timer calls this every few seconds.
    pub fn sweep(&mut self, now: Instant, settings: &LinkSettings) {
        self.by_address.retain(|_, groups| {
            groups.retain(|_, group| {
                group.links.retain_mut(|link| link.tidy(now, settings.idle));
                !group.links.is_empty() || group.is_dialing()
            });
            close_unused(groups, settings.size);
            !groups.is_empty()
        });
    }

    /// Closes all connections without a stream to free their descriptors.
    pub fn clear(&mut self) {
        for groups in self.by_address.values_mut() {
            close_unused(groups, 0);
        }
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        let groups = self.by_address.values().flat_map(HashMap::values);
        groups.map(|group| group.links.len()).sum()
    }
}

impl Group {
    /// Returns the index of the connection with the most room for another stream, and that room. Drops connections that
    /// take no more streams.
    fn best(
        &mut self,
        wanted: Wanted,
        settings: &LinkSettings,
        cx: &mut Context<'_>,
    ) -> Option<(usize, usize)> {
        let mut best: Option<(usize, usize)> = None;
        let mut at = 0;
        while at < self.links.len() {
            let link = &mut self.links[at];
            match link.room(cx) {
                Some(room) if link.may_be_shared(settings) => {
                    let fits = match wanted {
                        Wanted::Any => true,
                        Wanted::OpenedAfter(time) => link.opened() > time,
                    };
                    if fits && best.is_none_or(|(_, most)| room > most) {
                        best = Some((at, room));
                    }
                    at += 1;
                }
                _ => drop(self.links.swap_remove(at)),
            }
        }
        best
    }

    fn dial(&mut self) -> Found {
        match &self.dial {
            Some(dial) if dial.is_open() => Found::Dialing(dial.clone()),
            _ => {
                let (dialer, dial) = Dialer::new();
                self.dial = Some(dial);
                Found::Dial(dialer)
            }
        }
    }

    fn is_dialing(&self) -> bool {
        self.dial.as_ref().is_some_and(Dial::is_open)
    }
}

/// Closes connections without a stream, least recently used first, until at most `most` connections of all groups
/// remain. Connections that have ended do not count, and are removed.
fn close_unused(groups: &mut HashMap<LinkKey, Group>, most: usize) {
    for group in groups.values_mut() {
        group.links.retain(|link| !link.is_over());
    }
    let count: usize = groups.values().map(|group| group.links.len()).sum();
    let Some(excess) = count.checked_sub(most).filter(|excess| *excess > 0) else {
        return;
    };
    let links = groups.values().flat_map(|group| &group.links);
    let unused = links.filter(|link| !link.is_used()).map(Link::last_use);
    let mut unused: Vec<u64> = unused.collect();
    if unused.is_empty() {
        return;
    }
    unused.sort_unstable();
    // Every use has a unique number, so exactly the connections up to this number are closed.
    let newest = unused[excess.min(unused.len()) - 1];
    groups.retain(|_, group| {
        group
            .links
            .retain(|link| link.is_used() || link.last_use() > newest);
        !group.links.is_empty() || group.is_dialing()
    });
}
