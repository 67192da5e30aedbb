//! A Redis server for the time of a run: `redis-server` on a free port, which stores nothing on the disk.

use crate::process::free_address;
use anyhow::{Context, Result, bail};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A running server. It is killed when this is dropped.
pub struct Redis {
    pub address: SocketAddr,
    child: Child,
}

impl Redis {
    /// Starts a server on a core. Returns `None` where it is not installed.
    pub fn start(core: usize) -> Result<Option<Self>> {
        let address = free_address()?;
        let spawned = Command::new("taskset")
            .args(["-c", &core.to_string(), "redis-server"])
            .args(["--bind", "127.0.0.1", "--port", &address.port().to_string()])
            .args(["--save", "", "--appendonly", "no"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = spawned.context("cannot run taskset")?;
        let mut redis = Self { address, child };
        let deadline = Instant::now() + LIMIT;
        while TcpStream::connect(address).is_err() {
            if redis.child.try_wait()?.is_some() {
                return Ok(None);
            }
            if Instant::now() > deadline {
                bail!("redis-server does not listen");
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(Some(redis))
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
