//! Pressure stall information (PSI): for how long work has waited for processors, memory or disks.

use plugin::services::metrics::{Kind, Page};
use std::fs;
use std::path::Path;

/// Where the whole system's files are.
const SYSTEM: &str = "/proc/pressure";
const RESOURCES: [&str; 3] = ["cpu", "memory", "io"];

/// Writes the pressure on the control group in this directory. Without one, or if it has no such files, that on the
/// whole system.
pub(super) fn write(group: Option<&Path>, page: &mut Page) {
    let samples: Vec<_> = RESOURCES
        .into_iter()
        .filter_map(|resource| Some((resource, read(group, Path::new(SYSTEM), resource)?)))
        .collect();
    if samples.is_empty() {
        return;
    }
    page.family(
        "silverback_pressure_seconds_total",
        "Time for which some tasks, or all of them (full), have waited for a resource.",
        Kind::Counter,
    );
    for (resource, text) in samples {
        for (kind, seconds) in parse(&text) {
            page.sample(&[("resource", resource), ("kind", kind)], seconds);
        }
    }
}

fn read(group: Option<&Path>, system: &Path, resource: &str) -> Option<String> {
    let own = group.map(|group| group.join(format!("{resource}.pressure")));
    let own = own.and_then(|path| fs::read_to_string(path).ok());
    own.or_else(|| fs::read_to_string(system.join(resource)).ok())
}

/// Parses lines such as `some avg10=0.00 avg60=0.00 avg300=0.00 total=1234`, with the total in microseconds.
fn parse(text: &str) -> impl Iterator<Item = (&str, f64)> {
    text.lines().filter_map(|line| {
        let (kind, fields) = line.split_once(' ')?;
        let mut fields = fields.split_ascii_whitespace();
        let total: u64 = fields
            .find_map(|field| field.strip_prefix("total="))?
            .parse()
            .ok()?;
        matches!(kind, "some" | "full").then_some((kind, total as f64 / 1e6))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_read() {
        let text = "\
some avg10=1.53 avg60=0.87 avg300=0.73 total=4567890
full avg10=0.00 avg60=0.00 avg300=0.00 total=120000
other avg10=0.00 total=1
some
";
        let totals: Vec<_> = parse(text).collect();
        assert_eq!(totals, [("some", 4.567_89), ("full", 0.12)]);
    }

    #[test]
    fn the_group_counts_before_the_system() {
        let (group, system) = (
            tempfile::tempdir().expect("a directory"),
            tempfile::tempdir().expect("a directory"),
        );
        fs::write(group.path().join("cpu.pressure"), "group").expect("written");
        for resource in ["cpu", "io"] {
            fs::write(system.path().join(resource), "system").expect("written");
        }
        let read = |group, resource| read(group, system.path(), resource);
        assert_eq!(read(Some(group.path()), "cpu").as_deref(), Some("group"));
        assert_eq!(read(Some(group.path()), "io").as_deref(), Some("system"));
        assert_eq!(read(None, "cpu").as_deref(), Some("system"));
        assert_eq!(read(None, "memory"), None);
    }
}
