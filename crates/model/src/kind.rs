//! The kinds of entities. The store uses their numbers, so a number is never reused for another kind.

/// A kind of entity. `name()` is its collection name in Admin API errors, declarative files and schemas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum EntityKind {
    Workspaces = 1,
    Consumers = 2,
    Certificates = 3,
    CaCertificates = 4,
    Services = 5,
    Routes = 6,
    Snis = 7,
    Upstreams = 8,
    Targets = 9,
    Plugins = 10,
    Tags = 11,
    Vaults = 12,
    KeySets = 13,
    Keys = 14,
    FilterChains = 15,
    Parameters = 16,
    ClusteringDataPlanes = 17,
    KeyauthCredentials = 32,
    BasicauthCredentials = 33,
    HmacauthCredentials = 34,
    JwtSecrets = 35,
    Acls = 36,
    Oauth2Credentials = 37,
    Oauth2Tokens = 38,
    Oauth2AuthorizationCodes = 39,
    Sessions = 40,
    AcmeStorage = 41,
    RatelimitingMetrics = 42,
}

impl EntityKind {
    /// All kinds, ordered so that each one comes after the kinds that it refers to.
    pub const ALL: [EntityKind; 28] = [
        Self::Workspaces,
        Self::Consumers,
        Self::Certificates,
        Self::CaCertificates,
        Self::Services,
        Self::Routes,
        Self::Snis,
        Self::Upstreams,
        Self::Targets,
        Self::Plugins,
        Self::Tags,
        Self::Vaults,
        Self::KeySets,
        Self::Keys,
        Self::FilterChains,
        Self::Parameters,
        Self::ClusteringDataPlanes,
        Self::KeyauthCredentials,
        Self::BasicauthCredentials,
        Self::HmacauthCredentials,
        Self::JwtSecrets,
        Self::Acls,
        Self::Oauth2Credentials,
        Self::Oauth2Tokens,
        Self::Oauth2AuthorizationCodes,
        Self::Sessions,
        Self::AcmeStorage,
        Self::RatelimitingMetrics,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Workspaces => "workspaces",
            Self::Consumers => "consumers",
            Self::Certificates => "certificates",
            Self::CaCertificates => "ca_certificates",
            Self::Services => "services",
            Self::Routes => "routes",
            Self::Snis => "snis",
            Self::Upstreams => "upstreams",
            Self::Targets => "targets",
            Self::Plugins => "plugins",
            Self::Tags => "tags",
            Self::Vaults => "vaults",
            Self::KeySets => "key_sets",
            Self::Keys => "keys",
            Self::FilterChains => "filter_chains",
            Self::Parameters => "parameters",
            Self::ClusteringDataPlanes => "clustering_data_planes",
            Self::KeyauthCredentials => "keyauth_credentials",
            Self::BasicauthCredentials => "basicauth_credentials",
            Self::HmacauthCredentials => "hmacauth_credentials",
            Self::JwtSecrets => "jwt_secrets",
            Self::Acls => "acls",
            Self::Oauth2Credentials => "oauth2_credentials",
            Self::Oauth2Tokens => "oauth2_tokens",
            Self::Oauth2AuthorizationCodes => "oauth2_authorization_codes",
            Self::Sessions => "sessions",
            Self::AcmeStorage => "acme_storage",
            Self::RatelimitingMetrics => "ratelimiting_metrics",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }
}
