//! What happens to the list of picked instances when a plugin responds or redirects: its later phases are left out for a
//! response that it keeps, a request can go on without its client, and a request can begin anew.

use super::{Chain, ChainMemory, Instances, Picked};
use bytes::Bytes;
use plugin::{Phases, Response, ResponseBody};

/// The place of a plugin that has responded and lets the request go on.
#[derive(Debug, Clone, Copy)]
pub(super) struct GoesOn {
    plugin: Picked,
    /// Number of instances that were picked before.
    before: usize,
    /// Index of the slot of the plan after that of the plugin.
    next: usize,
}

/// Maximum number of internal redirects of a request (`NGX_HTTP_MAX_URI_CHANGES`).
const MAX_RESTARTS: u8 = 10;

impl Chain<'_> {
    /// Forgets what plugins have found out about the request, because it begins anew. What they have set in the response
    /// stays, and so do the times of a request debug. Returns `false` after too many restarts.
    #[cold]
    pub fn restart(&mut self, path: Bytes) -> bool {
        let Some(memory) = self.memory.as_deref_mut() else {
            return false;
        };
        self.phases = Phases::NONE;
        let (headers, restarts) = (std::mem::take(&mut memory.state.headers), memory.restarts);
        let mut trace = std::mem::take(&mut memory.state.trace);
        trace.decision = None;
        memory.clear();
        memory.state.headers = headers;
        if trace.debug.is_some() {
            memory.state.trace = trace;
            self.phases = Phases::HEADER_FILTER;
        }
        memory.state.internal_path = Some(path);
        memory.restarts = restarts + 1;
        memory.restarts <= MAX_RESTARTS
    }

    /// Whether the request goes on without its client after the response.
    #[inline]
    pub fn goes_on(&self) -> bool {
        let memory = self.memory.as_deref();
        memory.is_some_and(|memory| memory.goes_on.is_some())
    }

    /// Takes the memory with all that is in it, for [`Self::go_on`].
    pub fn lend_memory(&mut self) -> Option<Box<ChainMemory>> {
        self.memory.take()
    }

    /// Goes on after the plugin that has responded, as if it had not. Its later phases run, and so do those of the
    /// plugins before it, with their states.
    pub fn go_on(&mut self, mut memory: Box<ChainMemory>) {
        // Nobody sees the tree of what comes now.
        memory.state.trace.debug = None;
        if let Some(GoesOn {
            plugin,
            before,
            next,
        }) = memory.goes_on.take()
        {
            memory.picked.truncate(before);
            memory.next = next;
            let own = self.instances.get(plugin.instance).phases;
            memory.push(plugin, own, &mut self.phases);
            self.phases = memory.phases(self.instances);
        }
        (memory.response, memory.failed, memory.answered_by) = (None, false, None);
        memory.state.headers.clear();
        self.memory = Some(memory);
    }
}

impl ChainMemory {
    /// Takes the response of the plugin that was picked last.
    pub(super) fn respond(
        &mut self,
        picked: Picked,
        response: Response,
        instances: &Instances,
        phases: &mut Phases,
    ) {
        self.answered_by = Some(picked);
        let is_last = |other: &Picked| other.instance == picked.instance;
        let has_later_phases = self.picked.last().is_some_and(is_last);
        if std::mem::take(&mut self.state.goes_on) {
            self.goes_on = Some(GoesOn {
                plugin: picked,
                before: self.picked.len() - usize::from(has_later_phases),
                next: self.next,
            });
        }
        if let ResponseBody::Stored(_) = response.body {
            self.picked.pop_if(|other| is_last(other));
            *phases = self.phases(instances);
            if self.state.trace.debug.is_some() {
                *phases = phases.with(Phases::HEADER_FILTER);
            }
        }
        self.response = Some(response);
    }

    /// Returns the phases of all picked instances together, and that in which a request debug shows its tree.
    pub(super) fn phases(&self, instances: &Instances) -> Phases {
        let picked = self.picked.iter();
        let phases = picked.map(|picked| instances.get(picked.instance).phases);
        let first = match self.state.trace.debug {
            Some(_) => Phases::HEADER_FILTER,
            None => Phases::NONE,
        };
        phases.fold(first, Phases::with)
    }
}
