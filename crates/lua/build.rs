//! Compiles LuaJIT, whose sources are in the crate `luajit-src`, and LPeg (`vendor/lpeg`).
//!
//! LuaJIT is compiled with `LUAJIT_ENABLE_CHECKHOOK`: compiled loops then look at the hook, so that a loop without an end
//! can be stopped. The build of `luajit-src` runs `make -e`, in which variables of the environment replace those of the
//! Makefile. It sets `XCFLAGS` itself, so the flag goes into `TARGET_CFLAGS`.
//!
//! If Rust's code is compiled with AddressSanitizer (`cargo xtask check sanitizer`), LuaJIT's C code is, too. Its
//! interpreter and what it compiles are not checked.

const LPEG: &str = "../../vendor/lpeg";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={LPEG}");
    let mut flags = std::env::var("TARGET_CFLAGS").unwrap_or_default();
    flags.push_str(" -DLUAJIT_ENABLE_CHECKHOOK");
    let sanitizers = std::env::var("CARGO_CFG_SANITIZE").unwrap_or_default();
    let mut linker_flags = std::env::var("TARGET_LDFLAGS").unwrap_or_default();
    if sanitizers.split(',').any(|name| name == "address") {
        flags.push_str(" -fsanitize=address -fno-omit-frame-pointer");
        // LuaJIT's own program, which is not used, is linked, too.
        linker_flags.push_str(" -fsanitize=address");
    }
    // SAFETY: a build script has one thread, so nothing reads the environment at the same time.
    #[expect(
        unsafe_code,
        clippy::disallowed_methods,
        reason = "the build of `luajit-src` has no other way"
    )]
    unsafe {
        std::env::set_var("TARGET_CFLAGS", flags);
        std::env::set_var("TARGET_LDFLAGS", linker_flags);
    }
    let mut build = luajit_src::Build::new();
    // OpenResty compiles LuaJIT with the same compatibility. A debug build of ours would switch on LuaJIT's assertions.
    build.debug(false).lua52compat(true);
    let luajit = build.build();
    cc::Build::new()
        .files(
            ["lpcap", "lpcode", "lpcset", "lptree", "lpvm"].map(|name| format!("{LPEG}/{name}.c")),
        )
        .include(luajit.include_dir())
        .define("NDEBUG", None)
        // Errors of Lua unwind through its functions.
        .flag("-fexceptions")
        .warnings(false)
        .compile("lpeg");
    // After what needs it.
    luajit.print_cargo_metadata();
}
