//! Bytes before a connection's first request: a PROXY protocol header, and the TLS ClientHello with the server name.
//! Neither is accepted before it is complete, and further bytes do not change the result.

use crate::beginnings;
use net::{client_hello, proxy_protocol};

pub fn proxy_header(data: &[u8]) {
    let parsed = proxy_protocol::parse(data);
    let Ok(Some((header, length))) = parsed else {
        return;
    };
    assert!(length <= data.len() && length <= proxy_protocol::MAX_HEADER);
    for cut in beginnings(&data[..length]) {
        assert_eq!(proxy_protocol::parse(cut), Ok(None), "at {}", cut.len());
    }
    assert_eq!(
        proxy_protocol::parse(&data[..length]),
        Ok(Some((header, length)))
    );
    let Some(addresses) = header.addresses else {
        return;
    };
    let (source, destination) = (addresses.source, addresses.destination);
    assert_eq!(source.is_ipv4(), destination.is_ipv4());
    let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
    let text = format!(
        "PROXY {family} {} {} {} {}\r\n",
        source.ip(),
        destination.ip(),
        source.port(),
        destination.port()
    );
    let again = proxy_protocol::parse(text.as_bytes());
    assert_eq!(again, Ok(Some((header, text.len()))));
}

pub fn client_hello(data: &[u8]) {
    let parsed = client_hello::parse(data);
    let Ok(Some(opening)) = parsed else {
        return;
    };
    if let client_hello::Opening::Hello {
        server_name: Some(name),
    } = &opening
    {
        assert!(!name.is_empty() && name.len() <= 255);
        assert!(
            !name
                .bytes()
                .any(|byte| byte.is_ascii_uppercase() || byte <= b' ')
        );
    }
    let mut found = false;
    for cut in beginnings(data) {
        match client_hello::parse(cut) {
            Ok(None) => assert!(!found, "found, then lost at {}", cut.len()),
            Ok(Some(early)) => {
                assert_eq!(early, opening, "at {}", cut.len());
                found = true;
            }
            Err(error) => panic!("{error} at {}, then accepted", cut.len()),
        }
    }
    if data.len() < client_hello::MAX_HELLO {
        let longer = [data, b"\x17\x03\x03\x00\x01x"].concat();
        assert_eq!(client_hello::parse(&longer), Ok(Some(opening)));
    }
}
