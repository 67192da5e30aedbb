//! Cost tests: they count the instructions that a piece of code takes for one input and for an input of twice the size,
//! and fail if the second count is much more than twice the first. Unlike time, the number of instructions is the same
//! in every run.
//!
//! The test that counts starts itself again, alone and under callgrind (Debian package `valgrind`), once for each size.

use std::hint::black_box;
use std::io::ErrorKind;
use std::process::{Command, Stdio};

/// Environment variable with the input size, set for a test that runs under callgrind.
const SIZE: &str = "TESTKIT_COST_SIZE";

/// Maximum growth that counts as linear. Sorting takes a little more than twice as long for twice the input.
const MOST: f64 = 2.35;

/// Panics if `work` takes much more than twice the instructions for an input of twice the size. `work` must be a
/// closure in the test itself. The instructions of `set_up` are not counted. Both run once at a small size before
/// counting, because code that is built at its first use does not belong to the cost.
pub fn assert_linear<I>(size: usize, set_up: impl Fn(usize) -> I, work: impl Fn(I)) {
    let test = name_of(&work);
    if let Some(growth) = growth(size, set_up, work) {
        assert!(
            growth <= MOST,
            "{test}: {growth:.2} times the instructions for an input of twice the size {size}"
        );
    }
}

/// Returns how many times as many instructions an input of twice the size takes. Returns `None` if nothing was
/// compared: under callgrind, or if valgrind is missing outside of CI.
fn growth<I>(size: usize, set_up: impl Fn(usize) -> I, work: impl Fn(I)) -> Option<f64> {
    let test = name_of(&work);
    if let Ok(size) = std::env::var(SIZE) {
        let size = size.parse().expect("a number");
        work(set_up(4));
        let mut input = Some(set_up(size));
        counted_by_callgrind(&mut || work(input.take().expect("it runs once")));
        return None;
    }
    let Some(once) = count(test, size) else {
        assert!(std::env::var_os("CI").is_none(), "valgrind is missing");
        eprintln!("valgrind is missing: the cost of {test} was not counted");
        return None;
    };
    let twice = count(test, 2 * size)?;
    Some(twice as f64 / once as f64)
}

/// Returns the path of the test that contains a closure, without the name of its crate.
fn name_of<F>(_closure: &F) -> &'static str {
    let path = std::any::type_name::<F>();
    let (_, path) = path.split_once("::").expect("a path begins with its crate");
    path.split("::{{closure}}").next().unwrap_or(path)
}

/// Counts the instructions at a size. Returns `None` if valgrind is not installed.
fn count(test: &str, size: usize) -> Option<u64> {
    let program = std::env::current_exe().expect("the path of this program");
    let mut command = Command::new("valgrind");
    command.args([
        "--tool=callgrind",
        "--collect-atstart=no",
        "--toggle-collect=*counted_by_callgrind*",
        "--callgrind-out-file=/dev/null",
    ]);
    command.arg(program).args(["--exact", test, "--nocapture"]);
    command.env(SIZE, size.to_string()).stdin(Stdio::null());
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => panic!("valgrind: {error}"),
    };
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{test} under valgrind:\n{told}");
    let collected = told.lines().find_map(|line| line.split_once("Collected :"));
    let collected = collected.and_then(|(_, number)| number.trim().parse().ok());
    match collected {
        None | Some(0) => panic!("callgrind has counted nothing of {test}:\n{told}"),
        counted => counted,
    }
}

// This function is not generic, so that it has exactly one symbol. The statement after the call keeps the compiler from
// making the call a jump, which would not return here.
#[inline(never)]
fn counted_by_callgrind(work: &mut dyn FnMut()) {
    work();
    black_box(());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares each number with all numbers before it.
    fn compare_all(numbers: &[usize]) {
        for (index, number) in numbers.iter().enumerate() {
            assert!(!black_box(&numbers[..index]).contains(number));
        }
    }

    #[test]
    fn work_that_grows_with_its_input_passes() {
        assert_linear(
            2000,
            |size| (0..size).rev().collect::<Vec<usize>>(),
            |mut numbers: Vec<usize>| {
                numbers.sort_unstable();
                black_box(numbers);
            },
        );
    }

    #[test]
    fn work_that_grows_with_the_square_of_its_input_is_found() {
        let growth = growth(
            1000,
            |size| (0..size).collect::<Vec<usize>>(),
            |numbers| compare_all(&numbers),
        );
        assert!(growth.is_none_or(|growth| growth > MOST), "{growth:?}");
    }
}
