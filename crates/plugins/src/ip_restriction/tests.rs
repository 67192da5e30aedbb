//! Tests of ip-restriction.

use super::*;
use crate::testing::{case, config};
use expr::Block;
use plugin::testing::{Case, refusal};
use plugin::{Client, Scope, StreamConfigured, StreamProtocol, StreamSession};
use serde_json::{Value, json};
use std::net::SocketAddr;

fn status(config: &Value, address: &str) -> u16 {
    let case = case(def(), config.clone());
    let outcome = case.request("GET /").client(address).run_now();
    assert_eq!(outcome.upstream.is_some(), outcome.client.status == 200);
    outcome.client.status
}

#[test]
fn denied_addresses_are_refused_also_if_they_are_allowed() {
    let cases = [
        (json!({"deny": ["192.0.2.1"]}), "192.0.2.1:1", 403),
        (json!({"deny": ["192.0.2.1"]}), "192.0.2.2:1", 200),
        (json!({"deny": ["192.0.2.77/24"]}), "192.0.2.2:1", 403),
        (json!({"deny": ["0.0.0.0/0"]}), "192.0.2.2:1", 403),
        (json!({"deny": ["0.0.0.0/0"]}), "[2001:db8::1]:1", 200),
        (json!({"allow": ["192.0.2.0/24"]}), "192.0.2.255:1", 200),
        (json!({"allow": ["192.0.2.0/24"]}), "192.0.3.0:1", 403),
        (
            json!({"allow": ["192.0.2.0/24"], "deny": ["192.0.2.8/29"]}),
            "192.0.2.9:1",
            403,
        ),
        (
            json!({"allow": ["192.0.2.0/24"], "deny": ["192.0.2.8/29"]}),
            "192.0.2.7:1",
            200,
        ),
        (json!({"allow": ["::1"]}), "127.0.0.1:1", 403),
        (
            json!({"allow": ["2001:db8::/32"]}),
            "[2001:db8:1::9]:1",
            200,
        ),
        (json!({"allow": ["2001:db8::/32"]}), "[2001:db9::]:1", 403),
        (json!({"deny": ["::/0"]}), "[2001:db9::]:1", 403),
        (
            json!({"allow": [], "deny": ["192.0.2.1"]}),
            "192.0.2.2:1",
            200,
        ),
    ];
    for (config, address, wanted) in cases {
        assert_eq!(status(&config, address), wanted, "{config} {address}");
    }
}

#[test]
fn an_address_in_the_form_of_ipv6_is_the_ipv4_address_too() {
    let mapped = "[::ffff:192.0.2.1]:1";
    assert_eq!(status(&json!({"deny": ["192.0.2.0/24"]}), mapped), 403);
    assert_eq!(status(&json!({"allow": ["192.0.2.0/24"]}), mapped), 200);
    assert_eq!(status(&json!({"deny": ["::ffff:0:0/96"]}), mapped), 403);
    assert_eq!(status(&json!({"deny": ["198.51.100.1"]}), mapped), 200);
}

#[test]
fn a_refusal_has_the_configured_status_and_message() {
    let run = |config: Value| {
        let case = case(def(), config);
        let outcome = case.request("GET /").client("192.0.2.1:1").run_now();
        (outcome.client.status, outcome.client.message())
    };
    let config = json!({"deny": ["192.0.2.1"]});
    assert_eq!(
        run(config),
        (403, "IP address not allowed: 192.0.2.1".to_owned())
    );
    let config = json!({"deny": ["192.0.2.1"], "status": 451, "message": "Go away"});
    assert_eq!(run(config), (451, "Go away".to_owned()));
    for status in [json!(200), json!(0), json!(-1), json!(403.5), json!(1e300)] {
        let config = json!({"deny": ["192.0.2.1"], "status": status});
        assert_eq!(run(config).0, 500, "{status}");
    }
}

/// Returns how a session ends, unless it goes on.
fn end(given: Value, address: &str) -> Option<StreamEnd> {
    let life = Default::default();
    let cx = BuildCx {
        identity: &Default::default(),
        lua: &Default::default(),
        life: &life,
    };
    let plugin = IpRestriction::build(config("ip-restriction", given), &cx);
    let plugin = plugin.expect("the configuration is right");
    let peer: SocketAddr = address.parse().expect("an address");
    let session = StreamSession {
        protocol: StreamProtocol::Udp,
        client: Client {
            ip: peer.ip(),
            port: peer.port(),
        },
        peer,
        port: 53,
        sni: None,
        tls: None,
        route: None,
        service: None,
        slot: None,
    };
    let case = Case::empty();
    let cx = StreamCx {
        session: &session,
        configured: StreamConfigured {
            scope: Scope::default(),
            name: None,
        },
        node: case.node(),
    };
    match plugin.preread(cx).expect("it cannot fail") {
        StreamStep::Continue => None,
        StreamStep::Close(end) => Some(end),
        StreamStep::Wait(_) => panic!("it waits"),
    }
}

#[test]
fn sessions_are_closed_with_a_status_of_streams() {
    let deny = |status: Option<u16>| json!({"deny": ["192.0.2.1"], "status": status});
    assert_eq!(end(deny(None), "192.0.2.2:9"), None);
    for (status, wanted) in [
        (None, 403),
        (Some(400), 400),
        (Some(451), 500),
        (Some(200), 500),
    ] {
        let message = "IP address not allowed: 192.0.2.1".to_owned();
        let wanted = StreamEnd {
            status: wanted,
            message,
        };
        assert_eq!(end(deny(status), "192.0.2.1:9"), Some(wanted));
    }
}

#[test]
fn a_list_with_a_wrong_entry_is_refused() {
    crate::install();
    for entry in ["192.0.2", "192.0.2.1/33", "::1/129", "a.test", "1.2.3.4/"] {
        let refused = refusal(&def(), json!({"deny": [entry]}));
        assert!(
            refused.contains("invalid ip or cidr range"),
            "{entry}: {refused}"
        );
    }
}

#[test]
fn ranges_find_what_a_comparison_with_each_block_finds() {
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..300 {
        let blocks: Vec<String> = (0..random.usize(0..40))
            .map(|_| match random.bool() {
                true => format!(
                    "10.0.{}.{}/{}",
                    random.u8(..4),
                    random.u8(..),
                    random.u8(0..=32)
                ),
                false => format!(
                    "fd00::{:x}:{:x}/{}",
                    random.u8(..4),
                    random.u16(..),
                    random.u8(0..=128)
                ),
            })
            .collect();
        let ranges = Ranges::compile("allow", &blocks).expect("blocks");
        let parsed: Vec<Block> = (blocks.iter())
            .map(|block| block.parse().expect("a block"))
            .collect();
        for _ in 0..50 {
            let address: IpAddr = match random.bool() {
                true => format!("10.0.{}.{}", random.u8(..4), random.u8(..)),
                false => format!("fd00::{:x}:{:x}", random.u8(..4), random.u16(..)),
            }
            .parse()
            .expect("an address");
            let wanted = parsed.iter().any(|block| block.contains(address));
            assert_eq!(ranges.contains(address), wanted, "{blocks:?} {address}");
        }
    }
}
