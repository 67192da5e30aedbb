//! The functions that the Lua code of this crate calls by FFI, and the memory through which they return values.
//!
//! The rules, which make this sound:
//!
//! - No function calls back into the VM.
//! - No function unwinds: each catches panics and returns [`PANIC`], which a wrapper in Lua raises as an error.
//! - Lua keeps no pointer to a request. [`Cx`] lives as long as the VM, and has a request only during a slice.
//! - A text that a function returns is copied by Lua at once (`ffi.string`), before it calls another function.
//!
//! The declarations for C ([`declarations`]) and the constants ([`constants`]) are made of the same lists as the
//! functions, so that the two sides cannot differ.

#![expect(unsafe_code, reason = "the interface is C's")]

#[macro_use]
mod signature;

mod cipher;
mod dict;
mod edit;
mod encoding;
mod ending;
mod entity;
mod event;
mod hash;
mod json;
mod list;
mod log;
mod module;
mod regex;
mod said;
mod text;
mod time;
mod timer;
mod trace;
mod var;
mod wait;
mod wall;

pub use ending::Ending;
pub(crate) use said::Said;
pub(crate) use timer::end_timers;
pub use wait::Pending;
pub(crate) use wait::WaitKind;

use crate::pattern;
use crate::target::{Phase, Raw};
use crate::vm;
use crate::watchdog::Slot;
use plugin::{HeaderEdits, PluginError};
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A function returns this, or a value of its own that is not negative, or an error.
pub(crate) const FOUND: i32 = 1;
pub(crate) const NONE: i32 = 0;
/// The function needs a request or a response that the phase does not have.
pub(crate) const NO_REQUEST: i32 = -1;
pub(crate) const PANIC: i32 = -2;
/// The argument is wrong. The text of the error is the result.
pub(crate) const REFUSED: i32 = -3;

/// Buffers of results that are larger are freed after the slice.
const MAX_KEPT_BUFFER: usize = 1 << 20;

/// The memory that Lua and the functions share. Lua knows the fields up to `matched`.
#[repr(C)]
pub(crate) struct Cx {
    /// A text: a result, or what Lua is to read.
    pub(crate) ptr: *const u8,
    /// A second text, such as the value that belongs to a name.
    ptr2: *const u8,
    pub(crate) number: f64,
    /// A second number, such as a time to live.
    pub(crate) number2: f64,
    /// Length of the text. Lua reads a number of 32 bits without an allocation.
    pub(crate) len: u32,
    len2: u32,
    /// The phase, as the bit of [`Phase`].
    pub(crate) phase: u32,
    /// Position of the running plugin in the execution order.
    pub(crate) plugin: u32,
    /// Number of the tables of the request, or 0 if it has none yet.
    pub(crate) context: u32,
    /// Why the running coroutine has yielded: a [`WaitKind`], or 0 if the user's code has.
    pub(crate) wait: u32,
    /// Number of coroutines within each other.
    level: u32,
    /// The phase as nginx has it. It differs from `phase` after `ngx.say`, which runs Kong's filter phases.
    pub(crate) nginx: u32,
    /// Flags of a value, or a count.
    pub(crate) flags: u32,
    /// Whether plugins in Rust have set values that `kong.ctx.shared` does not have yet.
    shared: u32,
    pub(crate) matched: pattern::Match,

    // Lua does not know these.
    pub(crate) target: Raw,
    pub(crate) slot: Arc<Slot>,
    /// Bytes that `ptr` points to, if the result is made by the function.
    scratch: Vec<u8>,
    list: list::List,
    wall: wall::Wall,
    /// Bytes outside of the VM that the slice has added to its request and to what others keep.
    kept: usize,
    /// Bytes that the VM used when the slice began.
    pub(crate) memory_used: usize,
    regexes: regex::Regexes,
    tokens: json::Tokens,
    /// Headers of a response that is about to be made.
    headers: HeaderEdits,
    pub(crate) ending: Option<Ending>,
    pub(crate) waiting: Option<Pending>,
    /// An error to report in place of the Lua error that it causes.
    pub(crate) failure: Option<PluginError>,
    /// The text that the running function has returned to Rust.
    pub(crate) result: Option<Vec<u8>>,
}

