//! Converts the program's settings to those of the data plane: reads files, parses certificates and turns names into
//! types. All problems are reported together.

use crate::commands::Failure;
use crate::settings::{
    AUTHORITIES, ERROR_TEMPLATES, Listen, Origins, PemSource, ProxySettings, Settings,
};
use crate::workers::ApiCertificates;
use model::schema::RouterFlavor;
use net::dns::Resolver;
use net::http1::Limits;
use net::http2::ServerSettings as Http2Settings;
use net::pool::PoolSettings;
use net::tls::{
    CertificateError, Certificates, ClientAuth, ClientIdentity, CommonName, self_signed,
};
use plugin::NodeIdentity;
use proxy::respond::{self, Format, HeaderSet, Templates};
use proxy::session::{self, RealIp};
use proxy::snapshot::BuildSettings;
use proxy::upstream::{Bundle, TlsDefaults};
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

/// Returns the settings for building snapshots.
pub(crate) fn build_settings(
    settings: &Settings,
    node: NodeIdentity,
) -> Result<BuildSettings, Failure> {
    let mut problems = Problems::new(settings);
    let proxy = &settings.proxy;
    let build = BuildSettings {
        plugins: plugins::bundled()
            .iter()
            .filter(|def| settings.model.plugins.contains(&def.name))
            .cloned()
            .collect(),
        router: router::Options {
            flavor: match settings.model.flavor {
                RouterFlavor::Traditional => router::Flavor::Traditional,
                RouterFlavor::TraditionalCompatible => router::Flavor::TraditionalCompatible,
                RouterFlavor::Expressions => router::Flavor::Expressions,
            },
            calculation: if settings.model.strict_calculation {
                router::Calculation::Strict
            } else {
                router::Calculation::Original
            },
            max_headers: proxy.max_headers,
            max_arguments: proxy.max_arguments,
        },
        upstream_http2: proxy.upstream_http2,
        tls: TlsDefaults {
            verify: proxy.verify_upstream,
            depth: proxy.verify_upstream_depth,
            trusted: problems.trusted(proxy),
            identity: problems.client_identity(proxy),
            bundles: proxy.trusted_bundles.iter().map(bundle).collect(),
            bundles_depth: proxy.trusted_bundles_depth,
            common_name: if proxy.upstream_common_name {
                CommonName::Taken
            } else {
                CommonName::Ignored
            },
        },
        default_certificate: problems.certificate(
            "ssl_cert",
            &proxy.certificates,
            (settings.proxy_listen.iter()).chain(&settings.stream_listen),
        ),
        node,
        lua: settings.model.lua.clone(),
        times_plugins: settings.model.times_plugins,
        // This resolver accepts only IP addresses, which is enough to check a configuration. A serving process replaces
        // it with one that queries name servers.
        resolver: Resolver::default(),
        rebuilds: Arc::default(),
    };
    problems.or(build)
}

/// Returns the certificates of the Admin API and of the Status API, if they have TLS listeners.
pub(crate) fn api_certificates(settings: &Settings) -> Result<ApiCertificates, Failure> {
    let mut problems = Problems::new(settings);
    let certificates = ApiCertificates {
        admin: problems.certificate(
            "admin_ssl_cert",
            &settings.admin_certificates,
            &settings.admin_listen,
        ),
        admin_clients: problems.client_auth(settings),
        status: problems.certificate(
            "status_ssl_cert",
            &settings.status_certificates,
            &settings.status_listen,
        ),
    };
    problems.or(certificates)
}

