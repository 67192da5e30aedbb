//! Programs written in Go, installed into the target directory by Go itself.

use crate::shell;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where Go's own archive puts it, for those who have not put it on the PATH.
const USUAL_PLACE: &str = "/usr/local/go/bin/go";

/// A program of a Go module.
pub(super) struct Program {
    pub(super) package: &'static str,
    pub(super) version: &'static str,
}

pub(super) struct Go {
    program: PathBuf,
    /// Below it each package has a folder for each version.
    folder: PathBuf,
}

impl Go {
    pub(super) fn find() -> Result<Self, String> {
        let candidates = [Path::new("go"), Path::new(USUAL_PLACE)];
        let works = |program: &&Path| {
            let output = Command::new(program).arg("version").output();
            output.is_ok_and(|output| output.status.success())
        };
        let program = candidates.into_iter().find(works).ok_or_else(|| {
            format!("nothing was run: the suites are Go programs, and there is no `go` on the PATH nor {USUAL_PLACE}")
        })?;
        Ok(Self {
            program: program.to_owned(),
            folder: shell::target_directory()?.join("compat"),
        })
    }

    /// Where files of a suite may be put.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The path of an installed program; installs it unless this version is there.
    pub(super) fn install(&self, program: &Program) -> Result<PathBuf, String> {
        let Program { package, version } = program;
        let name = package.rsplit('/').next().unwrap_or(package);
        let bin = self
            .folder
            .join(format!("{}@{version}", package.replace('/', "+")));
        let path = bin.join(name);
        if path.is_file() {
            return Ok(path);
        }
        eprintln!("installing {package}@{version} ...");
        let mut command = Command::new(&self.program);
        command
            .current_dir(self.writable()?)
            .env("GOBIN", &bin)
            .args(["install", &format!("{package}@{version}")]);
        shell::run(&mut command).map_err(|error| {
            format!(
                "{error}\nnothing was run: {package} {version} cannot be had from Go's module proxy"
            )
        })?;
        Ok(path)
    }

    /// The folder of a module's files, for test data that a suite keeps beside its programs.
    pub(super) fn module(&self, module: &str, version: &str) -> Result<PathBuf, String> {
        let mut command = Command::new(&self.program);
        command.current_dir(self.writable()?).args([
            "mod",
            "download",
            "-json",
            &format!("{module}@{version}"),
        ]);
        let text = shell::output(&mut command)?;
        let told: serde_json::Value =
            serde_json::from_str(&text).map_err(|error| format!("go mod download: {error}"))?;
        let folder = told["Dir"].as_str();
        folder
            .map(PathBuf::from)
            .ok_or_else(|| format!("go mod download {module} tells no folder"))
    }

    /// Outside of the repository's folders Go looks for no module of ours.
    fn writable(&self) -> Result<&Path, String> {
        std::fs::create_dir_all(&self.folder)
            .map_err(|error| format!("cannot make {}: {error}", self.folder.display()))?;
        Ok(&self.folder)
    }
}
