//! The table as a whole.

use super::*;

#[test]
fn the_table_is_in_execution_order() {
    let sorted =
        BUNDLED.is_sorted_by(|one, two| (one.priority, one.name) > (two.priority, two.name));
    assert!(sorted);
}

#[test]
fn the_table_is_the_registry_of_schemas() {
    let registry = model::schema::registry();
    let schemas: Vec<(&str, i32)> = registry
        .plugins()
        .map(|schema| (schema.name, schema.priority))
        .collect();
    let table: Vec<(&str, i32)> = BUNDLED.iter().map(|def| (def.name, def.priority)).collect();
    assert_eq!(table, schemas);
}
