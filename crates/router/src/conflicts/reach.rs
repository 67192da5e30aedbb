//! Checks whether the router ever chooses a candidate. The check creates a request that satisfies the candidate and
//! passes it to the router. If the router chooses another candidate, the check removes the requests of that candidate
//! and creates another request from the rest. It ends when the candidate is chosen, or when no requests are left.

use super::cases::{Case, TooMany, cases};
use super::texts::Solution;
use super::{Decider, Prober};
use crate::candidate::Candidate;
use std::sync::Arc;

/// Maximum number of requests that are created for one candidate, and maximum number of its cases at a time.
const MAX_STEPS: usize = 200;
const MAX_PIECES: usize = 1000;

/// Maximum number of shadowing candidates for which each one is tested for being redundant.
const MAX_MINIMISED: usize = 16;

pub(super) enum Fate<'r> {
    Reached,
    Contradicts,
    /// Each of its requests satisfies one of these better candidates. They are in no particular order.
    Shadowed(Vec<&'r Candidate>),
    Unknown,
}

/// A candidate that was chosen for an earlier request.
struct Suspect<'r> {
    candidate: &'r Candidate,
    cases: Vec<Case<'r>>,
}

pub(super) fn fate<'r, D: Decider>(
    prober: &mut Prober<'r, '_, D>,
    candidate: &'r Candidate,
) -> Fate<'r> {
    let Ok(wanted) = cases(&candidate.expression, D::SUBSYSTEM) else {
        return Fate::Unknown;
    };
    let mut suspects = Vec::new();
    let fate = search(prober, candidate, wanted.clone(), &mut suspects);
    match fate.unwrap_or(Some(Fate::Unknown)) {
        Some(fate) => fate,
        None if suspects.is_empty() => Fate::Contradicts,
        None => Fate::Shadowed(needed(prober, &wanted, suspects)),
    }
}

/// Searches for a request for which the router chooses the candidate. If the router chooses another candidate, that one
/// is added to `suspects`. Returns `None` if no request is left.
fn search<'r, D: Decider>(
    prober: &mut Prober<'r, '_, D>,
    candidate: &'r Candidate,
    mut pieces: Vec<Case<'r>>,
    suspects: &mut Vec<Suspect<'r>>,
) -> Result<Option<Fate<'r>>, TooMany> {
    // Cases for which no request could be created. They may nevertheless contain requests.
    let mut dark: Vec<Case<'r>> = Vec::new();
    for _ in 0..MAX_STEPS {
        let Some(piece) = pieces.pop() else {
            return Ok((!dark.is_empty()).then_some(Fate::Unknown));
        };
        let example = match prober.example(&piece) {
            Solution::Nothing => continue,
            Solution::One(example) if prober.accepts(&candidate.expression, &example) => example,
            Solution::One(_) | Solution::Unknown => {
                dark.push(piece);
                continue;
            }
        };
        if prober.search.steps.are_used_up() {
            return Ok(Some(Fate::Unknown));
        }
        let Some(winner) = prober.winner(&example) else {
            return Ok(Some(Fate::Unknown));
        };
        if Arc::ptr_eq(&winner.expression, &candidate.expression) {
            return Ok(Some(Fate::Reached));
        }
        let cases = cases(&winner.expression, D::SUBSYSTEM)?;
        pieces.push(piece);
        pieces = without(prober, pieces, &cases)?;
        dark = without(prober, dark, &cases)?;
        if suspects
            .iter()
            .any(|known| Arc::ptr_eq(&known.candidate.expression, &winner.expression))
        {
            // The cases of this candidate were already removed, but the router has chosen it again. The request is
            // therefore not in its own case: some of its fields depend on each other.
            return Ok(Some(Fate::Unknown));
        }
        suspects.push(Suspect {
            candidate: winner,
            cases,
        });
    }
    Err(TooMany)
}

/// Removes the requests of the cases from the pieces, and returns the rest.
fn without<'r, D: Decider>(
    prober: &Prober<'r, '_, D>,
    pieces: Vec<Case<'r>>,
    cases: &[Case<'r>],
) -> Result<Vec<Case<'r>>, TooMany> {
    let steps = &prober.search.steps;
    let mut left = pieces;
    for case in cases {
        let mut next = Vec::with_capacity(left.len());
        for piece in left {
            if !steps.spend(piece.meeting(case)) {
                return Err(TooMany);
            }
            if piece.excludes(case) {
                next.push(piece);
            } else if steps.spend(case.negating()) {
                next.extend(piece.without(case, D::SUBSYSTEM)?);
            } else {
                return Err(TooMany);
            }
        }
        if next.len() > MAX_PIECES {
            return Err(TooMany);
        }
        left = next;
    }
    Ok(left)
}

/// Returns a candidate that alone shadows everything, if there is one. Otherwise returns all candidates that are needed
/// together. With more than `MAX_MINIMISED` suspects, it returns all of them, because the test takes too long.
fn needed<'r, D: Decider>(
    prober: &Prober<'r, '_, D>,
    wanted: &[Case<'r>],
    suspects: Vec<Suspect<'r>>,
) -> Vec<&'r Candidate> {
    let covered = |by: &[&Suspect<'r>]| {
        let mut left = Ok(wanted.to_vec());
        for suspect in by {
            left = left.and_then(|left| without(prober, left, &suspect.cases));
        }
        left.is_ok_and(|left| {
            left.iter()
                .all(|piece| matches!(prober.example(piece), Solution::Nothing))
        })
    };
    let mut by: Vec<&Suspect<'r>> = suspects.iter().collect();
    if let Some(one) = by.iter().find(|one| covered(&[one])) {
        return vec![one.candidate];
    }
    if by.len() <= MAX_MINIMISED {
        let mut at = 0;
        while at < by.len() {
            let spared = by.remove(at);
            if !covered(&by) {
                by.insert(at, spared);
                at += 1;
            }
        }
    }
    by.iter().map(|suspect| suspect.candidate).collect()
}
