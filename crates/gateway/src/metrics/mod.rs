//! Metrics of the process, of its control group, of certificates and of the store. They are read when they are asked
//! for, on the thread of the Admin API or the Status API.

mod cgroup;
mod pressure;
mod process;

use cgroup::Cgroup;
use net::tls::Certificates;
use plugin::services::metrics::{Kind, Page, Source};
use proxy::session::DataPlane;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use store::{Store, StoreError};

/// Maximum number of certificates whose expiry is shown. Those that expire first are shown.
const MAX_CERTIFICATES: usize = 1000;

/// What the metrics are read from.
pub(crate) struct NodeMetrics {
    plane: Arc<DataPlane>,
    store: Store,
    /// The certificates of listeners, with the setting that names each.
    listeners: Vec<(&'static str, Arc<Certificates>)>,
    /// `None` if the process has no control group that it can read.
    cgroup: Option<Cgroup>,
}

impl NodeMetrics {
    /// Adds these metrics, and those of the data plane, to the node's. They end when the returned value is dropped.
    pub(crate) fn expose(
        plane: &Arc<DataPlane>,
        store: &Store,
        listeners: Vec<(&'static str, Arc<Certificates>)>,
    ) -> Arc<Self> {
        let metrics = Arc::new(Self {
            plane: Arc::clone(plane),
            store: store.clone(),
            listeners,
            cgroup: Cgroup::find(Path::new("/proc/self")),
        });
        let source: Arc<dyn Source> = metrics.clone();
        plane.node.metrics.add_source(Arc::downgrade(&source));
        let source: Arc<dyn Source> = plane.clone();
        plane.node.metrics.add_source(Arc::downgrade(&source));
        metrics
    }

    fn write_certificates(&self, page: &mut Page) {
        let snapshot = self.plane.snapshot.load();
        let mut names = HashMap::new();
        for (name, certificate) in snapshot.server_names() {
            names.entry(certificate).or_insert(name);
        }
        let listeners = self.listeners.iter();
        let listeners = listeners.map(|(setting, pair)| (pair.expires(), None, *setting));
        let configured = snapshot.certificates_by_id().map(|(id, pair)| {
            let name = names.get(&id).copied().unwrap_or_default();
            (pair.expires(), Some(id), name)
        });
        let mut rows: Vec<_> = listeners.chain(configured).collect();
        rows.sort_unstable();
        rows.truncate(MAX_CERTIFICATES);
        page.family(
            "silverback_certificate_expiry_timestamp_seconds",
            "When a certificate expires. Those that expire first, if there are many.",
            Kind::Gauge,
        );
        for (expires, id, name) in rows {
            let id = id.map(|id| id.0.to_string());
            // The certificates of listeners have no id. The setting that names them takes its place.
            let labels = match &id {
                Some(id) => [("certificate", id.as_str()), ("name", name)],
                None => [("certificate", name), ("name", "")],
            };
            page.sample(&labels, expires as f64);
        }
    }

    fn write_store(&self, page: &mut Page) -> Result<(), StoreError> {
        let usage = self.store.usage()?;
        page.family(
            "silverback_store_bytes",
            "Size of the store: the most that it may have, its file, the pages used so far, and the history in it.",
            Kind::Gauge,
        );
        for (kind, bytes) in [
            ("limit", usage.limit),
            ("file", usage.file),
            ("used", usage.used),
            ("history", usage.history),
        ] {
            page.sample(&[("kind", kind)], bytes as f64);
        }
        for (name, help, value) in [
            (
                "silverback_store_readers",
                "Places of readers of the store that are taken, by all processes.",
                u64::from(usage.readers),
            ),
            (
                "silverback_store_max_readers",
                "Places of readers that the store has.",
                u64::from(usage.max_readers),
            ),
            (
                "silverback_history_revisions",
                "Revisions whose changes are kept.",
                usage.revisions,
            ),
        ] {
            page.family(name, help, Kind::Gauge);
            page.sample(&[], value as f64);
        }
        Ok(())
    }

    /// Writes when the revision was made that requests are served by.
    fn write_revision(&self, page: &mut Page) {
        let revision = self.plane.snapshot.peek().revision;
        let view = self.store.view();
        let at_ms = view.ok().and_then(|view| {
            let info = view.history().ok()?.info(store::Revision(revision)).ok()?;
            Some(info.at_ms)
        });
        let Some(at_ms) = at_ms else {
            return;
        };
        page.family(
            "silverback_revision_timestamp_seconds",
            "When the revision was made that requests are served by.",
            Kind::Gauge,
        );
        page.sample(&[], at_ms as f64 / 1000.0);
    }
}

impl Source for NodeMetrics {
    fn collect(&self, page: &mut Page) {
        process::write(page);
        if let Some(cgroup) = &self.cgroup {
            cgroup.write(page);
        }
        pressure::write(self.cgroup.as_ref().and_then(Cgroup::pressure), page);
        self.write_certificates(page);
        self.write_revision(page);
        if let Err(error) = self.write_store(page) {
            tracing::warn!(%error, "the metrics of the store cannot be read");
        }
    }
}
