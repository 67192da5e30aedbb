//! Rules for headers that do not depend on each other, as most configurations have them: no two rules name the same
//! header, and no value has an expression. They change the request one after the other, without the lists of values and
//! changes that other rules need.

use super::headers::is_host;
use super::rules::{Rule, RuleSet, Rules};
use super::template::Template;
use compact_str::CompactString;
use plugin::{HeaderValue, Request};

#[derive(Debug)]
pub(super) struct Direct(Box<[(CompactString, Action)]>);

#[derive(Debug)]
enum Action {
    Remove,
    /// Adds the header if the request does not have it.
    Add(HeaderValue),
    /// Adds a line.
    Append(HeaderValue),
}

impl Direct {
    /// Returns `None` if the rules need more than this.
    pub(super) fn of(rules: &Rules) -> Option<Self> {
        let RuleSet {
            remove,
            rename,
            replace,
            add,
            append,
        } = &rules.headers;
        let others = [&rules.body, &rules.query];
        let is_more = rules.uri.is_some() || others.iter().any(|rules| !rules.is_empty());
        if is_more || !rename.is_empty() || !replace.is_empty() {
            return None;
        }
        let value = |rule: &Rule| match &rule.value {
            Template::Plain { header, .. } => Some(header.clone()),
            Template::Pieces { .. } | Template::Lua(_) | Template::Off => None,
        };
        let remove = remove.iter().map(|name| Some((name, Action::Remove)));
        let add = add
            .iter()
            .map(|rule| Some((&rule.name, Action::Add(value(rule)?))));
        let append = append
            .iter()
            .map(|rule| Some((&rule.name, Action::Append(value(rule)?))));
        let all: Option<Vec<_>> = remove.chain(add).chain(append).collect();
        let all = all?;
        let is_alone = |(at, (name, _)): (usize, &(&CompactString, Action))| {
            // Rules with this letter look for two names.
            let is_plain = !name.contains('_') && !is_host(name);
            let mut before = all[..at].iter();
            is_plain && !before.any(|(other, _)| other.eq_ignore_ascii_case(name))
        };
        let are_alone = all.iter().enumerate().all(is_alone);
        let owned = |(name, action): (&CompactString, Action)| (name.clone(), action);
        are_alone.then(|| Self(all.into_iter().map(owned).collect()))
    }

    pub(super) fn apply(&self, request: &mut Request<'_>) {
        for (name, action) in &self.0 {
            let is_there = request.every_header_line(name).next().is_some();
            let headers = &mut request.upstream.headers;
            match action {
                Action::Remove if is_there => headers.remove(name.clone()),
                Action::Add(value) if !is_there => headers.set(name.clone(), value.clone()),
                Action::Append(value) => headers.add(name.clone(), value.clone()),
                Action::Remove | Action::Add(_) => {}
            }
        }
    }
}

#[cfg(test)]
#[path = "direct_tests.rs"]
mod tests;
