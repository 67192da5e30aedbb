//! Formats history for people. Each revision is one line, and each changed entity is shown with the fields that differ.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Formats a table of revisions. The history of one entity also shows how each revision changed it. A last line says
/// whether there are `more` revisions.
pub(super) fn list(answer: &Value, more: bool) -> String {
    let revisions = items(answer);
    let Some(first) = revisions.first() else {
        return "no revisions\n".to_owned();
    };
    let with_changes = first.get("change").is_some();
    let mut rows = vec![["REVISION", "TIME", "CHANGES", "BY", "MESSAGE"].map(str::to_owned)];
    rows.extend(revisions.iter().map(row));
    let widths = [0, 1, 2, 3].map(|column| {
        let lengths = rows
            .iter()
            .map(|row: &[String; 5]| row[column].chars().count());
        lengths.max().unwrap_or(0)
    });
    let mut out = String::new();
    for (index, row) in rows.iter().enumerate() {
        let mut line = String::new();
        for (text, width) in row.iter().zip(widths) {
            let _ = write!(line, "{text:<width$}  ");
        }
        line.push_str(&row[4]);
        let _ = writeln!(out, "{}", line.trim_end());
        if with_changes && index > 0 {
            change(&mut out, &revisions[index - 1]["change"]);
        }
    }
    if more {
        out.push_str("… older revisions: --limit N shows more\n");
    }
    out
}

fn row(revision: &Value) -> [String; 5] {
    [
        revision["revision"].to_string(),
        plain(&revision["time"]),
        counts(revision),
        made_by(revision),
        // A message with line breaks must not break the table.
        plain(&revision["message"])
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" "),
    ]
}

fn counts(revision: &Value) -> String {
    let [created, updated, deleted] =
        ["created", "updated", "deleted"].map(|name| revision[name].as_u64().unwrap_or(0));
    format!("+{created} ~{updated} -{deleted}")
}

fn made_by(revision: &Value) -> String {
    let (source, actor) = (plain(&revision["source"]), plain(&revision["actor"]));
    if actor.is_empty() {
        source
    } else {
        format!("{actor} ({source})")
    }
}

/// Formats a revision with all of its changes.
pub(super) fn revision(answer: &Value) -> String {
    let mut out = format!("revision {}\n", answer["revision"]);
    for (name, text) in [
        ("time", plain(&answer["time"])),
        ("by", made_by(answer)),
        ("request", plain(&answer["request_id"])),
        ("message", plain(&answer["message"])),
        ("changes", counts(answer)),
    ] {
        if !text.is_empty() {
            let _ = writeln!(out, "  {name:<8} {}", printable(&text));
        }
    }
    out.push('\n');
    out.push_str(&changes(answer));
    out
}

/// Formats the result of a rollback.
pub(super) fn rollback(answer: &Value) -> String {
    let (to, counts) = (&answer["rolled_back_to"], counts(answer));
    let chosen = answer["entities"].as_array().map_or(&[][..], Vec::as_slice);
    let chosen: Vec<String> = chosen.iter().map(plain).collect();
    let chosen = chosen.join(", ");
    let one = if chosen.is_empty() {
        String::new()
    } else {
        format!(" {chosen}")
    };
    let changed = ["created", "updated", "deleted"]
        .iter()
        .any(|name| answer[*name] != 0);
    let mut out = match (changed, answer["dry_run"] == true) {
        (false, _) => {
            if chosen.is_empty() {
                format!("the configuration is that of revision {to} already\n")
            } else {
                format!("nothing to change: {chosen} as in revision {to} already\n")
            }
        }
        (true, true) => format!("would roll back{one} to revision {to}: {counts}\n"),
        (true, false) => format!(
            "revision {}: rolled back{one} to revision {to}: {counts}\n",
            answer["revision"]
        ),
    };
    out.push_str(&changes_of(answer));
    let shown = items(answer).len();
    if let (true, Some(next)) = (shown > 0, answer["next"].as_str()) {
        let ends = next.split('?').next().unwrap_or_default();
        let ends: Vec<&str> = ends
            .split('/')
            .filter(|part| part.parse::<u64>().is_ok())
            .collect();
        let _ = writeln!(
            out,
            "and more: silverback revisions diff {}",
            ends.join(" ")
        );
    }
    not_restored(&mut out, answer);
    if let Some(count) = answer["ended_oauth2_tokens"]["count"].as_u64() {
        let more = answer["ended_oauth2_tokens"]["more"] == true;
        let at_least = if more { "at least " } else { "" };
        let _ = writeln!(out, "live OAuth2 tokens that would end: {at_least}{count}");
    }
    out
}

/// Maximum number of entities for which [`rollback`] says that they stay deleted.
const NOT_RESTORED: usize = 20;

