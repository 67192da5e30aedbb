//! Random transactions, determined by seed, number and state.

use super::model::{Cell, Edit, Edits, Key, RULES, Refused, Row, Rule, State, rule_of};
use crate::support::id;
use model::EntityKind as K;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::CommitError;
use testkit::random::Random;
use uuid::Uuid;

/// The plan of a transaction.
#[derive(Debug)]
pub struct Plan {
    pub revisions: Vec<PlannedRevision>,
    pub end: End,
}

#[derive(Debug)]
pub struct PlannedRevision {
    pub sets: Vec<Edits>,
    pub end: RevisionEnd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RevisionEnd {
    Seal,
    Discard,
    /// The revision is left unsealed at the end of the transaction, so nothing of it may be kept.
    Leave,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Commit,
    GiveUp,
    Panic,
    /// The process ends immediately.
    Crash,
}

/// A step of a transaction, with its expected result.
pub enum Step<'p> {
    Apply(&'p Edits, Result<&'p State, &'p Refused>),
    /// The expected state after the discard.
    Discard(&'p State),
    Seal {
        state: &'p State,
        changes: bool,
    },
    End(End),
}

/// The store checks change sets of at most this many entities before it writes any of them. If it refuses a larger
/// change set, the transaction cannot be committed.
const CHECKED_FIRST: usize = 1000;

impl Plan {
    pub fn sets(&self) -> usize {
        self.revisions
            .iter()
            .map(|revision| revision.sets.len())
            .sum()
    }

    /// Plays the steps and returns the states of the revisions that are created.
    pub fn play(
        &self,
        start: &State,
        step: &mut dyn FnMut(Step<'_>) -> Result<(), CommitError>,
    ) -> Result<Vec<State>, CommitError> {
        let mut made = Vec::new();
        let mut head = start.clone();
        for revision in &self.revisions {
            let mut draft = head.clone();
            for edits in &revision.sets {
                let outcome = draft.apply(edits);
                step(Step::Apply(edits, outcome.as_ref()))?;
                match outcome {
                    Ok(next) => draft = next,
                    Err(refused) if refused.touched > CHECKED_FIRST => {
                        return Err(CommitError::Abandoned);
                    }
                    Err(_) => {}
                }
            }
            match revision.end {
                RevisionEnd::Leave => {}
                RevisionEnd::Discard => step(Step::Discard(&head))?,
                RevisionEnd::Seal => {
                    let changes = draft != head;
                    let state = &draft;
                    step(Step::Seal { state, changes })?;
                    if changes {
                        made.push(draft.clone());
                        head = draft;
                    }
                }
            }
        }
        step(Step::End(self.end))?;
        match self.end {
            End::Commit => Ok(made),
            End::GiveUp | End::Panic | End::Crash => Err(CommitError::Abandoned),
        }
    }
}

/// Number of entities per type. It is small, so that different changes affect the same entities.
const POOL: u64 = 8;
/// One in this many transactions writes more than [`CHECKED_FIRST`] credentials. The next transaction removes them.
const BULK: u64 = 500;

/// Returns a different random sequence for each number.
pub fn random(seed: u64, number: u64) -> Random {
    Random::new(seed ^ number.wrapping_mul(0xd134_2543_de82_ef95))
}

pub fn plan(seed: u64, number: u64, state: &State) -> Plan {
    let mut random = random(seed, number);
    let revisions = match number % BULK {
        7 => vec![seal(bulk(&mut random))],
        8 => vec![seal(delete(K::Consumers, 0))],
        _ => {
            let count = 1 + random.below(4);
            (0..count)
                .map(|at| revision(&mut random, state, at + 1 == count))
                .collect()
        }
    };
    let end = match random.below(400) {
        0..12 => End::GiveUp,
        12..16 => End::Panic,
        16 => End::Crash,
        _ => End::Commit,
    };
    Plan { revisions, end }
}

fn seal(set: Edits) -> PlannedRevision {
    PlannedRevision {
        sets: vec![set],
        end: RevisionEnd::Seal,
    }
}

fn revision(random: &mut Random, state: &State, is_last: bool) -> PlannedRevision {
    let count = 1 + random.below(3);
    PlannedRevision {
        sets: (0..count).map(|_| edits(random, state)).collect(),
        end: match random.below(10) {
            0 => RevisionEnd::Discard,
            1 if is_last => RevisionEnd::Leave,
            _ => RevisionEnd::Seal,
        },
    }
}

fn edits(random: &mut Random, state: &State) -> Edits {
    let count = match random.below(8) {
        0..5 => 1,
        5..7 => 2 + random.below(3),
        _ => random.below(8),
    };
    let mut edits = Edits::default();
    for _ in 0..count {
        let kind = random.pick(RULES).kind;
        let key = (kind, number(kind, random.below(POOL)));
        let edit = match random.below(100) {
            0..25 => Edit::Delete,
            25 => Edit::Garbage,
            // The entity is written unchanged.
            26..30 => match state.rows.get(&key) {
                Some(row) => Edit::Put(Arc::clone(row)),
                None => Edit::Delete,
            },
            _ => Edit::Put(Arc::new(row(random, state, key))),
        };
        edits.entities.push((key, edit));
    }
    if random.one_in(10) {
        let name = format!("name-{}", random.below(3));
        let value = (!random.one_in(3)).then(|| vec![random.below(4) as u8; 20]);
        edits.meta.push((name, value));
    }
    edits
}

fn delete(kind: K, entity: u64) -> Edits {
    let mut edits = Edits::default();
    let key = (kind, number(kind, entity));
    edits.entities.push((key, Edit::Delete));
    edits
}

/// The id of an entity of the pool.
pub fn number(kind: K, entity: u64) -> Uuid {
    id(u128::from(kind.number()) * 10_000 + u128::from(entity))
}

/// Returns puts of one consumer with 1,100 credentials. Sometimes two credentials have the same key.
fn bulk(random: &mut Random) -> Edits {
    let consumer = (K::Consumers, number(K::Consumers, 0));
    let mut edits = Edits::default();
    let cells = BTreeMap::from([("username".to_owned(), Cell::Text("bulk".into()))]);
    let row = Row::new(consumer, cells);
    edits.entities.push((consumer, Edit::Put(Arc::new(row))));
    let twice = random.one_in(3).then(|| random.below(1000));
    for credential in 0..1100 {
        let key = (
            plugins::kinds::KEYAUTH_CREDENTIALS,
            number(plugins::kinds::KEYAUTH_CREDENTIALS, 100 + credential),
        );
        let text = match twice {
            Some(twice) if credential == twice + 1 => format!("bulk-{twice}"),
            _ => format!("bulk-{credential}"),
        };
        let cells = BTreeMap::from([
            ("key".to_owned(), Cell::Text(text)),
            ("consumer".to_owned(), Cell::Parent(consumer.1)),
        ]);
        let row = Row::new(key, cells);
        edits.entities.push((key, Edit::Put(Arc::new(row))));
    }
    edits
}

fn row(random: &mut Random, state: &State, key: Key) -> Row {
    let Rule {
        unique,
        together,
        parents,
        ..
    } = rule_of(key.0);
    let mut cells = BTreeMap::new();
    for field in unique.iter().chain(*together) {
        if !random.one_in(5) {
            cells.insert((*field).to_owned(), Cell::Text(text(random)));
        }
    }
    for (field, kind, _) in *parents {
        cells.remove(*field);
        if !random.one_in(4) {
            let parent = parent(random, state, *kind);
            cells.insert((*field).to_owned(), Cell::Parent(parent));
        }
    }
    if random.one_in(3) {
        let tags = (0..random.below(4)).map(|_| text(random)).collect();
        cells.insert("tags".to_owned(), Cell::Tags(tags));
    }
    if key.0 == K::Certificates {
        let length = match random.below(4) {
            0 => random.below(30_000),
            _ => random.below(200),
        };
        let cert = "c".repeat(length as usize);
        cells.insert("cert".to_owned(), Cell::Text(cert));
    }
    Row::new(key, cells)
}

/// Returns a parent, mostly one that existed when the transaction began.
fn parent(random: &mut Random, state: &State, kind: K) -> Uuid {
    let there: Vec<Uuid> = state
        .rows
        .range((kind, Uuid::nil())..=(kind, Uuid::max()))
        .map(|((_, id), _)| *id)
        .collect();
    if there.is_empty() || random.one_in(20) {
        number(kind, random.below(POOL))
    } else {
        *random.pick(&there)
    }
}

/// Returns one of a few names, so that names collide. Two names are too long for a key, and one contains the byte that
/// terminates texts in keys.
pub fn text(random: &mut Random) -> String {
    let number = random.below(24);
    match number {
        0..2 => format!("{}{number}", "long-".repeat(90)),
        2 => "with\0zero".to_owned(),
        3 => "with".to_owned(),
        _ => format!("n{number}"),
    }
}
