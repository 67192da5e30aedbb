//! Reports as JSON files. An error names the file and the field that makes it invalid.

use super::{FORMAT, Figure, Latency, Machine, Report, Scenario, Series};
use anyhow::{Context, Result, anyhow, bail};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fs;
use std::path::Path;

impl Report {
    pub fn read(path: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        parse(&text).with_context(|| format!("{} is not a report", path.display()))
    }

    pub fn write(&self, path: &Path) -> Result<()> {
        let mut text = serde_json::to_string(self).context("cannot make JSON of the report")?;
        text.push('\n');
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

fn parse(text: &str) -> Result<Report> {
    let value: Value = serde_json::from_str(text).context("it is not JSON")?;
    let format = value.get("format").context("it has no field `format`")?;
    if format.as_u64() != Some(u64::from(FORMAT)) {
        bail!("field `format` is {format}, and this program reads format {FORMAT}");
    }
    // Parsed from the text, because this keeps the last digit of floats and gives errors a line number.
    serde_json::from_str(text).map_err(|error| blame(&value).unwrap_or_else(|| anyhow!(error)))
}

/// Finds the invalid field. serde itself reports the position in the text, but not the field's name.
fn blame(report: &Value) -> Option<anyhow::Error> {
    each::<Scenario>(report, "scenarios", "", |scenario, place| {
        each::<Figure>(scenario, "figures", place, |_, _| None)
            .or_else(|| each::<Latency>(scenario, "latencies", place, |_, _| None))
            .or_else(|| each::<Series>(scenario, "series", place, |_, _| None))
    })
    .or_else(|| wrong::<Machine>(report.get("machine")?, "machine"))
}

/// Finds the first entry of the list `field` that is not a `T`, and returns its error. `inside` searches the entry for
/// a more precise error. If it finds none, serde's error for the entry is returned.
fn each<T: DeserializeOwned>(
    parent: &Value,
    field: &str,
    place: &str,
    inside: impl Fn(&Value, &str) -> Option<anyhow::Error>,
) -> Option<anyhow::Error> {
    let entries = parent.get(field)?.as_array()?;
    entries.iter().enumerate().find_map(|(index, entry)| {
        let place = format!("{place}{field}[{index}]");
        let error = wrong::<T>(entry, &place)?;
        Some(inside(entry, &format!("{place}.")).unwrap_or(error))
    })
}

fn wrong<T: DeserializeOwned>(value: &Value, place: &str) -> Option<anyhow::Error> {
    let error = T::deserialize(value).err()?;
    Some(anyhow!("field `{place}`: {error}"))
}
