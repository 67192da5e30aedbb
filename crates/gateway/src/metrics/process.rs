//! Metrics of the process, with the names that Prometheus' client libraries use.

use plugin::services::metrics::{Kind, Page};
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};
use std::fs;

pub(super) fn write(page: &mut Page) {
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    page.family(
        "process_cpu_seconds_total",
        "Time that the process has run on processors.",
        Kind::Counter,
    );
    page.sample(&[], cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9);
    let gauges = [
        (
            "process_open_fds",
            "Open file descriptors.",
            open_descriptors().map(|count| count as f64),
        ),
        (
            "process_max_fds",
            "Maximum number of open file descriptors.",
            getrlimit(Resource::Nofile).current.map(|most| most as f64),
        ),
        (
            "process_start_time_seconds",
            "Start of the process, in seconds since 1970.",
            start_time(),
        ),
    ];
    for (name, help, value) in gauges {
        if let Some(value) = value {
            page.family(name, help, Kind::Gauge);
            page.sample(&[], value);
        }
    }
}

/// Returns the number of open descriptors. Since Linux 6.2 it is the size of the directory. Before, the entries are
/// counted, without the one that counting needs.
fn open_descriptors() -> Option<u64> {
    const DIRECTORY: &str = "/proc/self/fd";
    match fs::metadata(DIRECTORY).ok()?.len() {
        0 => Some((fs::read_dir(DIRECTORY).ok()?.count() as u64).saturating_sub(1)),
        size => Some(size),
    }
}

fn start_time() -> Option<f64> {
    let ticks = start_ticks(&fs::read_to_string("/proc/self/stat").ok()?)?;
    let boot = boot_time(&fs::read_to_string("/proc/stat").ok()?)?;
    let per_second = rustix::param::clock_ticks_per_second();
    Some(boot as f64 + ticks as f64 / per_second as f64)
}

/// Returns the start of the process in clock ticks since the boot. It is the 22nd field, and the second field, the name
/// of the program in brackets, may contain blanks and brackets.
fn start_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Returns the time of the boot in seconds since 1970.
fn boot_time(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{SystemTime, UNIX_EPOCH};

    #[test]
    fn the_start_of_this_process_is_in_the_recent_past() {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("a time");
        let age = now.as_secs_f64() - start_time().expect("a start");
        assert!((-2.0..86_400.0).contains(&age), "{age}");
        assert!(open_descriptors().expect("a number") >= 3);
    }

    #[test]
    fn names_of_programs_do_not_confuse() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 1 0 0 0 3 4 0 0 20 0 5 0 8155 1 2 3";
        assert_eq!(start_ticks(stat), Some(8155));
        assert_eq!(start_ticks("7 (a) S 1"), None);
        assert_eq!(
            boot_time("cpu 1 2\nbtime 1700000000\n"),
            Some(1_700_000_000)
        );
        assert_eq!(boot_time(""), None);
    }
}
