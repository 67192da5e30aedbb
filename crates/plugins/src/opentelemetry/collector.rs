//! The collector that gets spans, log lines and metrics: what surrounds them in an export, and the transport.

use super::config::{Config, Protocol};
use super::protobuf::Envelope;
use crate::exporter::{Exporter, Format, Rejected, Target};
use bytes::Bytes;
use plugin::{BuildError, NodeIdentity};
use prost::Message;
use services::http::Body;
use services::queue::{QueueParams, Text};
use std::sync::Arc;

/// What is sent.
#[derive(Debug, Clone, Copy)]
pub(super) enum Signal {
    Traces,
    Logs,
    Metrics,
}

impl Signal {
    /// The field with the URL, the part of the queue's name, and the method of gRPC.
    fn names(self) -> [&'static str; 3] {
        match self {
            Self::Traces => [
                "traces_endpoint",
                "traces",
                "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            ],
            Self::Logs => [
                "logs_endpoint",
                "logs",
                "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
            ],
            Self::Metrics => [
                "metrics_endpoint",
                "metrics",
                "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            ],
        }
    }
}

/// Makes the exporter of a signal, if the configuration has its URL.
pub(super) fn exporter(
    signal: Signal,
    config: &Config,
    envelope: &Envelope,
    params: QueueParams,
) -> Result<Option<Exporter<Envelope>>, BuildError> {
    let [field, kind, method] = signal.names();
    let url = match signal {
        Signal::Traces => &config.traces_endpoint,
        Signal::Logs => &config.logs_endpoint,
        Signal::Metrics => &config.metrics_endpoint,
    };
    let Some(url) = url else {
        return Ok(None);
    };
    let target = Target {
        field,
        url,
        content_type: "application/x-protobuf",
        grpc: (config.protocol == Some(Protocol::Grpc)).then_some(method),
        headers: config.headers.as_ref(),
        timeouts: [
            config.connect_timeout,
            config.send_timeout,
            config.read_timeout,
        ],
    };
    let identity = (kind, config.resource_attributes.as_ref());
    Exporter::new(&target, envelope.clone(), params, identity).map(Some)
}

/// The resource is the node, unless the configuration says otherwise.
pub(super) fn envelope(config: &Config, identity: &NodeIdentity) -> Envelope {
    let usual = [
        ("service.name", "kong"),
        ("service.instance.id", &*identity.id),
        ("service.version", plugin::BUNDLED_VERSION),
    ];
    let own = config.resource_attributes.iter().flatten();
    let own = own.map(|(key, value)| (key.as_str(), value.as_str()));
    let replaced = |key: &str| {
        let attributes = config.resource_attributes.as_ref();
        attributes.is_some_and(|attributes| attributes.contains_key(key))
    };
    Envelope::new(
        usual
            .into_iter()
            .filter(|(key, _)| !replaced(key))
            .chain(own),
    )
}

/// `ExportTraceServiceResponse`, which is like those of logs and of metrics.
#[derive(Clone, PartialEq, Message)]
struct Answer {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected: i64,
    #[prost(string, tag = "2")]
    message: String,
}

impl Format for Envelope {
    /// Each entry follows the tag that joins it to the others, so that a batch needs only the envelope in front of it.
    fn body(&self, batch: &Arc<Vec<Text>>) -> Body {
        let size = batch.iter().map(|text| text.as_ref().len()).sum();
        let start = Bytes::from(self.around(size));
        [start].into_iter().chain(Text::pieces(batch)).collect()
    }

    fn is_success(status: u16) -> bool {
        status == 200
    }

    fn rejected(answer: &[u8]) -> Option<Rejected> {
        // Some collectors answer with something else, which says nothing.
        let PartialSuccess { rejected, message } = Answer::decode(answer).ok()?.partial_success?;
        let entries = usize::try_from(rejected).ok().filter(|count| *count > 0)?;
        Some(Rejected {
            entries,
            reason: message.chars().take(SHOWN_REASON).collect(),
        })
    }
}

/// Maximum length of the collector's reason in an error.
const SHOWN_REASON: usize = 200;
