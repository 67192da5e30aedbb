//! Which parts of a snapshot a change set touches. The others are taken over from the snapshot before, so that a change of one
//! route does not read twenty thousand plugins again.

use model::EntityKind;

/// The parts to compile again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Changed {
    /// Services, and all that says where they lead: upstreams, targets, certificates for TLS with them.
    services: bool,
    routes: bool,
    plugins: bool,
    /// Certificates for clients, and the names they are for.
    snis: bool,
}

impl Changed {
    pub const EVERYTHING: Changed = Changed {
        services: true,
        routes: true,
        plugins: true,
        snis: true,
    };

    /// An entity of this kind was created or replaced.
    pub fn put(&mut self, kind: EntityKind) {
        match kind {
            EntityKind::Services
            | EntityKind::Upstreams
            | EntityKind::Targets
            | EntityKind::CaCertificates => self.services = true,
            EntityKind::Certificates => (self.services, self.snis) = (true, true),
            EntityKind::Snis => self.snis = true,
            EntityKind::Routes => self.routes = true,
            EntityKind::Plugins => self.plugins = true,
            _ => {}
        }
    }

    /// An entity of this kind was removed, and with it those that exist only with it.
    pub fn delete(&mut self, kind: EntityKind) {
        self.put(kind);
        if matches!(
            kind,
            EntityKind::Services | EntityKind::Routes | EntityKind::Consumers
        ) {
            self.plugins = true;
        }
    }

    /// Whether routes were put and nothing else that a snapshot is made of: [`Snapshot::put_routes`](super::Snapshot::put_routes).
    pub fn is_routes_only(self) -> bool {
        let routes_only = Self {
            routes: true,
            ..Self::default()
        };
        self == routes_only
    }

    /// Whether nothing is to be compiled.
    pub fn is_nothing(self) -> bool {
        self == Self::default()
    }

    /// Whether the configuration must have the entities of this kind, all of them.
    pub fn needs(self, kind: EntityKind) -> bool {
        match kind {
            EntityKind::Services
            | EntityKind::Upstreams
            | EntityKind::Targets
            | EntityKind::CaCertificates => self.services,
            EntityKind::Certificates => self.services || self.snis,
            EntityKind::Snis => self.snis,
            EntityKind::Routes => self.services || self.routes || self.plugins,
            EntityKind::Plugins => self.plugins,
            _ => false,
        }
    }

    pub(super) fn services(self) -> bool {
        self.services
    }

    pub(super) fn routes(self) -> bool {
        self.routes
    }

    pub(super) fn plugins(self) -> bool {
        self.plugins
    }

    pub(super) fn snis(self) -> bool {
        self.snis
    }
}
