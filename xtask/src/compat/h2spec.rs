//! h2spec sends valid and invalid HTTP/2 frames and checks how the server reacts (RFC 9113, RFC 7541). Strict mode runs
//! every case.
//!
//! The upstream reads the whole request body before it responds, and its response has a body. h2spec skips its cases
//! about flow control if the response is empty. Its cases about malformed bodies need a response that begins only after
//! the body has been read.

use super::Bench;
use super::go::Program;
use super::report::{Case, Outcome};
use super::site::{self, Site, Speech};
use crate::shell;
use std::path::Path;
use std::process::Command;
use testkit::Echo;

/// Newest version in the module proxy. Later tags do not have the form that Go requires for modules.
const PROGRAM: Program = Program {
    package: "github.com/summerwind/h2spec/cmd/h2spec",
    version: "v2.2.1+incompatible",
};
/// Number of cases of this version in strict mode. Fewer cases mean that the run was incomplete.
const CASES: usize = 146;

pub(super) fn run(bench: &Bench<'_>) -> Result<Vec<Outcome>, String> {
    let Some(gateway) = bench.gateway else {
        eprintln!("note: h2spec has no server of its own");
        return Ok(Vec::new());
    };
    let program = bench.go.install(&PROGRAM)?;
    let site = Site {
        upstream: Echo::start().address,
        speech: Speech::Http,
        tls: false,
        routed: "http, https",
        plugin: None,
        certificate: None,
    };
    let gateway = site.start(gateway)?;
    let mut outcomes = Vec::new();
    for (way, tls) in [("cleartext", false), ("TLS", true)] {
        eprintln!("== h2spec over {way}");
        let report = bench.go.folder().join("h2spec.xml");
        // A report of an earlier run must not be read as the report of this run.
        let _ = std::fs::remove_file(&report);
        let mut command = Command::new(&program);
        command.args(["--strict", "--host", "127.0.0.1", "--port"]);
        command.arg(site::listener(&gateway, tls)?.port().to_string());
        command.arg("--junit-report").arg(&report);
        if tls {
            command.args(["--tls", "--insecure"]);
        }
        command.args(bench.only);
        // The exit status only says whether a case failed. The report says which cases failed.
        let _ = shell::output(&mut command);
        let outcome = read_report(way, &report)?;
        if bench.only.is_none() && outcome.cases() != CASES {
            return Err(format!(
                "h2spec over {way} ran {} cases of {CASES}",
                outcome.cases()
            ));
        }
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

fn read_report(way: &'static str, report: &Path) -> Result<Outcome, String> {
    let text = std::fs::read_to_string(report)
        .map_err(|error| format!("h2spec over {way} left no report: {error}"))?;
    let (passed, failed) = read(&text);
    Ok(Outcome {
        suite: "h2spec",
        version: "2.2.1".to_owned(),
        way,
        passed,
        failed,
        ..Outcome::default()
    })
}

/// Parses a report in JUnit's format. Returns the number of passed cases, and all other cases with the reason why they
/// did not pass. A skipped case does not count as passed.
fn read(report: &str) -> (usize, Vec<Case>) {
    let mut passed = 0;
    let mut failed = Vec::new();
    for case in report.split("<testcase ").skip(1) {
        let case = case.split("</testcase>").next().unwrap_or_default();
        let name = format!(
            "{}: {}",
            attribute(case, "package"),
            attribute(case, "classname")
        );
        if let Some(why) = between(case, "<failure>", "</failure>")
            .or_else(|| between(case, "<error>", "</error>"))
        {
            failed.push(Case::new(name, plain(why.trim())));
        } else if case.contains("<skipped") {
            failed.push(Case::new(name, "skipped"));
        } else {
            passed += 1;
        }
    }
    (passed, failed)
}

fn attribute(element: &str, name: &str) -> String {
    plain(between(element, &format!("{name}=\""), "\"").unwrap_or_default())
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(found, _)| found)
}

fn plain(text: &str) -> String {
    text.replace("&#34;", "\"")
        .replace("&#39;", "'")
        .replace("&#xA;", "\n")
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_tells_what_failed_and_what_was_skipped() {
        let report = "<testsuites><testsuite name=\"3.5\" tests=\"3\">\
            <testcase package=\"http2/3.5\" classname=\"Sends a &#34;preface&#34;\" time=\"0.1\"></testcase>\
            <testcase package=\"http2/4.2\" classname=\"Sends a frame\" time=\"2.0\"><error>\nTimeout</error></testcase>\
            <testcase package=\"http2/6.9\" classname=\"Waits\" time=\"0.0\"><skipped></skipped></testcase>\
            </testsuite></testsuites>";
        let failed = vec![
            Case::new("http2/4.2: Sends a frame", "Timeout"),
            Case::new("http2/6.9: Waits", "skipped"),
        ];
        assert_eq!(read(report), (1, failed));
    }
}
