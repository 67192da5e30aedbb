//! http-log sends log records of requests and sessions to an HTTP server. Source: kong/plugins/http-log/handler.lua.
//!
//! The record is written in the log phase and put into a queue of the node. What sends it runs in the background, so
//! that a slow or broken server costs no request anything.

mod checks;
mod config;
mod endpoint;
pub(crate) mod source;
#[cfg(test)]
mod tests;

use crate::custom_fields::CustomFields;
use config::Config;
use endpoint::Endpoint;
use plugin::{
    BuildCx, BuildError, EndedStreamCx, LogCx, Node, Phases, Plugin, PluginDef, RecordError, Scopes,
};
use services::queue::{Queue, QueueParams, Text};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const NAME: &str = "http-log";
/// What comes before each record in the list of a batch.
const SEPARATOR: u8 = b',';

pub(crate) fn def() -> PluginDef {
    PluginDef::bundled::<HttpLog>(NAME, 12, Phases::LOG, Scopes::ALL)
}

struct HttpLog {
    endpoint: Arc<Endpoint>,
    params: QueueParams,
    queue_name: String,
    fields: CustomFields,
    /// Deprecated fields that are set, for a warning.
    deprecated: Vec<&'static str>,
    queue: OnceLock<Arc<Queue<Text>>>,
}

impl Plugin for HttpLog {
    type Config = Config;
    type Own = ();

    fn build(config: Config, cx: &BuildCx<'_>) -> Result<Self, BuildError> {
        let (params, deprecated) = queue_params(&config);
        Ok(Self {
            endpoint: Arc::new(Endpoint::new(&config, params.max_batch_size)?),
            queue_name: queue_name(&config),
            fields: CustomFields::new(NAME, config.custom_fields_by_lua.iter().flatten(), cx),
            params,
            deprecated,
            queue: OnceLock::new(),
        })
    }

    fn start(&self, node: &Arc<Node>) {
        for field in &self.deprecated {
            tracing::warn!(
                plugin = NAME,
                field,
                "the field is deprecated; use the fields of `queue` instead"
            );
        }
        self.queue(node);
    }

    fn log(&self, cx: &mut LogCx<'_, '_>, (): &mut ()) {
        match self.fields.set(cx) {
            Ok(()) => {
                let queue = self.queue(cx.node);
                report(cx.with_record(|record| queue.push_text(SEPARATOR, record)));
            }
            Err(error) => has_no_record(&*error),
        }
    }

    fn log_stream(&self, cx: &mut EndedStreamCx<'_>) {
        let queue = self.queue(cx.node);
        report(cx.with_record(|record| queue.push_text(SEPARATOR, record)));
    }
}

impl HttpLog {
    fn queue(&self, node: &Node) -> &Queue<Text> {
        self.queue.get_or_init(|| {
            let sender = self.endpoint.sender(&node.http);
            let params = self.params.clone();
            node.queues.get(NAME, &self.queue_name, params, sender)
        })
    }
}

fn report(pushed: Result<(), RecordError>) {
    if let Err(error) = pushed {
        has_no_record(&error);
    }
}

fn has_no_record(error: &(dyn std::error::Error + 'static)) {
    tracing::error!(plugin = NAME, error, "a request has no log record");
}

/// Returns the parameters of the queue, and the names of the deprecated fields that are set. The defaults of these
/// fields count as not set, as in Kong. Source: kong/tools/queue.lua, `get_plugin_params`.
fn queue_params(config: &Config) -> (QueueParams, Vec<&'static str>) {
    let mut params = config.queue.clone();
    let mut deprecated = Vec::new();
    if config.retry_count.is_some_and(|count| count != 10) {
        deprecated.push("retry_count");
    }
    if let Some(size) = config.queue_size.filter(|size| *size != 1) {
        params.max_batch_size = usize::try_from(size).unwrap_or(1).max(1);
        deprecated.push("queue_size");
    }
    if let Some(seconds) = config.flush_timeout.filter(|seconds| *seconds != 2.0) {
        let delay = Duration::try_from_secs_f64(seconds).unwrap_or(match seconds > 0.0 {
            true => Duration::MAX,
            false => Duration::ZERO,
        });
        params.max_coalescing_delay = delay;
        deprecated.push("flush_timeout");
    }
    (params, deprecated)
}

/// Returns the name of the queue. Plugins with the same one share a queue. As in Kong, the parameters of the queue,
/// headers, `queue_size` and `flush_timeout` are not in it.
fn queue_name(config: &Config) -> String {
    let number = |number: Option<f64>| number.map_or("nil".to_owned(), |number| number.to_string());
    let retries = config.retry_count;
    format!(
        "{}:{}:{}:{}:{}:{}",
        config.http_endpoint,
        config.method.unwrap_or_default().name(),
        config.content_type.as_deref().unwrap_or("nil"),
        number(config.timeout),
        number(config.keepalive),
        retries.map_or("nil".to_owned(), |count| count.to_string()),
    )
}
