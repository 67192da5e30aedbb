//! What puts a candidate where it stands, in words: what is compared first comes first.

use crate::candidate::Place;
use crate::priority::{self, Word};
use crate::router::Options;
use std::cmp::Reverse;

/// Above this are the words of expressions: classic routes have no such word.
const OF_EXPRESSIONS: u64 = 0xFF << 56;

pub(crate) fn of(place: &Place, options: Options) -> Vec<String> {
    match place {
        Place::Compatible(Reverse(word), Reverse(id)) => {
            let mut words = match word.checked_sub(OF_EXPRESSIONS) {
                Some(priority) => vec![format!("an expression of priority {priority}")],
                None => Word::new(*word, options.calculation).describe(),
            };
            words.push(format!("of equal ones the greater id: {id}"));
            words
        }
        Place::Traditional(priority, id) => {
            let mut words = priority::Traditional::describe(priority);
            words.push(format!("then the smaller id: {id}"));
            words
        }
        // What orders streams is not told.
        Place::TraditionalStream { .. } => Vec::new(),
    }
}
