//! The control group of the process: how often its quota of processor time was used up. A container that is throttled
//! has slow requests while its processors look idle.

use plugin::services::metrics::{Kind, Page};
use std::fs;
use std::path::{Path, PathBuf};

/// The control group of the process, of version 1 or 2.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Cgroup {
    /// The directory of the controller `cpu`.
    V1(PathBuf),
    V2(PathBuf),
}

/// What `cpu.stat` says about the quota.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Throttling {
    periods: u64,
    throttled_periods: u64,
    throttled_seconds: f64,
}

impl Cgroup {
    /// Finds the control group in the directory of a process in `/proc`.
    pub(super) fn find(process: &Path) -> Option<Self> {
        let read = |name| fs::read_to_string(process.join(name)).ok();
        let (groups, mounts) = (read("cgroup")?, read("mountinfo")?);
        let found = find(&groups, &mounts)?;
        found.path().is_dir().then_some(found)
    }

    fn path(&self) -> &Path {
        match self {
            Self::V1(path) | Self::V2(path) => path,
        }
    }

    /// The directory with the group's pressure files. Version 1 has none.
    pub(super) fn pressure(&self) -> Option<&Path> {
        match self {
            Self::V1(_) => None,
            Self::V2(path) => Some(path),
        }
    }

    fn throttling(&self) -> Option<Throttling> {
        parse(&fs::read_to_string(self.path().join("cpu.stat")).ok()?)
    }

    /// Writes the metrics of the group's quota. A group without the controller `cpu` has none.
    pub(super) fn write(&self, page: &mut Page) {
        let Some(throttling) = self.throttling() else {
            return;
        };
        for (name, help, value) in [
            (
                "silverback_cgroup_cpu_periods_total",
                "Periods in which the control group had a quota of processor time.",
                throttling.periods as f64,
            ),
            (
                "silverback_cgroup_cpu_throttled_periods_total",
                "Periods in which the quota was used up.",
                throttling.throttled_periods as f64,
            ),
            (
                "silverback_cgroup_cpu_throttled_seconds_total",
                "Time for which the control group was stopped because its quota was used up, summed over processors.",
                throttling.throttled_seconds,
            ),
        ] {
            page.family(name, help, Kind::Counter);
            page.sample(&[], value);
        }
    }
}

/// Finds the directory of the group from `/proc/self/cgroup` and `/proc/self/mountinfo`. Version 1 counts if the
/// controller `cpu` is there, as on systems that have both.
fn find(groups: &str, mounts: &str) -> Option<Cgroup> {
    let mut v2 = None;
    for line in groups.lines() {
        // The format is `ID:CONTROLLERS:PATH`.
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        if controllers.split(',').any(|controller| controller == "cpu") {
            return place(mounts, "cgroup", Some("cpu"), path).map(Cgroup::V1);
        }
        if controllers.is_empty() {
            v2 = place(mounts, "cgroup2", None, path).map(Cgroup::V2);
        }
    }
    v2
}

/// Returns where the path of a group is mounted.
fn place(mounts: &str, kind: &str, controller: Option<&str>, path: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        // The format is `ID PARENT DEVICE ROOT MOUNT_POINT OPTIONS [FIELDS] - TYPE SOURCE SUPER_OPTIONS`.
        let (mount, system) = line.split_once(" - ")?;
        let mut system = system.split(' ');
        let (found, options) = (system.next()?, system.nth(1)?);
        let has = |wanted| options.split(',').any(|option| option == wanted);
        if found != kind || !controller.is_none_or(has) {
            return None;
        }
        let mut mount = mount.split(' ').skip(3);
        let (root, point) = (unescape(mount.next()?), unescape(mount.next()?));
        // A container may see only its own part of the tree.
        let inside = match root.as_str() {
            "/" => path,
            root => path.strip_prefix(root).unwrap_or(""),
        };
        Some(Path::new(&point).join(inside.trim_start_matches('/')))
    })
}

