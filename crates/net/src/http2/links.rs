//! The HTTP/2 connections of one worker to upstreams, by address and then by who may share them. A request gets a stream of
//! one, the connection that another request is making, or the task to make one.

use super::called::Called;
use super::dial::{Dial, Dialer};
use super::link::Link;
use crate::pool::Slot;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;
use tokio::time::Instant;

/// Connections of one key before requests wait for a stream instead of opening another.
const MOST_OF_KEY: usize = 16;

/// Kong's `upstream_keepalive_*`, as far as they mean something for connections that are shared.
#[derive(Debug, Clone, Copy)]
pub struct LinkSettings {
    /// Most connections per address and worker, whoever shares them. Connections that have a stream may exceed it.
    pub size: usize,
    /// Requests per connection; zero: no limit.
    pub max_requests: u32,
    /// How long a connection without a stream is kept; zero: no limit.
    pub idle: Duration,
}

/// Who shares a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LinkKey {
    /// The identity of the TLS settings.
    pub tls: Option<usize>,
    pub sni: Option<Arc<str>>,
}

/// The connections that a request can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    Any,
    /// One that was opened after this: the older ones may be as dead as the one that has just failed.
    OpenedAfter(Instant),
}

/// What a request finds of connections to its address.
#[derive(Debug)]
pub enum Found {
    Call(Box<Called>),
    /// Another request is connecting: worth waiting for.
    Dialing(Dial),
    /// Nobody is; the caller is to connect, and to say how it went.
    Dial(Dialer),
}

/// Connections that the same requests share.
#[derive(Debug, Default)]
struct Group {
    links: Vec<Link>,
    dial: Option<Dial>,
}

/// The HTTP/2 connections of one worker to upstreams.
#[derive(Debug, Default)]
pub struct Links {
    by_address: HashMap<SocketAddr, HashMap<LinkKey, Group>>,
    /// Grows with every use, so that uses have an order.
    uses: u64,
}

impl Links {
    /// A stream to an address: on the connection with the most room, or on a new one while there are few. `slot` is that of
    /// the target, without which a connection is not kept.
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
        let is_full = group.links.len() >= MOST_OF_KEY;
        match best.filter(|(_, room)| *room > 0 || is_full) {
            Some((at, _)) => {
                self.uses += 1;
                Found::Call(Box::new(group.links[at].call(self.uses, slot)))
            }
            None => group.dial(),
        }
    }

    /// A stream on a connection that is there already, for which the request may have to wait; where no other can be had.
    pub fn take_existing(
        &mut self,
        address: SocketAddr,
        key: &LinkKey,
        slot: &Arc<Slot>,
        settings: &LinkSettings,
        cx: &mut Context<'_>,
    ) -> Option<Box<Called>> {
        let group = self.by_address.get_mut(&address)?.get_mut(key)?;
        let (at, _) = group.best(Wanted::Any, settings, cx)?;
        self.uses += 1;
        Some(Box::new(group.links[at].call(self.uses, slot)))
    }

    /// Keeps a connection that was just made, and gives its first stream. Others that have none make room for it.
    pub fn add(
        &mut self,
        address: SocketAddr,
        mut link: Link,
        slot: &Arc<Slot>,
        settings: &LinkSettings,
    ) -> Box<Called> {
        self.uses += 1;
        let call = link.call(self.uses, slot);
        let groups = self.by_address.entry(address).or_default();
        let group = groups.entry(link.key().clone()).or_default();
        group.links.push(link);
        close_unused(groups, settings.size);
        Box::new(call)
    }

    /// Closes connections that are over, have been without a stream for too long, are too many, or belong to targets that
    /// are gone. For a timer every few seconds.
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

    /// Closes all that have no stream, to make room for descriptors.
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
    /// The connection with the most room for another stream, and that room; those that take no more are let go.
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
                Some(room) if !link.is_worn(settings.max_requests) => {
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

/// Closes the connections without a stream that were used least recently, as far as there are more than `most` in all.
fn close_unused(groups: &mut HashMap<LinkKey, Group>, most: usize) {
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
    // Every use has a number of its own, so this limit names exactly the oldest ones.
    let newest = unused[excess.min(unused.len()) - 1];
    groups.retain(|_, group| {
        group
            .links
            .retain(|link| link.is_used() || link.last_use() > newest);
        !group.links.is_empty() || group.is_dialing()
    });
}
