mod cost;

use super::raw::Source;
use super::table::table;
use super::*;
use std::fs;

fn inputs(file: &str, variables: &[(&str, &str)], flags: &[(&str, &str)]) -> Inputs {
    plugins::install();
    Inputs {
        file: (!file.is_empty()).then(|| (PathBuf::from("kong.conf"), file.to_owned())),
        variables: variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        flags: flags
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned(), "--set"))
            .collect(),
    }
}

fn settings(file: &str, variables: &[(&str, &str)], flags: &[(&str, &str)]) -> Settings {
    resolve(inputs(file, variables, flags), None)
        .settings
        .unwrap_or_else(|problems| panic!("{}", texts_of(&problems).join("\n")))
}

fn problems(file: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let resolved = resolve(inputs(file, variables, &[]), None);
    texts_of(&resolved.settings.expect_err("the settings are wrong"))
}

fn warnings(file: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let resolved = resolve(inputs(file, variables, &[]), None);
    assert!(resolved.settings.is_ok(), "{:?}", resolved.settings);
    texts_of(&resolved.warnings)
}

fn texts_of(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn the_table_has_every_setting_of_kong_once() {
    let kongs = table().iter().filter(|setting| !setting.own).count();
    let mut names: Vec<_> = table().iter().map(|setting| &setting.name).collect();
    names.sort();
    names.dedup();
    assert_eq!((kongs, names.len()), (206, table().iter().count()));
}

#[test]
fn every_default_passes_its_own_check() {
    for setting in table().iter() {
        if let Some(default) = setting.default.as_deref().filter(|text| !text.is_empty()) {
            assert_eq!(values::check(setting, default), Ok(()), "{}", setting.name);
        }
    }
}

#[test]
fn every_alias_names_a_setting() {
    for setting in table().iter() {
        if let Some(target) = &setting.alias_of {
            let target = table().by_name(target).expect("the target exists");
            assert_eq!(target.alias_of, None, "{}", setting.name);
        }
    }
}

#[test]
fn the_defaults_are_valid_and_warn_of_nothing() {
    let resolved = resolve(Inputs::default(), None);
    assert!(resolved.warnings.is_empty(), "{:?}", resolved.warnings);
    let settings = resolved.settings.expect("the defaults are valid");
    assert_eq!(settings.store.database, Database::Lmdb);
    assert_eq!(
        settings.admin_listen[0].address.to_string(),
        "127.0.0.1:8001"
    );
    assert!(!settings.prefix.starts_with("/tmp"));
}

#[test]
fn flags_win_over_variables_over_file() {
    let file =
        "prefix = /file\nlog_level = debug\nrouter_flavor = traditional\ndrain_timeout = 1\n";
    let variables = [
        ("KONG_PREFIX", "/kong"),
        ("KONG_LOG_LEVEL", "warn"),
        ("SILVERBACK_PREFIX", "/silverback"),
        ("KONG_DRAIN_TIMEOUT", "2"),
    ];
    let settings = settings(file, &variables, &[("drain_timeout", "3")]);
    assert_eq!(settings.prefix, Path::new("/silverback"));
    assert_eq!(settings.log.level, LogLevel::Warn);
    assert_eq!(settings.model.flavor, RouterFlavor::Traditional);
    assert_eq!(settings.drain.timeout, Duration::from_secs(3));
}

#[test]
fn another_name_of_a_setting_counts_as_the_setting() {
    assert_eq!(settings("nginx_worker_processes = 3", &[], &[]).workers, 3);
    let both = "nginx_main_worker_processes = 2\nnginx_worker_processes = 3";
    assert_eq!(settings(both, &[], &[]).workers, 2);
    let variable = [("KONG_NGINX_WORKER_PROCESSES", "5")];
    assert_eq!(settings(both, &variable, &[]).workers, 5);
}

#[test]
fn every_problem_is_reported_with_its_source() {
    let file = "log_level = loud\npg_port = many\n\nproxy_lisen = 0.0.0.0:80\nproxy_listen = nowhere\nnonsense\n";
    let variables = [("KONG_DATABASE", "postgres"), ("KONG_SSL_CERT", "a.pem")];
    assert_eq!(
        problems(file, &variables),
        [
            "kong.conf: line 6: expected `name = value`, found `nonsense`",
            "proxy_lisen (kong.conf:4): unknown setting; did you mean proxy_listen?",
            "log_level (kong.conf:1): expected one of: debug, info, notice, warn, error, crit, alert, emerg, \
             found `loud`",
            "pg_port (kong.conf:2): expected a number, found `many`",
            "database (environment variable KONG_DATABASE): postgres is not available yet; lmdb and off are",
            "proxy_listen (kong.conf:5): `nowhere`: expected ADDRESS:PORT, such as 0.0.0.0:8000",
            "ssl_cert (environment variable KONG_SSL_CERT): ssl_cert names 1 certificate and ssl_cert_key 0 keys: each \
             certificate needs its key, in the same order",
        ]
    );
}

#[test]
fn a_problem_names_the_setting_as_the_user_wrote_it() {
    assert_eq!(
        problems("nginx_worker_processes = many", &[]),
        [
            "nginx_worker_processes (kong.conf:1): expected auto or a number from 1 to 1024, found `many`"
        ]
    );
    let directive = "nginx_location_proxy_ssl_verify = maybe";
    let [problem] = &problems(directive, &[])[..] else {
        panic!("one problem");
    };
    assert!(
        problem.starts_with("nginx_location_proxy_ssl_verify (kong.conf:1): "),
        "{problem}"
    );
}

#[test]
fn a_settings_file_is_not_called_a_setting() {
    let resolved = resolve(inputs("\nnonsense\nlog_level = loud\n", &[], &[]), None);
    let problems = resolved.settings.expect_err("two problems");
    let texts: Vec<String> = problems.iter().map(Problem::in_full).collect();
    assert!(
        texts[0].starts_with("settings file kong.conf: line 2: "),
        "{texts:?}"
    );
    assert!(
        texts[1].starts_with("setting log_level (kong.conf:3): "),
        "{texts:?}"
    );
}

#[test]
fn a_certificate_that_no_listener_uses_has_a_warning() {
    let pair = |name: &str| format!("{name} = a.pem\n{name}_key = a.key\n");
    let no_effect = "this setting has no effect: no listener of";
    for (listeners, name, expected) in [
        ("", "ssl_cert", None),
        ("", "admin_ssl_cert", None),
        ("", "status_ssl_cert", Some("status_listen")),
        ("status_listen = 127.0.0.1:1 ssl\n", "status_ssl_cert", None),
        (
            "admin_listen = 127.0.0.1:1\n",
            "admin_ssl_cert",
            Some("admin_listen"),
        ),
        (
            "admin_listen = off\n",
            "admin_ssl_cert",
            Some("admin_listen"),
        ),
        (
            "proxy_listen = 127.0.0.1:1\n",
            "ssl_cert",
            Some("proxy_listen or stream_listen"),
        ),
        (
            "proxy_listen = 127.0.0.1:1\nstream_listen = 127.0.0.1:2 ssl\n",
            "ssl_cert",
            None,
        ),
    ] {
        let line = listeners.lines().count() + 1;
        let expected = expected.map(|listeners| {
            format!("{name} (kong.conf:{line}): {no_effect} {listeners} has the option `ssl`")
        });
        let found = warnings(&format!("{listeners}{}", pair(name)), &[]);
        assert_eq!(found, Vec::from_iter(expected), "{listeners}{name}");
    }
}

#[test]
fn a_sensitive_value_is_never_shown() {
    let variables = [("KONG_PG_PASSWORD", "{vault://aws/hunter2}")];
    let problems = problems("", &variables);
    assert_eq!(problems.len(), 1);
    assert!(!problems[0].contains("hunter2"), "{}", problems[0]);
}

#[test]
fn a_value_that_is_referred_to_is_never_shown() {
    let variables = [
        ("KONG_PG_PORT", "{vault://env/db-pass}"),
        ("DB_PASS", "hunter2"),
    ];
    let problems = problems("", &variables);
    assert_eq!(problems.len(), 1);
    assert!(!problems[0].contains("hunter2"), "{}", problems[0]);
}

#[test]
fn values_of_references_are_not_in_later_errors() {
    let names = [
        "proxy_listen",
        "stream_listen",
        "dns_resolver",
        "dns_order",
        "trusted_ips",
        "headers",
        "admin_gui_url",
        "plugins",
        "port_maps",
        "ssl_protocols",
        "proxy_access_log",
        "nginx_proxy_add_header",
        "nginx_http_charset",
    ];
    let reference = "{vault://env/hidden}";
    for name in names {
        let variables = [("HIDDEN", "hunter2 hunter2 $hunter2, hunter2")];
        let problems = problems(&format!("{name} = {reference}"), &variables);
        let expected = format!("{name} (kong.conf:1): the value of {reference} is not valid here");
        assert_eq!(problems, [expected]);
    }
    let variables = [("HIDDEN", "TLSv1 TLSv1.2")];
    let warnings = warnings(&format!("ssl_protocols = {reference}"), &variables);
    let expected = format!("the value of {reference} has only a part of its effect here");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].ends_with(&expected), "{warnings:?}");
    let plain = problems("headers = via, nonsense", &[]);
    assert!(plain[0].contains("`nonsense`"), "{plain:?}");
}

