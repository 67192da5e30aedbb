use super::*;
use crate::testing::{pattern, text};
use testkit::random::{Random, setting};

/// The results of all queries of a regex.
fn answers(regex: &Regex, text: &[u8]) -> (bool, Option<Range<usize>>, Vec<String>) {
    let mut groups = Vec::new();
    regex.captures(text, &mut |group, value| {
        groups.push(format!("{group:?}={}", value.escape_ascii()));
    });
    (regex.is_match(text), regex.find(text), groups)
}

fn of_engine(engine: &Engine, text: &[u8]) -> (bool, Option<Range<usize>>, Vec<String>) {
    let mut groups = Vec::new();
    engine.captures(text, &mut |located| {
        let value = text[located.range].escape_ascii();
        groups.push(format!("{:?}={value}", Group::Number(located.number)));
        let name = located.name.map(Group::Name);
        groups.extend(name.map(|name| format!("{name:?}={value}")));
    });
    let found = engine.search(text).unwrap_or(false);
    (found, engine.find(text), groups)
}

fn has_engine(regex: &Regex) -> bool {
    matches!(regex.0.matcher, Matcher::Engine(_))
}

#[test]
fn a_search_with_too_many_steps_is_no_match_for_routes_and_an_error_for_others() {
    let regex = Regex::new(r"(?=x)x(a|b|ab)*(a+)\2d", Dialect::Pcre).unwrap();
    let text = format!("x{}", "ab".repeat(40));
    assert_eq!(regex.search(text.as_bytes()), Err(TooManySteps));
    assert!(!regex.is_match(text.as_bytes()));
    assert_eq!(regex.search(b"xabaad"), Ok(true));
}

#[test]
fn unicode_properties_work_in_patterns_of_pcre() {
    let regex = Regex::new(r"^\p{Greek}+$", Dialect::Pcre).unwrap();
    assert!(regex.is_match("λ".as_bytes()));
    assert!(!regex.is_match(b"l"));
    assert!(!regex.is_match(b"\xff"));
}

#[test]
fn regexes_on_paths_need_no_engine() {
    for dialect in [Dialect::Rust, Dialect::Pcre] {
        let pattern = r"^/repos/(?<owner>[^/]+)/(?<repo>[^/]+)/issues(?:/(\d+))?$";
        let regex = Regex::new(pattern, dialect).unwrap();
        assert!(regex.has_groups());
        let (found, range, groups) = answers(&regex, b"/repos/me/it/issues/12");
        assert!(found);
        assert_eq!(range, Some(0..22));
        let owner_and_repo = [
            "Number(1)=me",
            "Name(\"owner\")=me",
            "Number(2)=it",
            "Name(\"repo\")=it",
        ];
        assert_eq!(groups[..4], owner_and_repo);
        assert_eq!(groups[4..], ["Number(3)=12"]);
        assert_eq!(answers(&regex, b"/repos/me/it/issues").2, owner_and_repo);
        assert_eq!(answers(&regex, b"/repos/me/issues/12").1, None);
        // Characters beyond ASCII are walked if the class contains all of them.
        let umlaut = Regex::new("^/(?<a>[^/]+)$", dialect).unwrap();
        assert_eq!(answers(&umlaut, "/ä".as_bytes()).1, Some(0..3));
        assert!(!has_engine(&regex) && !has_engine(&umlaut));
    }
}

