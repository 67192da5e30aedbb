use super::*;
use model::Value as Json;
use std::fs;

const SHOP: &str = r#"
    syntax = "proto3";
    package shop;
    import "google/protobuf/timestamp.proto";
    import public "more/other.proto";
    service Shop { rpc Put(Item) returns (stream Item); }
    enum Kind { UNKNOWN = 0; BOOK = 1; TOY = 2; }
    message Nested { string key = 1; int64 num = 2; Nested inner = 3; }
    message Item {
        string id = 1; double price = 2; repeated string tags = 3; Kind kind = 4; Nested nested = 5; bytes data = 6;
        bool ok = 7; uint64 big = 8; map<string, int32> stock = 9; google.protobuf.Timestamp at = 10;
        optional int32 depth = 11; oneof choice { string left_hand = 12; int32 right = 13; } float ratio = 14;
    }
"#;

const OTHER: &str = r#"
    syntax = "proto3";
    message Empty {}
    service Bare { rpc Ping(Empty) returns (Empty); }
"#;

fn services(shop: &str) -> Result<Services, ProtoError> {
    let directory = tempfile::tempdir().expect("a directory");
    fs::create_dir(directory.path().join("more")).expect("a directory");
    let file = directory.path().join("shop.proto");
    fs::write(&file, shop).expect("written");
    fs::write(directory.path().join("more/other.proto"), OTHER).expect("written");
    Services::compile(file.to_str().expect("a path in UTF-8"))
}

fn item() -> MessageDescriptor {
    let services = services(SHOP).expect("it compiles");
    let method = services
        .method("/shop.Shop/Put")
        .expect("the method is there");
    method.input.clone()
}

fn round_trip(json: &str) -> Result<String, JsonError> {
    let item = item();
    let json: Json = serde_json::from_str(json).expect("JSON");
    let message = from_json(&item, &json)?;
    let text = to_json(&item, &message, usize::MAX)?;
    Ok(String::from_utf8(text).expect("a text"))
}

#[test]
fn methods_are_found_by_path_also_those_of_public_imports() {
    let services = services(SHOP).expect("it compiles");
    let method = services.method("/shop.Shop/Put").expect("it is there");
    assert_eq!(method.output.full_name(), "shop.Item");
    assert!(services.method("/Bare/Ping").is_some());
    assert!(services.method("/shop.Shop/Get").is_none());
}

#[test]
fn errors_name_the_file_and_the_import() {
    let missing = Services::compile("/nonexistent.proto").expect_err("it is missing");
    assert!(
        missing.to_string().starts_with("/nonexistent.proto: "),
        "{missing}"
    );
    let broken = services("syntax = \"proto3\"; import \"none.proto\";").expect_err("no import");
    assert!(broken.to_string().contains("none.proto"), "{broken}");
    let invalid = services("syntax = \"proto3\"; message {").expect_err("no name");
    assert!(invalid.to_string().contains("shop.proto"), "{invalid}");
}

#[test]
fn an_empty_message_has_all_fields_without_presence() {
    assert_eq!(
        round_trip("{}").as_deref(),
        Ok(
            r#"{"id":"","price":0,"tags":[],"kind":"UNKNOWN","data":"","ok":false,"big":0,"stock":{},"ratio":0}"#
        )
    );
}

#[test]
fn all_types_make_the_way_to_a_message_and_back() {
    let json = concat!(
        r#"{"id":"5","price":1.5,"tags":["a","b"],"kind":"TOY","nested":{"key":"k","num":-7},"data":"x\u0000é\"","#,
        r#""ok":true,"big":9007199254740993,"stock":{"a":1,"b":-2},"at":"2021-02-03T04:05:06.5Z","depth":0,"#,
        r#""left_hand":"","ratio":0.1}"#
    );
    assert_eq!(round_trip(json).as_deref(), Ok(json));
}