#[test]
fn references_are_shown_in_place_of_their_values() {
    let file = "proxy_listen = {vault://env/listen}, 127.0.0.1:8000\n\
                headers = via, {vault://env/header}\nnode_id = {vault://env/id}\n\
                allow_debug_header = {vault://env/flag}\npg_password = {vault://env/id}\n\
                declarative_config = {vault://env/file}\nnginx_worker_processes = {vault://env/workers}\n";
    let variables = [
        ("LISTEN", "127.8.7.6:8443 ssl"),
        ("HEADER", "X-Kong-Admin-Latency"),
        ("ID", "0e6bd6c8-9b8f-4cbd-8a3f-3ff3b6d26c6d"),
        ("FLAG", "on"),
        ("FILE", "/hunter2.yml"),
        ("WORKERS", "3"),
    ];
    let settings = settings(file, &variables, &[]);
    assert_eq!(settings.proxy_listen.len(), 2);
    assert!(settings.proxy.allow_debug_header);
    let shown = settings.shown;
    let written = serde_json::json!(["{vault://env/listen}", "127.0.0.1:8000"]);
    assert_eq!(shown["proxy_listen"], written);
    assert_eq!(shown["proxy_ssl_enabled"], true);
    assert_eq!(shown["proxy_listeners"].as_array().map(Vec::len), Some(1));
    let written = serde_json::json!(["via", "{vault://env/header}"]);
    assert_eq!(shown["headers"], written);
    assert_eq!(shown["node_id"], "{vault://env/id}");
    assert_eq!(shown["allow_debug_header"], "{vault://env/flag}");
    assert_eq!(shown["pg_password"], "******");
    assert_eq!(shown["declarative_config"], "{vault://env/file}");
    assert_eq!(shown["nginx_worker_processes"], "{vault://env/workers}");
    let text = shown.to_string();
    for value in ["127.8.7.6", "X-Kong-Admin-Latency", "0e6bd6c8", "hunter2"] {
        assert!(!text.contains(value), "{value}");
    }
}

