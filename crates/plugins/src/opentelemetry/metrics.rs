//! Sends the gateway's metrics to a collector, in regular intervals. They are those of `/metrics`.
//!
//! A thread of its own with a low priority renders them, into the queue of the collector. While a collector does not keep
//! up, nothing is rendered: the counts are cumulative, so that the next export has what this one would have had.

use super::NAME;
use plugin::Node;
use services::metrics::{Page, lower_priority};
use services::queue::{Queue, QueueParams, Text};
use std::io::{self, Write};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::sleep;

/// The exports to one collector. They end when this is dropped.
pub(super) struct Exports {
    _end: oneshot::Sender<()>,
}

/// Returns the parameters of the queue. Each entry is a part of the metrics that is large enough to be sent alone.
pub(super) fn queue_params(params: QueueParams) -> QueueParams {
    QueueParams {
        max_batch_size: 1,
        ..params
    }
}

/// Starts exports to the collector of this queue, unless another plugin of the same kind or an earlier configuration
/// has started them.
pub(super) fn start(
    node: &Arc<Node>,
    name: &str,
    queue: &Arc<Queue<Text>>,
    interval: Duration,
) -> Arc<Exports> {
    let key = format!("{name}:{interval:?}");
    node.shared.get_or_insert(NAME, &key, || {
        let (end, ended) = oneshot::channel();
        let exports = run(Arc::downgrade(node), Arc::downgrade(queue), interval);
        node.background.spawn_service(async move {
            tokio::select! {
                () = exports => {}
                _ = ended => {}
            }
        });
        Exports { _end: end }
    })
}

async fn run(node: Weak<Node>, queue: Weak<Queue<Text>>, interval: Duration) {
    loop {
        sleep(interval).await;
        let (Some(node), Some(queue)) = (node.upgrade(), queue.upgrade()) else {
            return;
        };
        let counts = queue.counts();
        if counts.waiting + counts.sending > 0 {
            tracing::warn!(plugin = NAME, "the collector of metrics does not keep up");
            continue;
        }
        let (done, is_done) = oneshot::channel::<()>();
        let render = move || {
            lower_priority();
            export(&node, queue);
            drop(done);
        };
        let thread = thread::Builder::new().name("metrics-export".to_owned());
        if let Err(error) = thread.spawn(render) {
            tracing::warn!(plugin = NAME, %error, "the metrics cannot be exported");
        }
        // This is an error in any case: nothing is sent but the end of the thread.
        let _ = is_done.await;
    }
}

fn export(node: &Node, queue: Arc<Queue<Text>>) {
    let mut page = Page::for_otlp(node.metrics.since(), Box::new(Pieces(queue)));
    node.write_metrics(&mut page);
    // The queue accepts everything.
    let _ = page.finish();
}

/// Each piece of the page becomes an entry of the queue.
struct Pieces(Arc<Queue<Text>>);

impl Write for Pieces {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if let Some((tag, rest)) = piece.split_first() {
            self.0.push_text(*tag, rest);
        }
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