impl Cx {
    pub(crate) fn new(slot: Arc<Slot>) -> Self {
        Self {
            ptr: std::ptr::null(),
            len: 0,
            ptr2: std::ptr::null(),
            len2: 0,
            number: 0.0,
            number2: 0.0,
            phase: 0,
            plugin: 0,
            context: 0,
            wait: 0,
            level: 0,
            nginx: 0,
            flags: 0,
            shared: 0,
            matched: pattern::Match::default(),
            target: Raw::NONE,
            slot,
            scratch: Vec::new(),
            list: list::List::default(),
            wall: wall::Wall::new(),
            kept: 0,
            memory_used: 0,
            regexes: regex::Regexes::default(),
            tokens: json::Tokens::default(),
            headers: HeaderEdits::new(),
            ending: None,
            waiting: None,
            failure: None,
            result: None,
        }
    }

    /// Prepares a slice.
    pub(crate) fn enter(&mut self, target: Raw, context: u32) {
        self.phase = target.phase as u32;
        self.nginx = self.phase;
        self.plugin = u32::from(target.plugin);
        self.context = context;
        self.target = target;
        self.shared = u32::from(target.state().is_some_and(|state| !state.shared.is_empty()));
        self.wait = 0;
        self.level = 0;
        self.kept = 0;
        // What the former slice began and did not finish must not become part of this one: code can catch the error of an
        // end or a wait within a function of C. In header_filter, the ending of a former snippet of the plugin counts.
        if target.phase != Phase::HeaderFilter {
            self.ending = None;
        }
        self.waiting = None;
        self.result = None;
        if !self.headers.is_empty() {
            self.headers.clear();
        }
        if said::has_begun(self) != 0 {
            self.phase = Phase::BodyFilter as u32;
        }
    }

    /// Forgets the target of a slice.
    pub(crate) fn leave(&mut self) {
        self.phase = Phase::None as u32;
        self.nginx = self.phase;
        self.target = Raw::NONE;
        if self.scratch.capacity() > MAX_KEPT_BUFFER {
            self.scratch = Vec::new();
        }
        self.list.shrink();
        self.tokens.shrink();
    }

    /// Counts bytes that the slice adds outside of the VM. They have the same limit as those in it.
    fn keep(&mut self, bytes: usize) {
        self.kept = self.kept.saturating_add(bytes);
        if self.kept > vm::MAX_GROWTH {
            vm::stop_for_memory();
        }
    }

    /// Returns a text to Lua. It must live until the function that Lua calls next.
    fn text(&mut self, text: &[u8]) -> i32 {
        self.ptr = text.as_ptr();
        self.len = length(text);
        FOUND
    }

    fn text_or_none(&mut self, text: Option<&[u8]>) -> i32 {
        text.map_or(NONE, |text| self.text(text))
    }

    /// Offers two texts to a Lua function that Rust is about to call. They must live during the call.
    pub(crate) fn offer(&mut self, first: &[u8], second: &[u8]) {
        self.texts(first, second);
    }

    fn texts(&mut self, first: &[u8], second: &[u8]) -> i32 {
        self.ptr2 = second.as_ptr();
        self.len2 = length(second);
        self.text(first)
    }

    /// Returns a text that the function makes.
    fn made(&mut self, make: impl FnOnce(&mut Vec<u8>)) -> i32 {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        make(&mut scratch);
        let code = self.text(&scratch);
        self.scratch = scratch;
        code
    }

    /// Returns the text of an error.
    fn refuse(&mut self, reason: impl std::fmt::Display) -> i32 {
        self.made(|out| out.extend_from_slice(reason.to_string().as_bytes()));
        REFUSED
    }

    fn number(&mut self, number: f64) -> i32 {
        self.number = number;
        FOUND
    }
}

/// Returns the length of a text. No text that a gateway has in memory is longer than 4 GiB.
pub(crate) fn length(text: &[u8]) -> u32 {
    u32::try_from(text.len()).unwrap_or(u32::MAX)
}

