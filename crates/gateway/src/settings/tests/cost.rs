//! The cost of reading settings grows in proportion to their length and number.

use super::*;

/// Returns a line of a settings file. The value of the setting is `begin` and `times` further parts.
fn repeated(name: &str, begin: &str, again: impl Fn(usize) -> String, times: usize) -> String {
    let parts: String = (0..times).map(again).collect();
    format!("{name} = {begin}{parts}\n")
}

fn file_of(text: String) -> Inputs {
    Inputs {
        file: Some((PathBuf::from("kong.conf"), text)),
        ..Inputs::default()
    }
}

/// Resolves settings and formats their problems.
fn resolve_all(all: Vec<Inputs>) {
    for inputs in all {
        let resolved = resolve(inputs, None);
        std::hint::black_box(match &resolved.settings {
            Ok(_) => Vec::new(),
            Err(problems) => texts_of(problems),
        });
    }
}

#[test]
fn a_setting_costs_as_much_as_it_is_long() {
    plugins::install();
    let same = |part: &'static str| move |_: usize| part.to_owned();
    let files = |size| {
        [
            repeated("headers", "", same("server_tokens,nonsense,"), size),
            repeated("trusted_ips", "", same("10.0.0.0/8,"), size),
            repeated("trusted_ips", "", same("nonsense,"), size),
            repeated("plugins", "", |number| format!("none-{number},"), size),
            repeated("admin_listen", "", same("127.0.0.1:1,"), size),
            repeated("stream_listen", "1.2.3.4:1", same(" reuseport ssl"), size),
            repeated("dns_resolver", "", same("1.2.3.4:53,"), size),
            repeated("dns_order", "", same("A,SRV,nonsense,"), size),
            repeated("port_maps", "", same("80:8000,nonsense,"), size),
            repeated(
                "nginx_proxy_add_header",
                "X-A b",
                same("; add_header X-A 'b\\''"),
                size,
            ),
            repeated("nginx_proxy_more_clear_headers", "X-A", same(" X-A"), size),
            repeated("nginx_proxy_more_set_headers", "'X: ", same("\\\\'"), size),
            repeated(
                "nginx_http_log_format",
                "own '",
                same("$status$nonsense"),
                size,
            ),
            repeated(
                "nginx_http_log_format",
                "own '",
                same("$http_a ${status}' '"),
                size,
            ),
            repeated("ssl_protocols", "", same("TLSv1 TLSv1.2 "), size),
            repeated("ssl_cert", "", same("/a,"), size),
            repeated("a_long_name", "", same("\\#\\\\"), size),
        ]
    };
    let all = |size| files(size).map(file_of).into();
    testkit::cost::assert_linear(400, all, |all| {
        resolve_all(all);
    });
}

#[test]
fn listeners_cost_as_much_as_there_are() {
    let listener = |number: usize| format!("127.0.0.1:{},", 1 + number % 60_000);
    let all = |size| vec![file_of(repeated("proxy_listen", "", listener, size))];
    testkit::cost::assert_linear(2000, all, |all| {
        resolve_all(all);
    });
}

#[test]
fn ciphers_cost_as_much_as_there_are() {
    let ciphers = |_: usize| "!RSA:-ECDSA:ECDSA:+AES:DHE-RSA-AES256-SHA:".to_owned();
    let all = |size| {
        let list = repeated("ssl_ciphers", "", ciphers, size);
        vec![file_of(format!("ssl_cipher_suite = custom\n{list}"))]
    };
    testkit::cost::assert_linear(1000, all, |all| {
        resolve_all(all);
    });
}

#[test]
fn references_cost_as_much_as_there_are() {
    let reference = |number: usize| format!("{{vault://env/secret-{number}}},");
    let all = |size| {
        let variable = |number| (format!("SECRET_{number}"), "off".to_owned());
        vec![Inputs {
            variables: (0..size).map(variable).collect(),
            ..file_of(repeated("headers", "", reference, size))
        }]
    };
    testkit::cost::assert_linear(2000, all, |all| {
        resolve_all(all);
    });
}

#[test]
fn settings_cost_as_much_as_there_are() {
    let lines = [
        |number: usize| format!("unknown_{number} = 1\n"),
        |number: usize| format!("log_leve = {number}\n"),
        |number: usize| format!("nginx_http_unknown_{number} = on\n"),
        |number: usize| format!("nginx_proxy_auth_{number} = on\n"),
        |_: usize| "log_level = info\n".to_owned(),
        |_: usize| "nonsense\n".to_owned(),
        |_: usize| "headers = a, \\\n".to_owned(),
        |_: usize| "# \\\n".to_owned(),
    ];
    let names = [
        "KONG_UNKNOWN_",
        "KONG_NGINX_HTTP_UNKNOWN_",
        "KONG_SERVICE_PORT_",
    ];
    let all = |size| {
        let files = lines.map(|line| file_of((0..size).map(line).collect()));
        let variable = |number| names.map(|name| (format!("{name}{number}"), "off".to_owned()));
        let variables = Inputs {
            variables: (0..size).flat_map(variable).collect(),
            ..Inputs::default()
        };
        let long_name = file_of(format!("{} = 1\n", "log_level_".repeat(size)));
        files.into_iter().chain([variables, long_name]).collect()
    };
    testkit::cost::assert_linear(150, all, |all| {
        resolve_all(all);
    });
}
