//! request-transformer: changes path, method, headers, body and query of the request for the upstream. Source of the
//! behaviour: kong/plugins/request-transformer/access.lua.

mod arguments;
mod body;
mod config;
mod headers;
mod lua;
mod rules;
mod template;
#[cfg(test)]
mod testing;
