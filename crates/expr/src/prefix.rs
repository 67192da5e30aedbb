//! The literal beginning of a regex, by which an index can find it. Conservative: what is returned begins every text
//! that the regex can be found in, and is empty when the regex is not tied to the start of the text.

use fancy_regex::Expr;
use regex_syntax::hir::{Hir, HirKind, Look};

pub(crate) fn of_rust(pattern: &str) -> Vec<u8> {
    let parsed = regex_syntax::ParserBuilder::new()
        .utf8(false)
        .build()
        .parse(pattern);
    let mut prefix = Prefix::default();
    if let Ok(hir) = parsed {
        prefix.follow_rust(&hir);
    }
    prefix.bytes
}

pub(crate) fn of_pcre(pattern: &str) -> Vec<u8> {
    let mut prefix = Prefix::default();
    if let Ok(tree) = Expr::parse_tree(pattern) {
        prefix.follow_pcre(&tree.expr);
    }
    prefix.bytes
}

#[derive(Default)]
struct Prefix {
    anchored: bool,
    bytes: Vec<u8>,
}

impl Prefix {
    /// Whether the literal may go on behind this part.
    fn follow_rust(&mut self, part: &Hir) -> bool {
        match part.kind() {
            HirKind::Empty => true,
            HirKind::Literal(literal) => self.push(&literal.0),
            HirKind::Look(look) => {
                self.anchored |= *look == Look::Start;
                true
            }
            HirKind::Capture(group) => self.follow_rust(&group.sub),
            HirKind::Concat(parts) => parts.iter().all(|part| self.follow_rust(part)),
            HirKind::Repetition(repeated) => {
                repeated.min > 0 && self.follow_rust(&repeated.sub) && repeated.max == Some(1)
            }
            HirKind::Class(_) | HirKind::Alternation(_) => false,
        }
    }

    /// As [`Self::follow_rust`]. Assertions and look-around only narrow what is matched, so they are passed over.
    fn follow_pcre(&mut self, part: &Expr) -> bool {
        match part {
            Expr::Empty | Expr::LookAround(..) => true,
            Expr::Assertion(assertion) => {
                self.anchored |= *assertion == fancy_regex::Assertion::StartText;
                true
            }
            // Beyond ASCII an escape may stand for one byte that the parser shows as a character of several.
            Expr::Literal { val, casei: false } if val.is_ascii() => self.push(val.as_bytes()),
            Expr::Group(group) => self.follow_pcre(group),
            Expr::AtomicGroup(group) => self.follow_pcre(group),
            Expr::Concat(parts) => parts.iter().all(|part| self.follow_pcre(part)),
            Expr::Repeat { child, lo, hi, .. } => *lo > 0 && self.follow_pcre(child) && *hi == 1,
            _ => false,
        }
    }

    fn push(&mut self, literal: &[u8]) -> bool {
        if self.anchored {
            self.bytes.extend_from_slice(literal);
        }
        self.anchored
    }
}
