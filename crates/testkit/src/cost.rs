//! Cost tests check that the cost of code grows about linearly with its input. A cost test counts the instructions for
//! one input and for an input of twice the size. It fails if the second count is much more than twice the first.
//! Unlike time, the number of instructions is the same in every run.
//!
//! To count, a test runs its own program again under callgrind (Debian package `valgrind`), once for each size. Each of
//! these runs contains only this test.

use std::hint::black_box;
use std::io::ErrorKind;
use std::process::{Command, Stdio};

/// Environment variable with the input size. It is set only for a test that runs under callgrind.
const SIZE: &str = "TESTKIT_COST_SIZE";

/// Maximum growth that counts as linear. It is more than 2 because sorting twice the input takes a little more than
/// twice the instructions.
const MOST: f64 = 2.35;

/// Panics if `work` takes much more than twice the instructions for an input of twice the size. `work` must be a
/// closure in the test function itself, because the name of the test is taken from the type of the closure. The
/// instructions of `set_up` are not counted. Both run once at a small size before counting, because the cost does not
/// include values that are created at their first use.
pub fn assert_linear<I>(size: usize, set_up: impl Fn(usize) -> I, work: impl Fn(I)) {
    let test = name_of(&work);
    if let Some(growth) = growth(size, set_up, work) {
        assert!(
            growth <= MOST,
            "{test}: {growth:.2} times the instructions for an input of twice the size {size}"
        );
    }
}

/// Returns the number of instructions for `2 * size` divided by the number for `size`. Returns `None` if nothing was
/// compared. That is so in the run under callgrind, and if valgrind is missing outside of CI.
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

// Callgrind counts from the entry of this function to its return. The function is not generic, so that it has exactly
// one symbol. The statement after the call prevents a tail call, which would leave this function before the work.
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
