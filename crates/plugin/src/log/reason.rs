//! Why a client did not get an upstream's complete response.

/// Why the gateway answered a request itself, could not complete an upstream's response, or ended a stream. Where Envoy has a response
/// flag for the same thing, [`Reason::flag`] is that flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// No route matches.
    NoRoute,
    /// The route does not serve the request's protocol.
    WrongProtocol,
    /// The route has no service.
    NoService,
    /// The request, or its body, is malformed, or cannot be forwarded in the upstream's protocol.
    BadRequest,
    /// The request's head or body exceeds a limit.
    TooLarge,
    /// The client sent its request, or received its response, too slowly.
    ClientTimeout,
    /// The client disconnected before its response was complete.
    ClientGone,
    /// The TLS handshake with the client of a stream failed.
    ClientTlsFailed,
    /// A plugin answered.
    Plugin,
    /// A plugin failed.
    PluginFailed,
    /// The load balancer has no healthy target.
    NoHealthyTarget,
    /// The name of the upstream could not be resolved.
    NameNotResolved,
    /// The upstream refused the connection, or could not be reached.
    ConnectFailed,
    /// The connection was not open within the connect timeout, TLS included.
    ConnectTimeout,
    /// The TLS handshake with the upstream, or the negotiation of the protocol, failed.
    TlsFailed,
    /// The upstream did not accept the request's bytes within the write timeout.
    WriteTimeout,
    /// The upstream sent nothing within the read timeout.
    ReadTimeout,
    /// The upstream closed or reset the connection before the head of its response was complete.
    UpstreamClosed,
    /// The upstream refused this request's HTTP/2 stream (`RST_STREAM`, `GOAWAY`).
    UpstreamReset,
    /// The upstream's response is malformed.
    UpstreamProtocol,
    /// The upstream broke off its response after the head.
    ResponseBrokenOff,
    /// The upstream's response is larger than what may be read into memory for a plugin.
    ResponseTooLarge,
    /// All places for concurrent requests of the upstream, and those that wait for one, are taken.
    UpstreamBusy,
    /// The gateway lacks descriptors, ports or memory.
    Overloaded,
    /// The gateway stopped before the response was complete.
    Draining,
    /// Something in the gateway or its configuration failed.
    Internal,
}

impl Reason {
    pub const COUNT: usize = 26;

    /// All reasons in the order of the enum, with their names and flags.
    const TABLE: [(Self, &'static str, &'static str); Self::COUNT] = [
        (Self::NoRoute, "no_route", "NR"),
        (Self::WrongProtocol, "wrong_protocol", "WP"),
        (Self::NoService, "no_service", "NC"),
        (Self::BadRequest, "bad_request", "DPE"),
        (Self::TooLarge, "too_large", "TL"),
        (Self::ClientTimeout, "client_timeout", "SI"),
        (Self::ClientGone, "client_gone", "DC"),
        (Self::ClientTlsFailed, "client_tls_failed", "CTF"),
        (Self::Plugin, "plugin", "PL"),
        (Self::PluginFailed, "plugin_failed", "PF"),
        (Self::NoHealthyTarget, "no_healthy_target", "UH"),
        (Self::NameNotResolved, "name_not_resolved", "DF"),
        (Self::ConnectFailed, "connect_failed", "UF"),
        (Self::ConnectTimeout, "connect_timeout", "CT"),
        (Self::TlsFailed, "tls_failed", "TF"),
        (Self::WriteTimeout, "write_timeout", "WT"),
        (Self::ReadTimeout, "read_timeout", "UT"),
        (Self::UpstreamClosed, "upstream_closed", "UC"),
        (Self::UpstreamReset, "upstream_reset", "UR"),
        (Self::UpstreamProtocol, "upstream_protocol", "UPE"),
        (Self::ResponseBrokenOff, "response_broken_off", "BO"),
        (Self::ResponseTooLarge, "response_too_large", "RTL"),
        (Self::UpstreamBusy, "upstream_busy", "UO"),
        (Self::Overloaded, "overloaded", "OM"),
        (Self::Draining, "draining", "DN"),
        (Self::Internal, "internal", "IE"),
    ];

    pub fn all() -> impl Iterator<Item = Self> {
        Self::TABLE.into_iter().map(|(reason, _, _)| reason)
    }

    /// The name in logs and metrics.
    pub fn name(self) -> &'static str {
        Self::TABLE[self as usize].1
    }

    /// The short form for access logs.
    pub fn flag(self) -> &'static str {
        Self::TABLE[self as usize].2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_reason_has_a_name_and_a_flag_of_its_own() {
        for (position, (reason, _, _)) in Reason::TABLE.into_iter().enumerate() {
            assert_eq!(reason as usize, position, "{reason:?}");
        }
        assert_eq!(Reason::Internal as usize + 1, Reason::COUNT);
        let names: HashSet<_> = Reason::all().map(Reason::name).collect();
        let flags: HashSet<_> = Reason::all().map(Reason::flag).collect();
        assert_eq!((names.len(), flags.len()), (Reason::COUNT, Reason::COUNT));
    }
}
