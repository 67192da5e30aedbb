//! Timers of CPU time for all threads, and the signal handler that copies registers and stack of the interrupted thread.
//!
//! The handler runs at any instruction of any thread. So it calls nothing but one system call, takes no lock and
//! allocates nothing: it claims a slot of memory that exists already, and copies into it.

#![expect(
    unsafe_code,
    reason = "timers, signals and the context of a signal have interfaces of C"
)]

use crate::Error;
use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::mem::{self, MaybeUninit};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering};

/// Number of bytes of a stack that a sample has. The stack of a request is about 10 KiB deep.
const STACK: usize = 64 << 10;

/// Samples that can wait until they are unwound: 8 MiB, of which the kernel provides only what is used.
const SLOTS: usize = 128;

/// Slots that the handler tries before it gives up.
const TRIES: usize = 8;

/// The stack is copied in pieces that end at multiples of this, because the end of a stack is not readable.
const PAGE: usize = 4096;
const PIECES: usize = STACK / PAGE + 1;

/// Most samples that one signal stands for, in case a thread could not be interrupted.
const MAX_WEIGHT: i32 = 1000;

const FREE: u8 = 0;
const WRITING: u8 = 1;
const READY: u8 = 2;

/// The registers from which unwinding starts.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Registers {
    pub(crate) pc: u64,
    pub(crate) sp: u64,
    pub(crate) fp: u64,
    /// The return address of a function that calls no others.
    #[cfg(target_arch = "aarch64")]
    pub(crate) lr: u64,
}

struct Slot {
    state: AtomicU8,
    content: UnsafeCell<Content>,
}

struct Content {
    thread: i32,
    weight: i32,
    registers: Registers,
    length: usize,
    stack: [u8; STACK],
}

/// The slots of the profile that is being taken.
struct Slots {
    all: Box<[Slot]>,
    next: AtomicUsize,
    lost: AtomicU64,
}

// SAFETY: the content of a slot is accessed only by whoever has moved its state: a handler from `FREE` to `WRITING`, the
// reader when it is `READY`.
unsafe impl Sync for Slots {}

/// A copied stack, for the reader.
#[derive(Debug)]
pub(crate) struct Sample<'s> {
    pub(crate) thread: i32,
    /// Number of samples that it stands for.
    pub(crate) weight: u64,
    pub(crate) registers: Registers,
    /// The stack, from the stack pointer on.
    pub(crate) stack: &'s [u8],
}

/// The slots that handlers use; null while no profile is taken.
static SLOTS_IN_USE: AtomicPtr<Slots> = AtomicPtr::new(ptr::null_mut());

/// Number of handlers that run at this moment.
static HANDLERS: AtomicUsize = AtomicUsize::new(0);

/// The timers of a profile.
#[derive(Debug)]
pub(crate) struct Sampler {
    period: u64,
    timers: HashMap<i32, Timer>,
    /// Threads without a timer.
    refused: HashMap<i32, ()>,
    names: HashMap<i32, String>,
}

/// Facts about a profile that has ended.
#[derive(Debug)]
pub(crate) struct Measured {
    names: HashMap<i32, String>,
    /// Samples for which there was no slot.
    pub(crate) lost: u64,
    /// Threads for which the system had no timer.
    pub(crate) unmeasured: u64,
}

impl Measured {
    pub(crate) fn name(&self, thread: i32) -> String {
        let name = self.names.get(&thread).cloned();
        name.unwrap_or_else(|| "ended thread".to_owned())
    }
}

impl Sampler {
    /// Prepares slots and handler. [`Sampler::look`] finds the threads. Only one sampler exists at a time.
    pub(crate) fn start(period: u64) -> Result<Self, Error> {
        can_read_itself().map_err(Error::of(
            "read the stack of a thread (process_vm_readv, which a seccomp profile may forbid)",
        ))?;
        install_handler().map_err(Error::of("handle SIGPROF"))?;
        // SAFETY: zeros are valid slots: free, and with a content of numbers.
        let all = unsafe { Box::<[Slot]>::new_zeroed_slice(SLOTS).assume_init() };
        let slots = Box::new(Slots {
            all,
            next: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
        });
        SLOTS_IN_USE.store(Box::into_raw(slots), Ordering::SeqCst);
        Ok(Self {
            period,
            timers: HashMap::new(),
            refused: HashMap::new(),
            names: HashMap::new(),
        })
    }

    /// Gives timers to new threads, and forgets threads that have ended.
    pub(crate) fn look(&mut self) -> Result<(), Error> {
        let own = own_thread();
        let threads = threads().map_err(Error::of("list the threads"))?;
        self.timers.retain(|thread, _| threads.contains(thread));
        self.refused.retain(|thread, ()| threads.contains(thread));
        for thread in threads {
            if thread == own
                || self.timers.contains_key(&thread)
                || self.refused.contains_key(&thread)
            {
                continue;
            }
            // A thread that ended in between has neither name nor timer.
            let Ok(name) = fs::read_to_string(format!("/proc/self/task/{thread}/comm")) else {
                continue;
            };
            self.names.insert(thread, name.trim_end().to_owned());
            match Timer::start(thread, self.period) {
                Ok(timer) => drop(self.timers.insert(thread, timer)),
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
                Err(_) => drop(self.refused.insert(thread, ())),
            }
        }
        Ok(())
    }