/// Returns the source of a certificate or key in a file that no reference names.
fn file(path: &str) -> PemSource {
    PemSource::File {
        path: path.into(),
        reference: None,
    }
}

#[test]
fn a_certificate_is_a_path_or_pem_or_pem_in_base64() {
    let pem = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
    let base64 = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUIKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";
    let wrapped = format!("{}\n{}\n", &base64[..76], &base64[76..]);
    let text = PemSource::Text(pem.to_owned());
    for given in [pem, base64, &wrapped] {
        let variables = [
            ("KONG_SSL_CERT", given),
            ("KONG_SSL_CERT_KEY", given),
            ("KONG_CLIENT_SSL", "on"),
            ("KONG_CLIENT_SSL_CERT", given),
            ("KONG_CLIENT_SSL_CERT_KEY", given),
            ("KONG_STATUS_SSL_CERT", given),
            ("KONG_STATUS_SSL_CERT_KEY", given),
            ("KONG_NGINX_ADMIN_SSL_CLIENT_CERTIFICATE", given),
            ("KONG_LUA_SSL_TRUSTED_CERTIFICATE", given),
        ];
        let settings = settings("", &variables, &[]);
        // A list has no blanks around its elements.
        let trimmed = PemSource::Text(pem.trim_end().to_owned());
        let element = if given == pem { &trimmed } else { &text };
        let pair = (element.clone(), element.clone());
        assert_eq!(settings.proxy.certificates, vec![pair.clone()]);
        assert_eq!(settings.status_certificates, [pair]);
        assert_eq!(settings.proxy.trusted_bundles, vec![element.clone()]);
        let pair = (text.clone(), text.clone());
        assert_eq!(settings.proxy.client_certificate, Some(pair));
        let clients = settings.admin.clients.expect("certificates are asked for");
        assert_eq!(clients.authorities, text);
    }
    assert_eq!(
        PemSource::parse("LS0tLS1C RUdJ!", None).to_string(),
        "(the text in the setting)"
    );
    assert_eq!(PemSource::parse("certs", None), file("certs"));
}

