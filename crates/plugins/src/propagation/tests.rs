//! Tests of trace contexts: each format in both directions, and what hostile clients send.

use super::fields::{NAMES, Name};
use super::{Config, Format, HeaderType, Incoming, Outgoing, Propagation};
use plugin::trace::{Trace, TraceId};
use plugin::{HeaderEdits, HeaderValue};
use proptest::prelude::*;
use serde_json::json;
use testkit::cost::assert_linear;

const LONG: u128 = 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c;
const SHORT: u128 = 0x8448_eb21_1c80_319c;
const SPAN: u64 = 0xb7ad_6b71_6920_3331;
const PARENT: u64 = 0x05e3_ac9a_4f6e_3b90;

fn propagation(config: serde_json::Value) -> Propagation {
    let config: Config = serde_json::from_value(config).unwrap();
    Propagation::new(config, None, None)
}

fn usual() -> Propagation {
    propagation(json!({"default_format": "w3c"}))
}

fn extract(headers: &[(&str, &str)]) -> Option<Incoming> {
    extract_by(&usual(), headers)
}

fn extract_by(propagation: &Propagation, headers: &[(&str, &str)]) -> Option<Incoming> {
    let pairs = headers
        .iter()
        .map(|(name, value)| (*name, value.as_bytes()));
    propagation.extract(pairs)
}

/// The context in short: format, trace id, span, parent and decision.
type Short = (
    Format,
    Option<(u128, bool)>,
    Option<u64>,
    Option<u64>,
    Option<bool>,
);

fn short(incoming: Incoming) -> Short {
    let trace = incoming.trace.map(|trace| (trace.number, trace.is_short));
    let Incoming {
        format,
        span,
        parent,
        sampled,
        ..
    } = incoming;
    (format, trace, span, parent, sampled)
}

#[test]
fn contexts_are_read_in_each_format() {
    let long = Some((LONG, false));
    let brief = Some((SHORT, true));
    let span = Some(SPAN);
    let parent = Some(PARENT);
    let (yes, no) = (Some(true), Some(false));
    const T: &str = "0af7651916cd43dd8448eb211c80319c";
    const S: &str = "b7ad6b7169203331";
    const P: &str = "05e3ac9a4f6e3b90";
    let table: &[(&[(&str, String)], Short)] = &[
        (
            &[("traceparent", format!("00-{T}-{S}-01"))],
            (Format::W3c, long, span, None, yes),
        ),
        (
            &[("TraceParent", format!("00-{T}-{S}-02"))],
            (Format::W3c, long, span, None, no),
        ),
        (
            &[
                ("x-b3-traceid", T.into()),
                ("x-b3-spanid", S.into()),
                ("x-b3-sampled", "true".into()),
            ],
            (Format::B3, long, span, None, yes),
        ),
        (
            &[
                ("X-B3-TraceId", "8448eb211c80319c".into()),
                ("X-B3-SpanId", S.into()),
                ("X-B3-ParentSpanId", P.into()),
                ("X-B3-Flags", "1".into()),
            ],
            (Format::B3, brief, span, parent, yes),
        ),
        (
            &[("x-b3-sampled", "0".into())],
            (Format::B3, None, None, None, no),
        ),
        (
            &[("b3", format!("{T}-{S}-0-{P}"))],
            (Format::B3Single, long, span, parent, no),
        ),
        (
            &[("b3", format!("{T}-{S}"))],
            (Format::B3Single, long, span, None, None),
        ),
        (
            &[("b3", "d".into())],
            (Format::B3Single, None, None, None, yes),
        ),
        (
            &[("tracestate", format!("a=1, b3={T}-{S}-1"))],
            (Format::B3Single, long, span, None, yes),
        ),
        (
            &[("uber-trace-id", format!("{T}:{S}:0:1"))],
            (Format::Jaeger, long, span, None, yes),
        ),
        (
            &[("uber-trace-id", format!("8448eb211c80319c:{S}:{P}:00"))],
            (Format::Jaeger, brief, span, parent, no),
        ),
        (
            &[
                ("ot-tracer-traceid", T.into()),
                ("ot-tracer-spanid", S.into()),
                ("ot-tracer-sampled", "true".into()),
            ],
            (Format::Ot, long, span, None, yes),
        ),
        (
            &[
                ("x-datadog-trace-id", "9532127138774266268".into()),
                ("x-datadog-parent-id", "13235353014750950193".into()),
                ("x-datadog-sampling-priority", "2".into()),
            ],
            (Format::Datadog, brief, span, None, yes),
        ),
        (
            &[(
                "x-amzn-trace-id",
                format!(
                    "Self=1-2-3; Sampled=0;Parent={S};Root=1-0af76519-16cd43dd8448eb211c80319c"
                ),
            )],
            (Format::Aws, long, span, None, no),
        ),
        (
            &[(
                "x-cloud-trace-context",
                format!("{T}/13235353014750950193;o=1"),
            )],
            (Format::Gcp, long, span, None, yes),
        ),
        (
            &[("x-cloud-trace-context", format!("{T}/13235353014750950193"))],
            (Format::Gcp, long, span, None, no),
        ),
    ];
    for (headers, expected) in table {
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        assert_eq!(
            extract(&headers).map(short).as_ref(),
            Some(expected),
            "{headers:?}"
        );
    }
}

