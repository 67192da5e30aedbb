//! Tests of HPACK (RFC 7541): field blocks in every representation, and malformed field blocks.

use super::client::*;
use crate::http2::ServerSettings;

const BROKEN: Want = Want::Connection(&[COMPRESSION_ERROR]);

/// "custom-key" and "custom-value", Huffman-coded (RFC 7541 appendix C.4.3).
const KEY: &[u8] = b"\x88\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f";
const VALUE: &[u8] = b"\x89\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf";

/// Creates a case: a GET request with these bytes at the end of its field block.
fn and(name: &'static str, want: Want, more: &[u8]) -> Case {
    case(name, want, &[whole(1, &get_with(more))])
}

/// Creates a case: a GET request with these bytes at the start of its field block, where table size updates belong.
fn after(name: &'static str, want: Want, first: &[u8]) -> Case {
    case(name, want, &[whole(1, &[first, &get()].concat())])
}

#[tokio::test]
async fn section_6_representations() {
    let plain_name: &[u8] = b"\x0acustom-key";
    let plain_value: &[u8] = b"\x0ccustom-value";
    let build = |first: u8, name: &[u8], value: &[u8]| [&[first], name, value].concat();
    let answered = Want::Answer(1);
    // 0x40: literal with indexing; 0x00: without indexing; 0x10: never indexed. The static table has user-agent at 58.
    check(vec![
        and("indexed", answered, &[0x90]),
        and(
            "indexing, indexed name",
            answered,
            &build(0x7a, b"", plain_value),
        ),
        and(
            "indexing, indexed name, Huffman",
            answered,
            &build(0x7a, b"", VALUE),
        ),
        and(
            "indexing, new name",
            answered,
            &build(0x40, plain_name, plain_value),
        ),
        and(
            "indexing, new name, Huffman",
            answered,
            &build(0x40, KEY, VALUE),
        ),
        and(
            "no indexing, indexed name",
            answered,
            &build(0x0f, &[43], plain_value),
        ),
        and(
            "no indexing, indexed name, Huffman",
            answered,
            &build(0x0f, &[43], VALUE),
        ),
        and(
            "no indexing, new name",
            answered,
            &build(0x00, plain_name, plain_value),
        ),
        and(
            "no indexing, new name, Huffman",
            answered,
            &build(0x00, KEY, VALUE),
        ),
        and(
            "never, indexed name",
            answered,
            &build(0x1f, &[43], plain_value),
        ),
        and(
            "never, indexed name, Huffman",
            answered,
            &build(0x1f, &[43], VALUE),
        ),
        and(
            "never, new name",
            answered,
            &build(0x10, plain_name, plain_value),
        ),
        and(
            "never, new name, Huffman",
            answered,
            &build(0x10, KEY, VALUE),
        ),
    ])
    .await;
}

#[tokio::test]
async fn section_2_3_tables() {
    let insert = [&[0x40][..], KEY, VALUE].concat();
    let twice = [&insert[..], &[0xbe]].concat();
    check(vec![
        and("the dynamic table", Want::Answer(1), &twice),
        and("index 0", BROKEN, &[0x80]),
        and("beyond both tables", BROKEN, &[0xff, 0x00]),
        and(
            "beyond the dynamic table",
            BROKEN,
            &[&insert[..], &[0xbf]].concat(),
        ),
        and("a name beyond both tables", BROKEN, b"\x7f\x20\x01x"),
        case(
            "one table for all streams",
            Want::Answer(3),
            &[whole(1, &get_with(&insert)), whole(3, &get_with(&[0xbe]))],
        ),
        case(
            "blocks of refused requests count",
            Want::Answer(3),
            &[whole(1, &insert), whole(3, &get_with(&[0xbe]))],
        ),
    ])
    .await;
}

/// Fields that no message may contain still enter the dynamic table. Otherwise the two sides would resolve the indexes
/// of later blocks differently.
#[tokio::test]
async fn section_2_3_tables_keep_malformed_fields() {
    let upper = b"\x40\x07X-Upper\x01v";
    let broken_value = b"\x40\x04x-ok\x03a\nb";
    let indexed_method = b"\x42\x03G T";
    let valid = b"\x40\x05x-two\x012";
    check(vec![
        case(
            "the field again",
            Want::Malformed(3),
            &[whole(1, &get_with(upper)), whole(3, &get_with(&[0xbe]))],
        ),
        case(
            "its name again",
            Want::Malformed(3),
            &[
                whole(1, &get_with(upper)),
                whole(3, &get_with(b"\x7e\x01w")),
            ],
        ),
        case(
            "a well-formed name with another value",
            Want::Answer(3),
            &[
                whole(1, &get_with(broken_value)),
                whole(3, &get_with(b"\x7e\x01w")),
            ],
        ),
        case(
            "the value again",
            Want::Malformed(3),
            &[
                whole(1, &get_with(broken_value)),
                whole(3, &get_with(&[0xbe])),
            ],
        ),
        case(
            "a method of the static table with another value",
            Want::Malformed(1),
            &[whole(1, &[&indexed_method[..], &get()[1..]].concat())],
        ),
        case(
            "what came after it",
            Want::Answer(3),
            &[
                whole(1, &get_with(&[&upper[..], valid].concat())),
                whole(3, &get_with(&[0xbe])),
            ],
        ),
        case(
            "what came before it",
            Want::Answer(3),
            &[
                whole(1, &get_with(&[&valid[..], upper].concat())),
                whole(3, &get_with(&[0xbf])),
            ],
        ),
        case(
            "beyond it",
            BROKEN,
            &[whole(1, &get_with(upper)), whole(3, &get_with(&[0xbf]))],
        ),
    ])
    .await;
}

