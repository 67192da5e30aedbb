//! Rules for headers that do not depend on each other, as most configurations have them: no two rules name the same
//! header, and no value has an expression. They change the request one after the other, without the lists of values and
//! changes that other rules need.

use super::rules::{Rule, RuleSet, Rules};
use super::template::Template;
use compact_str::CompactString;
use plugin::{HeaderLine, Request};

#[derive(Debug)]
pub(super) struct Direct(Box<[Action]>);

#[derive(Debug)]
enum Action {
    Remove(CompactString),
    /// Adds the header if the request does not have it.
    Add(HeaderLine),
    /// Adds a line.
    Append(HeaderLine),
}

impl Action {
    fn name(&self) -> &[u8] {
        match self {
            Self::Remove(name) => name.as_bytes(),
            Self::Add(line) | Self::Append(line) => line.name(),
        }
    }
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
        let line = |rule: &Rule| match &rule.value {
            Template::Plain { header, .. } => Some(HeaderLine::new(&rule.name, header)),
            Template::Pieces { .. } | Template::Lua(_) | Template::Off => None,
        };
        let remove = remove.iter().map(|name| Some(Action::Remove(name.clone())));
        let add = add.iter().map(|rule| Some(Action::Add(line(rule)?)));
        let append = append.iter().map(|rule| Some(Action::Append(line(rule)?)));
        let all: Option<Box<[_]>> = remove.chain(add).chain(append).collect();
        let all = all?;
        let is_alone = |(at, action): (usize, &Action)| {
            let name = action.name();
            // Rules with this letter look for two names.
            let is_plain = !name.contains(&b'_') && !name.eq_ignore_ascii_case(b"host");
            let mut before = all[..at].iter();
            is_plain && !before.any(|other| other.name().eq_ignore_ascii_case(name))
        };
        let are_alone = all.iter().enumerate().all(is_alone);
        are_alone.then_some(Self(all))
    }

    pub(super) fn apply(&self, request: &mut Request<'_>) {
        for action in &self.0 {
            let is_there = || request.every_header_line(action.name()).next().is_some();
            match action {
                Action::Remove(name) if is_there() => request.upstream.headers.remove(name),
                Action::Add(line) if !is_there() => request.upstream.headers.set_line(line),
                Action::Append(line) => request.upstream.headers.add_line(line),
                Action::Remove(_) | Action::Add(_) => {}
            }
        }
    }
}

#[cfg(test)]
#[path = "direct_tests.rs"]
mod tests;
