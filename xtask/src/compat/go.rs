//! Programs written in Go, which Go itself installs into the target directory: released programs, and programs of a
//! module in this repository.

use crate::shell;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Path of Go's own installation, for users who do not have it on their PATH.
const USUAL_PLACE: &str = "/usr/local/go/bin/go";

/// A program in a Go module.
pub(super) struct Program {
    pub(super) package: &'static str,
    pub(super) version: &'static str,
}

/// The reason why Go or a Go program is not available.
pub(super) enum Trouble {
    /// Go is not installed or cannot reach the module proxy.
    Absent(String),
    Failed(String),
}

impl From<String> for Trouble {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

impl From<Trouble> for String {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Absent(why) | Trouble::Failed(why) => why,
        }
    }
}

pub(super) struct Go {
    program: PathBuf,
    /// Directory with a subdirectory for each package and version.
    folder: PathBuf,
}

impl Go {
    pub(super) fn find() -> Result<Self, Trouble> {
        let candidates = [Path::new("go"), Path::new(USUAL_PLACE)];
        let works = |program: &&Path| {
            let output = Command::new(program).arg("version").output();
            output.is_ok_and(|output| output.status.success())
        };
        let program = candidates.into_iter().find(works).ok_or_else(|| {
            Trouble::Absent(format!("nothing was run: the suites are Go programs, and there is no `go` on the PATH nor {USUAL_PLACE}"))
        })?;
        Ok(Self {
            program: program.to_owned(),
            folder: shell::target_directory()?.join("compat"),
        })
    }

    /// Directory in which suites may create files.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the path of an installed program, after installing it if this version is missing.
    pub(super) fn install(&self, program: &Program) -> Result<PathBuf, String> {
        self.install_with(program, &[])
    }

    /// Like [`Go::install`], with further arguments of `go install`.
    pub(super) fn install_with(
        &self,
        program: &Program,
        words: &[&str],
    ) -> Result<PathBuf, String> {
        let Program { package, version } = program;
        let (bin, path) = self.place(program);
        if path.is_file() {
            return Ok(path);
        }
        eprintln!("installing {package}@{version} ...");
        let mut command = Command::new(&self.program);
        command
            .current_dir(self.writable()?)
            .env("GOBIN", &bin)
            // None of the programs needs C.
            .env("CGO_ENABLED", "0")
            .arg("install")
            .args(words)
            .arg(format!("{package}@{version}"));
        shell::run(&mut command).map_err(|error| {
            format!(
                "{error}\nnothing was run: {package} {version} cannot be had from Go's module proxy"
            )
        })?;
        Ok(path)
    }

    /// Like [`Go::install`], for a program of a module that replaces other modules: `go install` refuses such a program.
    pub(super) fn install_within(
        &self,
        module: &str,
        program: &Program,
    ) -> Result<PathBuf, String> {
        let Program { package, version } = program;
        let (_, path) = self.place(program);
        if path.is_file() {
            return Ok(path);
        }
        eprintln!("building {package}@{version} ...");
        let mut command = Command::new(&self.program);
        command
            .current_dir(self.module(module, version)?)
            .env("CGO_ENABLED", "0")
            .args(["build", "-o"])
            .arg(&path)
            .arg(package);
        shell::run(&mut command)?;
        Ok(path)
    }

    /// Returns the directory of a program, and its path.
    fn place(&self, program: &Program) -> (PathBuf, PathBuf) {
        let Program { package, version } = program;
        let name = package.rsplit('/').next().unwrap_or(package);
        let folder = format!("{}@{version}", package.replace('/', "+"));
        let bin = self.folder.join(folder);
        let path = bin.join(name);
        (bin, path)
    }

    /// Returns the directory of a module's files, for test data that a suite keeps next to its programs.
    pub(super) fn module(&self, module: &str, version: &str) -> Result<PathBuf, Trouble> {
        let mut command = Command::new(&self.program);
        command.current_dir(self.writable()?).args([
            "mod",
            "download",
            "-json",
            &format!("{module}@{version}"),
        ]);
        let text = shell::output(&mut command).map_err(Trouble::Absent)?;
        let told: serde_json::Value =
            serde_json::from_str(&text).map_err(|error| format!("go mod download: {error}"))?;
        let folder = told["Dir"].as_str();
        folder
            .map(PathBuf::from)
            .ok_or_else(|| format!("go mod download {module} reported no directory").into())
    }

    /// Downloads all dependencies of the packages in a module's directory, including those of tests. A failure here
    /// means that the module proxy cannot be reached.
    pub(super) fn fetch(&self, module: &Path, packages: &str) -> Result<(), Trouble> {
        let mut command = Command::new(&self.program);
        let command = command
            .current_dir(module)
            .args(["list", "-deps", "-test", packages]);
        shell::output(command).map(drop).map_err(|error| {
            Trouble::Absent(format!(
                "{error}\nwhat {} needs cannot be had from Go's module proxy",
                module.display()
            ))
        })
    }

    /// Runs a Go command that builds a program in a module's directory, and returns the program's path. Go rebuilds
    /// only packages that have changed.
    pub(super) fn make(
        &self,
        module: &Path,
        words: &[&str],
        name: &str,
    ) -> Result<PathBuf, String> {
        let path = self.writable()?.join(name);
        let (verb, rest) = words.split_first().ok_or("no command")?;
        let mut command = Command::new(&self.program);
        command
            .current_dir(module)
            .arg(verb)
            .arg("-o")
            .arg(&path)
            .args(rest);
        shell::run(&mut command)?;
        Ok(path)
    }

    /// Creates and returns a directory in which Go finds no module of this repository.
    fn writable(&self) -> Result<&Path, String> {
        std::fs::create_dir_all(&self.folder)
            .map_err(|error| format!("cannot make {}: {error}", self.folder.display()))?;
        Ok(&self.folder)
    }
}
