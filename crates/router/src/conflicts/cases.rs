//! Expressions as lists of alternative cases, so that they can be compared, intersected and subtracted.
//!
//! A [`Case`] has conditions on some fields, all of which must be satisfied. The condition on one field may consist of
//! alternatives. All operations are exact. Cases that no request can satisfy may remain in a result, because not every
//! such case is detected.

use super::ranges::Ranges;
use super::texts::Test;
use crate::expressions::protocols;
use expr::{
    AddressField, Expression, NumberField, Quantifier, Subsystem, TextField, TextPredicate,
    TextTest,
};

/// Maximum number of fields in a case.
const MAX_FIELDS: usize = 256;

/// Maximum number of cases of one expression, and maximum number of alternatives after two lists of them are combined.
const MAX_CASES: usize = 128;
const MAX_ALTERNATIVES: usize = 4096;

/// A limit of the analysis is exceeded, such as `MAX_CASES` or `MAX_ALTERNATIVES`.
#[derive(Debug)]
pub(super) struct TooMany;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field<'e> {
    /// The values are the indexes of [`protocols`].
    Protocol,
    Number(NumberField),
    Address(AddressField),
    Text(&'e TextField),
}

/// The values that one field may have.
#[derive(Debug, Clone)]
pub(super) enum Values<'e> {
    Ranges(Ranges),
    Texts(Vec<Demand<'e>>),
}

#[derive(Debug, Clone)]
pub(super) struct Part<'e> {
    pub(super) field: Field<'e>,
    pub(super) values: Values<'e>,
}

/// A request is in the case if it satisfies all parts.
#[derive(Debug, Clone, Default)]
pub(super) struct Case<'e> {
    pub(super) parts: Vec<Part<'e>>,
}

/// Predicates on one field, all of which must hold.
#[derive(Debug, Clone, Default)]
pub(super) struct Demand<'e> {
    literals: Vec<Literal<'e>>,
}

/// A predicate or its negation. A predicate on a field without a value is false.
#[derive(Debug, Clone, Copy)]
pub(super) struct Literal<'e> {
    pub(super) predicate: &'e TextPredicate,
    pub(super) holds: bool,
}

/// Number of predicates in an expression.
pub(super) fn size(expression: &Expression) -> usize {
    match expression {
        Expression::All(parts) | Expression::Any(parts) => parts.iter().map(size).sum(),
        Expression::Not(part) => size(part),
        Expression::Text(_) | Expression::Number(_) | Expression::Address(_) => 1,
    }
}

/// Returns the cases of an expression. A request of the subsystem satisfies the expression exactly if it is in one of
/// the cases.
pub(super) fn cases(
    expression: &Expression,
    subsystem: Subsystem,
) -> Result<Vec<Case<'_>>, TooMany> {
    cases_of(expression, true, subsystem)
}

fn cases_of(
    expression: &Expression,
    holds: bool,
    subsystem: Subsystem,
) -> Result<Vec<Case<'_>>, TooMany> {
    match (expression, holds) {
        (Expression::All(parts), true) | (Expression::Any(parts), false) => {
            product(parts.iter().map(|part| cases_of(part, holds, subsystem)))
        }
        (Expression::Any(parts), true) | (Expression::All(parts), false) => {
            sum(parts.iter().map(|part| cases_of(part, holds, subsystem)))
        }
        (Expression::Not(part), _) => cases_of(part, !holds, subsystem),
        _ => {
            let part = Part::of(expression, holds, subsystem);
            let part = part.filter(|part| !part.values.is_empty());
            Ok(part
                .map(|part| Case { parts: vec![part] })
                .into_iter()
                .collect())
        }
    }
}

fn sum<'e>(
    parts: impl Iterator<Item = Result<Vec<Case<'e>>, TooMany>>,
) -> Result<Vec<Case<'e>>, TooMany> {
    let mut sum: Vec<Case<'e>> = Vec::new();
    for cases in parts {
        for case in cases? {
            let [part] = &case.parts[..] else {
                sum.push(case);
                continue;
            };
            let alike = sum.iter_mut().find_map(|known| match &mut known.parts[..] {
                [known] if known.field == part.field => Some(known),
                _ => None,
            });
            match alike {
                Some(known) => known.values.add(&part.values),
                None => sum.push(case),
            }
        }
        if sum.len() > MAX_CASES {
            return Err(TooMany);
        }
    }
    Ok(sum)
}

