//! What can go wrong with a try at an upstream, and whose doing it is. That decides everything else: only what an upstream
//! did counts against its health, and nothing that a client did is tried again.

use super::connect::ConnectError;
use crate::health;
use plugin::TryEnd;
use std::io;

/// Who brought a failure about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// The client: it went away, or it sent something that no upstream could serve.
    Client,
    /// The target itself.
    Upstream,
    /// This gateway: its limits, its own resources, its name resolution.
    Gateway,
    /// The target ended it, and the client may have been the reason. Trying again may help, and the target's health stays.
    Unclear,
}

/// Why a try came to nothing.
pub(super) enum TryFailure {
    /// Nothing was sent.
    Connect(ConnectError),
    Exchange {
        failed: Failed,
        /// The connection had served before.
        reused: bool,
        /// Nothing was taken from the client that could not be sent again, and nothing said to it.
        repeatable: bool,
        /// The head of an answer had gone to the client.
        told: Option<Told>,
    },
}

/// How an exchange ended when it did not end well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failed {
    /// The client has seen nothing yet.
    Upstream(UpstreamFailure),
    /// The client has seen a part of the answer: nothing can be said any more but by closing.
    Broken,
    /// The client has seen a part of the answer, and closing would look like the end of it.
    BrokenUnnoticed,
    ClientGone,
    /// The client's body does not come.
    ClientTimeout,
    /// The client's body is not what it should be.
    ClientBody,
    /// HTTP/2, which the upstream speaks, has no form for the client's request.
    ClientRequest,
    /// The client's body is longer than allowed.
    TooLarge,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UpstreamFailure {
    /// The upstream closed or reset the connection without a byte of an answer.
    Silent,
    /// The upstream says that it has not looked at the request.
    Unprocessed,
    /// The upstream gave up this request alone, without an answer (`RST_STREAM`). It is alive and has seen the request.
    Rejected,
    /// The upstream ended the connection without an answer for a reason that may be the client's: the request was still on its
    /// way, or the connection is shared and was ended with an error (`GOAWAY`).
    Interrupted,
    /// The upstream closed or reset the connection within the answer's head.
    CutOff,
    /// The answer makes no sense.
    Nonsense,
    Timeout,
}

/// The status that the client was told, and that of the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) status: u16,
    pub(super) upstream: u16,
}

impl Failed {
    pub(super) fn owner(self) -> Owner {
        match self {
            Self::Upstream(UpstreamFailure::Rejected | UpstreamFailure::Interrupted) => {
                Owner::Unclear
            }
            Self::Upstream(_) | Self::Broken | Self::BrokenUnnoticed => Owner::Upstream,
            Self::ClientGone
            | Self::ClientTimeout
            | Self::ClientBody
            | Self::ClientRequest
            | Self::TooLarge => Owner::Client,
        }
    }
}

impl TryFailure {
    /// The client went away before anything was sent to the upstream.
    pub(super) fn of_client() -> Self {
        Self::Exchange {
            failed: Failed::ClientGone,
            reused: false,
            repeatable: false,
            told: None,
        }
    }

    pub(super) fn owner(&self) -> Owner {
        match self {
            Self::Connect(error) => error.owner(),
            Self::Exchange { failed, .. } => failed.owner(),
        }
    }

    /// What the failure means for the target's health; none when it says nothing about the target.
    pub(super) fn outcome(&self) -> Option<health::Outcome> {
        if let Self::Exchange {
            told: Some(told), ..
        } = self
        {
            // Its head has come, and says how the target is, whatever became of the rest.
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
                // Whoever answers nonsense is there: it is an answer as bad as its status, and no failure to connect.
                Failed::Upstream(UpstreamFailure::Nonsense) => Some(health::Outcome::Status(502)),
                // It is about to go, in an orderly way.
                _ => None,
            },
        }
    }

    /// What the log says about a failure that is not the gateway's own, and its cause if there is one.
    pub(super) fn text(&self) -> Option<(&'static str, Option<&io::Error>)> {
        let failed = match self {
            Self::Connect(ConnectError::Refused(cause)) => {
                return Some(("cannot connect to upstream", Some(cause)));
            }
            Self::Connect(ConnectError::Handshake { cause, .. }) => {
                return Some(("no handshake with upstream", Some(cause)));
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
            Failed::Broken | Failed::BrokenUnnoticed => "upstream broke off a response",
            Failed::ClientBody => "a request gets 400: malformed request body",
            Failed::ClientRequest => "a request gets 400: HTTP/2 has no form for it",
            Failed::ClientGone | Failed::ClientTimeout | Failed::TooLarge => return None,
        };
        Some((text, None))
    }

    /// What the list of tries says about it; `None` when there was nothing to try.
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
                Failed::Upstream(_) | Failed::Broken | Failed::BrokenUnnoticed => {
                    TryEnd::Failed(502)
                }
                Failed::ClientGone
                | Failed::ClientTimeout
                | Failed::ClientBody
                | Failed::ClientRequest
                | Failed::TooLarge => TryEnd::Abandoned,
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
        };
        (failure.owner(), failure.outcome())
    }

    #[test]
    fn only_what_an_upstream_did_counts_against_its_health() {
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
    fn an_answer_that_was_begun_counts_by_its_status_whoever_broke_it_off() {
        for failed in [Failed::Broken, Failed::BrokenUnnoticed, Failed::ClientGone] {
            let failure = TryFailure::Exchange {
                failed,
                reused: false,
                repeatable: false,
                told: Some(Told {
                    status: 200,
                    upstream: 500,
                }),
            };
            assert_eq!(failure.outcome(), Some(Outcome::Status(500)), "{failed:?}");
        }
    }

    #[test]
    fn failures_to_connect_count_when_they_are_the_targets_alone() {
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
}
