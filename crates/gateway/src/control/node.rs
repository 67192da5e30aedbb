//! Identity of this node, for the Admin API and for plugins.

use crate::settings::{Database, Settings};
use admin::control::{Node, Role};
use std::io;
use std::path::Path;
use uuid::Uuid;

/// Version of Kong that this program is compatible with.
pub(crate) const KONG_VERSION: &str = "3.9.1";
pub(crate) const ID_FILE: &str = "silverback.id";
/// Maximum size in bytes of a declarative configuration in a request. It may be far larger than an entity, so
/// `nginx_admin_client_max_body_size` does not apply to it. Kong applies that setting (10 MB by default).
const MAX_CONFIG_SIZE: usize = 256 << 20;

pub(crate) fn identify(settings: &Settings) -> io::Result<Node> {
    let id = match settings.node_id {
        Some(id) => id,
        None => persisted_id(&settings.prefix)?,
    };
    let has = |names: &[&str]| {
        let headers = &settings.proxy.headers;
        headers.iter().any(|name| names.contains(&name.as_str()))
    };
    Ok(Node {
        id,
        hostname: hostname(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kong_version: KONG_VERSION.to_owned(),
        role: Role::Traditional,
        server_header: has(&["server_tokens", "server"]),
        latency_header: has(&["latency_tokens", "x-kong-admin-latency"]),
        gui_origins: settings.admin.gui_origins.clone(),
        max_body_size: usize::try_from(settings.admin.max_body)
            .ok()
            .filter(|&size| size > 0),
        max_config_size: Some(MAX_CONFIG_SIZE),
    })
}

/// Converts the database mode to the type of the Admin API.
pub(crate) fn database(settings: &Settings) -> admin::control::Database {
    match settings.store.database {
        Database::Lmdb => admin::control::Database::Lmdb,
        Database::Off(_) => admin::control::Database::Off,
    }
}

/// Returns the id of the last run with this prefix, or creates a new one.
fn persisted_id(prefix: &Path) -> io::Result<Uuid> {
    let path = prefix.join(ID_FILE);
    let present = match std::fs::read_to_string(&path) {
        Ok(text) => Uuid::try_parse(text.trim()).ok(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    match present {
        Some(id) => Ok(id),
        None => {
            let id = Uuid::new_v4();
            std::fs::write(&path, format!("{id}\n"))?;
            Ok(id)
        }
    }
}

pub(crate) fn hostname() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}