fn product<'e>(
    parts: impl Iterator<Item = Result<Vec<Case<'e>>, TooMany>>,
) -> Result<Vec<Case<'e>>, TooMany> {
    let mut product = vec![Case::default()];
    for cases in parts {
        let cases = cases?;
        if product.len() * cases.len() > MAX_CASES {
            return Err(TooMany);
        }
        if let ([left], [right]) = (&mut product[..], &cases[..]) {
            if !left.meet(right)? {
                return Ok(Vec::new());
            }
            continue;
        }
        let mut next = Vec::with_capacity(product.len() * cases.len());
        for left in &product {
            for right in &cases {
                next.extend(left.and(right)?);
            }
        }
        product = next;
    }
    Ok(product)
}

impl<'e> Case<'e> {
    /// Number of values in the case.
    pub(super) fn size(&self) -> usize {
        let parts = self.parts.iter().map(|part| part.values.len());
        1 + parts.sum::<usize>()
    }

    /// Number of pairs of values that are compared to intersect two cases.
    pub(super) fn meeting(&self, other: &Self) -> usize {
        let pairs = self.parts.iter().map(|own| {
            let same = other.values(own.field);
            own.values.len() * same.map_or(1, Values::len) + other.parts.len()
        });
        1 + pairs.sum::<usize>()
    }

    /// Number of pairs of values that are compared to compute the complement of the case.
    pub(super) fn negating(&self) -> usize {
        let parts = self.parts.iter().map(|part| part.values.len().pow(2));
        parts.sum()
    }

    pub(super) fn has_regex(&self) -> bool {
        self.parts.iter().any(|part| match &part.values {
            Values::Ranges(_) => false,
            Values::Texts(demands) => demands.iter().any(Demand::has_regex),
        })
    }

    /// Returns the intersection of two cases; `None` if it is empty.
    pub(super) fn and(&self, other: &Self) -> Result<Option<Self>, TooMany> {
        let mut both = self.clone();
        Ok(both.meet(other)?.then_some(both))
    }

