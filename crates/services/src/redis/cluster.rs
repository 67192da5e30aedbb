//! A Redis Cluster: the map from slots to nodes, a link to each node, and redirections.
//!
//! A task of the background reads the map when the first call needs it, and again when a node redirects or fails. It
//! asks all nodes that it knows, so a dead one delays nothing.

use super::call::SLOTS;
use super::link::Link;
use super::opener::Openers;
use super::{Address, Call, RedisErrorKind};
use futures_util::future::{join_all, select_ok};
use redis::{Pipeline, ServerErrorKind, Value};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Minimum time between two readings of the map.
const REFRESH_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Maximum number of nodes that are known, so that a broken answer costs bounded memory. It is that of Redis.
const MAX_NODES: usize = 1000;
/// Number of nodes that are asked for the map at a time.
const ASKED: usize = 8;

pub(super) struct Cluster {
    shared: Arc<Shared>,
    redirections: u16,
    limit: Duration,
    _end: DropGuard,
}

struct Shared {
    openers: Openers,
    seeds: Vec<Address>,
    links: Mutex<HashMap<Address, Arc<Link>>>,
    map: watch::Sender<Known>,
    /// Asks the task to read the map.
    wanted: Notify,
}

/// What is known about the slots.
#[derive(Clone)]
enum Known {
    Nothing,
    Slots(Arc<Slots>),
    Unreachable(RedisErrorKind),
}

/// Which node has which slot.
struct Slots {
    /// For each slot the position of its node, or `u16::MAX`.
    nodes: Vec<u16>,
    links: Vec<Arc<Link>>,
}

/// A call that is to be sent to a node.
struct Next {
    call: usize,
    link: Arc<Link>,
    asking: bool,
}

type Results = Vec<Result<Value, RedisErrorKind>>;

impl Cluster {
    pub(super) fn new(openers: Openers, nodes: &[Address], redirections: u16) -> Self {
        let background = openers.background.clone();
        let limit = openers.settings.timeout;
        let shared = Arc::new(Shared {
            openers,
            seeds: nodes.to_vec(),
            links: Mutex::default(),
            map: watch::Sender::new(Known::Nothing),
            wanted: Notify::new(),
        });
        let end = CancellationToken::new();
        let (kept, ended) = (shared.clone(), end.clone());
        background.spawn_service(async move {
            ended.run_until_cancelled(keep(&kept)).await;
        });
        Self {
            shared,
            redirections,
            limit,
            _end: end.drop_guard(),
        }
    }

    /// Whether calls fail at once because no node can be reached.
    pub(super) fn is_down(&self) -> bool {
        matches!(*self.shared.map.borrow(), Known::Unreachable(_))
    }

    pub(super) async fn run(&self, calls: &[Call], deadline: Instant) -> Results {
        let slots = timeout_at(deadline, self.slots()).await;
        let slots = match slots.unwrap_or(Err(RedisErrorKind::Timeout(self.limit))) {
            Ok(slots) => slots,
            Err(error) => return vec![Err(error); calls.len()],
        };
        let mut results: Results = vec![Err(RedisErrorKind::NoNode); calls.len()];
        let mut next: Vec<Next> = Vec::with_capacity(calls.len());
        for (call, sent) in calls.iter().enumerate() {
            match slots.link(sent.slot()) {
                Some(link) => next.push(Next {
                    call,
                    link,
                    asking: false,
                }),
                None => self.shared.wanted.notify_one(),
            }
        }
        for _ in 0..=self.redirections {
            if next.is_empty() {
                break;
            }
            let answers = send(calls, next, deadline).await;
            next = self.sort(answers, &mut results);
        }
        for Next { call, .. } in next {
            if let Some(result) = results.get_mut(call) {
                *result = Err(RedisErrorKind::Redirections);
            }
        }
        results
    }

