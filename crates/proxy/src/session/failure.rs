//! The ways in which an attempt at an upstream can fail, and who caused each failure. Only failures of the upstream
//! count against its health, and failures of the client are never retried.

use super::connect::ConnectError;
use crate::health;
use plugin::{Reason, TryEnd};
use std::io;

/// The party that caused a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// The client: it disconnected, or sent something that no upstream could serve.
    Client,
    /// The target.
    Upstream,
    /// This gateway: its limits, its resources or its name resolution.
    Gateway,
    /// The target ended the exchange, possibly because of the client. A retry may help; the target's health does not
    /// change.
    Unclear,
}

/// The reason why an attempt failed.
pub(super) enum TryFailure {
    /// No connection was obtained, so nothing was sent.
    Connect(ConnectError),
    Exchange {
        failed: Failed,
        /// Whether the connection had served another request before.
        reused: bool,
        /// Whether the request can be sent again: its body is still complete, and the client has received nothing.
        repeatable: bool,
        /// The status, if the head of a response has been sent to the client.
        told: Option<ReportedStatus>,
        /// The time limit of the upstream that has passed, if that is the failure.
        passed: Option<Limit>,
    },
}

/// A time limit of an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    /// It did not accept the request.
    Write,
    /// It did not send the response, or the next part of it.
    Read,
}

/// The reason why an exchange failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failed {
    /// The upstream failed before the client received any part of the response.
    Upstream(UpstreamFailure),
    /// The client has received a part of the response. The gateway can report the failure only by closing the
    /// connection.
    Broken,
    /// The client has received a part of the response, and a normal close would look like the end of the response. So
    /// the connection is closed with a reset.
    BrokenUnnoticed,
    ClientGone,
    /// The client's body stopped arriving.
    ClientTimeout,
    /// The client's body is malformed.
    ClientBody,
    /// The client's request cannot be expressed in HTTP/2, which the upstream speaks.
    ClientRequest,
    /// The client's body exceeds the size limit.
    TooLarge,
    /// The upstream's response is too large to be read into memory, as a plugin wants it.
    TooLargeToHold,
    /// The upstream broke off a response that is read into memory, so the client has received nothing of it.
    Incomplete,
    /// A filter phase of a plugin failed. The error was logged.
    Filter,
    /// A plugin failed on a piece of the client's body. The error was logged.
    RequestFilter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UpstreamFailure {
    /// The upstream closed or reset the connection before the first byte of a response.
    Silent,
    /// The upstream reported that it has not processed the request.
    Unprocessed,
    /// The upstream reset this request's stream without a response (`RST_STREAM`). It is alive and has seen the
    /// request.
    Rejected,
    /// The upstream closed the connection without a response, possibly because of a client: the request was not
    /// completely sent, or the connection is shared and was closed with an error (`GOAWAY`).
    Interrupted,
    /// The upstream closed or reset the connection in the middle of the response head.
    CutOff,
    /// The response is malformed.
    Nonsense,
    Timeout,
}

/// The status that the client received, and the one that the upstream sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReportedStatus {
    pub(super) status: u16,
    pub(super) upstream: u16,
}

impl Failed {
    pub(super) fn owner(self) -> Owner {
        match self {
            Self::Upstream(UpstreamFailure::Rejected | UpstreamFailure::Interrupted) => {
                Owner::Unclear
            }
            Self::Upstream(_) | Self::Broken | Self::BrokenUnnoticed | Self::Incomplete => {
                Owner::Upstream
            }
            Self::TooLargeToHold | Self::Filter | Self::RequestFilter => Owner::Gateway,
            Self::ClientGone
            | Self::ClientTimeout
            | Self::ClientBody
            | Self::ClientRequest
            | Self::TooLarge => Owner::Client,
        }
    }
}

