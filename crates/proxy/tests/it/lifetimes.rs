//! The lives of plugin instances, and of what they hold in the node, while the configuration changes at random.

use crate::world::{World, id, reference, route, service, with};
use model::EntityKind;
use plugin::services::queue::{Queue, QueueParams, Sender};
use plugin::{BuildCx, BuildError, Node, PerWorker, Phases, PluginDef, Scopes};
use proxy::session::{DataPlane, SessionSettings};
use proxy::snapshot::{BuildSettings, Live, Snapshot};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;
use testkit::random::Random;

const CHANGES: usize = 10_000;

/// What has happened to the instances of [`Counted`]. They are identified by the order in which they were built.
#[derive(Default)]
struct Ledger {
    built: u64,
    /// The instances that were not dropped yet, with their configurations.
    live: BTreeMap<u64, Config>,
    /// How often each live instance was started.
    starts: BTreeMap<u64, u32>,
    events: Vec<Event>,
    /// The instances that have a part on this thread.
    parts: BTreeSet<u64>,
    /// Number of live counters.
    counters: usize,
    sent: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Event {
    Started(u64),
    Configured(BTreeSet<u64>),
    Dropped(u64),
}

static LEDGER: Mutex<Option<Ledger>> = Mutex::new(None);

/// Uses the ledger. `body` must drop nothing that writes to it.
fn ledger<T>(body: impl FnOnce(&mut Ledger) -> T) -> T {
    let mut ledger: MutexGuard<'_, Option<Ledger>> = LEDGER.lock().expect("no test has panicked");
    body(ledger.get_or_insert_default())
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct Config {
    /// Names the counter and the queue.
    number: u64,
    /// Makes configurations with the same number different.
    other: u64,
    fails: bool,
}

struct Counted {
    number: u64,
    id: u64,
    part: PerWorker<Part>,
    held: OnceLock<Held>,
}

/// What an instance holds since its start.
struct Held {
    counter: Arc<Counter>,
    queue: Arc<Queue<u64>>,
}

struct Counter(AtomicU64);

impl Drop for Counter {
    fn drop(&mut self) {
        ledger(|ledger| ledger.counters -= 1);
    }
}

struct Part(u64);

impl Drop for Part {
    fn drop(&mut self) {
        ledger(|ledger| assert!(ledger.parts.remove(&self.0)));
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        ledger(|ledger| {
            ledger.live.remove(&self.id).expect("it is dropped once");
            ledger.starts.remove(&self.id);
            ledger.events.push(Event::Dropped(self.id));
        });
    }
}

impl plugin::Plugin for Counted {
    type Config = Config;
    type Own = ();

    fn build(config: Config, cx: &BuildCx<'_>) -> Result<Self, BuildError> {
        if config.fails {
            return Err(BuildError::field("fails", "this test lets it fail"));
        }
        let number = config.number;
        let id = ledger(|ledger| {
            ledger.built += 1;
            ledger.live.insert(ledger.built, config);
            ledger.built
        });
        Ok(Self {
            number,
            id,
            part: cx.per_worker(),
            held: OnceLock::new(),
        })
    }

    fn start(&self, node: &Arc<Node>) {
        let name = self.number.to_string();
        let make = || {
            ledger(|ledger| ledger.counters += 1);
            Counter(AtomicU64::new(0))
        };
        let sender = Sender::new(|batch: Arc<Vec<u64>>| async move {
            ledger(|ledger| ledger.sent += batch.len() as u64);
            Ok(())
        });
        let held = Held {
            counter: node.shared.get_or_insert("counted", &name, make),
            queue: (node.queues).get("counted", &name, QueueParams::default(), sender),
        };
        ledger(|ledger| {
            *ledger.starts.entry(self.id).or_default() += 1;
            ledger.events.push(Event::Started(self.id));
        });
        assert!(self.held.set(held).is_ok(), "it is started once");
    }

    fn configure(_: &Arc<Node>, instances: &mut dyn Iterator<Item = &Self>) {
        let ids = instances.map(|instance| instance.id).collect();
        ledger(|ledger| ledger.events.push(Event::Configured(ids)));
    }
}

/// The places at which the plugin can be configured, each at most once.
fn scope(place: usize) -> Value {
    match place {
        0 => json!({}),
        1..=3 => json!({"route": reference(10 + place as u128)}),
        4 | 5 => json!({"service": reference(place as u128 - 3)}),
        6 => json!({"route": reference(11), "service": reference(1)}),
        _ => json!({"route": reference(12), "consumer": reference(20)}),
    }
}

const PLACES: usize = 8;

/// The configuration, and the plugin at each place.
#[derive(Clone)]
struct Draft {
    world: World,
    placed: [Option<Value>; PLACES],
    next: u128,
}

impl Draft {
    fn new() -> Self {
        let mut world = World::default();
        for number in [1, 2] {
            world.put(EntityKind::Services, service(number, json!({})));
        }
        for number in [11, 12, 13] {
            let of = Some(1 + number % 2);
            world.put(EntityKind::Routes, route(number, of, json!({})));
        }
        Self {
            world,
            placed: Default::default(),
            next: 100,
        }
    }

    fn put(&mut self, place: usize, plugin: Value) {
        let whole = with(plugin.clone(), scope(place));
        self.world.put(EntityKind::Plugins, whole);
        self.placed[place] = Some(plugin);
    }

    /// Adds, changes, moves, disables, enables or removes a plugin.
    fn change(&mut self, random: &mut Random) {
        let place = random.index(PLACES);
        let config = json!({"number": random.below(5), "other": random.below(3), "fails": false});
        let Some(mut plugin) = self.placed[place].take() else {
            self.next += 1;
            let plugin = json!({
                "id": id(self.next), "name": "counted", "enabled": true, "config": config,
                "protocols": ["http", "https"],
            });
            return self.put(place, plugin);
        };
        match random.index(4) {
            0 => plugin["config"] = config,
            1 => plugin["enabled"] = json!(plugin["enabled"] == json!(false)),
            2 => {
                let free = (0..PLACES).find(|other| self.placed[*other].is_none());
                return self.put(free.unwrap_or(place), plugin);
            }
            _ => {
                let id = plugin["id"].as_str().expect("it has an id");
                let id = id.parse().expect("it is a UUID");
                return self.world.delete(EntityKind::Plugins, id);
            }
        }
        self.put(place, plugin);
    }

    /// Makes the configuration of a plugin one that cannot be built, if there is an enabled plugin.
    fn break_one(&mut self) -> bool {
        let is_enabled = |plugin: &Option<Value>| {
            let plugin = plugin.as_ref();
            plugin.is_some_and(|plugin| plugin["enabled"] == json!(true))
        };
        let Some(place) = self.placed.iter().position(is_enabled) else {
            return false;
        };
        let mut plugin = self.placed[place].take().expect("it was found");
        plugin["config"]["fails"] = json!(true);
        self.put(place, plugin);
        true
    }

    /// The different configurations of the enabled plugins.
    fn configs(&self) -> BTreeSet<Config> {
        let placed = self.placed.iter().flatten();
        let enabled = placed.filter(|plugin| plugin["enabled"] == json!(true));
        enabled
            .map(|plugin| serde_json::from_value(plugin["config"].clone()).expect("it is one"))
            .collect()
    }
}

fn instances(snapshot: &Snapshot) -> impl Iterator<Item = &Counted> {
    let all = snapshot.instances().iter();
    all.filter_map(|instance| plugin::downcast(&*instance.plugin))
}

fn ids(snapshot: &Snapshot) -> BTreeSet<u64> {
    instances(snapshot).map(|instance| instance.id).collect()
}

/// A data plane, the configuration that it serves, and what is expected of both.
struct Test {
    random: Random,
    draft: Draft,
    settings: BuildSettings,
    plane: DataPlane,
    /// Snapshots that requests in progress still use.
    in_use: Vec<Arc<Snapshot>>,
    /// The values of the counters.
    counts: BTreeMap<u64, u64>,
    pushed: u64,
}

impl Test {
    fn new(seed: u64, node: Arc<Node>) -> Self {
        let phases = Phases::ACCESS.with(Phases::LOG);
        let def = PluginDef::bundled::<Counted>("counted", 1, phases, Scopes::ALL);
        let plugins = vec![Arc::new(def)];
        let settings = BuildSettings {
            plugins: plugins.clone(),
            ..BuildSettings::default()
        };
        let mut draft = Draft::new();
        let first = draft.world.build(&settings).expect("it can be built");
        let empty = World::default().build(&settings).expect("it can be built");
        let live = Live::new(empty);
        let plane = DataPlane::new(live, SessionSettings::default(), node, plugins, 1);
        plane.publish(Arc::new(first));
        // The first snapshot has everything that was changed so far.
        let current = plane.snapshot.load();
        let _ = draft.world.update(&current, &settings);
        ledger(|ledger| ledger.events.clear());
        Self {
            random: Random::new(seed),
            draft,
            settings,
            plane,
            in_use: Vec::new(),
            counts: BTreeMap::new(),
            pushed: 0,
        }
    }

    fn step(&mut self) {
        let mut draft = self.draft.clone();
        for _ in 0..=self.random.index(3) {
            draft.change(&mut self.random);
        }
        let is_broken = self.random.one_in(8) && draft.break_one();
        let current = self.plane.snapshot.load();
        let built = draft.world.update(&current, &self.settings);
        drop(current);
        assert_eq!(built.is_err(), is_broken);
        match built {
            Ok(next) if !self.random.one_in(4) => {
                self.publish(next);
                self.draft = draft;
            }
            // A dry run, or a configuration with an error.
            thrown_away => drop(thrown_away),
        }
        self.check();
        self.use_instances();
    }

    fn publish(&mut self, next: Snapshot) {
        let next = Arc::new(next);
        let before = self.plane.snapshot.load();
        let new: BTreeSet<u64> = ids(&next).difference(&ids(&before)).copied().collect();
        if self.random.one_in(4) {
            self.in_use.push(before);
        } else {
            drop(before);
        }
        let events = |ledger: &mut Ledger| std::mem::take(&mut ledger.events);
        ledger(events);
        self.plane.publish(next.clone());
        let mut events = ledger(events).into_iter();
        let started: BTreeSet<u64> = (&mut events)
            .take(new.len())
            .map(|event| match event {
                Event::Started(id) => id,
                other => panic!("{other:?} instead of a start"),
            })
            .collect();
        assert_eq!(started, new);
        assert_eq!(events.next(), Some(Event::Configured(ids(&next))));
        assert!(events.all(|event| matches!(event, Event::Dropped(_))));
        if self.in_use.len() > 3 || self.random.one_in(4) {
            let most = self.in_use.len();
            let ended = self.in_use.drain(..self.random.index(most + 1));
            drop(ended);
        }
    }

    /// Checks that exactly the instances in use are there, that they were started once, and what they hold.
    fn check(&mut self) {
        let current = self.plane.snapshot.load();
        let mut expected = ids(&current);
        for snapshot in &self.in_use {
            expected.extend(ids(snapshot));
        }
        let (live, starts, counters) = ledger(|ledger| {
            let starts: BTreeSet<u64> = ledger.starts.keys().copied().collect();
            assert!(ledger.starts.values().all(|starts| *starts == 1));
            (ledger.live.clone(), starts, ledger.counters)
        });
        assert_eq!(live.keys().copied().collect::<BTreeSet<_>>(), expected);
        assert_eq!(starts, expected);
        let configs = ids(&current).iter().map(|id| live[id].clone()).collect();
        assert_eq!(self.draft.configs(), configs);
        assert_eq!(ids(&current).len(), self.draft.configs().len());
        let held: BTreeSet<u64> = live.values().map(|config| config.number).collect();
        assert_eq!(counters, held.len());
        self.counts.retain(|number, _| held.contains(number));
        for instance in instances(&current) {
            let held = instance.held.get().expect("it was started");
            let count = self.counts.entry(instance.number).or_default();
            assert_eq!(held.counter.0.load(Ordering::Relaxed), *count);
        }
    }

    /// Does what requests do.
    fn use_instances(&mut self) {
        let current = self.plane.snapshot.load();
        for instance in instances(&current) {
            let held = instance.held.get().expect("it was started");
            held.counter.0.fetch_add(1, Ordering::Relaxed);
            *self.counts.entry(instance.number).or_default() += 1;
            if self.random.one_in(8) {
                held.queue.push(instance.id, 1);
                self.pushed += 1;
            }
            if self.random.one_in(3) {
                instance.part.get(|| {
                    ledger(|ledger| ledger.parts.insert(instance.id));
                    Part(instance.id)
                });
            }
        }
        plugin::free_ended_parts();
        let parts = ledger(|ledger| ledger.parts.clone());
        assert!(parts.is_subset(&ids(&current)), "{parts:?}");
    }
}

#[test]
fn instances_and_what_they_hold_live_as_long_as_something_uses_them() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be made");
    let _entered = runtime.enter();
    let node = Node::bare().expect("a thread can be started");
    let mut test = Test::new(15, node.clone());
    for _ in 0..CHANGES {
        test.step();
    }
    let pushed = test.pushed;
    assert!(pushed > 0 && ledger(|ledger| ledger.built) > 1000);
    drop(test);
    plugin::free_ended_parts();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    assert_eq!(runtime.block_on(node.queues.drain(deadline)), 0);
    ledger(|ledger| {
        assert!(ledger.live.is_empty() && ledger.counters == 0);
        assert_eq!(ledger.sent, pushed);
    });
}
