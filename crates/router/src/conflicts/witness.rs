//! Creates example requests from cases. Fields that depend on each other are set independently, so the caller must
//! check that the request really satisfies the case.

use super::Decider;
use super::automata::Automata;
use super::cases::{Case, Demand, Field, Values};
use super::ranges::{Example, Ranges};
use super::texts::{Solution, Solver, Test};
use crate::candidate::Candidate;
use crate::expressions::protocols;
use crate::table::Table;
use crate::{Flavor, Request, Router, Scheme, Scratch};
use expr::{AddressField, Expression, NumberField, Subsystem, TextField};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Texts to try where the conditions on a field allow any text, the most natural first.
const NAMES: &[&str] = &["x", "", "a.test", "x0", "0", "-"];
const PATHS: &[&str] = &["", "/x", "/", "x", "0", "x/x", ".x"];
/// Conditions that a path should satisfy to look like one that clients send.
const LIKED_PATHS: &[Test<'static>] = &[Test::starts_with("/"), Test::lacks("//")];
const METHODS: &[&str] = &["GET", "POST", "PUT", "OTHER", ""];
const VALUES: &[&str] = &["", "x", "0", "x0", "-"];

/// Maximum number of path segments of an example.
const MAX_SEGMENTS: usize = 64;

/// An example of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Witness {
    pub method: String,
    pub scheme: Scheme,
    pub host: Option<String>,
    pub path: String,
    /// The query without the `?`.
    pub query: Option<String>,
    pub headers: Vec<(String, String)>,
    pub sni: Option<String>,
    pub source: Option<SocketAddr>,
    pub destination: Option<IpAddr>,
    /// The port of the listener.
    pub port: u16,
}

impl Witness {
    pub fn request(&self) -> Request<'_> {
        Request {
            method: &self.method,
            path: self.path.as_bytes(),
            host: self.host.as_deref().map(str::as_bytes),
            scheme: self.scheme,
            sni: self.sni.as_deref(),
            query: self.query.as_deref().map(str::as_bytes),
            source: self.source,
            destination: self.destination,
            port: self.port,
            headers: &self.headers,
        }
    }
}

impl Decider for Router {
    type Witness = Witness;

    const SUBSYSTEM: Subsystem = Subsystem::Http;

    fn table(&self) -> &Table {
        self.table()
    }

    fn example(&self, case: &Case<'_>, automata: &Automata) -> Solution<Witness> {
        of(case, self.options().flavor, automata)
    }

    fn accepts(&self, witness: &Witness, expression: &Expression, scratch: &mut Scratch) -> bool {
        self.satisfies(&witness.request(), expression, scratch)
    }

    fn winner(&self, witness: &Witness, scratch: &mut Scratch) -> Option<&Candidate> {
        let found = self.matches(&witness.request(), scratch)?;
        Some(self.candidate(&found))
    }
}

/// Returns a request that satisfies the case, provided that its fields do not depend on each other.
fn of(case: &Case<'_>, flavor: Flavor, automata: &Automata) -> Solution<Witness> {
    let mut draft = Draft::new(flavor, automata);
    let mut unknown = false;
    for part in &case.parts {
        let known = match (part.field, &part.values) {
            (Field::Text(field), Values::Texts(demands)) => draft.put_text(field, demands),
            (field, Values::Ranges(ranges)) => draft.put_range(field, ranges),
            (_, Values::Texts(_)) => Solution::Unknown,
        };
        match known {
            Solution::Nothing => return Solution::Nothing,
            Solution::Unknown => unknown = true,
            Solution::One(()) => {}
        }
    }
    if unknown {
        Solution::Unknown
    } else {
        draft.finish()
    }
}

