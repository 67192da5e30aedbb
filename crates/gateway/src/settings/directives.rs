//! nginx's directives, which Kong's users put into nginx's blocks by settings such as `nginx_proxy_add_header`. This
//! module decides which block's setting counts, which directives are refused because ignoring them is not safe, and why
//! others have no effect. The directives that work are in the table of settings.

use super::table::{Setting, Table};

/// The block that contains a directive. A directive of an inner block wins over the same directive of an outer block,
/// wherever the two settings were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Block {
    /// The block around the one in the setting's name.
    Outer,
    /// The block in the setting's name.
    Own,
    Proxy,
    Location,
}

/// Returns the setting for the same directive in another block, and the block that `name` names. For example,
/// `nginx_http_proxy_ssl_verify` sets `nginx_proxy_proxy_ssl_verify`.
pub(super) fn inherited<'t>(table: &'t Table, name: &str) -> Option<(&'t Setting, Block)> {
    let blocks = [
        ("nginx_location_", Block::Location),
        ("nginx_proxy_", Block::Proxy),
        ("nginx_http_", Block::Outer),
    ];
    let (directive, block) = (blocks.into_iter())
        .find_map(|(prefix, block)| Some((name.strip_prefix(prefix)?, block)))?;
    let works = |setting: &&Setting| setting.no_effect.is_none() && setting.alias_of.is_none();
    let of = |prefix: &str| table.by_name(&format!("{prefix}{directive}")).filter(works);
    let setting = match block {
        // Kong always writes the directives of its own settings into the proxy's block, where they win over the outer
        // block. So only settings that Kong does not have inherit from the outer block.
        Block::Outer => of("nginx_proxy_").filter(|setting| setting.own),
        _ => of("nginx_proxy_").or_else(|| of("nginx_http_")),
    };
    Some((setting?, block))
}

const UPSTREAM_TLS: &str = "set nginx_proxy_proxy_ssl_verify and nginx_proxy_proxy_ssl_trusted_certificate, which hold for \
                            services of all protocols";
const NETWORKS: &str = "use a firewall; for the Admin API, tokens or client certificates";
const CLIENT_TLS: &str = "the proxy cannot verify certificates of clients; the Admin API can (nginx_admin_ssl_client_certificate)";
const CREDENTIALS: &str = "use a plugin that authenticates, such as basic-auth";
const INPUT_HEADERS: &str = "settings cannot change the headers of requests";
const RATES: &str = "set max_connections_per_client; requests cannot be limited yet";

/// Directives that protect something, or whose effect is not known here. Ignoring them silently could open what an
/// operator believes to be closed. A name that ends with `*` stands for all names that begin like it.
pub(super) const REFUSED: [(&str, &str); 32] = [
    ("access_by_lua*", "there is no Lua here"),
    ("allow", NETWORKS),
    ("auth_*", CREDENTIALS),
    ("deny", NETWORKS),
    ("grpc_ssl_crl", UPSTREAM_TLS),
    ("grpc_ssl_trusted_certificate", UPSTREAM_TLS),
    ("grpc_ssl_verify*", UPSTREAM_TLS),
    ("if", "use routes"),
    ("include", "name each directive in a setting of its own"),
    ("internal", "use routes"),
    ("limit_conn*", RATES),
    ("limit_except", "use routes with methods"),
    ("limit_req*", RATES),
    ("load_module", "nginx's modules cannot be loaded"),
    ("more_clear_input_headers", INPUT_HEADERS),
    ("more_set_input_headers", INPUT_HEADERS),
    ("modsecurity*", "put a web application firewall in front"),
    (
        "proxy_hide_header",
        "set nginx_proxy_more_clear_headers, which removes headers from every response",
    ),
    (
        "proxy_ssl_crl",
        "revocation lists of upstreams are not available",
    ),
    ("proxy_ssl_trusted_certificate", UPSTREAM_TLS),
    ("proxy_ssl_verify*", UPSTREAM_TLS),
    ("return", "use the plugin request-termination"),
    ("rewrite*", "use routes and the paths of their services"),
    ("satisfy", CREDENTIALS),
    ("secure_link*", CREDENTIALS),
    ("set_real_ip_from", "set trusted_ips"),
    ("ssl_client_certificate", CLIENT_TLS),
    ("ssl_crl", CLIENT_TLS),
    ("ssl_reject_handshake", CLIENT_TLS),
    ("ssl_trusted_certificate", CLIENT_TLS),
    ("ssl_verify_*", CLIENT_TLS),
    ("valid_referers", "use routes with headers"),
];

