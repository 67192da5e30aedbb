//! The environment of every scenario: the upstream, the programs under test, and the notes for the report.

use crate::certificate::Certificate;
use crate::gateway::{Build, Gateway};
use crate::load::{Request, Target};
use crate::options::{Cores, Options};
use crate::peers::{self, Http2, Peer, Started, Workload};
use crate::process::{self, Process};
use crate::report::{Better, Figure, Scenario, Size};
use crate::{certificate, machine};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;

/// A running program that receives requests.
pub struct Subject {
    pub name: String,
    /// The process whose processor time is measured. `None` for `direct`, where requests go straight to the upstream.
    pub process: Option<Process>,
    pub target: Target,
    pub requests: Arc<[Request]>,
}

pub struct Harness {
    pub options: Options,
    pub cores: Cores,
    pub upstream: SocketAddr,
    pub certificate: Certificate,
    pub builds: Vec<Build>,
    pub peers: Vec<Peer>,
    pub notes: Vec<String>,
    pub commands: Vec<String>,
    /// Subjects that gave wrong responses.
    pub failed: Vec<String>,
    own: PathBuf,
    pub directory: TempDir,
    _upstream: Process,
}

impl Harness {
    pub fn start(options: Options) -> Result<Self> {
        let cores = Cores::choose(&options)?;
        let directory = tempfile::tempdir()?;
        let own = std::env::current_exe()?;
        let upstream = process::free_address()?;
        let log = directory.path().join("upstream.log");
        let arguments = ["upstream".to_owned(), upstream.to_string()];
        let process = Process::start(&own, &arguments, &[], cores.upstream, upstream, &log)?;
        process::pin_self(cores.load)?;
        let found = peers::find(&options.peers);
        let mut notes = cores.notes();
        notes.extend(found.missing);
        Ok(Self {
            builds: options.builds()?,
            cores,
            upstream,
            certificate: certificate::self_signed(directory.path())?,
            peers: found.peers,
            notes,
            commands: Vec::new(),
            failed: Vec::new(),
            own,
            directory,
            _upstream: process,
            options,
        })
    }

    pub fn machine(&self) -> crate::report::Machine {
        let Cores {
            subject,
            load,
            upstream,
        } = self.cores;
        let pinning = [
            ("subject", subject),
            ("load generator", load),
            ("upstream", upstream),
        ];
        machine::describe(pinning.map(|(name, core)| (name.to_owned(), core)).into())
    }

    pub fn versions(&self) -> BTreeMap<String, String> {
        let builds = self
            .builds
            .iter()
            .map(|build| (build.name.clone(), build.version.clone()));
        let peers = self
            .peers
            .iter()
            .map(|peer| (peer.name.to_owned(), peer.version.clone()));
        builds.chain(peers).collect()
    }

    /// Returns the programs that accept a configuration by `POST /config`.
    pub fn builds_and_kong(&self) -> Vec<Build> {
        let kong = self.options.peers.kong.as_ref().map(|script| Build {
            name: "kong".to_owned(),
            program: script.clone(),
            arguments: Vec::new(),
            version: String::new(),
        });
        self.builds.iter().cloned().chain(kong).collect()
    }

    pub fn wants(&self, case: &str) -> bool {
        let only = self.options.only.as_deref();
        only.is_none_or(|only| case.contains(only))
    }

    /// Returns the upstream itself as a subject. Its figures are the maximum that the load generator and the upstream
    /// can reach.
    pub fn direct(&self, requests: &Arc<[Request]>) -> Subject {
        Subject {
            name: "direct".to_owned(),
            process: None,
            target: Target {
                address: self.upstream,
                tls: false,
            },
            requests: Arc::clone(requests),
        }
    }

    pub fn relay(&mut self, requests: &Arc<[Request]>) -> Result<Subject> {
        let address = process::free_address()?;
        let arguments = [
            "relay".to_owned(),
            address.to_string(),
            self.upstream.to_string(),
        ];
        let log = self.directory.path().join("relay.log");
        let process = Process::start(
            &self.own,
            &arguments,
            &[],
            self.cores.subject,
            address,
            &log,
        )?;
        self.remember("bench relay LISTEN UPSTREAM".to_owned());
        Ok(Subject {
            name: "relay".to_owned(),
            process: Some(process),
            target: Target {
                address,
                tls: false,
            },
            requests: Arc::clone(requests),
        })
    }

