//! Tests of acl.

use super::*;
use crate::testing::{CREDENTIAL, NORA, OTTO, case};
use crate::{key_auth, pre_function};
use plugin::testing::{Case, FakeEntities, Outcome, refusal};
use serde_json::{Value, json};
use source::ACLS;
use uuid::Uuid;

/// Two consumers with groups, and one without. The groups of the consumer 9 cannot be read.
fn members() -> FakeEntities {
    let membership = |number: u128, consumer: Uuid, group: &str| json!({"id": Uuid::from_u128(number), "consumer": {"id": consumer}, "group": group});
    FakeEntities::default()
        .with(ACLS, membership(2, NORA, "staff"))
        .with(ACLS, membership(1, NORA, "beta"))
        .with(ACLS, membership(3, OTTO, "banned"))
        .failing(Uuid::from_u128(9))
}

fn acl(config: Value) -> Case {
    case(def(), config).entities(members())
}

/// Returns the status, and the header with the groups that the upstream got.
fn told(outcome: &Outcome) -> (u16, Option<&str>) {
    let sent = outcome.upstream.as_ref();
    let groups = sent.and_then(|_| {
        let sent = outcome.sent();
        sent.header("x-consumer-groups")
            .or(sent.header("x-authenticated-groups"))
    });
    (outcome.client.status, groups)
}

#[test]
fn the_groups_of_the_consumer_decide() {
    let solo = Uuid::from_u128(5);
    let cases = [
        (
            json!({"allow": ["x", "beta"]}),
            NORA,
            (200, Some("beta, staff")),
        ),
        (json!({"allow": ["Beta"]}), NORA, (403, None)),
        (json!({"allow": ["beta"]}), OTTO, (403, None)),
        (json!({"allow": ["beta"]}), solo, (403, None)),
        (json!({"deny": ["beta"]}), NORA, (403, None)),
        (json!({"deny": ["x"]}), NORA, (200, Some("beta, staff"))),
        (json!({"deny": ["x"]}), solo, (200, Some(""))),
        (
            json!({"deny": ["x"], "hide_groups_header": true}),
            NORA,
            (200, None),
        ),
    ];
    for (config, consumer, wanted) in cases {
        let case = acl(config.clone());
        let outcome = case.request("GET /").consumer(consumer, "c").run_now();
        assert_eq!(told(&outcome), wanted, "{config} {consumer}");
    }
}

#[test]
fn an_unreadable_list_of_groups_admits_nobody() {
    for config in [json!({"allow": ["x"]}), json!({"deny": ["x"]})] {
        let case = acl(config);
        let call = case.request("GET /").consumer(Uuid::from_u128(9), "c");
        assert_eq!(told(&call.run_now()), (500, None));
    }
}

#[test]
fn changes_of_the_groups_count_at_once() {
    let entities = Arc::new(members());
    let case = case(def(), json!({"deny": ["beta"]})).entities(entities.clone());
    let status = || {
        let call = case.request("GET /").consumer(NORA, "nora");
        call.run_now().client.status
    };
    assert_eq!(status(), 403);
    entities.remove(ACLS, Uuid::from_u128(1));
    assert_eq!(status(), 200);
}

#[test]
fn without_a_consumer_the_credential_decides_between_401_and_403() {
    let case = acl(json!({"deny": ["x"]}));
    let unknown = case.request("GET /").run_now();
    assert_eq!(unknown.client.status, 401);
    assert_eq!(unknown.client.message(), "Unauthorized");
    assert_eq!(unknown.client.header("www-authenticate"), None);
    let known = case.request("GET /").credential(CREDENTIAL).run_now();
    assert_eq!(known.client.status, 403);
    assert_eq!(known.client.message(), "You cannot consume this service");
}

#[test]
fn an_anonymous_consumer_without_groups_gets_401() {
    let case = acl(json!({"allow": ["x"]}));
    let call = case.request("GET /").consumer(Uuid::from_u128(5), "guest");
    let outcome = call.state(|state| state.credential = None).run_now();
    assert_eq!(outcome.client.status, 401);
}

#[test]
fn groups_of_other_plugins_precede_those_of_anonymous_consumers() {
    let groups = |state: &mut plugin::RequestState| state.groups = vec!["ops".into(), "dev".into()];
    let anonymous = |state: &mut plugin::RequestState| {
        groups(state);
        state.credential = None;
    };
    let always = json!({"allow": ["ops"], "always_use_authenticated_groups": true});
    let run = |config: Value, change: &dyn Fn(&mut plugin::RequestState)| {
        let case = acl(config);
        let call = case.request("GET /").consumer(NORA, "nora");
        let outcome = call.state(change).run_now();
        let (status, groups) = told(&outcome);
        (status, groups.map(str::to_owned))
    };
    let shown = |text: &str| Some(text.to_owned());
    assert_eq!(run(json!({"allow": ["ops"]}), &groups), (403, None));
    assert_eq!(
        run(json!({"allow": ["staff"]}), &groups),
        (200, shown("beta, staff"))
    );
    assert_eq!(
        run(json!({"allow": ["ops"]}), &anonymous),
        (200, shown("ops, dev"))
    );
    assert_eq!(run(always, &groups), (200, shown("ops, dev")));
    assert_eq!(run(json!({"deny": ["ops"]}), &anonymous), (403, None));
    // In this mode, the upstream gets no header.
    assert_eq!(run(json!({"deny": ["x"]}), &anonymous), (200, None));
}

