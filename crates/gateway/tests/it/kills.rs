//! Kills the gateway with SIGKILL at random moments while clients write single entities and change sets. After each
//! kill every acknowledged write is present, and an unacknowledged write is either complete or absent.
//!
//! The environment variable `ENDURE_KILLS` sets the number of kills; `cargo xtask soak` sets a higher one.
//! `ENDURE_SEED` sets the random seed.

use crate::launch_in;
use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};
use store::{Options, Recovery, Store};
use testkit::random::{Random, setting};
use testkit::{Client, Echo, Gateway, http};

/// Default number of kills.
const KILLS: u64 = 15;
const WRITERS: u64 = 6;
/// Approximate number of groups that each writer keeps in the store.
const GROUPS: usize = 12;

/// Entities that one request creates together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Consumer(u64),
    /// A service with two routes and a consumer with a credential.
    Shop(u64),
}

/// Collection and name of an entity. For a credential, the name is its key.
type Entity = (&'static str, String);

impl Group {
    fn entities(self, writer: u64) -> Vec<Entity> {
        match self {
            Group::Consumer(number) => vec![("consumers", format!("w{writer}-{number}"))],
            Group::Shop(number) => {
                let name = |part: &str| format!("w{writer}-{number}-{part}");
                vec![
                    ("services", name("service")),
                    ("routes", name("a")),
                    ("routes", name("b")),
                    ("consumers", name("consumer")),
                    ("key-auths", name("key")),
                ]
            }
        }
    }

    fn creations(self, writer: u64, url: &str) -> Vec<String> {
        match self {
            Group::Consumer(number) => vec![format!(
                r#"{{"action": "create", "type": "consumers", "data": {{"username": "w{writer}-{number}"}}}}"#
            )],
            Group::Shop(number) => {
                let name = format!("w{writer}-{number}");
                let route = |part: &str| {
                    format!(
                        r#"{{"action": "create", "type": "routes", "data": {{"name": "{name}-{part}", "paths": ["/{name}/{part}"],
                            "service": {{"name": "{name}-service"}}}}}}"#
                    )
                };
                vec![
                    format!(
                        r#"{{"action": "create", "type": "services", "data": {{"name": "{name}-service", "url": "{url}"}}}}"#
                    ),
                    route("a"),
                    route("b"),
                    format!(
                        r#"{{"action": "create", "type": "consumers", "data": {{"username": "{name}-consumer"}}}}"#
                    ),
                    format!(
                        r#"{{"action": "create", "type": "keyauth_credentials", "data": {{"key": "{name}-key",
                            "consumer": {{"username": "{name}-consumer"}}}}}}"#
                    ),
                ]
            }
        }
    }

    /// Returns the changes that remove the group. They do not name the credential, because deleting a consumer deletes
    /// its credentials.
    fn removals(self, writer: u64) -> Vec<String> {
        let entities = self.entities(writer).into_iter().rev();
        entities
            .filter(|(collection, _)| *collection != "key-auths")
            .map(|(collection, name)| {
                format!(r#"{{"action": "delete", "type": "{collection}", "key": "{name}"}}"#)
            })
            .collect()
    }
}

/// A write request, with the groups that it adds and removes.
struct Write {
    method: &'static str,
    target: String,
    body: String,
    added: Vec<Group>,
    removed: Vec<Group>,
}

/// A client that writes. No other client changes its groups.
struct Writer {
    number: u64,
    random: Random,
    groups: BTreeSet<Group>,
    /// The write whose response was lost because of the kill.
    pending: Option<Write>,
    next: u64,
    acknowledged: u64,
}

