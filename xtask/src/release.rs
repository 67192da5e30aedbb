//! `cargo xtask release`: the release binary, and a file with its debug information beside it. The binary keeps its
//! symbol table. With the other file, profiles have inlined functions and lines too (docs/profiling.md).

use crate::shell::{self, cargo};
use std::fs;
use std::path::Path;
use std::process::Command;

const PROGRAM: &str = "silverback";

pub(crate) fn run() -> Result<(), String> {
    let words = ["build", "--release", "--locked", "--package", "gateway"];
    let mut build = cargo(&words);
    // Debug information of lines does not change the code.
    shell::run(build.env("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only"))?;
    let target = shell::target_directory()?;
    let folder = target.join("dist");
    split(&target.join("release").join(PROGRAM), &folder)?;
    println!(
        "{} has the program and its debug information",
        folder.display()
    );
    Ok(())
}

/// Copies a program into a folder, and moves its debug information into a file of its own there.
fn split(program: &Path, folder: &Path) -> Result<(), String> {
    let copy = || {
        fs::create_dir_all(folder)?;
        fs::copy(program, folder.join(PROGRAM))
    };
    copy().map_err(|error| format!("cannot copy {}: {error}", program.display()))?;
    let debug = format!("{PROGRAM}.debug");
    let objcopy =
        |words: &[&str]| shell::run(Command::new("objcopy").current_dir(folder).args(words));
    objcopy(&["--only-keep-debug", PROGRAM, &debug])?;
    let link = format!("--add-gnu-debuglink={debug}");
    objcopy(&["--strip-debug", &link, PROGRAM])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_runs_without_its_debug_information_which_is_beside_it() {
        // This test's own program has debug information, as every build of the profile dev.
        let program = std::env::current_exe().expect("the program of this test");
        let folder = tempfile::tempdir().expect("a directory");
        split(&program, folder.path()).expect("objcopy works");
        let size = |name: &str| fs::metadata(folder.path().join(name)).map(|about| about.len());
        let (whole, small) = (
            fs::metadata(&program).map(|about| about.len()),
            size(PROGRAM),
        );
        assert!(small.expect("there") < whole.expect("there"));
        assert!(size("silverback.debug").expect("there") > 0);
        let listed = Command::new(folder.path().join(PROGRAM))
            .arg("--list")
            .output();
        assert!(listed.expect("it runs").status.success());
    }
}
