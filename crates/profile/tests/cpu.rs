//! Profiles of this test's own threads.

use profile::{Error, Options, Profile};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Only one profile can be taken at a time.
static TURN: Mutex<()> = Mutex::new(());

const SECOND: Options = Options {
    seconds: 1,
    frequency: 250,
};

#[inline(never)]
fn spins_a_lot(until: &AtomicBool) -> u64 {
    let mut sum = 0_u64;
    while !until.load(Ordering::Relaxed) {
        for number in 0..1000 {
            sum = black_box(sum.wrapping_mul(31).wrapping_add(number));
        }
    }
    sum
}

#[inline(never)]
fn calls_what_spins(until: &AtomicBool) -> u64 {
    black_box(spins_a_lot(until)).wrapping_add(1)
}

/// A busy thread, which ends when this is dropped.
struct Busy {
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Busy {
    fn start(name: &str) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&end);
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || calls_what_spins(&until));
        Self {
            end,
            thread: Some(thread.expect("a thread")),
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            black_box(thread.join().expect("no panic"));
        }
    }
}

fn take(options: Options) -> Result<Profile, Error> {
    let (_wanted, alive) = channel();
    profile::cpu(options, &alive)
}

#[test]
fn a_busy_thread_is_found_with_its_functions_in_order() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let _busy = Busy::start("busy-7");
    let taken = take(SECOND).expect("a profile");
    let name = |at: usize| taken.functions[at].name.as_str();
    let of_thread = || taken.stacks.iter().filter(|stack| stack.thread == "busy-7");
    let samples: u64 = of_thread().map(|stack| stack.samples).sum();
    let whole: u64 = of_thread()
        .filter(|stack| {
            let names: Vec<&str> = stack
                .frames
                .iter()
                .map(|frame| name(frame.function))
                .collect();
            let position = |wanted: &str| names.iter().position(|name| name.ends_with(wanted));
            match (position("::spins_a_lot"), position("::calls_what_spins")) {
                (Some(inner), Some(outer)) => inner < outer,
                _ => false,
            }
        })
        .map(|stack| stack.samples)
        .sum();
    // The machine may be busy, so the thread gets less than a second of CPU time.
    assert!(samples > 10, "{samples} samples");
    assert!(whole * 10 > samples * 9, "{whole} of {samples}");
    // Nothing that sleeps is in the profile, nor the thread that takes it.
    assert!(
        samples * 10 > taken.samples() * 8,
        "{samples} of {}",
        taken.samples()
    );
    let read = Profile::from_pprof(&taken.to_pprof()).expect("readable");
    assert_eq!(read, taken);
}

#[test]
fn a_second_profile_is_refused_and_one_that_nobody_wants_ends() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (wanted, alive) = channel();
    let minutes = Options {
        seconds: 600,
        frequency: 99,
    };
    let first = thread::spawn(move || {
        loop {
            match profile::cpu(minutes, &alive) {
                Err(Error::Busy) => thread::yield_now(),
                ended => return ended,
            }
        }
    });
    // Until the first one has begun, this one may have its turn.
    let short = Options {
        seconds: 1,
        frequency: 1,
    };
    let busy = loop {
        match take(short) {
            Err(error) => break error,
            Ok(_) => thread::yield_now(),
        }
    };
    assert!(matches!(busy, Error::Busy), "{busy}");
    let dropped = Instant::now();
    drop(wanted);
    let ended = first
        .join()
        .expect("no panic")
        .expect_err("it has ended early");
    assert!(matches!(ended, Error::Cancelled), "{ended}");
    assert!(dropped.elapsed() < Duration::from_secs(60));
    take(Options {
        seconds: 1,
        frequency: 99,
    })
    .expect("the next one has its turn");
}

#[test]
fn threads_that_come_and_go_and_system_calls_are_no_trouble() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let end = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&end);
    let churn = thread::spawn(move || {
        let mut made = 0_u32;
        while !until.load(Ordering::Relaxed) {
            let path = std::env::temp_dir();
            let short = thread::spawn(move || std::fs::read_dir(path).map(Iterator::count));
            short
                .join()
                .expect("no panic")
                .expect("signals do not end system calls");
            made += 1;
        }
        made
    });
    let taken = take(Options {
        seconds: 2,
        frequency: 1000,
    });
    end.store(true, Ordering::Relaxed);
    assert!(churn.join().expect("no panic") > 10);
    taken.expect("a profile");
}

#[test]
fn limits_of_duration_and_frequency_hold() {
    for (seconds, frequency) in [(0, 99), (601, 99)] {
        assert!(matches!(
            take(Options { seconds, frequency }),
            Err(Error::Seconds)
        ));
    }
    for (seconds, frequency) in [(1, 0), (1, 1001)] {
        assert!(matches!(
            take(Options { seconds, frequency }),
            Err(Error::Frequency)
        ));
    }
}
