//! The Lua libraries of others that Lua code can load: texts in the program, compiled when they are first required.

use super::{Cx, FOUND, NONE};

/// Names of modules with their texts.
const MODULES: &[(&str, &str)] = &[
    (
        "inspect",
        include_str!("../../../../vendor/inspect/inspect.lua"),
    ),
    (
        "kong.resty.mlcache",
        include_str!("../../../../vendor/mlcache/mlcache.lua"),
    ),
    (
        "kong.resty.mlcache.ipc",
        include_str!("../../../../vendor/mlcache/ipc.lua"),
    ),
    ("re", include_str!("../../../../vendor/lpeg/re.lua")),
    (
        "pl.Date",
        include_str!("../../../../vendor/penlight/Date.lua"),
    ),
    (
        "pl.List",
        include_str!("../../../../vendor/penlight/List.lua"),
    ),
    (
        "pl.Map",
        include_str!("../../../../vendor/penlight/Map.lua"),
    ),
    (
        "pl.MultiMap",
        include_str!("../../../../vendor/penlight/MultiMap.lua"),
    ),
    (
        "pl.OrderedMap",
        include_str!("../../../../vendor/penlight/OrderedMap.lua"),
    ),
    (
        "pl.Set",
        include_str!("../../../../vendor/penlight/Set.lua"),
    ),
    (
        "pl.array2d",
        include_str!("../../../../vendor/penlight/array2d.lua"),
    ),
    (
        "pl.class",
        include_str!("../../../../vendor/penlight/class.lua"),
    ),
    (
        "pl.compat",
        include_str!("../../../../vendor/penlight/compat.lua"),
    ),
    (
        "pl.comprehension",
        include_str!("../../../../vendor/penlight/comprehension.lua"),
    ),
    (
        "pl.config",
        include_str!("../../../../vendor/penlight/config.lua"),
    ),
    (
        "pl.data",
        include_str!("../../../../vendor/penlight/data.lua"),
    ),
    (
        "pl.func",
        include_str!("../../../../vendor/penlight/func.lua"),
    ),
    (
        "pl.import_into",
        include_str!("../../../../vendor/penlight/import_into.lua"),
    ),
    (
        "pl.input",
        include_str!("../../../../vendor/penlight/input.lua"),
    ),
    (
        "pl.lexer",
        include_str!("../../../../vendor/penlight/lexer.lua"),
    ),
    (
        "pl.luabalanced",
        include_str!("../../../../vendor/penlight/luabalanced.lua"),
    ),
    (
        "pl.operator",
        include_str!("../../../../vendor/penlight/operator.lua"),
    ),
    (
        "pl.permute",
        include_str!("../../../../vendor/penlight/permute.lua"),
    ),
    (
        "pl.pretty",
        include_str!("../../../../vendor/penlight/pretty.lua"),
    ),
    (
        "pl.seq",
        include_str!("../../../../vendor/penlight/seq.lua"),
    ),
    (
        "pl.sip",
        include_str!("../../../../vendor/penlight/sip.lua"),
    ),
    (
        "pl.stringio",
        include_str!("../../../../vendor/penlight/stringio.lua"),
    ),
    (
        "pl.stringx",
        include_str!("../../../../vendor/penlight/stringx.lua"),
    ),
    (
        "pl.tablex",
        include_str!("../../../../vendor/penlight/tablex.lua"),
    ),
    (
        "pl.template",
        include_str!("../../../../vendor/penlight/template.lua"),
    ),
    (
        "pl.text",
        include_str!("../../../../vendor/penlight/text.lua"),
    ),
    (
        "pl.types",
        include_str!("../../../../vendor/penlight/types.lua"),
    ),
    (
        "pl.url",
        include_str!("../../../../vendor/penlight/url.lua"),
    ),
    (
        "pl.utils",
        include_str!("../../../../vendor/penlight/utils.lua"),
    ),
    (
        "pl.xml",
        include_str!("../../../../vendor/penlight/xml.lua"),
    ),
];

/// Returns the text of a module, if there is one with this name.
pub(super) fn text(cx: &mut Cx, name: &[u8]) -> i32 {
    let found = MODULES.iter().find(|(known, _)| known.as_bytes() == name);
    match found {
        Some((_, text)) => {
            cx.offer(text.as_bytes(), b"");
            FOUND
        }
        None => NONE,
    }
}