#[test]
fn malformed_contexts_are_none() {
    const T: &str = "0af7651916cd43dd8448eb211c80319c";
    const S: &str = "b7ad6b7169203331";
    let zeros = "0".repeat(32);
    for (name, value) in [
        ("traceparent", format!("01-{T}-{S}-01")),
        ("traceparent", format!("00-{zeros}-{S}-01")),
        ("traceparent", format!("00-{T}-0000000000000000-01")),
        ("traceparent", format!("00-{T}-{S}-1")),
        ("traceparent", format!("00-{T}-{S}-01-x")),
        ("traceparent", format!("00-{T}-{S}-0g")),
        ("traceparent", "00-".repeat(5000)),
        ("traceparent", format!("00-{}é-{S}-01", &T[..30])),
        ("b3", format!("{T}-{S}-2")),
        ("b3", format!("{T}-{S}-1-{S}-x")),
        ("b3", "x".repeat(100_000)),
        ("tracestate", "b3".repeat(1000)),
        ("tracestate", "vendor=1".into()),
        ("uber-trace-id", format!("{T}:{S}:0")),
        ("uber-trace-id", format!("{T}:{S}:0:1:1")),
        ("uber-trace-id", format!("{T}0:{S}:0:1")),
        ("uber-trace-id", format!("0:{S}:0:1")),
        ("uber-trace-id", format!("{T}:{S}:0:-1")),
        ("x-datadog-sampling-priority", "3".into()),
        (
            "x-amzn-trace-id",
            format!("Root=1-0af76519-16cd43dd;Parent={S}"),
        ),
        ("x-amzn-trace-id", format!("Parent={S};Sampled=1")),
        ("x-cloud-trace-context", format!("{T}/99999999999999999999")),
        ("x-cloud-trace-context", format!("{T}/1;o=11")),
        ("x-cloud-trace-context", format!("{T}/+1")),
        ("x-cloud-trace-context", T.into()),
        ("x-b3-flags", "0".into()),
    ] {
        assert_eq!(extract(&[(name, &value)]), None, "{name}: {:.80}", value);
    }
    let unusable = extract(&[("x-b3-traceid", T), ("x-b3-spanid", "xyz")]).unwrap();
    assert_eq!((unusable.trace, unusable.span), (None, None));
}

#[test]
fn a_repeated_header_says_nothing() {
    let one = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    assert!(extract(&[("traceparent", one)]).is_some());
    assert_eq!(extract(&[("traceparent", one), ("traceparent", one)]), None);
    assert_eq!(
        extract(&[
            ("traceparent", one),
            ("Traceparent", one),
            ("traceparent", one)
        ]),
        None
    );
}

