//! Scripted name servers, and a resolver that queries them.

use crate::dns::answer::{DnsAnswer, ResolveError};
use crate::dns::background::Background;
use crate::dns::host::{Host, Next, Resolver};
use crate::dns::settings::DnsSettings;
use crate::dns::transport::{Reply, Transport};
use futures_util::future::BoxFuture;
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType, rdata};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::sleep;

/// Scripted responses of name servers; a query without an entry gets no records.
#[derive(Default)]
pub(super) struct Script {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    entries: HashMap<(String, RecordType), Result<Vec<Record>, ResolveError>>,
    additionals: Vec<Record>,
    down: Option<ResolveError>,
    delay: Duration,
    asked: Vec<String>,
    most_at_once: usize,
    at_once: usize,
}

impl Script {
    /// Sets records, one per line as in a zone file: `name ttl type data`, with absolute names without their final dot.
    /// They replace the records of the same name and type.
    pub(super) fn set(&self, zone: &str) {
        let records: Vec<(String, Record)> = zone
            .lines()
            .filter(|line| !line.trim().is_empty())
            .map(record)
            .collect();
        let mut state = self.state.lock().unwrap();
        for (name, record) in &records {
            state.entries.remove(&(name.clone(), record.record_type()));
        }
        for (name, record) in records {
            let entry = state.entries.entry((name, record.record_type()));
            let entry = entry.or_insert_with(|| Ok(Vec::new()));
            entry.as_mut().unwrap().push(record);
        }
    }

    /// Sets the response to a query. The records of the response may have any names.
    pub(super) fn set_message(&self, name: &str, kind: RecordType, zone: &str) {
        let records = zone.lines().map(|line| record(line).1).collect();
        let mut state = self.state.lock().unwrap();
        state.entries.insert((name.into(), kind), Ok(records));
    }

    pub(super) fn set_additionals(&self, zone: &str) {
        self.state.lock().unwrap().additionals = zone.lines().map(|line| record(line).1).collect();
    }

    pub(super) fn remove(&self, name: &str) {
        let mut state = self.state.lock().unwrap();
        state.entries.retain(|(entry, _), _| entry != name);
    }

    pub(super) fn fail(&self, name: &str, kind: RecordType, error: ResolveError) {
        let mut state = self.state.lock().unwrap();
        state.entries.insert((name.into(), kind), Err(error));
    }

    /// Makes every query fail with `error`, until called with `None`.
    pub(super) fn go_down(&self, error: Option<ResolveError>) {
        self.state.lock().unwrap().down = error;
    }

    pub(super) fn set_delay(&self, delay: Duration) {
        self.state.lock().unwrap().delay = delay;
    }

    /// Returns the queries since the last call, as `name type`.
    pub(super) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().asked)
    }

    pub(super) fn most_at_once(&self) -> usize {
        self.state.lock().unwrap().most_at_once
    }

    fn begin(&self, name: &Name, kind: RecordType) -> Duration {
        let mut state = self.state.lock().unwrap();
        state.asked.push(format!("{} {kind}", text(name)));
        state.at_once += 1;
        state.most_at_once = state.most_at_once.max(state.at_once);
        state.delay
    }

    fn reply(&self, name: &Name, kind: RecordType) -> Result<Reply, ResolveError> {
        let mut state = self.state.lock().unwrap();
        state.at_once -= 1;
        if let Some(error) = state.down {
            return Err(error);
        }
        let name = text(name);
        // The script acts as a name server that returns the CNAME record of an alias, but not the records of its
        // target.
        let alias = state.entries.get(&(name.clone(), RecordType::CNAME));
        let found = state.entries.get(&(name, kind)).or(alias);
        Ok(Reply {
            exists: found.is_some(),
            answers: found.cloned().unwrap_or_else(|| Ok(Vec::new()))?,
            additionals: state.additionals.clone(),
        })
    }
}

impl Transport for Arc<Script> {
    fn ask(&self, name: Name, kind: RecordType) -> BoxFuture<'_, Result<Reply, ResolveError>> {
        Box::pin(async move {
            let delay = self.begin(&name, kind);
            if !delay.is_zero() {
                sleep(delay).await;
            }
            self.reply(&name, kind)
        })
    }
}

fn text(name: &Name) -> String {
    name.to_utf8().trim_end_matches('.').to_lowercase()
}

fn name(text: &str) -> Name {
    Name::from_ascii(format!("{}.", text.trim_end_matches('.'))).unwrap()
}

fn record(line: &str) -> (String, Record) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let data = match words[2..] {
        ["A", ip] => RData::A(rdata::A(ip.parse().unwrap())),
        ["AAAA", ip] => RData::AAAA(rdata::AAAA(ip.parse().unwrap())),
        ["CNAME", target] => RData::CNAME(rdata::CNAME(name(target))),
        ["SRV", priority, weight, port, target] => RData::SRV(rdata::SRV::new(
            priority.parse().unwrap(),
            weight.parse().unwrap(),
            port.parse().unwrap(),
            name(target),
        )),
        _ => panic!("{line}"),
    };
    let record = Record::from_rdata(name(words[0]), words[1].parse().unwrap(), data);
    (words[0].to_lowercase(), record)
}

/// Returns settings that read none of the machine's files.
pub(super) fn settings() -> DnsSettings {
    DnsSettings {
        resolv_conf: "/nonexistent/resolv.conf".into(),
        hosts_file: "/nonexistent/hosts".into(),
        ..DnsSettings::default()
    }
}

/// Starts a resolver with its script.
pub(super) fn start(settings: DnsSettings) -> (Resolver, Arc<Script>) {
    let script = Arc::new(Script::default());
    let connected = script.clone();
    let (resolver, background) = Resolver::with_background(|ends| {
        let connect = move |_: &_| Arc::new(connected.clone()) as Arc<dyn Transport>;
        Background::with_transport(settings, ends, Box::new(connect))
    });
    tokio::spawn(background.run());
    (resolver, script)
}

/// Waits until the running tasks are done. With a paused clock this takes no real time.
pub(super) async fn settle() {
    sleep(Duration::from_millis(20)).await;
}

pub(super) async fn resolve(host: &Host) -> Result<Arc<DnsAnswer>, ResolveError> {
    host.resolved(Duration::from_secs(3600)).await
}

/// Returns the records in order: the address of each, followed by its weight unless that is 1.
pub(super) fn shown(answer: &DnsAnswer) -> Vec<String> {
    let records = answer.records.iter();
    records
        .map(|record| match record.weight {
            1 => record.address.to_string(),
            weight => format!("{} {weight}", record.address),
        })
        .collect()
}

pub(super) async fn addresses(host: &Host) -> Vec<String> {
    shown(&resolve(host).await.unwrap())
}

/// Returns the result that a request would get now, without waiting.
pub(super) fn now(host: &Host) -> String {
    match host.next(&[]) {
        Next::Address(address) => address.to_string(),
        Next::Wait => "wait".into(),
        Next::Error(error) => error.to_string(),
    }
}

pub(super) async fn wait(seconds: f64) {
    sleep(Duration::from_secs_f64(seconds)).await;
}