#[test]
fn lua_code_can_set_groups() {
    let cases = [
        (
            "kong.ctx.shared.authenticated_groups = {'a', 'b'}",
            200,
            Some("a, b"),
        ),
        ("ngx.ctx.authenticated_groups = {'a'}", 200, Some("a")),
        // What is no table does not count, and `kong.ctx.shared` comes first.
        (
            "kong.ctx.shared.authenticated_groups = 'x'; ngx.ctx.authenticated_groups = {'a', 7}",
            200,
            Some("a, 7"),
        ),
        (
            "kong.ctx.shared.authenticated_groups = {'x'}; ngx.ctx.authenticated_groups = {'a'}",
            403,
            None,
        ),
        ("kong.ctx.shared.authenticated_groups = {}", 403, None),
        ("kong.ctx.shared.authenticated_groups = {1}", 403, None),
        ("kong.ctx.shared.other = 1", 401, None),
        ("kong.ctx.shared.authenticated_groups = {{}}", 500, None),
        (
            "kong.ctx.shared.authenticated_groups = {'a', 'b\\r\\nX-Evil: 1:2'}",
            200,
            Some("a, b%0D%0AX-Evil: 1:2"),
        ),
    ];
    for (code, status, groups) in cases {
        let case =
            acl(json!({"allow": ["a", "1"]})).and(pre_function::def(), json!({"access": [code]}));
        let outcome = case.request("GET /").run_now();
        assert_eq!(told(&outcome), (status, groups), "{code}");
    }
}

#[test]
fn any_table_of_lua_code_is_a_credential() {
    let run = |credential: &str, allow: &str| {
        let code = format!("kong.client.authenticate(nil, {credential})");
        let case =
            acl(json!({"allow": [allow]})).and(pre_function::def(), json!({"access": [code]}));
        told(&case.request("GET /").run_now()).0
    };
    let of_nora = format!("{{id = 'token-7', consumer_id = '{NORA}'}}");
    assert_eq!(run(&of_nora, "staff"), 200);
    assert_eq!(run(&of_nora, "banned"), 403);
    assert_eq!(run(&format!("{{consumer_id = '{NORA}'}}"), "staff"), 200);
    for credential in ["{id = 'token-7'}", "{id = 7, consumer_id = 8}", "{}"] {
        assert_eq!(run(credential, "staff"), 403, "{credential}");
    }
}

#[test]
fn a_credential_of_lua_code_is_enough_where_anonymous_is_set() {
    let code = format!(
        "kong.client.authenticate({{id = '{OTTO}', username = 'otto'}}, {{id = 'token-7'}})"
    );
    let case = case(key_auth::def(), json!({"anonymous": "guest"}))
        .and(pre_function::def(), json!({"access": [code]}));
    let outcome = case.request("GET /").run_now();
    assert_eq!(outcome.consumer(), Some("otto"));
    let told = outcome.state.told_credential().expect("it counts");
    assert_eq!(told.text.as_deref(), Some("token-7"));
    let outcome = case.request("GET /").header("apikey", "good").run_now();
    assert_eq!(outcome.consumer(), Some("otto"));
}

#[test]
fn it_runs_after_authentication() {
    let entities = crate::testing::people().with(
        ACLS,
        json!({"id": Uuid::from_u128(1), "consumer": {"id": NORA}, "group": "staff"}),
    );
    let case = case(key_auth::def(), json!({}))
        .and(def(), json!({"allow": ["staff"]}))
        .entities(entities);
    let run = |lines: &[&str]| case.request("GET /").lines(lines).run_now().client.status;
    assert_eq!(run(&["apikey: good"]), 200);
    assert_eq!(run(&["apikey: bad"]), 401);
}

#[test]
fn exactly_one_list_has_groups() {
    crate::install();
    for config in [json!({"allow": ["a"], "deny": ["b"]}), json!({})] {
        assert!(refusal(&def(), config).contains("config.allow"));
    }
    let case = acl(json!({"allow": ["a"], "deny": []}));
    let call = case.request("GET /").consumer(NORA, "nora");
    assert_eq!(call.run_now().client.status, 403);
}
