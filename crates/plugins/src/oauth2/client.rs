//! Clients: who asks an endpoint, and whether it is who it says.

use super::config::Config;
use super::credential::Oauth2Credential;
use super::parameters::{Given, Parameters};
use super::source::OAUTH2_CREDENTIALS;
use plugin::{Node, PluginError, Request, base64};
use std::sync::Arc;
use tokens::Owner;

/// A client with what its tokens hold of it.
pub(super) struct Client {
    pub(super) credential: Arc<Oauth2Credential>,
    pub(super) owner: Owner,
}

/// Returns the client with this id.
pub(super) fn find(node: &Node, client_id: &str) -> Result<Option<Client>, PluginError> {
    if client_id.is_empty() {
        return Ok(None);
    }
    let found: Option<Arc<Oauth2Credential>> = node.entities.by_unique("client_id", client_id)?;
    let Some(credential) = found else {
        return Ok(None);
    };
    let id = credential.id.0;
    let created = node.entities.created_revision(OAUTH2_CREDENTIALS, id)?;
    Ok(created.map(|created| Client {
        credential,
        owner: Owner { id, created },
    }))
}

/// What a request says about its client.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Claimed {
    pub id: Option<String>,
    pub secret: Option<String>,
    /// Whether the request has the header, which decides about the form of a refusal.
    pub from_header: bool,
}

/// Reads the credentials of the client. Source: kong/plugins/oauth2/access.lua retrieve_client_credentials().
pub(super) fn claimed(
    parameters: &Parameters<'_>,
    request: &Request<'_>,
    config: &Config,
) -> Claimed {
    let text = |given: Given<'_>| given.text().map(str::to_owned);
    let (id, secret) = (parameters.get("client_id"), parameters.get("client_secret"));
    if id.is_given() && secret.is_given() {
        return Claimed {
            id: text(id),
            secret: text(secret),
            from_header: false,
        };
    }
    match request.first_header_field(config.header_name()) {
        Some(header) => basic(header),
        None => Claimed {
            id: text(id),
            ..Claimed::default()
        },
    }
}

/// Reads the credentials in a header with HTTP Basic. As in Kong, the scheme may be anywhere in the value, and everything
/// after a second colon is ignored.
pub fn basic(header: &[u8]) -> Claimed {
    let nobody = Claimed {
        from_header: true,
        ..Claimed::default()
    };
    let encoded = memchr::memmem::find_iter(header, b"asic").find_map(|at| {
        let before = at.checked_sub(1).and_then(|at| header.get(at));
        let after = header.get(at + b"asic".len()..)?;
        (matches!(before, Some(b'B' | b'b')) && !after.is_empty()).then_some(after)
    });
    let encoded = encoded.and_then(|text| {
        let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
        let start = text.iter().position(|byte| !is_space(byte))?;
        text.get(start..)
    });
    let decoded = encoded.and_then(base64::decode);
    let Some(decoded) = decoded.and_then(|bytes| String::from_utf8(bytes).ok()) else {
        return nobody;
    };
    let mut parts = decoded.split(':').map(str::to_owned);
    Claimed {
        id: parts.next(),
        secret: parts.next(),
        from_header: true,
    }
}
