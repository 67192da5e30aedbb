//! Opens connections to Redis: name resolution, TCP, TLS, then the user and the database. With Sentinel, it asks for the
//! master first.

use super::link::Link;
use super::{Address, RedisErrorKind, Settings, Topology};
use crate::background::Background;
use crate::http::ConnectError;
use crate::http::connect::{Transport, connect_tcp};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use net::dns::{Host, Resolver};
use net::tls::ClientTls;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisConnectionInfo, Value};
use std::future::Future;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Makes the links of a server.
#[derive(Clone)]
pub(super) struct Openers {
    pub(super) resolver: Resolver,
    pub(super) tls: ClientTls,
    pub(super) background: Background,
    pub(super) settings: Arc<Settings>,
    /// The name of the server in logs.
    pub(super) name: Arc<str>,
}

/// Where the server of a link is.
pub(super) enum Place {
    Fixed(Arc<Host>),
    Sentinel {
        sentinels: Vec<Arc<Host>>,
        master: Box<str>,
    },
}

/// Opens the connections of one link.
pub(super) struct Opener {
    openers: Openers,
    place: Place,
}

pub(super) struct Opened {
    pub(super) connection: MultiplexedConnection,
    /// Sends and receives until the connection ends.
    pub(super) driver: BoxFuture<'static, ()>,
    /// The address that the sentinels have named.
    pub(super) master: Option<Address>,
}

impl Openers {
    pub(super) fn host(&self, (name, port): &Address) -> Arc<Host> {
        self.resolver.host(name, *port)
    }

    pub(super) fn fixed(&self, address: &Address) -> Place {
        Place::Fixed(self.host(address))
    }

    pub(super) fn link(&self, place: Place) -> Link {
        let openers = self.clone();
        Link::new(Opener { openers, place })
    }
}

impl Opener {
    pub(super) fn openers(&self) -> &Openers {
        &self.openers
    }

    pub(super) async fn open(&self) -> Result<Opened, RedisErrorKind> {
        let settings = &self.openers.settings;
        let user = info(settings.username.as_deref(), settings.password.as_ref());
        let user = user.set_db(settings.database);
        match self.master().await? {
            None => match &self.place {
                Place::Fixed(host) => self.connect(host, &user).await,
                Place::Sentinel { master, .. } => Err(RedisErrorKind::NoMaster(master.clone())),
            },
            Some(address) => {
                let host = self.openers.host(&address);
                let opened = self.connect(&host, &user).await?;
                let mut opened = self.check_role(opened).await?;
                opened.master = Some(address);
                Ok(opened)
            }
        }
    }