    /// Gives all waiting samples to `read`.
    pub(crate) fn drain(&self, mut read: impl FnMut(&Sample<'_>)) {
        let slots = SLOTS_IN_USE.load(Ordering::SeqCst);
        // SAFETY: only `Drop` frees the slots, and it has this sampler.
        let Some(slots) = (unsafe { slots.as_ref() }) else {
            return;
        };
        for slot in &slots.all {
            if slot.state.load(Ordering::Acquire) != READY {
                continue;
            }
            // SAFETY: handlers leave a slot alone while it is ready.
            let content = unsafe { &*slot.content.get() };
            read(&Sample {
                thread: content.thread,
                weight: u64::from(content.weight.unsigned_abs()),
                registers: content.registers,
                stack: &content.stack[..content.length],
            });
            slot.state.store(FREE, Ordering::Release);
        }
    }

    /// Stops all timers and gives the last samples to `read`.
    pub(crate) fn stop(mut self, read: impl FnMut(&Sample<'_>)) -> Measured {
        self.timers.clear();
        self.drain(read);
        let slots = SLOTS_IN_USE.load(Ordering::SeqCst);
        // SAFETY: as in `drain`.
        let lost = unsafe { slots.as_ref() }.map_or(0, |slots| slots.lost.load(Ordering::Relaxed));
        Measured {
            names: mem::take(&mut self.names),
            lost,
            unmeasured: self.refused.len() as u64,
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.timers.clear();
        let slots = SLOTS_IN_USE.swap(ptr::null_mut(), Ordering::SeqCst);
        // A signal that was on its way may still run. Later ones find no slots.
        while HANDLERS.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
        if !slots.is_null() {
            // SAFETY: the pointer comes from `Box::into_raw`, and no handler has it any more.
            drop(unsafe { Box::from_raw(slots) });
        }
    }
}

/// A timer that counts the CPU time of one thread. Dropping it stops it.
#[derive(Debug)]
struct Timer(libc::timer_t);

// SAFETY: the pointer is an identifier, which belongs to the process.
unsafe impl Send for Timer {}

impl Timer {
    fn start(thread: i32, period: u64) -> io::Result<Self> {
        // The kernel's number of the clock that counts the CPU time of a thread.
        let clock = (!thread << 3) | 0b110;
        // SAFETY: zeros are a valid value of this struct of C.
        let mut event: libc::sigevent = unsafe { mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = libc::SIGPROF;
        event.sigev_notify_thread_id = thread;
        event.sigev_value.sival_ptr = ptr::without_provenance_mut(thread as usize);
        let mut timer: libc::timer_t = ptr::null_mut();
        // SAFETY: both pointers are valid during the call.
        check(unsafe { libc::timer_create(clock, &raw mut event, &raw mut timer) })?;
        let timer = Self(timer);
        let interval = libc::timespec {
            tv_sec: (period / 1_000_000_000) as libc::time_t,
            tv_nsec: (period % 1_000_000_000) as libc::c_long,
        };
        let setting = libc::itimerspec {
            it_interval: interval,
            it_value: interval,
        };
        // SAFETY: the timer exists, and the setting is valid during the call.
        check(unsafe { libc::timer_settime(timer.0, 0, &raw const setting, ptr::null_mut()) })?;
        Ok(timer)
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: the timer exists, and nobody else has it.
        unsafe { libc::timer_delete(self.0) };
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn own_thread() -> i32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::gettid() }
}

/// The threads of this process.
fn threads() -> io::Result<Vec<i32>> {
    let mut threads = Vec::new();
    for entry in fs::read_dir("/proc/self/task")? {
        let name = entry?.file_name();
        threads.extend(name.to_str().and_then(|name| name.parse::<i32>().ok()));
    }
    Ok(threads)
}

/// Installs the handler at the first profile. It stays, because a signal may still be on its way at the end of a
/// profile, and without a handler it would end the process.
fn install_handler() -> io::Result<()> {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    if INSTALLED.get().is_some() {
        return Ok(());
    }
    // SAFETY: zeros are a valid value of this struct of C, and the handler does only what a handler may do.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
            on_signal;
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigemptyset(&raw mut action.sa_mask);
        check(libc::sigaction(
            libc::SIGPROF,
            &raw const action,
            ptr::null_mut(),
        ))?;
    }
    let _ = INSTALLED.set(());
    Ok(())
}

/// The head of `siginfo_t` for signals of timers. The crate libc has no access to the overrun.
#[repr(C)]
struct TimerSignal {
    signal: libc::c_int,
    error: libc::c_int,
    code: libc::c_int,
    padding: libc::c_int,
    timer: libc::c_int,
    /// Periods that passed while the signal waited for its delivery.
    overrun: libc::c_int,
    value: usize,
}

extern "C" fn on_signal(_: libc::c_int, about: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the location of errno is valid in every thread. The interrupted code must not see a change.
    let errno = unsafe { *libc::__errno_location() };
    HANDLERS.fetch_add(1, Ordering::SeqCst);
    let slots = SLOTS_IN_USE.load(Ordering::SeqCst);
    // SAFETY: the slots are freed only when no handler runs. The kernel gives a handler with SA_SIGINFO both pointers,
    // and a signal of a timer has this head.
    unsafe {
        if let (Some(slots), Some(about)) = (slots.as_ref(), about.cast::<TimerSignal>().as_ref())
            && about.code == libc::SI_TIMER
        {
            slots.take(about, context.cast::<libc::ucontext_t>());
        }
    }
    HANDLERS.fetch_sub(1, Ordering::SeqCst);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

impl Slots {
    /// Copies the interrupted thread into a free slot. The context must be that of a signal handler.
    unsafe fn take(&self, about: &TimerSignal, context: *const libc::ucontext_t) {
        let weight = about.overrun.clamp(0, MAX_WEIGHT - 1) + 1;
        for _ in 0..TRIES {
            let number = self.next.fetch_add(1, Ordering::Relaxed) % SLOTS;
            let slot = &self.all[number];
            let claimed =
                slot.state
                    .compare_exchange(FREE, WRITING, Ordering::Acquire, Ordering::Relaxed);
            if claimed.is_err() {
                continue;
            }
            // SAFETY: this handler has claimed the slot, and the context is valid.
            unsafe {
                let content = slot.content.get();
                let registers = registers(&*context);
                (*content).thread = about.value as i32;
                (*content).weight = weight;
                (*content).registers = registers;
                let stack = (&raw mut (*content).stack).cast::<u8>();
                (*content).length = copy_memory(registers.sp as usize, stack, STACK);
            }
            slot.state.store(READY, Ordering::Release);
            return;
        }
        self.lost
            .fetch_add(weight.unsigned_abs().into(), Ordering::Relaxed);
    }
}

#[cfg(target_arch = "x86_64")]
fn registers(context: &libc::ucontext_t) -> Registers {
    let register = |number: libc::c_int| context.uc_mcontext.gregs[number as usize] as u64;
    Registers {
        pc: register(libc::REG_RIP),
        sp: register(libc::REG_RSP),
        fp: register(libc::REG_RBP),
    }
}

#[cfg(target_arch = "aarch64")]
fn registers(context: &libc::ucontext_t) -> Registers {
    let machine = &context.uc_mcontext;
    Registers {
        pc: machine.pc,
        sp: machine.sp,
        fp: machine.regs[29],
        lr: machine.regs[30],
    }
}

/// Copies memory of this process up to the first page that cannot be read, and returns the number of copied bytes. The
/// kernel copies, because reading behind the end of a stack would be a crash.
unsafe fn copy_memory(from: usize, to: *mut u8, length: usize) -> usize {
    let mut pieces: [MaybeUninit<libc::iovec>; PIECES] = [MaybeUninit::uninit(); PIECES];
    let (mut number, mut at) = (0, from);
    let end = from.saturating_add(length);
    while at < end && number < PIECES {
        let next = ((at / PAGE + 1) * PAGE).min(end);
        pieces[number].write(libc::iovec {
            iov_base: ptr::with_exposed_provenance_mut(at),
            iov_len: next - at,
        });
        number += 1;
        at = next;
    }
    let local = libc::iovec {
        iov_base: to.cast(),
        iov_len: length,
    };
    // SAFETY: the caller gives `length` writable bytes. The kernel checks the other addresses. `number` pieces are
    // written. Both calls may be used in a handler of signals.
    let copied = unsafe {
        libc::process_vm_readv(
            libc::getpid(),
            &raw const local,
            1,
            pieces.as_ptr().cast(),
            number as libc::c_ulong,
            0,
        )
    };
    usize::try_from(copied).unwrap_or(0)
}

/// Whether the kernel lets this process read its own memory by a system call.
fn can_read_itself() -> io::Result<()> {
    let (from, mut to) = (0x5a_u8, 0_u8);
    // SAFETY: one byte can be written to.
    let copied = unsafe { copy_memory((&raw const from).expose_provenance(), &raw mut to, 1) };
    match (copied, to) {
        (1, 0x5a) => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_copied_up_to_the_first_page_that_cannot_be_read() {
        let length = 3 * PAGE;
        // SAFETY: makes and protects memory that only this test has.
        unsafe {
            let place = libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(place, libc::MAP_FAILED);
            assert_eq!(
                libc::mprotect(place.add(2 * PAGE), PAGE, libc::PROT_NONE),
                0
            );
            ptr::write_bytes(place.cast::<u8>(), 7, 2 * PAGE);
            let mut to = vec![0_u8; STACK];
            let start = place.expose_provenance() + 100;
            let copied = copy_memory(start, to.as_mut_ptr(), STACK);
            assert_eq!(copied, 2 * PAGE - 100);
            assert!(to[..copied].iter().all(|byte| *byte == 7));
            libc::munmap(place, length);
        }
        can_read_itself().expect("the own memory can be read");
    }
}
