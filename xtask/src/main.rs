//! Every check and generator of the repository: `cargo xtask demo | test | check | bench`. Needs Rust and a C compiler; `check`
//! also valgrind.

#![forbid(unsafe_code)]

mod bench;
mod check;
mod demo;
mod edges;
mod shell;
mod sizes;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask <command>

  demo    build the gateway, start it on demo/kong.yml with an upstream, show some requests, leave it running
  test    run every test
  check   formatting, crate edges, file sizes, dependencies, lints, documentation, every test (generated files are compared
          by tests), instruction counts (bench/instructions.json; needs valgrind); only some steps when they are named, such
          as: cargo xtask check formatting tests
  bench   measure the gateway beside other proxies and write a report (cargo xtask bench --help, bench/README.md)
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["demo"] => demo::run(demo::Then::Stay),
        ["demo", "--once"] => demo::run(demo::Then::Stop),
        ["test"] => check::test(),
        ["bench", words @ ..] => bench::run(words),
        ["check", only @ ..] => check::run(only),
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
