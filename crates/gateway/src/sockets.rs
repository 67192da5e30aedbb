//! Binding every listener of the settings at once, so that all that cannot be bound is told together.

use crate::commands::Failure;
use crate::occupant;
use crate::settings::{Listen, Settings};
use net::listen::{BindError, bind};
use serde_json::json;
use std::net::{SocketAddr, TcpListener};

/// One listener of the proxy: a socket for each worker.
pub(crate) struct Bound {
    pub(crate) listen: Listen,
    pub(crate) address: SocketAddr,
    pub(crate) sockets: Vec<TcpListener>,
}

pub(crate) struct Sockets {
    pub(crate) proxy: Vec<Bound>,
    pub(crate) admin: Vec<Bound>,
}

pub(crate) fn bind_all(settings: &Settings) -> Result<Sockets, Failure> {
    let mut failure = Failure::default();
    let workers = settings.workers;
    let proxy = bind_setting(
        "proxy_listen",
        &settings.proxy_listen,
        workers,
        &mut failure,
    );
    let admin = bind_setting("admin_listen", &settings.admin_listen, 1, &mut failure);
    if failure.is_empty() {
        Ok(Sockets { proxy, admin })
    } else {
        Err(failure)
    }
}

fn bind_setting(
    setting: &str,
    listeners: &[Listen],
    sockets: usize,
    failure: &mut Failure,
) -> Vec<Bound> {
    let mut bound = Vec::new();
    for listen in listeners {
        match bind(listen, sockets) {
            Ok(sockets) => {
                let address = sockets.first().and_then(|socket| socket.local_addr().ok());
                bound.push(Bound {
                    listen: listen.clone(),
                    address: address.unwrap_or(listen.address),
                    sockets,
                });
            }
            Err(error) => failure.add(Failure::new(describe(setting, &error))),
        }
    }
    bound
}

fn describe(setting: &str, error: &BindError) -> String {
    let owner = match error {
        BindError::InUse { address } => occupant::of(*address),
        _ => None,
    };
    match owner {
        Some(owner) => format!("setting {setting}: {error}: {owner}"),
        None => format!("setting {setting}: {error}"),
    }
}

impl Sockets {
    /// What is really listened on, as it is published for other processes.
    pub(crate) fn addresses(&self) -> serde_json::Value {
        let of = |bound: &[Bound], tls: bool| {
            let wanted = bound.iter().filter(|bound| bound.listen.ssl == tls);
            wanted
                .map(|bound| bound.address.to_string())
                .collect::<Vec<_>>()
        };
        json!({
            "proxy": of(&self.proxy, false),
            "proxy_tls": of(&self.proxy, true),
            "admin": of(&self.admin, false),
            "admin_tls": of(&self.admin, true),
        })
    }
}
