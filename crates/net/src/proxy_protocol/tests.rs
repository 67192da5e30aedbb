use super::*;
use proptest::prelude::*;

fn addresses(source: &str, destination: &str) -> Option<Addresses> {
    Some(Addresses {
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
    })
}

fn read(bytes: &[u8]) -> Option<Addresses> {
    let (header, length) = parse(bytes).unwrap().expect("complete");
    assert_eq!(length, bytes.len());
    header.addresses
}

/// Builds a version 2 header with this body.
fn binary(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let mut header = V2.to_vec();
    header.extend([command, family]);
    header.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
    header.extend(body);
    header
}

const INET: [u8; 12] = [192, 0, 2, 1, 198, 51, 100, 2, 0xd4, 0x31, 0x01, 0xbb];

#[test]
fn lines_of_version_1_are_read() {
    let four = b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n";
    assert_eq!(read(four), addresses("192.0.2.1:56324", "198.51.100.2:443"));
    let six = b"PROXY TCP6 2001:db8::1 ::1 1 65535\r\n";
    assert_eq!(read(six), addresses("[2001:db8::1]:1", "[::1]:65535"));
    assert_eq!(read(b"PROXY UNKNOWN\r\n"), None);
    assert_eq!(
        read(b"PROXY UNKNOWN ffff:f...f:ffff whatever 65535 65535\r\n"),
        None
    );
}

#[test]
fn bytes_after_a_header_are_not_part_of_it() {
    let header = b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\n";
    let with_request = [header.as_slice(), b"GET / HTTP/1.1\r\n"].concat();
    assert_eq!(parse(&with_request).unwrap().unwrap().1, header.len());
    let header = binary(0x21, 0x11, &INET);
    let with_hello = [header.as_slice(), &[22, 3, 1]].concat();
    assert_eq!(parse(&with_hello).unwrap().unwrap().1, header.len());
}

#[test]
fn malformed_lines_are_refused() {
    for wrong in [
        "PROXY TCP4 1.1.1.1 2.2.2.2 1\r\n",
        "PROXY TCP4 1.1.1.1 2.2.2.2 1 2 3\r\n",
        "PROXY TCP4 1.1.1.1  2.2.2.2 1 2\r\n",
        "PROXY TCP4 1.1.1.1 2.2.2.2 1 2 \r\n",
        "PROXY TCP4 1.1.1.1 2.2.2.2 +1 2\r\n",
        "PROXY TCP4 1.1.1.1 2.2.2.2 01 2\r\n",
        "PROXY TCP4 1.1.1.1 2.2.2.2 1 65536\r\n",
        "PROXY TCP4 1.1.1.256 2.2.2.2 1 2\r\n",
        "PROXY TCP4 01.1.1.1 2.2.2.2 1 2\r\n",
        "PROXY TCP4 ::1 ::2 1 2\r\n",
        "PROXY TCP6 1.1.1.1 2.2.2.2 1 2\r\n",
        "PROXY TCP5 1.1.1.1 2.2.2.2 1 2\r\n",
        "PROXY TCP4 1.1.1.1 2.2.2.2 1 2\n",
        "PROXY UNKNOWNX\r\n",
        "PROXY \r\n",
        "PROXY TCP4 1.1.1.1 2.2.2.2 1 \u{661}\r\n",
    ] {
        assert_eq!(parse(wrong.as_bytes()), Err(Malformed::Line), "{wrong:?}");
    }
    for wrong in ["GET / HTTP/1.1\r\n", "proxy TCP4", "PROXY\t", "\r\n\r\nX"] {
        assert_eq!(
            parse(wrong.as_bytes()),
            Err(Malformed::Signature),
            "{wrong:?}"
        );
    }
}

#[test]
fn a_line_may_be_as_long_as_the_longest_and_no_longer() {
    let fill = |length: usize| {
        let mut line = b"PROXY UNKNOWN ".to_vec();
        line.resize(length - 2, b'x');
        line.extend(b"\r\n");
        line
    };
    assert_eq!(read(&fill(107)), None);
    assert_eq!(parse(&fill(108)), Err(Malformed::TooLong));
    assert_eq!(parse(&fill(108)[..106]), Ok(None));
}

#[test]
fn headers_of_version_2_are_read() {
    let four = addresses("192.0.2.1:54321", "198.51.100.2:443");
    assert_eq!(read(&binary(0x21, 0x11, &INET)), four);
    let mut six = [0; 36];
    six[15] = 1;
    six[31] = 2;
    six[33] = 7;
    six[35] = 8;
    assert_eq!(
        read(&binary(0x21, 0x21, &six)),
        addresses("[::1]:7", "[::2]:8")
    );
    let with_extensions = [&INET[..], &[1, 0, 2, b'h', b'2', 4, 0, 0]].concat();
    assert_eq!(read(&binary(0x21, 0x11, &with_extensions)), four);
}