/// An unfinished request.
struct Draft<'a> {
    flavor: Flavor,
    automata: Option<&'a Automata>,
    witness: Witness,
    path: Option<String>,
    host: Option<String>,
    sent_host: Option<String>,
    /// Whether no wildcard may match the host. The host is then written in brackets, which no wildcard matches.
    hidden_host: bool,
    source: (Option<IpAddr>, Option<u16>),
    destination_port: Option<i64>,
    /// Parts of the path, each with the number of its first segment.
    segments: Vec<(usize, String)>,
    segment_count: Option<usize>,
}

impl<'a> Draft<'a> {
    fn new(flavor: Flavor, automata: &'a Automata) -> Self {
        Self {
            flavor,
            // The `traditional` flavor uses PCRE's dialect, which the automata do not support.
            automata: (flavor != Flavor::Traditional).then_some(automata),
            witness: Witness {
                method: "GET".to_owned(),
                scheme: Scheme::Http,
                host: None,
                path: String::new(),
                query: None,
                headers: Vec::new(),
                sni: None,
                source: None,
                destination: None,
                port: 0,
            },
            path: None,
            host: None,
            sent_host: None,
            hidden_host: false,
            source: (None, None),
            destination_port: None,
            segments: Vec::new(),
            segment_count: None,
        }
    }