    /// Puts the answers in their places. Returns the calls that were redirected.
    fn sort(
        &self,
        answers: Vec<(Next, Result<Value, RedisErrorKind>)>,
        results: &mut Results,
    ) -> Vec<Next> {
        let mut redirected = Vec::new();
        for (sent, answer) in answers {
            if let Err(error) = &answer {
                if let Some(next) = self.redirection(&sent, error) {
                    redirected.push(next);
                    continue;
                }
                if is_about_the_node(error) {
                    self.shared.wanted.notify_one();
                }
            }
            if let Some(result) = results.get_mut(sent.call) {
                *result = answer;
            }
        }
        redirected
    }

    fn redirection(&self, sent: &Next, error: &RedisErrorKind) -> Option<Next> {
        let RedisErrorKind::Refused(error) = error else {
            return None;
        };
        let asking = match error.kind()? {
            ServerErrorKind::Moved => {
                self.shared.wanted.notify_one();
                false
            }
            ServerErrorKind::Ask => true,
            _ => return None,
        };
        // "3999 127.0.0.1:6381". An empty host is that of the node that answers.
        let (_, address) = error.details()?.split_once(' ')?;
        let (host, port) = address.rsplit_once(':')?;
        let port = port.parse().ok()?;
        let link = match host.is_empty() {
            true => sent.link.clone(),
            false => self.shared.link(&(host.into(), port))?,
        };
        Some(Next {
            call: sent.call,
            link,
            asking,
        })
    }

    async fn slots(&self) -> Result<Arc<Slots>, RedisErrorKind> {
        let mut map = self.shared.map.subscribe();
        loop {
            match &*map.borrow_and_update() {
                Known::Slots(slots) => return Ok(slots.clone()),
                Known::Unreachable(error) => {
                    return Err(RedisErrorKind::Down(Box::new(error.clone())));
                }
                Known::Nothing => self.shared.wanted.notify_one(),
            }
            if map.changed().await.is_err() {
                return Err(RedisErrorKind::Stopped);
            }
        }
    }
}

/// Sends each call to its node: one round trip for each node, all at the same time.
async fn send(
    calls: &[Call],
    next: Vec<Next>,
    deadline: Instant,
) -> Vec<(Next, Result<Value, RedisErrorKind>)> {
    let mut groups: Vec<Vec<Next>> = Vec::new();
    for next in next {
        let same = |group: &&mut Vec<Next>| {
            group.first().is_some_and(|first| {
                Arc::ptr_eq(&first.link, &next.link) && first.asking == next.asking
            })
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(next),
            None => groups.push(vec![next]),
        }
    }
    let sent = groups.into_iter().map(|group| async {
        let Some(first) = group.first() else {
            return Vec::new();
        };
        let own: Vec<&Call> = (group.iter())
            .filter_map(|next| calls.get(next.call))
            .collect();
        let answers = first.link.run(&own, first.asking, deadline).await;
        group.into_iter().zip(answers).collect()
    });
    join_all(sent).await.into_iter().flatten().collect()
}

/// Whether an error shows that the node is not the right one, or none at all.
fn is_about_the_node(error: &RedisErrorKind) -> bool {
    match error {
        RedisErrorKind::Refused(error) => matches!(
            error.kind(),
            Some(
                ServerErrorKind::ClusterDown
                    | ServerErrorKind::MasterDown
                    | ServerErrorKind::ReadOnly
            )
        ),
        _ => true,
    }
}

impl Slots {
    fn link(&self, slot: u16) -> Option<Arc<Link>> {
        let node = self.nodes.get(usize::from(slot))?;
        self.links.get(usize::from(*node)).cloned()
    }
}

