//! Reads tokens: signed JSON Web Tokens in compact serialisation (RFC 7515 section 7.1, RFC 7519). Reading does not
//! verify anything. Source of the behaviour: kong/plugins/jwt/jwt_parser.lua decode_token().

use super::algorithm::Algorithm;
use super::members::{Json, Member, Members};
use data_encoding::{BASE64URL_NOPAD, Encoding};
use std::sync::LazyLock;

/// What a token says. Only the members that the plugin uses are kept, so that large claims cost no memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Token<'t> {
    pub algorithm: Algorithm,
    /// What the signature covers: the header, a dot and the claims, as the token has them.
    pub signed: &'t [u8],
    pub signature: Vec<u8>,
    pub exp: Member,
    pub nbf: Member,
    claims_key: Member,
    header_key: Member,
}

/// The reason why a token is not readable, in Kong's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadToken {
    /// A part is missing, header or claims are not base64url, or they are not JSON.
    #[error("Bad token; invalid JSON")]
    Json,
    /// The header names no algorithm, or one that is not known.
    #[error("Bad token; invalid alg")]
    Algorithm,
    /// The header names extensions that must be understood, and none is.
    #[error("Bad token; invalid crit")]
    Critical,
    #[error("Bad token; invalid claims")]
    Claims,
    #[error("Bad token; invalid signature")]
    Signature,
}

/// The key of a credential in a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key<'t> {
    Absent,
    /// It is empty or not a text.
    Invalid,
    Text(&'t str),
}

impl<'t> Token<'t> {
    /// Reads a token. `key_claim` names the claim, or the member of the header, that has the key of the credential.
    pub fn read(text: &'t [u8], key_claim: &str) -> Result<Self, BadToken> {
        let (header, signed, signature) = parts(text).ok_or(BadToken::Json)?;
        let claims = &signed[header.len() + 1..];
        let object = |part: &[u8]| {
            let json = decode(part).ok_or(BadToken::Json)?;
            Members::read(&json, key_claim).ok_or(BadToken::Json)
        };
        let (header, claims) = (object(header)?, object(claims)?);
        let Json::Object(header) = header else {
            return Err(BadToken::Algorithm);
        };
        let algorithm = match &header.alg {
            Member::Text(name) => Algorithm::from_name(name),
            _ => None,
        };
        let algorithm = algorithm.ok_or(BadToken::Algorithm)?;
        if header.has_crit {
            return Err(BadToken::Critical);
        }
        let Json::Object(claims) = claims else {
            return Err(BadToken::Claims);
        };
        Ok(Self {
            algorithm,
            signed,
            signature: decode(signature).ok_or(BadToken::Signature)?,
            exp: claims.exp,
            nbf: claims.nbf,
            claims_key: claims.key,
            header_key: header.key,
        })
    }

    /// Returns the key of the credential. The claims come before the header. As in Lua, `false` is like an absent member.
    pub fn key(&self) -> Key<'_> {
        let members = [&self.claims_key, &self.header_key];
        let given = members.into_iter().find(|member| !member.is_falsy());
        match given {
            None => Key::Absent,
            Some(Member::Text(key)) if !key.is_empty() => Key::Text(key),
            Some(_) => Key::Invalid,
        }
    }
}

/// Splits a token at its first two dots into the header, the signed part with header and claims, and the signature.
fn parts(text: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let first = memchr::memchr(b'.', text)?;
    let second = first + 1 + memchr::memchr(b'.', &text[first + 1..])?;
    Some((&text[..first], &text[..second], &text[second + 1..]))
}

/// Decodes base64url. As in Kong, padding may be there or not, and unused bits at the end do not matter. Kong also ignores
/// the text after the padding; here it is an error, so that a readable token is a text in ASCII.
pub fn decode(part: &[u8]) -> Option<Vec<u8>> {
    static LENIENT: LazyLock<Encoding> = LazyLock::new(|| {
        let mut specification = BASE64URL_NOPAD.specification();
        specification.check_trailing_bits = false;
        specification
            .encoding()
            .expect("the usual encoding stays valid with one check less")
    });
    let end = memchr::memchr(b'=', part).unwrap_or(part.len());
    let (data, padding) = part.split_at(end);
    if padding.iter().any(|byte| *byte != b'=') {
        return None;
    }
    LENIENT.decode(data).ok()
}
