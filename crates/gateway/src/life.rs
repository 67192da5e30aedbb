//! The main loop of a serving process. It handles signals, reloads and upgrades. At the end it shuts down in this
//! order: `/status/ready` fails, the proxy's listeners close, requests in flight finish, and the Admin API and the
//! Status API stop.

use crate::commands::StartInputs;
use crate::control::Gateway;
use crate::instance::{self, Instance};
use crate::settings::Settings;
use crate::signals::{Request, Signals};
use crate::upgrade::{Event, Link, Offer, Program, START_LIMIT, Successor};
use crate::workers::{Crew, Workers};
use crate::{reload, service_manager};
use admin::Control;
use proxy::session::Stop;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, sleep, sleep_until};

/// Interval at which a replaced process checks whether a gateway still runs with its prefix.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Number of failed checks in a row after which the replaced process assumes that the gateway has ended.
const MISSED_LOOKS: u32 = 2;

/// All parts of a serving process.
pub(crate) struct Life {
    pub(crate) inputs: StartInputs,
    pub(crate) program: Program,
    /// The settings of the start. The gateway has those that a reload changes.
    pub(crate) settings: Settings,
    pub(crate) instance: Instance,
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) workers: Workers,
    pub(crate) signals: Signals,
    pub(crate) reloads: Receiver<reload::Request>,
}

/// Events of the main loop other than signals.
enum Happening {
    /// The previous process has ended.
    Alone,
    Successor(Event),
    /// The new process did not serve in time.
    TooLate,
    Reload(reload::Request),
}

/// An upgrade whose new process does not serve yet.
struct Attempt {
    successor: Successor,
    told: UnboundedReceiver<Event>,
    until: Instant,
    /// Reason of the failure, as reported by the new process.
    reason: Option<String>,
}

impl Life {
    /// Runs until the process must end. `before` is the link to the process that this one has replaced.
    pub(crate) fn run(mut self, before: Option<(Arc<Link>, UnboundedReceiver<Event>)>) {
        let mut before = before.map(|(_, told)| told);
        let mut attempt = None;
        loop {
            let happening = happening(&mut before, &mut attempt, &mut self.reloads);
            match self.signals.next_or(happening) {
                Err(Request::Reload) => {
                    reload::at_signal(&self.inputs, &self.settings, &self.gateway);
                }
                Ok(Happening::Reload(request)) => {
                    reload::at_request(&self.inputs, &self.settings, &self.gateway, request);
                }
                Err(Request::Reopen) => self.reopen(),
                Err(Request::Upgrade) if attempt.is_some() => {
                    tracing::warn!("an upgrade is under way already");
                }
                Err(Request::Upgrade) => attempt = self.begin_upgrade(),
                Err(Request::Stop) => {
                    self.give_up(attempt, "this process was told to end");
                    return self.end();
                }
                Ok(Happening::Alone) => self.gateway.forget_dead_processes(),
                Ok(Happening::Successor(Event::Serving)) => {
                    let successor = attempt.map(|attempt| attempt.successor.child);
                    return self.hand_over(successor);
                }
                Ok(Happening::Successor(Event::Failed(reason))) => {
                    if let Some(attempt) = &mut attempt {
                        attempt.reason = Some(reason);
                    }
                }
                Ok(Happening::Successor(Event::Closed)) => {
                    self.give_up(attempt.take(), "the new process has ended");
                }
                Ok(Happening::TooLate) => {
                    self.give_up(attempt.take(), "the new process did not serve in time");
                }
            }
        }
    }

    fn reopen(&self) {
        match self.gateway.reopen_logs() {
            Ok(()) => tracing::info!("log files are opened anew"),
            Err(failure) => tracing::error!("log files stay as they were:\n{failure}"),
        }
    }

