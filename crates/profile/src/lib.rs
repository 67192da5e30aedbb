//! Profiles of the running process, taken on demand: where its threads spend CPU time.
//!
//! While no profile is taken, nothing runs: no timer, no thread, no test on any path. A profile works as follows.
//!
//! 1. Every thread gets a timer that counts the thread's CPU time and then sends SIGPROF to the thread (`sampler`).
//! 2. The signal's handler only copies the registers and the top of the stack into a slot. So it is safe wherever it
//!    interrupts the thread, and it needs no frame pointers, which the release build does not have.
//! 3. The thread that takes the profile unwinds the copies by the tables that the compiler makes for panics
//!    (`unwind`), and counts equal stacks.
//! 4. At the end, addresses become names of functions (`symbols`). The profile is written in the format of pprof
//!    (`pprof`) or drawn as a flame graph (`flame`).
//!
//! The crate `pprof` was no choice: it unwinds inside of the signal's handler, where the unwinder may take locks of the
//! loader, or by frame pointers, and its timer measures the process, so that busy threads are sampled at random.

mod elf;
mod flame;
mod memory_map;
mod pprof;
mod sampler;
mod symbols;
mod unwind;

use sampler::Sampler;
use std::collections::HashMap;
use std::io;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};
use symbols::{Function, Symbols};
use unwind::Unwinding;

/// Samples per second of CPU time, unless the caller asks for another number. It is no divisor of common periods, so
/// that work which happens every 10 ms is neither missed nor counted always.
pub const DEFAULT_FREQUENCY: u32 = 99;

/// Allowed samples per second of CPU time. The kernel counts CPU time in ticks of 1 to 10 ms, so more would add nothing.
pub const FREQUENCIES: RangeInclusive<u32> = 1..=1000;

/// Allowed duration in seconds.
pub const SECONDS: RangeInclusive<u32> = 1..=600;

/// Interval at which copied stacks are unwound. Slots suffice for 128 samples in this time.
const DRAIN: Duration = Duration::from_millis(10);

/// Interval at which new threads are looked for.
const LOOK: Duration = Duration::from_millis(200);

/// Number of different stacks in a profile. Samples with further stacks count as one.
const MAX_STACKS: usize = 20_000;

/// How long and how often to sample.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    pub seconds: u32,
    pub frequency: u32,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("another profile is being taken; only one at a time is possible")]
    Busy,
    #[error("seconds must be between {} and {}", SECONDS.start(), SECONDS.end())]
    Seconds,
    #[error("frequency must be between {} and {}", FREQUENCIES.start(), FREQUENCIES.end())]
    Frequency,
    #[error("the client is gone")]
    Cancelled,
    #[error("cannot {action}: {error}")]
    System {
        action: &'static str,
        error: io::Error,
    },
    #[error("not a profile: {0}")]
    Malformed(String),
}

impl Error {
    fn of(action: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::System { action, error }
    }
}

/// A profile with names of functions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Time of the start.
    pub started: SystemTime,
    pub duration: Duration,
    /// CPU time that one sample stands for, in nanoseconds.
    pub period: u64,
    pub stacks: Vec<Stack>,
    /// Functions that stacks refer to by index.
    pub functions: Vec<Function>,
    /// Sentences about what the profile does not contain.
    pub notes: Vec<String>,
}

/// A stack that was seen, with the number of its samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    pub thread: String,
    pub samples: u64,
    /// From the innermost function to the outermost one.
    pub frames: Vec<Frame>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Index in [`Profile::functions`].
    pub function: usize,
    /// Line in the function's file, or 0 if unknown.
    pub line: u32,
}

impl Profile {
    /// The profile in the format of pprof: a compressed protobuf message.
    pub fn to_pprof(&self) -> Vec<u8> {
        pprof::encode(self)
    }

    /// Reads a profile that [`Profile::to_pprof`] has made.
    pub fn from_pprof(bytes: &[u8]) -> Result<Self, Error> {
        pprof::decode(bytes)
    }

    /// The profile as a flame graph: one SVG that needs no other file.
    pub fn to_flame_graph(&self) -> String {
        flame::draw(self)
    }

    /// One line for each stack, from the outermost function to the innermost one, with its number of samples.
    pub fn to_folded(&self) -> String {
        let mut lines = String::new();
        for stack in &self.stacks {
            lines.push_str(&stack.thread);
            for frame in stack.frames.iter().rev() {
                lines.push(';');
                lines.push_str(&self.functions[frame.function].name);
            }
            lines.push_str(&format!(" {}\n", stack.samples));
        }
        lines
    }

    pub fn samples(&self) -> u64 {
        self.stacks.iter().map(|stack| stack.samples).sum()
    }
}