    /// Reduces this case to the intersection with the other. Returns whether anything is left.
    fn meet(&mut self, other: &Self) -> Result<bool, TooMany> {
        for part in &other.parts {
            if !self.narrow(part.field, &part.values)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the requests that are in this case and not in the other, as disjoint cases.
    pub(super) fn without(&self, other: &Self, subsystem: Subsystem) -> Result<Vec<Self>, TooMany> {
        let mut pieces = Vec::new();
        let mut left = self.clone();
        for part in &other.parts {
            let mut outside = left.clone();
            if outside.narrow(part.field, &part.negation(subsystem)?)? {
                pieces.push(outside);
            }
            if !left.narrow(part.field, &part.values)? {
                break;
            }
        }
        Ok(pieces)
    }

    /// Whether a quick check proves that no request is in both cases.
    pub(super) fn excludes(&self, other: &Self) -> bool {
        self.parts.iter().any(|own| {
            let same = other.parts.iter().find(|part| part.field == own.field);
            same.is_some_and(|part| own.values.excludes(&part.values))
        })
    }

    /// A quick check whether a request of the case may satisfy the expression. False means that none can.
    pub(super) fn may_meet(&self, expression: &Expression, subsystem: Subsystem) -> bool {
        let may_meet = |part: &Expression| self.may_meet(part, subsystem);
        match expression {
            Expression::All(parts) => parts.iter().all(may_meet),
            Expression::Any(parts) => parts.iter().any(may_meet),
            Expression::Not(_) => true,
            _ => {
                let other = Part::of(expression, true, subsystem);
                let own = other.as_ref().and_then(|other| self.values(other.field));
                let excluded = own.zip(other.as_ref());
                !excluded.is_some_and(|(own, other)| own.excludes(&other.values))
            }
        }
    }

    pub(super) fn values(&self, field: Field<'_>) -> Option<&Values<'e>> {
        let part = self.parts.iter().find(|part| part.field == field);
        part.map(|part| &part.values)
    }

    /// Restricts a field to `values`. Returns whether anything is left.
    fn narrow(&mut self, field: Field<'e>, values: &Values<'e>) -> Result<bool, TooMany> {
        let known = self.parts.iter_mut().find(|part| part.field == field);
        let Some(known) = known else {
            if self.parts.len() == MAX_FIELDS {
                return Err(TooMany);
            }
            let values = values.clone();
            let some = !values.is_empty();
            self.parts.push(Part { field, values });
            return Ok(some);
        };
        known.values = known.values.and(values)?;
        Ok(!known.values.is_empty())
    }
}

impl<'e> Part<'e> {
    /// Returns the part for a predicate, or `None` for any other expression.
    fn of(expression: &'e Expression, holds: bool, subsystem: Subsystem) -> Option<Self> {
        let (field, values) = match expression {
            Expression::Text(predicate) if predicate.field == TextField::Protocol => {
                let test = Test::of(predicate, true);
                let names = (0..).zip(protocols(subsystem));
                let chosen = names.filter(|(_, name)| test.accepts(name));
                (
                    Field::Protocol,
                    Ranges::choice(chosen.map(|(number, _)| number)),
                )
            }
            Expression::Text(predicate) => {
                let literal = Literal { predicate, holds };
                return Some(Self::text(literal));
            }
            Expression::Number(predicate) => {
                (Field::Number(predicate.field), Ranges::numbers(predicate))
            }
            Expression::Address(predicate) => (
                Field::Address(predicate.field),
                Ranges::addresses(predicate),
            ),
            Expression::All(_) | Expression::Any(_) | Expression::Not(_) => return None,
        };
        let all = field.all_values(subsystem)?;
        let values = if holds {
            all.and(&values)
        } else {
            all.without(&values)
        };
        Some(Self {
            field,
            values: Values::Ranges(values),
        })
    }

    fn text(literal: Literal<'e>) -> Self {
        let demand = Demand::default().with(literal);
        Self {
            field: Field::Text(&literal.predicate.field),
            values: Values::Texts(demand.into_iter().collect()),
        }
    }

    /// Returns the values of the field for which this part does not hold.
    fn negation(&self, subsystem: Subsystem) -> Result<Values<'e>, TooMany> {
        let demands = match &self.values {
            Values::Ranges(ranges) => {
                let all = self.field.all_values(subsystem);
                let rest = all.map_or_else(|| ranges.clone(), |all| all.without(ranges));
                return Ok(Values::Ranges(rest));
            }
            Values::Texts(demands) => demands,
        };
        let mut negation = vec![Demand::default()];
        for demand in demands {
            if negation.len() * demand.literals.len() > MAX_ALTERNATIVES {
                return Err(TooMany);
            }
            let failing = |literal: &Literal<'e>| literal.negated();
            negation = negation
                .iter()
                .flat_map(|known| {
                    let literals = demand.literals.iter().map(failing);
                    literals.filter_map(|literal| known.clone().with(literal))
                })
                .collect();
        }
        Ok(Values::Texts(negation))
    }
}

impl Field<'_> {
    /// Returns all values of a field whose values are ranges.
    fn all_values(self, subsystem: Subsystem) -> Option<Ranges> {
        match self {
            Self::Protocol => Some(Ranges::one_of(protocols(subsystem).len() as u8)),
            Self::Number(field) => Some(Ranges::all_numbers(field, subsystem)),
            Self::Address(_) => Some(Ranges::all_addresses(subsystem)),
            Self::Text(_) => None,
        }
    }
}

impl<'e> Values<'e> {
    /// Number of values in the condition. Values that the condition excludes count too.
    fn len(&self) -> usize {
        match self {
            Self::Ranges(ranges) => ranges.len(),
            Self::Texts(demands) => demands.iter().map(|demand| 1 + demand.literals.len()).sum(),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Ranges(ranges) => ranges.is_empty(),
            Self::Texts(demands) => demands.is_empty(),
        }
    }

    fn add(&mut self, other: &Self) {
        match (self, other) {
            (Self::Ranges(own), Self::Ranges(other)) => *own = own.or(other),
            (Self::Texts(own), Self::Texts(other)) => own.extend_from_slice(other),
            // All values of one field have the same type.
            _ => {}
        }
    }

    fn and(&self, other: &Self) -> Result<Self, TooMany> {
        match (self, other) {
            (Self::Ranges(own), Self::Ranges(other)) => Ok(Self::Ranges(own.and(other))),
            (Self::Texts(own), Self::Texts(other)) => {
                let mut both = Vec::new();
                for demand in own {
                    if other.iter().any(|other| demand.implies_all(other)) {
                        both.push(demand.clone());
                        continue;
                    }
                    both.extend(other.iter().filter_map(|other| demand.and(other)));
                    if both.len() > MAX_ALTERNATIVES {
                        return Err(TooMany);
                    }
                }
                Ok(Self::Texts(both))
            }
            _ => Ok(self.clone()),
        }
    }

