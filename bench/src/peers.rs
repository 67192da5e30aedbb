//! The programs that Silverback is measured beside, each with an equivalent configuration.

use crate::process::Process;
use anyhow::{Context, Result};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Where a program is on PATH.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian keeps nginx where only root's PATH looks.
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin")])
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
}

/// nginx as a plain reverse proxy, set up kindly: connections to the upstream kept, no request id, no access log, buffers
/// that hold the largest answer.
pub fn nginx(
    program: &Path,
    upstream: SocketAddr,
    core: usize,
    directory: &Path,
) -> Result<(Process, SocketAddr)> {
    let address = crate::process::free_address()?;
    let home = directory.display();
    let configuration = format!(
        "daemon off;
worker_processes 1;
pid {home}/nginx.pid;
error_log {home}/nginx-error.log warn;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_body_temp_path {home}/nginx-body;
  proxy_temp_path {home}/nginx-proxy;
  fastcgi_temp_path {home}/nginx-fastcgi;
  uwsgi_temp_path {home}/nginx-uwsgi;
  scgi_temp_path {home}/nginx-scgi;
  keepalive_requests 1000000000;
  keepalive_timeout 600s;
  tcp_nodelay on;
  proxy_http_version 1.1;
  proxy_set_header Connection \"\";
  proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
  proxy_buffer_size 64k;
  proxy_buffers 8 64k;
  proxy_busy_buffers_size 128k;
  upstream bench {{ server {upstream}; keepalive 512; keepalive_requests 1000000000; }}
  server {{ listen {address}; location / {{ proxy_pass http://bench; }} }}
}}
"
    );
    let file = directory.join("nginx.conf");
    fs::write(&file, configuration).with_context(|| format!("cannot write {}", file.display()))?;
    let arguments = ["-c".as_ref(), file.as_os_str()];
    let process = Process::start(
        program,
        &arguments,
        &[],
        core,
        address,
        &directory.join("nginx.log"),
    )?;
    Ok((process, address))
}
