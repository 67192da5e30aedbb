//! Kills the gateway with SIGKILL at random moments while clients issue, refresh and import tokens.
//!
//! The environment variable `ENDURE_KILLS` sets the number of kills; `cargo xtask soak` sets a higher one.
//! `ENDURE_SEED` sets the random seed.

use super::{Connection, Pair, imported_line, launch};
use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};
use testkit::random::{Random, setting};
use testkit::{Echo, Gateway, http};

/// Default number of kills.
const KILLS: u64 = 10;
const CLIENTS: u64 = 6;
/// Rows of an import.
const ROWS: u64 = 20;
/// Tokens that every client checks after a kill, besides those since the kill before.
const CHECKED: usize = 5;

/// A client with its tokens, which no other client uses.
struct Owner {
    number: u64,
    random: Random,
    /// Pairs that are acknowledged and not refreshed.
    live: Vec<Pair>,
    /// Pairs that were refreshed.
    refreshed: Vec<Pair>,
    /// How many of each were checked.
    checked: [usize; 2],
    /// The request whose answer was lost because of the kill.
    pending: Pending,
    /// Rows that were sent in imports.
    sent: u64,
    counts: Counts,
}

enum Pending {
    None,
    /// The answer to a refresh, with the pair, which is no longer among the live ones.
    Refresh(Pair),
    Import(Vec<Pair>),
}

#[derive(Debug, Default)]
struct Counts {
    issued: u64,
    refreshed: u64,
    imported: u64,
    /// Requests without an answer, and how many of them were done.
    lost: u64,
    done: u64,
}

impl Owner {
    fn new(number: u64, random: Random) -> Self {
        Self {
            number,
            random,
            live: Vec::new(),
            refreshed: Vec::new(),
            checked: [0; 2],
            pending: Pending::None,
            sent: 0,
            counts: Counts::default(),
        }
    }

    /// Sends requests until the gateway is killed.
    fn work(&mut self, proxy: SocketAddr, admin: SocketAddr) {
        // An error means that the gateway was killed.
        let _ = self.work_on(proxy, admin);
    }

    fn work_on(&mut self, proxy: SocketAddr, admin: SocketAddr) -> io::Result<()> {
        let mut connection = Connection::open(proxy)?;
        loop {
            match self.random.below(8) {
                0 => self.import(admin)?,
                1..=3 if !self.live.is_empty() => {
                    let pair = self.live.swap_remove(self.random.index(self.live.len()));
                    self.checked[0] = self.checked[0].min(self.live.len());
                    self.refresh(&mut connection, pair)?;
                }
                _ => {
                    self.counts.lost += 1;
                    let answer = connection.issue()?;
                    self.counts.lost -= 1;
                    self.live.push(Pair::of(&answer));
                    self.counts.issued += 1;
                }
            }
        }
    }

    fn refresh(&mut self, connection: &mut Connection, pair: Pair) -> io::Result<()> {
        self.pending = Pending::Refresh(pair);
        let Pending::Refresh(pair) = &self.pending else {
            return Ok(());
        };
        let answer = connection.refresh(&pair.refresh)?;
        // A refresh token that was not used works.
        self.live.push(Pair::of(&answer));
        self.counts.refreshed += 1;
        if let Pending::Refresh(pair) = std::mem::replace(&mut self.pending, Pending::None) {
            self.refreshed.push(pair);
        }
        Ok(())
    }

    fn import(&mut self, admin: SocketAddr) -> io::Result<()> {
        let mut pairs = Vec::new();
        let mut rows = String::new();
        for _ in 0..ROWS {
            let number = self.number << 32 | self.sent;
            self.sent += 1;
            let pair = Pair {
                access: format!("access-{number}"),
                refresh: format!("refresh-{number}"),
            };
            rows += &format!("{}\n", imported_line(&pair, number));
            pairs.push(pair);
        }
        self.pending = Pending::Import(pairs);
        let headers = [("Content-Type", "application/x-ndjson")];
        let target = "/oauth2_tokens/import";
        let mut client = testkit::Client::over(std::net::TcpStream::connect(admin)?);
        client.send(http::encode("POST", target, &headers, rows.as_bytes()))?;
        let answer = client.receive("POST")?;
        if answer.status == 503 {
            // Too many imports ran at the same time.
            self.pending = Pending::None;
            return Ok(());
        }
        assert_eq!(answer.json()["imported"], ROWS, "{}", answer.text());
        if let Pending::Import(pairs) = std::mem::replace(&mut self.pending, Pending::None) {
            self.live.extend(pairs);
        }
        self.counts.imported += ROWS;
        Ok(())
    }

