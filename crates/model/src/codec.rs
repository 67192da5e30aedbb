//! How an entity is kept: its completed object without nulls, as MessagePack. A typed struct is read straight from the
//! bytes, so that a lookup builds no [`Value`](crate::Value).

use crate::value::Object;
use serde::de::DeserializeOwned;

#[derive(Debug, thiserror::Error)]
#[error("a stored entity cannot be read: {0}")]
pub struct DecodeError(#[from] rmp_serde::decode::Error);

/// Encodes a completed entity. Encoding a value tree cannot fail.
pub fn encode(entity: &Object) -> Vec<u8> {
    rmp_serde::to_vec_named(entity).expect("a value tree has only encodable types")
}

/// Appends the bytes of [`encode`].
pub fn encode_into(entity: &Object, out: &mut Vec<u8>) {
    rmp_serde::encode::write_named(out, entity).expect("a value tree has only encodable types");
}

pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    Ok(rmp_serde::from_slice(bytes)?)
}
