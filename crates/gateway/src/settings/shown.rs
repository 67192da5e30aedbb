//! The settings as the Admin API shows them at `/`: every setting under its Kong name, and the fields that Kong adds,
//! such as its listeners as objects. Clients read them to learn what the gateway can do. Source:
//! kong/conf_loader/listeners.lua.

use super::raw::RawSettings;
use super::{Database, Declarative, table, values};

use serde_json::{Map, Value};
use std::path::Path;

const MASK: &str = "******";

/// Listener options that Kong shows one by one, written as Kong's patterns.
const HTTP_FLAGS: [&str; 12] = [
    "ssl",
    "http2",
    "proxy_protocol",
    "deferred",
    "bind",
    "reuseport",
    "backlog=%d+",
    "ipv6only=on",
    "ipv6only=off",
    "so_keepalive=on",
    "so_keepalive=off",
    "so_keepalive=%w*:%w*:%d*",
];
const STREAM_FLAGS: [&str; 11] = [
    "udp",
    "ssl",
    "proxy_protocol",
    "bind",
    "reuseport",
    "backlog=%d+",
    "ipv6only=on",
    "ipv6only=off",
    "so_keepalive=on",
    "so_keepalive=off",
    "so_keepalive=%w*:%w*:%d*",
];
const STATUS_FLAGS: [&str; 3] = ["ssl", "http2", "proxy_protocol"];

/// Settings of listeners, their options, and the field that says whether one of the listeners has TLS.
const LISTENERS: [(&str, &[&str], Option<&str>); 6] = [
    ("proxy_listen", &HTTP_FLAGS, Some("proxy_ssl_enabled")),
    (
        "stream_listen",
        &STREAM_FLAGS,
        Some("stream_proxy_ssl_enabled"),
    ),
    ("admin_listen", &HTTP_FLAGS, Some("admin_ssl_enabled")),
    (
        "admin_gui_listen",
        &HTTP_FLAGS,
        Some("admin_gui_ssl_enabled"),
    ),
    ("status_listen", &STATUS_FLAGS, Some("status_ssl_enabled")),
    ("cluster_listen", &HTTP_FLAGS, None),
];

/// Returns the effective values as typed JSON, with sensitive values masked. A value that comes from a reference is
/// shown as the reference. Settings without a value are left out, as by Kong's encoder.
pub(super) fn all(raw: &RawSettings, database: &Database) -> Value {
    let settings = table::table().iter().filter_map(|setting| {
        let name = setting.alias_of.as_deref().unwrap_or(&setting.name);
        let text = raw.text(name)?;
        let value = match raw.reference(name) {
            _ if setting.sensitive => MASK.into(),
            Some(reference) if setting.kind == table::Kind::Array => {
                typed_value(setting.kind, &reference.written)
            }
            Some(reference) => reference.written.as_str().into(),
            None => typed_value(setting.kind, text),
        };
        Some((setting.name.clone(), value))
    });
    let mut shown: Map<_, _> = settings.collect();
    // Clients such as decK read the mode here, so it must be present even if it is not set.
    let mode = match database {
        Database::Lmdb => "lmdb",
        Database::Off(_) => "off",
    };
    shown.insert("database".to_owned(), mode.into());
    // The file may be named by an argument instead of the setting.
    if let Database::Off(Declarative::File(path)) = database
        && raw.text("declarative_config").map(Path::new) != Some(path)
    {
        let path = path.display().to_string();
        shown.insert("declarative_config".to_owned(), path.into());
    }
    for (name, flags, ssl_flag) in LISTENERS {
        let text = raw.text(name).unwrap_or("off");
        if let Some(ssl_flag) = ssl_flag {
            let mut all = listeners(text, flags).into_iter();
            let has_tls = all.any(|listener| listener["ssl"] == true);
            shown.insert(ssl_flag.to_owned(), has_tls.into());
        }
        let written = raw
            .reference(name)
            .map_or(text, |reference| &reference.written);
        let known = listeners(written, flags);
        shown.insert(format!("{name}ers"), known.into());
    }
    Value::Object(shown)
}

fn typed_value(kind: table::Kind, text: &str) -> Value {
    match kind {
        table::Kind::Boolean => values::boolean(text).unwrap_or(false).into(),
        table::Kind::Number => match text.parse::<i64>() {
            Ok(number) => number.into(),
            Err(_) => text.parse::<f64>().unwrap_or(0.0).into(),
        },
        table::Kind::Array => values::list(text).collect::<Vec<_>>().into(),
        _ => text.into(),
    }
}

fn listeners(text: &str, flags: &[&str]) -> Vec<Value> {
    let entries = values::list(text).filter(|entry| *entry != "off");
    entries.filter_map(|entry| listener(entry, flags)).collect()
}

/// Converts `127.0.0.1:8443 ssl` to `{"ip": "127.0.0.1", "port": 8443, "listener": "127.0.0.1:8443 ssl", "ssl": true,
/// "http2": false, …}`. Returns `None` for an entry that is not a listener; such an entry is an error of its setting.
fn listener(entry: &str, flags: &[&str]) -> Option<Value> {
    let mut words = entry.split_whitespace();
    let address = words.next()?;
    let (ip, port) = address.rsplit_once(':')?;
    let port: u16 = port.parse().ok()?;
    let mut options: Vec<&str> = words.collect();
    let mut listener = Map::new();
    let mut shown = address.to_owned();
    for flag in flags {
        // Each option counts for the first flag that it fits, and for no other one.
        let given = options.iter().position(|option| fits(option, flag));
        let given = given.map(|at| options.swap_remove(at));
        if let Some(given) = given {
            shown.push(' ');
            shown.push_str(given);
        }
        listener.insert(given.unwrap_or(flag).to_owned(), given.is_some().into());
    }
    listener.insert("ip".to_owned(), ip.into());
    listener.insert("port".to_owned(), port.into());
    listener.insert("listener".to_owned(), shown.into());
    Some(Value::Object(listener))
}

/// Whether an option belongs to a flag. A flag may have a pattern in place of its value.
fn fits(option: &str, flag: &str) -> bool {
    match flag.split_once('%') {
        Some((name, _)) => option.starts_with(name),
        None => option == flag,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_listener_is_shown_with_all_possible_options() {
        let text = "0.0.0.0:8000 reuseport backlog=16384, [::1]:8443 so_keepalive=on http2 ssl";
        let shown = listeners(text, &HTTP_FLAGS[..7]);
        let expected = json!([
            {
                "ip": "0.0.0.0", "port": 8000, "listener": "0.0.0.0:8000 reuseport backlog=16384",
                "ssl": false, "http2": false, "proxy_protocol": false, "deferred": false, "bind": false,
                "reuseport": true, "backlog=16384": true
            },
            {
                "ip": "[::1]", "port": 8443, "listener": "[::1]:8443 ssl http2",
                "ssl": true, "http2": true, "proxy_protocol": false, "deferred": false, "bind": false,
                "reuseport": false, "backlog=%d+": false
            },
        ]);
        assert_eq!(Value::from(shown), expected);
        assert_eq!(listeners("off", &HTTP_FLAGS), Vec::<Value>::new());
    }

    #[test]
    fn an_option_is_shown_once() {
        let shown = listeners("1.2.3.4:1 so_keepalive=on", &HTTP_FLAGS);
        assert_eq!(shown[0]["so_keepalive=on"], true);
        assert_eq!(shown[0]["so_keepalive=%w*:%w*:%d*"], false);
    }
}
