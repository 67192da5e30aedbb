//! Stored entities: bytes that are none are refused, and what is read is written as it was.

use model::schema::{RouterFlavor, registry};
use model::{EntityKind, Object, codec as stored};

/// The first byte chooses the kind of entity; the rest is its stored form.
pub fn codec(data: &[u8]) {
    let Some((&first, bytes)) = data.split_first() else {
        return;
    };
    let kind = EntityKind::ALL[usize::from(first) % EntityKind::ALL.len()];
    // An error is as good: it must only come instead of a panic.
    let _ =
        registry()
            .entity(kind)
            .write_stored_json(bytes, RouterFlavor::default(), &mut Vec::new());
    let Ok(entity) = stored::decode::<Object>(bytes) else {
        return;
    };
    let encoded = stored::encode(&entity);
    let decoded: Object = stored::decode(&encoded).expect("what was encoded is decoded");
    assert_eq!(stored::encode(&decoded), encoded, "encoded twice");
}
