use super::super::rules::Rule;
use super::super::testing::{Request, compile};
use super::*;

fn pairs(entries: &[(&str, &str)]) -> Box<[Rule]> {
    let rule = |&(name, value): &(&str, &str)| Rule {
        name: name.into(),
        value: compile(value),
        breaks: false,
    };
    entries.iter().map(rule).collect()
}

fn transformed(text: &str, rules: &RuleSet, only_new: bool) -> Option<String> {
    let request = Request::with_headers(&[("x-in", "a b")]);
    let mut list = args::parse_all(text.as_bytes()).collect();
    let changed = transform(rules, &mut list, only_new, &request).expect("rendered");
    changed.then(|| encode(list))
}

fn query(text: &str, rules: &RuleSet) -> String {
    transformed(text, rules, false).unwrap_or_else(|| "unchanged".to_owned())
}

#[test]
fn the_rules_apply_in_their_order() {
    let rules = RuleSet {
        remove: ["d".into()].into(),
        rename: pairs(&[("o", "p"), ("none", "n")]),
        replace: pairs(&[("r", "new"), ("none", "x")]),
        add: pairs(&[("p", "x"), ("new", "$(headers.x_in)"), ("d", "again")]),
        append: pairs(&[("r", "more"), ("z", "1"), ("bare", "v")]),
    };
    assert_eq!(
        query("d=1&o=1&p=old&r=1&d=2&o=2&bare&r=3&a[b]=c", &rules),
        "a%5Bb%5D=c&bare=v&d=again&new=a%20b&p=1&p=2&r=new&r=more&z=1"
    );
}

#[test]
fn names_are_compared_decoded_and_with_case() {
    let rules = RuleSet {
        remove: ["$(y)".into(), "A".into()].into(),
        ..RuleSet::default()
    };
    assert_eq!(query("%24(y)=1&$(y)=2&a=3", &rules), "a=3");
}

#[test]
fn no_argument_is_lost_however_many_there_are() {
    let text: Vec<String> = (100..400).map(|number| format!("a{number}=1")).collect();
    let text = text.join("&");
    let rules = RuleSet {
        remove: ["none".into()].into(),
        ..RuleSet::default()
    };
    assert_eq!(query(&text, &rules), text);
}

#[test]
fn an_empty_form_only_gets_new_fields() {
    let rules = RuleSet {
        remove: ["a".into()].into(),
        add: pairs(&[("b", "1")]),
        ..RuleSet::default()
    };
    assert_eq!(transformed("", &rules, true).as_deref(), Some("b=1"));
    let remove_only = RuleSet {
        remove: ["a".into()].into(),
        ..RuleSet::default()
    };
    assert_eq!(transformed("", &remove_only, true), None);
}

#[test]
fn rules_that_find_nothing_leave_the_text_as_it_is() {
    let rules = RuleSet {
        rename: pairs(&[("x", "y"), ("a", "a")]),
        replace: pairs(&[("x", "1")]),
        add: pairs(&[("a", "1")]),
        ..RuleSet::default()
    };
    assert_eq!(transformed("a=%31", &rules, false), None);
}
