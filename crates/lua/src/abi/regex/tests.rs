use super::*;

fn find(pattern: &str, flags: &str, subject: &[u8]) -> Result<Option<(usize, usize)>, String> {
    let regexes = Regexes::default();
    let regex = Regex::new(pattern.as_bytes(), flags.as_bytes(), &regexes.limits)?;
    let data = MatchData::new(16).expect("there is memory");
    match regex.find(subject, 0, &data, &regexes.limits, || false) {
        PCRE2_ERROR_NOMATCH => Ok(None),
        code if code < 0 => Err(code.to_string()),
        _ => {
            // SAFETY: a match has at least one pair.
            let at = unsafe { pcre2_get_ovector_pointer_8(data.data.as_ptr()) };
            Ok(Some(unsafe { (*at, *at.add(1)) }))
        }
    }
}

#[test]
fn a_match_far_into_the_subject_is_found() {
    let mut subject = vec![b'a'; 10_000];
    subject.extend_from_slice("ä1".as_bytes());
    for flags in ["", "j", "u", "ju", "d", "i", "U"] {
        assert_eq!(
            find("[0-9]", flags, &subject),
            Ok(Some((10_002, 10_003))),
            "{flags}"
        );
    }
    assert_eq!(find("a+1", "a", &subject), Ok(None));
}

#[test]
fn all_starts_around_the_border_of_a_piece_are_tried() {
    for length in 250..260 {
        let mut subject = vec![b'a'; length];
        subject.push(b'b');
        assert_eq!(find("b", "j", &subject), Ok(Some((length, length + 1))));
        let subject = ["ä".repeat(length / 2), "b".to_owned()].concat();
        assert_eq!(
            find("b", "u", subject.as_bytes()),
            Ok(Some((subject.len() - 1, subject.len())))
        );
    }
}

#[test]
fn all_starts_of_a_long_subject_are_tried() {
    let mut subject = vec![b'a'; SEEN * 2];
    subject.extend_from_slice(b"bc");
    for flags in ["j", "ju"] {
        assert_eq!(
            find("b[c]", flags, &subject),
            Ok(Some((SEEN * 2, SEEN * 2 + 2))),
            "{flags}"
        );
    }
}

#[test]
fn exponential_backtracking_ends_at_the_limit() {
    let subject = ["a".repeat(40), "b".to_owned()].concat();
    for flags in ["", "j"] {
        assert_eq!(
            find("^(a+)+$", flags, subject.as_bytes()),
            Err("-47".to_owned())
        );
    }
}

#[test]
fn a_match_is_stopped_between_pieces() {
    let regexes = Regexes::default();
    let regex = Regex::new(b"b", b"", &regexes.limits).unwrap();
    let data = MatchData::new(1).expect("there is memory");
    assert_eq!(
        regex.find(&[b'a'; 1000], 0, &data, &regexes.limits, || true),
        STOPPED
    );
}

#[test]
fn errors_are_those_of_openresty() {
    let error = |pattern, flags| find(pattern, flags, b"").unwrap_err();
    assert_eq!(
        error("(", ""),
        "pcre2_compile() failed: missing closing parenthesis in \"(\""
    );
    assert_eq!(error("a", "jz"), "unknown flag \"z\" (flags \"jz\")");
    assert!(error("(?:(?:abcdefgh){1000}){1000}", "").starts_with("pcre2_compile() failed: "));
    assert_eq!(find("a", "u", b"\xe4a"), Err("-3".to_owned()));
}
