//! A simple reference evaluator: it applies Kong's rules directly to the parsed tree.

use super::super::tree::{Function, Literal, Node, Operator, Predicate};
use crate::{AddressField, Fields, NumberField, TextField};
use std::net::IpAddr;
use std::ops::ControlFlow;

/// The values of the fields that the random trees use.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) single: Vec<Option<Vec<u8>>>,
    pub(super) several: Vec<Vec<Vec<u8>>>,
    pub(super) numbers: Vec<Option<i64>>,
    pub(super) addresses: Vec<Option<IpAddr>>,
}

pub(super) fn passes(node: &Node, request: &Request) -> bool {
    match node {
        Node::All(parts) => parts.iter().all(|part| passes(part, request)),
        Node::Any(parts) => parts.iter().any(|part| passes(part, request)),
        Node::Not(part) => !passes(part, request),
        Node::Test(test) => predicate(&test.predicate, request),
    }
}

fn predicate(predicate: &Predicate, request: &Request) -> bool {
    let answers: Vec<bool> = match &predicate.literal {
        Literal::Text(literal) => {
            let values = request.texts(&predicate.field).into_iter();
            values
                .map(|value| text(predicate, &value, literal))
                .collect()
        }
        Literal::Number(literal) => {
            let value = request.numbers[usize::from(&*predicate.field != "net.dst.port")];
            let value = value.into_iter();
            value
                .map(|value| number(predicate.operator, value, *literal))
                .collect()
        }
        Literal::Address(_) | Literal::Block(_) => {
            let value = request.addresses[usize::from(&*predicate.field != "net.src.ip")];
            value
                .into_iter()
                .map(|value| address(predicate, value))
                .collect()
        }
    };
    if answers.is_empty() {
        return false;
    }
    if predicate.functions.contains(&Function::Any) {
        answers.into_iter().any(|answer| answer)
    } else {
        answers.into_iter().all(|answer| answer)
    }
}

fn text(predicate: &Predicate, value: &[u8], literal: &str) -> bool {
    // This equals Unicode lower case, because all letters of the random values are ASCII.
    let value = if predicate.functions.contains(&Function::Lower) {
        value.to_ascii_lowercase()
    } else {
        value.to_vec()
    };
    let wanted = literal.as_bytes();
    match predicate.operator {
        Operator::Equal => value == wanted,
        Operator::NotEqual => value != wanted,
        Operator::StartsWith => value.starts_with(wanted),
        Operator::EndsWith => value.ends_with(wanted),
        Operator::Contains => (0..=value.len()).any(|at| value[at..].starts_with(wanted)),
        Operator::Matches => regex::bytes::Regex::new(literal).unwrap().is_match(&value),
        other => panic!("{other:?} does not apply to texts"),
    }
}

fn number(operator: Operator, value: i64, literal: i64) -> bool {
    match operator {
        Operator::Equal => value == literal,
        Operator::NotEqual => value != literal,
        Operator::Greater => value > literal,
        Operator::GreaterOrEqual => value >= literal,
        Operator::Less => value < literal,
        Operator::LessOrEqual => value <= literal,
        other => panic!("{other:?} does not apply to numbers"),
    }
}

fn address(predicate: &Predicate, value: IpAddr) -> bool {
    match (predicate.operator, &predicate.literal) {
        (Operator::Equal, Literal::Address(literal)) => value == *literal,
        (Operator::NotEqual, Literal::Address(literal)) => value != *literal,
        (Operator::In, Literal::Block(block)) => block.contains(value),
        (Operator::NotIn, Literal::Block(block)) => !block.contains(value),
        other => panic!("{other:?} does not apply to addresses"),
    }
}

impl Request {
    fn texts(&self, field: &str) -> Vec<Vec<u8>> {
        let single = |at: usize| self.single[at].iter().cloned().collect();
        match field {
            "net.protocol" => single(0),
            "tls.sni" => single(1),
            "http.host" => single(2),
            "http.path" => single(3),
            "http.path.segments.1" => single(4),
            "http.path.segments.0_2" => single(5),
            "http.headers.x_a" => self.several[0].clone(),
            "http.headers.X_B" => self.several[1].clone(),
            "http.queries.Q" => self.several[2].clone(),
            other => panic!("unexpected field {other}"),
        }
    }
}

impl Fields for Request {
    fn text(&self, field: &TextField) -> Option<&[u8]> {
        let at = match field {
            TextField::Protocol => 0,
            TextField::Sni => 1,
            TextField::Host => 2,
            TextField::Path => 3,
            TextField::Segments { first: 1, last: 1 } => 4,
            TextField::Segments { first: 0, last: 2 } => 5,
            other => panic!("unexpected field {other}"),
        };
        self.single[at].as_deref()
    }

    fn texts(&self, field: &TextField, visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) {
        let at = match field {
            TextField::Header(name) if &**name == "x_a" => 0,
            TextField::Header(name) if &**name == "x_b" => 1,
            TextField::Query(name) if &**name == "Q" => 2,
            other => panic!("unexpected field {other}"),
        };
        let _ = self.several[at].iter().try_for_each(|value| visit(value));
    }

    fn number(&self, field: NumberField) -> Option<i64> {
        match field {
            NumberField::DestinationPort => self.numbers[0],
            NumberField::SegmentCount => self.numbers[1],
            NumberField::SourcePort => panic!("unexpected field net.src.port"),
        }
    }

    fn address(&self, field: AddressField) -> Option<IpAddr> {
        match field {
            AddressField::Source => self.addresses[0],
            AddressField::Destination => self.addresses[1],
        }
    }
}