/// Specific reasons why directives have no effect. All other ignored directives get the general reason that there is no
/// nginx.
const IGNORED: [(&str, &str); 21] = [
    ("access_log", "set proxy_access_log"),
    ("brotli*", "responses are not compressed"),
    ("client_body_temp_path", "bodies are never written to disk"),
    (
        "client_header_buffer_size",
        "nginx_http_large_client_header_buffers is the limit",
    ),
    ("error_log", "set proxy_error_log"),
    ("grpc_connect_timeout", TIMEOUTS),
    ("grpc_read_timeout", TIMEOUTS),
    ("grpc_send_timeout", TIMEOUTS),
    ("gzip*", "responses are not compressed"),
    ("keepalive", "set upstream_keepalive_pool_size"),
    ("lua_*", "there is no Lua"),
    ("proxy_buffering", "the route's response_buffering counts"),
    ("proxy_connect_timeout", TIMEOUTS),
    ("proxy_next_upstream*", "the service's retries count"),
    ("proxy_read_timeout", TIMEOUTS),
    (
        "proxy_request_buffering",
        "the route's request_buffering counts",
    ),
    ("proxy_send_timeout", TIMEOUTS),
    ("proxy_temp_*", "bodies are never written to disk"),
    ("resolver*", "set dns_resolver"),
    ("server_tokens", "set headers"),
    (
        "underscores_in_headers",
        "headers with underscores always pass",
    ),
];

const TIMEOUTS: &str = "the timeouts of the service count, as in Kong";

/// Returns the alternative to a refused directive, or `None` for a directive that is not refused.
pub(super) fn refused(directive: &str) -> Option<&'static str> {
    find(&REFUSED, directive)
}

pub(super) fn why_ignored(directive: &str) -> &'static str {
    find(&IGNORED, directive).unwrap_or("there is no nginx underneath")
}

fn find(list: &[(&str, &'static str)], directive: &str) -> Option<&'static str> {
    let is = |name: &str| match name.strip_suffix('*') {
        Some(begin) => directive.starts_with(begin),
        None => directive == name,
    };
    let found = list.iter().find(|(name, _)| is(name));
    found.map(|(_, text)| *text)
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum StatementError {
    #[error("a quote is not closed")]
    Quote,
    #[error("a value is expected")]
    Empty,
}

/// Splits the text of a directive as nginx does: into statements that end with a semicolon, and into words, which may
/// be quoted.
pub(super) fn statements(text: &str) -> Result<Vec<Vec<String>>, StatementError> {
    let mut statements = vec![Vec::new()];
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (word, after) = match first {
            ';' => {
                statements.push(Vec::new());
                rest = rest[1..].trim_start();
                continue;
            }
            quote @ ('"' | '\'') => quoted(&rest[1..], quote)?,
            _ => {
                let end = rest.find(|c: char| c == ';' || c.is_whitespace());
                let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
                (word.to_owned(), after)
            }
        };
        if let Some(statement) = statements.last_mut() {
            statement.push(word);
        }
        rest = after.trim_start();
    }
    statements.retain(|statement| !statement.is_empty());
    if statements.is_empty() {
        Err(StatementError::Empty)
    } else {
        Ok(statements)
    }
}

/// Returns a word up to its closing quote, and the rest of the text.
fn quoted(text: &str, quote: char) -> Result<(String, &str), StatementError> {
    let mut word = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            end if end == quote => return Ok((word, &text[at + 1..])),
            '\\' => match characters.next() {
                Some((_, escaped)) if escaped == quote || escaped == '\\' => word.push(escaped),
                Some((_, other)) => word.extend(['\\', other]),
                None => return Err(StatementError::Quote),
            },
            other => word.push(other),
        }
    }
    Err(StatementError::Quote)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plugin::Implementation;

    #[test]
    fn every_recommended_plugin_is_implemented() {
        let later = plugins::bundled()
            .iter()
            .filter(|def| matches!(def.implementation, Implementation::Later { .. }));
        let words = |text: &'static str| {
            let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
            text.split(move |letter| !is_of_name(letter))
        };
        for def in later {
            for (directive, advice) in REFUSED.iter().chain(&IGNORED) {
                let recommends = words(advice).any(|word| word == def.name);
                assert!(!recommends, "{directive}: {advice}");
            }
        }
    }

    #[test]
    fn statements_are_words_up_to_a_semicolon() {
        let read = |text| statements(text).map(|all| all.join(&String::from("|")).join(" "));
        assert_eq!(read("X-A b"), Ok("X-A b".to_owned()));
        assert_eq!(
            read(r#"X-A "b; \"c\"" always; add_header X-B 'd e';"#),
            Ok(r#"X-A b; "c" always | add_header X-B d e"#.to_owned())
        );
        assert_eq!(read("'a"), Err(StatementError::Quote));
        assert_eq!(read(" ; "), Err(StatementError::Empty));
    }
}
