//! The rules for headers. They are evaluated on the headers as they are before the plugin, and give a list of changes.

use super::rules::{Failure, Rule, RuleSet, has_breaks};
use super::template::{Environment, Template};
use compact_str::CompactString;
use plugin::{HeaderChange, HeaderValue};
use smallvec::{SmallVec, smallvec};
use std::borrow::Cow;

/// The headers of a request.
pub(super) trait Lines {
    /// Returns the values of all lines with this name, which is compared without case.
    fn values(&self, name: &str) -> SmallVec<[&[u8]; 2]>;

    /// Returns the name as the first such line spells it.
    fn spelling(&self, name: &str) -> Option<&str>;
}

/// Changes in the order in which they are made.
pub(super) type OwnedChanges = SmallVec<[(CompactString, HeaderChange); 4]>;

/// The changes to headers, at most one for each name.
#[derive(Debug, Default)]
pub(super) struct Changes<'v> {
    list: SmallVec<[(&'v str, Change<'v>); 6]>,
}

#[derive(Debug, PartialEq)]
enum Change<'v> {
    Remove,
    /// These lines replace all that there are.
    Replace(Values<'v>),
    /// These lines follow those that there are.
    Append(Values<'v>),
}

type Values<'v> = SmallVec<[Value<'v>; 1]>;

#[derive(Debug, Clone, PartialEq)]
enum Value<'v> {
    /// A value without expressions, ready to be sent.
    Plain(&'v HeaderValue),
    Rendered(Cow<'v, [u8]>),
}

#[derive(Debug, thiserror::Error)]
pub(super) enum HeaderError {
    #[error(transparent)]
    Render(#[from] Failure),
    /// An expression has put a line break or NUL of the client into a header.
    #[error("the value of {0} has a line break or NUL")]
    Broken(CompactString),
}

/// Returns the changes that the rules make to the headers.
pub(super) fn transform<'v>(
    rules: &'v RuleSet,
    lines: &'v dyn Lines,
    environment: &'v dyn Environment,
) -> Result<Changes<'v>, HeaderError> {
    let mut state = State {
        lines,
        changes: Changes::default(),
    };
    for name in rules.remove.iter().filter(|name| !is_host(name)) {
        if state.has(name) {
            state.set(name, Change::Remove);
        }
    }
    for rule in rules.rename.iter().filter(|rule| !is_host(&rule.name)) {
        if let Template::Plain { text: new, .. } = &rule.value {
            state.rename(&rule.name, new);
        }
    }
    for rule in &rules.replace {
        let value = Value::of(rule, environment)?;
        if is_host(&rule.name) || state.finds(&rule.name) {
            let name = state.spelling(&rule.name);
            state.set(name, Change::Replace(smallvec![value]));
        }
    }
    for rule in &rules.add {
        let value = Value::of(rule, environment)?;
        if !is_host(&rule.name) && !state.finds(&rule.name) {
            state.set(&rule.name, Change::Replace(smallvec![value]));
        }
    }
    for rule in &rules.append {
        let value = Value::of(rule, environment)?;
        if !is_host(&rule.name) {
            state.append(&rule.name, value);
        }
    }
    Ok(state.changes)
}

pub(super) fn is_host(name: &str) -> bool {
    name.eq_ignore_ascii_case("host")
}

impl<'v> Value<'v> {
    fn of(rule: &'v Rule, environment: &'v dyn Environment) -> Result<Self, HeaderError> {
        match &rule.value {
            Template::Plain { header, .. } => Ok(Self::Plain(header)),
            Template::Pieces { .. } | Template::Lua(_) | Template::Off => {
                let rendered = rule.render(environment)?;
                match !rule.breaks && has_breaks(&rendered) {
                    true => Err(HeaderError::Broken(rule.name.clone())),
                    false => Ok(Self::Rendered(rendered)),
                }
            }
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Plain(value) => value.as_bytes(),
            Self::Rendered(bytes) => bytes,
        }
    }

    fn into_header(self) -> HeaderValue {
        match self {
            Self::Plain(value) => value.clone(),
            Self::Rendered(bytes) => HeaderValue::from_untrusted(&bytes),
        }
    }
}

struct State<'v> {
    lines: &'v dyn Lines,
    changes: Changes<'v>,
}

