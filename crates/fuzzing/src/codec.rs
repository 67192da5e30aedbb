//! Stored entities: invalid bytes are refused without a panic. A decoded entity can be encoded and decoded again, and
//! encoding it a second time gives the same bytes as the first time.

use model::schema::RouterFlavor;
use model::{Object, codec as stored};

/// Checks a stored entity. The first byte of the input chooses the entity type; the rest is the stored form.
pub fn codec(data: &[u8]) {
    let Some((&first, bytes)) = data.split_first() else {
        return;
    };
    let registry = plugins::install();
    let kind = registry.kinds()[usize::from(first) % registry.kinds().len()];
    // An error is a valid result; only a panic is a failure.
    let _ =
        registry
            .entity(kind)
            .write_stored_json(bytes, RouterFlavor::default(), &mut Vec::new());
    let Ok(entity) = stored::decode::<Object>(bytes) else {
        return;
    };
    let encoded = stored::encode(&entity);
    let decoded: Object = stored::decode(&encoded).expect("encoded bytes can be decoded");
    assert_eq!(
        stored::encode(&decoded),
        encoded,
        "the second encoding differs from the first"
    );
}
