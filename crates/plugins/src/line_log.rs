//! What log plugins share that send a record as a line: the queue, custom fields, and severities.
//!
//! The log phase puts what the record is written from into a queue of the node. The record is written in the background,
//! and a [sink](services::sinks) sends it.

use crate::custom_fields::CustomFields;
use compact_str::CompactString;
use plugin::{BuildCx, EndedStreamCx, Frame, LogCx, Node};
use services::Sinks;
use services::queue::{Queue, Sender, Text};
use services::sinks::Severity;
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, OnceLock};

/// `custom_fields_by_lua`: fields of the record as Lua code, by their keys.
pub(crate) type FieldTexts = Option<BTreeMap<CompactString, CompactString>>;

/// The part of an instance that puts lines into a queue.
pub(crate) struct LineLog {
    plugin: &'static str,
    /// Plugins with the same name share a queue, and so a connection or an open file.
    queue_name: String,
    fields: CustomFields,
    queue: OnceLock<Arc<Queue<Text>>>,
}

impl LineLog {
    pub(crate) fn new(
        plugin: &'static str,
        queue_name: String,
        fields: &FieldTexts,
        cx: &BuildCx<'_>,
    ) -> Self {
        Self {
            plugin,
            queue_name,
            fields: CustomFields::new(plugin, fields.iter().flatten(), cx),
            queue: OnceLock::new(),
        }
    }

    /// Begins to send lines, in `start` of the plugin.
    pub(crate) fn start(&self, node: &Node, sender: Sender<Text>) {
        let params = Sinks::queue_params();
        let queue = || {
            node.queues
                .get(self.plugin, &self.queue_name, params, sender)
        };
        self.queue.get_or_init(queue);
    }

    /// Sends the record of a request, which follows a prefix in its line.
    pub(crate) fn log(&self, cx: &mut LogCx<'_, '_>, prefix: &[u8]) {
        let Some(queue) = self.queue.get() else {
            return;
        };
        if let Err(error) = self.fields.set(cx) {
            return has_no_record(self.plugin, &*error);
        }
        if let Err(error) = cx.push_record(Frame::Line(prefix), queue) {
            has_no_record(self.plugin, &error);
        }
    }

    /// Sends the record of a session.
    pub(crate) fn log_stream(&self, cx: &EndedStreamCx<'_>, prefix: &[u8]) {
        let Some(queue) = self.queue.get() else {
            return;
        };
        let fields = match self.fields.of_stream(cx) {
            Ok(fields) => fields,
            Err(error) => return has_no_record(self.plugin, &*error),
        };
        if let Err(error) = cx.with_record(&fields, |record| queue.push_lines(prefix, record)) {
            has_no_record(self.plugin, &error);
        }
    }
}

pub(crate) fn has_no_record(plugin: &str, error: &(dyn Error + 'static)) {
    tracing::error!(plugin, error, "a request has no log record");
}

/// The severities of the messages, and the least important one that is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Severities {
    pub(crate) log_level: Option<Severity>,
    pub(crate) successful_severity: Option<Severity>,
    pub(crate) client_errors_severity: Option<Severity>,
    pub(crate) server_errors_severity: Option<Severity>,
}

impl Severities {
    /// Returns the severity of a response with this status, or `None` if it is not sent. As in Kong, sessions count as
    /// successful.
    pub(crate) fn of(&self, status: Option<u16>) -> Option<Severity> {
        let severity = match status {
            Some(500..) => self.server_errors_severity,
            Some(400..) => self.client_errors_severity,
            _ => self.successful_severity,
        };
        let (severity, least) = (known(severity), known(self.log_level));
        (severity <= least).then_some(severity)
    }
}

/// An explicit null counts as Kong's default.
fn known(severity: Option<Severity>) -> Severity {
    severity.unwrap_or(Severity::Info)
}