/// Lists the entities that were deleted together with a restored one and stay deleted.
fn not_restored(out: &mut String, answer: &Value) {
    let all = answer["not_restored"].as_array();
    let all = all.map_or(&[][..], Vec::as_slice);
    for one in all.iter().take(NOT_RESTORED) {
        let (kind, entity) = (plain(&one["type"]), plain(&one["entity"]));
        let key = entity.split_once('/').map_or("", |(_, key)| key);
        let _ = writeln!(out, "not restored: {kind} {key} (add --entity {entity})");
    }
    if all.len() > NOT_RESTORED {
        let more = all.len() - NOT_RESTORED;
        let _ = writeln!(out, "not restored: {more} more, which --json lists");
    }
}

/// Lists every entity that differs.
pub(super) fn changes(answer: &Value) -> String {
    match items(answer) {
        [] => "no entity differs\n".to_owned(),
        _ => changes_of(answer),
    }
}

fn changes_of(answer: &Value) -> String {
    let mut out = String::new();
    for one in items(answer) {
        change(&mut out, one);
    }
    out
}

/// Writes the entity, a line `+` for each field that was added, a line `-` for each field that was removed, and both
/// lines for each field that was changed.
fn change(out: &mut String, change: &Value) {
    let mark = match change["action"].as_str() {
        Some("create") => '+',
        Some("delete") => '-',
        _ => '~',
    };
    let [before, after] = ["before", "after"].map(|name| fields(&change[name]));
    let named = ["name", "username", "key", "target", "prefix", "group"]
        .iter()
        .find_map(|name| after.get(*name).or(before.get(*name)));
    let name = named.map(|name| format!(" {name}")).unwrap_or_default();
    let _ = writeln!(
        out,
        "{mark} {} {}{name}",
        plain(&change["type"]),
        plain(&change["id"])
    );
    let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        let (before, after) = (before.get(name), after.get(name));
        if before == after {
            continue;
        }
        for (mark, value) in [('-', before), ('+', after)] {
            if let Some(value) = value {
                let _ = writeln!(out, "    {mark} {name}: {value}");
            }
        }
    }
}

/// Returns the fields of an entity that have a value, each with its path and its value as JSON. A list counts as one
/// value.
fn fields(entity: &Value) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    collect(String::new(), entity, &mut found);
    found
}

fn collect(path: String, value: &Value, found: &mut BTreeMap<String, String>) {
    match value {
        Value::Null => {}
        Value::Object(fields) if path.is_empty() || !fields.is_empty() => {
            for (name, value) in fields {
                let name = escaped(name);
                let path = if path.is_empty() {
                    name
                } else {
                    format!("{path}.{name}")
                };
                collect(path, value, found);
            }
        }
        value => {
            found.insert(path, escaped(&value.to_string()));
        }
    }
}

fn items(answer: &Value) -> &[Value] {
    answer["data"].as_array().map_or(&[], Vec::as_slice)
}

/// Returns a text without its quotes, or an empty text for null.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => printable(text),
        other => escaped(&other.to_string()),
    }
}

/// Escapes control characters as in JSON. JSON itself allows some of them in texts, for example U+009B, which begins
/// commands of terminals.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

