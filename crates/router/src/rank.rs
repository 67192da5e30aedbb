//! Describes in words why a candidate has its position in the order. The first criterion is the most important.

use crate::candidate::Precedence;
use crate::expressions::EXPRESSION;
use crate::priority::{self, Word};
use crate::router::Options;
use std::cmp::Reverse;
use uuid::Uuid;

/// Describes the position of an HTTP candidate.
pub(crate) fn of(place: &Precedence, options: Options) -> Vec<String> {
    match place {
        Precedence::Compatible(Reverse(word), Reverse(id)) => compatible(*word, id, |word| {
            vec![Word::new(word, options.calculation).describe()]
        }),
        Precedence::Traditional(priority, id) => {
            let mut words = priority::Traditional::describe(priority);
            words.push(format!("if still equal, the smaller id: {id}"));
            words
        }
        // The HTTP router has no such positions.
        Precedence::TraditionalStream { .. } => Vec::new(),
    }
}

/// `classic` describes the priority of a route without an expression.
fn compatible(word: u64, id: &Uuid, classic: impl Fn(u64) -> Vec<String>) -> Vec<String> {
    let mut words = match word.checked_sub(EXPRESSION) {
        Some(priority) => vec![format!("an expression with priority {priority}")],
        None => classic(word),
    };
    words.push(format!("if equal, the greater id: {id}"));
    words
}

/// Describes the position of a stream candidate. Source of the order: kong/router/transform.lua (stream_get_priority)
/// and traditional.lua.
pub(crate) fn of_stream(place: &Precedence) -> Vec<String> {
    match place {
        Precedence::Compatible(Reverse(word), Reverse(id)) => compatible(*word, id, of_ends),
        Precedence::TraditionalStream {
            kinds: Reverse(kinds),
            category: Reverse(category),
            ends: (source, destination),
            ..
        } => {
            let kinds = match kinds {
                1 => "1 attribute type".to_owned(),
                kinds => format!("{kinds} attribute types"),
            };
            let mut words = vec![kinds];
            words.extend((category & 4 != 0).then(|| "server names".to_owned()));
            words.extend(
                (category & 2 != 0).then(|| format!("sources: {}", CLASSES[usize::from(*source)])),
            );
            words.extend(
                (category & 1 != 0)
                    .then(|| format!("destinations: {}", CLASSES[usize::from(*destination)])),
            );
            words.push("if equal, the older route".to_owned());
            words
        }
        // The stream router has no such positions.
        Precedence::Traditional(..) => Vec::new(),
    }
}

/// The classes of entries in the order in which Kong's `traditional` flavor checks them (`stream::class`).
const CLASSES: [&str; 5] = [
    "an address with a port",
    "an address",
    "a block with a port",
    "a port",
    "a block",
];

/// Describes the bits of `stream::word`.
fn of_ends(word: u64) -> Vec<String> {
    let mut words = Vec::new();
    words.extend(
        (word >> 61 & 1 != 0).then(|| "server names, or both sources and destinations".to_owned()),
    );
    for (side, weight) in [("sources", word >> 4 & 0xF), ("destinations", word & 0xF)] {
        let kinds = [(8, "an address"), (4, "a port"), (1, "a block")];
        let has: Vec<&str> = kinds
            .into_iter()
            .filter(|(bit, _)| weight & bit != 0)
            .map(|(_, kind)| kind)
            .collect();
        words.extend((!has.is_empty()).then(|| format!("{side}: {}", has.join(", "))));
    }
    words
}
