//! Fuzz target for the headers of trace contexts. Each line is a header.

use plugin::HeaderEdits;
use plugin::trace::Trace;
use plugins::parsers::{TraceOutgoing, TracePropagation, TracePropagationConfig};
use std::sync::LazyLock;

static USUAL: LazyLock<TracePropagation> = LazyLock::new(|| {
    let config = serde_json::json!({"default_format": "w3c"});
    let config: TracePropagationConfig = serde_json::from_value(config).expect("a configuration");
    TracePropagation::new(config, None, None)
});

const SPAN: u64 = 0x0102_0304_0506_0708;

/// Checks that a context that is read can be written in its format, and is then read again with the same trace id, the
/// span that was written and the same decision.
pub fn trace_context(data: &[u8]) {
    let lines = data.split(|byte| *byte == b'\n');
    let pairs = lines.filter_map(|line| {
        let at = line.iter().position(|byte| *byte == b':')?;
        let name = std::str::from_utf8(&line[..at]).ok()?;
        Some((name, line[at + 1..].trim_ascii()))
    });
    let pairs: Vec<_> = pairs.take(100).collect();
    let Some(incoming) = USUAL.extract(pairs.into_iter()) else {
        return;
    };
    let Some(trace) = incoming.trace else {
        assert_eq!(incoming.span, None, "a span without a trace");
        return;
    };
    let outgoing = TraceOutgoing {
        trace,
        keeps_length: true,
        span: SPAN,
        parent: incoming.span,
        sampled: incoming.sampled,
        debug: incoming.debug,
    };
    let mut headers = HeaderEdits::new();
    USUAL.inject(
        &outgoing,
        Some(incoming.format),
        &mut headers,
        &mut Trace::default(),
    );
    for (_, value) in headers.added() {
        assert!(
            value.iter().all(u8::is_ascii_graphic),
            "a header of other bytes"
        );
    }
    let again = USUAL.extract(headers.added());
    let again = again.unwrap_or_else(|| panic!("not read again: {incoming:?} as {headers:?}"));
    assert_eq!((again.trace, again.span), (Some(trace), Some(SPAN)));
    assert_eq!(again.sampled == Some(true), incoming.sampled == Some(true));
}