    fn begin_upgrade(&self) -> Option<Attempt> {
        let (events, told) = unbounded_channel();
        let begun = self.gateway.store_lock().map_err(|error| error.to_string());
        let begun = begun.and_then(|lock| {
            let sockets = self.workers.listeners.lock();
            let offer = Offer {
                prefix: &self.settings.prefix,
                store: &self.settings.store.path,
                process_file: self.instance.file(),
                store_lock: &lock,
                sockets: &sockets,
            };
            Successor::start(&self.program, &offer, events).map_err(|error| error.to_string())
        });
        match begun {
            Ok(successor) => {
                tracing::info!(
                    process = successor.child.id(),
                    "upgrading: a new process is starting"
                );
                successor.link.follow_with(&self.gateway);
                self.gateway.links().add(&successor.link);
                Some(Attempt {
                    successor,
                    told,
                    until: Instant::now() + START_LIMIT,
                    reason: None,
                })
            }
            Err(reason) => {
                self.tell_failure(&reason);
                None
            }
        }
    }

    /// Ends a failed upgrade: stops its new process and keeps serving.
    fn give_up(&self, attempt: Option<Attempt>, reason: &str) {
        let Some(attempt) = attempt else { return };
        attempt.successor.link.close();
        let said = attempt.reason;
        let status = attempt.successor.end();
        let reason = match (said, status) {
            (Some(said), _) => said,
            (None, Ok(status)) => format!("{reason} ({status})"),
            (None, Err(error)) => format!("{reason} ({error})"),
        };
        self.gateway.forget_dead_processes();
        // The new process may have loaded a declarative file before it failed.
        self.gateway.follow();
        self.tell_failure(&reason);
    }

    fn tell_failure(&self, reason: &str) {
        tracing::error!(
            "the upgrade has failed, and this process keeps running: {}",
            reason.trim_end()
        );
        self.instance.publish_failed_upgrade(reason);
    }

    /// Stops accepting connections, because the new process serves now. Then waits until the last connection has ended,
    /// or until `upgrade_timeout` has passed if it is set. There is no limit by default, because nothing waits for this
    /// process.
    fn hand_over(self, successor: Option<Child>) {
        let Self {
            settings,
            instance,
            gateway,
            mut workers,
            mut signals,
            reloads,
            ..
        } = self;
        // This refuses waiting reloads. They are not needed, because the new process has just read its settings.
        drop(reloads);
        let drain = settings.drain;
        tracing::info!(
            limit = drain.upgrade_timeout.map(tracing::field::debug),
            "the new process serves: this one ends with its last connection"
        );
        workers.listeners.close();
        workers.apis.tell(Stop::Drain(drain.timeout));
        workers.proxy.tell(Stop::HandOver(drain.upgrade_timeout));
        instance.hand_over();
        let mut orphan = Orphan {
            prefix: settings.prefix.clone(),
            gateway: &gateway,
            successor,
            missed: 0,
        };
        let mut stops = 0;
        loop {
            let ended = async {
                tokio::select! {
                    () = workers.proxy.ended() => Some(()),
                    () = sleep(LOOK_INTERVAL) => None,
                }
            };
            match signals.next_or(ended) {
                Ok(Some(())) => break,
                Ok(None) if orphan.has_become() => workers.proxy.tell(Stop::Drain(drain.timeout)),
                Err(Request::Stop) => {
                    stops += 1;
                    if stops > 1 {
                        workers.apis.tell(Stop::Drain(Duration::ZERO));
                        workers.proxy.tell(Stop::Drain(Duration::ZERO));
                    } else {
                        workers.proxy.tell(Stop::Drain(drain.timeout));
                    }
                }
                Ok(None) | Err(Request::Reload | Request::Reopen | Request::Upgrade) => {}
            }
        }
        finish(&mut signals, &mut workers.apis);
        send_queued(&mut signals, &gateway, drain.timeout);
        gateway.access_logs().finish();
        tracing::info!("the last connection of the replaced process has ended");
    }

