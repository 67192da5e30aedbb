//! Property tests with random trees. They check that printing and formatting preserve the tree, that the spelling of a
//! text makes no difference, and that a compiled expression has the same result as the reference evaluator in `naive`.

mod naive;
mod spelling;

use super::tree::{Function, Literal, Node, Operator, Parsed, Predicate, Span, Test};
use super::{Subsystem, parse, read};
use crate::{Block, Dialect, NoObserver, Regex};
use naive::Request;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const TEXT_FIELDS: [&str; 9] = [
    "net.protocol",
    "tls.sni",
    "http.host",
    "http.path",
    "http.path.segments.1",
    "http.path.segments.0_2",
    "http.headers.x_a",
    "http.headers.X_B",
    "http.queries.Q",
];
const NUMBER_FIELDS: [&str; 2] = ["net.dst.port", "http.path.segments.len"];
const ADDRESS_FIELDS: [&str; 2] = ["net.src.ip", "net.dst.ip"];
const TEXT_OPERATORS: [Operator; 5] = [
    Operator::Equal,
    Operator::NotEqual,
    Operator::StartsWith,
    Operator::EndsWith,
    Operator::Contains,
];
const NUMBER_OPERATORS: [Operator; 6] = [
    Operator::Equal,
    Operator::NotEqual,
    Operator::Greater,
    Operator::GreaterOrEqual,
    Operator::Less,
    Operator::LessOrEqual,
];

fn some_text() -> impl Strategy<Value = String> {
    let character = prop_oneof![
        4 => select(vec!['a', 'b', 'A', '/']),
        2 => select(vec!['"', '\\', '#', '\n', '\r', '\t', 'r', 'n', '\'']),
        1 => any::<char>(),
    ];
    vec(character, 0..5).prop_map(String::from_iter)
}

fn some_number() -> impl Strategy<Value = i64> {
    prop_oneof![-3..4_i64, any::<i64>(), Just(i64::MIN), Just(i64::MAX)]
}

fn some_address() -> impl Strategy<Value = IpAddr> {
    let near = any::<u8>().prop_map(|last| IpAddr::from([10, 0, 0, last & 3]));
    let mapped = any::<u32>().prop_map(|bits| Ipv4Addr::from(bits).to_ipv6_mapped());
    let compatible = any::<u32>().prop_map(|bits| Ipv6Addr::from(u128::from(bits)));
    let sparse = vec(select(vec![0, 1, 0xffff, 0xab]), 8).prop_map(|parts| {
        let mut segments = [0_u16; 8];
        segments.copy_from_slice(&parts);
        Ipv6Addr::from(segments)
    });
    prop_oneof![
        4 => near,
        1 => any::<u32>().prop_map(|bits| Ipv4Addr::from(bits).into()),
        1 => mapped.prop_map(IpAddr::from),
        1 => compatible.prop_map(IpAddr::from),
        1 => sparse.prop_map(IpAddr::from),
    ]
}

fn some_block() -> impl Strategy<Value = Block> {
    (some_address(), 0..=128_u8).prop_map(|(address, bits)| {
        let bits = if address.is_ipv4() { bits / 4 } else { bits };
        Block::new(address, bits).unwrap().aligned()
    })
}

fn some_pattern() -> impl Strategy<Value = String> {
    let patterns = ["a", "^/a", "b$", r"\d+", "^(a|b)*$", "[^\"#]", "", "\"#"];
    select(patterns.to_vec()).prop_map(str::to_owned)
}

/// Predicates that pass the type check.
fn sound() -> impl Strategy<Value = Predicate> {
    let functions = || vec(select(Function::ALL.to_vec()), 0..3);
    let texts = (
        functions(),
        select(TEXT_FIELDS.to_vec()),
        select(TEXT_OPERATORS.to_vec()),
        some_text().prop_map(|text| Literal::Text(text.into())),
    );
    let regexes = (
        functions(),
        select(TEXT_FIELDS.to_vec()),
        Just(Operator::Matches),
        some_pattern().prop_map(|pattern| Literal::Text(pattern.into())),
    );
    let anys = || vec(Just(Function::Any), 0..2);
    let numbers = (
        anys(),
        select(NUMBER_FIELDS.to_vec()),
        select(NUMBER_OPERATORS.to_vec()),
        some_number().prop_map(Literal::Number),
    );
    let addresses = (
        anys(),
        select(ADDRESS_FIELDS.to_vec()),
        select(vec![Operator::Equal, Operator::NotEqual]),
        some_address().prop_map(Literal::Address),
    );
    let blocks = (
        anys(),
        select(ADDRESS_FIELDS.to_vec()),
        select(vec![Operator::In, Operator::NotIn]),
        some_block().prop_map(Literal::Block),
    );
    prop_oneof![texts, regexes, numbers, addresses, blocks].prop_map(
        |(functions, field, operator, literal)| Predicate {
            functions,
            field: field.into(),
            operator,
            literal,
        },
    )
}

