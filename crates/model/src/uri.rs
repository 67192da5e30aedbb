//! Paths: normalisation for matching, escaping towards the upstream. Source: kong/tools/uri.lua.
