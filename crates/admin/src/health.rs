//! Health of an upstream on this node, as `GET /upstreams/{upstream}/health` shows it.

#[derive(Debug, Clone, PartialEq)]
pub struct UpstreamHealth {
    /// Whether health checks are enabled.
    pub checked: bool,
    /// Whether the available share of the weight exceeds the threshold of the upstream.
    pub healthy: bool,
    pub weight: Weight,
    pub targets: Vec<TargetHealth>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TargetHealth {
    pub host: String,
    pub port: u16,
    /// Type of the DNS records, or why there are none.
    pub dns: String,
    /// The configured weight.
    pub node_weight: u32,
    pub weight: Weight,
    pub addresses: Vec<AddressHealth>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct AddressHealth {
    /// The IP address, or the name from an SRV record.
    pub ip: String,
    pub port: u16,
    pub weight: u32,
    /// Whether requests may be sent to this address.
    pub available: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Weight {
    pub total: u64,
    pub available: u64,
}