impl TryFailure {
    /// Failure for a client that disconnected before anything was sent to the upstream.
    pub(super) fn of_client() -> Self {
        Self::Exchange {
            failed: Failed::ClientGone,
            reused: false,
            repeatable: false,
            told: None,
            passed: None,
        }
    }

    pub(super) fn owner(&self) -> Owner {
        match self {
            Self::Connect(error) => error.owner(),
            Self::Exchange { failed, .. } => failed.owner(),
        }
    }

    /// Returns the effect of the failure on the target's health, or `None` if the failure does not affect it.
    pub(super) fn outcome(&self) -> Option<health::Outcome> {
        if let Self::Exchange {
            told: Some(told), ..
        } = self
        {
            // The response head arrived and shows the target's health, however the rest ended.
            return Some(health::Outcome::Status(told.upstream));
        }
        if self.owner() != Owner::Upstream {
            return None;
        }
        match self {
            Self::Connect(error) => error.outcome(),
            Self::Exchange { failed, .. } => match failed {
                Failed::Upstream(UpstreamFailure::Timeout) => Some(health::Outcome::Timeout),
                Failed::Upstream(UpstreamFailure::Silent | UpstreamFailure::CutOff) => {
                    Some(health::Outcome::TcpFailure)
                }
                // A target that sends a malformed response is reachable: it counts as a bad status, not as a failure to
                // connect.
                Failed::Upstream(UpstreamFailure::Nonsense) => Some(health::Outcome::Status(502)),
                // A target that reports a request as not processed is usually shutting down gracefully.
                _ => None,
            },
        }
    }

    /// Returns why the client does not get an upstream's complete response, if this is the last attempt.
    pub(super) fn reason(&self) -> Reason {
        let failed = match self {
            Self::Connect(error) => return error.reason(),
            Self::Exchange {
                passed: Some(Limit::Write),
                ..
            } => return Reason::WriteTimeout,
            Self::Exchange {
                passed: Some(Limit::Read),
                ..
            } => return Reason::ReadTimeout,
            Self::Exchange { failed, .. } => *failed,
        };
        match failed {
            Failed::Upstream(failure) => match failure {
                UpstreamFailure::Silent
                | UpstreamFailure::Interrupted
                | UpstreamFailure::CutOff => Reason::UpstreamClosed,
                UpstreamFailure::Unprocessed | UpstreamFailure::Rejected => Reason::UpstreamReset,
                UpstreamFailure::Nonsense => Reason::UpstreamProtocol,
                UpstreamFailure::Timeout => Reason::ReadTimeout,
            },
            Failed::Broken | Failed::BrokenUnnoticed | Failed::Incomplete => {
                Reason::ResponseBrokenOff
            }
            Failed::ClientGone => Reason::ClientGone,
            Failed::ClientTimeout => Reason::ClientTimeout,
            Failed::ClientBody | Failed::ClientRequest => Reason::BadRequest,
            Failed::TooLarge => Reason::TooLarge,
            Failed::TooLargeToHold => Reason::ResponseTooLarge,
            Failed::Filter | Failed::RequestFilter => Reason::PluginFailed,
        }
    }

