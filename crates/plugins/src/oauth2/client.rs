//! Clients: who asks an endpoint, and whether it is who it says.

use super::Oauth2;
use super::config::Config;
use super::credential::Oauth2Credential;
use super::issue::Failed;
use super::parameters::{Given, Parameters};
use super::source::OAUTH2_CREDENTIALS;
use plugin::{Node, PluginError, Request, args, base64};
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

/// Returns the client that a request names.
pub(super) fn named(node: &Node, claimed: &Claimed) -> Result<Option<Client>, PluginError> {
    let found = find(node, claimed.id.as_deref().unwrap_or_default())?;
    match &claimed.decoded {
        Some((id, _)) if found.is_none() => find(node, id),
        _ => Ok(found),
    }
}

impl Oauth2 {
    /// Whether the request has the secret of its client. `None` is a client that does not exist.
    pub(super) async fn has_secret(
        &self,
        request: &Request<'_>,
        claimed: &Claimed,
        client: Option<&Client>,
    ) -> Result<bool, Failed> {
        let Some(secret) = &claimed.secret else {
            return Ok(false);
        };
        let credential = client.map(|client| &*client.credential);
        let decoded = claimed.decoded.iter().map(|(_, secret)| &**secret);
        let given: Vec<_> = std::iter::once(&**secret).chain(decoded).collect();
        let secrets = self.secrets()?;
        let id = claimed.id.as_deref().unwrap_or_default();
        let asker = secrets.asker(request.client.ip, id);
        Ok(secrets.is_right(credential, &given, asker).await?)
    }
}

/// What a request says about its client.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Claimed {
    pub id: Option<String>,
    pub secret: Option<String>,
    /// Whether the request has the header, which decides about the form of a refusal.
    pub from_header: bool,
    /// Id and secret decoded as a form, if that may be what the client means.
    pub decoded: Option<(String, String)>,
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
            ..Claimed::default()
        };
    }
    match request.first_header_field(config.header_name()) {
        Some(header) if config.is_strict() => encoded_basic(header),
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
    let text = basic_text(header);
    let mut parts = text
        .iter()
        .flat_map(|text| text.split(':'))
        .map(str::to_owned);
    Claimed {
        id: parts.next(),
        secret: parts.next(),
        from_header: true,
        decoded: None,
    }
}

/// Reads the credentials in a header with HTTP Basic as RFC 6749 section 2.3.1 says: id and secret were encoded as a form
/// before. Some clients do not do that, so both readings are possible.
pub fn encoded_basic(header: &[u8]) -> Claimed {
    let text = basic_text(header);
    let parts = text.as_deref().and_then(|text| text.split_once(':'));
    let Some((id, secret)) = parts else {
        return Claimed {
            id: text,
            from_header: true,
            ..Claimed::default()
        };
    };
    let is_encoded = |text: &str| text.contains(['%', '+']);
    let decoded = (is_encoded(id) || is_encoded(secret))
        .then(|| decode_form(id).zip(decode_form(secret)))
        .flatten();
    Claimed {
        id: Some(id.to_owned()),
        secret: Some(secret.to_owned()),
        from_header: true,
        decoded,
    }
}

/// Decodes a value of a form.
fn decode_form(value: &str) -> Option<String> {
    if value.contains('&') {
        return None;
    }
    let pair = format!("x={value}");
    let decoded = args::parse(pair.as_bytes()).next()?.value?;
    String::from_utf8(decoded.into_owned()).ok()
}

/// Returns what is encoded in a header with HTTP Basic.
fn basic_text(header: &[u8]) -> Option<String> {
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
    String::from_utf8(encoded.and_then(base64::decode)?).ok()
}