#[test]
fn the_first_format_with_a_context_counts() {
    let w3c = (
        "traceparent",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    );
    let jaeger = ("uber-trace-id", "5b8aa5a2d2c872e8:b7ad6b7169203331:0:1");
    let by = propagation(json!({"default_format": "b3", "extract": ["jaeger", "w3c"]}));
    let format = |headers: &[_]| extract_by(&by, headers).map(|incoming| incoming.format);
    assert_eq!(format(&[w3c, jaeger]), Some(Format::Jaeger));
    assert_eq!(format(&[w3c, ("uber-trace-id", "junk")]), Some(Format::W3c));
    let none = propagation(json!({"default_format": "w3c", "inject": ["w3c"]}));
    assert_eq!(extract_by(&none, &[w3c]), None);
}

fn outgoing() -> Outgoing {
    Outgoing {
        trace: TraceId {
            number: LONG,
            is_short: false,
        },
        keeps_length: true,
        span: SPAN,
        parent: Some(PARENT),
        sampled: Some(true),
        debug: false,
    }
}

fn inject(propagation: &Propagation, outgoing: &Outgoing, incoming: Option<Format>) -> HeaderEdits {
    let mut headers = HeaderEdits::new();
    propagation.inject(outgoing, incoming, &mut headers, &mut Trace::default());
    headers
}

#[test]
fn a_single_header_without_a_decision_has_the_parent_at_its_place_and_is_read() {
    let undecided = Outgoing {
        sampled: None,
        ..outgoing()
    };
    let headers = inject(&usual(), &undecided, Some(Format::B3Single));
    let parent = undecided.parent.expect("a parent");
    let line = format!("b3: {LONG:032x}-{SPAN:016x}-{parent:016x}");
    assert!(lines(&headers).contains(&line), "{:?}", lines(&headers));
    let read = extract(&[("b3", line.trim_start_matches("b3: "))]).expect("a context");
    assert_eq!((read.span, read.sampled), (Some(SPAN), None));
    let wrong = format!("{LONG:032x}-{SPAN:016x}-2");
    assert!(extract(&[("b3", &wrong)]).is_none());
}

fn lines(headers: &HeaderEdits) -> Vec<String> {
    let added = headers.added();
    let lines = added.map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value)));
    lines.collect()
}

#[test]
fn contexts_are_written_in_each_format() {
    let all = propagation(json!({
        "default_format": "w3c",
        "inject": ["w3c", "b3", "b3-single", "jaeger", "ot", "datadog", "aws", "gcp"],
    }));
    let expected = [
        "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "x-b3-traceid: 0af7651916cd43dd8448eb211c80319c",
        "x-b3-spanid: b7ad6b7169203331",
        "x-b3-parentspanid: 05e3ac9a4f6e3b90",
        "x-b3-sampled: 1",
        "b3: 0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1-05e3ac9a4f6e3b90",
        "uber-trace-id: 0af7651916cd43dd8448eb211c80319c:b7ad6b7169203331:05e3ac9a4f6e3b90:01",
        "ot-tracer-traceid: 0af7651916cd43dd8448eb211c80319c",
        "ot-tracer-spanid: b7ad6b7169203331",
        "ot-tracer-sampled: 1",
        "x-datadog-trace-id: 9532127138774266268",
        "x-datadog-parent-id: 13235353014750950193",
        "x-datadog-sampling-priority: 1",
        "x-amzn-trace-id: Root=1-0af76519-16cd43dd8448eb211c80319c;Parent=b7ad6b7169203331;Sampled=1",
        "x-cloud-trace-context: 0af7651916cd43dd8448eb211c80319c/13235353014750950193;o=1",
    ];
    assert_eq!(lines(&inject(&all, &outgoing(), None)), expected);
    let mut other = outgoing();
    other.trace = TraceId {
        number: SHORT,
        is_short: true,
    };
    (other.parent, other.sampled, other.debug) = (None, Some(false), true);
    let some = propagation(
        json!({"default_format": "w3c", "inject": ["b3", "b3-single", "jaeger", "ot", "w3c"]}),
    );
    let expected = [
        "x-b3-traceid: 8448eb211c80319c",
        "x-b3-spanid: b7ad6b7169203331",
        "x-b3-flags: 1",
        "b3: 8448eb211c80319c-b7ad6b7169203331-d",
        "uber-trace-id: 8448eb211c80319c:b7ad6b7169203331:0:00",
        "ot-tracer-traceid: 8448eb211c80319c",
        "ot-tracer-spanid: b7ad6b7169203331",
        "ot-tracer-sampled: 0",
        "traceparent: 00-00000000000000008448eb211c80319c-b7ad6b7169203331-00",
    ];
    assert_eq!(lines(&inject(&some, &other, None)), expected);
}