#[test]
fn classes_of_unicode_are_walked_without_an_engine() {
    for (pattern, found, missed) in [
        (r"^/\d+$", "/٣1", "/é"),
        (r"^/\D+$", "/é", "/٣"),
        (r"^/[\w.-]+$", "/é.٣-a", "/a\u{2003}"),
        (r"^/\W$", "/\u{2003}", "/é"),
        (r"^/[^/\s]{2}$", "/éé", "/a\u{2003}"),
        ("^/[^/]+$", "/é", "//"),
        ("^/.$", "/é", "/\n"),
    ] {
        let regex = Regex::new(pattern, Dialect::Rust).unwrap();
        assert!(!has_engine(&regex), "{pattern}");
        assert!(regex.is_match(found.as_bytes()), "{pattern}");
        assert!(!regex.is_match(missed.as_bytes()), "{pattern}");
        // Bytes that are not valid UTF-8 are in no class.
        assert!(
            !regex.is_match(b"/\xFF") && !regex.is_match(b"/\xC3"),
            "{pattern}"
        );
    }
    let bytes = Regex::new("^/[^/]+$", Dialect::Pcre).unwrap();
    assert!(bytes.is_match(b"/\xFF") && !has_engine(&bytes));
}

#[test]
fn engines_are_made_with_their_regexes() {
    for pattern in ["^/[a-zé]+$", "^/(?i)key", "/x"] {
        let regex = Regex::new(pattern, Dialect::Rust).unwrap();
        assert!(has_engine(&regex), "{pattern}");
    }
}

#[test]
fn patterns_that_may_not_compile_are_compiled_immediately() {
    for pattern in [r"^/\w{200}$", "^/x", "/x", "^/(?:ab)*$"] {
        let regex = Regex::new(pattern, Dialect::Rust).unwrap();
        assert_eq!(has_engine(&regex), pattern != "^/x", "{pattern}");
    }
    assert!(Regex::new(r"^/\w{60000}$", Dialect::Rust).is_err());
    assert!(Regex::new(r"^/(?<n>a)(?<n>b)$", Dialect::Rust).is_err());
    assert!(Regex::new(r"^/(?:)*$", Dialect::Pcre).is_err());
}

/// Compares random patterns and texts. `REGEX_ROUNDS` sets the number of rounds, `REGEX_SEED` the seed.
#[test]
fn answers_without_an_engine_are_the_engines() {
    let mut random = Random::new(setting("REGEX_SEED").unwrap_or(3));
    let rounds = setting("REGEX_ROUNDS").map_or(150, |rounds| rounds as usize);
    let (mut lazy, mut groups) = (0, 0);
    for _ in 0..rounds {
        let dialect = if random.one_in(3) {
            Dialect::Pcre
        } else {
            Dialect::Rust
        };
        let pattern = pattern(&mut random);
        let engine = Engine::new(&pattern, dialect, Limits::USUAL);
        let regex = Regex::new(&pattern, dialect);
        assert_eq!(engine.is_ok(), regex.is_ok(), "{pattern:?} {dialect:?}");
        let (Ok(engine), Ok(regex)) = (engine, regex) else {
            continue;
        };
        assert_eq!(regex.has_groups(), engine.has_groups(), "{regex:?}");
        let Some(parsed) = crate::testing::parsed(&pattern) else {
            continue;
        };
        lazy += usize::from(!has_engine(&regex));
        for _ in 0..8 {
            let text = text(&mut random, &parsed);
            let (own, expected) = (answers(&regex, &text), of_engine(&engine, &text));
            assert_eq!(
                own,
                expected,
                "{regex:?} {dialect:?} {}",
                text.escape_ascii()
            );
            groups += usize::from(!has_engine(&regex) && !own.2.is_empty());
        }
    }
    assert!(lazy * 5 > rounds && groups * 8 > rounds, "{lazy} {groups}");
}

#[test]
fn a_strict_regex_gives_up_early_where_it_needs_backtracking() {
    let hard = Regex::strict(r"(?=x)x(a|b|ab)*(a+)\2d").unwrap();
    assert_eq!(hard.search(b"xaad"), Ok(true));
    assert_eq!(hard.search(b"yaad"), Ok(false));
    let long = [&b"x"[..], &b"ab".repeat(40)].concat();
    assert_eq!(hard.search(&long), Err(TooManySteps));
    let longer = b"y".repeat(5000);
    assert_eq!(hard.search(&longer), Err(TooManySteps));
    let easy = Regex::strict("y+z").unwrap();
    assert_eq!(easy.search(&longer), Ok(false));
}
