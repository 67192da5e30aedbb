//! Attempts to leave the sandbox. None may reach a function or a table that the sandbox does not have.

use super::on_worker;
use crate::abi::Code;
use crate::vm::{self, Ran};
use crate::{Globals, Target, check_syntax};
use plugin::{LuaSettings, Node};

/// Runs texts one after the other in one VM.
fn run_all(texts: Vec<(String, Globals)>) -> Result<(), String> {
    on_worker(move || {
        let node = Node::bare().expect("a thread can be started");
        let target = Target::node(&node);
        for (text, globals) in texts {
            let function = vm::with(|vm| vm.compile(Code::Snippet, &text, &globals, &target))?;
            match vm::with(|vm| vm.start(&function, &target)) {
                Ran::Done(_) => {}
                Ran::Failed(error) => return Err(error),
                Ran::Stopped | Ran::Ended(_) | Ran::Waits(..) | Ran::WaitsForBody(_) => {
                    return Err("it waits".to_owned());
                }
            }
        }
        Ok(())
    })
}

/// Each is the body of a function. It has escaped if it returns something.
const ATTEMPTS: &[&str] = &[
    // Globals that the sandbox does not have.
    "return getmetatable or setmetatable or rawget or rawset or rawequal or rawlen",
    "return load or loadstring or loadfile or dofile or module or package",
    "return getfenv or setfenv or newproxy or collectgarbage or gcinfo or print",
    "return debug or io or jit or ffi or bit or arg",
    "return _G.debug or _G._G._G.io or _G.package",
    "return os.execute or os.exit or os.getenv or os.remove or os.rename or os.tmpname or os.setlocale",
    "return string.dump or string.buffer or table.unpack or table.move or math.randomseed or coroutine.isyieldable",
    "return SB or SB_CX or SB_FUNCTIONS or SB_NULL or SB_CONSTANTS or SB_DECLARATIONS or SB_EMPTY_ARRAY",
    // Modules.
    "return require('ffi')",
    "return require('debug')",
    "return require('jit.util')",
    "return require('cjson')",
    "return require('string.buffer')",
    "return require({})",
    "return require('cjson\\0')",
    // The metatable of strings has the real library: only its functions can be reached.
    "return ('').__index or ('').__metatable or (''):getmetatable()",
    "return ('').x",
    "('').x = 1 return ('').x",
    "string.format = nil return string.format == nil",
    "string.x = 1 return string.x",
    // As in Kong, numbers can be set. Nobody looks for them.
    "table.insert(string, 1, debug) return string.upper ~= ('').upper",
    "table.sort(string) return false",
    "return #string > 0",
    "for k in next, string do return k end",
    "for k in pairs(os) do return k end",
    // Bytecode cannot be loaded.
    "local code = ('').dump(function() end) return load and load(code)",
    // Errors and their handlers.
    "local ok, e = xpcall(function() local x = nil; return x.y end, function(e) return debug end) return e",
    "local ok, e = pcall(error) return e",
    "local ok, e = pcall(string.rep) return type(e) ~= 'string'",
    "local ok, e = xpcall(error, function(...) return select('#', ...) > 1 end, {}) return e == true",
    "local ok, e = pcall(kong.request.get_header) return type(e) ~= 'string'",
    // Coroutines.
    "local c = coroutine.running() return type(c) == 'table'",
    "return coroutine.wrap(function() return getfenv or debug end)()",
    "local c = coroutine.create(function() return coroutine.yield(getfenv) end) local _, v = coroutine.resume(c) return v",
    "return coroutine.resume(coroutine.create(load or function() return nil end)) ~= true",
    // Values of C: a number of 64 bits, and null.
    "return (1LL).x",
    "return (1LL)[0]",
    "local p = 1LL + nil return p",
    "local p = nil + 4096ULL return p[0]",
    "return (1LL)('x')",
    "(1LL).x = 1 return true",
    "return ngx.null.x",
    "return ngx.null[1]",
    "ngx.null.x = 1 return true",
    "return #ngx.null",
    "return ngx.null + 8LL",
    "return tostring(1LL) ~= '1LL' or type(1LL) ~= 'cdata'",
    "return kong.request.get_headers(1LL)",
    "return kong.log.info(1LL) or kong.table.new(1LL, 1LL).x",
    // Functions of the PDK with values of other types.
    "return kong.table.merge({}, kong.table.new(1, 1)).x",
    "return kong.table.clear(string) or string.format == nil",
    "return kong.table.merge(string, os).execute",
    "return kong.table.merge(nil, _G).debug",
    "return kong.response.exit(200, '', {[function() end] = 1})",
    "return kong.ctx.plugin or kong.ctx.shared.x or ngx.ctx.x",
    "return kong.ctx._G or kong.ctx[1]",
    // What a snippet puts in the place of a function, the files of this crate do not call.
    "local got ngx.now = function(...) got = select('#', ...) > 0 and (...) end ngx.time() return got",
    "local got kong.log.notice = function(...) got = ... end kong.log('x') return got ~= 'x' and got",
    "tostring = function() return debug end local ok, e = pcall(kong.log, {}) return not ok and type(e) ~= 'string'",
    "pairs, next, type, error = nil, nil, nil, nil kong.table.merge({1}, {2}) return false",
    // Tricks with patterns and formats.
    "return (''):gsub('', {['x'] = 1}) ~= '' or nil",
    "return string.format('%s', string) == nil",
    "return ('%d'):rep(100, '%s'):format() ",
    "return string.find('a', ('%b()'):rep(1000)) ",
    "return ('x'):gsub('x', function() return debug end) ~= 'x'",
];

