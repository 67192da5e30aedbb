//! Configures nginx for a workload. Each route is a `location`, and the API keys are in a `map`.

use super::{Definition, Http2, Plan, Workload, lines, version_after, write};
use anyhow::Result;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

pub(super) static DEFINITION: Definition = Definition {
    name: "nginx",
    programs: &["nginx"],
    install: "apt-get install nginx-light",
    version: |program| version_after(program, &["-v"], "nginx/"),
    prepare,
};

fn prepare(workload: &Workload<'_>, address: SocketAddr, directory: &Path) -> Result<Option<Plan>> {
    let home = directory.display();
    let upstream = workload.upstream;
    let keys = key_map(workload, directory)?;
    let server = server(workload, address);
    let requests = match workload.http2 {
        Http2::UsualLimits => "",
        Http2::Off | Http2::Unlimited => "  keepalive_requests 1000000000;\n",
    };
    // By default nginx closes every connection after 1,000 requests. `keepalive_requests` raises this limit, except
    // where the usual limits are measured. The buffers hold the largest response, so that nginx never writes it to a
    // file.
    let configuration = format!(
        "daemon off;
worker_processes 1;
worker_rlimit_nofile 16384;
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
{requests}  keepalive_timeout 600s;
  tcp_nodelay on;
  proxy_http_version 1.1;
  proxy_set_header Connection \"\";
  proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
  proxy_buffer_size 64k;
  proxy_buffers 8 64k;
  proxy_busy_buffers_size 128k;
  proxy_max_temp_file_size 0;
  upstream bench {{
    server {upstream};
    keepalive 2048;
    keepalive_requests 1000000000;
    keepalive_timeout 600s;
  }}
{keys}{server}}}
"
    );
    let file = write(directory, "nginx.conf", &configuration)?;
    let prefix = directory.display().to_string();
    Ok(Some(Plan::new([
        "-p",
        &prefix,
        "-e",
        "nginx-error.log",
        "-c",
        &file,
    ])))
}

fn key_map(workload: &Workload<'_>, directory: &Path) -> Result<String> {
    if workload.keys == 0 {
        return Ok(String::new());
    }
    let file = write(directory, "nginx-keys", &lines(workload.api_keys(), " 1;"))?;
    // The hash table has spare room, and its buckets hold all collisions. nginx therefore finds a key with one or two
    // comparisons, and builds the table at the first attempt.
    let size = (workload.keys * 2).max(2048);
    Ok(format!(
        "  map_hash_max_size {size};
  map_hash_bucket_size 1024;
  map $http_apikey $known {{ default 0; include {file}; }}
"
    ))
}

fn server(workload: &Workload<'_>, address: SocketAddr) -> String {
    let mut text = String::from("  server {\n");
    match workload.tls {
        None => drop(writeln!(text, "    listen {address} backlog=4096;")),
        Some(certificate) => drop(writeln!(
            text,
            "    listen {address} ssl{} backlog=4096;
    ssl_certificate {};
    ssl_certificate_key {};
    ssl_protocols TLSv1.2 TLSv1.3;",
            if workload.http2 == Http2::Off {
                ""
            } else {
                " http2"
            },
            certificate.certificate.display(),
            certificate.key.display()
        )),
    }
    if workload.keys > 0 {
        text.push_str("    if ($known = 0) { return 401; }\n");
    }
    if workload.routes == 1 {
        text.push_str("    location / { proxy_pass http://bench; }\n");
    } else {
        let mut paths: Vec<String> = workload.paths().collect();
        // nginx stores locations in a tree, so their order has no effect on matching. It sorts them by insertion sort,
        // which is fastest for sorted input.
        paths.sort_unstable();
        text.push_str("    location / { return 404; }\n");
        let locations = paths
            .into_iter()
            .map(|path| format!("    location {path} {{ proxy_pass http://bench; }}"));
        text.push_str(&lines(locations, ""));
    }
    text.push_str("  }\n");
    text
}
