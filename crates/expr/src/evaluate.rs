//! Evaluates an expression for a request. Evaluation allocates memory in two cases only: if the caller's buffer grows,
//! and if a value with characters beyond ASCII is converted to lower case.

use crate::field::{Fields, TextField};
use crate::pattern::Regex;
use crate::tree::{Expression, Quantifier, TextPredicate, TextTest, Transform};
use memchr::memmem;
use std::ops::{ControlFlow, Range};

/// Cost in steps of finding the values of a field that may have several values.
const LINES: usize = 16;

/// An observer is notified of each predicate that was true during evaluation, in the order of evaluation. This includes
/// predicates inside parts that turned out false. Path stripping and captures depend on these predicates, as in Kong.
pub trait Observer {
    /// A test matched this range of the path. If the test converts the path, the range is a range of the converted
    /// path.
    fn path(&mut self, _located: Range<usize>) {}

    /// A regex matched a value of the field. `value` is the converted value that was tested.
    fn regex(&mut self, _field: &TextField, _regex: &Regex, _value: &[u8]) {}

    /// Called before each test with the cost of the test in steps. If it returns false, the test is skipped and the
    /// result of the whole expression is meaningless.
    fn allows(&mut self, _steps: usize) -> bool {
        true
    }
}

/// An observer that ignores every notification.
pub struct NoObserver;

impl Observer for NoObserver {}

impl Expression {
    /// Whether the request satisfies the expression. `buffer` is scratch space for converted values.
    pub fn evaluate(
        &self,
        fields: &impl Fields,
        buffer: &mut Vec<u8>,
        observer: &mut impl Observer,
    ) -> bool {
        match self {
            Self::All(parts) => parts
                .iter()
                .all(|part| part.evaluate(fields, buffer, observer)),
            Self::Any(parts) => parts
                .iter()
                .any(|part| part.evaluate(fields, buffer, observer)),
            Self::Not(part) => !part.evaluate(fields, buffer, observer),
            Self::Text(predicate) => predicate.evaluate(fields, buffer, observer),
            Self::Number(predicate) => {
                let value = fields.number(predicate.field);
                let holds = |value| predicate.comparison.holds(value, predicate.value);
                observer.allows(1) && value.is_some_and(holds)
            }
            Self::Address(predicate) => {
                let address = fields.address(predicate.field);
                observer.allows(1) && address.is_some_and(|address| predicate.test.holds(address))
            }
        }
    }
}

impl TextPredicate {
    fn evaluate(
        &self,
        fields: &impl Fields,
        buffer: &mut Vec<u8>,
        observer: &mut impl Observer,
    ) -> bool {
        if !self.field.has_several_values() {
            let value = fields.text(&self.field);
            return value.is_some_and(|value| self.test_value(value, buffer, observer));
        }
        if !observer.allows(LINES) {
            return false;
        }
        let mut passed = false;
        fields.texts(&self.field, &mut |value| {
            passed = self.test_value(value, buffer, observer);
            // For `any`, the first value that passes decides. For `all`, the first value that fails decides.
            if passed == (self.quantifier == Quantifier::Any) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        passed
    }

    fn test_value(&self, value: &[u8], buffer: &mut Vec<u8>, observer: &mut impl Observer) -> bool {
        if !observer.allows(self.steps(value.len())) {
            return false;
        }
        let value = self.transform.apply(value, buffer);
        let TextTest::Matches(regex) = &self.test else {
            let located = self.test.locate(value);
            if let (TextField::Path, Some(Some(located))) = (&self.field, &located) {
                observer.path(located.clone());
            }
            return located.is_some();
        };
        let found = if self.field == TextField::Path {
            let located = regex.find(value);
            located.map(|located| observer.path(located)).is_some()
        } else {
            regex.is_match(value)
        };
        if found {
            observer.regex(&self.field, regex, value);
        }
        found
    }

    /// Approximate upper bound of the cost in steps of testing a value of this length. Reading a byte costs about one
    /// step.
    #[inline]
    fn steps(&self, bytes: usize) -> usize {
        let transforming = match self.transform {
            Transform::None => 0,
            Transform::Lower | Transform::LowerAscii => bytes,
        };
        transforming
            + match &self.test {
                TextTest::Equals(text)
                | TextTest::Differs(text)
                | TextTest::StartsWith(text)
                | TextTest::EndsWith(text) => 1 + text.len().min(bytes),
                TextTest::Contains(_) => 1 + bytes,
                TextTest::Matches(regex) => regex.steps(bytes),
            }
    }
}

impl TextTest {
    /// Returns `Some` if the value passes. The inner value is the position of the literal, if the test determines one.
    /// Regexes are not evaluated here.
    fn locate(&self, value: &[u8]) -> Option<Option<Range<usize>>> {
        let length = value.len();
        match self {
            Self::Equals(text) => (value == text.as_bytes()).then_some(Some(0..length)),
            Self::StartsWith(text) => value
                .starts_with(text.as_bytes())
                .then_some(Some(0..text.len())),
            Self::EndsWith(text) => value
                .ends_with(text.as_bytes())
                .then(|| Some(length - text.len()..length)),
            Self::Differs(text) => (value != text.as_bytes()).then_some(None),
            Self::Contains(text) => memmem::find(value, text.as_bytes()).map(|_| None),
            Self::Matches(_) => None,
        }
    }
}

impl Transform {
    /// Returns the value in the form in which it is compared. `buffer` is scratch space.
    #[inline]
    pub fn apply<'v>(self, value: &'v [u8], buffer: &'v mut Vec<u8>) -> &'v [u8] {
        let is_ascii = match self {
            Self::None => return value,
            Self::Lower => value.is_ascii(),
            Self::LowerAscii => true,
        };
        buffer.clear();
        if is_ascii {
            buffer.extend(value.iter().map(u8::to_ascii_lowercase));
            return buffer;
        }
        for chunk in value.utf8_chunks() {
            buffer.extend_from_slice(chunk.valid().to_lowercase().as_bytes());
            buffer.extend_from_slice(chunk.invalid());
        }
        buffer
    }
}