impl Writer {
    fn next_write(&mut self, url: &str) -> Write {
        let number = self.next;
        self.next += 1;
        let groups: Vec<Group> = self.groups.iter().copied().collect();
        let at = self.random.below(groups.len().max(1) as u64);
        let old = groups.get(at as usize).copied();
        let is_enough = groups.len() > GROUPS;
        match (self.random.below(4), old) {
            (action @ (0 | 1), Some(Group::Consumer(old))) if action == 0 || is_enough => Write {
                method: "DELETE",
                target: format!("/consumers/w{}-{old}", self.number),
                body: String::new(),
                added: vec![],
                removed: vec![Group::Consumer(old)],
            },
            (0 | 1, _) => Write {
                method: "POST",
                target: "/consumers".to_owned(),
                body: format!(r#"{{"username": "w{}-{number}"}}"#, self.number),
                added: vec![Group::Consumer(number)],
                removed: vec![],
            },
            // The writer has enough groups, so it removes one.
            (3, Some(old)) if is_enough => self.change_set(vec![], vec![old], url),
            (_, old) => {
                let removed = Vec::from_iter(old.filter(|_| is_enough));
                self.change_set(vec![Group::Shop(number)], removed, url)
            }
        }
    }

    fn change_set(&self, added: Vec<Group>, removed: Vec<Group>, url: &str) -> Write {
        let creations = added
            .iter()
            .flat_map(|group| group.creations(self.number, url));
        let removals = removed.iter().flat_map(|group| group.removals(self.number));
        let changes: Vec<String> = creations.chain(removals).collect();
        Write {
            method: "POST",
            target: "/changes".to_owned(),
            body: format!(r#"{{"changes": [{}]}}"#, changes.join(",")),
            added,
            removed,
        }
    }

    /// Sends writes until the gateway is killed.
    fn write(&mut self, admin: SocketAddr, url: &str) {
        let Ok(stream) = TcpStream::connect(admin) else {
            return;
        };
        let mut client = Client::over(stream);
        loop {
            let write = self.next_write(url);
            let headers = [("Content-Type", "application/json")];
            let headers = if write.body.is_empty() {
                &[][..]
            } else {
                &headers
            };
            let bytes = http::encode(write.method, &write.target, headers, write.body.as_bytes());
            let answer = client
                .send(bytes)
                .and_then(|()| client.receive(write.method));
            let Ok(answer) = answer else {
                self.pending = Some(write);
                return;
            };
            let Write { body, .. } = &write;
            assert!(answer.status < 300, "{body}: {}", answer.text());
            self.acknowledged += 1;
            self.groups = write.applied_to(&self.groups);
        }
    }

    /// Checks the stored entities of this writer: the pending write must be complete or absent. Updates the groups
    /// accordingly.
    fn settle(&mut self, found: &BTreeSet<Entity>) {
        let prefix = format!("w{}-", self.number);
        let own: BTreeSet<Entity> = found
            .iter()
            .filter(|(_, name)| name.starts_with(&prefix))
            .cloned()
            .collect();
        let entities = |groups: &BTreeSet<Group>| -> BTreeSet<Entity> {
            let groups = groups.iter();
            groups
                .flat_map(|group| group.entities(self.number))
                .collect()
        };
        let without = entities(&self.groups);
        if let Some(pending) = self.pending.take() {
            let with = pending.applied_to(&self.groups);
            if own == entities(&with) {
                self.groups = with;
                return;
            }
        }
        let difference: Vec<_> = own.symmetric_difference(&without).collect();
        assert!(difference.is_empty(), "{prefix}: {difference:?}");
    }
}

impl Write {
    fn applied_to(&self, groups: &BTreeSet<Group>) -> BTreeSet<Group> {
        let kept = groups.iter().filter(|group| !self.removed.contains(group));
        kept.chain(&self.added).copied().collect()
    }
}

/// All stored entities.
fn stored(gateway: &Gateway) -> BTreeSet<Entity> {
    let mut found = BTreeSet::new();
    for (collection, field) in [
        ("services", "name"),
        ("routes", "name"),
        ("consumers", "username"),
        ("key-auths", "key"),
    ] {
        let list = gateway
            .admin_get(&format!("/{collection}?size=1000"))
            .json();
        assert!(list["next"].is_null(), "more than a page of {collection}");
        for entity in list["data"].as_array().expect("a list") {
            let name = entity[field].as_str().expect("every entity has a name");
            found.insert((collection, name.to_owned()));
        }
    }
    found
}

/// Checks with requests that stored routes are live, and that a route that was never created gets 404.
fn check_traffic(gateway: &Gateway, writer: &Writer) {
    let shops = writer.groups.iter().filter_map(|group| match group {
        Group::Shop(number) => Some(*number),
        Group::Consumer(_) => None,
    });
    for number in shops.take(2) {
        let path = format!("/w{}-{number}/b", writer.number);
        assert_eq!(gateway.get(&path, &[]).status, 200, "{path}");
    }
    let path = format!("/w{}-{}/b", writer.number, writer.next);
    assert_eq!(gateway.get(&path, &[]).status, 404, "{path}");
}

fn verify(prefix: &Path) {
    plugins::install();
    let directory = prefix.join("silverback.lmdb");
    let (store, recovery) = Store::open(&directory, Options::default()).expect("it can be opened");
    assert_eq!(recovery, Recovery::Opened);
    assert_eq!(store.verify().expect("it can be read"), []);
}

/// Starts the gateway and kills it after `pause`. The gateway may or may not serve already at that moment.
fn kill_at_start(prefix: &Path, pause: Duration) {
    let mut command = launch_in(prefix).command();
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the program can be run");
    thread::sleep(pause);
    child.kill().expect("it can be killed");
    child.wait().expect("a child can be waited for");
}

#[test]
fn acknowledged_writes_survive_kills_and_others_are_complete_or_absent() {
    let kills = setting("ENDURE_KILLS").unwrap_or(KILLS);
    let seed = setting("ENDURE_SEED").unwrap_or(2026);
    let started = Instant::now();
    let echo = Echo::start();
    let url = echo.url();
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let mut random = Random::new(seed);
    let mut writers: Vec<Writer> = (0..WRITERS)
        .map(|number| Writer {
            number,
            random: Random::new(random.below(u64::MAX)),
            groups: BTreeSet::new(),
            pending: None,
            next: 0,
            acknowledged: 0,
        })
        .collect();
    let [mut unacknowledged, mut kept] = [0; 2];
    for _ in 0..kills {
        let gateway = launch_in(prefix.path()).start();
        let found = stored(&gateway);
        for writer in &mut writers {
            let before = writer.groups.clone();
            unacknowledged += u64::from(writer.pending.is_some());
            writer.settle(&found);
            kept += u64::from(writer.groups != before);
            check_traffic(&gateway, writer);
        }
        let admin = gateway.admin;
        thread::scope(|scope| {
            for writer in &mut writers {
                let url = &url;
                scope.spawn(move || writer.write(admin, url));
            }
            // The kill comes at a random moment of the writes. The checks must pass for every moment.
            thread::sleep(Duration::from_micros(random.below(150_000)));
            gateway.kill();
        });
        if random.below(4) == 0 {
            kill_at_start(prefix.path(), Duration::from_millis(random.below(200)));
        }
        verify(prefix.path());
    }
    let acknowledged: u64 = writers.iter().map(|writer| writer.acknowledged).sum();
    println!(
        "seed {seed}: {kills} kills, {acknowledged} acknowledged writes, {unacknowledged} others of which {kept} were kept, {:?}",
        started.elapsed()
    );
    assert!(acknowledged > kills && unacknowledged > 0);
}