    /// Returns the text for the log, and the cause if it is known. Returns `None` for failures that are not logged.
    pub(super) fn text(&self) -> Option<(&'static str, Option<&io::Error>)> {
        let failed = match self {
            Self::Connect(ConnectError::Refused(cause)) => {
                return Some(("cannot connect to upstream", Some(cause)));
            }
            Self::Connect(ConnectError::Handshake { cause, .. }) => {
                return Some(("upstream handshake failed", Some(cause)));
            }
            Self::Connect(ConnectError::Timeout) => {
                return Some(("connecting to upstream took too long", None));
            }
            Self::Connect(ConnectError::Resolve(_) | ConnectError::Busy) => return None,
            Self::Exchange { failed, .. } => failed,
        };
        let text = match failed {
            Failed::Upstream(failure) => match failure {
                UpstreamFailure::Silent | UpstreamFailure::Interrupted => {
                    "upstream closed the connection without a response"
                }
                UpstreamFailure::CutOff => "upstream closed the connection within a response head",
                UpstreamFailure::Unprocessed => "upstream did not process the request",
                UpstreamFailure::Rejected => "upstream reset the request",
                UpstreamFailure::Nonsense => "upstream sent a malformed response",
                UpstreamFailure::Timeout => "upstream did not respond in time",
            },
            Failed::Broken | Failed::BrokenUnnoticed | Failed::Incomplete => {
                "upstream broke off a response"
            }
            Failed::ClientBody => "a request gets 400: malformed request body",
            Failed::ClientRequest => "a request gets 400: HTTP/2 has no form for it",
            Failed::TooLargeToHold => "the response is too large for a plugin that reads it whole",
            Failed::ClientGone
            | Failed::ClientTimeout
            | Failed::TooLarge
            | Failed::Filter
            | Failed::RequestFilter => return None,
        };
        Some((text, None))
    }