/// Replaces the octal escapes of `mountinfo`.
fn unescape(text: &str) -> String {
    let escapes = [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ];
    escapes
        .into_iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// Parses `cpu.stat` of both versions. They have the same fields, but the time has another unit and name.
fn parse(stat: &str) -> Option<Throttling> {
    let field = |name: &str| -> Option<u64> {
        let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
        let (_, value) = lines.find(|(field, _)| *field == name)?;
        value.trim().parse().ok()
    };
    let microseconds = field("throttled_usec").map(|time| time as f64 / 1e6);
    let nanoseconds = || field("throttled_time").map(|time| time as f64 / 1e9);
    Some(Throttling {
        periods: field("nr_periods")?,
        throttled_periods: field("nr_throttled")?,
        throttled_seconds: microseconds.or_else(nanoseconds)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const V2_MOUNTS: &str = "\
24 1 0:22 / /proc rw,nosuid - proc proc rw
30 24 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate
";
    const V1_MOUNTS: &str = "\
29 23 0:25 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755
30 29 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
33 29 0:29 /docker/4f1c /sys/fs/cgroup/cpu,cpuacct ro,relatime master:15 - cgroup cgroup rw,cpu,cpuacct
34 29 0:30 /docker/4f1c /sys/fs/cgroup/memory ro,relatime master:16 - cgroup cgroup rw,memory
";

    #[test]
    fn the_group_is_found_in_both_versions() {
        let v2 = |path: &str| Some(Cgroup::V2(path.into()));
        let v1 = |path: &str| Some(Cgroup::V1(path.into()));
        let service = "0::/system.slice/silverback.service\n";
        let expected = "/sys/fs/cgroup/system.slice/silverback.service";
        assert_eq!(find(service, V2_MOUNTS), v2(expected));
        // In a container with a namespace of its own.
        assert_eq!(find("0::/\n", V2_MOUNTS), v2("/sys/fs/cgroup/"));
        let docker = "12:memory:/docker/4f1c\n5:cpu,cpuacct:/docker/4f1c\n0::/docker/4f1c\n";
        assert_eq!(find(docker, V1_MOUNTS), v1("/sys/fs/cgroup/cpu,cpuacct/"));
        let nested = "5:cpuacct,cpu:/docker/4f1c/child\n";
        let expected = "/sys/fs/cgroup/cpu,cpuacct/child";
        assert_eq!(find(nested, V1_MOUNTS), v1(expected));
        assert_eq!(
            find("0::/\n", "24 1 0:22 / /proc rw - proc proc rw\n"),
            None
        );
        assert_eq!(find("nonsense", V2_MOUNTS), None);
        let blank = "1 2 0:1 / /a\\040b rw - cgroup2 none rw\n";
        assert_eq!(find("0::/x\n", blank), v2("/a b/x"));
    }

    #[test]
    fn the_quota_is_read_in_both_versions() {
        let v2 = "\
usage_usec 81234567
user_usec 70000000
system_usec 11234567
nr_periods 1200
nr_throttled 37
throttled_usec 2500000
nr_bursts 0
burst_usec 0
";
        let v1 = "nr_periods 1200\nnr_throttled 37\nthrottled_time 2500000000\n";
        let expected = Throttling {
            periods: 1200,
            throttled_periods: 37,
            throttled_seconds: 2.5,
        };
        assert_eq!(parse(v2), Some(expected));
        assert_eq!(parse(v1), Some(expected));
        // The root group has no quota.
        assert_eq!(parse("usage_usec 1\nuser_usec 1\nsystem_usec 0\n"), None);
    }

    #[test]
    fn a_group_that_is_throttled_is_shown() {
        let directory = tempfile::tempdir().expect("a directory");
        let stat = "nr_periods 10\nnr_throttled 4\nthrottled_usec 1500000\n";
        fs::write(directory.path().join("cpu.stat"), stat).expect("written");
        let mut page = Page::default();
        Cgroup::V2(directory.path().to_owned()).write(&mut page);
        let text = page.into_text();
        for line in [
            "silverback_cgroup_cpu_periods_total 10\n",
            "silverback_cgroup_cpu_throttled_periods_total 4\n",
            "silverback_cgroup_cpu_throttled_seconds_total 1.5\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
