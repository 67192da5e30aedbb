//! Texts that occur wherever a regex is found: a search can look for those first.

use regex_syntax::hir::{Hir, HirKind};

/// The literals of a pattern that no way through it leaves out, in their order.
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
    fn what_every_match_holds_is_known() {
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