impl Shared {
    /// Returns the link to a node; `None` if there are too many.
    fn link(&self, address: &Address) -> Option<Arc<Link>> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(link) = links.get(address) {
            return Some(link.clone());
        }
        if links.len() >= MAX_NODES {
            return None;
        }
        let link = Arc::new(self.openers.link(self.openers.fixed(address)));
        links.insert(address.clone(), link.clone());
        Some(link)
    }

    /// Reads the map from the node that answers first.
    async fn read(&self) -> Result<Slots, RedisErrorKind> {
        let mut asked: Vec<Address> = self.seeds.clone();
        {
            let links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
            let others = links.iter().filter(|(_, link)| !link.is_down());
            let others = others.map(|(address, _)| address.clone());
            asked.extend(others.take(ASKED));
        }
        asked.sort_unstable();
        asked.dedup();
        let asked = asked.iter().map(|address| Box::pin(self.ask(address)));
        let (ranges, _) = select_ok(asked).await?;
        Ok(self.slots(ranges))
    }

    async fn ask(&self, address: &Address) -> Result<Vec<Range>, RedisErrorKind> {
        let link = self.link(address).ok_or(RedisErrorKind::NoNode)?;
        let mut pipeline = Pipeline::new();
        pipeline.cmd("CLUSTER").arg("SLOTS");
        let deadline = Instant::now() + self.openers.settings.timeout;
        let answer = link.exchange(&pipeline, 1, deadline).await?;
        match answer.into_iter().next() {
            Some(Value::Array(entries)) if !entries.is_empty() => {
                let ranges: Option<Vec<Range>> =
                    entries.iter().map(|entry| range(entry, address)).collect();
                ranges.ok_or(RedisErrorKind::Unexpected)
            }
            Some(Value::ServerError(error)) => Err(RedisErrorKind::Refused(error)),
            _ => Err(RedisErrorKind::NoNode),
        }
    }

    /// Makes the map, and drops the links to nodes that are in it no more.
    fn slots(&self, ranges: Vec<Range>) -> Slots {
        let mut nodes = vec![u16::MAX; usize::from(SLOTS)];
        let mut links: Vec<Arc<Link>> = Vec::new();
        let mut numbers: HashMap<Address, u16> = HashMap::new();
        for Range { first, last, node } in ranges {
            let number = match numbers.get(&node) {
                Some(number) => *number,
                None => {
                    let Some(link) = self.link(&node) else {
                        continue;
                    };
                    let number = links.len() as u16;
                    links.push(link);
                    numbers.insert(node, number);
                    number
                }
            };
            if let Some(range) = nodes.get_mut(usize::from(first)..=usize::from(last)) {
                range.fill(number);
            }
        }
        let mut known = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|address, _| numbers.contains_key(address) || self.seeds.contains(address));
        Slots { nodes, links }
    }
}

/// Slots that one master has.
struct Range {
    first: u16,
    last: u16,
    node: Address,
}

/// Reads an entry of `CLUSTER SLOTS`: the first slot, the last one, the master, its replicas. A master without a host
/// has that of the node that was asked.
fn range(entry: &Value, asked: &Address) -> Option<Range> {
    let Value::Array(parts) = entry else {
        return None;
    };
    let [
        Value::Int(first),
        Value::Int(last),
        Value::Array(master),
        ..,
    ] = parts.as_slice()
    else {
        return None;
    };
    let [host, Value::Int(port), ..] = master.as_slice() else {
        return None;
    };
    let host: Box<str> = match host {
        Value::BulkString(host) if !host.is_empty() && host != b"?" => {
            String::from_utf8(host.clone()).ok()?.into()
        }
        Value::BulkString(_) | Value::Nil => asked.0.clone(),
        _ => return None,
    };
    let slot = |number: i64| u16::try_from(number).ok().filter(|slot| *slot < SLOTS);
    let (first, last) = (slot(*first)?, slot(*last)?);
    (first <= last).then_some(Range {
        first,
        last,
        node: (host, u16::try_from(*port).ok()?),
    })
}

/// Reads the map whenever it is wanted, with a pause between two readings.
async fn keep(shared: &Shared) {
    let mut pause = REFRESH_PAUSE;
    loop {
        shared.wanted.notified().await;
        loop {
            match shared.read().await {
                Ok(slots) => {
                    shared.map.send_replace(Known::Slots(Arc::new(slots)));
                    pause = REFRESH_PAUSE;
                    sleep(pause).await;
                    break;
                }
                Err(error) => {
                    // The map that is known still leads to the nodes that live.
                    shared.map.send_if_modified(|known| {
                        let has_slots = matches!(known, Known::Slots(_));
                        if !has_slots {
                            *known = Known::Unreachable(error);
                        }
                        !has_slots
                    });
                    sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }
}
