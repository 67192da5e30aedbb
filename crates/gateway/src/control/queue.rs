//! The queue of commands for the writing thread, and the loop of that thread.

use super::Links;
use super::writer::Writer;
use admin::control::{Load, LoadError, Loaded, Proposal};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use store::{ChangeLog, Revision};
use tokio::sync::oneshot;

/// Maximum number of commands that wait for the writing thread.
const WAITING_COMMANDS: usize = 1024;
/// Maximum number of documents that wait or are being loaded. Each may hold a body of many megabytes.
const WAITING_LOADS: usize = 4;
/// Maximum number of proposals that become durable together.
const GROUP: usize = 256;
/// Time after the last change at which old history is removed and free memory is returned to the system.
const IDLE: Duration = Duration::from_secs(1);
/// Interval between searches for old history while nothing changes. Revisions grow old without changes too.
const LOOK: Duration = Duration::from_secs(60);

/// A slot for a document that waits or is being loaded.
pub(crate) struct LoadSlot(Arc<AtomicUsize>);

impl Drop for LoadSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A proposal that waits for its turn, and the channel for its outcome.
pub(crate) struct Proposed {
    pub(crate) proposal: Proposal,
    pub(crate) answer: oneshot::Sender<Result<Revision, LoadError>>,
    /// The slot of a proposal that is a document.
    pub(crate) slot: Option<LoadSlot>,
}

impl Proposed {
    /// Sends the outcome. The slot is free before the client can send the next document.
    pub(crate) fn end(self, outcome: Result<Revision, LoadError>) {
        let Self {
            proposal,
            answer,
            slot,
        } = self;
        drop((proposal, slot));
        // Sending fails if nobody waits for the outcome any more.
        let _ = answer.send(outcome);
    }
}

/// Commands for the writing thread. A command is carried out even if nobody waits for its outcome any more. So it owns
/// its slot.
pub(super) enum Command {
    Load(Load, LoadSlot, oneshot::Sender<Result<Loaded, LoadError>>),
    Propose(Proposed),
    /// A task of the program itself, such as reading its declarative file again.
    Run(Box<dyn FnOnce(&mut Writer) + Send>),
}

/// The sending end of the queue of commands.
pub(super) struct Commands {
    queue: SyncSender<Command>,
    /// Number of documents that wait or are being loaded.
    loads: Arc<AtomicUsize>,
}

impl Commands {
    pub(super) fn new() -> (Self, Receiver<Command>) {
        let (queue, commands) = sync_channel(WAITING_COMMANDS);
        let loads = Arc::default();
        (Self { queue, loads }, commands)
    }

    pub(super) fn run(&self, task: impl FnOnce(&mut Writer) + Send + 'static) {
        // Sending fails only when the thread is gone, at the end of the process.
        let _ = self.queue.send(Command::Run(Box::new(task)));
    }

    pub(super) fn load(&self, load: Load) -> Asked<Loaded> {
        let slot = self.admit_load().ok_or(LoadError::Busy)?;
        self.ask(|answer| Command::Load(load, slot, answer))
    }

    pub(super) fn propose(&self, proposal: Proposal) -> Asked<Revision> {
        let slot = if proposal.is_document {
            Some(self.admit_load().ok_or(LoadError::Busy)?)
        } else {
            None
        };
        self.ask(|answer| {
            Command::Propose(Proposed {
                proposal,
                answer,
                slot,
            })
        })
    }

    /// Takes a slot for a document. Returns `None` if all slots are in use.
    fn admit_load(&self) -> Option<LoadSlot> {
        let waiting = Arc::clone(&self.loads);
        if waiting.fetch_add(1, Ordering::Relaxed) < WAITING_LOADS {
            return Some(LoadSlot(waiting));
        }
        waiting.fetch_sub(1, Ordering::Relaxed);
        None
    }

    fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, LoadError>>) -> Command,
    ) -> Asked<T> {
        let (answer, outcome) = oneshot::channel();
        match self.queue.try_send(command(answer)) {
            Ok(()) => Ok(outcome),
            Err(TrySendError::Full(_)) => Err(LoadError::Busy),
            Err(TrySendError::Disconnected(_)) => Err(LoadError::Exiting),
        }
    }
}

/// The channel for the outcome of a command, or the reason why the command was not queued.
pub(super) type Asked<T> = Result<oneshot::Receiver<Result<T, LoadError>>, LoadError>;

pub(super) async fn outcome<T>(asked: Asked<T>) -> Result<T, LoadError> {
    asked?.await.unwrap_or(Err(LoadError::Internal(
        "the thread that changes the configuration has panicked".to_owned(),
    )))
}

