//! The typed entities that the gateway works with. Each struct is read from a value that a schema ([`crate::schema`])
//! has validated and completed, so the structs do not validate again.

mod upstreams;

pub use upstreams::{
    ActiveChecks, Algorithm, CheckType, HashOn, Healthchecks, HealthyChecks, PassiveChecks, Target,
    UnhealthyChecks, Upstream,
};

use crate::value::Value;
use compact_str::CompactString;
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::sync::Arc;
use uuid::Uuid;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(formatter)
            }
        }

        /// Reads the id from its text or from a reference `{"id": "…"}`.
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(IdVisitor).map($name)
            }
        }
    )*};
}

ids!(
    ServiceId,
    RouteId,
    ConsumerId,
    PluginId,
    UpstreamId,
    TargetId,
    CertificateId,
    SniId,
    CaCertificateId,
    CredentialId
);

struct IdVisitor;

impl<'de> serde::de::Visitor<'de> for IdVisitor {
    type Value = Uuid;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an id or a reference")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Uuid, E> {
        Uuid::try_parse(text).map_err(E::custom)
    }

    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Uuid, A::Error> {
        let mut id = None;
        while let Some(key) = map.next_key::<CompactString>()? {
            if key == "id" {
                id = Some(map.next_value::<CompactString>()?);
            } else {
                map.next_value::<serde::de::IgnoredAny>()?;
            }
        }
        let id = id.ok_or_else(|| serde::de::Error::missing_field("id"))?;
        self.visit_str(&id)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    Http,
    Https,
    Grpc,
    Grpcs,
    Tcp,
    Tls,
    TlsPassthrough,
    Udp,
}

impl Protocol {
    /// Whether routes of this protocol are served by the http subsystem.
    pub fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Https | Self::Grpc | Self::Grpcs)
    }
}

#[derive(Debug, Clone, Deserialize)]
pub struct Service {
    pub id: ServiceId,
    pub name: Option<CompactString>,
    pub enabled: bool,
    pub protocol: Protocol,
    pub host: CompactString,
    pub port: u16,
    pub path: Option<CompactString>,
    /// Number of retries. If the field is null, the default applies. This is also true of the timeouts.
    #[serde(default = "default_retries")]
    pub retries: u16,
    /// Timeout in milliseconds, like the next two fields.
    #[serde(default = "default_timeout")]
    pub connect_timeout: u32,
    #[serde(default = "default_timeout")]
    pub write_timeout: u32,
    #[serde(default = "default_timeout")]
    pub read_timeout: u32,
    pub client_certificate: Option<CertificateId>,
    pub tls_verify: Option<bool>,
    pub tls_verify_depth: Option<u8>,
    pub ca_certificates: Option<Vec<CaCertificateId>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathHandling {
    V0,
    V1,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Route {
    pub id: RouteId,
    pub name: Option<CompactString>,
    /// Creation time in seconds since 1970. The `traditional` flavor prefers the older of two routes with equal
    /// priority.
    pub created_at: i64,
    pub protocols: Vec<Protocol>,
    #[serde(default)]
    pub methods: Vec<CompactString>,
    #[serde(default)]
    pub hosts: Vec<CompactString>,
    #[serde(default)]
    pub paths: Vec<CompactString>,
    /// Header names with their accepted values, in the order given.
    #[serde(default, deserialize_with = "string_lists")]
    pub headers: Vec<(CompactString, Vec<CompactString>)>,
    #[serde(default)]
    pub snis: Vec<CompactString>,
    #[serde(default)]
    pub sources: Vec<Endpoint>,
    #[serde(default)]
    pub destinations: Vec<Endpoint>,
    pub regex_priority: Option<i64>,
    pub expression: Option<String>,
    pub priority: Option<u64>,
    pub strip_path: bool,
    pub preserve_host: bool,
    pub path_handling: Option<PathHandling>,
    pub https_redirect_status_code: u16,
    pub request_buffering: bool,
    pub response_buffering: bool,
    pub service: Option<ServiceId>,
}

impl Route {
    /// A route without match conditions, with the schema's defaults, as a base for tests and benchmarks.
    pub fn blank(id: RouteId) -> Self {
        Self {
            id,
            name: None,
            created_at: 0,
            protocols: vec![Protocol::Http, Protocol::Https],
            methods: Vec::new(),
            hosts: Vec::new(),
            paths: Vec::new(),
            headers: Vec::new(),
            snis: Vec::new(),
            sources: Vec::new(),
            destinations: Vec::new(),
            regex_priority: None,
            expression: None,
            priority: None,
            strip_path: true,
            preserve_host: false,
            path_handling: Some(PathHandling::V0),
            https_redirect_status_code: 426,
            request_buffering: true,
            response_buffering: true,
            service: None,
        }
    }

    /// Whether the route's expression uses a deprecated field name.
    pub fn uses_former_names(&self) -> bool {
        let expression = self.expression.as_deref();
        expression.and_then(expr::modernized).is_some()
    }
}

fn default_retries() -> u16 {
    5
}

fn default_timeout() -> u32 {
    60_000
}

/// An address, a port, or both, that a stream route accepts.
#[derive(Debug, Clone, Deserialize)]
pub struct Endpoint {
    pub ip: Option<CompactString>,
    pub port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Consumer {
    pub id: ConsumerId,
    pub username: Option<CompactString>,
    pub custom_id: Option<CompactString>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Plugin {
    pub id: PluginId,
    pub name: CompactString,
    pub instance_name: Option<CompactString>,
    pub enabled: bool,
    pub protocols: Vec<Protocol>,
    pub route: Option<RouteId>,
    pub service: Option<ServiceId>,
    pub consumer: Option<ConsumerId>,
    /// The configuration, completed by the plugin's schema. It is converted to a struct when the plugin is built.
    /// [`crate::plugins::PluginReader`] shares the value between plugins with equal configurations.
    #[serde(default, deserialize_with = "shared")]
    pub config: Arc<Value>,
}

fn shared<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<Value>, D::Error> {
    Value::deserialize(deserializer).map(Arc::new)
}

#[derive(Debug, Clone, Deserialize)]
pub struct Certificate {
    pub id: CertificateId,
    pub cert: String,
    pub key: String,
    pub cert_alt: Option<String>,
    pub key_alt: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Sni {
    pub id: SniId,
    pub name: CompactString,
    pub certificate: CertificateId,
}

#[derive(Debug, Clone, Deserialize)]
pub struct CaCertificate {
    pub id: CaCertificateId,
    pub cert: String,
}

/// All entities of one revision from which the snapshot for the workers is built. Consumers and credentials are not
/// included, because the workers look them up in the entity tables.
#[derive(Debug, Default)]
pub struct Config {
    pub services: Vec<Service>,
    pub routes: Vec<Route>,
    pub plugins: Vec<Plugin>,
    pub upstreams: Vec<Upstream>,
    pub targets: Vec<Target>,
    pub certificates: Vec<Certificate>,
    pub snis: Vec<Sni>,
    pub ca_certificates: Vec<CaCertificate>,
}

fn string_lists<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<(CompactString, Vec<CompactString>)>, D::Error> {
    struct Lists;
    impl<'de> serde::de::Visitor<'de> for Lists {
        type Value = Vec<(CompactString, Vec<CompactString>)>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a map of lists")
        }

        fn visit_map<A: serde::de::MapAccess<'de>>(
            self,
            mut map: A,
        ) -> Result<Self::Value, A::Error> {
            let mut lists = Vec::new();
            while let Some(entry) = map.next_entry()? {
                lists.push(entry);
            }
            Ok(lists)
        }
    }
    deserializer.deserialize_map(Lists)
}