    fn excludes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Ranges(own), Self::Ranges(other)) => !own.meets(other),
            (Self::Texts(own), Self::Texts(other)) => own
                .iter()
                .all(|own| other.iter().all(|other| own.excludes(other))),
            _ => false,
        }
    }
}

impl<'e> Demand<'e> {
    fn has_regex(&self) -> bool {
        let mut literals = self.literals.iter();
        literals.any(|literal| matches!(literal.predicate.test, TextTest::Matches(_)))
    }

    pub(super) fn literals(&self) -> &[Literal<'e>] {
        &self.literals
    }

    /// Adds a literal; returns `None` if it contradicts the others.
    fn with(mut self, literal: Literal<'e>) -> Option<Self> {
        if self.implies(literal.negated()) || literal.is_never() {
            return None;
        }
        if !self.implies(literal) {
            self.literals.push(literal);
        }
        Some(self)
    }

    fn and(&self, other: &Self) -> Option<Self> {
        let mut literals = other.literals.iter();
        literals.try_fold(self.clone(), |both, literal| both.with(*literal))
    }

    fn excludes(&self, other: &Self) -> bool {
        let mut literals = other.literals.iter();
        literals.any(|literal| self.implies(literal.negated()))
    }

    fn implies_all(&self, other: &Self) -> bool {
        other.literals.iter().all(|literal| self.implies(*literal))
    }

    /// Whether the literal is proven to hold if all literals of this demand hold.
    fn implies(&self, literal: Literal<'e>) -> bool {
        let wanted = literal.claim();
        let any = |passes: &dyn Fn(Claim<'e>) -> Option<bool>| {
            let mut claims = self.literals.iter().map(Literal::claim);
            claims.any(|claim| passes(claim).unwrap_or(false))
        };
        let by_all = |wanted: Test<'e>| any(&|own| Some(own.all?.implies(wanted)));
        let by_some = |wanted: Test<'e>| any(&|own| Some(own.some?.implies(wanted)));
        let by_loose = |wanted: Test<'e>| any(&|own| Some(own.loose?.implies(wanted)));
        match wanted {
            Claim {
                all: Some(test),
                some,
                ..
            } => by_all(test) && (some.is_none() || self.has_value()),
            Claim {
                some: Some(test), ..
            } => by_some(test) || self.has_value() && by_all(test),
            Claim {
                loose: Some(test), ..
            } => by_some(test) || by_all(test) || by_loose(test),
            _ => false,
        }
    }

    /// Whether the field must have a value.
    pub(super) fn has_value(&self) -> bool {
        self.literals.iter().any(|literal| {
            let field = &literal.predicate.field;
            literal.holds || matches!(field, TextField::Path | TextField::Method)
        })
    }
}

/// The meaning of a literal for the values of its field.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Claim<'e> {
    /// Every value passes.
    pub(super) all: Option<Test<'e>>,
    /// At least one value passes.
    pub(super) some: Option<Test<'e>>,
    /// There is no value, or at least one passes.
    pub(super) loose: Option<Test<'e>>,
}

impl<'e> Literal<'e> {
    pub(super) fn claim(&self) -> Claim<'e> {
        let test = Some(Test::of(self.predicate, self.holds));
        let one = !self.predicate.field.has_several_values();
        let claim = Claim::default();
        match (self.predicate.quantifier, self.holds) {
            (_, true) if one => Claim {
                all: test,
                some: test,
                ..claim
            },
            (_, false) if one => Claim { all: test, ..claim },
            (Quantifier::All, true) => Claim {
                all: test,
                some: test,
                ..claim
            },
            (Quantifier::All, false) => Claim {
                loose: test,
                ..claim
            },
            (Quantifier::Any, true) => Claim {
                some: test,
                ..claim
            },
            (Quantifier::Any, false) => Claim { all: test, ..claim },
        }
    }

    fn negated(self) -> Self {
        Self {
            holds: !self.holds,
            ..self
        }
    }

    /// Whether it is proven that no value can satisfy this literal.
    fn is_never(self) -> bool {
        let some = self.claim().some;
        some.is_some_and(|test| test.implies(test.negated()))
    }
}