#[test]
fn a_system_without_a_bundle_gets_a_warning_if_it_was_named() {
    const NOWHERE: [&str; 1] = ["/nonexistent/bundle.pem"];
    let bundles = |text: &str, of_system: &[&str]| {
        let mut raw = RawSettings::gather(inputs(text, &[], &[]));
        let bundles = trusted_bundles(&mut raw, of_system);
        (bundles, texts_of(&raw.warnings))
    };
    let named = "lua_ssl_trusted_certificate = system, /a.pem";
    let (found, warnings) = bundles(named, &NOWHERE);
    assert_eq!(found, [file("/a.pem")]);
    assert_eq!(
        warnings,
        [
            "lua_ssl_trusted_certificate (kong.conf:1): the operating system has no CA bundle, so `system` names no \
             authorities: name a file"
        ]
    );
    assert_eq!(bundles("", &NOWHERE), (Vec::new(), Vec::new()));
    let (found, warnings) = bundles(named, &["/nonexistent", "/"]);
    assert_eq!(
        (found, warnings.len()),
        (vec![file("/"), file("/a.pem")], 0)
    );
}

#[test]
fn the_first_value_of_a_variable_that_is_given_twice_counts() {
    let variables = [
        ("KONG_LOG_LEVEL", "{vault://env/level}"),
        ("KONG_LOG_LEVEL", "nonsense"),
        ("LEVEL", "warn"),
        ("LEVEL", "nonsense"),
    ];
    assert_eq!(settings("", &variables, &[]).log.level, LogLevel::Warn);
}

#[test]
fn a_large_window_of_streams_does_not_wrap() {
    let text = "nginx_http_http2_body_preread_size = 4g";
    assert_eq!(settings(text, &[], &[]).proxy.http2_stream_window, u32::MAX);
}

#[test]
fn shown_settings_are_typed_and_masked() {
    let file = "pg_password = hunter2\ndb_update_frequency = 7\nallow_debug_header = on\n";
    let shown = settings(file, &[], &[]).shown;
    assert_eq!(shown["pg_password"], "******");
    assert_eq!(shown["db_update_frequency"], 7);
    assert_eq!(shown["allow_debug_header"], true);
    assert_eq!(shown["database"], "lmdb");
    assert_eq!(shown["plugins"], serde_json::json!(["bundled"]));
    assert!(!shown.to_string().contains("hunter2"));
}

#[test]
fn a_setting_without_effect_is_accepted_with_a_warning() {
    let warnings = warnings(
        "resolver_mem_cache_size = 64m\nnginx_http_gzip = on\n",
        &[("KONG_ANONYMOUS_REPORTS", "off")],
    );
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    assert!(warnings.iter().all(|text| text.contains("no effect here")));
}

#[test]
fn directives_of_outer_blocks_are_inherited_and_inner_ones_win() {
    let http = settings("nginx_http_proxy_ssl_verify = on", &[], &[]).proxy;
    assert!(http.verify_upstream);
    let text = "nginx_proxy_client_max_body_size = 1k\nnginx_location_proxy_ssl_verify = off";
    let variables = [
        ("KONG_NGINX_HTTP_CLIENT_MAX_BODY_SIZE", "8m"),
        ("KONG_NGINX_PROXY_PROXY_SSL_VERIFY", "on"),
    ];
    let inner = settings(text, &variables, &[]).proxy;
    assert_eq!(inner.client_max_body, 1024);
    assert!(!inner.verify_upstream);
    // Kong itself writes this directive into the proxy's block, so its default there wins.
    let header = settings("nginx_http_real_ip_header = X-Other", &[], &[]).proxy;
    assert_eq!(header.real_ip_header, "X-Real-IP");
}

