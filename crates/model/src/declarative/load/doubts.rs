//! Handles input that Kong accepts although it is probably a mistake. Such input is accepted here too, with a warning.
//!
//! A `Quick` run fails on such a document. The following `Report` run knows the positions of entities and accepts it.

use super::{Load, Mode, Others, complete};
use crate::declarative::memo;
use crate::declarative::relations::Relations;
use crate::hashing::FastSet;
use crate::kind::EntityKind;
use crate::value::{Object, Value};

/// Maximum number of warnings, which limits the output for adversarial documents.
const MAX_WARNINGS: usize = 50;

/// The first [`MAX_WARNINGS`] warnings, and the number of further ones.
#[derive(Default)]
pub(in crate::declarative) struct Doubts {
    warnings: Vec<String>,
    others: usize,
}

impl Doubts {
    pub(in crate::declarative) fn add(&mut self, warning: impl FnOnce() -> String) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(warning());
        } else {
            self.others += 1;
        }
    }

    pub(in crate::declarative) fn into_warnings(mut self) -> Vec<String> {
        if self.others > 0 {
            self.warnings
                .push(format!("and {} more like these", self.others));
        }
        self.warnings
    }
}

impl Load<'_> {
    /// Removes references that the plugin's schema forbids, such as `consumer` of `key-auth`, and returns them. Kong
    /// accepts them in nested plugins, because it validates a nested plugin before it sets the reference to the parent.
    /// An export (`_transform: false`) has such plugins at the top level and must be loadable again.
    pub(super) fn take_misplaced(
        &mut self,
        at: usize,
        relations: &'static Relations,
        input: &mut Object,
    ) -> Vec<(&'static str, Value)> {
        if self.mode == Mode::Quick || relations.kind != EntityKind::Plugins {
            return Vec::new();
        }
        let parent = self.nodes[at].parent.map(|parent| parent.field);
        let mut misplaced = Vec::new();
        for foreign in &relations.foreign {
            let may_have = parent == Some(foreign.field) || !self.context.transform;
            let is_given = input
                .get(foreign.field)
                .is_some_and(|value| !value.is_null());
            if may_have
                && is_given
                && relations
                    .schema
                    .forbids(input, foreign.field, &self.context)
                && let Some(value) = input.remove(foreign.field)
            {
                let plugin = self.described(at);
                let kind = foreign.kind.name();
                self.doubts.add(|| {
                    format!("{plugin} does not support {kind}: it is loaded unchanged and may have no effect")
                });
                misplaced.push((foreign.field, value));
            }
        }
        misplaced
    }

    /// Finds nested plugins that also exist at the top level, with the same name and for the same entities. Kong keeps
    /// both and runs the top-level plugin.
    pub(super) fn find_shadowed(&mut self, nodes: &[usize], relations: &'static Relations) {
        let is_decided_here = self.mode == Mode::Report && matches!(self.others, Others::None);
        if relations.kind != EntityKind::Plugins || !is_decided_here {
            return;
        }
        let combination = |load: &Self, at: usize| {
            let input = &load.nodes[at].input;
            memo::combination(relations.kind, complete::combined(relations, input))
        };
        let (nested, top): (Vec<usize>, Vec<usize>) = nodes
            .iter()
            .partition(|&&at| self.nodes[at].parent.is_some());
        let top: FastSet<u128> = top.into_iter().map(|at| combination(self, at)).collect();
        for at in nested {
            self.nodes[at].is_shadowed = top.contains(&combination(self, at));
        }
    }

    /// Whether an entity is left out and has a derived id.
    pub(super) fn is_left_out_by_derived_id(&self, at: usize) -> bool {
        let node = &self.nodes[at];
        let place = node.place.as_ref().filter(|_| node.is_shadowed);
        place.is_some_and(|place| place.derived.is_some())
    }

    /// Leaves out a nested plugin that a top-level plugin replaces.
    pub(super) fn leave_out(&mut self, at: usize) {
        if !self.is_left_out_by_derived_id(at) {
            let node = &self.nodes[at];
            self.taken[node.kind.index()].ids.remove(&node.id);
        }
        let plugin = self.described(at);
        self.doubts.add(|| {
            format!("{plugin} is ignored: the same plugin is configured at the top level for the same entities")
        });
    }

    /// Describes a plugin and the entity around it by their names. Line breaks are escaped.
    fn described(&self, at: usize) -> String {
        let node = &self.nodes[at];
        let input = node.place.as_ref().and_then(|place| place.input.as_ref());
        let name = input
            .and_then(|input| input.str("name"))
            .unwrap_or_default()
            .escape_debug();
        let parent = node.parent.and_then(|parent| parent.entity.node());
        let nested = parent.and_then(|parent| {
            let place = self.nodes[parent].place.as_ref()?;
            let key = place.key.escape_debug();
            Some(format!(" nested in {} '{key}'", place.kind.name()))
        });
        format!("plugin '{name}'{}", nested.unwrap_or_default())
    }
}
