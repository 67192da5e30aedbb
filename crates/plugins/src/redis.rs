//! The record `redis` of the plugins that keep counters in Redis.

use compact_str::CompactString;
use plugin::BuildError;
use serde::Deserialize;
use services::redis::{Secret, Settings, Tls, Topology};
use std::time::Duration;

const PORT: u16 = 6379;
const TIMEOUT: u64 = 2000;
/// OpenResty's default, which Kong uses for a timeout of 0.
const NO_TIMEOUT: u64 = 60_000;
const REDIRECTIONS: u16 = 5;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Redis {
    host: Option<CompactString>,
    /// Default: 6379.
    port: Option<u16>,
    /// Maximum milliseconds of an exchange. Default: 2000.
    timeout: Option<u32>,
    username: Option<CompactString>,
    password: Option<CompactString>,
    /// Number of the database. Default: 0.
    database: Option<i64>,
    ssl: Option<bool>,
    ssl_verify: Option<bool>,
    server_name: Option<CompactString>,
    /// Nodes of a Redis Cluster, in place of `host`. Fields of ours, named as in Kong's paid edition, as the following
    /// ones.
    cluster_nodes: Option<Vec<ClusterNode>>,
    /// Default: 5.
    cluster_max_redirections: Option<u16>,
    /// Sentinels, in place of `host`.
    sentinel_nodes: Option<Vec<SentinelNode>>,
    sentinel_master: Option<CompactString>,
    #[expect(
        dead_code,
        reason = "configurations of Kong's paid edition have it; the schema accepts only `master`, since replicas cannot count"
    )]
    sentinel_role: Option<CompactString>,
    sentinel_username: Option<CompactString>,
    sentinel_password: Option<CompactString>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClusterNode {
    ip: CompactString,
    port: Option<u16>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SentinelNode {
    host: CompactString,
    port: Option<u16>,
}

impl Redis {
    /// Returns the settings of the client. Error paths begin with `redis`.
    pub(crate) fn settings(&self) -> Result<Settings, BuildError> {
        let present = |text: &Option<CompactString>| {
            let text = text.as_deref().filter(|text| !text.is_empty());
            text.map(Box::<str>::from)
        };
        let tls = self.ssl.unwrap_or(false).then(|| Tls {
            verify: self.ssl_verify.unwrap_or(false),
            server_name: present(&self.server_name),
        });
        let timeout = self.timeout.map_or(TIMEOUT, u64::from);
        Ok(Settings {
            topology: self.topology(present)?,
            timeout: Duration::from_millis(if timeout == 0 { NO_TIMEOUT } else { timeout }),
            username: present(&self.username),
            password: present(&self.password).map(Secret),
            database: self.database.unwrap_or(0),
            tls,
        })
    }

    fn topology(
        &self,
        present: impl Fn(&Option<CompactString>) -> Option<Box<str>>,
    ) -> Result<Topology, BuildError> {
        let missing = |field: &'static str| BuildError::field(field, "required field missing");
        let sentinels = self.sentinel_nodes.as_deref().unwrap_or_default();
        let nodes = self.cluster_nodes.as_deref().unwrap_or_default();
        if !sentinels.is_empty() && !nodes.is_empty() {
            let reason = "it cannot be used with sentinel_nodes";
            return Err(BuildError::field("redis.cluster_nodes", reason));
        }
        if !nodes.is_empty() {
            if self.database.unwrap_or(0) != 0 {
                let reason = "a Redis Cluster has only database 0";
                return Err(BuildError::field("redis.database", reason));
            }
            let node = |node: &ClusterNode| (node.ip.as_str().into(), node.port.unwrap_or(PORT));
            return Ok(Topology::Cluster {
                nodes: nodes.iter().map(node).collect(),
                redirections: self.cluster_max_redirections.unwrap_or(REDIRECTIONS),
            });
        }
        if !sentinels.is_empty() {
            let address =
                |node: &SentinelNode| (node.host.as_str().into(), node.port.unwrap_or(PORT));
            let master = present(&self.sentinel_master);
            return Ok(Topology::Sentinel {
                sentinels: sentinels.iter().map(address).collect(),
                master: master.ok_or_else(|| missing("redis.sentinel_master"))?,
                username: present(&self.sentinel_username),
                password: present(&self.sentinel_password).map(Secret),
            });
        }
        let host = present(&self.host).ok_or_else(|| missing("redis.host"))?;
        Ok(Topology::Single((host, self.port.unwrap_or(PORT))))
    }
}
