use super::{Facts, Field, IndexTable};
use crate::keys;
use model::{EntityKind, Object, Value, codec};
use uuid::Uuid;

fn reference(id: Uuid) -> Value {
    let mut reference = Object::new();
    reference.push("id", id.to_string().into());
    reference.into()
}

#[test]
fn indexed_fields_are_read_beside_values_of_every_type() {
    plugins::install();
    let service = Uuid::from_u128(7);
    let mut config = Object::new();
    config.push("nested", vec![Value::Int(-1), Value::Float(0.5)].into());
    let mut entity = Object::new();
    entity.push("id", Uuid::nil().to_string().into());
    entity.push("a", Value::Null);
    entity.push("b", true.into());
    for (index, number) in [0, 127, 128, 70_000, i64::MAX, -1, -200, -40_000, i64::MIN]
        .into_iter()
        .enumerate()
    {
        entity.push(format!("n{index}"), Value::Int(number));
    }
    entity.push("config", config.into());
    entity.push("long", "x".repeat(70_000).into());
    entity.push(
        "list",
        (0..70_000).map(Value::Int).collect::<Vec<_>>().into(),
    );
    entity.push("service", reference(service));
    entity.push("name", "route".into());
    entity.push("tags", vec!["a".into(), "b".into(), "a".into()].into());
    let bytes = codec::encode(&entity);
    let facts = Facts::read(EntityKind::Routes, &bytes).expect("an entity");
    let field = |name| {
        let slot = facts.rules.fields.iter().position(|field| *field == name);
        facts.field(slot.expect("an indexed field"))
    };
    assert_eq!(field("name"), Some(Field::Text("route")));
    assert_eq!(field("service"), Some(Field::Reference(service)));
    assert_eq!(facts.tags().expect("a list of texts"), ["a", "b"]);
}

#[test]
fn every_prefix_of_an_entity_is_malformed() {
    plugins::install();
    let mut entity = Object::new();
    entity.push("name", "n".into());
    entity.push("service", reference(Uuid::nil()));
    entity.push("tags", vec!["a".into()].into());
    entity.push("retries", Value::Int(70_000));
    let bytes = codec::encode(&entity);
    assert!(Facts::read(EntityKind::Routes, &bytes).is_ok());
    for length in 0..bytes.len() {
        assert!(Facts::read(EntityKind::Routes, &bytes[..length]).is_err());
    }
}

#[test]
fn references_and_tags_of_another_type_are_malformed_or_not_indexed() {
    plugins::install();
    let mut entity = Object::new();
    let mut not_an_id = Object::new();
    not_an_id.push("id", "x".into());
    entity.push("service", not_an_id.into());
    let bytes = codec::encode(&entity);
    assert!(Facts::read(EntityKind::Routes, &bytes).is_err());

    let mut entity = Object::new();
    entity.push("tags", vec![Value::Int(1)].into());
    let bytes = codec::encode(&entity);
    let facts = Facts::read(EntityKind::Routes, &bytes).expect("a map");
    assert!(facts.tags().is_err());
}

#[test]
fn an_entity_has_one_index_entry_for_each_indexed_value() {
    plugins::install();
    let (id, consumer) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let mut entity = Object::new();
    entity.push("consumer", reference(consumer));
    entity.push("group", "g".into());
    entity.push("tags", vec!["t".into()].into());
    let bytes = codec::encode(&entity);
    let facts = Facts::read(plugins::kinds::ACLS, &bytes).expect("an entity");
    let mut tables = Vec::new();
    let mut key = Vec::new();
    facts
        .index_entries(plugins::kinds::ACLS, id, &mut key, |table, key, value| {
            assert!(key.len() <= 511);
            if table == IndexTable::Unique {
                assert_eq!(value, id.as_bytes());
            }
            tables.push(table);
        })
        .expect("an entity");
    use IndexTable::{Children, KindTags, Tags, Unique};
    assert_eq!(tables, [Unique, Children, Tags, KindTags]);
}

#[test]
fn the_longest_keys_fit() {
    plugins::install();
    let mut key = Vec::new();
    let text = "x".repeat(keys::MAX_TEXT);
    for kind in EntityKind::all() {
        for field in &crate::rules::of(kind).fields {
            keys::unique(&mut key, kind, field, text.as_bytes());
            assert!(key.len() + 16 <= 511, "{} {field}", kind.name());
        }
    }
    keys::tag(&mut key, &text);
    assert!(key.len() + keys::ENTITY_KEY_LENGTH <= 511);
}
