//! Authentication settings of the Admin API on network listeners. They are read and checked before any socket listens.

use crate::commands::Failure;
use crate::settings::{AUTHORITIES, Settings};
use crate::tokens::TokenFile;
use admin::control::Credentials;
use admin::tokens::Role;

/// Credentials that Admin API clients may use, and whether clients may also connect without any.
#[derive(Debug)]
pub(crate) struct Access {
    tokens: TokenFile,
    certificates: Option<Role>,
    unauthenticated: bool,
}

impl Access {
    /// Fails when other machines could use the Admin API without authentication, unless `admin_allow_unauthenticated`
    /// is on.
    pub(crate) fn prepare(settings: &Settings) -> Result<Self, Failure> {
        let tokens = TokenFile::open(&settings.admin.tokens_file).map_err(|error| {
            let setting = settings.origins.of("admin_tokens_file");
            Failure::new(format!("{setting}: {error}"))
        })?;
        let access = Self {
            tokens,
            certificates: settings.admin.clients.as_ref().map(|clients| clients.role),
            unauthenticated: settings.admin.allow_unauthenticated,
        };
        let credentials = access.credentials();
        for listen in &settings.admin_listen {
            let address = listen.address;
            if address.ip().to_canonical().is_loopback() {
                continue;
            }
            if credentials.are_none() && !credentials.unauthenticated {
                return Err(Failure::new(format!(
                    "{}: other machines reach {address}, and nobody there would have to show who they are. \
                     Make a token with `silverback tokens create NAME`, ask for client certificates with `{AUTHORITIES}`, \
                     listen on a loopback address, or say that this is wanted with `admin_allow_unauthenticated = on`",
                    settings.origins.of("admin_listen")
                )));
            }
            if !listen.ssl && !credentials.tokens.is_empty() {
                tracing::warn!(%address, "tokens of the Admin API can be read on their way: there is no `ssl` for this address in admin_listen");
            }
        }
        Ok(access)
    }

    pub(crate) fn credentials(&self) -> Credentials {
        Credentials {
            tokens: self.tokens.tokens(),
            certificates: self.certificates,
            unauthenticated: self.unauthenticated,
        }
    }
}
