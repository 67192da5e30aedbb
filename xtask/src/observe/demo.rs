//! What observes the gateway of `cargo xtask demo --observe`.

use super::{MISSING, Programs, Prometheus};
use crate::compat::{self, Collector};
use crate::shell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use testkit::Gateway;

/// Preferred ports; Prometheus gets a free one if its port is taken.
const PROMETHEUS_PORT: u16 = 9090;
const GRAFANA_PORT: u16 = 3000;

/// Where Grafana's packages put the files that its server needs.
const GRAFANA_HOME: &str = "/usr/share/grafana";

/// The programs that observe the demo. Those that are not installed are left out, and named.
pub(crate) struct Observers {
    directory: PathBuf,
    collector: Option<Collector>,
    prometheus: Option<Prometheus>,
    grafana: Option<Grafana>,
}

struct Grafana(Child);

impl Drop for Grafana {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Observers {
    /// Starts the collector, whose address the gateway's configuration needs.
    pub(crate) fn prepare() -> Result<Self, String> {
        let directory = shell::target_directory()?.join("demo-observe");
        fs::create_dir_all(&directory).map_err(problem(&directory))?;
        let collector = compat::collector()?;
        let collector = collector.map(|program| Collector::start(&program, &directory, true));
        Ok(Self {
            collector: collector.transpose()?,
            prometheus: None,
            grafana: None,
            directory,
        })
    }

    /// The plugins with which the gateway shows itself, to be appended to a declarative configuration.
    pub(crate) fn plugins(&self) -> String {
        let mut text = "
plugins:
  - name: prometheus
    config:
      per_consumer: true
      status_code_metrics: true
      latency_metrics: true
      bandwidth_metrics: true
      upstream_health_metrics: true
"
        .to_owned();
        if let Some(collector) = &self.collector {
            text.push_str(&format!(
                "  - name: opentelemetry\n    config:\n      traces_endpoint: http://{}/v1/traces\n",
                collector.http
            ));
        }
        text
    }

    /// Starts what watches the running gateway. Returns what to tell the user.
    pub(crate) fn watch(&mut self, gateway: &Gateway) -> Result<String, String> {
        let mut text = format!("  metrics    http://{}/metrics\n", gateway.status);
        let prefix = gateway.launch().prefix().display();
        if let Some(programs) = Programs::installed() {
            let (directory, port) = (&self.directory, PROMETHEUS_PORT);
            let server = Prometheus::start(&programs, directory, gateway.status, port, "")?;
            text += &format!(
                "  Prometheus http://{0}/graph, alerts: http://{0}/alerts\n",
                server.address
            );
            if let Some(grafana) = Grafana::start(&self.directory, &server)? {
                text += &format!("  Grafana    http://127.0.0.1:{GRAFANA_PORT}/d/silverback\n");
                self.grafana = Some(grafana);
            } else {
                text += "  Grafana    not installed; import deploy/grafana/silverback.json into yours\n";
            }
            self.prometheus = Some(server);
        } else {
            text += &format!("  Prometheus {MISSING}\n");
        }
        match &self.collector {
            Some(collector) => {
                text += &format!(
                    "  traces     {} (what the collector has received on http://{} and {})\n",
                    collector.log().display(),
                    collector.http,
                    collector.grpc
                );
            }
            None => text += "  traces     no collector, because it is built by Go\n",
        }
        text += &format!("  live       silverback top --prefix {prefix}\n");
        text += &format!("  profile    silverback profile cpu --prefix {prefix}\n");
        Ok(text)
    }
}

impl Grafana {
    /// Starts Grafana with the dashboard and the data source. Returns `None` where it is not installed.
    fn start(directory: &Path, prometheus: &Prometheus) -> Result<Option<Self>, String> {
        let is_there = |program: &&str| Command::new(program).arg("-v").output().is_ok();
        let Some(program) = ["grafana-server", "grafana"].into_iter().find(is_there) else {
            return Ok(None);
        };
        let provisioning = directory.join("grafana");
        let write = |name: &str, text: String| {
            let path = provisioning.join(name);
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder).map_err(problem(folder))?;
            }
            fs::write(&path, text).map_err(problem(&path))
        };
        let dashboards = shell::root().join("deploy").join("grafana");
        write(
            "dashboards/silverback.yaml",
            format!(
                "apiVersion: 1\nproviders:\n- name: silverback\n  type: file\n  options: {{ path: '{}' }}\n",
                dashboards.display()
            ),
        )?;
        write(
            "datasources/prometheus.yaml",
            format!(
                "apiVersion: 1\ndatasources:\n- name: Prometheus\n  type: prometheus\n  isDefault: true\n  url: http://{}\n  \
                 jsonData: {{ timeInterval: 1s }}\n",
                prometheus.address
            ),
        )?;
        let mut command = Command::new(program);
        if program == "grafana" {
            command.arg("server");
        }
        let child = command
            .args(["--homepath", GRAFANA_HOME])
            .env("GF_SERVER_HTTP_ADDR", "127.0.0.1")
            .env("GF_SERVER_HTTP_PORT", GRAFANA_PORT.to_string())
            .env("GF_PATHS_DATA", directory.join("grafana-data"))
            .env("GF_PATHS_LOGS", directory.join("grafana-data"))
            .env("GF_PATHS_PROVISIONING", &provisioning)
            .env("GF_AUTH_ANONYMOUS_ENABLED", "true")
            .env("GF_ANALYTICS_REPORTING_ENABLED", "false")
            .env("GF_ANALYTICS_CHECK_FOR_UPDATES", "false")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot run {program}: {error}"))?;
        Ok(Some(Self(child)))
    }
}

fn problem(path: &Path) -> impl Fn(std::io::Error) -> String {
    let path = path.display().to_string();
    move |error| format!("{path}: {error}")
}
