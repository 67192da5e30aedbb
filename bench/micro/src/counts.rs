//! Instruction counts as stored in a file, and the comparison of two such files.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// Relative difference up to which a count is not considered changed.
const TOLERANCE: f64 = 0.03;

/// Difference in instructions that is always tolerated. A different alignment can change the cost of a copy by a dozen
/// instructions, and a change elsewhere can change which calls are inlined. For a small operation that is more than
/// 3 %, although the operation itself is unchanged.
const FLOOR: f64 = 40.0;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// Processor architecture. Libraries choose code by processor, so counts of different processors cannot be
    /// compared.
    architecture: String,
    avx2: bool,
    operations: BTreeMap<String, f64>,
}

impl Counts {
    pub(crate) fn of_this_machine(operations: BTreeMap<String, f64>) -> Self {
        Self {
            architecture: std::env::consts::ARCH.to_owned(),
            avx2: has_avx2(),
            // Rounded to tenths, because smaller parts differ between runs.
            operations: operations
                .into_iter()
                .map(|(name, count)| (name, (count * 10.0).round() / 10.0))
                .collect(),
        }
    }

    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("cannot read {}", path.display()))
    }

    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Writes these counts to a file. If only `some` operations were counted, the others in the file are kept.
    pub(crate) fn update(&self, path: &Path, some: bool) -> Result<()> {
        if !some {
            return self.write(path);
        }
        let mut kept = Self::read(path)?;
        if let Some(reason) = kept.is_of_another_machine() {
            bail!("the counts can only be updated all together: {reason}");
        }
        kept.operations.extend(self.operations.clone());
        kept.write(path)
    }

    /// Returns why these counts cannot be compared with counts from this machine, or `None` if they can.
    pub(crate) fn is_of_another_machine(&self) -> Option<String> {
        let here = Self::of_this_machine(BTreeMap::new());
        let show = |counts: &Self| {
            let avx2 = if counts.avx2 { "with" } else { "without" };
            format!("{} {avx2} AVX2", counts.architecture)
        };
        let same = (&self.architecture, self.avx2) == (&here.architecture, here.avx2);
        (!same).then(|| {
            format!(
                "the committed counts are of {}, this is {}",
                show(self),
                show(&here)
            )
        })
    }

    /// Compares new counts with these committed counts; differences are an error.
    pub(crate) fn check(&self, now: &Self) -> Result<()> {
        let differences = self.differences(now);
        for difference in &differences {
            println!("{difference}");
        }
        if differences.iter().any(Difference::is_refused) {
            bail!(
                "instruction counts are not those of the committed file. Where that is meant, say why in the commit that \
                 updates it (`micro count --update FILE`)"
            );
        }
        if !differences.is_empty() {
            println!(
                "some operations take fewer instructions now: please commit the new counts (`--update`)"
            );
        }
        Ok(())
    }

    /// Returns the operations that need more instructions than these committed counts allow.
    pub(crate) fn grown(&self, now: &Self) -> Vec<String> {
        let differences = self.differences(now).into_iter();
        let grown = differences.filter_map(|difference| match difference {
            Difference::Changed {
                name,
                before,
                after,
            } if after > before => Some(name),
            _ => None,
        });
        grown.collect()
    }

    /// Replaces each count by the given one if that is lower.
    pub(crate) fn lower(&mut self, counts: BTreeMap<String, f64>) {
        for (name, count) in counts {
            if let Some(known) = self.operations.get_mut(&name) {
                *known = known.min(count);
            }
        }
    }

    fn differences(&self, now: &Self) -> Vec<Difference> {
        let gone = self
            .operations
            .keys()
            .filter(|name| !now.operations.contains_key(*name));
        let gone = gone.cloned().map(Difference::Gone);
        let counted = now.operations.iter().filter_map(|(name, &after)| {
            let Some(&before) = self.operations.get(name) else {
                return Some(Difference::New(name.clone()));
            };
            let has_changed = (after - before).abs() > FLOOR.max(before * TOLERANCE);
            has_changed.then(|| Difference::Changed {
                name: name.clone(),
                before,
                after,
            })
        });
        gone.chain(counted).collect()
    }
}

#[derive(Debug, PartialEq)]
enum Difference {
    /// The operation is only in the file.
    Gone(String),
    /// The operation is not in the file.
    New(String),
    Changed {
        name: String,
        before: f64,
        after: f64,
    },
}

