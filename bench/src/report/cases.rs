//! The cases of a scenario, with their subjects and quantities. All lists are in the order of the report.

use super::{Figure, Latency, Scenario, Series};
use crate::statistics::Samples;

/// The most important quantity of the project.
pub const CPU: &str = "CPU per request";

/// Subjects that the others are compared with, the cheapest first. The relay parses nothing, so it shows the minimum
/// cost of a proxy.
pub const REFERENCES: [&str; 2] = ["relay", "nginx"];

/// The measurements of one case.
pub struct Case<'a> {
    pub name: &'a str,
    pub figures: Vec<&'a Figure>,
    pub latencies: Vec<&'a Latency>,
    pub series: Vec<&'a Series>,
}

impl Scenario {
    pub fn cases(&self) -> Vec<Case<'_>> {
        let names = (self.figures.iter().map(|figure| &figure.case))
            .chain(self.latencies.iter().map(|latency| &latency.case))
            .chain(self.series.iter().map(|series| &series.case));
        distinct(names.map(String::as_str))
            .into_iter()
            .map(|name| self.case(name))
            .collect()
    }

    fn case<'a>(&'a self, name: &'a str) -> Case<'a> {
        Case {
            name,
            figures: (self.figures.iter())
                .filter(|figure| figure.case == name)
                .collect(),
            latencies: (self.latencies.iter())
                .filter(|latency| latency.case == name)
                .collect(),
            series: (self.series.iter())
                .filter(|series| series.case == name)
                .collect(),
        }
    }
}

impl<'a> Case<'a> {
    /// Returns the subjects of figures and latencies.
    pub fn subjects(&self) -> Vec<&'a str> {
        let figures = self.figures.iter().map(|figure| figure.subject.as_str());
        distinct(
            figures.chain(
                self.latencies
                    .iter()
                    .map(|latency| latency.subject.as_str()),
            ),
        )
    }

    /// Returns the quantities, with CPU per request first.
    pub fn quantities(&self) -> Vec<&'a str> {
        let mut quantities = distinct(self.figures.iter().map(|figure| figure.quantity.as_str()));
        quantities.sort_by_key(|quantity| *quantity != CPU);
        quantities
    }

    /// Returns the figures of this quantity, one for each subject that has it.
    pub fn of_quantity(&self, quantity: &str) -> Vec<&'a Figure> {
        (self.figures.iter())
            .filter(|figure| figure.quantity == quantity)
            .copied()
            .collect()
    }

    pub fn figure(&self, subject: &str, quantity: &str) -> Option<&'a Figure> {
        (self.figures.iter())
            .find(|figure| figure.subject == subject && figure.quantity == quantity)
            .copied()
    }

    pub fn latency(&self, subject: &str) -> Option<&'a Latency> {
        (self.latencies.iter())
            .find(|latency| latency.subject == subject)
            .copied()
    }

    /// Returns the quantity for which the tables show ratios to the references.
    pub fn main_quantity(&self) -> Option<&'a str> {
        self.quantities().first().copied()
    }

    /// Returns the references in this case, if there are other subjects to compare with them.
    pub fn references(&self) -> Vec<&'static str> {
        let Some(main) = self.main_quantity() else {
            return Vec::new();
        };
        if self.of_quantity(main).len() < 2 {
            return Vec::new();
        }
        (REFERENCES.into_iter())
            .filter(|reference| self.figure(reference, main).is_some())
            .collect()
    }

    /// Returns the subject's main quantity divided by the reference's, round by round. Returns `None` for the reference
    /// itself.
    pub fn multiples(&self, subject: &str, reference: &str) -> Option<Samples> {
        let main = self.main_quantity()?;
        let own = self.figure(subject, main)?;
        (subject != reference)
            .then(|| self.figure(reference, main))?
            .map(|reference| own.samples.ratio(&reference.samples))
    }
}

impl Figure {
    /// Returns the quantity with its unit: `CPU per request, µs`.
    pub fn title(&self) -> String {
        titled(&self.quantity, &self.unit)
    }
}

impl Latency {
    /// Returns a quantile in microseconds, or NaN if no request was answered.
    pub fn quantile(&self, at: f64) -> f64 {
        let rank = (at * self.requests() as f64).ceil().max(1.0) as u64;
        let mut passed = 0;
        for (end, count) in &self.buckets {
            passed += count;
            if passed >= rank {
                return *end;
            }
        }
        f64::NAN
    }

    pub fn requests(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

pub fn titled(quantity: &str, unit: &str) -> String {
    match unit {
        "" => quantity.to_owned(),
        unit => format!("{quantity}, {unit}"),
    }
}

/// Returns the distinct values in the order of their first appearance.
pub fn distinct<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for item in all {
        if !distinct.contains(&item) {
            distinct.push(item);
        }
    }
    distinct
}
