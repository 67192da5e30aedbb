//! Layer that passes the lines of the log to plugins that send them elsewhere.

use plugin::services::log_lines::{self, LogLine};
use std::fmt::{self, Write as _};
use std::time::SystemTime;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

pub(super) struct Lines;

/// Modules whose lines do not come this way: queues and the libraries of the HTTP client, because a line about a delivery
/// would be one more entry to deliver, and Lua code, which passes its lines with their line numbers.
const LEFT_OUT: [&str; 5] = ["services::queue", "hyper", "h2", "rustls", "lua::abi::log"];

fn is_left_out(module: &str) -> bool {
    LEFT_OUT.iter().any(|left_out| module.starts_with(left_out))
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let about = event.metadata();
        let level = match *about.level() {
            Level::ERROR => 4,
            Level::WARN => 5,
            Level::INFO => 6,
            Level::DEBUG => 7,
            Level::TRACE => 8,
        };
        if !log_lines::is_wanted(level) || is_left_out(about.target()) {
            return;
        }
        let mut text = Text::default();
        event.record(&mut text);
        text.message.push_str(&text.fields);
        log_lines::offer(LogLine {
            time: SystemTime::now(),
            level,
            text: log_lines::cut(&text.message).into(),
            request_id: text.request_id,
            source_line: None,
        });
    }
}

/// The message of an event, and its fields after it.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
    request_id: Option<Box<str>>,
}

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.message.push_str(value),
            "request_id" => self.request_id = Some(value.into()),
            name => {
                // Writing to a String cannot fail.
                let _ = write!(self.fields, " {name}={value:?}");
            }
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a String cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_about_deliveries_are_left_out() {
        for module in [
            "services::queue::state",
            "hyper_util::client::legacy::pool",
            "hyper::proto::h1::conn",
            "h2::client",
            "rustls::client::hs",
        ] {
            assert!(is_left_out(module), "{module}");
        }
        for module in [
            "proxy::session",
            "services::redis::link",
            "net::http2::link",
        ] {
            assert!(!is_left_out(module), "{module}");
        }
    }
}
