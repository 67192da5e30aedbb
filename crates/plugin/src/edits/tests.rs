//! Tests of lists of header changes.

use super::*;

/// Returns all changes, in their order.
fn shown(edits: &HeaderEdits) -> Vec<(Kind, &str, &[u8])> {
    let changes = edits.changes.iter();
    let shown = changes.map(|change| {
        let (name, value) = change.line(&edits.text);
        (change.kind, name, value)
    });
    shown.collect()
}

fn written(edits: &HeaderEdits) -> String {
    let mut out = Vec::new();
    edits.write_before(|_| true, &mut out);
    out.push(b'|');
    edits.write_added(|known| known != KnownHeader::Date, &mut out);
    String::from_utf8(out).unwrap()
}

fn lines(edits: &HeaderEdits) -> Vec<(&str, &[u8])> {
    edits.added().collect()
}

#[test]
fn a_later_change_of_a_name_replaces_the_earlier_ones() {
    let mut edits = HeaderEdits::new();
    edits.add("X-A", "1");
    edits.add("x-a", "2");
    edits.remove("X-A");
    assert!(edits.drops("x-A"));
    assert!(lines(&edits).is_empty());
    edits.set("X-A", "3");
    assert_eq!(lines(&edits), [("X-A", &b"3"[..])]);
}

#[test]
fn a_filled_line_has_a_value_of_its_own_and_replaces_the_others() {
    let line = HeaderLine::new("X-Id", &HeaderValue::from_static("0000"));
    let mut edits = HeaderEdits::new();
    edits.add("X-A", "1");
    edits.add("x-id", "old");
    for id in [b"1234", b"5678"] {
        edits.set_filled_line(&line, |value| value.copy_from_slice(id));
        assert_eq!(lines(&edits), [("X-A", &b"1"[..]), ("X-Id", id)]);
    }
    assert_eq!(written(&edits), "|X-A: 1\r\nX-Id: 5678\r\n");
}

#[test]
fn an_added_line_leaves_the_others() {
    let mut edits = HeaderEdits::new();
    edits.add("X-A", "1");
    assert!(!edits.drops("X-A"));
    assert_eq!(edits.value("x-a"), Some(&b"1"[..]));
}

#[test]
fn later_lists_apply_as_if_each_change_was_made_alone() {
    let lists: Vec<HeaderEdits> = (0..64_u32)
        .map(|number| {
            let mut edits = HeaderEdits::new();
            for at in 0..3 {
                let name = ["X-A", "x-b"][(number >> (2 * at) & 1) as usize];
                match (number >> (2 * at + 1) & 1, at) {
                    (0, 1) => edits.remove(name),
                    (0, _) => edits.set(name, at.to_string()),
                    (_, 2) => edits.make(name, HeaderChange::Before("b".into())),
                    _ => edits.add(name, at.to_string()),
                }
            }
            edits
        })
        .collect();
    for one in &lists {
        for two in &lists {
            let mut applied = one.clone();
            applied.apply(two.clone());
            let mut expected = one.clone();
            for change in &two.changes {
                let (name, value) = change.line(&two.text);
                expected.change(name, change.kind, value);
            }
            assert_eq!(shown(&applied), shown(&expected), "{one:?} {two:?}");
        }
    }
}

#[test]
fn a_long_list_applies_to_a_short_one_in_linear_time() {
    testkit::cost::assert_linear(
        2000,
        |size| {
            let lines = (0..size).map(|number| {
                let name = compact_str::format_compact!("x-{number:08}");
                (name, HeaderChange::Set("v".into()))
            });
            HeaderEdits::from_ordered(lines)
        },
        |later| {
            let mut edits = HeaderEdits::new();
            edits.set("x-00000001", "early");
            edits.add("x-00000002", "early");
            edits.apply(later);
            std::hint::black_box(edits);
        },
    );
}

#[test]
fn lines_are_written_in_the_order_of_the_changes() {
    let mut edits = HeaderEdits::new();
    edits.set("X-A", "1");
    edits.remove("X-Gone");
    edits.add_line(&HeaderLine::new("X-B", &"2".into()));
    edits.set("Date", "never");
    edits.set_line(&HeaderLine::new("x-a", &"3".into()));
    edits.make("X-C", HeaderChange::Before("4".into()));
    edits.add("X-D", 18_446_744_073_709_551_615);
    let expected = "X-C: 4\r\n|x-a: 3\r\nX-B: 2\r\nX-D: 18446744073709551615\r\n";
    assert_eq!(written(&edits), expected);
    assert_eq!(edits.known_value(KnownHeader::Date), Some(&b"never"[..]));
    assert_eq!(edits.known_value(KnownHeader::Server), None);
    assert!(edits.drops_known(KnownHeader::Date, b"date"));
    assert!(edits.drops_known(KnownHeader::Other, b"X-GONE"));
    assert!(!edits.drops_known(KnownHeader::Other, b"X-B"));
}

#[test]
fn early_lines_come_before_those_of_the_message() {
    let mut edits = HeaderEdits::new();
    edits.set("Content-Type", "a/b");
    edits.remove("X-Gone");
    edits.set("X-A", "");
    let kept = edits.clone().into_before(false);
    assert_eq!(written(&kept), "Content-Type: a/b\r\nX-A: \r\n|");
    assert_eq!(written(&edits.into_before(true)), "X-A: \r\n|");
}

#[test]
fn a_header_that_is_set_again_and_again_takes_little_memory() {
    let mut edits = HeaderEdits::new();
    edits.add("X-First", "1");
    for number in 0..20_000 {
        edits.set("X-A", number.to_string());
        edits.remove("X-B");
        edits.add("X-C", "1");
        edits.add("X-C", "2");
        edits.remove("X-C");
    }
    assert!(edits.text.len() < 16 * 1024, "{}", edits.text.len());
    assert_eq!(lines(&edits), [("X-First", &b"1"[..]), ("X-A", b"19999")]);
    assert!(edits.drops("X-B") && edits.drops("X-C"));
}

#[test]
fn a_cleared_list_is_as_a_new_one() {
    let mut edits = HeaderEdits::new();
    edits.set("Date", "never");
    edits.set("X-A", "v".repeat(20_000));
    edits.clear();
    assert!(edits.is_empty() && edits.text.capacity() <= 8 * 1024);
    assert_eq!(edits.known_value(KnownHeader::Date), None);
    edits.add("X-B", "1");
    assert_eq!(written(&edits), "|X-B: 1\r\n");
}
