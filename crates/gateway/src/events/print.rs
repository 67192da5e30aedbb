//! Formats an event as a line of text, or as a line of JSON with the field names of `GET /revisions`.

use super::Event;
use admin::events::wire::{Change, Head};
use admin::time::rfc3339;
use serde_json::json;
use std::fmt::Write;
use store::Effect;

/// Maximum number of changes whose entities are listed by id. If a revision has more changes, only their counts are
/// shown.
const NAMED_CHANGES: usize = 3;

pub(super) fn json(event: &Event) -> String {
    let value = match event {
        Event::Revision(head, changes) => {
            let change = |change: &Change<'_>| {
                let action = match change.effect {
                    Effect::Created => "create",
                    Effect::Updated => "update",
                    Effect::Deleted => "delete",
                };
                json!({ "action": action, "type": change.kind, "id": change.id })
            };
            json!({
                "revision": head.revision,
                "time": rfc3339(head.at_ms),
                "source": head.source,
                "actor": head.actor,
                "request_id": head.request_id,
                "message": head.message,
                "changes": changes.iter().map(change).collect::<Vec<_>>(),
            })
        }
        Event::Gap(from, to) => json!({ "gap": { "from": from, "to": to } }),
    };
    format!("{value}\n")
}

pub(super) fn text(event: &Event) -> String {
    match event {
        Event::Revision(head, changes) => revision(head, changes),
        Event::Gap(from, to) if from == to => {
            format!("{from}  is not kept any more: read the configuration as it is\n")
        }
        Event::Gap(from, to) => {
            format!("{from} to {to}  are not kept any more: read the configuration as it is\n")
        }
    }
}

/// Formats a revision. Texts from clients are escaped, so that they cannot control the terminal.
fn revision(head: &Head<'_>, changes: &[Change<'_>]) -> String {
    let Head {
        revision, source, ..
    } = head;
    let time = rfc3339(head.at_ms);
    let mut line = format!("{revision}  {time}  {}", source.escape_debug());
    if let Some(actor) = &head.actor {
        line.push_str(&format!(" ({})", actor.escape_debug()));
    }
    line.push_str("  ");
    match changes {
        [] => line.push_str("no entity changed"),
        few if few.len() <= NAMED_CHANGES => {
            let named = few
                .iter()
                .map(|one| format!("{} {} {}", verb(one.effect), one.kind, one.id));
            line.push_str(&named.collect::<Vec<_>>().join(", "));
        }
        many => line.push_str(&counted(many)),
    }
    if let Some(message) = &head.message {
        line.push_str(&format!("  \"{}\"", message.escape_debug()));
    }
    line.push('\n');
    line
}

/// Counts changes, for example `created 12 routes, deleted 1 services`, in the order of their first occurrence.
fn counted(changes: &[Change<'_>]) -> String {
    let mut counts: Vec<(&str, &str, usize)> = Vec::new();
    for change in changes {
        let (verb, kind) = (verb(change.effect), &*change.kind);
        match counts.iter_mut().find(|one| (one.0, one.1) == (verb, kind)) {
            Some((_, _, count)) => *count += 1,
            None => counts.push((verb, kind, 1)),
        }
    }
    let mut text = String::new();
    for (verb, kind, count) in counts {
        let separator = if text.is_empty() { "" } else { ", " };
        // Writing to a string cannot fail.
        let _ = write!(text, "{separator}{verb} {count} {kind}");
    }
    text
}

fn verb(effect: Effect) -> &'static str {
    match effect {
        Effect::Created => "created",
        Effect::Updated => "updated",
        Effect::Deleted => "deleted",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn change(effect: Effect, kind: &'static str) -> Change<'static> {
        let kind = kind.into();
        let id = Uuid::from_u128(7);
        Change { effect, kind, id }
    }

    fn event(changes: Vec<Change<'static>>) -> Event {
        let head = Head {
            revision: 42,
            at_ms: 1_770_091_506_789,
            source: "127.0.0.1".into(),
            actor: Some("alice".into()),
            request_id: None,
            message: Some("say \"hi\"\x1b[2J".into()),
            changes: changes.len() as u32,
        };
        Event::Revision(head, changes)
    }

    #[test]
    fn few_changes_are_named_and_control_characters_are_escaped() {
        let few = event(vec![
            change(Effect::Created, "routes"),
            change(Effect::Deleted, "services"),
        ]);
        assert_eq!(
            text(&few),
            "42  2026-02-03T04:05:06.789Z  127.0.0.1 (alice)  created routes 00000000-0000-0000-0000-000000000007, \
             deleted services 00000000-0000-0000-0000-000000000007  \"say \\\"hi\\\"\\u{1b}[2J\"\n"
        );
        assert!(text(&event(vec![])).contains("  no entity changed  "));
    }

    #[test]
    fn many_changes_are_counted() {
        let mut many = vec![change(Effect::Updated, "routes"); 3];
        many.push(change(Effect::Created, "routes"));
        many.push(change(Effect::Updated, "routes"));
        let line = text(&event(many));
        assert!(
            line.contains("  updated 4 routes, created 1 routes  "),
            "{line}"
        );
    }

    #[test]
    fn json_has_everything() {
        let line = json(&event(vec![change(Effect::Updated, "routes")]));
        let value: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        let expected = json!({
            "revision": 42, "time": "2026-02-03T04:05:06.789Z", "source": "127.0.0.1", "actor": "alice", "request_id": null,
            "message": "say \"hi\"\u{1b}[2J",
            "changes": [{ "action": "update", "type": "routes", "id": "00000000-0000-0000-0000-000000000007" }],
        });
        assert_eq!(value, expected);
        assert_eq!(json(&Event::Gap(3, 9)), "{\"gap\":{\"from\":3,\"to\":9}}\n");
        assert!(text(&Event::Gap(3, 9)).starts_with("3 to 9 "));
    }
}