#[test]
fn no_attempt_leaves_the_sandbox() {
    let mut escaped = Vec::new();
    for attempt in ATTEMPTS {
        let text = format!(
            "local ok, got = pcall(function() {attempt} end)
            if ok and got then error('escaped', 0) end"
        );
        if let Err(error) = run_all(vec![(text, Globals::sandbox())]) {
            escaped.push((attempt, error));
        }
    }
    assert_eq!(escaped, []);
}

/// Looks through all that a snippet can reach, as the metatables show it, for what it must not have.
const WALK: &str = r#"
    local forbidden = {[_G] = "_G"}
    local function forbid(library, name, except)
        if type(library) ~= "table" then return end
        forbidden[library] = name
        for key, value in next, library do
            local kind = type(value)
            if (kind == "function" or kind == "table") and not (except and except[key]) then
                forbidden[value] = name .. "." .. tostring(key)
            end
        end
    end
    forbid(debug, "debug") forbid(io, "io") forbid(jit, "jit") forbid(require "ffi", "ffi")
    forbid(os, "os", {clock = 1, date = 1, difftime = 1, time = 1})
    forbid(package, "package") forbid(package.preload, "package.preload")
    forbidden[package.loaded], forbidden[debug.getregistry()] = "package.loaded", "the registry"
    for _, name in ipairs{
        "load", "loadstring", "loadfile", "dofile", "setmetatable", "getmetatable", "rawget", "rawset", "rawequal", "rawlen",
        "setfenv", "getfenv", "newproxy", "collectgarbage", "gcinfo", "require", "module", "print",
    } do
        if _G[name] then forbidden[_G[name]] = name end
    end
    forbidden[string] = "string"
    local seen, found = {}, nil
    local function walk(value, path, depth)
        local kind = type(value)
        if kind == "cdata" or kind == "thread" then found = path .. " is a " .. kind return end
        if forbidden[value] then found = path .. " is " .. forbidden[value] return end
        if kind ~= "table" or seen[value] then return end
        seen[value] = true
        for key, field in next, value do
            walk(key, path .. ".key", depth + 1)
            walk(field, path .. "." .. tostring(key), depth + 1)
        end
        -- Without `getmetatable`, a snippet sees only what an index finds.
        local mt = debug.getmetatable(value)
        if mt then walk(rawget(mt, "__index"), path, depth + 1) end
    end
    local roots = ngx.roots
    ngx.roots = nil
    walk(roots, "sandbox", 0)
    error(found or ("walked " .. (next(seen) and "all" or "nothing")), 0)
