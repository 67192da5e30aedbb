use super::super::testing::{compile, no_lua};
use super::*;
use model::{Object, Value};

struct Request {
    shared: Object,
}

fn text(value: &str) -> Item<'_> {
    Item::Text(Cow::Borrowed(value.as_bytes()))
}

impl Environment for Request {
    fn header(&self, name: &str) -> Item<'_> {
        match &*name.to_ascii_lowercase().replace('_', "-") {
            "x-in" => text("inval"),
            "x-rep" => Item::List(vec![text("1"), text("2")]),
            "host" => text("lua.test"),
            _ => Item::Nil,
        }
    }

    fn query_param(&self, name: &str) -> Item<'_> {
        match name {
            "a" => text("1"),
            "b" => Item::List(vec![text("x"), Item::Bool(true)]),
            "flag" => Item::Bool(true),
            _ => Item::Nil,
        }
    }

    fn capture(&self, key: &Key) -> Item<'_> {
        match key {
            Key::Number(0) => text("/u/42"),
            Key::Number(1) => text("42"),
            Key::Name(name) if name == "id" => text("42"),
            _ => Item::Nil,
        }
    }

    fn shared(&self, name: &str) -> Item<'_> {
        self.shared.get(name).map_or(Item::Nil, Item::from)
    }

    fn has_lua_shared(&self) -> bool {
        false
    }

    fn render_lua(&self, _: &LuaCode) -> Result<Vec<u8>, RenderError> {
        Err(no_lua())
    }
}

fn request() -> Request {
    let shared = serde_json::from_str(
        r#"{"ver": "1.2", "deep": {"n": 3, "big": 1e20, "list": ["p", false]}, "off": false}"#,
    );
    let Ok(Value::Object(shared)) = shared else {
        panic!("the shared values are an object");
    };
    Request { shared }
}

fn render(template: &str) -> Result<String, RenderError> {
    let compiled = compile(template);
    let request = request();
    let rendered = compiled.render(&request)?;
    Ok(String::from_utf8(rendered.into_owned()).expect("a text"))
}

#[test]
fn look_ups_literals_and_chains_are_rendered_as_lua_does() {
    for (template, wanted) in [
        ("plain", "plain"),
        ("a:b:$(query_params.a):c", "a:b:1:c"),
        ("#x $(query_params.a)", "#x 1"),
        ("$(query_params.a)$(headers.host)", "1lua.test"),
        ("$(headers['x-in'])", "inval"),
        ("$(headers[\"X-In\"])", "inval"),
        ("$( headers . x_in )", "inval"),
        ("$(headers['none'])", ""),
        ("$(headers['x-rep'][2])", "2"),
        ("$(query_params.b[1])", "x"),
        ("$(query_params.b[2])", "true"),
        ("$(query_params.b[3])", ""),
        ("$(query_params.flag)", "true"),
        ("$(uri_captures['id'])", "42"),
        ("$(uri_captures.id)", "42"),
        ("$(uri_captures[1])", "42"),
        ("$(uri_captures[0])", "/u/42"),
        ("$(uri_captures[2] or uri_captures[1])", "42"),
        ("$(shared.ver)", "1.2"),
        ("$(shared.deep.n)", "3"),
        ("$(shared.deep.big)", "1e+20"),
        ("$(shared.deep['list'][1])", "p"),
        ("$(shared.deep.list[2])", ""),
        ("$(shared.off or 'none')", "none"),
        ("$(nil)", ""),
        ("$(false)", ""),
        ("$(true)", "true"),
        ("$(nil or false)", ""),
        ("$(query_params.none or 'dflt')", "dflt"),
        ("$(query_params.none or headers.none or 3)", "3"),
        ("$(query_params.a and headers.x_in or 'no')", "inval"),
        ("$(query_params.z and headers.x_in or 'no')", "no"),
        ("$((nil or 'a') and 'b')", "b"),
        ("$(uri_captures and 'yes')", "yes"),
        ("$('$(uri_captures.uid)')", "$(uri_captures.uid)"),
        ("$('a\\tb\\065\\x42\\'')", "a\tbAB'"),
        ("$(0x10) $(1.50) $(.5) $(1e3)", "16 1.5 0.5 1000"),
        ("$((", "$(("),
        ("$((a $(query_params.a)", "$((a 1"),
        (
            "$ (query_params.a) $$(query_params.a)",
            "$ (query_params.a) $1",
        ),
        (")$(query_params.a)(", ")1("),
    ] {
        assert_eq!(render(template).as_deref(), Ok(wanted), "{template}");
    }
}

