//! Functions that run programs, mainly cargo.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

/// Returns the root of the repository. It is queried at run time, because a path from compile time may belong to
/// another clone that shares the target directory.
pub(crate) fn root() -> &'static Path {
    static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
        let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        let root = package.as_deref().and_then(Path::parent);
        root.map_or_else(|| PathBuf::from("."), Path::to_owned)
    });
    &ROOT
}

/// Returns a command for the cargo that runs this program, so that a toolchain override stays in effect.
pub(crate) fn cargo(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(words);
    command
}

/// Runs a command to its end and shows its output.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let shown = show(command);
    let status = command
        .status()
        .map_err(|error| format!("cannot run {shown}: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{shown} failed ({status})"))
    }
}

/// Runs a command to its end and returns its output.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let shown = show(command);
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot run {shown}: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{shown} failed ({})", output.status))
    }
}

/// Returns `cargo metadata` for the workspace, without external dependencies.
pub(crate) fn metadata() -> Result<serde_json::Value, String> {
    let text = output(&mut cargo(&[
        "metadata",
        "--no-deps",
        "--format-version",
        "1",
    ]))?;
    serde_json::from_str(&text).map_err(|error| format!("cargo metadata: {error}"))
}

/// Returns cargo's target directory.
pub(crate) fn target_directory() -> Result<PathBuf, String> {
    let metadata = metadata()?;
    let directory = metadata["target_directory"].as_str();
    directory
        .map(PathBuf::from)
        .ok_or_else(|| "cargo metadata has no target directory".to_owned())
}

fn show(command: &Command) -> String {
    let mut shown = command
        .get_program()
        .to_string_lossy()
        .rsplit('/')
        .next()
        .unwrap_or_default()
        .to_owned();
    for word in command.get_args() {
        shown.push(' ');
        shown.push_str(&word.to_string_lossy());
    }
    shown
}