"#;

#[test]
fn nothing_that_a_snippet_reaches_is_outside_of_the_sandbox() {
    let settings = LuaSettings {
        sandbox_requires: [
            "cjson",
            "cjson.safe",
            "resty.sha256",
            "resty.lrucache",
            "kong.tools.uuid",
        ]
        .map(str::to_owned)
        .into(),
        sandbox_environment: ["bit", "table.unpack", "no.such"].map(str::to_owned).into(),
        ..LuaSettings::default()
    };
    let snippet = "ngx.roots = {_G, kong, ngx, ngx.null}
        for at, name in ipairs{'cjson', 'cjson.safe', 'resty.sha256', 'resty.lrucache', 'kong.tools.uuid'} do
            ngx.roots[at + 4] = require(name)
        end
        local n = #ngx.roots
        for at, name in ipairs{'byte', 'dump', 'find', 'format', 'gsub', 'rep', 'buffer'} do ngx.roots[n + at] = (''):len() == 0 and (('')[name] or 1) end";
    let globals = Globals::new(&settings).expect("code may run");
    let result = run_all(vec![
        (snippet.to_owned(), globals),
        (WALK.to_owned(), Globals::all()),
    ]);
    assert_eq!(result, Err("walked all".to_owned()));
}

#[test]
fn bytecode_and_code_that_closes_its_function_are_refused() {
    for text in [
        "\u{1b}LJ\u{2}\u{2}",
        "end return function()",
        "return 1 end do local x = (function()",
        "--[==[",
        "'",
    ] {
        let result = run_all(vec![(text.to_owned(), Globals::sandbox())]);
        assert!(result.is_err(), "{text}");
        assert!(check_syntax(text).is_err(), "{text}");
    }
}

#[test]
fn snippets_do_not_see_the_globals_of_others() {
    let all = |texts: [&str; 2], globals: Globals| {
        run_all(
            texts
                .map(|text| (text.to_owned(), globals.clone()))
                .to_vec(),
        )
    };
    let texts = ["mine = 1 pairs = nil", "assert(mine == nil and pairs)"];
    assert_eq!(all(texts, Globals::sandbox()), Ok(()));
    // Without the sandbox they share their globals, but not with the code of this crate.
    let texts = [
        "mine = 1 error = nil",
        "assert(mine == 1 and rawget(_G, 'mine') == nil)",
    ];
    assert_eq!(all(texts, Globals::all()), Ok(()));
}

#[test]
fn the_settings_add_to_the_sandbox() {
    let settings = LuaSettings {
        sandbox_requires: ["cjson".to_owned()].into(),
        sandbox_environment: [
            "setmetatable",
            "io.open",
            "os.getenv",
            "bit",
            "no.such",
            "a..b",
            "",
            ".",
        ]
        .map(str::to_owned)
        .into(),
        ..LuaSettings::default()
    };
    let text = "assert(setmetatable and not getmetatable and io.open and not io.read and os.getenv and not os.time)
        assert(bit.band(3, 1) == 1) bit.x = 1
        assert(require('cjson').encode({1}) == '[1]')
        local ok, e = pcall(require, 'cjson.safe')
        assert(not ok and e:find(\"require 'cjson.safe' not allowed within sandbox\", 1, true), e)
        assert(no == nil and a == nil)";
    let globals = Globals::new(&settings).expect("code may run");
    let original = "assert(bit.x == nil)".to_owned();
    let texts = vec![(text.to_owned(), globals), (original, Globals::all())];
    assert_eq!(run_all(texts), Ok(()));
}
