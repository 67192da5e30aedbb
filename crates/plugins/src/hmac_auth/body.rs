//! Compares a body with the header `Digest`.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest;
use bytes::Bytes;
use data_encoding::BASE64;
use plugin::{PluginError, Request};
use std::sync::Arc;
use std::thread::available_parallelism;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// The length from which a body is hashed on another thread. SHA-256 takes 36 µs for so much, and 0.6 ms for a megabyte,
/// while all other requests of the worker wait. To go to a thread and back costs 12 µs of CPU, 5 of them on the worker.
pub(super) const LONG: usize = 64 * 1024;

/// Bodies that are hashed at the same time, on all plugins of the node.
pub(super) struct Hashing(Arc<Semaphore>);

/// A long body that is not compared yet.
pub(super) struct LongBody {
    body: Bytes,
    given: Vec<u8>,
}

/// What is known about a body.
pub(super) enum Compared {
    Right,
    Wrong,
    Later(LongBody),
}

/// Compares the body of a request. Without the header, only an empty body is right. A body that cannot be read is wrong.
/// Source: kong/plugins/hmac-auth/access.lua validate_body().
pub(super) fn compare(request: &Request<'_>) -> Compared {
    let Some(body) = request.body_bytes() else {
        return Compared::Wrong;
    };
    let is_right = match request.header("digest") {
        None => body.is_empty(),
        Some(given) if body.len() < LONG => is_digest(given, body),
        Some(given) => {
            return Compared::Later(LongBody {
                body: body.clone(),
                given: given.to_vec(),
            });
        }
    };
    match is_right {
        true => Compared::Right,
        false => Compared::Wrong,
    }
}

fn is_digest(given: &[u8], body: &[u8]) -> bool {
    let digest = digest::digest(&digest::SHA256, body);
    let right = format!("SHA-256={}", BASE64.encode(digest.as_ref()));
    verify_slices_are_equal(right.as_bytes(), given).is_ok()
}

impl Hashing {
    pub(super) fn new() -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        Self(Arc::new(Semaphore::new((cores / 2).max(1))))
    }

    /// Compares a long body. Those that wait are served in the order in which they have come. One whose client leaves is
    /// not hashed any more.
    pub(super) async fn compare(&self, long: LongBody) -> Result<bool, PluginError> {
        let permit = self.0.clone().acquire_owned().await;
        let permit = permit.map_err(|error| PluginError::caused_by("no body is hashed", error))?;
        let compared = spawn_blocking(move || {
            let _permit = permit;
            is_digest(&long.given, &long.body)
        });
        let compared = compared.await;
        compared.map_err(|error| PluginError::caused_by("a body was not hashed", error))
    }

    /// Keeps others from being served.
    #[cfg(test)]
    pub(super) fn permits(&self) -> &Arc<Semaphore> {
        &self.0
    }
}
