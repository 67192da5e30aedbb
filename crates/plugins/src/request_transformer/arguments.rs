//! The rules for the query and for forms. Both are lists of arguments in which names may repeat.

use super::rules::{Failure, RuleSet};
use super::template::Environment;
use plugin::args::{self, Arg};
use std::borrow::Cow;

/// Applies the rules. Returns whether the arguments have to be encoded again. An empty form only gets new arguments.
pub(super) fn transform<'v>(
    rules: &'v RuleSet,
    arguments: &mut Vec<Arg<'v>>,
    only_new: bool,
    environment: &'v dyn Environment,
) -> Result<bool, Failure> {
    let mut changed = !rules.append.is_empty();
    if !only_new {
        changed |= !rules.remove.is_empty();
        arguments.retain(|arg| !rules.remove.iter().any(|name| is(arg, name)));
        for rule in &rules.rename {
            changed |= rename(arguments, rule.name.as_bytes(), rule.render(environment)?);
        }
        for rule in &rules.replace {
            let value = rule.render(environment)?;
            if has(arguments, &rule.name) {
                arguments.retain(|arg| !is(arg, &rule.name));
                push(arguments, &rule.name, value);
                changed = true;
            }
        }
    }
    for rule in &rules.add {
        let value = rule.render(environment)?;
        if !has(arguments, &rule.name) {
            push(arguments, &rule.name, value);
            changed = true;
        }
    }
    for rule in &rules.append {
        let value = rule.render(environment)?;
        drop_single_bare(arguments, &rule.name);
        push(arguments, &rule.name, value);
    }
    Ok(changed)
}

/// Encodes the arguments, sorted by their encoded names. The values of a name keep their order.
pub(super) fn encode(mut arguments: Vec<Arg<'_>>) -> String {
    arguments.sort_by(|one, two| one.name.cmp(&two.name));
    let mut pieces: Vec<String> = arguments
        .chunk_by(|one, two| one.name == two.name)
        .map(|same| {
            let mut piece = String::new();
            for arg in same {
                args::write(&mut piece, &arg.name, arg.value.as_deref());
            }
            piece
        })
        .collect();
    pieces.sort_unstable();
    pieces.join("&")
}

fn is(arg: &Arg<'_>, name: &str) -> bool {
    *arg.name == *name.as_bytes()
}

fn has(arguments: &[Arg<'_>], name: &str) -> bool {
    arguments.iter().any(|arg| is(arg, name))
}

fn push<'v>(arguments: &mut Vec<Arg<'v>>, name: &'v str, value: Cow<'v, [u8]>) {
    arguments.push(Arg {
        name: Cow::Borrowed(name.as_bytes()),
        value: Some(value),
    });
}

/// Gives all values of a name to another one, which loses its own.
fn rename<'v>(arguments: &mut Vec<Arg<'v>>, old: &[u8], new: Cow<'v, [u8]>) -> bool {
    let exists = arguments.iter().any(|arg| *arg.name == *old);
    if !exists || *old == *new {
        return false;
    }
    arguments.retain(|arg| arg.name != new);
    for arg in arguments.iter_mut().filter(|arg| *arg.name == *old) {
        arg.name = new.clone();
    }
    true
}

/// Removes the only argument of a name if it has no value. A further value takes its place in Kong.
fn drop_single_bare(arguments: &mut Vec<Arg<'_>>, name: &str) {
    let mut same = arguments
        .iter()
        .enumerate()
        .filter(|(_, arg)| is(arg, name));
    if let (Some((at, arg)), None) = (same.next(), same.next())
        && arg.value.is_none()
    {
        arguments.remove(at);
    }
}

#[cfg(test)]
#[path = "arguments_tests.rs"]
mod tests;
