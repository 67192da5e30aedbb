//! Tests of the crate `lua`, which has nearly all unsafe code, under AddressSanitizer. The standard library is not
//! compiled with it, but its allocations are checked.

use crate::shell::{self, cargo};
use std::process::Command;

/// The targets for which the sanitizer exists and LuaJIT's C code can be compiled with it.
const TARGETS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

/// Runs the tests. It takes about 30 seconds, and 3 minutes more when everything must be compiled.
pub(crate) fn check() -> Result<(), String> {
    let target = host()?;
    if !TARGETS.contains(&&*target) {
        eprintln!("note: AddressSanitizer is not used on {target}");
        return Ok(());
    }
    let mut command = cargo(&["test", "--package", "lua", "--target", &target]);
    command
        .arg("--target-dir")
        .arg(shell::target_directory()?.join("sanitizer"))
        // The flag is not stable. With this variable, a stable compiler accepts it.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", "-Zsanitizer=address");
    shell::run(&mut command)
}

/// Returns the target for which the compiler compiles by default.
fn host() -> Result<String, String> {
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = shell::output(Command::new(compiler).arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
        .ok_or_else(|| "rustc does not show its host".to_owned())
}
