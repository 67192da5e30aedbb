//! Tests of what a header says, and of distinguished names.

use super::super::given::{distinguished_name, parse};
use data_encoding::{BASE64, BASE64_NOPAD};
use proptest::prelude::*;

fn parsed(value: &str, scheme: &str) -> Option<(String, String)> {
    let given = parse(value.as_bytes(), scheme)?;
    let password = String::from_utf8(given.password).expect("a password in UTF-8");
    Some((given.username, password))
}

fn header(decoded: &[u8]) -> String {
    format!("ldap {}", BASE64.encode(decoded))
}

#[test]
fn a_header_has_a_scheme_a_username_and_a_password() {
    let nora = Some(("nora".to_owned(), "nora-pw".to_owned()));
    for (value, scheme, wanted) in [
        ("ldap bm9yYTpub3JhLXB3", "ldap", &nora),
        ("LdaP\t bm9yYTpub3JhLXB3", "ldap", &nora),
        ("\t ldap bm9yYTpub3JhLXB3", "LDAP", &nora),
        ("ldap bm9yYTpub3JhLXB3==ignored", "ldap", &nora),
        ("Basic bm9yYTpub3JhLXB3", "basic", &nora),
        ("Basic bm9yYTpub3JhLXB3", "ldap", &None),
        ("xldap bm9yYTpub3JhLXB3", "ldap", &None),
        ("ldapbm9yYTpub3JhLXB3", "ldap", &None),
        ("ldap", "ldap", &None),
        ("ldap ", "ldap", &None),
        ("", "ldap", &None),
        ("ldap bm9yYTpub3JhLXB3 x", "ldap", &None),
        ("ldap ????", "ldap", &None),
        // A scheme is a text, not a pattern.
        ("ldap bm9yYTpub3JhLXB3", "l.ap", &None),
    ] {
        assert_eq!(&parsed(value, scheme), wanted, "{value:?}");
    }
}

#[test]
fn the_first_colon_ends_the_username() {
    for (decoded, wanted) in [
        (&b"otto:pa:ss:wd"[..], Some(("otto", "pa:ss:wd"))),
        (b"otto::", Some(("otto", ":"))),
        (
            "lena:p\u{e4}ss\u{20ac}".as_bytes(),
            Some(("lena", "p\u{e4}ss\u{20ac}")),
        ),
        ("\u{e4}:pw".as_bytes(), Some(("\u{e4}", "pw"))),
        (b"otto:", None),
        (b"otto", None),
        (b":pw", None),
        (b":", None),
        (b"", None),
        (b"ot\r\nto:pw", None),
        (b"ot\0to:pw", None),
        (b"ot\xffto:pw", None),
    ] {
        let wanted = wanted.map(|(name, password)| (name.to_owned(), password.to_owned()));
        assert_eq!(parsed(&header(decoded), "ldap"), wanted, "{decoded:?}");
    }
}

#[test]
fn a_username_cannot_lead_to_another_place() {
    let name = |username| distinguished_name("uid", username, "dc=x");
    for (username, wanted) in [
        ("nora", "uid=nora,dc=x"),
        ("x,ou=admins", "uid=x\\,ou\\=admins,dc=x"),
        ("x+cn=root", "uid=x\\+cn\\=root,dc=x"),
        ("#04024869", "uid=\\#04024869,dc=x"),
        ("a#b", "uid=a#b,dc=x"),
        (" a b ", "uid=\\ a b\\ ,dc=x"),
        (" ", "uid=\\ ,dc=x"),
        ("a\\,b", "uid=a\\\\\\,b,dc=x"),
        ("\"<;>\"", "uid=\\\"\\<\\;\\>\\\",dc=x"),
        ("M\u{fc}ller", "uid=M\u{fc}ller,dc=x"),
        ("\0", "uid=\\00,dc=x"),
    ] {
        assert_eq!(name(username), wanted);
    }
}

/// Reads a value of RFC 4514 up to the character that ends it. Returns the value and the rest.
fn unescaped(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some((_, '0')) => {
                    assert_eq!(characters.next().map(|(_, digit)| digit), Some('0'));
                    value.push('\0');
                }
                Some((_, special)) => value.push(special),
                None => panic!("an escape without a character: {text:?}"),
            },
            ',' | '+' | ';' | '=' | '"' | '<' | '>' => return (value, &text[at..]),
            _ => value.push(character),
        }
    }
    (value, "")
}

proptest! {
    #[test]
    fn any_header_is_parsed_without_a_panic(value in proptest::collection::vec(any::<u8>(), 0..80)) {
        if let Some(given) = parse(&value, "ldap") {
            prop_assert!(!given.username.is_empty() && !given.password.is_empty());
        }
        let _ = parse(&[&b"ldap "[..], &value].concat(), "ldap");
    }

    #[test]
    fn any_credentials_come_back(
        username in "[^:\\p{Cc}]{1,20}",
        password in proptest::collection::vec(any::<u8>(), 1..20),
        blanks in "[ \t]{1,3}",
        pads: bool,
    ) {
        let decoded = [username.as_bytes(), b":", &password].concat();
        let encoding = if pads { BASE64 } else { BASE64_NOPAD };
        let value = format!("{blanks}lDaP{blanks}{}", encoding.encode(&decoded));
        let given = parse(value.as_bytes(), "ldap").expect("credentials");
        prop_assert_eq!(given.username, username);
        prop_assert_eq!(given.password, password);
    }

    #[test]
    fn any_decoded_text_gives_a_username_that_can_be_a_header(decoded in proptest::collection::vec(any::<u8>(), 0..20)) {
        if let Some(given) = parse(header(&decoded).as_bytes(), "ldap") {
            prop_assert!(!given.username.chars().any(char::is_control));
            let joined = [given.username.as_bytes(), b":", &given.password].concat();
            prop_assert_eq!(joined, decoded);
        }
    }

    #[test]
    fn any_username_is_one_value_of_the_name(username in "[ #,+\"\\\\<>;=\0a-c\u{e4}]{0,12}") {
        let name = distinguished_name("uid", &username, "ou=p,dc=x");
        let value = name.strip_prefix("uid=").expect("the attribute");
        let (value, rest) = unescaped(value);
        prop_assert_eq!(value, username);
        prop_assert_eq!(rest, ",ou=p,dc=x");
    }
}
