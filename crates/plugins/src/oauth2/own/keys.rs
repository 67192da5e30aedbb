//! The keys of signed access tokens.

use super::pem::{Jwk, PrivateKey, PublicKey, private_key};
use super::signed::{Claims, Header, split};
use crate::oauth2::config::Config;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::RSA_PKCS1_SHA256;
use bytes::Bytes;
use data_encoding::BASE64URL_NOPAD;
use plugin::{BuildError, PluginError};
use serde::Serialize;
use std::sync::Arc;

pub(in crate::oauth2) struct Keys {
    signing: Arc<PrivateKey>,
    /// The first part of tokens: the header in base64url, with a dot.
    header: String,
    /// The key that belongs to the private one, and the further ones.
    public: Vec<PublicKey>,
    published: Bytes,
}

impl Keys {
    /// Reads the keys of a configuration. Without a private key there are none.
    pub(in crate::oauth2) fn build(config: &Config) -> Result<Option<Self>, BuildError> {
        let Some(pem) = &config.signing_key else {
            return Ok(None);
        };
        let unreadable = || {
            let reason =
                "it must be a private key in PEM: RSA from 2,048 bits, or EC on the curve P-256";
            BuildError::field("signing_key", reason)
        };
        let signing = private_key(pem).ok_or_else(unreadable)?;
        let mut public = vec![signing.public().ok_or_else(unreadable)?];
        for pem in config.verification_keys.iter().flatten() {
            let key = PublicKey::read(pem).ok_or_else(|| {
                let reason = "it must have public keys in PEM: RSA from 2,048 bits, or EC on the curve P-256";
                BuildError::field("verification_keys", reason)
            })?;
            public.push(key);
        }
        let header = match public.first() {
            Some(own) => Header::of(own.algorithm, &own.jwk.kid).write(),
            None => return Err(unreadable()),
        };
        Ok(Some(Self {
            signing: Arc::new(signing),
            header,
            published: published(&public),
            public,
        }))
    }

    /// The keys as a JSON Web Key Set.
    pub(in crate::oauth2) fn published(&self) -> Bytes {
        self.published.clone()
    }

    /// Makes a token. A signature with RSA takes a millisecond, so it is made off the worker.
    pub(in crate::oauth2) async fn sign(&self, claims: &Claims) -> Result<String, PluginError> {
        let mut token = self.header.clone();
        token += &claims.write()?;
        let signature = match &*self.signing {
            PrivateKey::Es256(_) => sign(&self.signing, token.as_bytes()),
            PrivateKey::Rs256(_) => {
                let (key, message) = (self.signing.clone(), token.clone());
                let signed = tokio::task::spawn_blocking(move || sign(&key, message.as_bytes()));
                signed.await.ok().flatten()
            }
        };
        let signature = signature.ok_or_else(|| PluginError::new("a token could not be signed"))?;
        token.push('.');
        token += &BASE64URL_NOPAD.encode(&signature);
        Ok(token)
    }

    /// Returns the claims of a token that one of the keys has signed. The other claims are to be checked by the caller.
    pub(in crate::oauth2) fn verify(&self, token: &str) -> Option<Claims> {
        let parts = split(token)?;
        let header = Header::read(parts.header)?;
        // The key decides about the algorithm. The token's own word only has to agree.
        let mut keys = self.public.iter();
        let key = keys.find(|key| header.names(&key.jwk.kid, key.algorithm))?;
        let signature = BASE64URL_NOPAD.decode(parts.signature.as_bytes()).ok()?;
        let is_right = key.key.verify_sig(parts.signed.as_bytes(), &signature);
        is_right.ok()?;
        Claims::read(parts.claims)
    }
}

fn sign(key: &PrivateKey, message: &[u8]) -> Option<Vec<u8>> {
    match key {
        PrivateKey::Es256(pair) => {
            let signature = pair.sign(&SystemRandom::new(), message).ok()?;
            Some(signature.as_ref().to_vec())
        }
        PrivateKey::Rs256(pair) => {
            let mut signature = vec![0; pair.public_modulus_len()];
            let random = SystemRandom::new();
            pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature)
                .ok()?;
            Some(signature)
        }
    }
}

fn published(keys: &[PublicKey]) -> Bytes {
    #[derive(Serialize)]
    struct Set<'k> {
        keys: Vec<&'k Jwk>,
    }
    let keys = keys.iter().map(|key| &key.jwk).collect();
    serde_json::to_vec(&Set { keys }).unwrap_or_default().into()
}