    /// Starts every peer that can do the workload. If a peer does not start, the report gets a note, and the peer is left
    /// out.
    pub fn peers(
        &mut self,
        tls: bool,
        routes: usize,
        keys: usize,
        requests: &Arc<[Request]>,
    ) -> Result<Vec<Subject>> {
        let certificate = self.certificate.clone();
        let workload = Workload {
            upstream: self.upstream,
            tls: tls.then_some(&certificate),
            http2: Http2::Off,
            routes,
            keys,
        };
        let mut subjects = Vec::new();
        for at in 0..self.peers.len() {
            let Some(started) = self.peer(at, &workload)? else {
                continue;
            };
            subjects.push(Subject {
                name: self.peers[at].name.to_owned(),
                process: Some(started.process),
                target: Target {
                    address: started.address,
                    tls,
                },
                requests: Arc::clone(requests),
            });
        }
        Ok(subjects)
    }

    /// Starts the peer at this index of the list.
    pub fn peer(&mut self, at: usize, workload: &Workload<'_>) -> Result<Option<Started>> {
        // Each start gets a new directory, because a peer uses the same file names every time.
        let directory = tempfile::tempdir_in(self.directory.path())?.keep();
        let peer = &self.peers[at];
        match peer.start(workload, self.cores.subject, &directory) {
            Ok(Some(started)) => {
                self.remember(started.command.clone());
                Ok(Some(started))
            }
            Ok(None) => Ok(None),
            Err(error) => {
                let (routes, keys) = (workload.routes, workload.keys);
                self.note(format!(
                    "{} did not start with {routes} routes and {keys} keys and is left out: {error:#}",
                    peer.name
                ));
                Ok(None)
            }
        }
    }

    pub fn gateway(&mut self, build: &Build) -> Result<Gateway> {
        self.gateway_with(build, &[])
    }

    /// Starts a gateway with these settings in addition to the usual ones.
    pub fn gateway_with(
        &mut self,
        build: &Build,
        settings: &[(&'static str, String)],
    ) -> Result<Gateway> {
        self.remember(build.command());
        Gateway::start(
            build,
            &self.certificate,
            self.cores.subject,
            self.directory.path(),
            settings,
        )
        .with_context(|| format!("cannot start {}", build.name))
    }

    /// Starts a writable gateway on the embedded store and loads this configuration.
    pub fn writable(&mut self, build: &Build, configuration: &str) -> Result<Gateway> {
        let gateway = self.gateway(build)?;
        gateway.post_config(configuration)?;
        gateway.again_writable(build, &self.certificate, self.cores.subject)
    }

    /// Starts every build of Silverback with this configuration.
    pub fn silverbacks(
        &mut self,
        tls: bool,
        configuration: &str,
        requests: &Arc<[Request]>,
    ) -> Result<Vec<Subject>> {
        let mut subjects = Vec::new();
        for build in self.builds.clone() {
            let gateway = self.gateway(&build)?;
            gateway.post_config(configuration)?;
            subjects.push(Subject {
                name: build.name,
                process: Some(gateway.process),
                target: Target {
                    address: if tls { gateway.tls } else { gateway.proxy },
                    tls,
                },
                requests: Arc::clone(requests),
            });
        }
        Ok(subjects)
    }

    /// Returns the builds of Silverback that gave wrong responses.
    pub fn failed_builds(&self) -> Vec<&str> {
        let names = self.builds.iter().map(|build| build.name.as_str());
        names
            .filter(|name| self.failed.iter().any(|failed| failed == name))
            .collect()
    }

    pub fn note(&mut self, note: String) {
        eprintln!("note: {note}");
        self.notes.push(note);
    }

    fn remember(&mut self, command: String) {
        if !self.commands.contains(&command) {
            self.commands.push(command);
        }
    }
}

/// Creates a figure without samples.
pub fn figure(
    case: &str,
    subject: &str,
    (quantity, unit, better): (&str, &str, Better),
    size: Option<&Size>,
) -> Figure {
    Figure {
        case: case.to_owned(),
        subject: subject.to_owned(),
        quantity: quantity.to_owned(),
        unit: unit.to_owned(),
        better,
        size: size.cloned(),
        samples: crate::statistics::Samples::default(),
    }
}

pub fn skipped(name: &str, about: &str, why: &str) -> Scenario {
    eprintln!("{name}: skipped: {why}");
    Scenario {
        name: name.to_owned(),
        about: about.to_owned(),
        skipped: Some(why.to_owned()),
        ..Scenario::default()
    }
}
