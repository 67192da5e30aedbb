//! Programs under measurement: started on a core of their own, their processor time and memory read from /proc.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const START_LIMIT: Duration = Duration::from_secs(30);

/// A child process that ends with its owner.
pub struct Process {
    name: String,
    child: Child,
}

impl Process {
    /// Starts `program` on `core` alone and waits until it accepts connections on `address`.
    pub fn start<A: AsRef<OsStr>>(
        program: &Path,
        arguments: &[A],
        environment: &[(&str, String)],
        core: usize,
        address: SocketAddr,
        log: &Path,
    ) -> Result<Self> {
        let name = program
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let log_file =
            fs::File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let child = Command::new("taskset")
            .arg("-c")
            .arg(core.to_string())
            .arg(program)
            .args(arguments)
            .envs(
                environment
                    .iter()
                    .map(|(name, value)| (*name, value.as_str())),
            )
            .stdin(Stdio::null())
            .stdout(log_file.try_clone()?)
            .stderr(log_file)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let mut process = Self { name, child };
        process.wait_until_listening(address, log)?;
        Ok(process)
    }

    fn wait_until_listening(&mut self, address: SocketAddr, log: &Path) -> Result<()> {
        let started = Instant::now();
        while TcpStream::connect(address).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!(
                    "{} ended with {status}:\n{}",
                    self.name,
                    fs::read_to_string(log).unwrap_or_default()
                );
            }
            if started.elapsed() > START_LIMIT {
                bail!("{} does not listen on {address}", self.name);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// The processor time of all its threads so far, and of its children's: a server may leave the work to a worker process.
    pub fn cpu_time(&self) -> Result<Duration> {
        let mut nanoseconds = 0;
        for pid in family(self.child.id())? {
            for task in fs::read_dir(format!("/proc/{pid}/task"))? {
                // A thread that ended between the listing and the reading has no more to say.
                let Ok(statistics) = fs::read_to_string(task?.path().join("schedstat")) else {
                    continue;
                };
                let on_cpu = statistics.split_whitespace().next().unwrap_or_default();
                nanoseconds += on_cpu.parse::<u64>().context("cannot read schedstat")?;
            }
        }
        Ok(Duration::from_nanos(nanoseconds))
    }

    /// Resident memory in MiB, its children's included.
    pub fn resident_mib(&self) -> Result<f64> {
        let mut kilobytes = 0;
        for pid in family(self.child.id())? {
            let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("VmRSS:"))
                .unwrap_or("0 kB");
            kilobytes += line
                .trim()
                .trim_end_matches(" kB")
                .parse::<u64>()
                .context("cannot read VmRSS")?;
        }
        Ok(kilobytes as f64 / 1024.0)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Gone already is as good.
        for pid in family(self.child.id())
            .unwrap_or_default()
            .into_iter()
            .rev()
        {
            let _ = Command::new("kill")
                .arg(pid.to_string())
                .stderr(Stdio::null())
                .status();
        }
        let _ = self.child.wait();
    }
}

/// A process and its children; `taskset` replaces itself by the program, so the first is the program.
fn family(pid: u32) -> Result<Vec<u32>> {
    let mut family = vec![pid];
    let mut at = 0;
    while at < family.len() {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", family[at]))
            .unwrap_or_default();
        family.extend(
            children
                .split_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok()),
        );
        at += 1;
    }
    Ok(family)
}

/// Binds this process to one core.
pub fn pin_self(core: usize) -> Result<()> {
    let status = Command::new("taskset")
        .args([
            "-p",
            "-c",
            &core.to_string(),
            &std::process::id().to_string(),
        ])
        .stdout(Stdio::null())
        .status()
        .context("cannot run taskset (package util-linux)")?;
    if !status.success() {
        bail!("taskset cannot bind this process to core {core}");
    }
    Ok(())
}

/// An address on loopback that nothing listens on at the moment.
pub fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
