//! Translates errors in the request to explain. The Admin API names fields; the user knows the command's arguments.

use crate::cli::ExplainArgs;
use crate::commands::Failure;
use serde_json::Value;

/// Returns the problems of an error object of the Admin API. If the request itself is wrong, an example follows.
pub(super) fn failure(error: &Value, args: &ExplainArgs) -> Failure {
    let Some(fields) = error["fields"].as_object().filter(|it| !it.is_empty()) else {
        let message = error["message"].as_str();
        return Failure::new(message.unwrap_or("the gateway has answered with an unknown error"));
    };
    let mut problems: Vec<String> = fields
        .iter()
        .flat_map(|(name, problem)| of_field(name, problem, args))
        .collect();
    let is_of_request = |name: &&str| fields.contains_key(*name);
    if ["method", "url"].iter().any(is_of_request)
        && let Some(last) = problems.last_mut()
    {
        last.push_str("\nexample: ");
        last.push_str(&example(args));
    }
    problems.into_iter().collect()
}

fn of_field(name: &str, problem: &Value, args: &ExplainArgs) -> Vec<String> {
    let (method, url) = (args.method.as_deref(), args.url.as_str());
    match (name, problem) {
        ("headers", Value::Object(headers)) => headers
            .iter()
            .map(|(header, problem)| format!("--header {header}: {}", text(problem)))
            .collect(),
        ("headers", _) => vec![format!("--header: {}", text(problem))],
        ("method", _) => {
            let method = method.unwrap_or_default();
            vec![format!("the method {method:?}: {}", text(problem))]
        }
        ("url", _) if !url.contains("://") => {
            vec![format!(
                "{url:?} is not a full URL: it needs a scheme and a host"
            )]
        }
        ("url", _) => vec![format!("the URL {url:?}: {}", text(problem))],
        _ => vec![format!("--{name}: {}", text(problem))],
    }
}

fn text(problem: &Value) -> String {
    problem
        .as_str()
        .map_or_else(|| problem.to_string(), str::to_owned)
}

/// Returns a correct command as an example. It has the user's method and path if they are valid.
fn example(args: &ExplainArgs) -> String {
    let (method, url) = (args.method.as_deref(), args.url.as_str());
    let is_method = |text: &&str| text.bytes().all(|byte| byte.is_ascii_uppercase());
    let method = method.filter(is_method).unwrap_or("GET");
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%".contains(&byte);
    let path = match url.bytes().all(is_plain) && url.starts_with('/') {
        true => url,
        false => "/users",
    };
    format!("silverback explain {method} http://example.com{path}")
}

#[cfg(test)]
mod tests {
    use super::super::{question, read};
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn problems(words: &[&str]) -> String {
        let words = [&["silverback", "explain"], words].concat();
        let cli = Cli::try_parse_from(words).expect("clap accepts it");
        let Command::Explain(args) = cli.command else {
            panic!("another command");
        };
        let failure = read(&question(&args), &args).expect_err("an invalid question");
        failure.to_string()
    }

    #[test]
    fn a_wrong_request_is_named_with_an_example() {
        for (words, expected) in [
            (
                &["POST", "/x"][..],
                "error: \"/x\" is not a full URL: it needs a scheme and a host\n\
                 example: silverback explain POST http://example.com/x\n",
            ),
            (
                &["/x y"],
                "error: \"/x y\" is not a full URL: it needs a scheme and a host\n\
                 example: silverback explain GET http://example.com/users\n",
            ),
            (
                &["http://h/", "GET"],
                "error: the method \"http://h/\": expected the name of a method\n\
                 error: \"GET\" is not a full URL: it needs a scheme and a host\n\
                 example: silverback explain GET http://example.com/users\n",
            ),
            (
                &["ftp://h/"],
                "error: the URL \"ftp://h/\": expected one of: http, https, tcp, tls, udp\n\
                 example: silverback explain GET http://example.com/users\n",
            ),
        ] {
            assert_eq!(problems(words), expected, "{words:?}");
        }
    }

    #[test]
    fn other_arguments_are_named_as_on_the_command_line() {
        let words = [
            "http://h/",
            "--source",
            "x",
            "--closest",
            "2000",
            "-H",
            "b ad: x",
            "--route",
            "",
        ];
        let text = problems(&words);
        for part in [
            "--source: expected an address",
            "--closest: expected an integer between 0 and 1000",
            "--header b ad: this is not the name of a header",
            "--route: length must be at least 1",
        ] {
            assert!(text.contains(part), "{part} is missing in:\n{text}");
        }
        assert!(
            !text.contains("schema violation") && !text.contains("example"),
            "{text}"
        );
    }

    #[test]
    fn errors_without_fields_keep_their_message() {
        let cli = Cli::try_parse_from(["silverback", "explain", "http://h/"]);
        let Command::Explain(args) = cli.expect("clap accepts it").command else {
            panic!("another command");
        };
        let error = serde_json::json!({"message": "no permission"});
        assert_eq!(failure(&error, &args).to_string(), "error: no permission\n");
    }
}
