//! Templates of values: literal text with `$(expression)`, whose expressions are Lua. Source: Penlight's pl/template.lua,
//! kong/plugins/request-transformer/{access,schema}.lua.
//!
//! Expressions see the tables `headers`, `query_params`, `uri_captures` and `shared` of the request, and the function
//! `type`. With `untrusted_lua = on` they also see all globals, and otherwise what the settings of the sandbox add.

use crate::abi::Code;
use crate::globals::Globals;
use crate::handles::Function;
use crate::syntax;
use crate::target::Target;
use crate::vm::{self, Ran, Vm};
use std::cell::RefCell;
use std::rc::Rc;

/// A template on a worker. It is compiled when it is first rendered.
pub struct Template {
    text: String,
    globals: Globals,
    function: RefCell<Option<Rc<Function>>>,
}

impl Template {
    pub fn new(text: &str, globals: Globals) -> Self {
        Self {
            text: text.to_owned(),
            globals,
            function: RefCell::default(),
        }
    }

    /// Returns the text for the request of the target.
    pub fn render(&self, target: &Target<'_>) -> Result<Vec<u8>, String> {
        let (ran, result) = vm::with(|vm| {
            let function = self.function(vm, target)?;
            vm.cx.result = None;
            Ok::<_, String>((vm.start(&function, target), vm.cx.result.take()))
        })?;
        match (ran, result) {
            (Ran::Done(_), Some(text)) => Ok(text),
            (Ran::Failed(error), _) => Err(error),
            _ => Err("a template can neither wait nor end the request".to_owned()),
        }
    }

    fn function(&self, vm: &mut Vm, target: &Target<'_>) -> Result<Rc<Function>, String> {
        let known = self.function.borrow().clone();
        if let Some(known) = known.filter(|known| vm.has(known)) {
            return Ok(known);
        }
        let code = lua_code(&self.text, HashLines::Literal);
        let function = Rc::new(vm.compile(Code::Template, &code, &self.globals, target)?);
        *self.function.borrow_mut() = Some(function.clone());
        Ok(function)
    }
}

/// Checks the syntax of a template as the schema of Kong does, and returns LuaJIT's message. There, unlike when a template
/// is rendered, lines that start with `#` are Lua code.
pub fn check_template(text: &str) -> Result<(), String> {
    syntax::check_chunk(&lua_code(text, HashLines::Lua), "TMP")
}

/// Whether lines that start with `#` are Lua code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HashLines {
    Lua,
    Literal,
}

/// Returns Lua code for a function that returns a list of the pieces of the rendered text. It keeps the lines of the text,
/// so that messages have its positions.
fn lua_code(text: &str, hash_lines: HashLines) -> String {
    let mut code = String::from(
        "return function() local __R_size, __R_table, __tostring = 0, {}, __tostring; ",
    );
    if hash_lines == HashLines::Literal {
        add_pieces(text, &mut code);
    } else {
        let mut literal = String::new();
        for line in text.split_inclusive('\n') {
            match line.strip_prefix('#') {
                None => literal.push_str(line),
                Some(lua) => {
                    add_pieces(&literal, &mut code);
                    literal.clear();
                    code.push_str(lua.trim_start_matches('#').trim_end_matches('\n'));
                    code.push('\n');
                }
            }
        }
        add_pieces(&literal, &mut code);
    }
    code.push_str("return __R_table; end");
    code
}

/// Adds the pieces of a literal text with expressions.
fn add_pieces(text: &str, code: &mut String) {
    let mut end = 0;
    for (open, close) in expression_spans(text.as_bytes()) {
        add_piece(code, |code| quote(&text[end..open - 1], code));
        add_piece(code, |code| {
            code.push_str("__tostring(");
            code.push_str(&text[open..=close]);
            code.push_str(" or '')");
        });
        end = close + 1;
    }
    if end < text.len() {
        add_piece(code, |code| quote(&text[end..], code));
    }
}

fn add_piece(code: &mut String, value: impl FnOnce(&mut String)) {
    code.push_str(" __R_size = __R_size + 1; __R_table[__R_size] = ");
    value(code);
    code.push(';');
}

/// Adds a text as a string of Lua (`%q`).
fn quote(text: &str, code: &mut String) {
    code.push('"');
    for letter in text.chars() {
        match letter {
            '"' => code.push_str("\\\""),
            '\\' => code.push_str("\\\\"),
            '\n' => code.push_str("\\\n"),
            '\r' => code.push_str("\\r"),
            '\0' => code.push_str("\\0"),
            _ => code.push(letter),
        }
    }
    code.push('"');
}

/// Returns where the parentheses of the expressions open and close. An expression ends at the parenthesis that balances
/// its first one, and parentheses in strings count, too.
pub fn expression_spans(text: &[u8]) -> Vec<(usize, usize)> {
    let mut closes = vec![0; text.len()];
    let mut open = Vec::new();
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'(' => open.push(at),
            b')' => {
                if let Some(start) = open.pop() {
                    closes[start] = at;
                }
            }
            _ => {}
        }
    }
    let mut spans = Vec::new();
    let mut from = 0;
    while let Some(at) = memchr::memmem::find(&text[from..], b"$(") {
        let start = from + at + 1;
        from = start;
        if closes[start] != 0 {
            spans.push((start, closes[start]));
            from = closes[start] + 1;
        }
    }
    spans
}