#[tokio::test]
async fn section_4_2_and_6_3_sizes() {
    check(vec![
        after("an update", Want::Answer(1), &[0x3f, 0xe1, 0x1f]),
        after("to nothing", Want::Answer(1), &[0x20]),
        after("two updates", Want::Answer(1), &[0x20, 0x3f, 0xe1, 0x1f]),
        after("larger than allowed", BROKEN, &[0x3f, 0xe2, 0x1f]),
        after("much larger", BROKEN, &[0x3f, 0xff, 0xff, 0xff, 0x07]),
        and("at the end", BROKEN, &[0x20]),
        and("between fields", BROKEN, &[0x20, 0x90]),
        case(
            "what is evicted is gone",
            BROKEN,
            &[
                whole(1, &get_with(&[&[0x40], KEY, VALUE].concat())),
                whole(3, &[&[0x20][..], &get(), &[0xbe]].concat()),
            ],
        ),
    ])
    .await;
}

#[tokio::test]
async fn section_5_1_integers() {
    check(vec![
        and("without end", BROKEN, &[0x7f, 0xff]),
        and(
            "too large",
            BROKEN,
            &[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
        ),
        and("a length that goes on", BROKEN, &[0x00, 0x7f, 0x80]),
    ])
    .await;
}

#[tokio::test]
async fn section_5_2_strings() {
    check(vec![
        and("cut off", BROKEN, b"\x00\x01x\x05abc"),
        and("a name cut off", BROKEN, b"\x00\x0fabc"),
        and("no value", BROKEN, b"\x00\x01x"),
        // 'a' is 00011. The padding must consist of ones and be shorter than a byte.
        and("Huffman padded by a byte", BROKEN, b"\x00\x01x\x82\x1f\xff"),
        and("Huffman padded by zeros", BROKEN, b"\x00\x01x\x81\x18"),
        and("Huffman with EOS", BROKEN, b"\x00\x01x\x84\xff\xff\xff\xff"),
        and("Huffman, right", Want::Answer(1), b"\x00\x01x\x81\x1f"),
        and("Huffman, empty", Want::Answer(1), b"\x00\x01x\x80"),
    ])
    .await;
}

/// The blocks repeat one field each: a field of the static table, a new field that evicts older ones from the dynamic
/// table, and a field that enters no table.
#[test]
fn a_field_block_costs_as_much_as_it_has_fields() {
    let fields: [&[u8]; 3] = [b"\x90", b"\x40\x01x\x01y", b"\x00\x01x\x01y"];
    testkit::cost::assert_linear(
        200,
        |size| {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            let runtime = builder.enable_all().build().unwrap();
            let client = runtime.block_on(Client::open(ServerSettings::default()));
            let blocks = fields.map(|field| get_with(&field.repeat(size)));
            (runtime, client, blocks)
        },
        |(runtime, mut client, blocks)| {
            runtime.block_on(async {
                for (block, stream) in blocks.iter().zip([1, 3, 5]) {
                    client.send(&whole(stream, block)).await;
                    client.until(|frame| frame.ends(stream)).await;
                }
            });
        },
    );
}

/// Each block fills one frame. Some blocks have table size updates, to zero and up again, before or after the fields.
/// Some have one long value, plain or Huffman-coded. Others repeat a field until the field list exceeds its size limit.
#[test]
fn a_full_frame_costs_as_much_as_it_is_long() {
    let field = [&[0x40][..], KEY, VALUE].concat();
    testkit::cost::assert_linear(
        7 * 1024,
        |size| {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            let runtime = builder.enable_all().build().unwrap();
            let updates = [0x20, 0x3f, 0xe1, 0x1f].repeat(size / 4);
            // A field that enters no table. Its value has at least 1,000 bytes, so the length does not fit into the
            // prefix of seven bits.
            let long = |coding: u8, byte: u8| {
                let value = vec![byte; size.max(1000)];
                let rest = value.len() - 0x7f;
                let length = [
                    coding | 0x7f,
                    0x80 | (rest % 0x80) as u8,
                    (rest / 0x80) as u8,
                ];
                [&b"\x00\x01x"[..], &length, &value].concat()
            };
            let blocks = [
                [&updates[..], &get()].concat(),
                get_with(&updates),
                [&[0x20].repeat(size), &get()[..]].concat(),
                get_with(&long(0, b'a')),
                // The first Huffman code of this value is 00011, an 'a'.
                get_with(&long(0x80, 0x18)),
                get_with(&[0x90].repeat(size)),
                get_with(&field.repeat(size / field.len())),
                get_with(&[&field[..], &[0xbe].repeat(size)].concat()),
            ];
            let clients = blocks.map(|block| {
                let client = runtime.block_on(Client::open(ServerSettings::default()));
                (client, block)
            });
            (runtime, clients)
        },
        |(runtime, clients)| {
            runtime.block_on(async {
                for (mut client, block) in clients {
                    client.send(&whole(1, &block)).await;
                    client
                        .until(|frame| frame.ends(1) || frame.kind >= RST_STREAM)
                        .await;
                }
            });
        },
    );
}
