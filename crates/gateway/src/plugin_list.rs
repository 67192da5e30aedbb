//! The command `plugins`: lists the plugins of the program in the order in which they run.

use crate::commands::{Failure, say};
use plugin::{Implementation, Lack, PluginDef};
use serde::Serialize;
use std::fmt::Write;
use std::sync::Arc;

const HEADINGS: [&str; 5] = ["NAME", "VERSION", "PRIORITY", "TODAY", "PHASES"];

/// A plugin in the output of the command.
#[derive(Debug, Serialize)]
struct Listed<'d> {
    name: &'d str,
    version: &'d str,
    priority: i32,
    /// The phases in which the plugin may run. A configuration may use fewer of them.
    phases: Vec<&'static str>,
    status: Status,
    /// What is missing as long as the plugin does not work.
    without: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Works,
    /// Every request that the plugin applies to gets status 500.
    Refuses,
    /// Requests pass as if the plugin were absent.
    Ignored,
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::Refuses => "refuses",
            Self::Ignored => "ignored",
        }
    }
}

impl<'d> Listed<'d> {
    fn new(def: &'d PluginDef) -> Self {
        let (status, without) = match def.implementation {
            Implementation::Ready(_) => (Status::Works, None),
            Implementation::Later { lack, without } => match lack {
                Lack::Protection => (Status::Refuses, Some(without)),
                Lack::Feature => (Status::Ignored, Some(without)),
            },
        };
        Self {
            name: &def.name,
            version: &def.version,
            priority: def.priority,
            phases: def.phases.names().collect(),
            status,
            without,
        }
    }
}

/// Prints the plugins, with the highest priority first.
pub(crate) fn run(json: bool) -> Result<(), Failure> {
    let all = list(plugins::bundled());
    if json {
        let shown = serde_json::to_string_pretty(&all).map_err(Failure::new)?;
        return say(&format!("{shown}\n"));
    }
    say(&table(&all))
}

fn list(defs: &[Arc<PluginDef>]) -> Vec<Listed<'_>> {
    defs.iter().map(|def| Listed::new(def)).collect()
}

/// Formats a table, and an explanation of its words.
fn table(all: &[Listed<'_>]) -> String {
    let rows = all.iter().map(|one| {
        [
            one.name.to_owned(),
            one.version.to_owned(),
            one.priority.to_string(),
            one.status.name().to_owned(),
            one.phases.join(" "),
        ]
    });
    let rows: Vec<[String; 5]> = std::iter::once(HEADINGS.map(str::to_owned))
        .chain(rows)
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max();
    let widths: Vec<usize> = (0..HEADINGS.len()).filter_map(width).collect();
    let mut out = String::new();
    for [name, version, priority, status, phases] in &rows {
        let _ = writeln!(
            out,
            "{name:<0$}  {version:<1$}  {priority:>2$}  {status:<3$}  {phases}",
            widths[0], widths[1], widths[2], widths[3],
        );
    }
    if all.iter().any(|one| one.status != Status::Works) {
        out.push_str(
            "\nrefuses: not implemented; every request that it applies to gets status 500\n\
             ignored: not implemented; requests pass as if it were absent\n",
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use plugin::{Phases, Scopes};
    use serde_json::json;

    fn later(name: &'static str, priority: i32, lack: Lack, phases: Phases) -> Arc<PluginDef> {
        Arc::new(PluginDef {
            name: name.into(),
            version: "1.0".into(),
            priority,
            phases,
            scopes: Scopes::ALL,
            implementation: Implementation::Later {
                lack,
                without: "Nothing happens.",
            },
            shortcoming: None,
            risk: None,
        })
    }

    #[test]
    fn the_table_has_a_line_for_each_plugin_in_their_order() {
        let phases = Phases::LOG.with(Phases::ACCESS);
        let defs = [
            later("guard", 1_000, Lack::Protection, phases),
            later("longer-log", 5, Lack::Feature, Phases::LOG),
        ];
        let expected = "\
NAME        VERSION  PRIORITY  TODAY    PHASES
guard       1.0          1000  refuses  access log
longer-log  1.0             5  ignored  log

refuses: not implemented; every request that it applies to gets status 500
ignored: not implemented; requests pass as if it were absent
";
        assert_eq!(table(&list(&defs)), expected);
    }

    #[test]
    fn json_has_the_same_facts() {
        let defs = [later("guard", 1_000, Lack::Protection, Phases::ACCESS)];
        let shown = serde_json::to_value(list(&defs)).expect("a list is JSON");
        let wanted = json!([{
            "name": "guard", "version": "1.0", "priority": 1000, "phases": ["access"],
            "status": "refuses", "without": "Nothing happens.",
        }]);
        assert_eq!(shown, wanted);
        let works = plugins::bundled().iter().find(|def| def.name == "key-auth");
        let works = Listed::new(works.expect("key-auth is bundled"));
        assert_eq!((works.status, works.without), (Status::Works, None));
        assert_eq!(works.status.name(), "works");
    }
}
