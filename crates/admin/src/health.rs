//! The health of an upstream on the node, as `GET /upstreams/{upstream}/health` shows it.

#[derive(Debug, Clone, PartialEq)]
pub struct UpstreamHealth {
    /// Health checks are on.
    pub checked: bool,
    /// More of the weight is available than the threshold.
    pub healthy: bool,
    pub weight: Weight,
    pub targets: Vec<TargetHealth>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TargetHealth {
    pub host: String,
    pub port: u16,
    /// The kind of the DNS records, or why there are none.
    pub dns: String,
    /// As it is configured.
    pub node_weight: u32,
    pub weight: Weight,
    pub addresses: Vec<AddressHealth>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct AddressHealth {
    /// The IP address, or the name that an SRV record gives.
    pub ip: String,
    pub port: u16,
    pub weight: u32,
    /// Requests may go there.
    pub available: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Weight {
    pub total: u64,
    pub available: u64,
}
