//! Installs the libraries of the suite `oauth2` into the target directory, in the versions of the files beside the
//! programs. npm and pip install them; neither runs code of a package for that.

use super::{FOLDER, Language, Library};
use crate::shell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What runs the programs.
pub(super) struct Packages {
    /// The program in Go.
    pub(super) go: PathBuf,
    /// Directory with the programs for Node.js and their packages.
    pub(super) node: PathBuf,
    /// Directory with the programs in Python and their environment.
    pub(super) python: PathBuf,
}

impl Packages {
    pub(super) fn command(&self, library: &Library) -> Command {
        match library.language {
            Language::Go => {
                let mut command = Command::new(&self.go);
                command.arg("cases");
                command
            }
            Language::Node(file) => {
                let mut command = Command::new("node");
                command.arg(self.node.join(file));
                command
            }
            Language::Python(file) => {
                let mut command = Command::new(interpreter(&self.python));
                command.arg(self.python.join(file));
                command
            }
        }
    }
}

/// Installs the packages for Node.js, and returns the directory with them and the programs.
pub(super) fn node(folder: &Path) -> Result<PathBuf, String> {
    let missing = "nothing was run: openid-client and simple-oauth2 need Node.js 20 or newer with npm on the PATH \
                   (on Debian: apt-get install nodejs npm)";
    must_work("node", "--version", missing)?;
    must_work("npm", "--version", missing)?;
    install(folder, "node", "package-lock.json", || {
        let mut command = Command::new("npm");
        command
            .current_dir(folder)
            .args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"]);
        shell::run(&mut command).map_err(|error| {
            format!("{error}\nnothing was run: the packages of {FOLDER}/node cannot be had from npm's registry")
        })
    })
}

/// Installs the packages for Python, and returns the directory with them and the programs.
pub(super) fn python(folder: &Path) -> Result<PathBuf, String> {
    let missing = "nothing was run: Authlib, requests-oauthlib and oauthlib need Python 3.10 or newer as python3 on the \
                   PATH, with venv (on Debian: apt-get install python3 python3-venv)";
    must_work("python3", "--version", missing)?;
    install(folder, "python", "requirements.txt", || {
        let mut command = Command::new("python3");
        command
            .current_dir(folder)
            .args(["-m", "venv", "--clear", "venv"]);
        shell::run(&mut command).map_err(|error| format!("{error}\n{missing}"))?;
        let mut command = Command::new(interpreter(folder));
        let words = ["-m", "pip", "install", "--quiet", "--only-binary", ":all:"];
        command.current_dir(folder).args(words).args([
            "--no-deps",
            "--disable-pip-version-check",
            "-r",
            "requirements.txt",
        ]);
        shell::run(&mut command).map_err(|error| {
            format!(
                "{error}\nnothing was run: the packages of {FOLDER}/python cannot be had from PyPI"
            )
        })
    })
}

fn interpreter(folder: &Path) -> PathBuf {
    folder.join("venv").join("bin").join("python")
}

fn must_work(program: &str, word: &str, otherwise: &str) -> Result<(), String> {
    let output = Command::new(program).arg(word).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        _ => Err(otherwise.to_owned()),
    }
}

/// Copies the programs and the list of packages from the repository's directory `name`. Installs the packages unless
/// that was done for the same list before.
fn install(
    folder: &Path,
    name: &str,
    list: &str,
    install: impl FnOnce() -> Result<(), String>,
) -> Result<PathBuf, String> {
    copy(&shell::root().join(FOLDER).join(name), folder)
        .map_err(|error| format!("cannot copy {FOLDER}/{name}: {error}"))?;
    let wanted = fs::read(folder.join(list)).map_err(|error| format!("{list}: {error}"))?;
    let installed = folder.join("installed");
    if fs::read(&installed).is_ok_and(|present| present == wanted) {
        return Ok(folder.to_owned());
    }
    eprintln!("installing the packages of {FOLDER}/{name} ...");
    install()?;
    fs::write(&installed, wanted).map_err(|error| format!("{}: {error}", installed.display()))?;
    Ok(folder.to_owned())
}

/// Copies the files of a directory, without those in its directories.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// Returns the version of a library, from the file that decides about it.
pub(super) fn version(library: &Library) -> Result<String, String> {
    let (file, before) = match library.language {
        Language::Node(_) => ("node/package.json", format!("\"{}\": \"", library.name)),
        Language::Python(_) => ("python/requirements.txt", format!("{}==", library.name)),
        Language::Go => ("go/go.mod", format!("{} v", library.name)),
    };
    let path = shell::root().join(FOLDER).join(file);
    let text = fs::read_to_string(path).map_err(|error| format!("{FOLDER}/{file}: {error}"))?;
    find_version(&text, &before)
        .ok_or_else(|| format!("{FOLDER}/{file} has no version of {}", library.name))
}

fn find_version(text: &str, before: &str) -> Option<String> {
    let lines = text
        .lines()
        .map(|line| line.trim().trim_start_matches("require "));
    let mut found = lines.filter_map(|line| line.strip_prefix(before));
    let end = |letter: char| !(letter.is_ascii_alphanumeric() || letter == '.');
    let version = found.next()?.split(end).next()?;
    Some(version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_the_files_of_each_language() {
        let requirements = "requests-oauthlib==2.0.0\noauthlib==4.0.1\n";
        let version = |text, before| find_version(text, before);
        assert_eq!(version(requirements, "oauthlib=="), Some("4.0.1".into()));
        let package = "{\n  \"simple-oauth2\": \"5.1.0\",\n}";
        let found = version(package, "\"simple-oauth2\": \"");
        assert_eq!(found, Some("5.1.0".into()));
        let module = "go 1.26\n\nrequire golang.org/x/oauth2 v0.38.0\n";
        let found = version(module, "golang.org/x/oauth2 v");
        assert_eq!(found, Some("0.38.0".into()));
        assert_eq!(version(module, "other v"), None);
    }
}
