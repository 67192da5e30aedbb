//! The Lua code of this crate.

use std::ffi::CStr;

/// The Lua files of this crate, in the order in which they run. Each gets the table that they share.
pub(crate) const FILES: &[(&CStr, &str)] = &[
    (c"=lua/core.lua", include_str!("lua/core.lua")),
    (c"=lua/coroutine.lua", include_str!("lua/coroutine.lua")),
    (c"=lua/extras.lua", include_str!("lua/extras.lua")),
    (c"=lua/guard.lua", include_str!("lua/guard.lua")),
    (c"=lua/json.lua", include_str!("lua/json.lua")),
    (
        c"=./kong/pdk/private/phases.lua",
        include_str!("lua/pdk_phases.lua"),
    ),
    (c"=lua/lib_cjson.lua", include_str!("lua/lib_cjson.lua")),
    (c"=./kong/pdk/init.lua", include_str!("lua/pdk.lua")),
    (
        c"=./kong/pdk/request.lua",
        include_str!("lua/pdk_request.lua"),
    ),
    (c"=./kong/tools/mime.lua", include_str!("lua/pdk_body.lua")),
    (
        c"=./kong/pdk/service.lua",
        include_str!("lua/pdk_service.lua"),
    ),
    (
        c"=./kong/pdk/response.lua",
        include_str!("lua/pdk_response.lua"),
    ),
    (
        c"=./kong/pdk/service/request.lua",
        include_str!("lua/pdk_service_request.lua"),
    ),
    (
        c"=./kong/pdk/client.lua",
        include_str!("lua/pdk_client.lua"),
    ),
    (
        c"=./kong/pdk/client/tls.lua",
        include_str!("lua/pdk_client_tls.lua"),
    ),
    (
        c"=./kong/pdk/router.lua",
        include_str!("lua/pdk_router.lua"),
    ),
    (c"=./kong/pdk/log.lua", include_str!("lua/pdk_log.lua")),
    (c"=./kong/pdk/node.lua", include_str!("lua/pdk_node.lua")),
    (
        c"=./kong/pdk/tracing.lua",
        include_str!("lua/pdk_tracing.lua"),
    ),
    (c"=./kong/pdk/vault.lua", include_str!("lua/pdk_vault.lua")),
    (c"=./kong/db/dao/init.lua", include_str!("lua/pdk_db.lua")),
    (c"=ngx.lua", include_str!("lua/ngx.lua")),
    (c"=ngx_output.lua", include_str!("lua/ngx_output.lua")),
    (c"=ngx_var.lua", include_str!("lua/ngx_var.lua")),
    (c"=ngx_text.lua", include_str!("lua/ngx_text.lua")),
    (
        c"=./kong/globalpatches.lua",
        include_str!("lua/ngx_patched.lua"),
    ),
    (c"=ngx_req.lua", include_str!("lua/ngx_req.lua")),
    (c"=ngx_ctx.lua", include_str!("lua/ngx_ctx.lua")),
    (c"=ngx_re.lua", include_str!("lua/ngx_re.lua")),
    (
        c"=./resty/core/shdict.lua",
        include_str!("lua/ngx_shared.lua"),
    ),
    (
        c"=./resty/timerng/init.lua",
        include_str!("lua/ngx_timer.lua"),
    ),
    (
        c"=./resty/events/compat/init.lua",
        include_str!("lua/events.lua"),
    ),
    (
        c"=./kong/resty/mlcache/init.lua",
        include_str!("lua/cache.lua"),
    ),
    (c"=lua/lib_hash.lua", include_str!("lua/lib_hash.lua")),
    (c"=lua/lib_cache.lua", include_str!("lua/lib_cache.lua")),
    (c"=lua/lib_modules.lua", include_str!("lua/lib_modules.lua")),
    (
        c"=./kong/tools/kong-lua-sandbox.lua",
        include_str!("lua/kong_lua_sandbox.lua"),
    ),
    (
        c"=./kong/tools/sandbox.lua",
        include_str!("lua/sandbox.lua"),
    ),
];