/// Whether a profile is being taken.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The right to take a profile. There is one in the process.
#[derive(Debug)]
struct Turn;

impl Turn {
    fn take() -> Result<Self, Error> {
        match TAKEN.swap(true, Ordering::AcqRel) {
            true => Err(Error::Busy),
            false => Ok(Self),
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        TAKEN.store(false, Ordering::Release);
    }
}

/// Measures where the threads of this process spend CPU time. Blocks the calling thread, which is not measured. Ends
/// early if the sender of `wanted` is dropped.
pub fn cpu(options: Options, wanted: &Receiver<()>) -> Result<Profile, Error> {
    if !SECONDS.contains(&options.seconds) {
        return Err(Error::Seconds);
    }
    if !FREQUENCIES.contains(&options.frequency) {
        return Err(Error::Frequency);
    }
    let _turn = Turn::take()?;
    let period = 1_000_000_000 / u64::from(options.frequency);
    let mut collected = Collected::default();
    let mut unwinding = Unwinding::new()?;
    let (started, begin) = (SystemTime::now(), Instant::now());
    let end = begin + Duration::from_secs(u64::from(options.seconds));
    let mut sampler = Sampler::start(period)?;
    let mut look = begin;
    loop {
        let now = Instant::now();
        if now >= look {
            // Code first: a library that was just loaded may be in the stack of a thread that was just found.
            unwinding.look()?;
            sampler.look()?;
            look = now + LOOK;
        }
        match wanted.recv_timeout(DRAIN.min(end.saturating_duration_since(now))) {
            Err(RecvTimeoutError::Disconnected) => return Err(Error::Cancelled),
            Err(RecvTimeoutError::Timeout) | Ok(()) => {}
        }
        sampler.drain(|sample| collected.add(&mut unwinding, sample));
        if Instant::now() >= end {
            break;
        }
    }
    let measured = sampler.stop(|sample| collected.add(&mut unwinding, sample));
    let duration = begin.elapsed();
    Ok(collected.name(&unwinding, &measured, (started, duration, period)))
}

/// Stacks of addresses that were seen.
#[derive(Debug, Default)]
struct Collected {
    /// Samples by thread and frames.
    stacks: HashMap<(i32, Vec<u64>), u64>,
    /// Samples with stacks for which there was no room.
    other: u64,
    /// Samples whose outermost functions are missing.
    cut: u64,
    /// Addresses of the sample that is being added.
    frames: Vec<u64>,
}

impl Collected {
    fn add(&mut self, unwinding: &mut Unwinding, sample: &sampler::Sample<'_>) {
        self.frames.clear();
        if !unwinding.frames(sample, &mut self.frames) {
            self.cut += sample.weight;
        }
        let key = (sample.thread, std::mem::take(&mut self.frames));
        if let Some(samples) = self.stacks.get_mut(&key) {
            *samples += sample.weight;
        } else if self.stacks.len() < MAX_STACKS {
            self.stacks.insert((key.0, key.1.clone()), sample.weight);
        } else {
            self.other += sample.weight;
        }
        self.frames = key.1;
    }

    fn name(
        self,
        unwinding: &Unwinding,
        measured: &sampler::Measured,
        (started, duration, period): (SystemTime, Duration, u64),
    ) -> Profile {
        let mut symbols = Symbols::new(unwinding.modules());
        let mut stacks = Vec::with_capacity(self.stacks.len());
        for ((thread, addresses), samples) in self.stacks {
            let frames = addresses.iter().flat_map(|one| symbols.frames(*one));
            stacks.push(Stack {
                frames: frames.collect(),
                thread: measured.name(thread),
                samples,
            });
        }
        let mut functions = symbols.into_functions();
        if self.other > 0 {
            functions.push(Function::named("[other stacks]"));
            stacks.push(Stack {
                thread: "other".to_owned(),
                samples: self.other,
                frames: vec![Frame {
                    function: functions.len() - 1,
                    line: 0,
                }],
            });
        }
        stacks.sort_by(|a, b| (&a.thread, b.samples).cmp(&(&b.thread, a.samples)));
        let mut notes = Vec::new();
        let mut note = |number: u64, text: &str| {
            if number > 0 {
                notes.push(format!("{number} {text}"));
            }
        };
        note(
            measured.lost,
            "samples were lost: the profile could not keep up",
        );
        note(
            self.cut,
            "samples lack their outermost functions: the stack was too deep or its code has no unwind tables",
        );
        note(
            measured.unmeasured,
            "threads could not be measured: the system gave no timer for them",
        );
        Profile {
            started,
            duration,
            period,
            stacks,
            functions,
            notes,
        }
    }
}
