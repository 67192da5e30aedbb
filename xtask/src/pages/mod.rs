//! Checks of the documentation. Runs the commands of each page in order on the built gateway, and compares their output
//! with the output on the page. Also checks the links between pages.
//!
//! A `sh` block holds commands. A `text`, `json`, `yaml` or `http` block right after it shows their output, in which
//! `…` matches any text, and a line with only `…` matches any lines. `sh background` runs until the end of the page,
//! `sh fails` must exit with a status other than 0, and `sh norun` is not run.

mod expected;
mod links;
mod page;
mod ports;
mod session;

use crate::compat;
use crate::shell::{self, cargo};
use page::{Block, Way};
use ports::Ports;
use session::Session;
use std::fs;
use std::path::{Path, PathBuf};

/// Pages that are run, in addition to the page of every example.
const PAGES: [&str; 15] = [
    "docs/quick-start.md",
    "docs/migrating-from-kong.md",
    "docs/troubleshooting.md",
    "docs/operations.md",
    "docs/upgrading.md",
    "docs/observability.md",
    "docs/tracing.md",
    "docs/profiling.md",
    "docs/configuring.md",
    "docs/declarative-configuration.md",
    "docs/history.md",
    "docs/admin-access.md",
    "docs/admin-api.md",
    "docs/routing.md",
    "docs/expressions.md",
];
const EXAMPLES: &str = "examples";

/// Checks all links, then runs the named pages, or all pages if none is named.
pub(crate) fn run(words: &[&str]) -> Result<(), String> {
    let (gateway, named) = match words {
        ["--gateway", gateway, named @ ..] => (PathBuf::from(gateway), named),
        named => (build()?, named),
    };
    let mut problems = links::broken()?;
    let programs = Programs::prepare(&gateway)?;
    let chosen = match named {
        [] => all()?,
        named => named.iter().map(|page| (*page).to_owned()).collect(),
    };
    for page in chosen {
        eprintln!("{page}");
        if let Err(problem) = programs.run(&page) {
            problems.push(format!("{page}: {problem}"));
        }
    }
    match problems.as_slice() {
        [] => Ok(()),
        problems => Err(problems.join("\n")),
    }
}

/// Builds the gateway with the profile of the tests.
fn build() -> Result<PathBuf, String> {
    shell::run(&mut cargo(&["build", "--package", "gateway"]))?;
    Ok(shell::target_directory()?.join("debug").join("silverback"))
}

/// Returns the paths of all pages that are run, relative to the root.
fn all() -> Result<Vec<String>, String> {
    let mut pages: Vec<String> = PAGES.iter().map(|page| (*page).to_owned()).collect();
    let folder = shell::root().join(EXAMPLES);
    let entries =
        fs::read_dir(&folder).map_err(|error| format!("cannot read {EXAMPLES}: {error}"))?;
    let mut examples = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| format!("cannot read {EXAMPLES}: {error}"))?;
        if entry.path().join("README.md").is_file() {
            let name = entry.file_name().to_string_lossy().into_owned();
            examples.push(format!("{EXAMPLES}/{name}/README.md"));
        }
    }
    examples.sort();
    pages.append(&mut examples);
    Ok(pages)
}

/// The programs that pages run: the gateway, and decK if it is available.
struct Programs {
    /// Directory that contains only these programs.
    folder: PathBuf,
    has_deck: bool,
}

impl Programs {
    fn prepare(gateway: &Path) -> Result<Self, String> {
        let folder = shell::target_directory()?.join("pages");
        let fail = |error: std::io::Error| format!("cannot prepare {}: {error}", folder.display());
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(fail)?;
        }
        fs::create_dir_all(&folder).map_err(fail)?;
        let gateway =
            fs::canonicalize(gateway).map_err(|error| format!("{}: {error}", gateway.display()))?;
        std::os::unix::fs::symlink(gateway, folder.join("silverback")).map_err(fail)?;
        let deck = compat::deck()?;
        if let Some(deck) = &deck {
            std::os::unix::fs::symlink(deck, folder.join("deck")).map_err(fail)?;
        }
        Ok(Self {
            has_deck: deck.is_some(),
            folder,
        })
    }

    /// Runs the page in a new directory. For an example, the directory starts with a copy of the files next to its
    /// page.
    fn run(&self, page: &str) -> Result<(), String> {
        let path = shell::root().join(page);
        let text = fs::read_to_string(&path).map_err(|error| format!("cannot read it: {error}"))?;
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let mut ports = Ports::default();
        if let (Some(beside), true) = (path.parent(), page.starts_with(EXAMPLES)) {
            copy(beside, folder.path(), &mut ports)
                .map_err(|error| format!("cannot copy the example: {error}"))?;
        }
        let text = ports.replace(&text);
        let listeners = ports.listeners();
        let mut session = Session::start(folder.path(), &self.folder, &listeners)?;
        for block in page::blocks(&text)? {
            self.run_block(&block, &mut session)
                .map_err(|problem| format!("line {}: {problem}", block.line))?;
        }
        session.finish()
    }

    fn run_block(&self, block: &Block, session: &mut Session) -> Result<(), String> {
        let needs_deck = block.commands.lines().any(|line| line.starts_with("deck "));
        if block.way == Way::Never {
            return Ok(());
        }
        if needs_deck && !self.has_deck {
            eprintln!(
                "note: line {} is not run: decK is not available",
                block.line
            );
            return Ok(());
        }
        session.run(block)
    }
}

/// Copies the files of a directory and replaces the ports in them.
fn copy(from: &Path, to: &Path, ports: &mut Ports) -> std::io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs::create_dir_all(&to)?;
            copy(&entry.path(), &to, ports)?;
        } else {
            fs::write(&to, ports.replace(&fs::read_to_string(entry.path())?))?;
            fs::set_permissions(&to, entry.metadata()?.permissions())?;
        }
    }
    Ok(())
}