/// Predicates that match the grammar and may fail the type check.
fn unsound() -> impl Strategy<Value = Predicate> {
    let literal = prop_oneof![
        some_text().prop_map(|text| Literal::Text(text.into())),
        some_number().prop_map(Literal::Number),
        some_address().prop_map(Literal::Address),
        some_block().prop_map(Literal::Block),
    ];
    let functions = vec(select(Function::ALL.to_vec()), 0..4);
    let field = "[a-zA-Z][a-zA-Z0-9_.]{0,6}";
    let operator = select(Operator::ALL.to_vec());
    (functions, field, operator, literal).prop_map(|(functions, field, operator, literal)| {
        Predicate {
            functions,
            field: field.into(),
            operator,
            literal,
        }
    })
}

fn tree(predicate: impl Strategy<Value = Predicate> + 'static) -> impl Strategy<Value = Node> {
    let nowhere = Span::new(0..0);
    let leaf = predicate.prop_map(move |predicate| {
        Node::Test(Box::new(Test {
            predicate,
            left: nowhere,
            field: nowhere,
            operator: nowhere,
            literal: nowhere,
        }))
    });
    leaf.prop_recursive(5, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 2..5).prop_map(all),
            vec(inner.clone(), 2..5).prop_map(any_of),
            inner.prop_map(|part| Node::Not(Box::new(part))),
        ]
    })
}

/// Creates a group as the parser does: a part that is a group of the same kind is inlined.
fn all(parts: Vec<Node>) -> Node {
    let open = |part| match part {
        Node::All(parts) => parts,
        part => vec![part],
    };
    Node::All(parts.into_iter().flat_map(open).collect())
}

fn any_of(parts: Vec<Node>) -> Node {
    let open = |part| match part {
        Node::Any(parts) => parts,
        part => vec![part],
    };
    Node::Any(parts.into_iter().flat_map(open).collect())
}

fn request() -> impl Strategy<Value = Request> {
    let value = || vec(select(b"aAb/1\xc3\xff".to_vec()), 0..4);
    (
        vec(option::of(value()), 6),
        vec(vec(value(), 0..3), 3),
        vec(option::of(some_number()), 2),
        vec(option::of(some_address()), 2),
    )
        .prop_map(|(single, several, numbers, addresses)| Request {
            single,
            several,
            numbers,
            addresses,
        })
}

fn parsed(node: &Node) -> Parsed {
    let (text, root) = (String::new().into(), node.clone());
    Parsed { text, root }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn printed_trees_parse_to_the_same_tree(node in tree(unsound())) {
        let text = parsed(&node).to_string();
        let again = parse(&text).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(&again.root, &node, "{}", text);
        prop_assert_eq!(again.to_string(), text);
    }

    #[test]
    fn formatting_preserves_the_tree_and_is_stable(node in tree(unsound()), width in 0..120_usize) {
        let text = parsed(&node).format(width);
        let again = parse(&text).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(&again.root, &node, "{}", text);
        prop_assert_eq!(again.format(width), text);
        prop_assert_eq!(again.format(usize::MAX), parsed(&node).to_string());
    }

    #[test]
    fn spelling_makes_no_difference(node in tree(unsound()), seed in any::<u64>()) {
        let text = spelling::spell(&node, seed);
        let read = parse(&text).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(&read.root, &node, "{}", text);
        for (name, at) in read.names() {
            prop_assert_eq!(name, &text[at]);
        }
    }

    #[test]
    fn compiled_expressions_evaluate_as_the_rules_do(node in tree(sound()), requests in vec(request(), 8)) {
        let mut regexes = |pattern: &str| Regex::new(pattern, Dialect::Rust);
        let text = parsed(&node).to_string();
        let compiled = read(&text, Subsystem::Http, &mut regexes);
        let compiled = compiled.map_err(|error| TestCaseError::fail(error.to_string()))?;
        let shown = compiled.to_string();
        let again = read(&shown, Subsystem::Http, &mut regexes);
        let again = again.map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(&again.to_string(), &shown);
        for request in &requests {
            let mut buffer = Vec::new();
            let expected = naive::passes(&node, request);
            let answer = compiled.evaluate(request, &mut buffer, &mut NoObserver);
            prop_assert_eq!(answer, expected, "{} {:?}", text, request);
            let answer = again.evaluate(request, &mut buffer, &mut NoObserver);
            prop_assert_eq!(answer, expected, "{} {:?}", shown, request);
        }
    }

    #[test]
    fn every_text_gets_a_tree_or_an_error(text in "[ a-z.!&|()=~^<>\"\\\\#/0-9:xé\n-]{0,40}") {
        match parse(&text) {
            Ok(read) => prop_assert_eq!(parse(&read.to_string()).unwrap(), read),
            Err(error) => {
                prop_assert!(text.get(error.span.clone()).is_some());
                prop_assert!(!error.to_string().is_empty());
            }
        }
    }
}
