//! Finds out which entities must be compiled again after a change, and reads them with everything they need. Only this
//! module knows the dependencies between entities.

use super::Snapshot;
use crate::upstream::CertificateLookup;
use model::EntityKind;
use model::codec::{self, DecodeError};
use model::entities::{
    CaCertificate, CaCertificateId, Certificate, CertificateId, Config, Plugin, Route, RouteId,
    Service, ServiceId, Sni, Target, Upstream, UpstreamId,
};
use model::hashing::FastMap;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use uuid::Uuid;

/// Read access to the configuration after a change.
pub trait Entities {
    /// Returns an entity as `model::codec` encodes it.
    fn get(&self, kind: EntityKind, id: Uuid) -> Result<Option<&[u8]>, ReadError>;

    /// Returns the ids of the entities of a kind whose reference `field` is `parent`.
    fn children(
        &self,
        kind: EntityKind,
        field: &'static str,
        parent: Uuid,
    ) -> Result<Vec<Uuid>, ReadError>;
}

/// An entity that was created, replaced or removed.
#[derive(Debug, Clone, Copy)]
pub struct Touched<'a> {
    pub kind: EntityKind,
    pub id: Uuid,
    /// The entity before the change, as `model::codec` encodes it.
    pub old: Option<&'a [u8]>,
}

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    Store(Box<dyn std::error::Error + Send + Sync>),
    #[error("{} {id}: {source}", kind.name())]
    Entity {
        kind: EntityKind,
        id: Uuid,
        source: DecodeError,
    },
}

/// The entities to compile again. Each list is ordered by id.
#[derive(Debug, Default)]
pub struct Delta {
    pub(super) lookup: Lookup,
    /// The certificates for TLS with clients that must be rebuilt. `lookup` also has certificates that are used only
    /// for TLS with upstreams.
    pub(super) certificates: Vec<CertificateId>,
    pub(super) snis: Vec<Edit<Sni>>,
    pub(super) upstreams: Vec<(UpstreamId, Option<UpstreamParts>)>,
    pub(super) services: Vec<(ServiceId, Edit<Service>)>,
    pub(super) plugins: Vec<Edit<Plugin>>,
    pub(super) routes: Vec<(RouteId, Option<Route>)>,
    /// The routes of services whose name or host was changed.
    pub(super) relabelled: Vec<RouteId>,
    /// The routes of each service that a plugin in `plugins` is configured for.
    pub(super) routes_of: FastMap<ServiceId, Vec<RouteId>>,
}

#[derive(Debug)]
pub(super) struct UpstreamParts {
    pub(super) entity: Upstream,
    pub(super) targets: Vec<Target>,
}

/// An entity before and after the change.
#[derive(Debug)]
pub(super) struct Edit<T> {
    pub(super) old: Option<T>,
    pub(super) new: Option<T>,
}

impl<T> Edit<T> {
    fn creation(new: T) -> Self {
        let new = Some(new);
        Self { old: None, new }
    }
}

impl Edit<Plugin> {
    /// Whether the plugin is new, was enabled or disabled, has another type, has moved to another scope, or started or
    /// stopped to apply to HTTP.
    pub(super) fn adds(&self) -> bool {
        let (Some(old), Some(new)) = (&self.old, &self.new) else {
            return self.new.is_some();
        };
        let scope = |plugin: &Plugin| (plugin.route, plugin.service, plugin.consumer);
        let is_for_http =
            |plugin: &Plugin| plugin.protocols.iter().any(|protocol| protocol.is_http());
        old.enabled != new.enabled
            || old.name != new.name
            || is_for_http(old) != is_for_http(new)
            || scope(old) != scope(new)
    }
}

/// The certificates that the entities to compile refer to.
#[derive(Debug, Default)]
pub(super) struct Lookup {
    certificates: FastMap<CertificateId, Certificate>,
    authorities: FastMap<CaCertificateId, CaCertificate>,
}

impl CertificateLookup for Lookup {
    fn certificate(&self, id: CertificateId) -> Option<&Certificate> {
        self.certificates.get(&id)
    }

