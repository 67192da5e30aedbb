//! Converts host names from a configuration to names for DNS queries. A host name may be in any case, may end in a dot,
//! and may contain bytes that are not ASCII.

use super::answer::ResolveError;
use hickory_resolver::proto::rr::Name;

const MAX_LABEL: usize = 63;
/// Maximum length of a name as text, without the final dot (RFC 1035 §3.1: 255 bytes with the lengths of the labels).
const MAX_NAME: usize = 253;

/// Converts a name to lower case, so that equal names can be compared and share a handle. Bytes that are not ASCII stay
/// unchanged.
pub(super) fn normal(name: &str) -> Box<str> {
    name.to_ascii_lowercase().into()
}

/// Returns the names to query, in order, as in resolv.conf(5). A name with a final dot is queried without the search
/// list. Otherwise, the name itself comes before the search list if it has at least `ndots` dots, and after it if it
/// has fewer.
pub(super) fn candidates(
    name: &str,
    search: &[Name],
    ndots: usize,
) -> Result<Vec<Name>, ResolveError> {
    let (bare, absolute) = match name.strip_suffix('.') {
        Some(bare) => (bare, true),
        None => (name, false),
    };
    let own = absolute_name(bare)?;
    if absolute || search.is_empty() {
        return Ok(vec![own]);
    }
    let mut names = Vec::with_capacity(search.len() + 1);
    let dots = bare.bytes().filter(|byte| *byte == b'.').count();
    if dots >= ndots {
        names.push(own.clone());
    }
    for domain in search {
        // Skip a name that becomes too long; it cannot exist.
        if let Ok(mut name) = own.clone().append_name(domain) {
            name.set_fqdn(true);
            names.push(name);
        }
    }
    if dots < ndots {
        names.push(own);
    }
    let mut seen: Vec<Name> = Vec::with_capacity(names.len());
    names.retain(|name| {
        let new = !seen.contains(name);
        if new {
            seen.push(name.clone());
        }
        new
    });
    Ok(names)
}

/// Converts a name without its final dot to an absolute DNS name. Each label is used as written, without escapes.
pub(super) fn absolute_name(bare: &str) -> Result<Name, ResolveError> {
    if bare.len() > MAX_NAME {
        return Err(ResolveError::InvalidName("it is longer than 253 bytes"));
    }
    for label in bare.split('.') {
        match label.len() {
            0 => return Err(ResolveError::InvalidName("a part of it is empty")),
            1..=MAX_LABEL => {}
            _ => {
                return Err(ResolveError::InvalidName(
                    "a part of it is longer than 63 bytes",
                ));
            }
        }
    }
    let labels = bare.split('.').map(str::as_bytes);
    let mut name = Name::from_labels(labels)
        .map_err(|_| ResolveError::InvalidName("it cannot be encoded in a DNS query"))?;
    name.set_fqdn(true);
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, ndots: usize, expected: &[&str]) {
        let search = ["one.test", "two.test"].map(|domain| absolute_name(domain).unwrap());
        let names = candidates(name, &search, ndots).unwrap();
        let names: Vec<String> = names.iter().map(|name| name.to_ascii()).collect();
        assert_eq!(names, expected, "{name} with ndots {ndots}");
    }

    #[test]
    fn the_search_list_is_walked_as_resolv_conf_says() {
        check("db", 1, &["db.one.test.", "db.two.test.", "db."]);
        check("a.db", 1, &["a.db.", "a.db.one.test.", "a.db.two.test."]);
        check("a.db", 5, &["a.db.one.test.", "a.db.two.test.", "a.db."]);
        check("db", 0, &["db.", "db.one.test.", "db.two.test."]);
        check("db.", 1, &["db."]);
        check("a.db.", 5, &["a.db."]);
    }

    #[test]
    fn names_that_no_question_can_hold_are_told_apart() {
        let long = "a".repeat(64);
        let whole = format!("{}.test", ["b".repeat(60).as_str(); 5].join("."));
        for name in ["", ".", "a..b", ".a", &long, &whole] {
            let error = candidates(name, &[], 1).unwrap_err();
            assert!(matches!(error, ResolveError::InvalidName(_)), "{name:?}");
        }
        // The name itself is short enough, but too long with the search domain, which is skipped.
        let near = format!("{}.test", ["b".repeat(60).as_str(); 4].join("."));
        let search = [absolute_name("domain.test").unwrap()];
        assert_eq!(candidates(&near, &search, 9).unwrap().len(), 1);
    }

    #[test]
    fn other_bytes_than_ascii_are_asked_for_as_given() {
        let name = absolute_name("bücher.test").unwrap();
        assert_eq!(name.iter().next().unwrap(), "bücher".as_bytes());
        assert_eq!(&*normal("BÜCHER.Test"), "bÜcher.test");
    }
}
