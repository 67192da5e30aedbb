//! Kong, or any gateway with the same settings and declarative configuration, started by a script.
//!
//! The harness runs the script as follows:
//!
//! - With the argument `version`, the script prints the version and exits within five seconds.
//! - Without arguments, the script becomes the gateway (`exec`) in the foreground, with the settings in its
//!   environment. These are Kong's own settings (`KONG_PREFIX`, `KONG_PROXY_LISTEN`, `KONG_DECLARATIVE_CONFIG` and so
//!   on), so for an installed Kong `exec kong start` is enough. Standard output and standard error go to a file.
//!
//! The harness measures the process that the script becomes and its children, and stops them with SIGTERM.

use super::{Definition, Peer, Plan, Workload, write};
use crate::configuration::{Plugins, Shape};
use crate::{gateway, process};
use anyhow::Result;
use std::fs;
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub(super) static DEFINITION: Definition = Definition {
    name: "kong",
    programs: &[],
    install: "give a script that starts it, --kong PATH",
    version,
    prepare,
};

const VERSION_LIMIT: Duration = Duration::from_secs(5);

pub(super) fn peer(script: &Path) -> Peer {
    // A bare file name would be searched on PATH.
    let program = script.canonicalize().unwrap_or_else(|_| script.to_owned());
    Peer {
        name: DEFINITION.name,
        version: version(&program).unwrap_or_else(|| "unknown".to_owned()),
        program,
        definition: &DEFINITION,
    }
}

/// Returns the version. The wait is limited, because a script that ignores the argument starts a gateway instead.
fn version(script: &Path) -> Option<String> {
    let mut child = Command::new(script)
        .arg("version")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let started = Instant::now();
    while child.try_wait().ok()?.is_none() {
        if started.elapsed() > VERSION_LIMIT {
            // These calls fail if the process has already exited, which is fine.
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut text = String::new();
    child.stdout.take()?.read_to_string(&mut text).ok()?;
    let line = text.lines().find(|line| !line.trim().is_empty())?;
    Some(line.trim().to_owned())
}

fn prepare(workload: &Workload<'_>, address: SocketAddr, directory: &Path) -> Result<Option<Plan>> {
    let shape = Shape {
        routes: workload.routes,
        consumers: workload.keys,
        plugins: if workload.keys > 0 {
            Plugins::KeyAuth
        } else {
            Plugins::None
        },
        changed: 0,
    };
    let file = write(directory, "kong.json", &shape.text(workload.upstream))?;
    let prefix = directory.join("kong");
    fs::create_dir(&prefix)?;
    let mut environment = gateway::settings(&prefix, "off");
    environment.extend([
        ("KONG_DECLARATIVE_CONFIG", file),
        ("KONG_ADMIN_LISTEN", "off".to_owned()),
    ]);
    let mut plan = Plan {
        environment,
        ..Plan::default()
    };
    listen(workload, address, &mut plan)?;
    Ok(Some(plan))
}

/// Sets the listeners. With TLS there is also a plaintext listener, on which the harness waits until the configuration
/// is loaded.
fn listen(workload: &Workload<'_>, address: SocketAddr, plan: &mut Plan) -> Result<()> {
    let Some(certificate) = workload.tls else {
        let listen = address.to_string();
        plan.environment.push(("KONG_PROXY_LISTEN", listen));
        return Ok(());
    };
    let plain = process::free_address()?;
    plan.ready = Some(plain);
    plan.environment
        .push(("KONG_PROXY_LISTEN", format!("{address} ssl, {plain}")));
    plan.environment
        .extend(gateway::certificate_settings(certificate));
    Ok(())
}
