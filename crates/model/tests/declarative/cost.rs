//! The cost of loading a document is linear in its length, whatever its shape.

use crate::running::{Running, options};
use model::declarative::{
    ExportFormat, Format, Loader, Nothing, Options, Source, format_cli_errors, parse,
};
use model::schema::RouterFlavor;
use serde_json::{Value as Json, json};

/// The beginning of a document, a piece that is repeated, and the end. `#` in the piece is replaced by the
/// number of the repetition.
type Shape = (&'static str, &'static str, &'static str);

fn written(shapes: &[Shape], size: usize) -> Vec<Vec<u8>> {
    let write = |(begin, again, end): &Shape| {
        let separator = if begin.starts_with('{') { "," } else { "" };
        let middle: String = (0..size)
            .map(|number| separator.to_owned() + &again.replace('#', &number.to_string()))
            .collect();
        format!("{begin}{middle}{end}").into_bytes()
    };
    shapes.iter().map(write).collect()
}

fn load_all(texts: &[Vec<u8>], format: Format) {
    for text in texts {
        for flatten_errors in [false, true] {
            let options = Options {
                flatten_errors,
                ..options(1)
            };
            let _ = Loader::new().load(Source::Text(text, format), &options, &Nothing, 0);
        }
    }
}

#[test]
fn a_json_document_costs_as_much_as_it_has_fields() {
    let shapes: [Shape; 7] = [
        // Unknown collections, unknown fields, repeated fields.
        (r#"{"_format_version":"3.0""#, r#""unknown#":[]"#, "}"),
        (
            r#"{"_format_version":"3.0","services":[{"name":"s""#,
            r#""unknown#":1"#,
            "}]}",
        ),
        (
            r#"{"_format_version":"3.0","services":[{"name":"s""#,
            r#""host":"h#""#,
            "}]}",
        ),
        // Entries of a map, once and twice.
        (
            r#"{"_format_version":"3.0","routes":[{"paths":["/"],"headers":{"x":["a"]"#,
            r##""x-#":["a"]"##,
            "}}]}",
        ),
        (
            r#"{"_format_version":"3.0","routes":[{"paths":["/"],"headers":{"x":["a"]"#,
            r##""x-#":["a"],"x-#":["b"]"##,
            "}}]}",
        ),
        // Valid and invalid elements of one field.
        (
            r#"{"_format_version":"3.0","services":[{"name":"s","host":"h","tags":["t""#,
            r#""t#""#,
            "]}]}",
        ),
        (
            r#"{"_format_version":"3.0","services":[{"name":"s","host":"h","tags":["t""#,
            "1",
            "]}]}",
        ),
    ];
    testkit::cost::assert_linear(
        1000,
        |size| written(&shapes, size),
        |texts: Vec<Vec<u8>>| load_all(&texts, Format::Json),
    );
}

#[test]
fn a_json_document_costs_as_much_as_it_has_entities() {
    let shapes: [Shape; 4] = [
        // Valid entities, entities of equal name, dangling references, nested entities.
        (
            r#"{"_format_version":"3.0","consumers":[{"username":"c"}"#,
            r#"{"username":"c#"}"#,
            "]}",
        ),
        (
            r#"{"_format_version":"3.0","consumers":[{"username":"c"}"#,
            r#"{"username":"c"}"#,
            "]}",
        ),
        (
            r#"{"_format_version":"3.0","routes":[{"paths":["/"]}"#,
            r#"{"paths":["/"],"service":"s#"}"#,
            "]}",
        ),
        (
            r#"{"_format_version":"3.0","services":[{"name":"s","host":"h","routes":[{"name":"r"}"#,
            r#"{"name":"r#","paths":["/#"]}"#,
            "]}]}",
        ),
    ];
    testkit::cost::assert_linear(
        150,
        |size| written(&shapes, size),
        |texts: Vec<Vec<u8>>| load_all(&texts, Format::Json),
    );
}

#[test]
fn an_export_costs_as_much_as_its_entities_have_values() {
    let set_up = |size: usize| {
        let headers: serde_json::Map<String, Json> = (0..size)
            .map(|number| (format!("x-{number}"), json!(["a"])))
            .collect();
        let mut running = Running::default();
        let route = json!({"paths": ["/"], "headers": headers});
        let document = json!({"_format_version": "3.0", "routes": [route]});
        running.merge(&document, 1).expect("accepted");
        running
    };
    testkit::cost::assert_linear(1000, set_up, |running: Running| {
        for format in [ExportFormat::Yaml, ExportFormat::Json] {
            running.export(format);
        }
    });
}

#[test]
fn a_yaml_document_costs_as_much_as_it_is_long() {
    let shapes: [Shape; 8] = [
        (
            "_format_version: '3.0'\nconsumers:\n",
            "- username: c#\n",
            "",
        ),
        ("_format_version: '3.0'\n", "u#: 1\n", ""),
        ("_format_version: '3.0'\nx: [", "[", ""),
        ("_format_version: '3.0'\nx: ", "- ", ""),
        ("_format_version: '3.0'\nx:\n", "- &a# b\n- *a#\n", ""),
        ("_format_version: '3.0'\nx: \"", "\\n\n ", "\""),
        ("_format_version: '3.0'\nx: |\n", "  a\n\n", ""),
        ("", "# a comment\n", ""),
    ];
    testkit::cost::assert_linear(
        200,
        |size| written(&shapes, size),
        |texts: Vec<Vec<u8>>| load_all(&texts, Format::Yaml),
    );
}

#[test]
fn repeated_yaml_keys_cost_as_much_as_others() {
    let shape: Shape = ("", "u#: 1\nu#: 2\n", "");
    testkit::cost::assert_linear(
        2000,
        |size| written(&[shape], size).remove(0),
        |text: Vec<u8>| drop(parse(&text, Format::Yaml).expect("a document")),
    );
}

/// A listing needs another pass over the text, which finds the lines of entities with errors and of repeated names.
#[test]
fn a_listing_costs_as_much_as_its_document_is_long() {
    let yaml: [Shape; 6] = [
        (
            "_format_version: '3.0'\nconsumers:\n- 1\n",
            "- username: c#\n",
            "",
        ),
        (
            "_format_version: '3.0'\nconsumers:\n- 1\n",
            "- username: c\n",
            "",
        ),
        (
            "_format_version: '3.0'\nconsumers:\n",
            "- usernme: c\n  usernme: c\n",
            "",
        ),
        (
            "_format_version: '3.0'\nservices:\n- x#: 1\n",
            "  x#: 1\n",
            "",
        ),
        (
            "_format_version: '3.0'\nservices:\n- host: h\n",
            "  host: h\n",
            "",
        ),
        (
            "_format_version: '3.0'\nservices:\n- name: s\n  routes:\n",
            "  - service: s#\n    name: r#\n",
            "",
        ),
    ];
    let json: [Shape; 3] = [
        (
            r#"{"_format_version":"3.0","consumers":[{}"#,
            "{\"username\":\n\"c#\"}",
            "]}",
        ),
        (
            r#"{"_format_version":"3.0","routes":[{"paths":["/"]}"#,
            r#"{"name":"r#","paths":["/"],"service":"s#"}"#,
            "]}",
        ),
        (
            r#"{"_format_version":"3.0","services":[{"name":"s""#,
            r#""host":"h""#,
            "}]}",
        ),
    ];
    testkit::cost::assert_linear(
        200,
        |size| [written(&yaml, size), written(&json, size)],
        |[yaml, json]: [Vec<Vec<u8>>; 2]| {
            list_all(&yaml, Format::Yaml);
            list_all(&json, Format::Json);
        },
    );
}

fn list_all(texts: &[Vec<u8>], format: Format) {
    for text in texts {
        let loaded = Loader::new().load(Source::Text(text, format), &options(1), &Nothing, 0);
        if let Err(error) = loaded {
            format_cli_errors(&error, text, format, RouterFlavor::default());
        }
    }
}