#[test]
fn the_format_of_the_client_is_kept() {
    let written = |incoming| {
        let headers = inject(&usual(), &outgoing(), incoming);
        headers.added().next().map(|(name, _)| name.to_owned())
    };
    assert_eq!(written(None).as_deref(), Some("traceparent"));
    assert_eq!(written(Some(Format::B3Single)).as_deref(), Some("b3"));
    assert_eq!(
        written(Some(Format::Gcp)).as_deref(),
        Some("x-cloud-trace-context")
    );
}

#[test]
fn headers_are_cleared_before_others_are_written() {
    let by = propagation(json!({
        "default_format": "w3c", "clear": ["X-Other", "traceparent"], "inject": ["w3c"],
    }));
    let mut headers = HeaderEdits::new();
    headers.set("x-other", HeaderValue::from_static("1"));
    by.inject(&outgoing(), None, &mut headers, &mut Trace::default());
    assert!(headers.drops("x-other") && headers.value("x-other").is_none());
    assert!(headers.value("traceparent").is_some());
}

#[test]
fn the_deprecated_fields_count_without_the_lists() {
    let config = || serde_json::from_value::<Config>(json!({"default_format": "w3c"})).unwrap();
    let headers = [(
        "traceparent",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    )];
    let ignores = Propagation::new(config(), Some(HeaderType::Ignore), Some(Format::B3));
    assert_eq!(extract_by(&ignores, &headers), None);
    assert_eq!(lines(&inject(&ignores, &outgoing(), None)).len(), 4);
    let adds = Propagation::new(config(), Some(HeaderType::As(Format::Jaeger)), None);
    let written = lines(&inject(&adds, &outgoing(), Some(Format::W3c)));
    assert!(written[0].starts_with("traceparent") && written[1].starts_with("uber-trace-id"));
}

#[test]
fn each_header_is_found_by_the_length_of_its_name() {
    for (at, name) in NAMES.iter().enumerate() {
        let found = Name::of(name.to_uppercase().as_bytes());
        assert!(found.is_some(), "{name}");
        let mut others = NAMES[..at].iter().map(|other| Name::of(other.as_bytes()));
        assert!(others.all(|other| other != found), "{name}");
    }
    assert_eq!(Name::of(b"user-agent"), None);
}

fn header() -> impl Strategy<Value = (String, Vec<u8>)> {
    let names = prop::sample::select(NAMES.to_vec());
    let texts = "(Root=1-|Parent=|Sampled=|b3=|00|[0-9a-fA-F]{8}|[0-9a-f]{16}|[0-9a-f]{32}|[-:;/,=]|o=|[01d]){0,12}";
    let values = prop_oneof![
        texts.prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..100),
    ];
    (names.prop_map(str::to_owned), values)
}

proptest! {
    /// Whatever comes in, each format is written so that it is read again with the same ids.
    #[test]
    fn what_is_read_can_be_written_and_read_again(headers in prop::collection::vec(header(), 0..6)) {
        let pairs = headers.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
        let Some(incoming) = usual().extract(pairs) else {
            return Ok(());
        };
        let Some(trace) = incoming.trace else {
            return Ok(());
        };
        let outgoing = Outgoing { trace, sampled: incoming.sampled, ..outgoing() };
        let written = inject(&usual(), &outgoing, Some(incoming.format));
        let again = usual().extract(written.added()).unwrap();
        prop_assert_eq!(again.trace, Some(trace));
        prop_assert_eq!(again.span, Some(SPAN));
        prop_assert_eq!(again.sampled == Some(true), incoming.sampled == Some(true));
    }
}

#[test]
fn reading_takes_time_in_proportion_to_the_headers() {
    let value = |size: usize| format!("{}b3=", "a=b,".repeat(size / 4));
    assert_linear(8_000, value, |value| {
        assert_eq!(extract(&[("tracestate", &value)]), None);
    });
}