#[test]
fn directives_that_protect_are_refused() {
    let text = "nginx_admin_allow = 10.0.0.0/8; deny all\nnginx_proxy_limit_req = zone=a\n\
                nginx_http_access_by_lua_block = { x() }\nnginx_sproxy_proxy_ssl_verify = on\n\
                nginx_proxy_add_header = X-A\nnginx_location_internal = \nnginx_proxy_secure_link_md5 = a\n\
                nginx_proxy_proxy_hide_header = X-A\nnginx_http_more_clear_input_headers = X-A\n";
    let problems = problems(text, &[("KONG_NGINX_PROXY_AUTH_BASIC", "realm")]);
    let told = |text: &str| problems.iter().any(|problem| problem.starts_with(text));
    for expected in [
        "nginx_admin_allow (kong.conf:1): the directive allow is not available: use a firewall",
        "nginx_proxy_limit_req (kong.conf:2): the directive limit_req is not available: set max_connections_per_client",
        "nginx_http_access_by_lua_block (kong.conf:3): ",
        "nginx_sproxy_proxy_ssl_verify (kong.conf:4): ",
        "nginx_proxy_auth_basic (environment variable KONG_NGINX_PROXY_AUTH_BASIC): ",
        "nginx_proxy_add_header (kong.conf:5): expected `<name> <value> [always]`",
        "nginx_location_internal (kong.conf:6): ",
        "nginx_proxy_secure_link_md5 (kong.conf:7): ",
        "nginx_proxy_proxy_hide_header (kong.conf:8): ",
        "nginx_http_more_clear_input_headers (kong.conf:9): ",
    ] {
        assert!(told(expected), "{expected} is not in {problems:#?}");
    }
    assert_eq!(problems.len(), 10, "{problems:#?}");
}

#[test]
fn other_directives_are_ignored_with_a_warning() {
    let text = "nginx_proxy_proxy_read_timeout = 5s\nnginx_http_lua_shared_dict = a 1m\n\
                nginx_http_open_file_cache = max=5\nnginx_http_charset = off\n";
    assert!(!settings(text, &[], &[]).proxy.charset);
    assert_eq!(
        warnings(text, &[]),
        [
            "nginx_proxy_proxy_read_timeout (kong.conf:1): this directive has no effect here: the timeouts of the \
             service count, as in Kong",
            "nginx_http_lua_shared_dict (kong.conf:2): this directive has no effect here: there is no Lua",
            "nginx_http_open_file_cache (kong.conf:3): this directive has no effect here: there is no nginx \
             underneath",
        ]
    );
}

#[test]
fn files_of_directives_are_in_the_prefix() {
    let text = "prefix = /p\nnginx_http_proxy_ssl_trusted_certificate = ca.pem\n\
                nginx_admin_ssl_client_certificate = clients.pem\n";
    let settings = settings(text, &[], &[]);
    let trusted = settings.proxy.trusted_upstream;
    assert_eq!(trusted.as_deref(), Some(Path::new("/p/ca.pem")));
    let clients = settings.admin.clients.expect("certificates are asked for");
    assert_eq!(clients.authorities, file("/p/clients.pem"));
}

#[test]
fn a_directive_narrows_the_versions_of_tls() {
    let text = "nginx_http_ssl_protocols = TLSv1.3";
    let versions = settings(text, &[], &[]).tls.versions;
    assert_eq!((versions.tls12, versions.tls13), (false, true));
    let none = "ssl_protocols = TLSv1.2\nnginx_stream_ssl_protocols = TLSv1.3";
    assert_eq!(problems(none, &[]).len(), 1);
}