/// Declares an enum whose values Lua knows by number, with their names in Lua.
macro_rules! numbered {
    ($(#[$about:meta])* $visible:vis enum $name:ident { $($(#[$note:meta])* $value:ident = $text:literal,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $visible enum $name {
            $($(#[$note])* $value,)*
        }

        impl $name {
            $visible const NAMES: &[&str] = &[$($text,)*];

            #[allow(dead_code, reason = "some enums are only results")]
            $visible fn numbered(number: i32) -> Option<Self> {
                const VALUES: &[$name] = &[$($name::$value,)*];
                usize::try_from(number).ok().and_then(|at| VALUES.get(at).copied())
            }
        }
    };
}
use numbered;

numbered! {
    /// What a text of the user is. It decides how the text is compiled.
    pub(crate) enum Code {
        Snippet = "snippet",
        Template = "template",
        Field = "field",
        /// Not a text of the user, but the reader of the groups that Lua code has set.
        Groups = "groups",
    }
}

/// Runs a function for Lua.
fn guard(cx: *mut Cx, run: impl FnOnce(&mut Cx) -> i32) -> i32 {
    // SAFETY: Lua passes the pointer to the `Cx` of its VM, which nothing else uses while Lua runs.
    let cx = unsafe { &mut *cx };
    match catch_unwind(AssertUnwindSafe(|| run(cx))) {
        Ok(code) => code,
        Err(_) => {
            tracing::error!("a function for Lua has panicked");
            PANIC
        }
    }
}

/// Returns the bytes of a Lua string, which lives during the call.
///
/// # Safety
///
/// `ptr` must be the address of `len` bytes that live as long as the result.
unsafe fn bytes<'a>(ptr: *const u8, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller guarantees it.
    unsafe { std::slice::from_raw_parts(ptr, len) }
}

/// Declares the functions: their names in Lua, the kinds of their arguments, and what they call.
macro_rules! functions {
    ($($name:ident($kind:tt) => $call:path;)*) => {
        /// The table of the functions, to which Lua has a pointer.
        #[repr(C)]
        pub(crate) struct Functions {
            $($name: signature!($kind),)*
        }

        pub(crate) static FUNCTIONS: Functions = Functions {
            $($name: exported!($kind, $call),)*
        };

        const FUNCTION_DECLARATIONS: &str = concat!(
            "typedef struct {",
            $("int32_t (*", stringify!($name), ")(sb_cx*", declared!($kind), ");",)*
            "} sb_functions;"
        );
    };
}

functions! {
    // Texts and numbers of the request and its surroundings (`text`).
    text(i) => text::get;
    header(is) => text::header;
    stopped(_) => stopped;
    find(ssii) => find;
    // Lua libraries (`module`).
    module(s) => module::text;
    // Lists of names and values (`list`).
    list(ii) => list::make;
    parse_args(is) => list::parse_args;
    item(i) => list::item;
    multipart(ss) => list::multipart;
    // Entities (`entity`).
    entity(is) => entity::get;
    entity_id(iss) => entity::id_of;
    entity_ids(iis) => entity::ids_after;
    entity_kind(s) => entity::kind;
    credential(_) => entity::credential;
    authenticate(ss) => entity::authenticate;
    is_trusted(s) => entity::is_trusted;
    // Changes (`edit`).
    set_text(is) => edit::set_text;
    set_number(id) => edit::set_number;
    set_header(iiss) => edit::set_header;
    // The end of a request (`ending`).
    exit_header(iiss) => ending::header;
    exit(is) => ending::exit;
    redirect(ss) => ending::redirect;
    result(s) => result;
    // Waiting (`wait`).
    sleep(d) => wait::sleep;
    // Encodings (`encoding`) and JSON (`json`).
    encode(is) => encoding::encode;
    hmac_sha1(ss) => encoding::hmac_sha1;
    digest(is) => hash::digest;
    random(i) => hash::random;
    cipher(iiss) => cipher::run;
    json_read(is) => json::read;
    json_token(i) => json::token;
    json_begin(i) => json::begin;
    json_cut(i) => json::cut;
    json_raw(s) => json::raw;
    json_string(s) => json::string;
    json_number(d) => json::number;
    json_end(_) => json::end;
    // Logs (`log`).
    log(iis) => log::write;
    log_field(iiss) => log::set_field;
    log_record(_) => log::record;
    // Traces (`trace`).
    trace_is_on(_) => trace::is_on;
    trace_is_recorded(_) => trace::is_recorded;
    trace_id(_) => trace::id;
    trace_add(is) => trace::add;
    // Shared dictionaries (`dict`), regexes (`regex`), timers (`timer`), events (`event`) and times (`time`).
    dict(iiss) => dict::operate;
    regex_compile(ss) => regex::compile;
    regex_names(_) => regex::names;
    regex_run(is) => regex::run;
    timer_start(id) => timer::start;
    timer_count(i) => timer::count;
    event_post(is) => event::post;
    event_take(_) => event::take;
    time_write(id) => time::write;
    time_parse(s) => time::parse;
    // Variables (`var`), and what is said to the client (`said`).
    var(s) => var::get;
    say(is) => said::say;
    say_end(_) => said::end;
    has_said(_) => said::has_begun;
    // The tables of a request.
    keep_context(i) => keep_context;
    take_shared(_) => take_shared;
}

/// Returns the declarations of all types for LuaJIT's FFI.
pub(crate) fn declarations() -> String {
    format!(
        "typedef struct {{ uint32_t start; int32_t len; }} sb_capture;
        typedef struct {{
          const char *ptr; const char *ptr2; double number; double number2; uint32_t len; uint32_t len2;
          uint32_t phase; uint32_t plugin; uint32_t context; uint32_t wait; uint32_t level;
          uint32_t nginx; uint32_t flags; uint32_t shared;
          uint32_t start; uint32_t end; sb_capture captures[{}];
        }} sb_cx;
        {FUNCTION_DECLARATIONS}",
        pattern::MAX_CAPTURES,
    )
}

/// Returns Lua code for a table with the constants, by group and name.
pub(crate) fn constants() -> String {
    let mut out = String::from("return {");
    let mut group = |name: &str, values: &mut dyn Iterator<Item = (&'static str, u32)>| {
        let _ = write!(out, "{name}={{");
        for (name, value) in values {
            let _ = write!(out, "[{name:?}]={value},");
        }
        out.push_str("},");
    };
    let numbered = |names: &'static [&'static str]| names.iter().copied().zip(0_u32..);
    group(
        "phase",
        &mut Phase::ALL
            .iter()
            .map(|(name, phase)| (*name, *phase as u32)),
    );
    group("text", &mut numbered(text::Value::NAMES));
    group("list", &mut numbered(list::Of::NAMES));
    group("encoding", &mut numbered(encoding::Encoding::NAMES));
    group("set_text", &mut numbered(edit::Text::NAMES));
    group("set_number", &mut numbered(edit::Number::NAMES));
    group("header", &mut numbered(edit::Message::NAMES));
    group("change", &mut numbered(edit::Change::NAMES));
    group("exit", &mut numbered(ending::Kind::NAMES));
    group(
        "wait",
        &mut WaitKind::ALL
            .iter()
            .map(|(name, kind)| (*name, *kind as u32)),
    );
    group("zone", &mut dict::zones());
    group("dict_kind", &mut numbered(dict::KINDS));
    group("dict", &mut numbered(dict::Operation::NAMES));
    group("dict_outcome", &mut numbered(dict::Outcome::NAMES));
    group("time", &mut numbered(time::Form::NAMES));
    group("code", &mut numbered(Code::NAMES));
    group("hash", &mut numbered(hash::Hash::NAMES));
    group("cipher", &mut numbered(cipher::Mode::NAMES));
    group("token", &mut numbered(json::Token::NAMES));
    group("trace", &mut numbered(trace::Part::NAMES));
    out.push('}');
    out
}