    fn ca_certificate(&self, id: CaCertificateId) -> Option<&CaCertificate> {
        self.authorities.get(&id)
    }
}

impl Delta {
    /// Returns the change from nothing to a whole configuration. Its entities must be ordered by id.
    pub(super) fn whole(config: Config) -> Self {
        let mut targets: FastMap<UpstreamId, Vec<Target>> = FastMap::default();
        for target in config.targets {
            targets.entry(target.upstream).or_default().push(target);
        }
        let upstreams = config.upstreams.into_iter().map(|entity| {
            let targets = targets.remove(&entity.id).unwrap_or_default();
            (entity.id, Some(UpstreamParts { entity, targets }))
        });
        let services = config.services.into_iter();
        let routes = config.routes.into_iter();
        let authorities = config.ca_certificates.into_iter();
        Self {
            certificates: config.certificates.iter().map(|one| one.id).collect(),
            lookup: Lookup {
                certificates: (config.certificates.into_iter())
                    .map(|one| (one.id, one))
                    .collect(),
                authorities: authorities.map(|one| (one.id, one)).collect(),
            },
            snis: config.snis.into_iter().map(Edit::creation).collect(),
            upstreams: upstreams.collect(),
            services: services.map(|one| (one.id, Edit::creation(one))).collect(),
            plugins: config.plugins.into_iter().map(Edit::creation).collect(),
            routes: routes.map(|one| (one.id, Some(one))).collect(),
            relabelled: Vec::new(),
            routes_of: FastMap::default(),
        }
    }
}

impl Snapshot {
    /// Reads the entities that must be compiled again after a change. `touched` lists the entities that changed since
    /// this snapshot.
    pub fn read<'a>(
        &'a self,
        entities: &'a dyn Entities,
        touched: impl IntoIterator<Item = Touched<'a>>,
    ) -> Result<Delta, ReadError> {
        let mut reader = Reader {
            current: self,
            entities,
            touched: FastMap::default(),
            certificates: BTreeSet::new(),
            snis: BTreeSet::new(),
            upstreams: BTreeSet::new(),
            services: BTreeSet::new(),
            plugins: BTreeSet::new(),
            routes: BTreeSet::new(),
            delta: Delta::default(),
        };
        for one in touched {
            reader.touch(&one)?;
        }
        reader.upstreams()?;
        reader.services()?;
        reader.plugins()?;
        reader.routes()?;
        reader.certificates()?;
        Ok(reader.delta)
    }
}

/// Collects the dependents of the changed entities. The sets hold the ids to compile again.
struct Reader<'a> {
    current: &'a Snapshot,
    entities: &'a dyn Entities,
    /// The changed entities as they were before.
    touched: FastMap<(EntityKind, Uuid), Option<&'a [u8]>>,
    certificates: BTreeSet<Uuid>,
    snis: BTreeSet<Uuid>,
    upstreams: BTreeSet<Uuid>,
    services: BTreeSet<Uuid>,
    plugins: BTreeSet<Uuid>,
    routes: BTreeSet<Uuid>,
    delta: Delta,
}

impl Reader<'_> {
    fn get<T: DeserializeOwned>(&self, kind: EntityKind, id: Uuid) -> Result<Option<T>, ReadError> {
        decode(kind, id, self.entities.get(kind, id)?)
    }

    /// Returns an entity before and after the change. Both are equal if the entity itself did not change.
    fn edit<T: DeserializeOwned>(&self, kind: EntityKind, id: Uuid) -> Result<Edit<T>, ReadError> {
        let new = self.entities.get(kind, id)?;
        let old = self.touched.get(&(kind, id)).copied().unwrap_or(new);
        Ok(Edit {
            old: decode(kind, id, old)?,
            new: decode(kind, id, new)?,
        })
    }

    fn children(
        &self,
        kind: EntityKind,
        field: &'static str,
        parent: Uuid,
    ) -> Result<Vec<Uuid>, ReadError> {
        self.entities.children(kind, field, parent)
    }
}