#[test]
fn each_part_of_a_list_may_be_a_reference() {
    let variables = [
        (
            "KONG_SSL_CERT",
            "{vault://env/cert-a}, {vault://env/cert-b}",
        ),
        ("KONG_SSL_CERT_KEY", "{vault://env/key-a},/b.key"),
        ("CERT_A", "/a.pem"),
        ("CERT_B", "/b.pem"),
        ("KEY_A", "/a.key"),
    ];
    let referred = |path: &str, reference: &str| PemSource::File {
        path: path.into(),
        reference: Some(reference.into()),
    };
    let certs = "{vault://env/cert-a}, {vault://env/cert-b}";
    let key = "{vault://env/key-a}";
    let expected = [
        (referred("/a.pem", certs), referred("/a.key", key)),
        (referred("/b.pem", certs), file("/b.key")),
    ];
    let certificates = settings("", &variables, &[]).proxy.certificates;
    assert_eq!(certificates, expected);
    assert_eq!(certificates[0].1.to_string(), key);
    let problems = problems("", &variables[..3]);
    assert!(problems.iter().any(|problem| problem.contains("CERT_B")));
}

#[test]
fn variables_of_kubernetes_and_of_images_are_no_settings() {
    let variables = [
        ("KONG_PROXY_SERVICE_HOST", "10.0.0.1"),
        ("KONG_PROXY_SERVICE_PORT_HTTP", "80"),
        ("KONG_PROXY_PORT", "tcp://10.0.0.1:80"),
        ("KONG_PROXY_PORT_80_TCP_ADDR", "10.0.0.1"),
        ("KONG_VERSION", "3.9.1"),
        ("KONGA_X", "1"),
    ];
    assert_eq!(warnings("", &variables), Vec::<String>::new());
}

#[test]
fn a_kubernetes_service_named_kong_does_not_disturb() {
    let variables = [
        ("KONG_SERVICE_HOST", "10.0.0.1"),
        ("KONG_SERVICE_PORT", "8000"),
        ("KONG_SERVICE_PORT_PROXY", "8000"),
        ("KONG_PORT", "tcp://10.0.0.1:8000"),
        ("KONG_PORT_8000_TCP", "tcp://10.0.0.1:8000"),
        ("KONG_PORT_8000_TCP_ADDR", "10.0.0.1"),
        ("KONG_PORT_8000_TCP_PORT", "8000"),
        ("KONG_PORT_8000_TCP_PROTO", "tcp"),
        ("SILVERBACK_SERVICE_HOST", "10.0.0.1"),
    ];
    assert_eq!(warnings("", &variables), Vec::<String>::new());
}

/// For services named `kong-pg` and so on, Kubernetes sets variables with these names. They must not prevent the start.
#[test]
fn a_kubernetes_service_does_not_overwrite_a_port() {
    let ports = ["pg_port", "pg_ro_port"];
    let names = table().iter().filter(|setting| {
        setting.name.ends_with("_port") && setting.alias_of.is_none() && !setting.own
    });
    let names: Vec<_> = names.map(|setting| setting.name.as_str()).collect();
    assert_eq!(names, ports);
    let variables = [
        ("KONG_PG_PORT", "tcp://10.0.0.1:5432"),
        ("KONG_PG_PORT_5432_TCP_ADDR", "10.0.0.1"),
        ("SILVERBACK_PG_RO_PORT", "udp://10.0.0.1:5432"),
    ];
    assert_eq!(
        warnings("", &variables),
        [
            "pg_port (environment variable KONG_PG_PORT): ignored: Kubernetes sets this variable for a service named \
             kong-pg; `enableServiceLinks: false` in the pod's specification keeps it out",
            "pg_ro_port (environment variable SILVERBACK_PG_RO_PORT): ignored: Kubernetes sets this variable for a \
             service named silverback-pg-ro; `enableServiceLinks: false` in the pod's specification keeps it out",
        ]
    );
    let written = problems("pg_port = tcp://10.0.0.1:5432", &variables);
    assert_eq!(written.len(), 1, "{written:?}");
    assert_eq!(
        problems("", &[("KONG_PG_PORT", "http://10.0.0.1")]).len(),
        1
    );
}

