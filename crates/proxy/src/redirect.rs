//! Requests that a plugin leads elsewhere: to another server, to the targets of another upstream, with or without TLS, with
//! another verification of certificates, or with other limits. Everything else is as the service says.
//! Source: kong/pdk/service.lua; kong/runloop/balancer/init.lua execute(), set_host_header().

use crate::balance::{NoPeer, PickInput, Tried, Upstream, Visit};
use crate::snapshot::{Base, ServiceRef};
use crate::upstream::{Target, TlsDefaults, default_tls, in_authority};
use net::dns::{Host, Resolver};
use net::pool::{Slot, SlotKey};
use net::tls::{CertificateError, ClientTls};
use plugin::{Scheme, TargetEdits};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::Instant;

/// What a snapshot keeps for such requests.
#[derive(Default)]
pub struct RedirectSettings {
    resolver: Resolver,
    tls: TlsDefaults,
    /// TLS for services that have none of their own. Made when it is first needed.
    made: OnceLock<Option<ClientTls>>,
}

/// Where a plugin leads a request.
pub struct Redirect<'s> {
    service: ServiceRef<'s>,
    edits: TargetEdits,
    to: To<'s>,
    tls: Option<ClientTls>,
}

enum To<'s> {
    /// The service's own targets.
    Service,
    Address,
    Upstream(&'s Upstream),
}

/// The reason why a request cannot be led where a plugin wants.
#[derive(Debug, thiserror::Error)]
pub enum RedirectError {
    #[error("a plugin leads the request to a name, but the host of its service is an address")]
    NotAnAddress,
    #[error("a plugin leads the request to something that is not a host")]
    NoHost,
    #[error("a plugin leads the request to an upstream that does not exist")]
    NoUpstream,
    #[error("a plugin wants TLS with the upstream, which cannot be used")]
    Tls,
    #[error("a plugin wants the upstream's certificate to be verified, which cannot be done: {0}")]
    Verification(#[from] CertificateError),
}

/// A target that differs from that of the configuration, with the peer that it belongs to.
#[derive(Debug)]
pub struct Edited<'s> {
    pub visit: Option<Visit<'s>>,
    pub target: Target,
}

impl RedirectSettings {
    pub fn new(resolver: Resolver, tls: TlsDefaults) -> Self {
        Self {
            resolver,
            tls,
            made: OnceLock::new(),
        }
    }

    fn default_tls(&self) -> Option<&ClientTls> {
        let made = self.made.get_or_init(|| {
            let made = default_tls(&self.tls);
            if let Err(error) = &made {
                tracing::error!(%error, "the default TLS settings cannot be used");
            }
            made.ok()
        });
        made.as_ref()
    }
}

impl<'s> Redirect<'s> {
    pub fn new(
        service: ServiceRef<'s>,
        edits: &TargetEdits,
        places: &mut Places,
        now: Instant,
    ) -> Result<Self, RedirectError> {
        let to = match (&edits.address, &edits.upstream) {
            (Some((host, _)), _) if !is_host(host) => return Err(RedirectError::NoHost),
            (Some((host, _)), _) if service.has_address() && !is_address(host) => {
                return Err(RedirectError::NotAnAddress);
            }
            (Some(_), _) => To::Address,
            (None, Some(_)) if service.has_address() => return Err(RedirectError::NotAnAddress),
            (None, Some(name)) => {
                let upstream = service.upstream_named(name);
                To::Upstream(upstream.ok_or(RedirectError::NoUpstream)?)
            }
            (None, None) => To::Service,
        };
        let own = match service.base() {
            Base::Host(target) => target.tls.as_ref(),
            Base::Way(way) => way.tls(),
        };
        let tls = match edits.scheme {
            None => own,
            Some(Scheme::Http) => None,
            Some(Scheme::Https) => {
                let tls = own.or_else(|| service.redirects().default_tls());
                Some(tls.ok_or(RedirectError::Tls)?)
            }
        };
        let tls = match tls {
            Some(tls) => Some(places.tls(tls, edits, now)?),
            None => None,
        };
        Ok(Self {
            service,
            edits: edits.clone(),
            to,
            tls,
        })
    }

    /// Whether the `Host` header is that of the target, whatever the route says.
    pub fn sets_host(&self) -> bool {
        matches!(self.to, To::Address)
    }

