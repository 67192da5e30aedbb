//! Fuzz target for Lua: whatever a snippet does, its worker goes on, and the next snippet runs.

use lua::{Globals, Outcome, Scripts, Snippets, Target};
use plugin::Node;
use std::sync::{Arc, OnceLock};

/// Runs the input as a snippet in the sandbox, outside of requests, and then one that must succeed.
pub fn lua(data: &[u8]) {
    static NODE: OnceLock<Arc<Node>> = OnceLock::new();
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let node = NODE.get_or_init(|| Node::bare().expect("a thread can be started"));
    let checked = lua::check_syntax(text);
    match run(text, node) {
        Outcome::Failed(error) => {
            if let Err(refused) = checked {
                assert_eq!(error, refused, "both compile the same text");
            }
        }
        _ => assert_eq!(checked, Ok(()), "a text that runs is well formed"),
    }
    let after = run(
        "local t = {} for i = 1, 10 do t[i] = tostring(i) end assert(table.concat(t) == '12345678910')",
        node,
    );
    assert!(matches!(after, Outcome::Done), "the VM works afterwards");
}

fn run(text: &str, node: &Arc<Node>) -> Outcome {
    let scripts = Scripts::new(Snippets {
        texts: [text.to_owned()].into(),
        globals: Globals::sandbox(),
    });
    scripts.run(&Target::node(node))
}
