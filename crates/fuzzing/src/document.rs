//! Declarative configurations: every document is loaded completely or refused with errors.

use model::declarative::{
    Document, Format, Loader, Nothing, Options, Source, format_cli_errors, parse,
};
use model::schema::{Context, Registry, RouterFlavor};
use model::{EntityKind, Object, codec};
use std::time::Duration;

/// Checks a document. The first byte of the input chooses the format and the form of errors. The rest is the document.
pub fn document(data: &[u8]) {
    let Some((&first, text)) = data.split_first() else {
        return;
    };
    let registry = plugins::install();
    let format = match first % 3 {
        0 => Format::Json,
        1 => Format::Yaml,
        _ => Format::Auto,
    };
    let options = Options {
        context: Context::at(Duration::from_secs(1_700_000_000)),
        flatten_errors: first & 4 != 0,
    };
    let load = |source| Loader::new().load(source, &options, &Nothing, 0);
    let loaded = load(Source::Text(text, format));
    match &loaded {
        Ok(document) => readable(registry, document),
        Err(error) => {
            assert!(
                !format_cli_errors(error, text, format, options.context.flavor).is_empty(),
                "an error must have a message"
            );
        }
    }
    let Ok(object) = parse(text, format) else {
        assert!(loaded.is_err(), "a text that cannot be parsed was loaded");
        return;
    };
    let whole = load(Source::Object(object));
    assert_eq!(
        loaded.as_ref().ok().map(kinds),
        whole.as_ref().ok().map(kinds),
        "loading the text and loading the parsed object give different entities"
    );
}

fn kinds(document: &Document) -> Vec<EntityKind> {
    let mut kinds: Vec<_> = document.puts.iter().map(|put| put.kind).collect();
    kinds.sort_unstable();
    kinds
}

/// Checks that every entity to be written can be decoded and shown as JSON.
fn readable(registry: &Registry, document: &Document) {
    for put in &document.puts {
        let entity: Object = codec::decode(&put.entity).expect("encoded bytes can be decoded");
        let schema = registry.entity(put.kind);
        let mut shown = Vec::new();
        schema.write_json(&entity, &mut shown);
        assert!(serde_json::from_slice::<Object>(&shown).is_ok());
        let mut stored = Vec::new();
        schema
            .write_stored_json(&put.entity, RouterFlavor::default(), &mut stored)
            .expect("encoded bytes can be shown as JSON");
        assert!(serde_json::from_slice::<Object>(&stored).is_ok());
    }
}
