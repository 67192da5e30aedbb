//! The literal beginning of a PCRE pattern of which nothing more is known, by which an index can find it. Conservative:
//! what is returned begins every text that the regex can be found in, and is empty when the regex is not tied to the
//! start of the text.

use fancy_regex::Expr;

pub(crate) fn of_pcre(pattern: &str) -> Vec<u8> {
    let mut prefix = Prefix::default();
    if let Ok(tree) = Expr::parse_tree(pattern) {
        prefix.follow(&tree.expr);
    }
    prefix.bytes
}

#[derive(Default)]
struct Prefix {
    anchored: bool,
    bytes: Vec<u8>,
}

impl Prefix {
    /// Whether the literal may go on behind this part. Assertions and look-around only narrow what is matched, so they
    /// are passed over.
    fn follow(&mut self, part: &Expr) -> bool {
        match part {
            Expr::Empty | Expr::LookAround(..) => true,
            Expr::Assertion(assertion) => {
                self.anchored |= *assertion == fancy_regex::Assertion::StartText;
                true
            }
            // Beyond ASCII an escape may stand for one byte that the parser shows as a character of several.
            Expr::Literal { val, casei: false } if val.is_ascii() => self.push(val.as_bytes()),
            Expr::Group(group) => self.follow(group),
            Expr::AtomicGroup(group) => self.follow(group),
            Expr::Concat(parts) => parts.iter().all(|part| self.follow(part)),
            Expr::Repeat { child, lo, hi, .. } => *lo > 0 && self.follow(child) && *hi == 1,
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
