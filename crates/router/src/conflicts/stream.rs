//! Creates example streams from cases. A stream has a server name if and only if it uses TLS, so protocol and server
//! name are chosen together.

use super::Decider;
use super::automata::Automata;
use super::cases::{Case, Demand, Field, Values};
use super::ranges::Ranges;
use super::texts::{Solution, Solver, Test};
use crate::candidate::Candidate;
use crate::expressions::protocols;
use crate::table::Table;
use crate::{Scratch, StreamRequest, StreamRouter};
use expr::{AddressField, Expression, NoObserver, NumberField, Subsystem, TextField};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Parts of server names to try where the conditions leave the name open.
const NAMES: &[&str] = &["x", "a.test", "x0", "0", "-", ""];

/// Ports to use if there are no conditions on them.
const CLIENT_PORT: u16 = 40_000;
const PORT: u16 = 9000;

/// An example of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamWitness {
    pub source: SocketAddr,
    pub destination: SocketAddr,
    /// The server name, if the client uses TLS and sends one.
    pub sni: Option<String>,
    /// Whether the stream is UDP.
    pub datagrams: bool,
}

impl StreamWitness {
    pub fn request(&self) -> StreamRequest<'_> {
        StreamRequest {
            source: self.source,
            destination: self.destination,
            sni: self.sni.as_deref(),
            datagrams: self.datagrams,
        }
    }
}

impl Decider for StreamRouter {
    type Witness = StreamWitness;

    const SUBSYSTEM: Subsystem = Subsystem::Stream;

    fn table(&self) -> &Table {
        self.table()
    }

    fn example(&self, case: &Case<'_>, automata: &Automata) -> Solution<StreamWitness> {
        let (datagrams, sni) = match opening(case, automata) {
            Solution::One(opening) => opening,
            Solution::Nothing => return Solution::Nothing,
            Solution::Unknown => return Solution::Unknown,
        };
        let source = (AddressField::Source, NumberField::SourcePort);
        let destination = (AddressField::Destination, NumberField::DestinationPort);
        // Both ends of a stream have addresses of the same family.
        let locals = [
            IpAddr::from(Ipv4Addr::LOCALHOST),
            Ipv6Addr::LOCALHOST.into(),
        ];
        let ends = locals.into_iter().find_map(|local| {
            Some((
                end(case, source, SocketAddr::new(local, CLIENT_PORT))?,
                end(case, destination, SocketAddr::new(local, PORT))?,
            ))
        });
        let Some((source, destination)) = ends else {
            return Solution::Nothing;
        };
        Solution::One(StreamWitness {
            source,
            destination,
            sni,
            datagrams,
        })
    }

    fn accepts(
        &self,
        witness: &StreamWitness,
        expression: &Expression,
        scratch: &mut Scratch,
    ) -> bool {
        let request = witness.request().canonical();
        expression.evaluate(&request, scratch.lowered(), &mut NoObserver)
    }

    fn winner(&self, witness: &StreamWitness, _: &mut Scratch) -> Option<&Candidate> {
        self.candidate_of(&witness.request())
    }
}

/// Returns whether the stream is UDP, and its server name.
fn opening(case: &Case<'_>, automata: &Automata) -> Solution<(bool, Option<String>)> {
    let protocol = ranges(case, Field::Protocol);
    let may_be = |name: &str| {
        let mut names = (0..).zip(protocols(Subsystem::Stream));
        let number = names.find_map(|(number, known)| (*known == name).then_some(number));
        number.is_some_and(|number| protocol.is_none_or(|ranges| ranges.has_choice(number)))
    };
    let demands = match case.values(Field::Text(&TextField::Sni)) {
        Some(Values::Texts(demands)) => demands,
        _ => &vec![Demand::default()],
    };
    if demands.iter().any(|demand| !demand.has_value()) {
        if may_be("tcp") {
            return Solution::One((false, None));
        }
        if may_be("udp") {
            return Solution::One((true, None));
        }
    }
    if !may_be("tls") {
        return Solution::Nothing;
    }
    let mut unknown = false;
    for demand in demands {
        match server_name(demand, automata) {
            Solution::One(name) => return Solution::One((false, Some(name))),
            Solution::Unknown => unknown = true,
            Solution::Nothing => {}
        }
    }
    if unknown {
        Solution::Unknown
    } else {
        Solution::Nothing
    }
}

/// Returns a server name that satisfies the demand and that a client hello can contain.
fn server_name(demand: &Demand<'_>, automata: &Automata) -> Solution<String> {
    let literals = demand.literals().iter();
    let mut tests: Vec<Test<'_>> = literals.filter_map(|literal| literal.claim().all).collect();
    tests.extend(tests.first().map(|test| test.not_empty()));
    let solver = Solver {
        fillers: NAMES,
        wishes: &[],
        automata: Some(automata),
    };
    let is_sent = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_' | b'.')
    };
    match solver.solve(&tests) {
        Solution::One(name) if name.is_empty() || !name.bytes().all(is_sent) => Solution::Unknown,
        answer => answer,
    }
}

/// Returns an address and a port that the case permits, those of `usual` if possible. The address always has the family
/// of the usual one.
fn end(
    case: &Case<'_>,
    (address, port): (AddressField, NumberField),
    usual: SocketAddr,
) -> Option<SocketAddr> {
    let address = match ranges(case, Field::Address(address)) {
        Some(ranges) => ranges.address(usual.ip())?,
        None => usual.ip(),
    };
    let port = match ranges(case, Field::Number(port)) {
        Some(ranges) => ranges.port(usual.port())?,
        None => usual.port(),
    };
    Some(SocketAddr::new(address, port))
}

fn ranges<'c>(case: &'c Case<'_>, field: Field<'_>) -> Option<&'c Ranges> {
    match case.values(field)? {
        Values::Ranges(ranges) => Some(ranges),
        Values::Texts(_) => None,
    }
}