    /// Shuts everything down in order. Another stop signal at any time ends all waiting.
    fn end(mut self) {
        // This refuses waiting reloads.
        drop(self.reloads);
        let drain = self.settings.drain;
        let mut limit = drain.timeout;
        self.gateway.announce_drain();
        service_manager::tell_stopping();
        if !drain.delay.is_zero() {
            tracing::info!(delay = ?drain.delay, "about to stop: the gateway still accepts connections");
            self.workers.proxy.tell(Stop::Announce);
            let delay = Instant::now() + drain.delay;
            let passed = || async move { sleep_until(delay).await };
            while let Err(request) = self.signals.next_or(passed()) {
                if request == Request::Stop {
                    limit = Duration::ZERO;
                    break;
                }
            }
        }
        tracing::info!(?limit, "stopping: requests in flight may finish");
        let draining = Instant::now();
        self.workers.listeners.close();
        self.workers.proxy.tell(Stop::Drain(limit));
        if finish(&mut self.signals, &mut self.workers.proxy) {
            limit = Duration::ZERO;
        }
        self.workers.apis.tell(Stop::Drain(limit));
        finish(&mut self.signals, &mut self.workers.apis);
        let left = limit.saturating_sub(draining.elapsed());
        send_queued(&mut self.signals, &self.gateway, left);
        self.gateway.access_logs().finish();
        tracing::info!("stopped");
    }
}

/// Waits for threads that were told to stop. A stop signal makes them stop immediately. Returns whether there was one.
fn finish(signals: &mut Signals, crew: &mut Crew) -> bool {
    let mut is_urgent = false;
    while let Err(request) = signals.next_or(crew.ended()) {
        if request == Request::Stop {
            is_urgent = true;
            crew.tell(Stop::Drain(Duration::ZERO));
        }
    }
    is_urgent
}

/// Sends what the queues of plugins hold, for instance log records, and ends the thread for background work. `left` is the
/// rest of the time for the drain. A stop signal ends the wait.
fn send_queued(signals: &mut Signals, gateway: &Gateway, left: Duration) {
    /// Time for queues when the connections have used up the whole drain.
    const LEAST: Duration = Duration::from_secs(1);
    let node = gateway.plugin_node();
    let deadline = Instant::now() + left.max(LEAST);
    let sent = || async {
        let lost = node.queues.drain(deadline).await;
        node.background.shut_down(deadline).await;
        lost
    };
    loop {
        match signals.next_or(sent()) {
            Ok(0) => return,
            Ok(lost) => {
                return tracing::warn!(lost, "some entries of plugins' queues could not be sent");
            }
            Err(Request::Stop) => return tracing::warn!("plugins' queues are given up"),
            Err(Request::Reload | Request::Reopen | Request::Upgrade) => {}
        }
    }
}

async fn happening(
    before: &mut Option<UnboundedReceiver<Event>>,
    attempt: &mut Option<Attempt>,
    reloads: &mut Receiver<reload::Request>,
) -> Happening {
    let alone = async {
        match before {
            // Only the end of the previous process matters here.
            Some(told) => while !matches!(told.recv().await, Some(Event::Closed) | None) {},
            None => std::future::pending().await,
        }
        *before = None;
    };
    let successor = async {
        match attempt {
            Some(attempt) => tokio::select! {
                event = attempt.told.recv() => Happening::Successor(event.unwrap_or(Event::Closed)),
                () = sleep_until(attempt.until) => Happening::TooLate,
            },
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = alone => Happening::Alone,
        happening = successor => happening,
        // The gateway holds a sender, so `recv` never returns `None`.
        Some(request) = reloads.recv() => Happening::Reload(request),
    }
}

/// Lets a replaced process follow configuration changes, and detects when no gateway runs with its prefix any more. In
/// that case the gateway was stopped, and the replaced process must stop too.
struct Orphan<'a> {
    prefix: PathBuf,
    gateway: &'a Gateway,
    /// The new process, a child of this one. It is reaped when it ends, so that it does not remain a zombie.
    successor: Option<Child>,
    /// Number of checks in a row that found no gateway.
    missed: u32,
}

impl Orphan<'_> {
    fn has_become(&mut self) -> bool {
        self.gateway.follow();
        if let Some(child) = &mut self.successor
            && let Ok(Some(status)) = child.try_wait()
        {
            tracing::info!(%status, "the new process has ended");
            self.successor = None;
        }
        self.missed = if instance::lives(Path::new(&self.prefix)) {
            0
        } else {
            self.missed + 1
        };
        // A single failed check can happen while one gateway takes over from another.
        self.missed == MISSED_LOOKS
    }
}