    fn put_text(&mut self, field: &TextField, demands: &[Demand<'_>]) -> Solution<()> {
        let mut unknown = false;
        for demand in demands {
            match values(field, demand, self.automata) {
                Solution::Nothing => {}
                Solution::Unknown => unknown = true,
                Solution::One(values) => {
                    self.put_values(field, values);
                    return Solution::One(());
                }
            }
        }
        if unknown {
            Solution::Unknown
        } else {
            Solution::Nothing
        }
    }

    fn put_values(&mut self, field: &TextField, values: Vec<String>) {
        self.hidden_host |= *field == TextField::WildcardHost && values.is_empty();
        for value in values {
            match field {
                TextField::Method => self.witness.method = value,
                TextField::Path => self.path = Some(value),
                TextField::Host | TextField::WildcardHost => self.host = Some(value),
                TextField::SentHost => self.sent_host = Some(value),
                TextField::Sni => self.witness.sni = Some(value),
                TextField::Header(name) => {
                    let name = self.header_name(name);
                    self.witness.headers.push((name, value));
                }
                TextField::Query(name) => self.put_query(name, &value),
                TextField::Segments { first, .. } => {
                    let first = usize::try_from(*first).unwrap_or(usize::MAX);
                    self.segments.push((first, value));
                }
                // The protocol is a range field; see `put_range`.
                TextField::Protocol => {}
            }
        }
    }

    /// Returns a header name as clients write it.
    fn header_name(&self, name: &str) -> String {
        match self.flavor {
            Flavor::Traditional => name.to_owned(),
            Flavor::TraditionalCompatible | Flavor::Expressions => name.replace('_', "-"),
        }
    }

    fn put_query(&mut self, name: &str, value: &str) {
        let query = self.witness.query.get_or_insert_default();
        if !query.is_empty() {
            query.push('&');
        }
        escape(name, query);
        query.push('=');
        escape(value, query);
    }

    fn put_range(&mut self, field: Field<'_>, ranges: &Ranges) -> Solution<()> {
        let Some(example) = ranges.example() else {
            return Solution::Nothing;
        };
        if example == Example::Absent {
            return Solution::One(());
        }
        match field {
            Field::Protocol => {
                let names = protocols(Subsystem::Http);
                let name = example.choice().and_then(|number| names.get(number));
                if name == Some(&Scheme::Https.name()) {
                    self.witness.scheme = Scheme::Https;
                }
            }
            Field::Number(NumberField::DestinationPort) => self.destination_port = example.number(),
            Field::Number(NumberField::SourcePort) => {
                self.source.1 = example.number().and_then(|port| u16::try_from(port).ok());
            }
            Field::Number(NumberField::SegmentCount) => {
                let count = example
                    .number()
                    .and_then(|count| usize::try_from(count).ok());
                self.segment_count = count;
            }
            Field::Address(AddressField::Source) => self.source.0 = example.address(),
            Field::Address(AddressField::Destination) => {
                self.witness.destination = example.address();
            }
            Field::Text(_) => {}
        }
        Solution::One(())
    }

    fn finish(mut self) -> Solution<Witness> {
        let Some(path) = self.path.take().or_else(|| self.path_of_segments()) else {
            return Solution::Unknown;
        };
        self.witness.path = path;
        if self.source != (None, None) {
            let (address, port) = self.source;
            let address = address.unwrap_or(Ipv4Addr::LOCALHOST.into());
            self.witness.source = Some(SocketAddr::new(address, port.unwrap_or(40_000)));
        }
        let usual = match self.witness.scheme {
            Scheme::Http => 80,
            Scheme::Https => 443,
        };
        let port = self.destination_port.unwrap_or(usual);
        self.witness.port = u16::try_from(port).unwrap_or(0);
        let unusual = port != usual;
        if let Some(host) = &mut self.host
            && (self.hidden_host || self.flavor == Flavor::Traditional && host.contains(':'))
        {
            *host = format!("[{host}]");
        }
        self.witness.host = match (self.sent_host.take(), self.host.take()) {
            (Some(sent), _) => Some(sent),
            (None, Some(host)) if unusual => Some(format!("{host}:{port}")),
            (None, None) if unusual && self.flavor == Flavor::Traditional => {
                Some(format!("x:{port}"))
            }
            (None, host) => host,
        };
        Solution::One(self.witness)
    }

    fn path_of_segments(&self) -> Option<String> {
        let ends = self.segments.iter();
        let ends = ends.map(|(first, text)| first.saturating_add(text.split('/').count()));
        let needed = ends.max().unwrap_or(0);
        let count = self.segment_count.unwrap_or(needed).max(needed);
        if count > MAX_SEGMENTS {
            return None;
        }
        let mut segments = vec!["x"; count];
        for (first, text) in &self.segments {
            let own = segments.iter_mut().skip(*first);
            own.zip(text.split('/')).for_each(|(own, text)| *own = text);
        }
        Some(format!("/{}", segments.join("/")))
    }
}

/// Returns values for a field that together satisfy its condition.
fn values(
    field: &TextField,
    demand: &Demand<'_>,
    automata: Option<&Automata>,
) -> Solution<Vec<String>> {
    let (fillers, wishes) = match field {
        TextField::Path => (PATHS, LIKED_PATHS),
        TextField::Method => (METHODS, &[][..]),
        TextField::Host | TextField::WildcardHost | TextField::SentHost | TextField::Sni => {
            (NAMES, &[][..])
        }
        _ => (VALUES, &[][..]),
    };
    let solver = Solver {
        fillers,
        wishes,
        automata,
    };
    let claims = || demand.literals().iter().map(|literal| literal.claim());
    let all: Vec<Test<'_>> = claims().filter_map(|claim| claim.all).collect();
    let with = |more: &[Test<'_>]| solver.solve(&[&all, more].concat());
    if !demand.has_value() {
        return Solution::One(Vec::new());
    }
    let some: Vec<Test<'_>> = claims().filter_map(|claim| claim.some).collect();
    let loose: Vec<Test<'_>> = claims().filter_map(|claim| claim.loose).collect();
    // The simplest solution is one value that satisfies everything.
    if let Solution::One(value) = with(&[&some[..], &loose].concat()) {
        return Solution::One(vec![value]);
    }
    if !field.has_several_values() {
        return with(&some).map(|value| vec![value]);
    }
    let mut values = Vec::new();
    for test in some.iter().chain(&loose) {
        match with(&[*test]) {
            Solution::One(value) => values.push(value),
            Solution::Nothing => return Solution::Nothing,
            Solution::Unknown => return Solution::Unknown,
        }
    }
    Solution::One(values)
}

fn escape(text: &str, out: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(byte as char);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
}
