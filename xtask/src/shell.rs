//! Running programs, cargo above all.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

/// The root of the repository that this is run for. Asked at run time: what is known at compile time may be another clone
/// that shares the target directory.
pub(crate) fn root() -> &'static Path {
    static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
        let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        let root = package.as_deref().and_then(Path::parent);
        root.map_or_else(|| PathBuf::from("."), Path::to_owned)
    });
    &ROOT
}

/// The cargo that runs this, so that a toolchain override holds.
pub(crate) fn cargo(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(words);
    command
}

/// Runs to the end with its output shown.
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

/// Runs to the end and gives what it printed.
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

/// `cargo metadata`, without dependencies of other sources.
pub(crate) fn metadata() -> Result<serde_json::Value, String> {
    let text = output(&mut cargo(&[
        "metadata",
        "--no-deps",
        "--format-version",
        "1",
    ]))?;
    serde_json::from_str(&text).map_err(|error| format!("cargo metadata: {error}"))
}

/// Where cargo puts what it builds.
pub(crate) fn target_directory() -> Result<PathBuf, String> {
    let metadata = metadata()?;
    let directory = metadata["target_directory"].as_str();
    directory
        .map(PathBuf::from)
        .ok_or_else(|| "cargo metadata tells no target directory".to_owned())
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
