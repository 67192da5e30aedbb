//! The queue of what costs a hash. Whoever sends many wrong secrets waits for its own requests only: the sites of the
//! clients take turns, in each site the addresses do, and at each address the client ids do. If too many wait, the longest
//! line is the one that loses.
//!
//! The id counts as it was sent, whether there is such a client or not, so that the time in the queue does not tell.

use super::secrets::Overload;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Who asks: the network of its address, and a hash of the client id that it has sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asker {
    network: IpAddr,
    client: u64,
}

impl Asker {
    /// An IPv6 user has a whole network of 64 bits, so its addresses count as one.
    pub(super) fn new(address: IpAddr, client: u64) -> Self {
        let network = match address.to_canonical() {
            IpAddr::V6(address) => first_bits(address, 64),
            address => address,
        };
        Self { network, client }
    }
}

/// The site of a network: the most that one customer of a provider has (RFC 6177 section 2).
fn site(network: IpAddr) -> IpAddr {
    match network {
        IpAddr::V6(address) => first_bits(address, 48),
        IpAddr::V4(address) => {
            let [first, second, third, _] = address.octets();
            Ipv4Addr::new(first, second, third, 0).into()
        }
    }
}

fn first_bits(address: Ipv6Addr, bits: u32) -> IpAddr {
    let rest = 128 - bits;
    Ipv6Addr::from(u128::from(address) >> rest << rest).into()
}

/// Gives out permits, of which there are only some.
pub(super) struct Turns {
    lines: Mutex<Lines>,
    max_waiting: usize,
}

/// What may be done now. The next one's turn comes when it is dropped.
///
/// It is empty only while it is being dropped.
pub(super) struct Permit(Option<Arc<Turns>>);

#[derive(Default)]
struct Lines {
    /// Permits that nobody has.
    free: usize,
    waiting: usize,
    /// The site whose turn is next is the first one.
    sites: VecDeque<Site>,
}

/// What one customer of a provider may have. Without sites, whoever asks from many networks had others refused.
struct Site {
    address: IpAddr,
    waiting: usize,
    /// The network whose turn is next is the first one.
    networks: VecDeque<Network>,
}

struct Network {
    address: IpAddr,
    waiting: usize,
    /// The client id whose turn is next is the first one.
    clients: VecDeque<Client>,
}

struct Client {
    id: u64,
    /// Those who wait, in the order in which they have come.
    line: VecDeque<oneshot::Sender<Permit>>,
}

impl Turns {
    pub(super) fn new(permits: usize, max_waiting: usize) -> Arc<Self> {
        let lines = Lines {
            free: permits,
            ..Lines::default()
        };
        Arc::new(Self {
            lines: Mutex::new(lines),
            max_waiting,
        })
    }

    /// Waits for the turn of `asker`.
    pub(super) async fn permit(self: &Arc<Self>, asker: Asker) -> Result<Permit, Overload> {
        let receiver = {
            let mut lines = self.lock();
            if lines.free > 0 {
                lines.free -= 1;
                return Ok(Permit(Some(self.clone())));
            }
            let (sender, receiver) = oneshot::channel();
            if lines.waiting >= self.max_waiting {
                lines.forget_gone();
            }
            lines.join(asker, sender);
            if lines.waiting > self.max_waiting {
                lines.drop_longest();
            }
            receiver
        };
        receiver.await.map_err(|_| Overload)
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(turns) = self.0.take() else {
            return;
        };
        loop {
            let next = {
                let mut lines = turns.lock();
                let Some(next) = lines.next() else {
                    lines.free += 1;
                    return;
                };
                next
            };
            match next.send(Self(Some(turns.clone()))) {
                Ok(()) => return,
                // Who waited has left: the next one gets this permit.
                Err(mut unsent) => drop(unsent.0.take()),
            }
        }
    }
}

impl Lines {
    fn join(&mut self, asker: Asker, sender: oneshot::Sender<Permit>) {
        let address = site(asker.network);
        let site = find_or_add(
            &mut self.sites,
            |site| site.address == address,
            || Site {
                address,
                waiting: 0,
                networks: VecDeque::new(),
            },
        );
        let Some(site) = site else { return };
        let network = find_or_add(
            &mut site.networks,
            |network| network.address == asker.network,
            || Network {
                address: asker.network,
                waiting: 0,
                clients: VecDeque::new(),
            },
        );
        let Some(network) = network else { return };
        let client = find_or_add(
            &mut network.clients,
            |client| client.id == asker.client,
            || Client {
                id: asker.client,
                line: VecDeque::new(),
            },
        );
        let Some(client) = client else { return };
        client.line.push_back(sender);
        network.waiting += 1;
        site.waiting += 1;
        self.waiting += 1;
    }

    /// Takes out the one whose turn it is.
    fn next(&mut self) -> Option<oneshot::Sender<Permit>> {
        let mut site = self.sites.pop_front()?;
        let mut network = site.networks.pop_front()?;
        let mut client = network.clients.pop_front()?;
        let next = client.line.pop_front();
        if !client.line.is_empty() {
            network.clients.push_back(client);
        }
        network.waiting -= 1;
        site.waiting -= 1;
        self.waiting -= 1;
        if !network.clients.is_empty() {
            site.networks.push_back(network);
        }
        if !site.networks.is_empty() {
            self.sites.push_back(site);
        }
        next
    }

    /// Refuses the newest of the longest line of the network with the most, in the site with the most.
    fn drop_longest(&mut self) {
        let sites = self.sites.iter_mut();
        let Some(site) = sites.max_by_key(|site| site.waiting) else {
            return;
        };
        let networks = site.networks.iter_mut();
        let Some(network) = networks.max_by_key(|network| network.waiting) else {
            return;
        };
        let clients = network.clients.iter_mut();
        if let Some(client) = clients.max_by_key(|client| client.line.len()) {
            client.line.pop_back();
            network.waiting -= 1;
            site.waiting -= 1;
            self.waiting -= 1;
        }
        self.remove_empty();
    }

    /// Removes those who have left.
    fn forget_gone(&mut self) {
        self.waiting = 0;
        for site in &mut self.sites {
            site.waiting = 0;
            for network in &mut site.networks {
                network.waiting = 0;
                for client in &mut network.clients {
                    client.line.retain(|sender| !sender.is_closed());
                    network.waiting += client.line.len();
                }
                site.waiting += network.waiting;
            }
            self.waiting += site.waiting;
        }
        self.remove_empty();
    }

    fn remove_empty(&mut self) {
        for site in &mut self.sites {
            for network in &mut site.networks {
                network.clients.retain(|client| !client.line.is_empty());
            }
            site.networks.retain(|network| !network.clients.is_empty());
        }
        self.sites.retain(|site| !site.networks.is_empty());
    }
}

fn find_or_add<T>(
    all: &mut VecDeque<T>,
    is_it: impl Fn(&T) -> bool,
    make: impl FnOnce() -> T,
) -> Option<&mut T> {
    let at = match all.iter().position(is_it) {
        Some(at) => at,
        None => {
            all.push_back(make());
            all.len() - 1
        }
    };
    all.get_mut(at)
}
