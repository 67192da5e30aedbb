//! Programs written in Go, installed into the target directory by Go itself: released ones, and ones of a module's folder.

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

/// Why something of Go's is not to be had.
pub(super) enum Trouble {
    /// There is no Go, or no way to the module proxy.
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
    /// Below it each package has a folder for each version.
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
            .ok_or_else(|| format!("go mod download {module} tells no folder").into())
    }

    /// Gets all that the packages of a module's folder need, tests included. What fails here is the way to the module proxy.
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

    /// Runs a command of Go's in a module's folder that makes a program, and gives its path. Go does again only what has
    /// changed.
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

    /// Outside of the repository's folders Go looks for no module of ours.
    fn writable(&self) -> Result<&Path, String> {
        std::fs::create_dir_all(&self.folder)
            .map_err(|error| format!("cannot make {}: {error}", self.folder.display()))?;
        Ok(&self.folder)
    }
}
