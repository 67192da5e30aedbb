//! Tests the cost of parsing the bytes of a DNS response and of searching the response for the records of a query.

use super::script::settings;
use crate::dns::answer::ResolveError;
use crate::dns::lookup::Lookup;
use crate::dns::system::System;
use crate::dns::transport::{Reply, Transport};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use hickory_resolver::proto::op::Message;
use hickory_resolver::proto::rr::{Name, RecordType};
use std::hint::black_box;
use std::sync::Arc;

const A: u16 = 1;
const CNAME: u16 = 5;
const TXT: u16 = 16;
const SRV: u16 = 33;

/// A compression pointer to the name in the question, which follows the header of 12 bytes.
const ASKED: [u8; 2] = [0xc0, 12];

/// A name server that answers every question with the same message.
struct Same(Vec<u8>);

impl Transport for Same {
    fn ask(&self, _: Name, _: RecordType) -> BoxFuture<'_, Result<Reply, ResolveError>> {
        let reply = match Message::from_vec(&self.0) {
            Ok(message) => Ok(Reply {
                exists: true,
                answers: message.answers,
                additionals: message.additionals,
            }),
            Err(_) => Err(ResolveError::Malformed),
        };
        std::future::ready(reply).boxed()
    }
}

/// Returns a response to the query for `a.test` with these records.
fn message(answers: &[Vec<u8>], additionals: &[Vec<u8>]) -> Vec<u8> {
    let [answered, added] = [answers, additionals].map(|all| (all.len() as u16).to_be_bytes());
    let header = [[0, 0], [0x84, 0], [0, 1], answered, [0, 0], added];
    let question = b"\x01a\x04test\x00\x00\x01\x00\x01";
    [
        &header.concat(),
        &question[..],
        &answers.concat(),
        &additionals.concat(),
    ]
    .concat()
}

fn record(owner: &[u8], kind: u16, data: &[u8]) -> Vec<u8> {
    let [kind, class] = [kind, 1].map(u16::to_be_bytes);
    let length = (data.len() as u16).to_be_bytes();
    [owner, &kind, &class, &[0, 0, 0, 60], &length, data].concat()
}

/// Returns the name `n<number>.test` in wire format.
fn name(number: usize) -> Vec<u8> {
    let label = format!("n{number}");
    [&[label.len() as u8], label.as_bytes(), b"\x04test\x00"].concat()
}

fn address(number: usize) -> [u8; 4] {
    (number as u32).to_be_bytes()
}

/// Returns responses of several shapes, with about `records` records each.
fn messages(records: usize) -> Vec<Vec<u8>> {
    let all = |record: &dyn Fn(usize) -> Vec<u8>| (0..records).map(record).collect::<Vec<_>>();
    let addresses = all(&|number| record(&ASKED, A, &address(number)));
    let of_others = all(&|number| record(&name(number), A, &address(number)));
    let aliases = all(&|number| record(&name(number), CNAME, &name(number + 1)));
    let loops = all(&|_| record(&ASKED, CNAME, &ASKED));
    let texts = all(&|_| record(&ASKED, TXT, b"\x04text"));
    let services = all(&|number| {
        let data = [&[0, 1, 0, 1, 0, 80][..], &name(number)].concat();
        record(&ASKED, SRV, &data)
    });
    let chain = [record(&ASKED, CNAME, &name(0))]
        .into_iter()
        .chain(aliases.clone());
    let chain: Vec<_> = chain.collect();
    vec![
        message(&addresses, &[]),
        message(&of_others, &[]),
        message(&chain, &[]),
        message(&loops, &[]),
        message(&texts, &[]),
        message(&services[..services.len().min(10)], &of_others),
        message(&addresses, &texts),
        // The first is cut off within the records. The second ends before them, although its header announces records.
        message(&addresses, &[])[..8 * records].to_vec(),
        message(&addresses, &[])[..12 + 12].to_vec(),
    ]
}

#[test]
fn a_message_costs_as_much_as_it_has_records() {
    testkit::cost::assert_linear(
        400,
        |size| {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            let runtime = builder.enable_all().build().unwrap();
            (runtime, messages(size))
        },
        |(runtime, messages)| {
            for message in messages {
                let settings = settings();
                let servers = Arc::new(Same(message));
                let system = System::read(&settings);
                let lookup = Lookup::new(&settings, system, servers, Arc::default());
                let found = runtime.block_on(lookup.find("a.test", 80, None));
                black_box(found.map(|found| found.records).ok());
            }
        },
    );
}