/// Returns the settings of connections and requests.
pub(crate) fn settings(settings: &Settings) -> Result<session::SessionSettings, Failure> {
    let mut problems = Problems::new(settings);
    let proxy = &settings.proxy;
    let (buffers, size) = proxy.header_buffers;
    let plane = session::SessionSettings {
        pool: PoolSettings {
            size: proxy.keepalive_pool_size,
            max_requests: u32::try_from(proxy.keepalive_max_requests).unwrap_or(u32::MAX),
            idle: proxy.keepalive_idle_timeout,
        },
        http2: http2_settings(proxy),
        limits: Limits {
            line: size,
            head: buffers * size,
            lines: proxy.header_lines,
        },
        real_ip: problems.real_ip(proxy),
        respond: respond::ResponseSettings {
            headers: HeaderSet {
                charset: proxy.charset,
                ..HeaderSet::from_names(proxy.headers.iter().map(String::as_str))
            },
            injections: proxy.injections.clone(),
            templates: problems.templates(proxy),
            error_default_type: error_format(&proxy.error_default_type),
        },
        request_id_upstream: proxy
            .headers_upstream
            .iter()
            .any(|name| name.eq_ignore_ascii_case("x-kong-request-id")),
        debug_header: proxy.allow_debug_header,
        port_maps: proxy
            .port_maps
            .iter()
            .map(|&(public, actual)| (actual, public))
            .collect(),
        header_timeout: proxy.client_header_timeout,
        body_timeout: proxy.client_body_timeout,
        send_timeout: proxy.client_send_timeout,
        idle_timeout: proxy.client_keepalive_timeout,
        max_body: proxy.client_max_body,
        plugin_body: usize::try_from(proxy.body_buffer)
            .unwrap_or(usize::MAX)
            .max(session::PLUGIN_BODY),
        read_ahead: proxy.read_ahead,
        body_memory: usize::try_from(proxy.body_memory).unwrap_or(usize::MAX),
        client_may_abort: !proxy.ignore_client_abort,
        max_requests: proxy.client_max_requests,
        connections: proxy.connections,
        min_rate: proxy.min_rate,
        upstream: proxy.upstream,
        ..session::SessionSettings::default()
    };
    problems.or(plane)
}

fn bundle(source: &PemSource) -> Bundle {
    match source {
        PemSource::Text(text) => Bundle::Text(text.clone()),
        PemSource::File { path, .. } => Bundle::File {
            path: path.clone(),
            name: source.to_string(),
        },
    }
}

fn error_format(name: &str) -> Option<Format> {
    match name {
        "application/json" => Some(Format::Json),
        "application/xml" => Some(Format::Xml),
        "text/html" => Some(Format::Html),
        _ => Some(Format::Plain),
    }
}

/// Problems found so far.
struct Problems<'s> {
    origins: &'s Origins,
    found: Vec<String>,
}

impl<'s> Problems<'s> {
    fn new(settings: &'s Settings) -> Self {
        Self {
            origins: &settings.origins,
            found: Vec::new(),
        }
    }

    fn or<T>(self, value: T) -> Result<T, Failure> {
        if self.found.is_empty() {
            Ok(value)
        } else {
            Err(self.found.into_iter().collect())
        }
    }

    fn add(&mut self, setting: &str, problem: impl Display) {
        let setting = self.origins.of(setting);
        self.found.push(format!("{setting}: {problem}"));
    }

    fn real_ip(&mut self, proxy: &ProxySettings) -> RealIp {
        let entries = proxy.trusted_ips.iter().filter(|entry| *entry != "unix:");
        RealIp {
            // The entries were validated with the settings.
            trusted: entries.filter_map(|entry| entry.parse().ok()).collect(),
            source: session::Source::from_name(&proxy.real_ip_header),
            recursive: proxy.real_ip_recursive,
        }
    }

    fn templates(&mut self, proxy: &ProxySettings) -> Templates {
        let mut files = ERROR_TEMPLATES.iter().zip(&proxy.error_templates);
        let mut next = || {
            let (name, path) = files.next()?;
            let text = self.read(name, path.as_deref()?)?;
            if text.matches("%s").count() != 2 {
                self.add(
                    name,
                    "the template must have `%s` twice, for message and request id",
                );
            }
            Some(text)
        };
        Templates {
            json: next(),
            html: next(),
            xml: next(),
            plain: next(),
        }
    }

    fn trusted(&mut self, proxy: &ProxySettings) -> Option<String> {
        let path = proxy.trusted_upstream.as_deref()?;
        self.read("nginx_proxy_proxy_ssl_trusted_certificate", path)
    }

