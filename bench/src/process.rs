//! Programs under test. Each runs on its own core. Its processor time, memory and descriptors are read from /proc.

use anyhow::{Context, Result, bail};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::ffi::OsStr;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const START_LIMIT: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// A child process. Dropping it sends SIGTERM to the process and its descendants.
pub struct Process {
    name: String,
    child: Child,
}

/// Memory of a process and its descendants in MiB.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Memory {
    /// All resident pages, including shared ones (RSS).
    pub resident: f64,
    /// Resident pages with each shared page divided among its processes (PSS), so that the workers of a program can be
    /// added up.
    pub proportional: f64,
    /// Resident pages that are not part of a file, so without the page cache of a store.
    pub anonymous: f64,
}

impl Process {
    /// Starts `program` on `core` and waits until it accepts connections on `address`.
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
        let mut command = Command::new(program);
        // Gateway settings in the caller's environment must not apply to the measured program.
        for (name, _) in std::env::vars_os() {
            if [&b"KONG_"[..], b"SILVERBACK_"]
                .iter()
                .any(|prefix| name.as_encoded_bytes().starts_with(prefix))
            {
                command.env_remove(name);
            }
        }
        command
            .args(arguments)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log_file.try_clone()?)
            .stderr(log_file);
        let child = spawn_on(core, &mut command)
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
                bail!(
                    "{} did not listen on {address} within {} s",
                    self.name,
                    START_LIMIT.as_secs()
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Returns the processor time that all living threads have used so far. This includes the threads of descendants,
    /// because a server may use worker processes. The time of a thread is lost when the thread ends.
    pub fn cpu_time(&self) -> Result<Duration> {
        self.cpu_time_of(|_| true)
    }

    /// Returns the processor time of the threads that serve requests. It is zero for programs that do not name them as
    /// Silverback does.
    pub fn cpu_time_of_workers(&self) -> Result<Duration> {
        self.cpu_time_of(|thread| thread.starts_with("worker-"))
    }

    /// Returns the processor time of the living threads whose name meets a condition.
    fn cpu_time_of(&self, is_meant: impl Fn(&str) -> bool) -> Result<Duration> {
        let mut time = Duration::ZERO;
        for pid in family(self.child.id()) {
            for task in fs::read_dir(format!("/proc/{pid}/task"))? {
                let task = task?.path();
                let name = fs::read_to_string(task.join("comm")).unwrap_or_default();
                if is_meant(name.trim_end()) {
                    time += cpu_time_of_thread(&task)?;
                }
            }
        }
        Ok(time)
    }

    pub fn memory(&self) -> Result<Memory> {
        let mut memory = Memory::default();
        for pid in family(self.child.id()) {
            let path = format!("/proc/{pid}/smaps_rollup");
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
            memory.resident += mebibytes(&text, "Rss:")?;
            memory.proportional += mebibytes(&text, "Pss:")?;
            memory.anonymous += mebibytes(&text, "Anonymous:")?;
        }
        Ok(memory)
    }

    /// Returns the number of open descriptors, including those of descendants.
    pub fn descriptors(&self) -> Result<usize> {
        let mut count = 0;
        for pid in family(self.child.id()) {
            count += fs::read_dir(format!("/proc/{pid}/fd"))?.count();
        }
        Ok(count)
    }
}

/// Returns the processor time of a thread, by its directory in `/proc`. It is zero if the thread has ended after the
/// directory was listed.
fn cpu_time_of_thread(task: &Path) -> Result<Duration> {
    let Ok(statistics) = fs::read_to_string(task.join("schedstat")) else {
        return Ok(Duration::ZERO);
    };
    let on_cpu = statistics.split_whitespace().next().unwrap_or_default();
    let nanoseconds = on_cpu.parse().context("cannot read schedstat")?;
    Ok(Duration::from_nanos(nanoseconds))
}

fn mebibytes(text: &str, name: &str) -> Result<f64> {
    let kilobytes = text
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<f64>().ok())
        .with_context(|| format!("no {name} in smaps_rollup"))?;
    Ok(kilobytes / 1024.0)
}

impl Drop for Process {
    fn drop(&mut self) {
        let family = family(self.child.id());
        for pid in family.iter().rev() {
            // It is fine if the process has already ended.
            let _ = Command::new("kill")
                .arg(pid.to_string())
                .stderr(Stdio::null())
                .status();
        }
        let started = Instant::now();
        while let Ok(None) = self.child.try_wait() {
            if started.elapsed() > STOP_LIMIT {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Returns the process and its living descendants. /proc lists the children of each thread separately, and only those
/// of main threads are found here.
fn family(pid: u32) -> Vec<u32> {
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
    family
}

/// Starts a child on a core. A child inherits the cores of the thread that starts it, so this thread moves to the core
/// and back.
fn spawn_on(core: usize, command: &mut Command) -> Result<Child> {
    let own = sched_getaffinity(None)?;
    pin_self(core)?;
    let child = command.spawn();
    sched_setaffinity(None, &own)?;
    Ok(child?)
}

/// Binds this thread and its future children to one core.
pub fn pin_self(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).with_context(|| format!("cannot use core {core}"))
}

/// Returns the cores that this process may use.
pub fn cores() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|core| set.is_set(*core))
        .collect())
}

/// Returns an address on loopback that is currently free.
pub fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Returns the first line of a program's output that is not blank. It usually contains the version.
pub fn first_line_of(program: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find(|line| !line.trim().is_empty())?;
    Some(line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_smaps_rollup() {
        let text = "Rss:                2048 kB\nPss:                1024 kB\nPss_Anon: 5 kB\n";
        assert_eq!(mebibytes(text, "Rss:").ok(), Some(2.0));
        assert_eq!(mebibytes(text, "Pss:").ok(), Some(1.0));
        assert!(mebibytes(text, "Swap:").is_err());
    }

    #[test]
    fn a_child_has_the_core_it_is_given_and_its_parent_keeps_its_own() {
        let before = cores().expect("affinity is readable");
        let core = before[before.len() - 1];
        let mut command = Command::new("sh");
        command
            .args(["-c", "grep Cpus_allowed_list /proc/self/status"])
            .stdout(Stdio::piped());
        let child = spawn_on(core, &mut command).expect("sh starts");
        let output = child.wait_with_output().expect("sh ends");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(
            text.split_whitespace().last(),
            Some(core.to_string().as_str())
        );
        assert_eq!(cores().expect("affinity is readable"), before);
    }
}
