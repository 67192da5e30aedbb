//! The stream router: Kong's recorded decisions, and cases that they do not cover.

use super::fixtures::{ALL_OPTIONS, numbered, route};
use crate::{Calculation, Flavor, Options, RouteIndex, StreamRequest, StreamRouter, Wanted};
use model::entities::{Endpoint, Protocol, Route, RouteId};
use serde_json::Value;
use std::net::SocketAddr;
use uuid::Uuid;

const ROUTER: &str = include_str!("../../tests/data/router-vectors.json");

#[test]
fn every_flavor_decides_as_kong() {
    let vectors: Value = serde_json::from_str(ROUTER).unwrap();
    let groups = vectors["groups"].as_array().unwrap();
    let mut seen = 0;
    for group in groups.iter().filter(|group| group["subsystem"] == "stream") {
        let settings = group["routes"].as_array().unwrap();
        let routes: Vec<Route> = settings.iter().map(read_route).collect();
        for options in ALL_OPTIONS {
            let (router, errors) = StreamRouter::build(numbered(&routes), options);
            assert!(errors.is_empty(), "{errors:?}");
            for vector in group["vectors"].as_array().unwrap() {
                let decided = decide(&router, &vector["request"]);
                let name = decided.map_or(Value::Null, |index| {
                    settings[index.0 as usize]["name"].clone()
                });
                assert_eq!(
                    name, vector["expect"]["route"],
                    "{} {options:?}",
                    vector["id"]
                );
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 3 * 15);
}

fn decide(router: &StreamRouter, request: &Value) -> Option<RouteIndex> {
    let address = |ip: &str, port: &str| {
        let ip = request[ip].as_str().unwrap().parse().unwrap();
        let port = u16::try_from(request[port].as_u64().unwrap()).unwrap();
        SocketAddr::new(ip, port)
    };
    router.matches(&StreamRequest {
        source: address("src_ip", "src_port"),
        destination: address("dst_ip", "dst_port"),
        sni: request["sni"].as_str(),
        datagrams: false,
    })
}

fn read_route(settings: &Value) -> Route {
    let texts = |name: &str| -> Vec<_> {
        let list = settings[name].as_array().into_iter().flatten();
        list.map(|text| text.as_str().unwrap().into()).collect()
    };
    let ends = |name: &str| -> Vec<Endpoint> {
        let list = settings[name].as_array().into_iter().flatten();
        list.map(|end| Endpoint {
            ip: end["ip"].as_str().map(Into::into),
            port: end["port"].as_u64().map(|port| port.try_into().unwrap()),
        })
        .collect()
    };
    Route {
        id: RouteId(Uuid::try_parse(settings["id"].as_str().unwrap()).unwrap()),
        created_at: settings["created_at"].as_i64().unwrap(),
        protocols: match settings["protocols"][0].as_str().unwrap() {
            "tcp" => vec![Protocol::Tcp],
            "tls" => vec![Protocol::Tls],
            other => panic!("expected a protocol of this subsystem, not {other}"),
        },
        snis: texts("snis"),
        sources: ends("sources"),
        destinations: ends("destinations"),
        ..route(0)
    }
}

pub(super) fn end(ip: &str, port: u16) -> Endpoint {
    Endpoint {
        ip: (!ip.is_empty()).then(|| ip.into()),
        port: (port != 0).then_some(port),
    }
}

pub(super) fn stream(number: u32, protocol: Protocol) -> Route {
    Route {
        protocols: vec![protocol],
        created_at: i64::from(number),
        ..route(number)
    }
}

fn decided(
    routes: &[Route],
    options: Options,
    sni: Option<&str>,
    from: &str,
    to: &str,
) -> Option<u32> {
    let (router, errors) = StreamRouter::build(numbered(routes), options);
    assert!(errors.is_empty(), "{errors:?}");
    let request = StreamRequest {
        source: from.parse().unwrap(),
        destination: to.parse().unwrap(),
        sni,
        datagrams: false,
    };
    router.matches(&request).map(|index| index.0)
}

const CLIENT: &str = "192.0.2.1:4000";
const SERVER: &str = "10.0.0.1:9000";
const COMPATIBLE: Options = ALL_OPTIONS[1];

#[test]
fn server_names_rank_before_addresses_and_wildcards_match_suffixes() {
    let named = |number, snis: &[&str]| Route {
        snis: snis.iter().map(|&sni| sni.into()).collect(),
        ..stream(number, Protocol::Tls)
    };
    let routes = [
        Route {
            destinations: vec![end("", 9000)],
            ..stream(3, Protocol::TlsPassthrough)
        },
        named(2, &["*.example.com", "db.*"]),
        named(1, &["a.test", "b.test"]),
    ];
    let name = |sni| decided(&routes, COMPATIBLE, Some(sni), CLIENT, SERVER);
    assert_eq!(name("b.test"), Some(2));
    assert_eq!(name("x.y.example.com"), Some(1));
    assert_eq!(name("db.test"), Some(1));
    assert_eq!(name("other.test"), Some(0));
}

#[test]
fn exact_names_and_others_are_tried_in_one_order() {
    for (exact_id, wildcard_id) in [(1, 2), (2, 1)] {
        let routes = [
            Route {
                snis: vec!["a.test".into()],
                ..stream(exact_id, Protocol::Tls)
            },
            Route {
                snis: vec!["*.test".into()],
                ..stream(wildcard_id, Protocol::Tls)
            },
        ];
        let found = decided(&routes, COMPATIBLE, Some("a.test"), CLIENT, SERVER);
        // With equal priority the greater id wins.
        assert_eq!(found, Some(u32::from(wildcard_id > exact_id)));
    }
}

#[test]
fn the_flavor_decides_whether_connections_without_a_name_pass() {
    let routes = [Route {
        snis: vec!["a.test".into()],
        ..stream(1, Protocol::Tls)
    }];
    for (options, found) in ALL_OPTIONS.into_iter().zip([None, Some(0), None]) {
        assert_eq!(
            decided(&routes, options, None, CLIENT, SERVER),
            found,
            "{options:?}"
        );
    }
}

#[test]
fn more_specific_sources_and_destinations_rank_first() {
    let destined = |number, ends: Vec<Endpoint>| Route {
        destinations: ends,
        ..stream(number, Protocol::Tcp)
    };
    let routes = [
        destined(9, vec![end("10.0.0.0/8", 0)]),
        destined(8, vec![end("", 9000)]),
        destined(7, vec![end("10.0.0.1", 0)]),
        Route {
            sources: vec![end("192.0.2.0/24", 0)],
            ..destined(1, vec![end("10.0.0.0/8", 0)])
        },
    ];
    for options in ALL_OPTIONS {
        for (count, found) in [(4, 3), (3, 2), (2, 1), (1, 0)] {
            let found_of_these = decided(&routes[..count], options, None, CLIENT, SERVER);
            assert_eq!(found_of_these, Some(found), "{options:?}");
        }
    }
}

#[test]
fn addresses_match_regardless_of_family_and_form() {
    let to = |ip: &str| {
        vec![Route {
            destinations: vec![end(ip, 0)],
            ..stream(1, Protocol::Udp)
        }]
    };
    let reaches = |ip, to_address| decided(&to(ip), COMPATIBLE, None, CLIENT, to_address).is_some();
    assert!(reaches("10.0.0.1", "[::ffff:10.0.0.1]:1"));
    assert!(reaches("fd00::/8", "[fd00:0::1]:1"));
    assert!(reaches("::/0", "[fe80::1]:1") && !reaches("::/0", "10.0.0.1:1"));
    assert!(reaches("10.9.9.9/8", "10.0.0.1:1"), "host bits are ignored");
}

#[test]
fn routes_without_attributes_and_of_http_are_left_out() {
    let routes = [
        stream(1, Protocol::Tcp),
        Route {
            destinations: vec![end("nowhere", 0)],
            ..stream(2, Protocol::Tcp)
        },
        Route {
            snis: vec!["a.test".into()],
            ..stream(3, Protocol::Https)
        },
    ];
    let (router, errors) = StreamRouter::build(numbered(&routes), COMPATIBLE);
    assert!(router.is_empty());
    assert_eq!(errors.len(), 2, "{errors:?}");
    let (http, _) = crate::Router::build(numbered(&routes[..2]), COMPATIBLE, None);
    let sample = super::fixtures::Sample::get("/");
    assert_eq!(
        http.matches(&sample.request(), &mut crate::Scratch::default()),
        None
    );
}

pub(super) const EXPRESSIONS: Options = Options {
    flavor: Flavor::Expressions,
    ..COMPATIBLE
};

pub(super) fn expression(number: u32, protocols: &[Protocol], text: &str) -> Route {
    Route {
        expression: Some(text.into()),
        priority: Some(u64::from(number)),
        protocols: protocols.to_vec(),
        ..route(number)
    }
}

#[test]
fn expressions_see_addresses_ports_and_names_and_come_before_classic_routes() {
    let routes = [
        Route {
            snis: vec!["a.test".into()],
            sources: vec![end("192.0.2.1", 4000)],
            destinations: vec![end("10.0.0.1", 9000)],
            ..stream(9, Protocol::Tls)
        },
        expression(1, &[Protocol::Tls], "net.dst.port == 9000"),
        expression(
            2,
            &[Protocol::Tls],
            r#"tls.sni == "b.test" || lower(tls.sni) =^ ".b.test""#,
        ),
        expression(
            3,
            &[Protocol::Tls],
            "net.src.ip in 2001:db8::/32 || net.src.port < 1024",
        ),
    ];
    let name = |sni, from, to| decided(&routes, EXPRESSIONS, sni, from, to);
    assert_eq!(name(Some("a.test"), CLIENT, SERVER), Some(1));
    assert_eq!(name(Some("b.test"), CLIENT, SERVER), Some(2));
    assert_eq!(name(Some("x.b.test"), CLIENT, SERVER), Some(2));
    assert_eq!(name(Some("b.test"), "[2001:db8::1]:4000", SERVER), Some(3));
    assert_eq!(name(Some("b.test"), "192.0.2.1:1000", SERVER), Some(3));
    assert_eq!(name(None, CLIENT, SERVER), Some(1));
    assert_eq!(name(Some("a.test"), CLIENT, "10.0.0.1:1"), None);
}

#[test]
fn server_names_in_expressions_are_found_in_any_structure() {
    let tls = &[Protocol::Tls][..];
    for (text, named, other, nameless) in [
        (r#"tls.sni == "a.test""#, true, false, false),
        (r#"tls.sni != "a.test""#, false, true, false),
        (r#"!(tls.sni == "a.test")"#, false, true, true),
        (
            r#"net.protocol != "tls" || tls.sni == "a.test""#,
            true,
            false,
            true,
        ),
        (r#"net.protocol != "tls""#, false, false, true),
        (
            r#"net.protocol != "udp" && tls.sni == "a.test""#,
            true,
            false,
            false,
        ),
        (
            r#"tls.sni == "b.test" || net.dst.port == 9000"#,
            true,
            true,
            true,
        ),
        (
            r#"tls.sni ~ "^a[.]" && net.dst.port == 9000"#,
            true,
            false,
            false,
        ),
    ] {
        let routes = [expression(1, tls, text)];
        let passes = |sni| decided(&routes, EXPRESSIONS, sni, CLIENT, SERVER).is_some();
        let decided = [Some("a.test"), Some("c.test"), None].map(passes);
        assert_eq!(decided, [named, other, nameless], "{text}");
    }
}

#[test]
fn streams_must_be_of_a_protocol_of_the_route() {
    let passes = |protocols: &[Protocol], sni, datagrams| {
        let of = |route: Route| Route {
            protocols: protocols.to_vec(),
            ..route
        };
        let as_expression = of(expression(1, protocols, "net.dst.port == 9000"));
        let as_classic = of(Route {
            destinations: vec![end("", 9000)],
            ..route(1)
        });
        let [as_expression, as_classic] = [as_expression, as_classic].map(|route| {
            let (router, errors) = StreamRouter::build(numbered(&[route]), EXPRESSIONS);
            assert!(errors.is_empty(), "{errors:?}");
            let request = StreamRequest {
                source: CLIENT.parse().unwrap(),
                destination: SERVER.parse().unwrap(),
                sni,
                datagrams,
            };
            router.matches(&request).is_some()
        });
        assert_eq!(as_expression, as_classic, "{protocols:?}");
        as_expression
    };
    use Protocol::{Tcp, Tls, TlsPassthrough, Udp};
    for (protocols, tcp, tls, udp) in [
        (&[Tcp][..], true, false, false),
        (&[Udp], false, false, true),
        (&[Tcp, Tls], true, true, false),
        (&[Tcp, Tls, Udp], true, true, true),
        // A route with only one of these protocols matches every stream, here and in Kong.
        (&[Tls], true, true, true),
        (&[TlsPassthrough], true, true, true),
    ] {
        let decided = [(None, false), (Some("a.test"), false), (None, true)]
            .map(|(sni, datagrams)| passes(protocols, sni, datagrams));
        assert_eq!(decided, [tcp, tls, udp], "{protocols:?}");
    }
}

#[test]
fn an_expression_with_http_fields_is_reported() {
    let routes = [
        expression(1, &[Protocol::Tcp], r#"http.path == "/""#),
        expression(2, &[Protocol::Tcp], "net.port == 9000"),
        stream(3, Protocol::Tcp),
    ];
    let (router, errors) = StreamRouter::build(numbered(&routes), EXPRESSIONS);
    let reported: Vec<_> = errors.iter().map(|error| error.route.0).collect();
    assert_eq!(reported, [0, 2]);
    assert_eq!(router.order().collect::<Vec<_>>(), [RouteIndex(1)]);
}

#[test]
fn a_block_of_one_address_is_a_block() {
    let to = |number, ip| Route {
        destinations: vec![end(ip, 0)],
        ..stream(number, Protocol::Tcp)
    };
    let routes = [to(9, "10.0.0.1/32"), to(1, "10.0.0.1")];
    for options in ALL_OPTIONS {
        let decided = decided(&routes, options, None, CLIENT, SERVER);
        assert_eq!(decided, Some(1), "{options:?}");
    }
}

#[test]
fn names_and_addresses_select_few_of_many_routes() {
    let name = |number: u32| format!("host-{number}.test");
    let routes: Vec<_> = (0..1_000)
        .map(|number| match number % 2 {
            0 => Route {
                protocols: vec![Protocol::Tls],
                snis: vec![name(number).into()],
                ..route(number)
            },
            _ => Route {
                protocols: vec![Protocol::Tcp],
                sources: vec![Endpoint {
                    ip: Some(format!("10.{}.{}.0/24", number / 256, number % 256).into()),
                    port: None,
                }],
                ..route(number)
            },
        })
        .collect();
    for options in ALL_OPTIONS {
        let (router, errors) = StreamRouter::build(numbered(&routes), options);
        assert!(errors.is_empty(), "{errors:?}");
        for number in (0..1_000).step_by(37) {
            let name = name(number);
            let source = format!("10.{}.{}.9:1", number / 256, number % 256);
            let request = StreamRequest {
                source: match number % 2 {
                    0 => "192.0.2.1:1".parse().unwrap(),
                    _ => source.parse().unwrap(),
                },
                destination: "192.0.2.2:443".parse().unwrap(),
                sni: Some(&name).filter(|_| number % 2 == 0).map(|name| &**name),
                datagrams: false,
            };
            let found = router.matches(&request).map(|route| route.0);
            // Outside `traditional`, unless `Strict` is set, a stream without a server name also matches routes with
            // server names. These routes come first.
            let passes_any_name = options.flavor != Flavor::Traditional && number % 2 == 1;
            let strictly = options.calculation == Calculation::Strict;
            if !passes_any_name || strictly {
                assert_eq!(found, Some(number), "{options:?}");
            }
        }
    }
}

#[test]
fn ranks_of_streams_list_the_most_important_criterion_first() {
    let classic = Route {
        snis: vec!["a.test".into()],
        sources: vec![end("192.0.2.0/24", 0)],
        destinations: vec![end("10.0.0.1", 9000)],
        ..stream(1, Protocol::Tls)
    };
    let rank = |options: Options, route: &Route| {
        let (router, errors) = StreamRouter::build(numbered(std::slice::from_ref(route)), options);
        assert!(errors.is_empty(), "{errors:?}");
        let request = StreamRequest {
            source: CLIENT.parse().unwrap(),
            destination: SERVER.parse().unwrap(),
            sni: Some("a.test"),
            datagrams: false,
        };
        let wanted = Wanted {
            limit: 1,
            closest: 0,
            route: Some(RouteIndex(0)),
        };
        router.explain(&request, wanted).tried.route[0].rank.clone()
    };
    let compatible = rank(COMPATIBLE, &classic);
    assert_eq!(
        compatible[..3],
        [
            "server names, or both sources and destinations",
            "sources: a block",
            "destinations: an address, a port",
        ]
    );
    assert_eq!(
        rank(ALL_OPTIONS[0], &classic),
        [
            "3 attribute types",
            "server names",
            "sources: a block",
            "destinations: an address with a port",
            "if equal, the older route",
        ]
    );
    let text = expression(2, &[Protocol::Tls], r#"tls.sni == "a.test""#);
    assert_eq!(rank(EXPRESSIONS, &text)[0], "an expression with priority 2");
}