    /// Asks the sentinels for the master, one after the other until one knows it. `None` without sentinels.
    pub(super) async fn master(&self) -> Result<Option<Address>, RedisErrorKind> {
        let Place::Sentinel { sentinels, master } = &self.place else {
            return Ok(None);
        };
        let mut failure = RedisErrorKind::NoMaster(master.clone());
        for sentinel in sentinels {
            match self.ask(sentinel, master).await {
                Ok(Some(address)) => return Ok(Some(address)),
                Ok(None) => {}
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    async fn ask(&self, sentinel: &Host, master: &str) -> Result<Option<Address>, RedisErrorKind> {
        let Topology::Sentinel {
            username, password, ..
        } = &self.openers.settings.topology
        else {
            return Ok(None);
        };
        let user = info(username.as_deref(), password.as_ref());
        let opened = self.connect(sentinel, &user).await?;
        let mut command = redis::cmd("SENTINEL");
        command.arg("get-master-addr-by-name").arg(master);
        let (answer, _) = self.query(opened, &command).await?;
        if answer == Value::Nil {
            return Ok(None);
        }
        let answer: (String, u16) =
            redis::from_redis_value(answer).map_err(|_| RedisErrorKind::Unexpected)?;
        Ok(Some((answer.0.into(), answer.1)))
    }

    /// Refuses a server that is not a master: sentinels may name the old master for a moment after it has come back.
    async fn check_role(&self, opened: Opened) -> Result<Opened, RedisErrorKind> {
        let (answer, opened) = self.query(opened, &redis::cmd("ROLE")).await?;
        let role = match answer {
            Value::Array(parts) => parts.into_iter().next(),
            _ => None,
        };
        match role {
            Some(Value::BulkString(role)) if role == b"master" => Ok(opened),
            _ => Err(RedisErrorKind::NotMaster),
        }
    }

    /// Sends a command on a connection that nobody drives yet.
    async fn query(
        &self,
        opened: Opened,
        command: &redis::Cmd,
    ) -> Result<(Value, Opened), RedisErrorKind> {
        match self.exchange(opened, command).await? {
            (Value::ServerError(error), _) => Err(RedisErrorKind::Refused(error)),
            answered => Ok(answered),
        }
    }

    /// Does the same as [`Opener::query`], but an error of the server is an answer as well.
    async fn exchange(
        &self,
        mut opened: Opened,
        command: &redis::Cmd,
    ) -> Result<(Value, Opened), RedisErrorKind> {
        let mut connection = opened.connection.clone();
        let answer = async {
            tokio::select! {
                answer = connection.send_packed_command(command) => answer.map_err(RedisErrorKind::Failed),
                () = &mut opened.driver => Err(RedisErrorKind::Unexpected),
            }
        };
        Ok((self.limited(answer).await?, opened))
    }

    async fn connect(
        &self,
        host: &Host,
        user: &RedisConnectionInfo,
    ) -> Result<Opened, RedisErrorKind> {
        let stream = async {
            let limit = self.openers.settings.timeout;
            let stream = connect_tcp(host, limit).await;
            stream.map_err(RedisErrorKind::Connect)
        };
        let stream = self.limited(stream).await?;
        let transport = self.limited(self.protect(stream, host)).await?;
        let set_up = async {
            // Each call has a time limit of its own. The default of the crate is 500 ms.
            let config = AsyncConnectionConfig::default().set_response_timeout(None);
            let made = MultiplexedConnection::new_with_config(user, transport, config).await;
            made.map_err(RedisErrorKind::Failed)
        };
        let (connection, driver) = self.limited(set_up).await?;
        let opened = Opened {
            connection,
            driver: driver.boxed(),
            master: None,
        };
        if user.password().is_some() || user.db() != 0 {
            return Ok(opened);
        }
        // Nothing was sent yet, and the system of a server that hangs accepts connections all the same. A refusal shows as
        // well that the server answers.
        let (_, opened) = self.exchange(opened, &redis::cmd("PING")).await?;
        Ok(opened)
    }

    async fn protect(&self, stream: TcpStream, host: &Host) -> Result<Transport, RedisErrorKind> {
        let Some(tls) = &self.openers.settings.tls else {
            return Ok(Transport::Plain(stream));
        };
        let name = tls.server_name.as_deref().unwrap_or(host.name());
        match self.openers.tls.connect(stream, name).await {
            Ok(stream) => Ok(Transport::Tls(Box::new(stream))),
            Err(error) => {
                let error = ConnectError::Tls(Arc::new(error));
                Err(RedisErrorKind::Connect(error))
            }
        }
    }

    async fn limited<T>(
        &self,
        step: impl Future<Output = Result<T, RedisErrorKind>>,
    ) -> Result<T, RedisErrorKind> {
        let limit = self.openers.settings.timeout;
        let done = timeout(limit, step).await;
        done.unwrap_or(Err(RedisErrorKind::Timeout(limit)))
    }
}

/// As Kong, without `CLIENT SETINFO`, which a user of an ACL may not be allowed to send.
fn info(username: Option<&str>, password: Option<&super::Secret>) -> RedisConnectionInfo {
    let mut info = RedisConnectionInfo::default().set_skip_set_lib_name();
    if let Some(password) = password {
        info = info.set_password(&*password.0);
        if let Some(username) = username {
            info = info.set_username(username);
        }
    }
    info
}
