//! The messages between a node and the script in Redis. Each message says all that the node knows about its part of one
//! window: it reports, returns and asks at once, so that any of them can be lost, repeated or overtaken.

use super::super::window::Period;
use super::ledger::LEASE;
use services::redis::{Call, Script, Value};
use std::sync::LazyLock;

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("script.lua")));

/// What names a counter in Redis, besides its period. All nodes compute the same one.
pub(in crate::rate_limiting) type Digest = [u8; 16];

/// A node's message about one counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ask {
    /// The entry of the node that the message is about.
    pub(super) id: u128,
    pub(super) digest: Digest,
    pub(super) period: Period,
    pub(super) limit: u64,
    /// Number of the lease, unique in the node. Redis has one record for each lease.
    pub(super) record: u64,
    /// The window of the lease, if the node knows it: its beginning in seconds of Redis's clock.
    pub(super) window: Option<u64>,
    /// Redis applies messages about a record in ascending order only.
    pub(super) sequence: u64,
    /// The permits that the node has used or keeps. It returns the others.
    pub(super) keep: u64,
    pub(super) used: u64,
    /// Permits for requests that wait.
    pub(super) waiting: u64,
    /// Permits for requests that are expected.
    pub(super) ahead: u64,
}

/// What the script replies about one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    /// Beginning and end of the current window in seconds of Redis's clock.
    pub(super) begin: u64,
    pub(super) end: u64,
    /// The sequence up to which Redis has applied the messages about the record. `None` if the window of the message is
    /// over.
    pub(super) sequence: Option<u64>,
    /// All permits of the record.
    pub(super) granted: u64,
    /// The permits that no node has.
    pub(super) left: u64,
    pub(super) others: Others,
}

/// What the other nodes have of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Others {
    /// Permits that they may return.
    Unused,
    /// They have used all their permits.
    AllUsed,
    /// Together with this node they have more than the limit, which was lowered.
    TooMany,
}

/// A reply of the script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reply {
    /// The time at Redis, in microseconds since 1970.
    pub(super) time: u64,
    pub(super) epoch: String,
    /// Whether Redis grants nothing yet, because it may not know the totals of all nodes.
    pub(super) frozen: bool,
    /// Number of nodes that were seen lately.
    pub(super) nodes: u64,
    /// `None` for a message that Redis could not apply, because another program has written the key.
    pub(super) answers: Vec<Option<Answer>>,
}

/// Makes a call of the script with the messages of a node. `prefix` begins the keys, and `reported` is the epoch in which
/// Redis knows all totals of the node.
pub(super) fn call(prefix: &str, node: &str, reported: Option<&str>, asks: &[Ask]) -> Call {
    let mut keys = Vec::with_capacity(1 + asks.len());
    keys.push(format!("{prefix}:nodes").into_bytes());
    keys.extend(asks.iter().map(|ask| ask.key(prefix)));
    let mut arguments = Vec::with_capacity(3 + 9 * asks.len());
    arguments.push(node.into());
    arguments.push(number(LEASE.as_millis() as u64));
    arguments.push(reported.unwrap_or("-").into());
    asks.iter().for_each(|ask| ask.write(&mut arguments));
    Call::script(&SCRIPT, keys, arguments)
}

impl Ask {
    /// Returns the key of the counter. It does not contain what clients sent.
    fn key(&self, prefix: &str) -> Vec<u8> {
        let digest = data_encoding::HEXLOWER.encode(&self.digest);
        format!("{prefix}:{digest}:{}", self.period.name()).into_bytes()
    }

    /// Appends the arguments of the script.
    fn write(&self, arguments: &mut Vec<Vec<u8>>) {
        arguments.push(self.period.name().into());
        arguments.push(number(self.limit));
        arguments.push(number(self.record));
        arguments.push(self.window.map_or_else(|| b"-1".to_vec(), number));
        let numbers = [
            self.sequence,
            self.keep,
            self.used,
            self.waiting,
            self.ahead,
        ];
        arguments.extend(numbers.map(number));
    }
}

/// Writes a number. Lua's numbers are exact up to 2^53.
fn number(number: u64) -> Vec<u8> {
    const MOST: u64 = 1 << 52;
    itoa::Buffer::new().format(number.min(MOST)).into()
}

impl Reply {
    /// Reads a reply about this number of messages. `None` if the script did not make it.
    pub(super) fn read(value: Value, messages: usize) -> Option<Self> {
        let Value::Array(elements) = value else {
            return None;
        };
        let mut elements = elements.into_iter();
        let time = natural(elements.next()?)?;
        let epoch = match elements.next()? {
            Value::BulkString(epoch) => String::from_utf8(epoch).ok()?,
            _ => return None,
        };
        let frozen = natural(elements.next()?)? != 0;
        let nodes = natural(elements.next()?)?;
        let answers = (0..messages).map(|_| Answer::read(&mut elements));
        let answers = answers.collect::<Option<_>>()?;
        elements.next().is_none().then_some(Self {
            time,
            epoch,
            frozen,
            nodes,
            answers,
        })
    }
}

impl Answer {
    /// Reads an answer. The inner `None` says that the message has failed.
    fn read(elements: &mut impl Iterator<Item = Value>) -> Option<Option<Self>> {
        let begin = natural(elements.next()?)?;
        let end = natural(elements.next()?)?;
        let sequence = natural(elements.next()?);
        let granted = natural(elements.next()?)?;
        let left = natural(elements.next()?)?;
        let others = match natural(elements.next()?)? {
            0 => Others::Unused,
            1 => Others::AllUsed,
            2 => Others::TooMany,
            3 => return Some(None),
            _ => return None,
        };
        Some(Some(Self {
            begin,
            end,
            sequence,
            granted,
            left,
            others,
        }))
    }
}

fn natural(value: Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(number).ok(),
        _ => None,
    }
}
