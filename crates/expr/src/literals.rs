//! Literals that every match of a regex contains. A search can look for them first.

use regex_syntax::hir::{Hir, HirKind};

/// Returns the literals that every match of the pattern contains, in order of occurrence.
pub(crate) fn required(pattern: &Hir) -> Box<[Box<[u8]>]> {
    let mut literals = Vec::new();
    collect(pattern, &mut literals);
    literals.into_boxed_slice()
}

fn collect(part: &Hir, literals: &mut Vec<Box<[u8]>>) {
    match part.kind() {
        HirKind::Literal(literal) => literals.push(literal.0.clone()),
        HirKind::Capture(group) => collect(&group.sub, literals),
        HirKind::Concat(parts) => parts.iter().for_each(|part| collect(part, literals)),
        HirKind::Repetition(repeated) if repeated.min > 0 => collect(&repeated.sub, literals),
        HirKind::Repetition(_)
        | HirKind::Empty
        | HirKind::Look(_)
        | HirKind::Class(_)
        | HirKind::Alternation(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use crate::{Dialect, Regex};

    #[test]
    fn literals_of_every_match_are_found() {
        for (pattern, expected) in [
            ("foo.*bar", &["foo", "bar"][..]),
            ("(?:foo)+|bar", &[]),
            ("a(bc(?<n>de))*?f(gh){2}[xy]", &["a", "f", "gh"]),
            ("(?i)foo", &[]),
            ("x?\\.json$", &[".json"]),
        ] {
            for dialect in [Dialect::Rust, Dialect::Pcre] {
                let regex = Regex::new(pattern, dialect).unwrap();
                let found: Vec<_> = regex.literals().iter().map(|one| one.to_vec()).collect();
                let expected: Vec<_> = expected.iter().map(|one| one.as_bytes()).collect();
                assert_eq!(found, expected, "{pattern}");
            }
        }
    }
}