    /// The upstream whose targets are used, if it is not the service's.
    pub fn upstream(&self) -> Option<&'s Upstream> {
        match self.to {
            To::Upstream(upstream) => Some(upstream),
            To::Service | To::Address => None,
        }
    }

    /// Whether the targets are the service's own.
    pub fn stays(&self) -> bool {
        matches!(self.to, To::Service)
    }

    /// Picks the target for the next try.
    pub fn pick(
        &self,
        input: PickInput,
        tried: &Tried,
        places: &mut Places,
        now: Instant,
    ) -> Result<Edited<'s>, NoPeer> {
        match self.to {
            To::Address => {
                let (host, port) = self.edits.address.as_ref().ok_or(NoPeer::Unusable)?;
                let authority = in_authority(host);
                let target = self.target(host, *port, &authority, places, now);
                Ok(Edited {
                    visit: None,
                    target,
                })
            }
            To::Upstream(upstream) => {
                let visit = upstream.pick(0, input, tried)?;
                let (host, port) = visit.place();
                let authority = self.authority(&in_authority(visit.name()), port);
                let target = self.target(host, port, &authority, places, now);
                Ok(Edited {
                    target,
                    visit: Some(visit),
                })
            }
            To::Service => {
                let chosen = self.service.pick(input, tried)?;
                let target = if self.tls == chosen.tls {
                    self.limited(Target::clone(&chosen))
                } else {
                    let (host, port) = (chosen.host.name(), chosen.host.port());
                    let own = &*chosen.authority;
                    let name = own.strip_suffix(&*format!(":{port}")).unwrap_or(own);
                    let authority = self.authority(name, port);
                    self.target(host, port, &authority, places, now)
                };
                Ok(Edited {
                    visit: chosen.into_visit(),
                    target,
                })
            }
        }
    }

    /// Returns the value of `Host`, which has no port if that is the usual one.
    fn authority(&self, name: &str, port: u16) -> String {
        let usual = if self.tls.is_some() { 443 } else { 80 };
        if port == usual {
            name.to_owned()
        } else {
            format!("{name}:{port}")
        }
    }

    fn target(
        &self,
        host: &str,
        port: u16,
        authority: &str,
        places: &mut Places,
        now: Instant,
    ) -> Target {
        let key = SlotKey {
            host: host.to_ascii_lowercase(),
            port,
            tls: self.tls.as_ref().map(ClientTls::number),
        };
        let (host, slot) = places.of(key, &self.service.redirects().resolver, now);
        let authority = authority.into();
        let mut target = match self.service.base() {
            Base::Host(own) => own.at(host, slot, authority),
            Base::Way(way) => way.at(host, slot, authority),
        };
        target.tls = self.tls.clone();
        self.limited(target)
    }

    /// Applies the limits of the plugin.
    fn limited(&self, mut target: Target) -> Target {
        let edits = &self.edits;
        for (value, edit) in [
            (&mut target.connect_timeout, edits.connect_timeout),
            (&mut target.write_timeout, edits.write_timeout),
            (&mut target.read_timeout, edits.read_timeout),
        ] {
            *value = edit.unwrap_or(*value);
        }
        target.retries = edits.retries.unwrap_or(target.retries);
        target
    }
}

/// Whether the text has only letters that a host has. It becomes a header.
fn is_host(text: &str) -> bool {
    let is_of_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    !text.is_empty() && text.bytes().all(is_of_host)
}

fn is_address(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.parse::<IpAddr>().is_ok()
}

/// The addresses to which plugins have lately led requests of a worker, and the TLS settings that they wanted. Keeping
/// them keeps the idle connections and the answers of DNS, which snapshots do for the targets of the configuration.
#[derive(Default)]
pub struct Places {
    known: HashMap<SlotKey, Place>,
    tls: HashMap<TlsKey, EditedTls>,
}

#[derive(PartialEq, Eq, Hash)]
struct TlsKey {
    /// [`ClientTls::number`] of the settings of the service.
    of: usize,
    verify: Option<bool>,
    depth: Option<u8>,
}

struct EditedTls {
    tls: ClientTls,
    used: Instant,
}

struct Place {
    host: Arc<Host>,
    slot: Arc<Slot>,
    used: Instant,
}

impl Places {
    /// Maximum number of places, and of TLS settings. Requests to others open connections of their own.
    const MOST: usize = 1024;
    /// Time after which a place that is not used is forgotten. It is the default idle time of a connection.
    const KEPT: Duration = Duration::from_secs(60);

    fn of(&mut self, key: SlotKey, resolver: &Resolver, now: Instant) -> (Arc<Host>, Arc<Slot>) {
        if let Some(place) = self.known.get_mut(&key) {
            place.used = now;
            return (place.host.clone(), place.slot.clone());
        }
        let host = resolver.host(&key.host, key.port);
        let slot = Slot::of(key.clone());
        if self.known.len() < Self::MOST {
            let place = Place {
                host: host.clone(),
                slot: slot.clone(),
                used: now,
            };
            self.known.insert(key, place);
        }
        (host, slot)
    }

    /// Returns TLS settings of a service with the verification that a plugin wants.
    fn tls(
        &mut self,
        own: &ClientTls,
        edits: &TargetEdits,
        now: Instant,
    ) -> Result<ClientTls, RedirectError> {
        if edits.tls_verify.is_none() && edits.tls_verify_depth.is_none() {
            return Ok(own.clone());
        }
        let key = TlsKey {
            of: own.number(),
            verify: edits.tls_verify,
            depth: edits.tls_verify_depth,
        };
        if let Some(edited) = self.tls.get_mut(&key) {
            edited.used = now;
            return Ok(edited.tls.clone());
        }
        let tls = own.edited(key.verify, key.depth)?;
        if self.tls.len() < Self::MOST {
            let tls = tls.clone();
            self.tls.insert(key, EditedTls { tls, used: now });
        }
        Ok(tls)
    }

    /// Forgets what is not used any more.
    pub fn tidy(&mut self, now: Instant) {
        let is_recent = |used: Instant| now.saturating_duration_since(used) < Self::KEPT;
        self.known.retain(|_, place| is_recent(place.used));
        self.tls.retain(|_, edited| is_recent(edited.used));
        if self.known.is_empty() {
            self.known = HashMap::new();
        }
        if self.tls.is_empty() {
            self.tls = HashMap::new();
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }
}
