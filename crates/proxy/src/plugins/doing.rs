//! What a worker does at this moment, so that a worker that stalls can be asked from another thread.
//!
//! The worker stores one word before each handler of a plugin, and another when the handlers of a phase are done or wait.
//! Work of the gateway itself is not marked.

use std::sync::atomic::{AtomicU64, Ordering};

/// The word of a worker that tells what it does. 0 stands for nothing of a plugin.
#[derive(Debug, Default)]
pub struct Doing(AtomicU64);

/// A phase of plugins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum PhaseMark {
    Certificate = 1,
    Preread,
    Rewrite,
    Access,
    RequestBody,
    Response,
    HeaderFilter,
    BodyFilter,
    Log,
    /// The log phase of a stream.
    StreamLog,
}

/// A handler of a plugin that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Running {
    /// Position of the plugin in the execution order.
    pub plugin: u16,
    pub phase: PhaseMark,
    /// Index of the route in the router of requests, or in that of streams ([`PhaseMark::is_of_streams`]).
    pub route: Option<u32>,
}

const PHASES: [PhaseMark; 10] = [
    PhaseMark::Certificate,
    PhaseMark::Preread,
    PhaseMark::Rewrite,
    PhaseMark::Access,
    PhaseMark::RequestBody,
    PhaseMark::Response,
    PhaseMark::HeaderFilter,
    PhaseMark::BodyFilter,
    PhaseMark::Log,
    PhaseMark::StreamLog,
];

impl PhaseMark {
    pub fn name(self) -> &'static str {
        match self {
            Self::Certificate => "certificate",
            Self::Preread => "preread",
            Self::Rewrite => "rewrite",
            Self::Access => "access",
            Self::RequestBody => "request_body",
            Self::Response => "response",
            Self::HeaderFilter => "header_filter",
            Self::BodyFilter => "body_filter",
            Self::Log | Self::StreamLog => "log",
        }
    }

    /// Whether only streams have this phase.
    pub fn is_of_streams(self) -> bool {
        matches!(self, Self::Preread | Self::StreamLog)
    }
}

/// The route that is noted with a handler.
#[derive(Debug, Clone, Copy, Default)]
pub struct RouteMark(u32);

impl RouteMark {
    #[inline]
    pub fn new(route: u32) -> Self {
        // 0 stands for no route, also for the one index without a successor.
        Self(route.wrapping_add(1))
    }
}

impl Doing {
    /// For chains that no worker runs.
    pub const fn nothing() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Says that a handler of a plugin begins.
    #[inline]
    pub fn begin(&self, phase: PhaseMark, plugin: u16, route: RouteMark) {
        self.mark(phase, plugin, route).begin();
    }

    /// Says that no handler runs.
    #[inline]
    pub fn end(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Returns a mark for a handler that may wait: it runs again and again, with other work in between.
    #[inline]
    pub fn mark(&self, phase: PhaseMark, plugin: u16, route: RouteMark) -> Mark<'_> {
        Mark {
            doing: self,
            word: u64::from(route.0) << 32 | u64::from(plugin) << 8 | phase as u64,
        }
    }

    /// Calls [`Self::end`] when the returned guard is dropped.
    #[inline]
    pub fn ends(&self) -> Ends<'_> {
        Ends(self)
    }

    /// Returns the handler that runs now.
    pub fn running(&self) -> Option<Running> {
        let word = self.0.load(Ordering::Relaxed);
        let phase = PHASES.get(usize::from(word as u8).checked_sub(1)?)?;
        Some(Running {
            plugin: (word >> 8) as u16,
            phase: *phase,
            route: ((word >> 32) as u32).checked_sub(1),
        })
    }
}

/// A handler that is marked while it runs.
#[derive(Debug, Clone, Copy)]
pub struct Mark<'d> {
    doing: &'d Doing,
    word: u64,
}

impl Mark<'_> {
    #[inline]
    pub fn begin(&self) {
        self.doing.0.store(self.word, Ordering::Relaxed);
    }

    #[inline]
    pub fn end(&self) {
        self.doing.end();
    }
}

/// Ends a mark when it is dropped.
pub struct Ends<'d>(&'d Doing);

impl Drop for Ends<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_tells_the_handler_and_its_route() {
        let doing = Doing::default();
        assert_eq!(doing.running(), None);
        for (position, phase) in PHASES.into_iter().enumerate() {
            assert_eq!(phase as usize, position + 1, "{phase:?}");
            for (route, mark) in [
                (None, RouteMark::default()),
                (Some(0), RouteMark::new(0)),
                (Some(70_000), RouteMark::new(70_000)),
            ] {
                for plugin in [0, 300] {
                    doing.begin(phase, plugin, mark);
                    let expected = Running {
                        plugin,
                        phase,
                        route,
                    };
                    assert_eq!(doing.running(), Some(expected));
                }
            }
        }
        drop(doing.ends());
        assert_eq!(doing.running(), None);
    }
}
