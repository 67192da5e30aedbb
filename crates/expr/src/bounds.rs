//! Limits on the work and memory of compiling a regex. Every pattern from outside is checked before it is compiled,
//! because both engines (`regex` and `fancy-regex`) expand patterns. Without limits, a pattern of a few hundred bytes
//! could use up all memory: if each group calls the group before it twice, every group doubles the expanded size.
//!
//! The checks read the parsed pattern once, with its calls expanded, and visit no more parts than the limits allow.

use fancy_regex::{Absent, Expr};
use regex_syntax::ast::{self, Ast, ClassPerl, ClassPerlKind, ClassSetItem};

/// Maximum length of a pattern in bytes. PCRE refuses patterns whose compiled form is longer than this.
const MAX_LENGTH: usize = 64 << 10;

/// Patterns of the `regex` crate's dialect up to this length contain too few classes to be expensive.
const SHORT: usize = 256;

/// Maximum number of characters, classes and assertions of a pattern once its repetitions and calls are expanded.
const MAX_WEIGHT: u64 = 250_000;

/// Weight of a part that needs backtracking, such as a look-around or a back-reference. `fancy-regex` compiles the
/// ordinary parts inside and between such parts to engines of their own.
const HARD_PART: u64 = 50;

/// Weight of `\d`, `\s` and set operations in patterns whose classes are Unicode.
const SMALL_CLASS: u64 = 100;

/// Weight of any other class that may contain Unicode characters.
const UNICODE_CLASS: u64 = 500;

/// Factor for the weight of case-insensitive classes. They cost more, because the other case of each character is
/// looked up.
const IN_ANY_CASE: u64 = 4;

/// Maximum number of items in one bracketed class, because `regex-syntax` sorts all items again for each new one.
const MAX_CLASS_ITEMS: usize = 2_000;

/// Maximum number of group calls (`\g<1>`, `(?R)`) in a pattern.
const MAX_CALLS: usize = 100;

/// Maximum nesting depth of a pattern once its calls are expanded, because the engine recurses to the same depth.
const MAX_DEPTH: usize = 128;

/// Number of times that `fancy-regex` expands a recursive call.
const MAX_RECURSION: usize = 19;

/// The reason why a pattern is not compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooComplex {
    #[error("the regex is longer than 65536 bytes")]
    Long,
    #[error("the regex is too large when its repetitions and calls are written out")]
    Large,
    #[error("the regex is nested too deeply when its calls are written out")]
    Deep,
    #[error("the regex calls its groups more than 100 times")]
    Calls,
    #[error("a class of the regex has more than 2000 items")]
    Class,
}

pub(crate) fn check_length(pattern: &str) -> Result<(), TooComplex> {
    if pattern.len() > MAX_LENGTH {
        Err(TooComplex::Long)
    } else {
        Ok(())
    }
}

/// Checks a pattern of the `regex` crate's dialect. Repetitions are not expanded, because the crate itself limits the
/// nesting of groups and the size of expanded repetitions. Only classes and their set operations weigh more than 1. A
/// pattern that cannot be parsed passes. Compiling it reports the error.
pub(crate) fn check_linear(pattern: &str) -> Result<(), TooComplex> {
    check_length(pattern)?;
    if pattern.len() <= SHORT {
        return Ok(());
    }
    match ast::parse::Parser::new().parse(pattern) {
        Ok(parsed) => ast::visit(
            &parsed,
            Classes {
                left: MAX_WEIGHT,
                in_any_case: false,
            },
        ),
        Err(_) => Ok(()),
    }
}

/// Visitor that subtracts the weight of each class and of each other part from a budget.
struct Classes {
    /// Weight that is left of the budget.
    left: u64,
    /// Whether a case-insensitive flag was seen. It is assumed to apply to the rest of the pattern.
    in_any_case: bool,
}

impl Classes {
    fn take(&mut self, weight: u64) -> Result<(), TooComplex> {
        self.left = self.left.checked_sub(weight).ok_or(TooComplex::Large)?;
        Ok(())
    }

    fn take_class(&mut self, class: Option<&ClassPerl>) -> Result<(), TooComplex> {
        let weight = match class.map(|class| &class.kind) {
            Some(ClassPerlKind::Digit | ClassPerlKind::Space) => SMALL_CLASS,
            Some(ClassPerlKind::Word) | None => UNICODE_CLASS,
        };
        self.take(if self.in_any_case {
            IN_ANY_CASE * weight
        } else {
            weight
        })
    }

    fn see(&mut self, flags: &ast::Flags) {
        self.in_any_case |= flags.flag_state(ast::Flag::CaseInsensitive) == Some(true);
    }
}

impl ast::Visitor for Classes {
    type Output = ();
    type Err = TooComplex;

    fn finish(self) -> Result<(), TooComplex> {
        Ok(())
    }

    fn visit_pre(&mut self, part: &Ast) -> Result<(), TooComplex> {
        match part {
            Ast::ClassUnicode(_) => return self.take_class(None),
            Ast::ClassPerl(class) => return self.take_class(Some(class)),
            Ast::Flags(set) => self.see(&set.flags),
            Ast::Group(group) => {
                if let ast::GroupKind::NonCapturing(flags) = &group.kind {
                    self.see(flags);
                }
            }
            _ => {}
        }
        self.take(1)
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), TooComplex> {
        match item {
            ClassSetItem::Unicode(_) => self.take_class(None),
            ClassSetItem::Perl(class) => self.take_class(Some(class)),
            ClassSetItem::Union(union) if union.items.len() > MAX_CLASS_ITEMS => {
                Err(TooComplex::Class)
            }
            _ => self.take(1),
        }
    }

