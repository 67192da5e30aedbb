//! The expressions that must return data: those of Kong's official dashboard, and those of ours.

use crate::shell;
use serde_json::Value;

/// An expression and where it comes from.
pub(crate) struct Expression {
    pub(crate) origin: String,
    pub(crate) text: String,
}

/// What users of Kong's dashboard (grafana.com 7424, 44 expressions) ask Prometheus: the metrics, labels and functions
/// are those of the dashboard, with every variable as "all".
pub(crate) fn of_kong() -> Vec<Expression> {
    let mut all = Vec::new();
    let mut add = |text: String| {
        all.push(Expression {
            origin: "Kong's dashboard".to_owned(),
            text,
        });
    };
    const ALL: &str = r#"service=~".*",route=~".*",instance=~".*""#;
    let requests = |by: &str| format!("sum(rate(kong_http_requests_total{{{ALL}}}[1m])){by}");
    add(r#"sum(rate(kong_http_requests_total{instance=~".*"}[1m]))"#.to_owned());
    for by in ["service", "route", "service,code", "route,code"] {
        add(requests(&format!(" by ({by})")));
    }
    for (metric, whole) in [
        ("kong_kong_latency_ms", r#"instance=~".*""#),
        ("kong_request_latency_ms", ""),
        ("kong_upstream_latency_ms", ""),
    ] {
        for (selector, by) in [(whole, "le"), (ALL, "service,le"), (ALL, "route,le")] {
            for quantile in ["0.90", "0.95", "0.99"] {
                add(format!(
                    "histogram_quantile({quantile}, sum(rate({metric}_bucket{{{selector}}}[1m])) by ({by}))"
                ));
            }
        }
    }
    add(r#"sum(irate(kong_bandwidth_bytes{instance=~".*"}[1m])) by (type)"#.to_owned());
    for by in ["service", "route"] {
        add(format!(
            "sum(irate(kong_bandwidth_bytes{{direction=\"egress\",{ALL}}}[1m])) by ({by})"
        ));
    }
    add(
        r#"sum(irate(kong_bandwidth_bytes{direction="ingress",service=~".*"}[1m])) by (service)"#
            .to_owned(),
    );
    add(
        r#"kong_memory_lua_shared_dict_bytes{instance=~".*"} / kong_memory_lua_shared_dict_total_bytes{instance=~".*"} * 100"#
            .to_owned(),
    );
    add(r#"kong_memory_workers_lua_vms_bytes{instance=~".*"}"#.to_owned());
    add(
        r#"sum(kong_upstream_target_health{state="healthy",upstream=~".*"}) by (upstream,target,address) * -1 + sum(kong_upstream_target_health{state=~"(unhealthy|dns_error)",upstream=~".*"}) by (upstream,target,address)"#
            .to_owned(),
    );
    let valued = [
        ("1", "healthy"),
        ("0", "healthchecks_off"),
        ("-1", "(dns_error|unhealthy)"),
    ];
    let health = r#"kong_upstream_target_health{upstream=~".*"}"#.to_owned();
    let labelled = valued.iter().fold(health, |inner, (value, state)| {
        format!("label_replace({inner}, \"state_value\", \"{value}\", \"state\", \"{state}\")")
    });
    add(format!(
        "sum({labelled}) by (upstream, target, address, state, state_value) > 0"
    ));
    add(
        r#"sum(kong_nginx_connections_total{state=~"active|reading|writing|waiting",instance=~".*"}) by (state)"#
            .to_owned(),
    );
    for state in ["total", "handled", "accepted"] {
        add(format!(
            "sum(kong_nginx_connections_total{{state=\"{state}\",instance=~\".*\"}})"
        ));
    }
    all
}

/// The labels by whose values users of Kong's dashboard choose. Each must have a value.
pub(crate) const KONG_VARIABLES: [(&str, &str); 4] = [
    ("kong_http_requests_total", "service"),
    ("kong_nginx_connections_total", "instance"),
    ("kong_http_requests_total", "route"),
    ("kong_upstream_target_health", "upstream"),
];

/// The names that Kong's plugin prometheus gives to metrics of HTTP.
pub(crate) fn names_of_kong() -> Vec<Expression> {
    const NUMBERS: [&str; 12] = [
        "kong_bandwidth_bytes",
        "kong_datastore_reachable",
        "kong_http_requests_total",
        "kong_memory_lua_shared_dict_bytes",
        "kong_memory_lua_shared_dict_total_bytes",
        "kong_memory_workers_lua_vms_bytes",
        "kong_nginx_connections_total",
        "kong_nginx_metric_errors_total",
        "kong_nginx_requests_total",
        "kong_nginx_timers",
        "kong_node_info",
        "kong_upstream_target_health",
    ];
    const HISTOGRAMS: [&str; 3] = [
        "kong_kong_latency_ms",
        "kong_request_latency_ms",
        "kong_upstream_latency_ms",
    ];
    let parts = HISTOGRAMS
        .iter()
        .flat_map(|name| ["bucket", "count", "sum"].map(|part| format!("{name}_{part}")));
    let names = NUMBERS.iter().map(|name| (*name).to_owned()).chain(parts);
    names
        .map(|text| Expression {
            origin: "Kong's names".to_owned(),
            text,
        })
        .collect()
}

/// The expressions of the dashboard in deploy/grafana, with every variable as "all".
pub(crate) fn of_ours() -> Result<Vec<Expression>, String> {
    const FILE: &str = "deploy/grafana/silverback.json";
    let text = std::fs::read_to_string(shell::root().join(FILE))
        .map_err(|error| format!("{FILE}: {error}"))?;
    let dashboard: Value =
        serde_json::from_str(&text).map_err(|error| format!("{FILE}: {error}"))?;
    let mut all = Vec::new();
    for panel in dashboard["panels"].as_array().into_iter().flatten() {
        let title = panel["title"].as_str().unwrap_or_default();
        for target in panel["targets"].as_array().into_iter().flatten() {
            let text = target["expr"]
                .as_str()
                .ok_or_else(|| format!("{title}: no expression"))?;
            let text = text.replace("$job", ".*").replace("$instance", ".*");
            all.push(Expression {
                origin: format!("our dashboard, {title}"),
                text: text.replace("$__rate_interval", "10s"),
            });
        }
    }
    if all.is_empty() {
        return Err(format!("{FILE} has no expressions"));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dashboard_of_kong_has_44_expressions() {
        assert_eq!(of_kong().len(), 44);
    }

    #[test]
    fn no_variable_is_left_in_ours() {
        for Expression { origin, text } in of_ours().expect("the dashboard") {
            assert!(!text.contains('$'), "{origin}: {text}");
        }
    }
}