#[test]
fn the_address_of_a_client_has_one_form() {
    for (line, expected) in [
        (
            "PROXY TCP6 ::ffff:192.0.2.1 ::ffff:192.0.2.2 7 8\r\n",
            Some("192.0.2.1:7"),
        ),
        (
            "PROXY TCP4 192.0.2.1 192.0.2.2 7 8\r\n",
            Some("192.0.2.1:7"),
        ),
        (
            "PROXY TCP6 2001:db8::1 ::2 7 8\r\n",
            Some("[2001:db8::1]:7"),
        ),
        ("PROXY UNKNOWN\r\n", None),
    ] {
        let (header, _) = parse(line.as_bytes()).unwrap().expect("complete");
        let client = header.client().map(|client| client.to_string());
        assert_eq!(client.as_deref(), expected, "{line}");
    }
}

#[test]
fn a_sender_that_speaks_for_itself_has_no_addresses() {
    assert_eq!(read(&binary(0x20, 0x00, &[])), None);
    assert_eq!(
        read(&binary(0x20, 0x11, &[1, 2, 3])),
        None,
        "the body is skipped"
    );
    assert_eq!(read(&binary(0x21, 0x00, &[])), None);
    assert_eq!(read(&binary(0x21, 0x31, &[0; 216])), None);
    assert_eq!(read(&binary(0x21, 0x12, &INET)), None, "datagrams");
}

#[test]
fn malformed_headers_of_version_2_are_refused() {
    let refused = |bytes: &[u8]| parse(bytes).unwrap_err();
    assert_eq!(refused(&binary(0x11, 0x11, &INET)), Malformed::Binary);
    assert_eq!(refused(&binary(0x22, 0x11, &INET)), Malformed::Binary);
    assert_eq!(refused(&binary(0x21, 0x41, &INET)), Malformed::Binary);
    assert_eq!(refused(&binary(0x21, 0x13, &INET)), Malformed::Binary);
    assert_eq!(refused(&binary(0x21, 0x11, &INET[..11])), Malformed::Binary);
    assert_eq!(refused(&binary(0x21, 0x21, &INET)), Malformed::Binary);
    let cut_extension = [&INET[..], &[1, 0, 9, b'h']].concat();
    assert_eq!(
        refused(&binary(0x21, 0x11, &cut_extension)),
        Malformed::Binary
    );
    assert_eq!(refused(&binary(0x20, 0x00, &[0; 4081])), Malformed::TooLong);
    assert_eq!(
        refused(&binary(0x20, 0x00, &[0; 4081])[..16]),
        Malformed::TooLong,
        "refused before the rest arrives"
    );
}

#[test]
fn a_checksum_is_verified_where_there_is_one() {
    let mut body = INET.to_vec();
    body.extend([TYPE_CRC32C, 0, 4, 0, 0, 0, 0, 4, 0, 1, 9]);
    let mut header = binary(0x21, 0x11, &body);
    let at = V2_FIXED + INET.len() + 3;
    let sum = crc32c_without(&header, at);
    header[at..at + 4].copy_from_slice(&sum.to_be_bytes());
    assert!(read(&header).is_some());
    header[at] ^= 1;
    assert_eq!(parse(&header), Err(Malformed::Checksum));
    header[at] ^= 1;
    header[V2_FIXED] ^= 1;
    assert_eq!(
        parse(&header),
        Err(Malformed::Checksum),
        "a changed address"
    );
}

#[test]
fn a_second_checksum_is_refused() {
    let mut body = INET.to_vec();
    body.extend([TYPE_CRC32C, 0, 4, 0, 0, 0, 0].repeat(2));
    let mut header = binary(0x21, 0x11, &body);
    let at = V2_FIXED + INET.len() + 3;
    let sum = crc32c_without(&header, at);
    header[at..at + 4].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(parse(&header), Err(Malformed::Binary));
}

#[test]
fn the_checksum_itself_counts_as_zero() {
    // This is the check value of CRC-32C in catalogues of CRC algorithms.
    assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
    let sum = crc32c::crc32c(b"12\0\0\0\089");
    assert_eq!(crc32c_without(b"12345689", 2), sum);
}

fn complete_headers() -> impl Strategy<Value = Vec<u8>> {
    let line = any::<([u8; 4], [u8; 4], u16, u16)>().prop_map(|(from, to, one, two)| {
        let (from, to) = (Ipv4Addr::from(from), Ipv4Addr::from(to));
        format!("PROXY TCP4 {from} {to} {one} {two}\r\n").into_bytes()
    });
    let body = prop::collection::vec(any::<u8>(), 0..64);
    let local = body.prop_map(|body| binary(0x20, 0, &body));
    prop_oneof![line, local, Just(binary(0x21, 0x11, &INET))]
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic_or_read_past_the_end(
        start in prop_oneof![Just(&b""[..]), Just(V1), Just(&V2[..])],
        rest in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let bytes = [start, &rest].concat();
        if let Ok(Some((_, length))) = parse(&bytes) {
            prop_assert!(length <= bytes.len());
            // The bytes after the header do not change the result.
            prop_assert_eq!(parse(&bytes[..length]), parse(&bytes));
        }
    }

    #[test]
    fn every_beginning_of_a_header_waits_for_the_rest(header in complete_headers()) {
        for end in 0..header.len() {
            prop_assert_eq!(parse(&header[..end]), Ok(None));
        }
        prop_assert!(matches!(parse(&header), Ok(Some((_, length))) if length == header.len()));
    }
}
