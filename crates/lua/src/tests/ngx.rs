//! Functions of `ngx` that need no request, run as in a timer.

use crate::{Globals, Outcome, Scripts, Snippets, Target};
use plugin::{Node, RequestState};
use std::sync::Arc;
use std::time::Duration;

/// Runs a text that returns texts, and returns them with blanks between them.
fn run(node: &Arc<Node>, text: &str) -> String {
    let text = format!(
        "local function values(...)
           local t = {{}}
           for i = 1, select('#', ...) do t[i] = tostring((select(i, ...))) end
           return table.concat(t, ' ')
         end
         error(values((function() {text} end)()), 0)"
    );
    let scripts = Scripts::new(Snippets {
        texts: vec![text].into(),
        globals: Globals::all(),
    });
    let mut state = RequestState::default();
    match scripts.run(&Target::timer(node, &mut state)) {
        Outcome::Failed(values) => values,
        _ => panic!("it must end with its values"),
    }
}

fn check(cases: &[(&str, &str)]) {
    let node = Node::bare().unwrap();
    for (text, expected) in cases {
        assert_eq!(run(&node, text), *expected, "{text}");
    }
}

#[test]
fn texts_are_encoded_as_by_nginx() {
    check(&[
        (
            "return ngx.encode_base64('\\0\\255'), ngx.encode_base64('a', true)",
            "AP8= YQ",
        ),
        (
            "return ngx.decode_base64('YQ==YQ=='), ngx.decode_base64('Y')",
            "a nil",
        ),
        (
            "return ngx.escape_uri('a b/&'), ngx.escape_uri('a b/%#', 0)",
            "a%20b%2F%26 a%20b/%25%23",
        ),
        ("return ngx.unescape_uri('a+b%20c%zz')", "a b c%zz"),
        (
            "return ngx.encode_args{a = {1, true, 'x y'}}",
            "a=1&a&a=x%20y",
        ),
        (
            "return ngx.decode_args('a=1&b')['b'], ngx.decode_args('a=%41').a",
            "true A",
        ),
        ("return ngx.md5('a')", "0cc175b9c0f1b6a831c399e269772661"),
        (
            "return #ngx.md5_bin('a'), #ngx.sha1_bin('a'), #ngx.hmac_sha1('k', 'a')",
            "16 20 20",
        ),
        ("return ngx.crc32_long('hello')", "907060870"),
        ("return ngx.quote_sql_str([[it's]])", "'it\\'s'"),
    ]);
}

#[test]
fn times_are_written_and_read() {
    check(&[
        (
            "return ngx.http_time(1547047634)",
            "Wed, 09 Jan 2019 15:27:14 GMT",
        ),
        (
            "return ngx.cookie_time(1547047634)",
            "Wed, 09-Jan-19 15:27:14 GMT",
        ),
        (
            "return ngx.cookie_time(2200000000)",
            "Sun, 18-Sep-2039 23:06:40 GMT",
        ),
        (
            "return ngx.parse_http_time('Sunday, 06-Nov-94 08:49:37 GMT')",
            "784111777",
        ),
        (
            "return ngx.http_time(1e300), ngx.parse_http_time('x')",
            "nil nil",
        ),
        (
            "return ngx.now() - ngx.time() < 1, #ngx.localtime(), #ngx.today()",
            "true 19 10",
        ),
    ]);
}

#[test]
fn regexes_match_find_and_replace() {
    check(&[
        (
            "return ngx.re.match('a1b22', '([a-z])([0-9]{2})', 'jo')[2]",
            "22",
        ),
        (
            "local m = ngx.re.match('ab', '(?<x>a)|(?<y>b)') return m.x, m.y, m[2]",
            "a false false",
        ),
        (
            "local c = {pos = 2} return ngx.re.find('aa', 'a', '', c), c.pos",
            "2 3",
        ),
        (
            "return ngx.re.gsub('a-b', '([a-z])', '<$1$$>')",
            "<a$>-<b$> 2",
        ),
        ("return ngx.re.gsub('ab', '', '.')", ".a.b. 3"),
        (
            "return ngx.re.sub('aXb', 'x', function(m) return m[0]:rep(2) end, 'i')",
            "aXXb 1",
        ),
        (
            "local t = {} for m in ngx.re.gmatch('a1b2', '[0-9]') do t[#t + 1] = m[0] end return unpack(t)",
            "1 2",
        ),
        (
            "return ngx.re.match('a', '(')",
            "nil pcre2_compile() failed: missing closing parenthesis in \"(\"",
        ),
        (
            "return ngx.re.match(('a'):rep(40) .. 'b', '^(a+)+$', 'j')",
            "nil pcre_exec() failed: -47",
        ),
    ]);
}