impl<'a> Reader<'a> {
    fn touch(&mut self, touched: &Touched<'a>) -> Result<(), ReadError> {
        let Touched { kind, id, old } = *touched;
        // If an entity changed several times, the first change holds the original.
        self.touched.entry((kind, id)).or_insert(old);
        match kind {
            EntityKind::Services => drop(self.services.insert(id)),
            EntityKind::Routes => drop(self.routes.insert(id)),
            EntityKind::Plugins => drop(self.plugins.insert(id)),
            EntityKind::Upstreams => drop(self.upstreams.insert(id)),
            EntityKind::Snis => drop(self.snis.insert(id)),
            EntityKind::Targets => {
                let Edit { old, new } = self.edit::<Target>(kind, id)?;
                let upstreams = [old, new].into_iter().flatten();
                self.upstreams.extend(upstreams.map(|one| one.upstream.0));
            }
            EntityKind::Certificates => {
                self.certificates.insert(id);
                let (snis, field) = (EntityKind::Snis, "client_certificate");
                self.snis.extend(self.children(snis, "certificate", id)?);
                let services = self.children(EntityKind::Services, field, id)?;
                self.services.extend(services);
                for upstream in self.children(EntityKind::Upstreams, field, id)? {
                    self.upstreams.insert(upstream);
                    self.services_of(UpstreamId(upstream));
                }
            }
            EntityKind::CaCertificates => {
                let services = self.current.services.trusting(CaCertificateId(id));
                self.services.extend(services.map(|id| id.0));
            }
            // Other entities, such as consumers and credentials, are not part of a snapshot: plugins look them up.
            _ => {}
        }
        Ok(())
    }

    /// Adds the services whose host names an upstream of the current snapshot.
    fn services_of(&mut self, upstream: UpstreamId) {
        if let Some(upstream) = self.current.upstream(upstream) {
            let name = upstream.name();
            self.services_to(name);
        }
    }

    /// Adds the services with this host.
    fn services_to(&mut self, host: &str) {
        let services = self.current.services.leading_to(host);
        self.services.extend(services.map(|id| id.0));
    }

    /// Reads the changed upstreams. Services refer to an upstream by its name and use its client certificate, so a
    /// change of either affects them.
    fn upstreams(&mut self) -> Result<(), ReadError> {
        for id in std::mem::take(&mut self.upstreams) {
            let entity: Option<Upstream> = self.get(EntityKind::Upstreams, id)?;
            let id = UpstreamId(id);
            let before = self.current.upstream(id);
            let before = before.map(|known| &known.settings.entity);
            let told = |one: &Upstream| (one.name.clone(), one.client_certificate);
            if before.map(told) != entity.as_ref().map(told) {
                self.services_of(id);
                if let Some(entity) = &entity {
                    self.services_to(&entity.name);
                }
            }
            let parts = match entity {
                Some(entity) => Some(self.upstream_parts(entity)?),
                None => None,
            };
            self.delta.upstreams.push((id, parts));
        }
        Ok(())
    }

    fn upstream_parts(&mut self, entity: Upstream) -> Result<UpstreamParts, ReadError> {
        self.look_up(entity.client_certificate)?;
        let mut targets = self.children(EntityKind::Targets, "upstream", entity.id.0)?;
        targets.sort_unstable();
        let targets = targets.into_iter();
        let targets = targets.map(|id| self.get(EntityKind::Targets, id));
        let targets: Result<Vec<Option<Target>>, ReadError> = targets.collect();
        Ok(UpstreamParts {
            targets: targets?.into_iter().flatten().collect(),
            entity,
        })
    }