/// Main loop of the writing thread. A panic aborts only the current change or group of changes. Its transaction is
/// discarded, and the next change starts from the stored state.
///
/// Each new revision is announced on the links here, because the client that waits for it may have gone.
pub(super) fn write(mut writer: Writer, queue: &Receiver<Command>, links: &Links) {
    let mut queue = Queue {
        commands: queue,
        next: None,
    };
    let mut is_tidy = true;
    let mut rest = LOOK;
    loop {
        let command = match queue.wait(rest) {
            Ok(command) => command,
            Err(RecvTimeoutError::Timeout) if writer.compact() => {
                // History is removed in small steps, so that new commands go first.
                is_tidy = false;
                rest = Duration::ZERO;
                continue;
            }
            Err(RecvTimeoutError::Timeout) => {
                if !std::mem::replace(&mut is_tidy, true) {
                    writer.give_back();
                }
                writer.forget_dead_readers();
                rest = LOOK;
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let is_load = matches!(command, Command::Load(..));
        let is_change = is_load || matches!(command, Command::Propose(_));
        let before = writer.store.head();
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| match command {
            Command::Load(load, slot, answer) => {
                let loaded = writer.load(load);
                drop(slot);
                // Sending fails if nobody waits for the outcome any more.
                let _ = answer.send(loaded);
            }
            Command::Propose(first) => writer.propose(queue.group(first)),
            Command::Run(task) => task(&mut writer),
        }));
        if done.is_err() {
            // After a panic, the document that the loader remembers may be incomplete.
            writer.loader = model::declarative::Loader::new();
        }
        let head = writer.store.head();
        if is_change && head > before {
            links.tell(head);
        }
        writer.compact_when_overdue();
        is_tidy = is_load;
        rest = IDLE;
        if is_load {
            writer.give_back();
        }
    }
}

/// The queue of commands. `group` may receive one command too many, which `next` holds until its turn.
struct Queue<'q> {
    commands: &'q Receiver<Command>,
    next: Option<Command>,
}

impl Queue<'_> {
    fn wait(&mut self, limit: Duration) -> Result<Command, RecvTimeoutError> {
        match self.next.take() {
            Some(next) => Ok(next),
            None => self.commands.recv_timeout(limit),
        }
    }

    /// Collects `first` and the proposals that wait directly behind it.
    fn group(&mut self, first: Proposed) -> Vec<Proposed> {
        let mut group = vec![first];
        while group.len() < GROUP {
            match self.commands.try_recv() {
                Ok(Command::Propose(another)) => group.push(another),
                Ok(other) => {
                    self.next = Some(other);
                    break;
                }
                Err(_) => break,
            }
        }
        group
    }
}

#[cfg(test)]
mod tests {
    use super::super::writer;
    use super::*;
    use crate::upgrade::Link;
    use admin::control::DeclarativeBody;
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixStream;
    use store::Origin;

    fn document() -> Load {
        Load {
            body: DeclarativeBody::Text(
                "_format_version: '3.0'\nservices: [{name: a, host: b}]\n".into(),
            ),
            check_hash: false,
            flatten_errors: false,
            origin: Origin::program("test"),
        }
    }

    #[test]
    fn a_document_whose_client_has_gone_keeps_its_slot_until_its_turn() {
        let (commands, queue) = Commands::new();
        for number in 0..WAITING_LOADS {
            if number % 2 == 0 {
                drop(commands.load(document()).expect("there is a slot"));
            } else {
                let mut proposal = Proposal::new(Origin::program("test"), |_| Ok(()));
                proposal.is_document = true;
                drop(commands.propose(proposal).expect("there is a slot"));
            }
        }
        let one_more = || commands.load(document()).map(drop);
        assert!(matches!(one_more(), Err(LoadError::Busy)));
        drop(queue.recv().expect("a command"));
        one_more().expect("there is a slot again");
        assert!(matches!(one_more(), Err(LoadError::Busy)));
    }

    #[test]
    fn a_change_whose_client_has_gone_is_announced_to_the_other_process() {
        plugins::install();
        let (own, other) = UnixStream::pair().expect("two ends");
        let (events, _told) = tokio::sync::mpsc::unbounded_channel();
        let link = Link::start(own, events).expect("a thread");
        let links = Links::default();
        links.add(&link);
        let (commands, queue) = Commands::new();
        drop(commands.load(document()).expect("it is queued"));
        drop(commands);
        let (writer, _directory) = writer::tests::writer();
        write(writer, &queue, &links);
        link.close();
        let told = BufReader::new(other).lines().map_while(Result::ok);
        assert_eq!(told.collect::<Vec<_>>(), ["committed 1"]);
    }
}