#[test]
fn json_may_be_looser_than_what_is_written() {
    let json = concat!(
        r#"{"id":5,"kind":2,"big":"18446744073709551615","leftHand":"l","unknown":[1],"price":"2.5","tags":null,"#,
        r#""ok":"true","depth":3.0,"at":"2021-02-03T04:05:06"}"#
    );
    assert_eq!(
        round_trip(json).as_deref(),
        Ok(concat!(
            r#"{"id":"5","price":2.5,"tags":[],"kind":"TOY","data":"","ok":true,"big":18446744073709551615,"stock":{},"#,
            r#""at":"2021-02-03T04:05:06Z","depth":3,"left_hand":"l","ratio":0}"#
        ))
    );
}

#[test]
fn a_value_that_does_not_fit_is_an_error_with_its_path() {
    for (json, error) in [
        ("[]", "shop.Item: expected an object"),
        (r#"{"depth":"abc"}"#, "depth: expected an integer"),
        (
            r#"{"depth":3000000000}"#,
            "depth: the integer is out of range",
        ),
        (r#"{"big":-1}"#, "big: the integer is out of range"),
        (r#"{"depth":1.5}"#, "depth: expected an integer"),
        (
            r#"{"nested":{"inner":{"num":[]}}}"#,
            "nested.inner.num: expected an integer",
        ),
        (r#"{"tags":"a"}"#, "tags: expected an array"),
        (r#"{"stock":{"a":"x"}}"#, "stock.a: expected an integer"),
        (r#"{"kind":"CAR"}"#, "kind: unknown value of shop.Kind"),
        (r#"{"ok":1}"#, "ok: expected a boolean"),
        (r#"{"id":{}}"#, "id: expected a string"),
        (
            r#"{"at":"yesterday"}"#,
            "at: expected a time such as 2006-01-02T15:04:05Z",
        ),
    ] {
        let found = round_trip(json).expect_err(json);
        assert_eq!(found.to_string(), error, "{json}");
    }
}

#[test]
fn any_bytes_are_decoded_or_refused_without_a_panic() {
    let item = item();
    let mut random = fastrand::Rng::with_seed(0x5eed);
    for _ in 0..20_000 {
        let mut bytes = vec![0; random.usize(..40)];
        random.fill(&mut bytes);
        std::hint::black_box(to_json(&item, &bytes, usize::MAX).is_ok());
    }
    // Messages within messages are refused by their depth.
    let mut nested = Vec::new();
    for _ in 0..200 {
        let mut outer = vec![0x1a];
        prost::encoding::encode_varint(nested.len() as u64, &mut outer);
        outer.append(&mut nested);
        nested = outer;
    }
    let mut deep = vec![0x2a];
    prost::encoding::encode_varint(nested.len() as u64, &mut deep);
    deep.append(&mut nested);
    assert_eq!(
        to_json(&item, &deep, usize::MAX),
        Err(JsonError::Decode("shop.Item".to_owned()))
    );
}

#[test]
fn a_message_that_becomes_too_large_is_refused() {
    const BASE: &str = r#"
        syntax = "proto3";
        message All { repeated One all = 1; }
        message One { string a_name_of_some_length = 1; string another_name = 2; }
        service S { rpc Call(All) returns (All); }
    "#;
    let services = services(BASE).expect("it compiles");
    let all = services
        .method("/S/Call")
        .expect("it is there")
        .input
        .clone();
    let empty = [10, 0].repeat(1000);
    let size = to_json(&all, &empty, usize::MAX)
        .expect("it has no limit")
        .len();
    assert!(size > 20 * empty.len());
    assert!(to_json(&all, &empty, size).is_ok());
    assert_eq!(
        to_json(&all, &empty, size - 1),
        Err(JsonError::TooLarge(size - 1))
    );
    assert_eq!(to_json(&all, &empty, 0), Err(JsonError::TooLarge(0)));
}

#[test]
fn a_path_that_is_no_file_is_refused() {
    for path in ["/dev/zero", "/"] {
        let error = Services::compile(path).expect_err("it is no file");
        assert!(error.to_string().contains("not a file"), "{error}");
    }
}
