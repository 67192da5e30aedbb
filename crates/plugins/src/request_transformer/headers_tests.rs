use super::super::config::{Config, Entries, Replace};
use super::super::rules::Rules;
use super::super::testing::{Request, with_expressions};
use super::*;
use plugin::HeaderEdits;

/// The rules of one test: kind, then entries.
fn rules(entries: &[(&str, &[&str])]) -> RuleSet {
    let of = |kind: &str| {
        let mut all = entries.iter();
        let found = all.find(|(name, _)| *name == kind);
        found.map_or(Vec::new(), |(_, list)| {
            list.iter().map(|&entry| entry.to_owned()).collect()
        })
    };
    let entries = |kind| Entries {
        headers: of(kind),
        ..Entries::default()
    };
    let config = Config {
        http_method: None,
        remove: entries("remove"),
        rename: entries("rename"),
        replace: Replace {
            headers: of("replace"),
            ..Replace::default()
        },
        add: entries("add"),
        append: entries("append"),
    };
    with_expressions(|expressions| Rules::compile(&config, expressions)).headers
}

/// Returns the changed headers as the upstream gets them: kept lines, then added ones.
fn changed(lines: &[(&str, &str)], entries: &[(&str, &[&str])]) -> Vec<String> {
    let request = Request::with_headers(lines);
    let rules = rules(entries);
    let changes = transform(&rules, &request, &request).expect("rendered");
    let mut edits = HeaderEdits::new();
    for (name, change) in changes.into_owned() {
        edits.make(name, change);
    }
    let kept = lines
        .iter()
        .filter(|(name, _)| !edits.drops(name))
        .map(|(name, value)| format!("{name}: {value}"));
    let added = edits
        .added()
        .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value)));
    kept.chain(added).collect()
}

#[test]
fn a_header_is_removed_in_any_case_but_not_the_host() {
    let lines = [("x-dROP", "1"), ("x-keep", "2"), ("Host", "h")];
    assert_eq!(
        changed(&lines, &[("remove", &["X-Drop", "host", "x-none"])]),
        ["x-keep: 2", "Host: h"]
    );
}

#[test]
fn a_renamed_header_overwrites_its_target_and_keeps_all_lines() {
    let lines = [("x-from", "new"), ("X-To", "old"), ("x-from", "more")];
    assert_eq!(
        changed(&lines, &[("rename", &["x-from:x-to"])]),
        ["x-to: new", "x-to: more"]
    );
    assert_eq!(
        changed(&lines[1..2], &[("rename", &["x-from:x-to"])]),
        ["X-To: old"]
    );
    assert_eq!(
        changed(&[("x-a", "1")], &[("rename", &["x-a:x-a"])]),
        ["x-a: 1"]
    );
    assert_eq!(
        changed(&[("x-a", "1")], &[("rename", &["x-a:X-A"])]),
        ["X-A: 1"]
    );
}

#[test]
fn only_a_header_that_is_there_is_replaced_but_the_host_always() {
    assert_eq!(
        changed(
            &[("X-A", "1"), ("x-a", "2")],
            &[("replace", &["x-a:n", "x-b:n", "host:o"])]
        ),
        ["X-A: n", "host: o"]
    );
}

#[test]
fn only_a_header_that_is_absent_is_added_and_never_the_host() {
    assert_eq!(
        changed(
            &[("x-a", "1")],
            &[(
                "add",
                &["X-A:n", "X-B:n", "X-B:m", "host:o", "x_a:n", "x-e:"]
            )]
        ),
        ["x-a: 1", "X-B: n"]
    );
    assert_eq!(
        changed(
            &[("authorization", "old")],
            &[
                ("remove", &["Authorization"]),
                ("add", &["Authorization:Basic z"])
            ]
        ),
        ["Authorization: Basic z"]
    );
}

#[test]
fn appended_values_follow_those_that_are_there() {
    let append: (&str, &[&str]) = ("append", &["x-t:v1", "x-t:v2", "x-n:n1", "host:o"]);
    assert_eq!(
        changed(&[("X-T", "v0")], &[append]),
        ["X-T: v0", "x-t: v1", "x-t: v2", "x-n: n1"]
    );
    assert_eq!(
        changed(&[], &[("add", &["x-t:a1"]), ("append", &["X-T:a2"])]),
        ["x-t: a1", "x-t: a2"]
    );
    assert_eq!(
        changed(
            &[("x-t", "0")],
            &[("remove", &["x-t"]), ("append", &["x-t:1"])]
        ),
        ["x-t: 1"]
    );
    assert_eq!(
        changed(
            &[("x-a", "1"), ("x-b", "2")],
            &[("rename", &["x-a:x-b"]), ("append", &["x-b:3"])]
        ),
        ["x-b: 1", "x-b: 3"]
    );
}

#[test]
fn templates_see_values_that_the_same_rules_remove() {
    assert_eq!(
        changed(
            &[("x-gone", "was here"), ("x-r", "before")],
            &[
                ("remove", &["x-gone"]),
                ("replace", &["x-r:new"]),
                (
                    "add",
                    &[
                        "x-copy:$(headers['x-gone'])",
                        "x-old:a $(headers.x_r)\r\nX: 1"
                    ]
                ),
            ]
        ),
        ["x-r: new", "x-copy: was here", "x-old: a before%0D%0AX: 1"]
    );
}

#[test]
fn a_line_break_of_the_client_is_refused() {
    for value in ["a\r\nX: 1", "a\nb", "a\rb", "a\0b"] {
        let request = Request::with_headers(&[("x-r", value)]);
        for kind in ["replace", "add", "append"] {
            let name = if kind == "replace" { "x-r" } else { "x-new" };
            let entry = format!("{name}:a $(headers.x_r)");
            let rules = rules(&[(kind, &[&entry])]);
            let refused = transform(&rules, &request, &request);
            assert!(
                matches!(refused, Err(HeaderError::Broken(_))),
                "{kind} {value:?}"
            );
        }
    }
}

#[test]
fn a_value_after_the_changes_is_found() {
    let request = Request::with_headers(&[("content-type", "old")]);
    for (entries, wanted) in [
        (("add", &["content-type:new"][..]), Some(&b"old"[..])),
        (("replace", &["content-type:new"][..]), Some(&b"new"[..])),
        (("append", &["content-type:new"][..]), Some(&b"old"[..])),
        (("remove", &["content-type"][..]), None),
    ] {
        let rules = rules(&[entries]);
        let changes = transform(&rules, &request, &request).expect("rendered");
        assert_eq!(changes.value("Content-Type", || Some(&b"old"[..])), wanted);
    }
}

#[test]
fn a_template_without_a_text_fails_by_the_name_of_the_header() {
    let request = Request::with_headers(&[("x-r", "1"), ("x-r", "2")]);
    let rules = rules(&[("add", &["x-out:$(headers['x-r'])"])]);
    let failure = transform(&rules, &request, &request).expect_err("a table");
    assert_eq!(
        failure.to_string(),
        "failed to render the template of x-out: no Lua here"
    );
}
