//! Internal redirects (`ngx.exec`): the request begins anew, with the connection, the body and the changed headers that
//! it has.

use super::{one_service, start};
use serde_json::{Value, json};
use testkit::{Echo, Gateway};

/// A gateway whose route runs this code in its access phase, and a global plugin this one in its rewrite phase.
fn gateway(echo: &Echo, rewrite: &str, access: &str) -> Gateway {
    let mut configuration = one_service(
        &echo.url(),
        json!([{"paths": ["/a"], "plugins": [{"name": "pre-function", "config": {"access": [access]}}]}]),
    );
    let filter = r#"ngx.header["x-global"] = "has run""#;
    configuration["plugins"] = json!([{"name": "post-function", "config": {"rewrite": [rewrite], "header_filter": [filter]}}]);
    start(crate::launch(), "off", &configuration)
}

fn seen(answer: &testkit::HttpResponse) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

#[test]
fn the_request_begins_anew_with_another_query_and_keeps_its_headers_and_body() {
    let echo = Echo::start();
    // Kong routes by the target that the client has sent, so the path of the redirect is for Lua code only.
    let access = r#"
      if not ngx.req.is_internal() then
        kong.ctx.shared.first = true
        kong.ctx.plugin.first = true
        ngx.ctx.first = true
        kong.service.request.set_header("x-first", ngx.var.uri)
        kong.service.request.set_path("/forgotten")
        ngx.req.read_body()
        ngx.header["x-early"] = "kept"
        return ngx.exec("/else%20where?x=1", {y = 2})
      end
      local forgotten = not (kong.ctx.shared.first or kong.ctx.plugin.first or ngx.ctx.first)
      kong.service.request.set_header("x-second", ngx.var.uri .. " " .. tostring(forgotten))
    "#;
    let rewrite = r#"kong.service.request.add_header("x-rewrite", ngx.var.args or "none")"#;
    let gateway = gateway(&echo, rewrite, access);
    let answer = testkit::request(gateway.proxy, "POST", "/a/b?z=1", &[], b"the body");
    assert_eq!(answer.header("x-early"), Some("kept"));
    let seen = seen(&answer);
    assert_eq!(seen["uri"], "/b?x=1&y=2");
    assert_eq!(seen["body"], "the body");
    assert_eq!(seen["headers"]["x-first"], "/a/b");
    assert_eq!(seen["headers"]["x-second"], "/else where true");
}

#[test]
fn redirects_without_an_end_are_answered_with_500_and_the_connection_goes_on() {
    let echo = Echo::start();
    let gateway = gateway(&echo, "return", r#"return ngx.exec("/again")"#);
    let mut client = testkit::Client::connect(gateway.proxy);
    for _ in 0..2 {
        let answer = client.request("GET", "/a", &[], b"");
        assert_eq!(answer.status, 500, "{}", answer.text());
        assert_eq!(answer.header("x-global"), Some("has run"));
    }
    assert_eq!(echo.requests(), 0);
}

#[test]
fn a_global_plugin_redirects_before_routing() {
    let echo = Echo::start();
    let rewrite = r#"if not ngx.req.is_internal() then return ngx.exec("/x", "q=1") end"#;
    let gateway = gateway(&echo, rewrite, "return");
    let answer = testkit::request(gateway.proxy, "GET", "/a?z=1", &[], b"");
    assert_eq!(seen(&answer)["uri"], "/?q=1");
}

#[test]
fn wrong_arguments_are_errors_of_the_code() {
    let echo = Echo::start();
    let access = r#"
      local errors = {}
      for _, arguments in ipairs{{}, {""}, {"/../x"}, {"?x"}, {"/x", true}, {{}}} do
        local ok, err = pcall(ngx.exec, unpack(arguments))
        errors[#errors + 1] = ok and "no error" or err
      end
      kong.response.exit(200, errors)
    "#;
    let gateway = gateway(&echo, "return", access);
    let answer = testkit::request(gateway.proxy, "GET", "/a", &[], b"");
    assert_eq!(
        seen(&answer),
        json!([
            "expecting one or two arguments, but got 0",
            "The uri argument is empty",
            "unsafe uri",
            "unsafe uri",
            "bad argument #2 to '?' (string, number, or table expected, but got boolean)",
            "bad argument #1 to '?' (string expected, got table)"
        ])
    );
}

#[test]
fn the_query_of_a_redirect_stays_in_its_line_whatever_plugins_the_next_route_has() {
    let echo = Echo::start();
    let access = r#"
      kong.service.request.set_header("x-hop", kong.request.get_query_arg("to"))
      return ngx.exec("/b", "v=" .. kong.request.get_query_arg("q"))
    "#;
    let hop = |to: &str, plugins: Value| json!({"paths": ["/a"], "headers": {"x-hop": [to]}, "plugins": plugins});
    let added = json!({"add": {"headers": ["x-b:1"]}});
    let configuration = one_service(
        &echo.url(),
        json!([
            {"paths": ["/a"], "plugins": [{"name": "pre-function", "config": {"access": [access]}}]},
            hop("none", json!([])),
            hop("filter", json!([{"name": "response-transformer", "config": added}])),
            hop("access", json!([{"name": "correlation-id"}])),
        ]),
    );
    let gateway = start(crate::launch(), "off", &configuration);
    for to in ["none", "filter", "access"] {
        let target = format!("/a?to={to}&q=1%20HTTP/1.1%0d%0aX-Evil:%20yes%0d%0a%0d%0aGET%20/b");
        let answer = testkit::request(gateway.proxy, "GET", &target, &[], b"");
        let seen = seen(&answer);
        assert_eq!(
            seen["uri"], "/?v=1%20HTTP/1.1%0D%0AX-Evil:%20yes%0D%0A%0D%0AGET%20/b",
            "{to}"
        );
        assert_eq!(seen["headers"]["x-evil"], Value::Null, "{to}");
    }
    assert_eq!(echo.requests(), 3);
}
