//! Fuzz target for the templates of request-transformer. Most expressions are evaluated in Rust, and must mean what they
//! mean in Lua. Whatever a template is, it cannot add a line to the request.

use plugin::Node;
use plugin::testing::{Case, completed};
use serde_json::json;
use std::cell::OnceCell;
use std::sync::Arc;

const PLUGIN: &str = "request-transformer";

/// Maximum length of a template.
const MAX_LENGTH: usize = 200;

thread_local! {
    /// The node of all runs, so that its worker and its Lua VM are made once.
    static NODE: OnceCell<Arc<Node>> = const { OnceCell::new() };
}

/// Checks a text, as a template and as an expression in one.
pub fn template(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    // Such texts may take as much memory and time as the sandbox lets them.
    if text.len() > MAX_LENGTH
        || ["rep", "while", "for", "function"]
            .iter()
            .any(|word| text.contains(word))
    {
        return;
    }
    let _ = rendered(text);
    if !is_one_expression(text) {
        return;
    }
    let value = rendered(&format!("$({text})"));
    // A function is not evaluated in Rust, and this one changes nothing.
    let in_lua = rendered(&format!("$((function(value) return value end)({text}))"));
    match (value, in_lua) {
        // An address.
        (Some(value), _) if value.contains("0x") => {}
        (value, in_lua) => assert_eq!(value, in_lua, "{text}"),
    }
}

/// Whether a text between parentheses can only be one expression with one value.
fn is_one_expression(text: &str) -> bool {
    let mut depth = 0_i32;
    let is_closed_early = text.bytes().any(|byte| {
        depth += i32::from(byte == b'(') - i32::from(byte == b')');
        depth < 0
    });
    let is_plain = text
        .bytes()
        .all(|byte| matches!(byte, b' '..=b'~') && byte != b',' && byte != b'\\');
    let has_none = |part: &&str| !text.contains(*part);
    depth == 0
        && !text.trim_ascii().is_empty()
        && !is_closed_early
        && is_plain
        && ["--", "[[", "[=", "]]", "...", "$", "#"]
            .iter()
            .all(has_none)
}

/// Renders a template as the value of a header for the upstream. `None` if it cannot be rendered.
fn rendered(template: &str) -> Option<String> {
    plugins::install();
    let config = json!({"add": {"headers": [format!("x-out:{template}")]}});
    completed(PLUGIN, config.clone()).ok()?;
    let mut all = plugins::bundled().iter();
    let def = all.find(|def| &*def.name == PLUGIN)?;
    let case = NODE.with(|node| {
        let case = Case::new(Arc::clone(def), config);
        match node.get() {
            Some(node) => case.on(Arc::clone(node)),
            None => {
                let _ = node.set(Arc::clone(case.node()));
                case
            }
        }
    });
    let call = case.request("GET /a?q=1&r=2&r=3&flag");
    let outcome = call.header("x-in", "inval").run_now();
    let sent = outcome.upstream?;
    let lines = &sent.headers.0;
    assert!(
        lines
            .iter()
            .all(|(_, value)| !value.contains(['\r', '\n', '\0'])),
        "{lines:?}"
    );
    let own = |name: &str| ["x-in", "x-out", "host"].contains(&name.to_ascii_lowercase().as_str());
    assert!(lines.iter().all(|(name, _)| own(name)), "{lines:?}");
    sent.headers
        .0
        .iter()
        .find_map(|(name, value)| (name.eq_ignore_ascii_case("x-out")).then(|| value.clone()))
}
