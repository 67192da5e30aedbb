//! Metrics of the Lua code: time, calls and errors of each plugin, and the memory of the VMs.
//!
//! Each VM counts in cells of its worker. It finds the series of a plugin in a short list, by the plugin's name.

use plugin::Node;
use services::metrics::{Counter, Family, Histogram, Level, MetricError, NO_WORKER};
use std::time::Instant;

/// Upper bounds of the buckets of times, in seconds. A slice is stopped after 0.2 s.
const BOUNDS: [f64; 7] = [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0];
/// The name of code that belongs to no plugin.
const NO_PLUGIN: &str = "none";

/// Why a slice was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    Time,
    Memory,
}

/// What a VM counts. Without a registry, it counts nothing.
#[derive(Default)]
pub(crate) struct Meter {
    families: Option<Families>,
    plugins: Vec<(&'static str, Series)>,
    /// Bytes of the VM that the metric includes.
    memory: usize,
}

/// The metrics of the node, and the number of the VM's worker.
struct Families {
    worker: usize,
    slices: Family<Histogram>,
    calls: Family<Counter>,
    errors: Family<Counter>,
    stopped: Family<Counter>,
    replaced: Counter,
    memory: Level,
}

/// The metrics of a plugin.
struct Series {
    slices: Histogram,
    calls: Counter,
    errors: Counter,
    late: Counter,
    full: Counter,
}

/// How a slice of a plugin's code has ended.
pub(crate) struct Slice {
    pub(crate) began: Instant,
    /// Whether it began a call. Otherwise it continued one.
    pub(crate) is_call: bool,
    pub(crate) has_failed: bool,
    pub(crate) stop: Option<Stop>,
}

impl Meter {
    /// Counts a slice of a plugin's code.
    pub(crate) fn count(&mut self, plugin: &'static str, node: Option<&Node>, slice: &Slice) {
        let seconds = slice.began.elapsed().as_secs_f64();
        let Some((worker, series)) = self.series(plugin, node) else {
            return;
        };
        series.slices.observe(worker, seconds);
        if slice.is_call {
            series.calls.add(worker, 1);
        }
        if slice.has_failed {
            series.errors.add(worker, 1);
            match slice.stop {
                Some(Stop::Time) => series.late.add(worker, 1),
                Some(Stop::Memory) => series.full.add(worker, 1),
                None => {}
            }
        }
    }

    /// Counts an error of a plugin's code that did not come to run.
    pub(crate) fn count_error(&mut self, plugin: &'static str, node: Option<&Node>) {
        if let Some((worker, series)) = self.series(plugin, node) {
            series.errors.add(worker, 1);
        }
    }

    /// Notes the memory that the VM uses now.
    #[inline]
    pub(crate) fn set_memory(&mut self, used: usize) {
        if used != self.memory
            && let Some(families) = &self.families
        {
            let by = used as i64 - self.memory as i64;
            families.memory.add(families.worker, by);
            self.memory = used;
        }
    }

    /// Notes that the VM is replaced.
    pub(crate) fn replaced(&self) {
        if let Some(families) = &self.families {
            families.replaced.add(families.worker, 1);
        }
    }

    fn series(&mut self, plugin: &'static str, node: Option<&Node>) -> Option<(usize, &Series)> {
        let known = self.plugins.iter().position(|(name, _)| *name == plugin);
        let at = match known {
            Some(at) => at,
            None => self.add(plugin, node)?,
        };
        let worker = self.families.as_ref()?.worker;
        Some((worker, &self.plugins[at].1))
    }

    /// Finds the series of a plugin, when its code first runs in the VM.
    #[cold]
    fn add(&mut self, plugin: &'static str, node: Option<&Node>) -> Option<usize> {
        if self.families.is_none() {
            // The names are this crate's alone, so they cannot be in conflict.
            self.families = Families::new(node?).ok();
        }
        let families = self.families.as_ref()?;
        self.plugins.push((plugin, families.series(plugin)));
        Some(self.plugins.len() - 1)
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.set_memory(0);
    }
}

impl Families {
    fn new(node: &Node) -> Result<Self, MetricError> {
        let worker = node.workers.here();
        let label = worker.map_or("none".to_owned(), |worker| worker.to_string());
        let metrics = &node.metrics;
        let counter = |name, help, labels: &[&str]| metrics.counter(name, help, labels);
        Ok(Self {
            worker: worker.unwrap_or(NO_WORKER),
            slices: metrics.histogram(
                "silverback_lua_slice_seconds",
                "Time that Lua code of a plugin ran without waiting",
                &["plugin"],
                &BOUNDS,
            )?,
            calls: counter(
                "silverback_lua_calls_total",
                "Calls of Lua code of a plugin",
                &["plugin"],
            )?,
            errors: counter(
                "silverback_lua_errors_total",
                "Calls of Lua code of a plugin that failed",
                &["plugin"],
            )?,
            stopped: counter(
                "silverback_lua_stopped_total",
                "Calls of Lua code of a plugin that exceeded a limit",
                &["plugin", "limit"],
            )?,
            replaced: counter(
                "silverback_lua_vms_replaced_total",
                "Lua VMs that were replaced because their memory was nearly used up",
                &[],
            )?
            .with(&[]),
            memory: metrics
                .level(
                    "silverback_lua_memory_bytes",
                    "Memory of the Lua VM of a worker",
                    &["worker"],
                )?
                .with(&[&label]),
        })
    }

    fn series(&self, plugin: &str) -> Series {
        let plugin = if plugin.is_empty() { NO_PLUGIN } else { plugin };
        Series {
            slices: self.slices.with(&[plugin]),
            calls: self.calls.with(&[plugin]),
            errors: self.errors.with(&[plugin]),
            late: self.stopped.with(&[plugin, "time"]),
            full: self.stopped.with(&[plugin, "memory"]),
        }
    }
}