#[test]
fn shared_dictionaries_keep_values_for_all_requests() {
    let node = Node::bare().unwrap();
    let set = "local d = ngx.shared.kong return d:set('a', 1.5), d:add('a', 2)";
    assert_eq!(run(&node, set), "true false exists false");
    let read = "local d = ngx.shared.kong return d:get('a'), d:incr('n', 1, 5), d:get('none')";
    assert_eq!(run(&node, read), "1.5 6 nil");
    assert_eq!(run(&node, "return ngx.shared.kong:get({})"), "nil");
    assert_eq!(
        run(&node, "return ngx.shared.kong:set('t', {})"),
        "nil bad value type"
    );
    assert_eq!(
        run(&node, "return pcall(ngx.shared.kong.get, {}, 'a')"),
        "false bad \"zone\" argument"
    );
}

#[test]
fn what_needs_a_request_is_an_error_outside_of_one() {
    check(&[
        (
            "return pcall(ngx.say, 'x')",
            "false API disabled in the context of ngx.timer",
        ),
        (
            "return pcall(ngx.req.read_body)",
            "false API disabled in the context of ngx.timer",
        ),
        (
            "return pcall(ngx.req.get_method)",
            "false API disabled in the current context",
        ),
        ("return ngx.get_phase()", "timer"),
    ]);
}

#[test]
fn timers_run_on_the_worker() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let node = Node::bare().unwrap();
    runtime.block_on(async {
        let start = "return type(ngx.timer.at(0, function(premature, x)
              ngx.sleep(0.001)
              ngx.ctx.x = x
              ngx.sleep(0.001)
              ngx.shared.kong:set('ran', tostring(premature) .. ngx.ctx.x)
            end, 7))";
        assert_eq!(run(&node, start), "string");
        assert_eq!(run(&node, "return ngx.timer.pending_count()"), "1");
        let ran = async {
            while run(&node, "return ngx.shared.kong:get('ran')") == "nil" {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), ran)
            .await
            .unwrap();
        assert_eq!(run(&node, "return ngx.shared.kong:get('ran')"), "false7");
        run(
            &node,
            "return ngx.timer.at(1000, function(p) ngx.shared.kong:set('end', p) end)",
        );
    });
    // The end of the worker tells timers that wait.
    drop(runtime);
    assert_eq!(run(&node, "return ngx.shared.kong:get('end')"), "true");
}

#[test]
fn events_reach_the_callbacks_of_the_worker() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let node = Node::bare().unwrap();
    let _registered = node.workers.register(0, runtime.handle().clone());
    runtime.block_on(async {
        let register = "local e, seen = kong.worker_events, {}
            local function note(name)
              return function(data, event, source)
                seen[#seen + 1] = name .. ':' .. source .. ':' .. event .. ':' .. tostring(data and data.n)
                ngx.shared.kong:set('seen', table.concat(seen, ' '))
              end
            end
            local gone = note('gone')
            e.register(gone, 'a', 'x') e.unregister(gone, 'a', 'x')
            e.register(function() error('bad') end, 'a', 'x')
            e.register(note('all')) e.register(note('a'), 'a') e.register(note('x'), 'a', 'x')
            return e.post('a', 'x', {n = 1}), e.post_local('a', 'y'), (e.post('b', 'x', nil, 'once'))";
        assert_eq!(run(&node, register), "done done done");
        let expected = "all:a:x:1 a:a:x:1 x:a:x:1 all:a:y:nil a:a:y:nil all:b:x:nil";
        let arrived = async {
            while run(&node, "return ngx.shared.kong:get('seen')") != expected {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let arrived = tokio::time::timeout(Duration::from_secs(20), arrived).await;
        assert!(
            arrived.is_ok(),
            "{}",
            run(&node, "return ngx.shared.kong:get('seen')")
        );
    });
    for (text, expected) in [
        (
            "return kong.worker_events.post('a', 'x', {f = print})",
            "failed to publish event",
        ),
        (
            "return kong.worker_events.post('a', 'x', ('x'):rep(65536))",
            "payload exceeds the limitation (65535)",
        ),
        (
            "return pcall(kong.worker_events.post, 'a')",
            "false event is required",
        ),
        (
            "return kong.cluster_events:broadcast('c', 1)",
            "nil data must be a string",
        ),
        ("return kong.cluster_events:broadcast('c', 'd')", "true"),
    ] {
        let found = run(&node, text);
        assert!(found.contains(expected), "{text}: {found}");
    }
}

#[test]
fn the_cache_computes_a_value_once() {
    check(&[
        (
            "local c, n = kong.cache, 0
          local function f(x) n = n + 1 return {x} end
          local v, _, level = c:get('k1', nil, f, 'a')
          local w, _, again = c:get('k1', nil, f, 'b')
          return v[1], level, w[1], again, n",
            "a 3 a 1 1",
        ),
        (
            "return kong.cache:get('k2', nil, function() return nil, 'bad' end)",
            "nil bad nil",
        ),
        (
            "return kong.cache:get('k3', nil, function() end), kong.cache:get('k3')",
            "nil nil nil 1",
        ),
        (
            "return pcall(kong.cache.get, kong.cache, 1)",
            "false key must be a string",
        ),
    ]);
}