#[test]
fn an_unknown_variable_is_ignored_with_a_warning() {
    let variables = [
        ("KONG_PREFX", "/a"),
        ("KONG_ADMIN_GUI_ULR", "http://x"),
        ("KONG_ADMIN_ADDR", "http://kong:8001"),
        ("SILVERBACK_QWERTYUIOP", "1"),
    ];
    assert_eq!(
        warnings("", &variables),
        [
            "prefx (environment variable KONG_PREFX): unknown setting, ignored; did you mean prefix?",
            "admin_gui_ulr (environment variable KONG_ADMIN_GUI_ULR): unknown setting, ignored; did you mean \
             admin_gui_url?",
            "admin_addr (environment variable KONG_ADMIN_ADDR): unknown setting, ignored",
            "qwertyuiop (environment variable SILVERBACK_QWERTYUIOP): unknown setting, ignored",
        ]
    );
    assert_eq!(problems("prefx = /a", &[]).len(), 1);
    let flag = inputs("", &[], &[("prefx", "/a")]);
    assert_eq!(resolve(flag, None).settings.expect_err("refused").len(), 1);
}

#[test]
fn a_reference_to_the_environment_is_resolved() {
    let variables = [
        ("KONG_PREFIX", "{vault://env/my-prefix}"),
        ("MY_PREFIX", "/from/env"),
    ];
    assert_eq!(settings("", &variables, &[]).prefix, Path::new("/from/env"));
    assert_eq!(problems("", &variables[..1]).len(), 1);
}

#[test]
fn a_declarative_file_means_database_off() {
    let off = |path: &str| Database::Off(Declarative::File(path.into()));
    let by_setting = settings("declarative_config = /a.yml", &[], &[]);
    assert_eq!(by_setting.store.database, off("/a.yml"));
    let by_argument = resolve(Inputs::default(), Some(Path::new("b.yml")));
    let by_argument = by_argument.settings.expect("valid settings");
    assert_eq!(by_argument.store.database, off("b.yml"));
    let persisted = settings("database = off", &[], &[]);
    assert_eq!(
        persisted.store.database,
        Database::Off(Declarative::Persisted)
    );
}

#[test]
fn a_declarative_file_is_refused_with_lmdb() {
    let resolved = resolve(
        inputs("database = lmdb", &[], &[]),
        Some(Path::new("b.yml")),
    );
    assert_eq!(resolved.settings.expect_err("refused").len(), 1);
}

#[test]
fn an_empty_variable_unsets_a_default() {
    assert!(
        settings("", &[("KONG_PROXY_LISTEN", "")], &[])
            .proxy_listen
            .is_empty()
    );
    assert_eq!(problems("", &[("KONG_PG_PORT", "")]).len(), 1);
}

#[test]
fn the_source_of_a_value_is_known() {
    let raw = RawSettings::gather(inputs("log_level = info", &[], &[]));
    assert_eq!(raw.source("log_level").to_string(), "kong.conf:1");
    assert_eq!(raw.source("prefix"), Source::Default);
}

#[test]
fn the_generated_documents_are_up_to_date() {
    // Cargo runs tests in the directory of their package.
    let docs = Path::new("../../docs");
    for (name, text) in [
        ("settings.md", docs::page()),
        ("kong.conf.sample", sample()),
    ] {
        let path = docs.join(name);
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            fs::write(&path, text).expect("the docs folder is writable");
            continue;
        }
        let committed = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == text,
            "docs/{name} is not what the table gives; run UPDATE_EXPECT=1 cargo test -p gateway"
        );
    }
}

#[test]
fn origins_of_the_manager_are_its_addresses_without_paths() {
    let given = "https://gui.test:8445/manager/?a#b, http://other.test";
    let settings = settings("", &[("KONG_ADMIN_GUI_URL", given)], &[]);
    let wanted = ["https://gui.test:8445", "http://other.test"];
    assert_eq!(settings.admin.gui_origins, wanted);
    assert!(self::settings("", &[], &[]).admin.gui_origins.is_empty());
    for bad in ["gui.test", "https:///path", "http://a b"] {
        let problems = problems("", &[("KONG_ADMIN_GUI_URL", bad)]);
        assert!(
            problems[0].contains("is no URL with a scheme and a host"),
            "{problems:?}"
        );
    }
}

#[test]
fn a_suggestion_has_most_letters_of_the_name() {
    let nearest = |name| super::table::table().nearest(name);
    assert_eq!(nearest("nope"), None);
    assert_eq!(nearest("rle"), Some("role"));
    assert_eq!(nearest("databse"), Some("database"));
    assert_eq!(nearest("proxy_lisen"), Some("proxy_listen"));
}