    /// Reads the changed services. If one is enabled or disabled, its routes appear or disappear.
    fn services(&mut self) -> Result<(), ReadError> {
        for id in std::mem::take(&mut self.services) {
            let edit: Edit<Service> = self.edit(EntityKind::Services, id)?;
            let was_served = self.current.services.index(ServiceId(id)).is_some();
            let enabled = edit.new.as_ref().filter(|service| service.enabled);
            if was_served != enabled.is_some() {
                let routes = self.children(EntityKind::Routes, "service", id)?;
                self.routes.extend(routes);
            }
            let label =
                |service: &Service| service.name.clone().unwrap_or_else(|| service.host.clone());
            if edit.old.as_ref().map(label) != edit.new.as_ref().map(label) {
                let routes = self.children(EntityKind::Routes, "service", id)?;
                self.delta
                    .relabelled
                    .extend(routes.into_iter().map(RouteId));
            }
            if let Some(service) = enabled {
                self.look_up(service.client_certificate)?;
                let upstream = self.current.services.upstream_named(&service.host);
                self.look_up(upstream.and_then(|one| one.settings.entity.client_certificate))?;
                for id in service.ca_certificates.iter().flatten() {
                    if let Some(one) = self.get(EntityKind::CaCertificates, id.0)? {
                        self.delta.lookup.authorities.insert(*id, one);
                    }
                }
            }
            self.delta.services.push((ServiceId(id), edit));
        }
        Ok(())
    }

    fn plugins(&mut self) -> Result<(), ReadError> {
        for id in std::mem::take(&mut self.plugins) {
            let edit: Edit<Plugin> = self.edit(EntityKind::Plugins, id)?;
            for plugin in [&edit.old, &edit.new].into_iter().flatten() {
                if let (None, Some(service)) = (plugin.route, plugin.service)
                    && !self.delta.routes_of.contains_key(&service)
                {
                    let routes = self.children(EntityKind::Routes, "service", service.0)?;
                    let routes = routes.into_iter().map(RouteId).collect();
                    self.delta.routes_of.insert(service, routes);
                }
            }
            self.delta.plugins.push(edit);
        }
        Ok(())
    }

    fn routes(&mut self) -> Result<(), ReadError> {
        for id in std::mem::take(&mut self.routes) {
            let route = self.get(EntityKind::Routes, id)?;
            self.delta.routes.push((RouteId(id), route));
        }
        Ok(())
    }

    fn certificates(&mut self) -> Result<(), ReadError> {
        for id in std::mem::take(&mut self.certificates) {
            self.look_up(Some(CertificateId(id)))?;
            self.delta.certificates.push(CertificateId(id));
        }
        for id in std::mem::take(&mut self.snis) {
            let edit = self.edit(EntityKind::Snis, id)?;
            self.delta.snis.push(edit);
        }
        Ok(())
    }

    fn look_up(&mut self, id: Option<CertificateId>) -> Result<(), ReadError> {
        if let Some(id) = id
            && let Some(certificate) = self.get(EntityKind::Certificates, id.0)?
        {
            self.delta.lookup.certificates.insert(id, certificate);
        }
        Ok(())
    }
}

fn decode<T: DeserializeOwned>(
    kind: EntityKind,
    id: Uuid,
    bytes: Option<&[u8]>,
) -> Result<Option<T>, ReadError> {
    let decoded = bytes.map(codec::decode).transpose();
    decoded.map_err(|source| ReadError::Entity { kind, id, source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn plugin(change: &Value) -> Option<Plugin> {
        let mut plugin = json!({
            "id": Uuid::from_u128(1), "name": "acl", "created_at": 0, "enabled": true, "config": {},
            "protocols": ["http", "https"],
        });
        let fields = plugin.as_object_mut().unwrap();
        fields.extend(change.as_object().unwrap().clone());
        Some(serde_json::from_value(plugin).unwrap())
    }

    #[test]
    fn a_changed_plugin_is_added_where_it_did_not_apply_before() {
        let route = |number| json!({"route": {"id": Uuid::from_u128(number)}});
        for (old, new, adds) in [
            (json!({}), json!({}), false),
            (json!({}), json!({"config": {"a": 1}}), false),
            (json!({}), json!({"protocols": ["http"]}), false),
            (json!({"protocols": ["tcp"]}), json!({}), true),
            (json!({"enabled": false}), json!({}), true),
            (json!({"name": "other"}), json!({}), true),
            (route(1), route(2), true),
        ] {
            let edit = Edit {
                old: plugin(&old),
                new: plugin(&new),
            };
            assert_eq!(edit.adds(), adds, "{old} to {new}");
        }
    }
}