    /// Returns the failure's entry in the list of attempts, or `None` if there was no address to connect to.
    pub(super) fn end(&self) -> Option<TryEnd> {
        Some(match self {
            Self::Connect(ConnectError::Resolve(_)) => return None,
            Self::Connect(ConnectError::Refused(_) | ConnectError::Handshake { .. }) => {
                TryEnd::Failed(502)
            }
            Self::Connect(ConnectError::Timeout) => TryEnd::Failed(504),
            Self::Connect(ConnectError::Busy) => TryEnd::Failed(503),
            Self::Exchange {
                told: Some(told), ..
            } => TryEnd::Answered(told.upstream),
            Self::Exchange { failed, .. } => match failed {
                Failed::Upstream(UpstreamFailure::Timeout) => TryEnd::Failed(504),
                Failed::Upstream(_)
                | Failed::Broken
                | Failed::BrokenUnnoticed
                | Failed::Incomplete
                | Failed::TooLargeToHold => TryEnd::Failed(502),
                Failed::ClientGone
                | Failed::ClientTimeout
                | Failed::ClientBody
                | Failed::ClientRequest
                | Failed::TooLarge
                | Failed::Filter
                | Failed::RequestFilter => TryEnd::Abandoned,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::Outcome;
    use net::dns::ResolveError;
    use std::sync::Arc;

    fn of_exchange(failed: Failed) -> (Owner, Option<Outcome>) {
        let failure = TryFailure::Exchange {
            failed,
            reused: false,
            repeatable: true,
            told: None,
            passed: None,
        };
        (failure.owner(), failure.outcome())
    }

    #[test]
    fn only_failures_of_the_upstream_count_against_its_health() {
        use UpstreamFailure::{
            CutOff, Interrupted, Nonsense, Rejected, Silent, Timeout, Unprocessed,
        };
        let of_upstream = |failure| of_exchange(Failed::Upstream(failure));
        let tcp = (Owner::Upstream, Some(Outcome::TcpFailure));
        assert_eq!(of_upstream(Silent), tcp);
        assert_eq!(of_upstream(CutOff), tcp);
        assert_eq!(
            of_upstream(Timeout),
            (Owner::Upstream, Some(Outcome::Timeout))
        );
        assert_eq!(
            of_upstream(Nonsense),
            (Owner::Upstream, Some(Outcome::Status(502)))
        );
        assert_eq!(of_upstream(Unprocessed), (Owner::Upstream, None));
        assert_eq!(of_upstream(Rejected), (Owner::Unclear, None));
        assert_eq!(of_upstream(Interrupted), (Owner::Unclear, None));
        for failed in [
            Failed::ClientGone,
            Failed::ClientTimeout,
            Failed::ClientBody,
            Failed::ClientRequest,
            Failed::TooLarge,
        ] {
            assert_eq!(of_exchange(failed), (Owner::Client, None), "{failed:?}");
        }
    }

    #[test]
    fn a_response_that_breaks_off_counts_by_its_status() {
        for failed in [Failed::Broken, Failed::BrokenUnnoticed, Failed::ClientGone] {
            let failure = TryFailure::Exchange {
                failed,
                reused: false,
                repeatable: false,
                told: Some(ReportedStatus {
                    status: 200,
                    upstream: 500,
                }),
                passed: None,
            };
            assert_eq!(failure.outcome(), Some(Outcome::Status(500)), "{failed:?}");
        }
    }

    #[test]
    fn failures_to_connect_count_only_if_the_target_causes_them() {
        let of = |error: ConnectError| {
            let failure = TryFailure::Connect(error);
            (failure.owner(), failure.outcome())
        };
        let refused = |code: i32| {
            let cause = io::Error::from_raw_os_error(code);
            of(ConnectError::Refused(Arc::new(cause)))
        };
        const ENOMEM: i32 = 12;
        const EMFILE: i32 = 24;
        const EADDRNOTAVAIL: i32 = 99;
        const ECONNREFUSED: i32 = 111;
        let tcp = Some(Outcome::TcpFailure);
        assert_eq!(refused(ECONNREFUSED), (Owner::Upstream, tcp));
        for code in [ENOMEM, EMFILE, EADDRNOTAVAIL] {
            assert_eq!(refused(code), (Owner::Gateway, None), "{code}");
        }
        for (owner, expected) in [
            (Owner::Upstream, tcp),
            (Owner::Unclear, None),
            (Owner::Client, None),
        ] {
            let cause = Arc::new(io::ErrorKind::UnexpectedEof.into());
            let got = of(ConnectError::Handshake { cause, owner });
            assert_eq!(got, (owner, expected));
        }
        assert_eq!(
            of(ConnectError::Timeout),
            (Owner::Upstream, Some(Outcome::Timeout))
        );
        assert_eq!(of(ConnectError::Busy), (Owner::Gateway, None));
        let resolve = ConnectError::Resolve(ResolveError::NotFound);
        assert_eq!(of(resolve), (Owner::Gateway, None));
    }

    #[test]
    fn reasons_tell_the_stage_at_which_an_attempt_failed() {
        use UpstreamFailure::{Nonsense, Rejected, Silent, Timeout, Unprocessed};
        let of = |failed, passed| {
            let failure = TryFailure::Exchange {
                failed,
                reused: false,
                repeatable: false,
                told: None,
                passed,
            };
            failure.reason()
        };
        let upstream = |failure| of(Failed::Upstream(failure), None);
        assert_eq!(upstream(Silent), Reason::UpstreamClosed);
        assert_eq!(upstream(Unprocessed), Reason::UpstreamReset);
        assert_eq!(upstream(Rejected), Reason::UpstreamReset);
        assert_eq!(upstream(Nonsense), Reason::UpstreamProtocol);
        let timeout = Failed::Upstream(Timeout);
        assert_eq!(of(timeout, Some(Limit::Write)), Reason::WriteTimeout);
        assert_eq!(of(timeout, Some(Limit::Read)), Reason::ReadTimeout);
        for failed in [Failed::Broken, Failed::BrokenUnnoticed, Failed::Incomplete] {
            assert_eq!(of(failed, None), Reason::ResponseBrokenOff);
            assert_eq!(of(failed, Some(Limit::Read)), Reason::ReadTimeout);
        }
        assert_eq!(of(Failed::TooLargeToHold, None), Reason::ResponseTooLarge);
        assert_eq!(of(Failed::ClientGone, None), Reason::ClientGone);
        const EMFILE: i32 = 24;
        let shortage = Arc::new(io::Error::from_raw_os_error(EMFILE));
        let shortage = TryFailure::Connect(ConnectError::Refused(shortage));
        assert_eq!(shortage.reason(), Reason::Overloaded);
    }
}
