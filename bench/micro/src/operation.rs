//! Defines operations, and the functions by which callgrind counts their instructions.

use std::hint::black_box;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

/// A named operation.
pub struct Operation {
    /// Area, action and amount, for example `router/prefixes/10000`.
    pub name: String,
    /// Number of runs whose instructions are counted together. It is large enough to even out differences between runs.
    pub count: u32,
    /// Whether [`Work::prepare`] does anything.
    pub prepares: bool,
    set_up: Box<dyn Fn() -> Box<dyn Work> + Send + Sync>,
}

/// An operation that is ready to run.
pub trait Work {
    /// Creates the input of the next run, and drops the output of the previous one. This is not measured.
    fn prepare(&mut self) {}

    fn run(&mut self);
}

impl Operation {
    /// Creates an operation that needs no input for each run. `set_up` returns the function to run.
    pub(crate) fn repeat<F: FnMut() + 'static>(
        name: impl Into<String>,
        count: u32,
        set_up: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            count,
            prepares: false,
            set_up: Box::new(move || Box::new(Repeat(set_up()))),
        }
    }

    /// Creates an operation that consumes an input or returns an output. `set_up` returns a function that creates an
    /// input, and the function to run with it.
    pub(crate) fn consume<I: 'static, O: 'static, M, R>(
        name: impl Into<String>,
        count: u32,
        set_up: impl Fn() -> (M, R) + Send + Sync + 'static,
    ) -> Self
    where
        M: FnMut() -> I + 'static,
        R: FnMut(I) -> O + 'static,
    {
        Self {
            name: name.into(),
            count,
            prepares: true,
            set_up: Box::new(move || {
                let (make, run) = set_up();
                Box::new(Consume {
                    make,
                    run,
                    input: None,
                    output: None,
                })
            }),
        }
    }

    pub fn set_up(&self) -> Box<dyn Work> {
        plugins::install();
        (self.set_up)()
    }
}

struct Repeat<F>(F);

impl<F: FnMut()> Work for Repeat<F> {
    fn run(&mut self) {
        (self.0)();
    }
}

struct Consume<I, O, M, R> {
    make: M,
    run: R,
    input: Option<I>,
    output: Option<O>,
}

impl<I, O, M: FnMut() -> I, R: FnMut(I) -> O> Work for Consume<I, O, M, R> {
    fn prepare(&mut self) {
        self.output = None;
        self.input = Some((self.make)());
    }

    fn run(&mut self) {
        let input = self.input.take().expect("prepared before each run");
        self.output = Some(black_box((self.run)(input)));
    }
}

/// Function name patterns for callgrind's option `--toggle-collect`. At each entry and exit of such a function,
/// callgrind starts counting if it was off, or stops counting if it was on.
pub const TOGGLES: [&str; 2] = ["*counted_by_callgrind*", "*left_out_by_callgrind*"];

/// Runs an operation `count` times so that callgrind counts these runs and nothing else. A tenth as many uncounted runs
/// come first, because work that is done only at the first use is not part of the operation.
pub fn run_counted(operation: &Operation, count: u32) {
    let page = black_box(Page(0));
    let mut work = operation.set_up();
    for _ in 0..count / 10 {
        work.prepare();
        work.run();
    }
    COUNTING.store(true, Ordering::Relaxed);
    for _ in 0..count {
        work.prepare();
        counted_by_callgrind(&mut *work);
    }
    black_box(&page);
}

/// Aligns the stack of the counted runs to a memory page. Without it, the stack begins after the arguments and the
/// environment, which contain for example the path of the program. Their length would then decide how data is aligned,
/// and thus how many instructions copies take.
#[repr(align(4096))]
struct Page(#[allow(dead_code, reason = "only its place counts")] u8);

/// Whether the counted runs have begun. Before that, [`left_out_by_callgrind`] must not be called: its toggle would
/// start counting instead of stopping it.
static COUNTING: AtomicBool = AtomicBool::new(false);

// Neither function is generic, so that each has exactly one symbol. `black_box` after the call prevents a tail call.
// With a tail call, callgrind would not see the exit of the function in the right place.

#[inline(never)]
fn counted_by_callgrind(work: &mut dyn Work) {
    work.run();
    black_box(());
}

#[inline(never)]
fn left_out_by_callgrind(
    future: Pin<&mut (dyn Future<Output = ()> + Send)>,
    context: &mut Context<'_>,
) -> Poll<()> {
    let polled = future.poll(context);
    black_box(());
    polled
}

/// A future whose own instructions are not counted, for example the other end of a connection that an operation uses.
pub(crate) struct LeftOut<'f>(pub(crate) Pin<&'f mut (dyn Future<Output = ()> + Send)>);

impl Future for LeftOut<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let future = self.0.as_mut();
        match COUNTING.load(Ordering::Relaxed) {
            true => left_out_by_callgrind(future, context),
            false => future.poll(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    /// Returns the offset of a run's stack within its memory page.
    #[inline(never)]
    fn place_of_stack() -> usize {
        let place = Arc::new(AtomicUsize::new(0));
        let noted = place.clone();
        let operation = Operation::repeat("stack", 1, move || {
            let noted = noted.clone();
            move || {
                let local = black_box(0_u8);
                let address = std::ptr::from_ref(&local).addr();
                noted.store(address % align_of::<Page>(), Ordering::Relaxed);
            }
        });
        run_counted(&operation, 1);
        place.load(Ordering::Relaxed)
    }

    #[inline(never)]
    fn place_of_deeper_stack() -> usize {
        let room = black_box([0_u8; 1000]);
        let place = place_of_stack();
        black_box(&room);
        place
    }

    #[test]
    fn runs_have_their_stack_at_the_same_place_of_a_page_whatever_stands_before() {
        assert_eq!(place_of_stack(), place_of_deeper_stack());
    }
}
