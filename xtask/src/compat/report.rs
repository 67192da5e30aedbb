//! Results of the suites as a table and lists.

use std::fmt::Write;

/// Results of one suite for one kind of connection to the gateway.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) suite: &'static str,
    pub(crate) version: String,
    /// The kind of connection, for example `TLS`.
    pub(crate) way: &'static str,
    pub(crate) passed: usize,
    pub(crate) failed: Vec<Case>,
    /// Cases that were not run.
    pub(crate) left_out: Vec<Case>,
    /// Further information, for example how long a part took.
    pub(crate) notes: Vec<String>,
}

/// One or several cases of a suite, with the reason for listing them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) why: String,
}

impl Case {
    pub(crate) fn new(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            why: why.into(),
        }
    }
}

impl Outcome {
    /// Counts a case. A case with a reason has failed.
    pub(crate) fn count(&mut self, name: &str, failure: Option<String>) {
        match failure {
            None => self.passed += 1,
            Some(why) => self.failed.push(Case::new(name, why)),
        }
    }

    pub(super) fn cases(&self) -> usize {
        self.passed + self.failed.len()
    }
}

/// Formats results for the terminal.
pub(super) fn text(outcomes: &[Outcome]) -> String {
    let mut text = format!(
        "\n{:<20}{:<10}{:<12}{:>7}{:>8}{:>8}\n",
        "suite", "version", "over", "cases", "passed", "failed"
    );
    for outcome in outcomes {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:<20}{:<10}{:<12}{:>7}{:>8}{:>8}",
            outcome.suite,
            outcome.version,
            outcome.way,
            outcome.cases(),
            outcome.passed,
            outcome.failed.len()
        );
    }
    for (title, of) in [("failed", failed as Of), ("left out", left_out as Of)] {
        for outcome in outcomes {
            for case in of(outcome) {
                let why = case.why.replace('\n', "\n      ");
                let _ = writeln!(
                    text,
                    "{title}: {} over {}: {}\n      {why}",
                    outcome.suite, outcome.way, case.name
                );
            }
        }
    }
    for (outcome, note) in noted(outcomes) {
        let _ = writeln!(text, "note: {} over {}: {note}", outcome.suite, outcome.way);
    }
    text
}

/// Formats results for the documentation.
pub(super) fn markdown(outcomes: &[Outcome]) -> String {
    let mut text =
        "| suite | version | over | cases | passed | failed |\n|---|---|---|---|---|---|\n"
            .to_owned();
    for outcome in outcomes {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} |",
            outcome.suite,
            outcome.version,
            outcome.way,
            outcome.cases(),
            outcome.passed,
            outcome.failed.len()
        );
    }
    for (title, of) in [("Failed", failed as Of), ("Not run", left_out as Of)] {
        let mut lines: Vec<String> = outcomes
            .iter()
            .flat_map(|outcome| {
                of(outcome).iter().map(|case| {
                    let first = case.why.lines().next().unwrap_or_default();
                    format!(
                        "- {} over {}: `{}`: {first}\n",
                        outcome.suite, outcome.way, case.name
                    )
                })
            })
            .collect();
        lines.dedup();
        let lines = if lines.is_empty() {
            "Nothing.\n".to_owned()
        } else {
            lines.concat()
        };
        let _ = write!(text, "\n### {title}\n\n{lines}");
    }
    let notes: String = noted(outcomes)
        .map(|(outcome, note)| format!("- {} over {}: {note}\n", outcome.suite, outcome.way))
        .collect();
    if !notes.is_empty() {
        let _ = write!(text, "\n### Noted\n\n{notes}");
    }
    text
}

fn noted(outcomes: &[Outcome]) -> impl Iterator<Item = (&Outcome, &String)> {
    outcomes
        .iter()
        .flat_map(|outcome| outcome.notes.iter().map(move |note| (outcome, note)))
}

type Of = fn(&Outcome) -> &[Case];

fn failed(outcome: &Outcome) -> &[Case] {
    &outcome.failed
}

fn left_out(outcome: &Outcome) -> &[Case] {
    &outcome.left_out
}
