//! Tests of bot-detection.

use super::*;
use crate::testing::case;
use plugin::testing::{Case, refusal};
use serde_json::{Value, json};

fn bots(config: Value) -> Case {
    case(def(), config)
}

fn status(case: &Case, agent: impl AsRef<[u8]>) -> u16 {
    let request = case.request("GET /").header("User-Agent", agent);
    request.run_now().client.status
}

#[test]
fn bots_are_refused_and_others_pass() {
    let refused = [
        "Pingdom.com_bot_version_1.4_(http://www.pingdom.com/)",
        "facebookexternalhit/1.1",
        "Mozilla/5.0 (Google) snippet; Google (+https://developers.google.com/+/web/snippet/)",
        "aws-sdk-go/1.2",
        "Boto3/1.9",
        "Mozilla/5.0 Safari/537.36 PTST/190",
        "Mozilla/5.0 (compatible; /MyBot-2)",
        "LinkedInBot/1.0",
        "MSIE 6.0; Windows MSIECrawler",
        "Go-http-client/1.1",
        "unirest-java",
        "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
        "Scrapy/2.5",
        "  axios  ",
        "my-bot",
        "acme indexer 3",
        "SPIDERweb",
    ];
    let passing = [
        "curl/8.5",
        "Wget/1.21",
        "python-requests/2.31",
        "PostmanRuntime/7.29",
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0 Safari/537.36",
        "CUBOT X18",
        "",
        "Twitterb0t/1.0",
        "robotics",
    ];
    let case = bots(json!({}));
    for agent in refused {
        assert_eq!(status(&case, agent), 403, "{agent}");
    }
    for agent in passing {
        assert_eq!(status(&case, agent), 200, "{agent}");
    }
    assert_eq!(status(&case, b"\xff\xfe Scrapy"), 403);
    assert_eq!(case.request("GET /").run_now().client.status, 200);
}

#[test]
fn the_list_of_allowed_agents_comes_first() {
    let case = bots(json!({"allow": ["^Twitterbot", "curl"], "deny": ["curl", r"^moz(?!illa)"]}));
    for (agent, wanted) in [
        ("Twitterbot/1.0", 200),
        ("curl/8", 200),
        ("Googlebot/2.1", 403),
        ("mozart", 403),
        ("mozilla", 200),
        ("Mozart", 200),
    ] {
        assert_eq!(status(&case, agent), wanted, "{agent}");
    }
}

#[test]
fn two_user_agents_are_refused() {
    let case = bots(json!({"allow": ["."]}));
    let request = case
        .request("GET /")
        .lines(&["User-Agent: a", "user-agent: b"]);
    let outcome = request.run_now();
    assert_eq!(outcome.client.status, 400);
    assert_eq!(
        outcome.client.message(),
        "Only one User-Agent header allowed"
    );
}

#[test]
fn a_search_with_too_many_steps_refuses() {
    let evil = r"(?=x)x(a|b|ab)*(a+)\2d";
    let agent = format!("x{}", "ab".repeat(40));
    assert_eq!(status(&bots(json!({"allow": [evil]})), &agent), 403);
    assert_eq!(status(&bots(json!({"deny": [evil]})), &agent), 403);
    assert_eq!(status(&bots(json!({})), &agent), 200);
}

#[test]
fn a_regex_of_other_letters_is_accepted() {
    let case = bots(json!({"deny": ["бот", r"^\p{Greek}"]}));
    assert_eq!(status(&case, "Я бот."), 403);
    assert_eq!(status(&case, "λ"), 403);
    assert_eq!(status(&case, "Я"), 200);
}

#[test]
fn a_list_with_a_wrong_regex_is_refused() {
    crate::install();
    let refused = refusal(&def(), json!({"deny": ["(a"]}));
    assert!(refused.contains("not a valid regex"), "{refused}");
}

#[test]
fn detection_takes_time_in_proportion_to_the_agent() {
    let deny = Patterns::compile("deny", [r"(x+x+)+y", "a.*b.*c"]);
    let plugin = BotDetection {
        allow: Patterns::default(),
        deny: deny.expect("the entries are regexes"),
        known: known().expect("the list is right"),
    };
    testkit::cost::assert_linear(
        1_000,
        |size| {
            let pieces = [
                "Google",
                "MSIE 1.1;",
                "a",
                "x",
                "/Abot",
                "Microsoft ",
                "bo",
                "favicon",
                "\u{e9}",
            ];
            pieces.map(|piece| piece.repeat(size))
        },
        |agents| {
            for agent in &agents {
                std::hint::black_box(plugin.admits(agent.as_bytes()));
            }
        },
    );
}