    /// Checks what the gateway has after a kill.
    fn settle(&mut self, gateway: &Gateway) {
        let mut connection = Connection::open(gateway.proxy).expect("the gateway listens");
        let live = self.chosen(0, self.live.len());
        for pair in live.iter().filter_map(|at| self.live.get(*at)) {
            assert!(connection.opens(&pair.access), "{pair:?} is lost");
        }
        let refreshed = self.chosen(1, self.refreshed.len());
        for pair in refreshed.iter().filter_map(|at| self.refreshed.get(*at)) {
            assert!(!connection.opens(&pair.access), "{pair:?} still opens");
            let again = connection.refresh(&pair.refresh).expect("an answer");
            assert_eq!(again.status, 400, "{pair:?} works twice");
        }
        match std::mem::replace(&mut self.pending, Pending::None) {
            Pending::None => {}
            Pending::Refresh(pair) => {
                self.counts.lost += 1;
                let was_done = !connection.opens(&pair.access);
                self.counts.done += u64::from(was_done);
                let answer = connection.refresh(&pair.refresh).expect("an answer");
                assert_eq!(answer.status == 200, !was_done, "{pair:?} is half done");
                if !was_done {
                    self.live.push(Pair::of(&answer));
                }
                let again = connection.refresh(&pair.refresh).expect("an answer");
                assert_eq!(again.status, 400, "{pair:?} works twice");
                self.refreshed.push(pair);
            }
            Pending::Import(pairs) => {
                self.counts.lost += 1;
                let found = pairs
                    .into_iter()
                    .filter(|pair| connection.opens(&pair.access));
                let before = self.live.len();
                self.live.extend(found);
                self.counts.done += u64::from(self.live.len() > before);
            }
        }
    }

    /// Returns the positions of pairs that are new since the last call, and of some others.
    fn chosen(&mut self, kind: usize, count: usize) -> Vec<usize> {
        let new = self.checked[kind].min(count)..count;
        self.checked[kind] = count;
        let mut positions: Vec<usize> = new.collect();
        for _ in 0..CHECKED.min(count) {
            positions.push(self.random.index(count));
        }
        positions
    }
}

#[test]
fn acknowledged_tokens_survive_kills_and_no_refresh_token_works_twice() {
    let kills = setting("ENDURE_KILLS").unwrap_or(KILLS);
    let seed = setting("ENDURE_SEED").unwrap_or(2026);
    let started = Instant::now();
    let echo = Echo::start();
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let mut random = Random::new(seed);
    let mut owners: Vec<Owner> = (0..CLIENTS)
        .map(|number| Owner::new(number, Random::new(random.below(u64::MAX))))
        .collect();
    for _ in 0..kills {
        let gateway = launch(prefix.path(), &echo).start();
        let (proxy, admin) = (gateway.proxy, gateway.admin);
        thread::scope(|scope| {
            for owner in &mut owners {
                let gateway = &gateway;
                scope.spawn(move || owner.settle(gateway));
            }
        });
        thread::scope(|scope| {
            for owner in &mut owners {
                scope.spawn(move || owner.work(proxy, admin));
            }
            // The kill comes at a random moment of the work. The checks must pass for every moment.
            thread::sleep(Duration::from_micros(random.below(150_000)));
            gateway.kill();
        });
    }
    let sum = |count: fn(&Counts) -> u64| -> u64 {
        owners.iter().map(|owner| count(&owner.counts)).sum()
    };
    let [issued, refreshed, imported, lost, done] = [
        sum(|counts| counts.issued),
        sum(|counts| counts.refreshed),
        sum(|counts| counts.imported),
        sum(|counts| counts.lost),
        sum(|counts| counts.done),
    ];
    println!(
        "seed {seed}: {kills} kills; {issued} tokens issued, {refreshed} refreshed, {imported} imported; \
         {lost} requests without an answer, of which {done} were done; {:?}",
        started.elapsed()
    );
    assert!(issued > kills && refreshed > kills && imported > kills && lost > 0);
}