    fn visit_class_set_binary_op_pre(
        &mut self,
        _: &ast::ClassSetBinaryOp,
    ) -> Result<(), TooComplex> {
        self.take(SMALL_CLASS)
    }
}

/// Checks a parsed pattern of PCRE's dialect. `unicode` is true if its classes are Unicode, not ASCII. Returns whether
/// the pattern needs backtracking.
pub(crate) fn check_backtracking(pattern: &Expr, unicode: bool) -> Result<bool, TooComplex> {
    let mut groups = Vec::new();
    let mut calls = 0;
    let mut unread = vec![pattern];
    while let Some(part) = unread.pop() {
        match part {
            Expr::Group(group) => groups.push(&**group),
            Expr::SubroutineCall(_) => calls += 1,
            _ => {}
        }
        let behind = unread.len();
        unread.extend(part.children_iter());
        // The parts are popped in the order of the text, because groups are numbered by their opening brackets.
        unread[behind..].reverse();
    }
    if calls > MAX_CALLS {
        return Err(TooComplex::Calls);
    }
    let mut scale = Scale {
        whole: pattern,
        groups,
        calls: Vec::new(),
        unicode,
        left: MAX_WEIGHT,
    };
    let weighed = scale.weigh(pattern, MAX_DEPTH)?;
    if weighed.weight > MAX_WEIGHT {
        Err(TooComplex::Large)
    } else {
        Ok(weighed.hard)
    }
}

struct Scale<'p> {
    whole: &'p Expr,
    groups: Vec<&'p Expr>,
    /// Groups whose calls are currently being expanded.
    calls: Vec<usize>,
    unicode: bool,
    /// Number of parts that may still be visited.
    left: u64,
}

/// The weight of a part, and whether it needs backtracking.
#[derive(Clone, Copy)]
struct Weighed {
    weight: u64,
    /// Whether the part needs backtracking. Its repetitions are then compiled to loops and not expanded.
    hard: bool,
}

impl<'p> Scale<'p> {
    fn weigh(&mut self, part: &'p Expr, depth: usize) -> Result<Weighed, TooComplex> {
        let depth = depth.checked_sub(1).ok_or(TooComplex::Deep)?;
        self.left = self.left.checked_sub(1).ok_or(TooComplex::Large)?;
        if let Expr::SubroutineCall(group) = part {
            return self.weigh_call(*group, depth);
        }
        let mut all = self.own(part)?;
        for child in part.children_iter() {
            let child = self.weigh(child, depth)?;
            all.weight = all.weight.saturating_add(child.weight);
            all.hard |= child.hard;
        }
        if let Expr::Repeat { lo, hi, .. } = part
            && !all.hard
        {
            let copies = if *hi == usize::MAX { *lo + 1 } else { *hi };
            all.weight = all.weight.saturating_mul(copies.max(1) as u64);
        }
        Ok(all)
    }

    /// Returns the weight of the called group for the call. A recursive call is expanded as often as `fancy-regex`
    /// expands it.
    fn weigh_call(&mut self, group: usize, depth: usize) -> Result<Weighed, TooComplex> {
        let called = match group.checked_sub(1) {
            None => Some(self.whole),
            Some(index) => self.groups.get(index).copied(),
        };
        let open = self.calls.iter().filter(|open| **open == group).count();
        let weight = match called {
            Some(called) if open < MAX_RECURSION => {
                self.calls.push(group);
                let called = self.weigh(called, depth)?;
                self.calls.pop();
                called.weight
            }
            // The recursion limit is reached, or the group does not exist. The engine reports a missing group.
            _ => 0,
        };
        Ok(Weighed {
            weight: weight.saturating_add(HARD_PART),
            hard: true,
        })
    }

    /// The weight of a part without its children.
    fn own(&self, part: &Expr) -> Result<Weighed, TooComplex> {
        let easy = |weight| Weighed {
            weight,
            hard: false,
        };
        Ok(match part {
            Expr::Delegate { inner, .. } if inner.len() > 4 * MAX_CLASS_ITEMS => {
                return Err(TooComplex::Class);
            }
            Expr::Delegate { .. } | Expr::Any { .. } if self.unicode => easy(UNICODE_CLASS),
            Expr::Delegate { inner, .. } => easy(1 + inner.len() as u64 / 8),
            Expr::Backref { .. }
            | Expr::BackrefWithRelativeRecursionLevel { .. }
            | Expr::BackrefExistsCondition { .. }
            | Expr::LookAround(..)
            | Expr::AtomicGroup(_)
            | Expr::Conditional { .. }
            | Expr::GeneralNewline { .. }
            | Expr::Absent(
                Absent::Repeater(_)
                | Absent::Expression { .. }
                | Absent::Stopper(_)
                | Absent::Clear,
            ) => Weighed {
                weight: HARD_PART,
                hard: true,
            },
            Expr::KeepOut
            | Expr::ContinueFromPreviousMatchEnd
            | Expr::BacktrackingControlVerb(_)
            | Expr::LiteralBytes { .. } => Weighed {
                weight: 1,
                hard: true,
            },
            _ => easy(1),
        })
    }
}
