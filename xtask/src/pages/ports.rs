//! Replaces the port numbers in the text of a page, so that its commands use free ports.

use std::collections::BTreeMap;
use std::net::TcpListener;

/// The gateway's default listeners, which pages expect.
const LISTENERS: [(&str, &[(u16, &str)]); 3] = [
    (
        "KONG_PROXY_LISTEN",
        &[(8000, " reuseport"), (8443, " http2 ssl reuseport")],
    ),
    (
        "KONG_ADMIN_LISTEN",
        &[(8001, " reuseport"), (8444, " http2 ssl reuseport")],
    ),
    ("KONG_STATUS_LISTEN", &[(8007, "")]),
];

/// Maps each port of a page to a free port.
#[derive(Default)]
pub(super) struct Ports {
    chosen: BTreeMap<u16, u16>,
    /// Listeners that reserve the chosen ports until all ports are chosen.
    held: Vec<TcpListener>,
}

impl Ports {
    /// Replaces ports from 8000 to 9999 after a colon or an equals sign by free ports.
    pub(super) fn replace(&mut self, text: &str) -> String {
        let mut replaced = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find([':', '=']) {
            let (before, after) = rest.split_at(at + 1);
            replaced.push_str(before);
            let blanks = after.len() - after.trim_start_matches(' ').len();
            let digits = after[blanks..]
                .bytes()
                .take_while(u8::is_ascii_digit)
                .count();
            let (number, left) = after.split_at(blanks + digits);
            rest = left;
            match number.trim_start().parse() {
                Ok(port @ 8000..=9999) => {
                    replaced.push_str(&number[..blanks]);
                    replaced.push_str(&self.free(port).to_string());
                }
                _ => replaced.push_str(number),
            }
        }
        replaced.push_str(rest);
        replaced
    }

    /// Returns environment variables that move the gateway's default listeners to free ports, and releases the reserved
    /// ports for the page.
    pub(super) fn listeners(&mut self) -> Vec<(&'static str, String)> {
        let settings = LISTENERS.map(|(name, listeners)| {
            let values: Vec<String> = listeners
                .iter()
                .map(|(port, flags)| format!("127.0.0.1:{}{flags}", self.free(*port)))
                .collect();
            (name, values.join(", "))
        });
        self.held.clear();
        settings.into()
    }

    fn free(&mut self, port: u16) -> u16 {
        if let Some(chosen) = self.chosen.get(&port) {
            return *chosen;
        }
        // If no port can be reserved, the page keeps its own port, and its errors show that port.
        let Ok(listener) = TcpListener::bind("127.0.0.1:0") else {
            return port;
        };
        let chosen = listener.local_addr().map_or(port, |address| address.port());
        self.held.push(listener);
        self.chosen.insert(port, chosen);
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_the_same_free_one_everywhere() {
        let mut ports = Ports::default();
        let text = "curl http://127.0.0.1:8000/a\nport: 9001\nlisten=8000";
        let replaced = ports.replace(text);
        let proxy = ports.free(8000);
        let upstream = ports.free(9001);
        assert_ne!(proxy, upstream);
        assert_eq!(
            replaced,
            format!("curl http://127.0.0.1:{proxy}/a\nport: {upstream}\nlisten={proxy}")
        );
    }

    #[test]
    fn other_numbers_stay() {
        let text = "a: 80, b: 80000, c=7999, d 8000, 12:30, e:\n8000, _format_version: \"3.0\"";
        assert_eq!(Ports::default().replace(text), text);
    }

    #[test]
    fn listeners_use_the_ports_of_the_page() {
        let mut ports = Ports::default();
        let status = ports.replace(":8007");
        let listeners = ports.listeners();
        assert_eq!(
            listeners[2],
            ("KONG_STATUS_LISTEN", format!("127.0.0.1{status}"))
        );
    }
}
