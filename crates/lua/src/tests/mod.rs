//! Tests of the VM: code that does not end, that takes memory or stack, that waits, and what it leaves behind.

mod escapes;
mod hostile;
mod libraries;
mod metrics;
mod ngx;
mod waits;

use crate::abi::Code;
use crate::vm::{self, Ran};
use crate::watchdog::tests::IS_PATIENT;
use crate::{Globals, Phase, Target};
use plugin::Node;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// The stack of a worker.
const STACK: usize = 16 << 20;

/// Runs something on a thread like a worker's. A VM that cannot be stopped ends the test process.
fn on_worker<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    let worker = thread::Builder::new().stack_size(STACK);
    let thread = worker.spawn(move || sender.send(run()));
    let thread = thread.expect("a thread can be started");
    match receiver.recv_timeout(Duration::from_secs(60)) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            panic!("the thread has panicked: {:?}", thread.join().err())
        }
        Err(mpsc::RecvTimeoutError::Timeout) => {
            // The thread still runs, so the test process could not end by itself.
            eprintln!("the code was not stopped");
            std::process::abort()
        }
    }
}

/// Like [`on_worker`], for code that needs time on a slow machine and is about another limit.
fn on_patient_worker<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    on_worker(|| {
        IS_PATIENT.set(true);
        run()
    })
}

/// Runs a text without the sandbox, outside of requests. The error is that of the text.
fn run(text: &str) -> Result<(), String> {
    let node = Node::bare().expect("a thread can be started");
    let target = Target::node(&node);
    let function = vm::with(|vm| vm.compile(Code::Snippet, text, &Globals::all(), &target))?;
    match vm::with(|vm| vm.start(&function, &target)) {
        Ran::Done(_) => Ok(()),
        Ran::Failed(error) => Err(error),
        Ran::Stopped | Ran::Ended(_) | Ran::Waits(..) | Ran::WaitsForBody(_) => {
            Err("it waits".to_owned())
        }
    }
}

#[test]
fn a_text_runs_with_the_globals_of_the_crate() {
    let result = on_worker(|| run("assert(type(kong) == 'table' and ngx.null ~= nil)"));
    assert_eq!(result, Ok(()));
}

#[test]
fn errors_have_the_positions_of_the_text() {
    let check = |text: &'static str, expected: &str| {
        assert_eq!(on_worker(move || run(text)), Err(expected.to_owned()));
    };
    check(
        "local a = 1\nerror('x')",
        "[string \"local a = 1...\"]:2: x",
    );
    check(
        "local a_rather_long_first_line_of_code_so_that_the_name_is_cut = 1\nerror('x')",
        "[string \"local a_rather_long_first_line_of_code_so_tha...\"]:2: x",
    );
    check(
        "local x = nil; return x.y",
        "[string \"local x = nil; return x.y\"]:1: attempt to index local 'x' (a nil value)",
    );
    check(
        "local = 3",
        "[string \"local = 3\"]:1: '<name>' expected near '='",
    );
    check("error({})", "(error object is a table value)");
    // A text with `...` at its top level is a chunk, not a function.
    check("error(select('#', ...), 0)", "0");
}

#[test]
fn a_target_is_gone_after_its_slice() {
    let result = on_worker(|| {
        run("saved = kong.request.get_header")?;
        run("saved('host')")
    });
    let error = result.expect_err("there is no request");
    assert!(error.contains("no phase in ngx.ctx.KONG_PHASE"), "{error}");
    let _ = Phase::Access;
}
