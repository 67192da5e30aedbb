//! Response headers that the operator adds, sets or clears with nginx's directives `add_header`, `more_set_headers` and
//! `more_clear_headers`. One setting may hold several of them, separated by semicolons, as Kong's users write them.

use super::directives::{StatementError, statements};
use super::raw::RawSettings;
use hyper::header::{HeaderName, HeaderValue};
use proxy::respond::Injection;

#[derive(Debug, thiserror::Error)]
enum InjectionError {
    #[error(transparent)]
    Syntax(#[from] StatementError),
    #[error("`{0}` is another directive: give it a setting of its own")]
    Other(String),
    #[error("expected `<name> <value> [always]`")]
    Add,
    #[error("expected `<name>: <value>`, not `{0}`")]
    Set(String),
    #[error("`{0}` is not the name of a header")]
    Name(String),
    #[error("the header `{0}` belongs to the connection and cannot be changed")]
    Connection(String),
    #[error("`{0}` is not the value of a header")]
    Value(String),
    #[error("nginx's variables are not available in `{0}`")]
    Variable(String),
}

/// Headers that tell a client where a response ends and how the connection continues. Operators cannot change them.
const OF_CONNECTION: [&str; 8] = [
    "connection",
    "content-length",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

pub(super) fn injections(raw: &mut RawSettings) -> Vec<Injection> {
    let directives = ["add_header", "more_clear_headers", "more_set_headers"];
    let mut all = Vec::new();
    for directive in directives {
        let setting = format!("nginx_proxy_{directive}");
        let Some(text) = raw.text(&setting) else {
            continue;
        };
        match parse(directive, text) {
            Ok(injections) => all.extend(injections),
            Err(error) => raw.problem(&setting, error),
        }
    }
    all
}

/// Parses a setting. Its first statement lacks the directive, which is in the setting's name.
fn parse(directive: &str, text: &str) -> Result<Vec<Injection>, InjectionError> {
    let mut all = Vec::new();
    for (number, mut words) in statements(text)?.into_iter().enumerate() {
        let directive = match number {
            0 => directive.to_owned(),
            _ => words.remove(0),
        };
        match directive.as_str() {
            "add_header" => all.extend(added(&words)?),
            "more_set_headers" => {
                for word in &words {
                    all.push(set(word)?);
                }
            }
            "more_clear_headers" => {
                for word in &words {
                    all.push(Injection::Clear(name(word)?));
                }
            }
            _ => return Err(InjectionError::Other(directive)),
        }
    }
    Ok(all)
}

/// Returns the header to add, or `None` if its value is empty.
fn added(words: &[String]) -> Result<Option<Injection>, InjectionError> {
    let (header, text, always) = match words {
        [header, text] => (header, text, false),
        [header, text, always] if always == "always" => (header, text, true),
        _ => return Err(InjectionError::Add),
    };
    let (name, value) = (name(header)?, value(text)?);
    Ok((!text.is_empty()).then_some(Injection::Add {
        name,
        value,
        always,
    }))
}

/// Returns the header to set. An empty value clears the header.
fn set(word: &str) -> Result<Injection, InjectionError> {
    let wrong = || InjectionError::Set(word.to_owned());
    let (header, text) = word.split_once(':').ok_or_else(wrong)?;
    let (name, text) = (name(header.trim())?, text.trim());
    let value = value(text)?;
    Ok(if text.is_empty() {
        Injection::Clear(name)
    } else {
        Injection::Set { name, value }
    })
}

fn name(text: &str) -> Result<String, InjectionError> {
    if HeaderName::from_bytes(text.as_bytes()).is_err() || text.contains('*') {
        return Err(InjectionError::Name(text.to_owned()));
    }
    if OF_CONNECTION.contains(&text.to_ascii_lowercase().as_str()) {
        return Err(InjectionError::Connection(text.to_owned()));
    }
    Ok(text.to_owned())
}

fn value(text: &str) -> Result<String, InjectionError> {
    if text.contains('$') {
        return Err(InjectionError::Variable(text.to_owned()));
    }
    match HeaderValue::from_str(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err(InjectionError::Value(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_headers_may_be_in_one_setting() {
        let text =
            "X-Frame-Options DENY always; add_header X-B 'a b'; more_set_headers 'X-C: c' 'X-D:'";
        let [a, b] = ["X-Frame-Options", "X-B"].map(str::to_owned);
        let expected = vec![
            Injection::Add {
                name: a,
                value: "DENY".to_owned(),
                always: true,
            },
            Injection::Add {
                name: b,
                value: "a b".to_owned(),
                always: false,
            },
            Injection::Set {
                name: "X-C".to_owned(),
                value: "c".to_owned(),
            },
            Injection::Clear("X-D".to_owned()),
        ];
        assert_eq!(parse("add_header", text).expect("four headers"), expected);
    }

    #[test]
    fn invalid_headers_are_refused() {
        let refused = |directive, text| parse(directive, text).expect_err("refused").to_string();
        let cases = [
            ("add_header", "X-A", "expected `<name> <value> [always]`"),
            (
                "add_header",
                "X-A b c",
                "expected `<name> <value> [always]`",
            ),
            (
                "add_header",
                "X-A b; gzip on",
                "`gzip` is another directive: give it a setting of its own",
            ),
            (
                "add_header",
                "X-A $host",
                "nginx's variables are not available in `$host`",
            ),
            (
                "add_header",
                "Content-Length 5",
                "the header `Content-Length` belongs to the connection and cannot be changed",
            ),
            ("add_header", "'X A' b", "`X A` is not the name of a header"),
            (
                "add_header",
                "X-A \"b\nc\"",
                "`b\nc` is not the value of a header",
            ),
            (
                "more_set_headers",
                "-s",
                "expected `<name>: <value>`, not `-s`",
            ),
            (
                "more_clear_headers",
                "X-*",
                "`X-*` is not the name of a header",
            ),
        ];
        for (directive, text, expected) in cases {
            assert_eq!(refused(directive, text), expected);
        }
    }
}
