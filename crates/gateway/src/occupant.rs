//! Finds the process that listens on a port, by reading Linux's `/proc`. The result may be missing or wrong, so only
//! error texts use it.

use std::fs;
use std::net::SocketAddr;

/// Returns the process that listens on the port of the address, such as `nginx (process 812)`. The IP address is not
/// compared.
pub(crate) fn of(address: SocketAddr) -> Option<String> {
    let inodes: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .into_iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .flat_map(|table| listening_inodes(&table, address.port()))
        .collect();
    let links: Vec<String> = inodes
        .into_iter()
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    if links.is_empty() {
        return None;
    }
    fs::read_dir("/proc")
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .find(|&pid| holds(pid, &links))
        .map(describe)
}

/// Returns the inodes of the sockets that listen on a port. `table` is the text of `/proc/net/tcp`, of which the
/// columns `local_address`, `st` and `inode` are used.
fn listening_inodes(table: &str, port: u16) -> Vec<String> {
    const LISTEN: &str = "0A";
    let suffix = format!(":{port:04X}");
    table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let columns: Vec<&str> = line.split_whitespace().collect();
            let (local, state, inode) = (columns.get(1)?, columns.get(3)?, columns.get(9)?);
            (local.ends_with(&suffix) && *state == LISTEN).then(|| (*inode).to_owned())
        })
        .collect()
}

fn holds(pid: u32, links: &[String]) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    descriptors.flatten().any(|descriptor| {
        fs::read_link(descriptor.path()).is_ok_and(|link| {
            links
                .iter()
                .any(|wanted| link.as_os_str() == wanted.as_str())
        })
    })
}

fn describe(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    match name.trim() {
        "" => format!("process {pid}"),
        name => format!("{name} (process {pid})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    #[cfg(target_os = "linux")]
    fn the_process_that_listens_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let occupant = of(address).expect("this process listens");
        assert!(
            occupant.contains(&format!("process {}", std::process::id())),
            "{occupant}"
        );
    }
}