#[test]
fn a_value_that_has_no_text_is_an_error() {
    for (template, error) in [
        ("$(headers['x-rep'])", no_lua()),
        ("x $(query_params)", no_lua()),
        ("$(shared.deep)", no_lua()),
        ("$(shared.none.x)", RenderError::Index("nil")),
        ("$(query_params.flag.x)", RenderError::Index("boolean")),
        ("$(shared.deep.n.x)", RenderError::Index("number")),
        ("$(headers.host.len)", no_lua()),
        ("$()", no_lua()),
        ("x$( )", no_lua()),
    ] {
        assert_eq!(render(template), Err(error), "{template}");
    }
}

#[test]
fn other_expressions_are_refused_by_their_text() {
    for expression in [
        "type(headers['x-rep'])",
        "nosuch()",
        "nosuch",
        "('x'):rep(3)",
        "('x').len",
        "10 * uri_captures.uid",
        "1 + 1",
        "-1",
        "not headers.x",
        "headers.x == 'a'",
        "headers.x .. 'a'",
        "headers.x, 1",
        "headers['x'",
        "headers[headers.x]",
        "headers[1.5]",
        "headers.or",
        "headers.x or",
        "or headers.x",
        "headers.x headers.y",
        "#headers.x",
        "[[text]]",
        "{}",
        "'open",
        "'bad \\q'",
        "'\\300'",
        "'\\x+1'",
        "1x",
        "1..2",
        "headers.x -- comment",
        "(function() shared.v = 2 return 1 end)()",
        "headers\u{e9}",
    ] {
        let template = format!("a $({expression})");
        assert!(matches!(compile(&template), Template::Lua(_)), "{template}");
    }
}

#[test]
fn an_expression_is_bounded_in_length_and_depth() {
    let nested = |depth| format!("$({}1{})", "(".repeat(depth), ")".repeat(depth));
    let is_lua = |template: &str| matches!(compile(template), Template::Lua(_));
    assert!(!is_lua(&nested(MAX_DEPTH)));
    assert!(is_lua(&nested(MAX_DEPTH + 1)));
    let long = format!("$('{}')", "x".repeat(MAX_EXPRESSION));
    assert!(is_lua(&long));
}

#[test]
fn a_value_with_an_expression_fails_where_expressions_are_off() {
    let compile = |template| Template::compile(template, Expressions::Off);
    let request = request();
    for template in ["$(query_params.a)", "$((x)", "a$(b c)"] {
        assert_eq!(compile(template).render(&request), Err(RenderError::Off));
    }
    for template in ["plain", "$((", ")$(", "(x)$"] {
        let compiled = compile(template);
        assert_eq!(
            compiled.render(&request).as_deref(),
            Ok(template.as_bytes())
        );
    }
}

#[test]
fn any_text_compiles_or_is_refused_without_a_panic() {
    const WORDS: [&str; 24] = [
        "$(",
        ")",
        "(",
        "headers",
        ".",
        "x",
        "[",
        "]",
        "'",
        "\"",
        "1",
        " or ",
        " and ",
        "\\",
        "$",
        "uri_captures",
        "nil",
        "0x",
        "e5",
        "\u{e9}",
        "\n",
        "shared.deep",
        "query_params.b",
        "\\x4",
    ];
    let mut random = fastrand::Rng::with_seed(0x5eed);
    let request = request();
    for _ in 0..20_000 {
        let length = random.usize(1..12);
        let text: String = (0..length)
            .map(|_| WORDS[random.usize(..WORDS.len())])
            .collect();
        for template in [compile(&text), Template::compile(&text, Expressions::Off)] {
            std::hint::black_box(template.render(&request).is_ok());
        }
    }
}

#[test]
fn a_template_costs_as_much_as_it_is_long() {
    testkit::cost::assert_linear(
        2000,
        |size| ["$(", "(", ")", "$", "$(1)", "$('x' or 1)"].map(|shape| shape.repeat(size)),
        |templates: [String; 6]| {
            for template in &templates {
                std::hint::black_box(compile(template));
            }
        },
    );
}
