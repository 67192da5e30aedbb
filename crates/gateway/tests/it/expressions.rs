//! `silverback expr`: expressions on the command line, without a gateway.

use std::io::Write;
use std::process::{Command, Output, Stdio};

fn expr(words: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_silverback"));
    command
        .arg("expr")
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let mut stdin = child.stdin.take().expect("it was asked for");
    // A command that does not read standard input may have exited already.
    drop(stdin.write_all(input.as_bytes()));
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

fn told(output: &Output) -> (i32, String, String) {
    (
        output.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

#[test]
fn check_accepts_what_a_route_may_have() {
    let valid = r#"http.path ^= "/a" && http.method == "GET""#;
    for output in [expr(&["check", valid], ""), expr(&["check"], valid)] {
        assert_eq!(told(&output), (0, "valid\n".into(), String::new()));
    }
    let (status, _, errors) = told(&expr(&["check", "--stream", valid], ""));
    assert_eq!(status, 1);
    assert!(errors.contains("Unknown LHS field"), "{errors}");
}

#[test]
fn check_underlines_what_is_wrong_in_each_file() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).expect("writable");
        path.to_str().expect("a path in UTF-8").to_owned()
    };
    let field = file("field", r#"http.paht == "/a""#);
    let end = file("end", "http.path ==");
    let fine = file("fine", r#"http.path == "/""#);
    let words = ["check", "-f", &field, "-f", &end, "-f", &fine];
    let (status, output, errors) = told(&expr(&words, ""));
    assert_eq!((status, output.as_str()), (1, ""));
    for part in [
        &format!("error: {field}: Unknown LHS field"),
        "^-------^",
        "did you mean `http.path`?",
        &format!("error: {end}: "),
        "expected rhs",
    ] {
        assert!(errors.contains(part), "{part} is missing in:\n{errors}");
    }
    assert!(!errors.contains("fine"), "{errors}");
}

#[test]
fn suspicious_expressions_get_a_warning() {
    let (status, _, errors) = told(&expr(&["check", r#"http.path ~ "/a""#], ""));
    assert_eq!(status, 0);
    assert!(
        errors.starts_with("warning: http.path ~ \"/a\": "),
        "{errors}"
    );
}

#[test]
fn format_prints_or_rewrites_files_and_changes_nothing_twice() {
    let (status, output, _) = told(&expr(&["format"], "  a.b==\"c\"||(d == 0x10&&e != 1)\n"));
    assert_eq!(
        (status, output.as_str()),
        (0, "a.b == \"c\" || (d == 16 && e != 1)\n")
    );
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("long");
    let parts: Vec<String> = (0..20).map(|number| format!("x == {number}")).collect();
    std::fs::write(&path, parts.join("&&")).expect("writable");
    let name = path.to_str().expect("a path in UTF-8");
    let words = ["format", "--width", "20", "--write", "-f", name];
    assert_eq!(told(&expr(&words, "")).0, 0);
    let once = std::fs::read_to_string(&path).expect("readable");
    assert_eq!(once.lines().count(), 20, "{once}");
    assert_eq!(told(&expr(&words, "")).0, 0);
    assert_eq!(std::fs::read_to_string(&path).expect("readable"), once);
}

#[test]
fn explain_describes_an_expression_in_words() {
    let text = r#"http.path ^= "/a" && lower(http.headers.x_y) == "B""#;
    let (status, output, _) = told(&expr(&["explain", text], ""));
    assert_eq!(status, 0);
    for part in [
        "all of these hold:\n",
        "the path begins with \"/a\"\n",
        "the header x-y, in lower case, is \"B\"\n",
        "Careful:\n",
    ] {
        assert!(output.contains(part), "{part} is missing in:\n{output}");
    }
}