impl<'v> State<'v> {
    /// Whether there is a header with this name after the changes so far.
    fn has(&self, name: &str) -> bool {
        match self.changes.find(name) {
            Some(change) => *change != Change::Remove,
            None => !self.lines.values(name).is_empty(),
        }
    }

    /// Whether Kong finds a header by this name: `_` also matches `-`.
    fn finds(&self, name: &str) -> bool {
        self.has(name) || (name.contains('_') && self.has(&name.replace('_', "-")))
    }

    /// Returns the spelling that a header has. One that is replaced keeps it.
    fn spelling(&self, name: &'v str) -> &'v str {
        let mut changed = self.changes.list.iter();
        changed
            .find(|(other, _)| other.eq_ignore_ascii_case(name))
            .map(|&(spelled, _)| spelled)
            .or_else(|| self.lines.spelling(name))
            .unwrap_or(name)
    }

    fn values(&self, name: &str) -> Values<'v> {
        let read = || {
            let values = self.lines.values(name).into_iter();
            values.map(|value| Value::Rendered(Cow::Borrowed(value)))
        };
        match self.changes.find(name) {
            None => read().collect(),
            Some(Change::Remove) => Values::new(),
            Some(Change::Replace(values)) => values.clone(),
            Some(Change::Append(values)) => read().chain(values.iter().cloned()).collect(),
        }
    }

    fn set(&mut self, name: &'v str, change: Change<'v>) {
        let list = &mut self.changes.list;
        match list
            .iter_mut()
            .find(|(other, _)| other.eq_ignore_ascii_case(name))
        {
            Some(entry) => *entry = (name, change),
            None => list.push((name, change)),
        }
    }

    fn rename(&mut self, old: &'v str, new: &'v str) {
        if old == new {
            return;
        }
        let mut values = self.values(old);
        if values.is_empty() && old.contains('_') {
            values = self.values(&old.replace('_', "-"));
        }
        if values.is_empty() {
            return;
        }
        if !old.eq_ignore_ascii_case(new) && self.has(old) {
            self.set(old, Change::Remove);
        }
        self.set(new, Change::Replace(values));
    }

    fn append(&mut self, name: &'v str, value: Value<'v>) {
        match self.changes.find_mut(name) {
            Some((_, Change::Replace(values) | Change::Append(values))) => values.push(value),
            Some(entry) => *entry = (name, Change::Replace(smallvec![value])),
            None => self
                .changes
                .list
                .push((name, Change::Append(smallvec![value]))),
        }
    }
}

impl<'v> Changes<'v> {
    fn find(&self, name: &str) -> Option<&Change<'v>> {
        let mut list = self.list.iter();
        list.find(|(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, change)| change)
    }

    fn find_mut(&mut self, name: &str) -> Option<&mut (&'v str, Change<'v>)> {
        let mut list = self.list.iter_mut();
        list.find(|(other, _)| other.eq_ignore_ascii_case(name))
    }

    /// Returns the first value of a header after the changes, or that of `before` if nothing changes it.
    pub(super) fn value<'s>(
        &'s self,
        name: &str,
        before: impl FnOnce() -> Option<&'s [u8]>,
    ) -> Option<&'s [u8]> {
        match self.find(name) {
            None => before(),
            Some(Change::Remove) => None,
            Some(Change::Replace(values)) => values.first().map(Value::bytes),
            Some(Change::Append(values)) => before().or(values.first().map(Value::bytes)),
        }
    }

    /// Returns the changes without what they borrow from the request.
    pub(super) fn into_owned(self) -> OwnedChanges {
        let mut owned = OwnedChanges::new();
        for (name, change) in self.list {
            let name = CompactString::from(name);
            let (values, replaces) = match change {
                Change::Remove => {
                    owned.push((name, HeaderChange::Remove));
                    continue;
                }
                Change::Replace(values) => (values, true),
                Change::Append(values) => (values, false),
            };
            for (at, value) in values.into_iter().enumerate() {
                let value = value.into_header();
                let change = match replaces && at == 0 {
                    true => HeaderChange::Set(value),
                    false => HeaderChange::Add(value),
                };
                owned.push((name.clone(), change));
            }
        }
        owned
    }
}

#[cfg(test)]
#[path = "headers_tests.rs"]
mod tests;
