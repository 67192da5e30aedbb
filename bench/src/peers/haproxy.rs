//! HAProxy: routes are in a prefix map, and keys are in a list. HAProxy stores both as trees in memory.

use super::{Definition, Http2, Plan, Workload, lines, version_after, write};
use anyhow::{Context, Result};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

pub(super) static DEFINITION: Definition = Definition {
    name: "haproxy",
    programs: &["haproxy"],
    install: "apt-get install haproxy",
    version: |program| version_after(program, &["-v"], "version "),
    prepare,
};

fn prepare(workload: &Workload<'_>, address: SocketAddr, directory: &Path) -> Result<Option<Plan>> {
    let upstream = workload.upstream;
    let frontend = [
        bind(workload, address, directory)?,
        authentication(workload, directory)?,
        routing(workload, directory)?,
    ]
    .concat();
    // A buffer of 64 KiB would not hold a body of 64 KiB with its head, so each such response would need two rounds of
    // reading and writing. Without `http-reuse always`, the first request of each client would open a connection to the
    // upstream.
    let configuration = format!(
        "global
  nbthread 1
  maxconn 4096
  tune.bufsize 131072
defaults
  mode http
  option http-keep-alive
  option forwardfor
  http-reuse always
  timeout connect 5s
  timeout client 600s
  timeout server 600s
  timeout http-keep-alive 600s
frontend bench
{frontend}backend bench
  server upstream {upstream} pool-purge-delay 600s
backend missing
  http-request return status 404
"
    );
    let file = write(directory, "haproxy.cfg", &configuration)?;
    // Run in the foreground, without a master process.
    Ok(Some(Plan::new(["-db", "-f", &file])))
}

fn bind(workload: &Workload<'_>, address: SocketAddr, directory: &Path) -> Result<String> {
    let Some(files) = workload.tls else {
        return Ok(format!("  bind {address} backlog 4096\n"));
    };
    // HAProxy requires certificate and key in one file.
    let read = |path: &Path| {
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
    };
    let both = read(&files.certificate)? + &read(&files.key)?;
    let file = write(directory, "haproxy.pem", &both)?;
    let protocols = match workload.http2 {
        Http2::Off => "http/1.1",
        Http2::Unlimited | Http2::UsualLimits => "h2,http/1.1",
    };
    Ok(format!(
        "  bind {address} backlog 4096 ssl crt {file} alpn {protocols} ssl-min-ver TLSv1.2 ssl-max-ver TLSv1.3\n"
    ))
}

fn authentication(workload: &Workload<'_>, directory: &Path) -> Result<String> {
    if workload.keys == 0 {
        return Ok(String::new());
    }
    let file = write(directory, "haproxy-keys", &lines(workload.api_keys(), ""))?;
    Ok(format!(
        "  http-request deny deny_status 401 unless {{ req.hdr(apikey) -m str -f {file} }}\n"
    ))
}

/// Returns the routing rules. The map of routes contains the name of each route's backend, and HAProxy looks it up for
/// each request. This corresponds to the lookup of a route's service in a gateway.
fn routing(workload: &Workload<'_>, directory: &Path) -> Result<String> {
    if workload.routes == 1 {
        return Ok("  default_backend bench\n".to_owned());
    }
    let file = write(
        directory,
        "haproxy-routes",
        &lines(workload.paths(), " bench"),
    )?;
    Ok(format!(
        "  use_backend %[path,map_beg({file})]\n  default_backend missing\n"
    ))
}
