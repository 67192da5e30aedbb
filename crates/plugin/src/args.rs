//! Parses query strings and forms (`application/x-www-form-urlencoded`) as OpenResty does under Kong, and encodes them
//! again.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use std::borrow::Cow;

/// Maximum number of arguments that [`parse`] returns. It is the default of `lua_max_uri_args` and `lua_max_post_args`
/// in Kong.
pub const MAX_ARGS: usize = 100;

/// A decoded argument. The argument `a` has no value, and `a=` has an empty one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arg<'a> {
    pub name: Cow<'a, [u8]>,
    pub value: Option<Cow<'a, [u8]>>,
}

/// Returns the first [`MAX_ARGS`] arguments in order. Arguments without a name are left out.
pub fn parse(text: &[u8]) -> impl Iterator<Item = Arg<'_>> {
    parse_all(text).take(MAX_ARGS)
}

/// Returns all arguments in order. Plugins that encode them again need all, so that none is lost.
pub fn parse_all(text: &[u8]) -> impl Iterator<Item = Arg<'_>> {
    text.split(|&byte| byte == b'&').filter_map(|piece| {
        let (name, value) = match memchr::memchr(b'=', piece) {
            Some(at) => (&piece[..at], Some(decode(&piece[at + 1..]))),
            None => (piece, None),
        };
        (!name.is_empty()).then(|| Arg {
            name: decode(name),
            value,
        })
    })
}

/// Removes all arguments with this name, also after the first [`MAX_ARGS`]. The others keep their order. They are
/// decoded and encoded again.
pub fn without(text: &[u8], name: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for arg in parse_all(text).filter(|arg| *arg.name != *name) {
        write(&mut out, &arg.name, arg.value.as_deref());
    }
    out
}

/// Appends `name=value`, or `name` if there is no value, in encoded form. If `out` is not empty, `&` comes first.
pub fn write(out: &mut String, name: &[u8], value: Option<&[u8]>) {
    if !out.is_empty() {
        out.push('&');
    }
    encode(out, name);
    if let Some(value) = value {
        out.push('=');
        encode(out, value);
    }
}

/// Decodes percent-encoding, and `+` to a space. A `%` stays as it is if two hex digits do not follow.
fn decode(text: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr2(b'%', b'+', text).is_none() {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        match (text[at], text.get(at + 1..at + 3).and_then(hex_byte)) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 2;
            }
            (b'+', _) => out.push(b' '),
            (byte, _) => out.push(byte),
        }
        at += 1;
    }
    Cow::Owned(out)
}

fn hex_byte(digits: &[u8]) -> Option<u8> {
    let high = char::from(digits[0]).to_digit(16)?;
    let low = char::from(digits[1]).to_digit(16)?;
    u8::try_from(high << 4 | low).ok()
}

/// The characters to encode, as in OpenResty: all except the unreserved ones of RFC 3986 and `!'()*`. A space becomes
/// `%20` and not `+`.
const RESERVED: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'!')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*');

/// The characters of a path to encode: those that a request target cannot have. Text that is encoded already stays as it
/// is.
const NOT_IN_PATH: AsciiSet = NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b'/')
    .remove(b':')
    .remove(b';')
    .remove(b'=')
    .remove(b'?')
    .remove(b'@')
    .remove(b'[')
    .remove(b']')
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'%');

/// Encodes a path for the upstream, as `kong.service.request.set_path` does. A `?` stays, so that the text may contain
/// a query; a `#` is encoded, because no server accepts it.
pub fn escape_path(path: &[u8]) -> String {
    percent_encode(path, &NOT_IN_PATH).to_string()
}

fn encode(out: &mut String, text: &[u8]) {
    out.extend(percent_encode(text, &RESERVED));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Vec<(String, Option<String>)> {
        let owned = |bytes: Cow<'_, [u8]>| String::from_utf8_lossy(&bytes).into_owned();
        parse(text.as_bytes())
            .map(|arg| (owned(arg.name), arg.value.map(owned)))
            .collect()
    }

    fn pair(name: &str, value: Option<&str>) -> (String, Option<String>) {
        (name.to_owned(), value.map(str::to_owned))
    }

    #[test]
    fn a_bare_name_differs_from_an_empty_value() {
        assert_eq!(
            parsed("a&b=&c=d=e"),
            [pair("a", None), pair("b", Some("")), pair("c", Some("d=e"))]
        );
    }

    #[test]
    fn pieces_without_a_name_are_left_out() {
        assert_eq!(parsed("&&=x&a=1&"), [pair("a", Some("1"))]);
    }

    #[test]
    fn names_and_values_are_decoded_and_broken_escapes_stay() {
        assert_eq!(parsed("a%62+c=%zz%4"), [pair("ab c", Some("%zz%4"))]);
    }

    #[test]
    fn only_the_first_hundred_are_looked_at() {
        let text: Vec<String> = (0..150).map(|number| format!("a{number}=1")).collect();
        assert_eq!(parsed(&text.join("&")).len(), MAX_ARGS);
    }

    #[test]
    fn the_rest_keeps_its_order_and_is_written_from_its_decoded_form() {
        assert_eq!(without(b"c=valu%651&api%6B%65%79=k", b"apikey"), "c=value1");
        assert_eq!(
            without(b"z=1&k=2&a&k&b=&c=a+b%2Fc", b"k"),
            "z=1&a&b=&c=a%20b%2Fc"
        );
        assert_eq!(without(b"k=1", b"k"), "");
        assert_eq!(without(b"$(x)=*!'[]", b"k"), "%24(x)=*!'%5B%5D");
    }

    #[test]
    fn a_path_is_encoded_where_it_must_be() {
        assert_eq!(
            escape_path("/t\u{e9}st a%2Fb/%zz#\"?x=[1]&y=\r\n".as_bytes()),
            "/t%C3%A9st%20a%2Fb/%zz%23%22?x=[1]&y=%0D%0A"
        );
    }

    #[test]
    fn a_query_costs_as_much_as_it_is_long() {
        let shapes = ["a=b&", "a&", "&", "=", "%", "%41+", "a=%zz", "k=1&"];
        testkit::cost::assert_linear(
            2000,
            |size| shapes.map(|shape| shape.repeat(size)),
            |queries: [String; 8]| {
                for query in &queries {
                    let count = parse(query.as_bytes()).count();
                    std::hint::black_box((count, without(query.as_bytes(), b"k")));
                }
            },
        );
    }
}
