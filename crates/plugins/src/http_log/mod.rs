//! http-log sends log records of requests and sessions to an HTTP server. Source: kong/plugins/http-log/handler.lua.
//!
//! The log phase puts what the record is written from into a queue of the node. The record is written and sent in the
//! background, so that a slow or broken server costs no request anything.

mod checks;
mod config;
mod endpoint;
pub(crate) mod source;
#[cfg(test)]
mod tests;

use crate::custom_fields::CustomFields;
use crate::line_log::has_no_record;
use crate::queue_config::{queue_params, warn_of_deprecated};
use config::Config;
use endpoint::Endpoint;
use plugin::{
    BuildCx, BuildError, EndedStreamCx, Frame, LogCx, Node, Phases, Plugin, PluginDef, Scopes,
};
use services::queue::{Queue, QueueParams, Text};
use std::sync::{Arc, OnceLock};

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
        let (params, deprecated) = queue_params(&config.queue, config.deprecated());
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
        warn_of_deprecated(NAME, &self.deprecated);
        self.queue(node);
    }

    fn log(&self, cx: &mut LogCx<'_, '_>, (): &mut ()) {
        if let Err(error) = self.fields.set(cx) {
            return has_no_record(NAME, &*error);
        }
        let queue = self.queue(cx.node);
        if let Err(error) = cx.push_record(Frame::After(SEPARATOR), queue) {
            has_no_record(NAME, &error);
        }
    }

    fn log_stream(&self, cx: &mut EndedStreamCx<'_>) {
        let fields = match self.fields.of_stream(cx) {
            Ok(fields) => fields,
            Err(error) => return has_no_record(NAME, &*error),
        };
        let queue = self.queue(cx.node);
        if let Err(error) = cx.with_record(&fields, |record| queue.push_text(SEPARATOR, record)) {
            has_no_record(NAME, &error);
        }
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