    fn client_identity(&mut self, proxy: &ProxySettings) -> Option<ClientIdentity> {
        let (cert, key) = proxy.client_certificate.as_ref()?;
        let settings = ["client_ssl_cert", "client_ssl_cert_key"];
        let texts = (self.pem(settings[0], cert)?, self.pem(settings[1], key)?);
        if let Err(error) = Certificates::from_pem(&texts.0, &texts.1) {
            self.add_pair(settings, (cert, key), &error);
        }
        let (cert, key) = texts;
        Some(ClientIdentity { cert, key })
    }

    fn client_auth(&mut self, settings: &Settings) -> Option<ClientAuth> {
        let clients = settings.admin.clients.as_ref()?;
        let authorities = self.pem(AUTHORITIES, &clients.authorities)?;
        match ClientAuth::new(&authorities, clients.without) {
            Ok(auth) => Some(auth),
            Err(error) => {
                self.add(AUTHORITIES, format!("{}: {error}", clients.authorities));
                None
            }
        }
    }

    /// Loads the first pair of certificate and key, with the second pair as an alternative of another key type. If
    /// there is a TLS listener but no pair, creates a self-signed certificate, as Kong does.
    fn certificate<'a>(
        &mut self,
        setting: &str,
        sources: &[(PemSource, PemSource)],
        listeners: impl IntoIterator<Item = &'a Listen>,
    ) -> Option<Arc<Certificates>> {
        let settings = [setting, &format!("{setting}_key")];
        let mut made = None;
        for (cert, key) in sources.iter().take(2) {
            let texts = (self.pem(settings[0], cert)?, self.pem(settings[1], key)?);
            let read = match made {
                None => Certificates::from_pem(&texts.0, &texts.1),
                Some(first) => Certificates::with_alternative(first, &texts.0, &texts.1),
            };
            let read = read.map_err(|error| self.add_pair(settings, (cert, key), &error));
            made = Some(read.ok()?);
        }
        if made.is_none() && listeners.into_iter().any(|listen| listen.ssl) {
            let generated = self_signed().map_err(|error| self.add(setting, error));
            made = generated.ok();
        }
        made.map(Arc::new)
    }

    /// Adds the problem of a certificate and its key, with the setting and the file that cause it.
    fn add_pair(
        &mut self,
        [cert_setting, key_setting]: [&str; 2],
        (cert, key): (&PemSource, &PemSource),
        error: &CertificateError,
    ) {
        match error {
            CertificateError::Mismatch => {
                let problem = format!("{key} does not match {cert_setting} {cert}");
                self.add(key_setting, problem);
            }
            CertificateError::Key => self.add(key_setting, format!("{key}: {error}")),
            _ => self.add(cert_setting, format!("{cert}: {error}")),
        }
    }

    fn pem(&mut self, setting: &str, source: &PemSource) -> Option<String> {
        match source {
            PemSource::Text(text) => Some(text.clone()),
            PemSource::File { path, .. } => self.read_as(setting, path, source),
        }
    }

    fn read(&mut self, setting: &str, path: &Path) -> Option<String> {
        self.read_as(setting, path, path.display())
    }

    /// Reads a file that has another name in an error.
    fn read_as(&mut self, setting: &str, path: &Path, name: impl Display) -> Option<String> {
        match std::fs::read_to_string(path) {
            Ok(text) => Some(text),
            Err(error) => {
                self.add(setting, format!("cannot read {name}: {error}"));
                None
            }
        }
    }
}

fn http2_settings(proxy: &ProxySettings) -> Http2Settings {
    /// Initial window of every HTTP/2 connection (RFC 9113 section 6.9.2).
    const LEAST_WINDOW: u32 = 65_535;
    const MAX_WINDOW: u32 = (1 << 31) - 1;
    let window = proxy.http2_stream_window.clamp(LEAST_WINDOW, MAX_WINDOW);
    let defaults = Http2Settings::default();
    Http2Settings {
        streams: proxy.http2_streams,
        stream_window: window,
        connection_window: defaults.connection_window.max(window),
        ..defaults
    }
}