impl Difference {
    fn is_refused(&self) -> bool {
        match self {
            Self::Gone(_) | Self::New(_) => true,
            Self::Changed { before, after, .. } => after > before,
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone(name) => write!(formatter, "gone:   {name} has a committed count only"),
            Self::New(name) => write!(formatter, "new:    {name} has no committed count"),
            Self::Changed {
                name,
                before,
                after,
            } => {
                let verb = if after > before { "grown: " } else { "fallen:" };
                let percent = (after / before - 1.0) * 100.0;
                write!(
                    formatter,
                    "{verb} {name} from {before:.1} to {after:.1} ({percent:+.1} %)"
                )
            }
        }
    }
}

impl fmt::Display for Counts {
    /// Formats the counts as a table.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.operations.keys().map(String::len).max().unwrap_or(0);
        for (name, count) in &self.operations {
            writeln!(formatter, "{name:width$} {count:>14.1}")?;
        }
        Ok(())
    }
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    std::arch::is_x86_feature_detected!("avx2")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx2() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(operations: &[(&str, f64)]) -> Counts {
        let operations = operations
            .iter()
            .map(|(name, count)| ((*name).to_owned(), *count));
        Counts::of_this_machine(operations.collect())
    }

    #[test]
    fn what_grows_within_the_tolerance_passes() {
        let committed = counts(&[("a", 10_000.0), ("b", 2000.0)]);
        let now = counts(&[("a", 10_290.0), ("b", 1950.0)]);
        assert_eq!(committed.differences(&now), []);
        assert!(committed.check(&now).is_ok());
    }

    #[test]
    fn a_few_instructions_pass_however_small_the_operation() {
        let committed = counts(&[("a", 382.0), ("b", 382.0), ("c", 10.0)]);
        let now = counts(&[("a", 422.0), ("b", 342.0), ("c", 40.0)]);
        assert_eq!(committed.differences(&now), []);
        let now = counts(&[("a", 422.1), ("b", 341.9), ("c", 50.1)]);
        assert_eq!(committed.differences(&now).len(), 3);
        assert!(committed.check(&now).is_err());
    }

    #[test]
    fn what_grows_beyond_the_tolerance_is_refused_with_both_counts() {
        let committed = counts(&[("a", 10_000.0)]);
        let now = counts(&[("a", 10_310.0)]);
        let differences = committed.differences(&now);
        let shown: Vec<String> = differences.iter().map(Difference::to_string).collect();
        assert_eq!(shown, ["grown:  a from 10000.0 to 10310.0 (+3.1 %)"]);
        assert!(committed.check(&now).is_err());
    }

    #[test]
    fn an_operation_that_has_grown_is_named_and_a_lower_count_of_it_kept() {
        let committed = counts(&[("a", 10_000.0), ("b", 10_000.0), ("c", 10_000.0)]);
        let mut now = counts(&[("a", 12_000.0), ("b", 10_100.0), ("c", 9_000.0)]);
        assert_eq!(committed.grown(&now), ["a"]);
        now.lower([("a".to_owned(), 13_000.0)].into());
        assert_eq!(committed.grown(&now), ["a"]);
        now.lower([("a".to_owned(), 10_200.0)].into());
        assert_eq!(committed.grown(&now), Vec::<String>::new());
        assert!(committed.check(&now).is_ok());
    }

    #[test]
    fn what_falls_is_told_and_passes() {
        let committed = counts(&[("a", 1000.0)]);
        let now = counts(&[("a", 500.0)]);
        assert_eq!(committed.differences(&now).len(), 1);
        assert!(committed.check(&now).is_ok());
    }

    #[test]
    fn operations_on_one_side_only_are_refused() {
        let (one, two) = (counts(&[("a", 1.0)]), counts(&[("a", 1.0), ("b", 1.0)]));
        assert!(one.check(&two).is_err());
        assert!(two.check(&one).is_err());
    }

    #[test]
    fn counts_of_another_processor_are_not_compared() {
        let mut committed = counts(&[]);
        assert_eq!(committed.is_of_another_machine(), None);
        committed.avx2 = !committed.avx2;
        assert!(committed.is_of_another_machine().is_some());
    }

    #[test]
    fn a_part_of_the_counts_updates_only_itself() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("counts.json");
        counts(&[("a", 1.0), ("b", 2.0)]).write(&path).unwrap();
        counts(&[("b", 3.0)]).update(&path, true).unwrap();
        assert_eq!(
            Counts::read(&path).unwrap(),
            counts(&[("a", 1.0), ("b", 3.0)])
        );
        counts(&[("b", 3.0)]).update(&path, false).unwrap();
        assert_eq!(Counts::read(&path).unwrap(), counts(&[("b", 3.0)]));
    }

    #[test]
    fn each_count_has_a_line_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("counts.json");
        counts(&[("b", 2.25), ("a", 1.0)]).write(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("    \"a\": 1.0,\n    \"b\": 2.3\n"), "{text}");
    }
}