/// Takes what the request has said to the client.
pub(crate) fn said_by(cx: &mut Cx) -> Option<Said> {
    said::context(cx)?.said.take()
}

/// Keeps a text that a Lua function returns to Rust.
fn result(cx: &mut Cx, text: &[u8]) -> i32 {
    cx.result = Some(text.to_vec());
    FOUND
}

/// Whether the slice must stop.
fn stopped(cx: &mut Cx) -> i32 {
    i32::from(cx.slot.must_stop() || vm::is_full())
}

/// Finds a pattern of Lua (`crate::pattern`).
fn find(cx: &mut Cx, subject: &[u8], pattern: &[u8], from: i32, mode: i32) -> i32 {
    let from = usize::try_from(from).unwrap_or(0).min(subject.len());
    let Cx { slot, matched, .. } = cx;
    pattern::find(subject, pattern, from, mode, &|| slot.must_stop(), matched)
}

/// Returns the values that plugins in Rust have set for `kong.ctx.shared`, as JSON, and removes them: from then on, Lua's
/// table has them.
fn take_shared(cx: &mut Cx) -> i32 {
    cx.shared = 0;
    let Some(state) = cx.target.state_mut() else {
        return NONE;
    };
    let values = std::mem::take(&mut state.shared);
    match serde_json::to_vec(&values) {
        Ok(json) => cx.made(|out| out.extend_from_slice(&json)),
        Err(error) => cx.refuse(error),
    }
}

/// Notes the number of the tables that Lua has made for the request, so that they are freed with it.
fn keep_context(cx: &mut Cx, number: i32) -> i32 {
    let Ok(number) = u32::try_from(number) else {
        return NONE;
    };
    cx.context = number;
    match cx.target.state_mut() {
        Some(state) => {
            state.interpreter = Some(Box::new(crate::handles::Context::new(number)));
            FOUND
        }
        None => NO_REQUEST,
    }
}
