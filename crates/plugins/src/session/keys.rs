//! Keys for the cookies that browsers keep. Deriving one takes milliseconds (PBKDF2), so no worker does it.

use super::NAME;
use super::format::{Derived, Fresh, Invalid, Purpose, Secret};
use plugin::Node;
use services::Background;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::spawn_blocking;

/// Maximum number of derivations of the node at once.
const AT_ONCE: usize = 2;

/// Number of keys that are derived in advance. `header_filter` cannot wait for one.
const READY: usize = 64;

/// Number of these that are there when the plugin has started.
const READY_AT_START: usize = 2;

/// Derives the keys of a configuration.
pub(super) struct Keys {
    secret: Arc<Secret>,
    background: Background,
    permits: Arc<Semaphore>,
    ready: Arc<Ready>,
}

/// Keys that no session has used.
#[derive(Default)]
struct Ready {
    fresh: Mutex<Vec<Fresh>>,
    is_being_filled: AtomicBool,
}

impl Keys {
    pub(super) fn new(secret: Arc<Secret>, node: &Node) -> Self {
        let permits = || Semaphore::new(AT_ONCE);
        // Other configurations with this secret, also the one before a change, share the keys.
        let secrets = secret.fingerprint();
        Self {
            secret,
            background: node.background.clone(),
            permits: node.shared.get_or_insert(NAME, "derivations", permits),
            ready: node.shared.get_or_insert(NAME, &secrets, Ready::default),
        }
    }

    /// Begins to derive keys. It takes some milliseconds on the calling thread, unless there are some already.
    pub(super) fn start(&self) {
        let there = self.ready.lock().len();
        for _ in there..READY_AT_START {
            if let Ok(fresh) = self.secret.fresh(Purpose::Remember) {
                self.ready.lock().push(fresh);
            }
        }
        self.fill();
    }

    /// Derives the encryption of a remembered session.
    pub(super) async fn derive(&self, id: [u8; 32]) -> Result<Derived, Invalid> {
        self.run(move |secret| secret.derive(&id, Purpose::Remember))
            .await
    }

    /// Returns a key for a remembered session.
    pub(super) async fn fresh(&self) -> Result<Fresh, Invalid> {
        match self.take() {
            Some(fresh) => Ok(fresh),
            None => self.run(|secret| secret.fresh(Purpose::Remember)).await,
        }
    }

    /// Returns a key for a remembered session, if one is ready.
    pub(super) fn take(&self) -> Option<Fresh> {
        let fresh = self.ready.lock().pop();
        self.fill();
        fresh
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Secret) -> Result<T, Invalid> + Send + 'static,
    ) -> Result<T, Invalid> {
        let (sender, receiver) = oneshot::channel();
        let (secret, permits) = (self.secret.clone(), self.permits.clone());
        self.background.spawn(async move {
            let permit = permits.acquire().await;
            // The client may have left in the meantime.
            if permit.is_ok()
                && !sender.is_closed()
                && let Ok(done) = spawn_blocking(move || work(&secret)).await
            {
                let _ = sender.send(done);
            }
        });
        receiver.await.unwrap_or(Err(Invalid::Cryptography))
    }

    /// Derives keys until there are enough, unless that goes on already.
    fn fill(&self) {
        if self.ready.is_being_filled.swap(true, SeqCst) {
            return;
        }
        let (secret, permits) = (self.secret.clone(), self.permits.clone());
        let ready = self.ready.clone();
        self.background.spawn_service(async move {
            while ready.lock().len() < READY {
                let Ok(_permit) = permits.acquire().await else {
                    break;
                };
                let secret = secret.clone();
                let fresh = spawn_blocking(move || secret.fresh(Purpose::Remember)).await;
                match fresh {
                    Ok(Ok(fresh)) => ready.lock().push(fresh),
                    _ => break,
                }
            }
            ready.is_being_filled.store(false, SeqCst);
        });
    }
}

impl Ready {
    fn lock(&self) -> MutexGuard<'_, Vec<Fresh>> {
        self.fresh.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