/// Replaces control characters, so that texts from clients cannot control the terminal.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn revision_1() -> Value {
        json!({
            "revision": 1, "time": "2026-01-01T00:00:00.000Z", "source": "local", "actor": null,
            "request_id": null, "message": "two\nlines \u{1b}[1m", "created": 1, "updated": 0, "deleted": 0,
        })
    }

    #[test]
    fn revisions_are_a_table() {
        let mut second = revision_1();
        second["revision"] = 12.into();
        second["actor"] = "ci".into();
        second["message"] = Value::Null;
        let answer = json!({"data": [second, revision_1()]});
        let expected = "\
REVISION  TIME                      CHANGES   BY          MESSAGE
12        2026-01-01T00:00:00.000Z  +1 ~0 -0  ci (local)
1         2026-01-01T00:00:00.000Z  +1 ~0 -0  local       two lines [1m
";
        assert_eq!(list(&answer, false), expected);
        let cut = format!("{expected}… older revisions: --limit N shows more\n");
        assert_eq!(list(&answer, true), cut);
        assert_eq!(list(&json!({"data": []}), false), "no revisions\n");
    }

    #[test]
    fn a_change_is_the_fields_that_differ() {
        let mut answer = revision_1();
        answer["data"] = json!([
            {
                "action": "update", "type": "routes", "id": "a",
                "before": {"id": "a", "name": "r", "paths": ["/x"], "tags": null, "service": {"id": "s"}},
                "after": {"id": "a", "name": "r", "paths": ["/x", "/y"], "tags": ["t"], "service": null},
            },
            {"action": "create", "type": "consumers", "id": "b", "before": null, "after": {"id": "b", "username": "u"}},
            {"action": "delete", "type": "snis", "id": "c", "before": {"id": "c"}, "after": null},
        ]);
        let expected = "\
revision 1
  time     2026-01-01T00:00:00.000Z
  by       local
  message  two lines  [1m
  changes  +1 ~0 -0

~ routes a \"r\"
    - paths: [\"/x\"]
    + paths: [\"/x\",\"/y\"]
    - service.id: \"s\"
    + tags: [\"t\"]
+ consumers b \"u\"
    + id: \"b\"
    + username: \"u\"
- snis c
    - id: \"c\"
";
        assert_eq!(revision(&answer), expected);
        assert_eq!(changes(&json!({"data": []})), "no entity differs\n");
    }

    #[test]
    fn nothing_in_an_entity_controls_the_terminal() {
        let evil = "\u{1b}[2J\u{7f}\u{9b}2J\n";
        let entity = json!({
            "id": "a", "name": evil, "tags": [evil], "config": {evil: {"x": evil}, "e": {}}, "big": {"k": [{evil: 1}]},
        });
        let answer = json!({"data": [
            {"action": "create", "type": "plugins", "id": evil, "before": null, "after": entity},
            {"action": evil, "type": evil, "id": {evil: evil}, "before": entity, "after": null},
        ]});
        let text = changes(&answer);
        let controls = |c: char| c.is_control() && c != '\n';
        assert!(!text.contains(controls), "{text:?}");
        let name = r"\u001b[2J\u007f\u009b2J";
        assert!(text.contains(&format!("config.{name}")), "{text}");
        // Every value is JSON, and means the value of the entity.
        let shown = text
            .lines()
            .find_map(|line| line.strip_prefix("    + name: "));
        let shown: Value = serde_json::from_str(shown.expect("the name")).expect("JSON");
        assert_eq!(shown, evil);
    }

    #[test]
    fn a_rollback_names_what_stays_deleted() {
        let mut answer = json!({
            "revision": 9, "rolled_back_to": 3, "dry_run": false, "created": 1, "updated": 0, "deleted": 0,
            "entities": ["consumers/c"], "data": [],
            "not_restored": [{"type": "keyauth_credentials", "id": "a", "entity": "key-auths/k"}],
        });
        let line = "not restored: keyauth_credentials k (add --entity key-auths/k)\n";
        let done = "revision 9: rolled back consumers/c to revision 3: +1 ~0 -0\n";
        assert_eq!(rollback(&answer), format!("{done}{line}"));
        answer["not_restored"] = vec![answer["not_restored"][0].clone(); 22].into();
        let rest = "not restored: 2 more, which --json lists\n";
        assert_eq!(
            rollback(&answer),
            format!("{done}{}{rest}", line.repeat(20))
        );
    }

    #[test]
    fn a_dry_run_says_how_many_tokens_would_end() {
        let mut answer = json!({
            "revision": 9, "rolled_back_to": 3, "dry_run": true, "created": 0, "updated": 0, "deleted": 1,
            "data": [], "ended_oauth2_tokens": {"count": 2, "more": false},
        });
        let would = "would roll back to revision 3: +0 ~0 -1\n";
        let ended = "live OAuth2 tokens that would end: 2\n";
        assert_eq!(rollback(&answer), format!("{would}{ended}"));
        answer["ended_oauth2_tokens"]["more"] = true.into();
        let ended = "live OAuth2 tokens that would end: at least 2\n";
        assert_eq!(rollback(&answer), format!("{would}{ended}"));
    }

    #[test]
    fn a_rollback_says_what_it_did_and_where_the_rest_is() {
        let mut answer = json!({
            "revision": 9, "rolled_back_to": 3, "dry_run": false, "created": 0, "updated": 0, "deleted": 2,
            "data": [{"action": "delete", "type": "snis", "id": "c", "before": {"id": "c"}, "after": null}],
            "next": "/revisions/8/diff/3?offset=x",
        });
        let expected = "\
revision 9: rolled back to revision 3: +0 ~0 -2
- snis c
    - id: \"c\"
and more: silverback revisions diff 8 3
";
        assert_eq!(rollback(&answer), expected);
        answer["dry_run"] = true.into();
        assert!(rollback(&answer).starts_with("would roll back to revision 3: +0 ~0 -2\n"));
        let nothing =
            json!({"rolled_back_to": 3, "created": 0, "updated": 0, "deleted": 0, "data": []});
        assert_eq!(
            rollback(&nothing),
            "the configuration is that of revision 3 already\n"
        );
        answer["entities"] = json!(["snis/c"]);
        answer["dry_run"] = false.into();
        assert!(
            rollback(&answer)
                .starts_with("revision 9: rolled back snis/c to revision 3: +0 ~0 -2\n")
        );
    }
}
