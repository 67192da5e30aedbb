//! Every check and generator of the repository: `cargo xtask demo | release | test | check | pages | fuzz | bench | soak |
//! compat`. Needs Rust and a C compiler; `check` also needs valgrind.

#![forbid(unsafe_code)]

mod bench;
mod check;
mod compat;
mod demo;
mod edges;
mod fuzz;
mod observe;
mod pages;
mod release;
mod sanitizer;
mod shell;
mod sizes;
mod soak;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask <command>

  demo    build the gateway, start it with demo/kong.yml and an upstream, show some requests, keep it running
          with --observe, also a Prometheus and an OpenTelemetry collector that watch it, and Grafana where it is installed
  release build the release binary, with its debug information in a file beside it (needs objcopy of binutils)
  test    run every test
  check   formatting, crate edges, file sizes, dependencies, lints, documentation, every test (generated files are compared
          by tests), clients of Kong (where there is Go), rules and dashboards with a real Prometheus, commands and links of the documentation, fuzz targets, the tests of
          the unsafe code of Lua under AddressSanitizer, Lua code that does harm under load (ten minutes in CI, one elsewhere),
          instruction counts (bench/instructions.json; needs valgrind); only some steps when they are named, such as:
          cargo xtask check formatting tests
  pages   run the commands of the documentation and compare their output with the pages, and check all links:
          cargo xtask pages [--gateway PROGRAM] [PAGE...]
  fuzz    run the fuzz targets, or one: cargo xtask fuzz [TARGET] [--seconds N]; with a nightly toolchain and cargo-fuzz where they
          are installed, otherwise on the committed corpora and mutations of them
  bench   compare the gateway with other proxies and write a report (cargo xtask bench --help, bench/README.md)
  soak    the endurance tests in full: 100,000 random change sets with crashes, a thousand kills during writes, millions of
          routing decisions compared with a simple reference, an hour of Lua code that does harm; or one of them:
          cargo xtask soak [store | kills | router | lua] [--seed N]
          lua runs for a given time, and writes its result to a file: [--minutes N] [--output FILE]
  compat  protocol suites of other projects, clients of Kong and Prometheus against the gateway (cargo xtask compat --help;
          docs/compatibility.md; needs Go)
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["demo"] => demo::run(demo::Then::Stay),
        ["demo", "--observe"] => demo::run(demo::Then::Observe),
        ["demo", "--once"] => demo::run(demo::Then::Stop),
        ["release"] => release::run(),
        ["test"] => check::test(),
        ["pages", words @ ..] => pages::run(words),
        ["fuzz", words @ ..] => fuzz::run(words),
        ["bench", words @ ..] => bench::run(words),
        ["check", only @ ..] => check::run(only),
        ["soak", words @ ..] => soak::run(words),
        ["compat", words @ ..] => compat::run(words),
        // An internal command: the conformance suite starts it as its server.
        ["compat-server", address] => compat::stand_in(address),
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
