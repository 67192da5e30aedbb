//! The output of `bench compare`.

use super::{Basis, Change, Comparison, FAMILY_ERROR, Key, Verdict};
use crate::report::{number, percent_change, table};
use std::fmt::Write;

impl Comparison {
    pub fn print(&self, all: bool) -> String {
        let mut text = String::new();
        for warning in &self.warnings {
            let _ = writeln!(text, "warning: {warning}");
        }
        let shown = |change: &&Change| all || change.verdict != Verdict::WithinNoise;
        let shown: Vec<&Change> = self.changes.iter().filter(shown).collect();
        if !shown.is_empty() {
            text += &table(&columns(&shown), "");
            text.push('\n');
        }
        text += &self.summary();
        text += &only("before", &self.only_before);
        text += &only("after", &self.only_after);
        text += &self.method();
        text
    }

    fn summary(&self) -> String {
        let count = |verdict| {
            self.changes
                .iter()
                .filter(|change| change.verdict == verdict)
                .count()
        };
        let mut summary = format!(
            "{} figures compared: {} worse, {} better, {} that differ, {} within noise",
            self.changes.len(),
            count(Verdict::Worse),
            count(Verdict::Better),
            count(Verdict::Differs),
            count(Verdict::WithinNoise)
        );
        if count(Verdict::TooFew) > 0 {
            let _ = write!(
                summary,
                ", {} with too few samples to tell",
                count(Verdict::TooFew)
            );
        }
        summary + ".\n"
    }

    fn method(&self) -> String {
        let multiples = self
            .changes
            .iter()
            .any(|change| matches!(change.basis, Basis::Multiple(_)));
        let mut method = format!(
            "Intervals: {:.4} % each, so that all together are right with {} % (Bonferroni); block bootstrap of the ratio of medians.\n",
            self.confidence * 100.0,
            (1.0 - FAMILY_ERROR) * 100.0
        );
        if multiples {
            method += "“of × relay” and “of × nginx”: compared is the ratio to that subject round by round, which a drift of the machine \
                       between the runs does not change; before and after are the figures themselves.\n";
        }
        method
            + "Not in the intervals: what differs from one start of a program to the next. Run the same program twice to see it.\n"
    }
}

fn columns(changes: &[&Change]) -> Vec<Vec<String>> {
    let column = |heading: &str, cell: &dyn Fn(&Change) -> String| -> Vec<String> {
        let cells = changes.iter().map(|change| cell(change));
        [heading.to_owned()].into_iter().chain(cells).collect()
    };
    vec![
        column("figure", &|change| name(&change.key)),
        column("before", &|change| number(change.before)),
        column("after", &|change| {
            format!("{} {}", number(change.after), change.unit)
                .trim_end()
                .to_owned()
        }),
        column("change", &|change| moved(change, change.moved)),
        column("interval", &|change| {
            let ends = [change.interval.low, change.interval.high].map(|end| moved(change, end));
            format!("{} … {}", ends[0], ends[1])
        }),
        column("", &|change| match change.basis {
            Basis::Ratio => String::new(),
            Basis::Multiple(subject) => format!("of × {subject}"),
            Basis::Difference => "difference".to_owned(),
        }),
        column("", &|change| word(change.verdict).to_owned()),
    ]
}

fn moved(change: &Change, by: f64) -> String {
    match change.basis {
        Basis::Difference if by > 0.0 => format!("+{}", number(by)),
        Basis::Difference => number(by),
        _ => percent_change(by),
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Worse => "WORSE",
        Verdict::Better => "better",
        Verdict::Differs => "differs",
        Verdict::TooFew => "too few samples",
        Verdict::WithinNoise => "within noise",
    }
}

fn name(key: &Key) -> String {
    format!(
        "{}: {}: {}: {}",
        key.scenario, key.case, key.subject, key.quantity
    )
}

fn only(which: &str, keys: &[Key]) -> String {
    if keys.is_empty() {
        return String::new();
    }
    let names: String = keys
        .iter()
        .map(|key| format!("  {}\n", name(key)))
        .collect();
    format!("Only in the report {which}:\n{names}")
}
