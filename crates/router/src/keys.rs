//! Extracts from an expression the conditions on a request that can be looked up in an index.
//!
//! This is sound for any boolean structure: a request that satisfies an expression also satisfies one of its
//! [`Cover`]s. To satisfy a cover, a request must have one of the cover's values in each dimension that the cover
//! restricts. Alternatives become separate covers, or several values of one cover if they differ in one dimension only.
//! A negation adds no condition. Too many covers are replaced by a single one that is satisfied wherever one of them
//! is.

use crate::Flavor;
use crate::host::{self, Host};
pub(crate) use crate::range::{Range, Width};
use expr::{
    AddressField, AddressPredicate, AddressTest, Comparison, Expression, NumberField,
    NumberPredicate, Step, TextField, TextPredicate, TextTest, Transform,
};
use smallvec::SmallVec;

/// Maximum number of covers of an expression.
const MAX_COVERS: usize = 64;

/// Maximum number of conditions of a cover.
const MAX_DEMANDS: usize = 64;

/// Limits on the values in the covers of a conjunction, and on the values that may be copied or compared while all
/// covers are computed. Each limit is a constant plus a number of values for each predicate of the expression.
const FREE_VALUES: usize = 4096;
const VALUES_PER_PREDICATE: usize = 4;
const FREE_WORK: usize = 1 << 16;
const WORK_PER_PREDICATE: usize = 128;

/// Maximum number of classes in a path key, which limits the recursion depth of lookups.
const MAX_CLASSES: usize = 32;

/// Conditions on a request. In each dimension the request must have one of the values; `None` means that the dimension
/// is not restricted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Cover {
    pub(crate) hosts: Option<Vec<HostKey>>,
    pub(crate) paths: Option<Vec<PathKey>>,
    pub(crate) methods: Option<Vec<Box<str>>>,
    pub(crate) protocols: Protocols,
    /// Conditions on other fields, at most one per dimension.
    pub(crate) demands: Vec<Demand>,
}

/// A set of values of `net.protocol`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Protocols(u8);

/// The protocols of requests and streams, one bit each.
const PROTOCOLS: [&str; 5] = ["http", "https", "tcp", "udp", "tls"];

/// A condition on the host without its port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostKey {
    Exact(Box<str>),
    /// The start of the host.
    Prefix(Box<str>),
    /// The end of the host.
    Suffix(Box<str>),
}

/// A condition on the start of the path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PathKey {
    pub(crate) steps: Vec<Step>,
    /// Whether the path must end after the steps.
    pub(crate) at_end: bool,
    pub(crate) answer: PathAnswer,
}

/// Whether the path key also decides the predicate on the path, for a path that begins with the steps of the key. If
/// [`PathKey::at_end`] is set, the path must also end after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathAnswer {
    /// The predicate must be evaluated.
    Open,
    /// The predicate is true. It locates the part of the path that the steps matched.
    Decided,
    /// Like `Decided` if the path is ASCII; otherwise the predicate must be evaluated.
    DecidedInAscii,
}

/// A condition on a field other than host, path and method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Demand {
    Texts {
        of: TextDimension,
        texts: Vec<Text>,
    },
    Ranges {
        of: RangeDimension,
        ranges: Vec<Range>,
    },
    /// The value must contain all grams of at least one alternative.
    Grams {
        of: TextDimension,
        alternatives: Vec<Vec<Gram>>,
    },
}

/// Three bytes of a literal. Looking them up excludes most values that do not contain the literal.
pub(crate) type Gram = [u8; 3];

/// A text to look up, stored inline if it has a usual length.
pub(crate) type Text = SmallVec<[u8; 24]>;

/// A text field and the transformation applied to it before comparison.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct TextDimension {
    pub(crate) field: TextField,
    pub(crate) transform: Transform,
}

/// A field whose conditions are ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum RangeDimension {
    Address(AddressField),
    Number(NumberField),
}

/// Returns the covers of an expression. Every request that satisfies the expression satisfies at least one of its
/// covers. If computing the covers would take too much work, the result is a single cover without conditions.
pub(crate) fn covers(expression: &Expression, flavor: Flavor) -> Vec<Cover> {
    let predicates = predicates(expression);
    let mut reader = Reader {
        flavor,
        most_values: FREE_VALUES + VALUES_PER_PREDICATE * predicates,
        left: FREE_WORK + WORK_PER_PREDICATE * predicates,
    };
    let covers = reader.covers(expression);
    covers.unwrap_or_else(|TooMuch| vec![Cover::default()])
}

fn predicates(expression: &Expression) -> usize {
    match expression {
        Expression::All(parts) | Expression::Any(parts) => parts.iter().map(predicates).sum(),
        Expression::Not(part) => predicates(part),
        Expression::Text(_) | Expression::Number(_) | Expression::Address(_) => 1,
    }
}

struct Reader {
    flavor: Flavor,
    /// Maximum total number of values in the covers of a conjunction.
    most_values: usize,
    /// Number of values that may still be copied or compared.
    left: usize,
}

struct TooMuch;

impl Reader {
    fn spend(&mut self, values: usize) -> Result<(), TooMuch> {
        self.left = self.left.checked_sub(values).ok_or(TooMuch)?;
        Ok(())
    }

    fn covers(&mut self, expression: &Expression) -> Result<Vec<Cover>, TooMuch> {
        let cover = match expression {
            Expression::All(parts) => {
                let mut all = vec![Cover::default()];
                for part in parts {
                    let part = self.covers(part)?;
                    all = self.both(all, part)?;
                }
                return Ok(all);
            }
            Expression::Any(parts) => {
                let mut any = Vec::new();
                for part in parts {
                    for cover in self.covers(part)? {
                        self.add(&mut any, cover)?;
                    }
                }
                return Ok(bound(any));
            }
            Expression::Not(_) => Cover::default(),
            Expression::Text(predicate) => of_text(predicate, self.flavor),
            Expression::Number(predicate) => of_number(predicate),
            Expression::Address(predicate) => of_address(predicate),
        };
        self.spend(cover.size())?;
        Ok(vec![cover])
    }

    /// Combines the covers of two parts that must both be true.
    fn both(&mut self, left: Vec<Cover>, right: Vec<Cover>) -> Result<Vec<Cover>, TooMuch> {
        let (mut left, mut right) = if left.len() * right.len() <= MAX_COVERS {
            (left, right)
        } else if left.len() > right.len() {
            (left, vec![common(right)])
        } else {
            (vec![common(left)], right)
        };
        // A cover without conditions changes nothing, and a long conjunction may have many parts with such a cover.
        if right[..] == [Cover::default()] {
            return Ok(left);
        }
        let size = |covers: &[Cover]| covers.iter().map(Cover::size).sum::<usize>();
        let both = left.len() * size(&right) + right.len() * size(&left);
        if both > self.most_values {
            (left, right) = (vec![common(left)], vec![common(right)]);
        }
        if let ([left], [right]) = (&mut left[..], &right[..]) {
            self.spend(right.size())?;
            left.narrow(right);
        } else {
            self.spend(both)?;
            let pairs = left
                .iter()
                .flat_map(|left| right.iter().map(move |right| (left, right)));
            left = pairs.map(|(left, right)| left.and(right)).collect();
        }
        Ok(left)
    }

    /// Adds an alternative. If an existing cover differs from it in one dimension only, the two are merged.
    fn add(&mut self, any: &mut Vec<Cover>, cover: Cover) -> Result<(), TooMuch> {
        // Only the latest covers are compared, so that the work for many alternatives stays linear.
        let near = any.iter_mut().rev().take(MAX_COVERS);
        for known in near {
            self.spend(1 + cover.size())?;
            if known.merge(&cover) {
                return Ok(());
            }
        }
        any.push(cover);
        Ok(())
    }
}

fn bound(covers: Vec<Cover>) -> Vec<Cover> {
    if covers.len() > MAX_COVERS {
        vec![common(covers)]
    } else {
        covers
    }
}

/// Returns one cover that is satisfied by every request that satisfies one of `covers`.
fn common(covers: Vec<Cover>) -> Cover {
    let mut covers = covers.into_iter();
    let first = covers.next().unwrap_or_default();
    covers.fold(first, |one, other| one.or(other))
}

impl Cover {
    /// Whether the cover already has every condition that can be looked up for this test.
    fn says_all_of(&self, test: &TextTest) -> bool {
        let decides = |key: &PathKey| key.answer != PathAnswer::Open;
        match test {
            TextTest::Matches(_) => self
                .paths
                .as_deref()
                .is_some_and(|keys| keys.iter().all(decides)),
            _ => {
                self.hosts.is_some()
                    || self.paths.is_some()
                    || self.methods.is_some()
                    || self.protocols != Protocols::ALL
            }
        }
    }

    /// Number of values in the cover.
    fn size(&self) -> usize {
        let length = |values: Option<usize>| values.unwrap_or(0);
        let demands = self.demands.iter().map(|demand| match demand {
            Demand::Texts { texts, .. } => texts.len(),
            Demand::Ranges { ranges, .. } => ranges.len(),
            Demand::Grams { alternatives, .. } => alternatives.iter().map(Vec::len).sum(),
        });
        1 + length(self.hosts.as_ref().map(Vec::len))
            + length(self.paths.as_ref().map(Vec::len))
            + length(self.methods.as_ref().map(Vec::len))
            + demands.sum::<usize>()
    }

    fn and(&self, other: &Self) -> Self {
        let mut both = self.clone();
        both.narrow(other);
        both
    }

    /// Adds the conditions of the other cover.
    fn narrow(&mut self, other: &Self) {
        for demand in &other.demands {
            let mut known = self.demands.iter_mut();
            if let Some(known) = known.find(|known| known.is_of_same(demand)) {
                known.narrow(demand);
            } else if self.demands.len() < MAX_DEMANDS {
                // Further conditions hardly distinguish candidates any better.
                self.demands.push(demand.clone());
            }
        }
        fewest(&mut self.hosts, &other.hosts, |host| host.text().len());
        fewest(&mut self.paths, &other.paths, PathKey::weight);
        fewest(&mut self.methods, &other.methods, |_| 0);
        self.protocols = self.protocols.and(other.protocols);
    }

    fn or(self, other: Self) -> Self {
        let mut demands = Vec::new();
        for mut demand in self.demands {
            let same = other.demands.iter().find(|known| known.is_of_same(&demand));
            if let Some(same) = same {
                demand.widen(same);
                demands.push(demand);
            }
        }
        Self {
            hosts: union(self.hosts, other.hosts),
            paths: union(self.paths, other.paths),
            methods: union(self.methods, other.methods),
            protocols: self.protocols.or(other.protocols),
            demands,
        }
    }

    /// Merges the other cover into this one if they differ in one dimension only; otherwise returns false.
    fn merge(&mut self, other: &Self) -> bool {
        let same_demands = self.demands == other.demands;
        let same = [
            self.hosts == other.hosts,
            self.paths == other.paths,
            self.methods == other.methods,
            self.protocols == other.protocols,
            same_demands,
        ];
        match same {
            [true, true, true, true, true] => {}
            [false, true, true, true, true] => extend(&mut self.hosts, &other.hosts),
            [true, false, true, true, true] => extend(&mut self.paths, &other.paths),
            [true, true, false, true, true] => extend(&mut self.methods, &other.methods),
            [true, true, true, false, true] => self.protocols = self.protocols.or(other.protocols),
            [true, true, true, true, false] => {
                let ([own], [other]) = (&mut self.demands[..], &other.demands[..]) else {
                    return false;
                };
                if !own.is_of_same(other) {
                    return false;
                }
                own.widen(other);
            }
            _ => return false,
        }
        true
    }
}

/// Keeps one of two lists of values, although a request must satisfy both: the shorter list, or the more specific one
/// if they have the same length. A cover holds only one list per dimension.
fn fewest<K: Clone>(
    own: &mut Option<Vec<K>>,
    other: &Option<Vec<K>>,
    weight: impl Fn(&K) -> usize,
) {
    let Some(other) = other else {
        return;
    };
    let least = |keys: &[K]| keys.iter().map(&weight).min().unwrap_or(0);
    let is_better = |own: &[K]| {
        let order = own.len().cmp(&other.len());
        order.then_with(|| least(other).cmp(&least(own))).is_gt()
    };
    if own.as_deref().is_none_or(is_better) {
        *own = Some(other.clone());
    }
}

fn union<K: PartialEq>(left: Option<Vec<K>>, right: Option<Vec<K>>) -> Option<Vec<K>> {
    let (mut left, right) = (left?, right?);
    left.extend(right);
    Some(left)
}

fn extend<K: Clone>(own: &mut Option<Vec<K>>, other: &Option<Vec<K>>) {
    match (&mut *own, other) {
        (Some(own), Some(other)) => own.extend_from_slice(other),
        _ => *own = None,
    }
}

impl Demand {
    fn is_of_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Texts { of: one, .. }, Self::Texts { of: two, .. }) => one == two,
            (Self::Ranges { of: one, .. }, Self::Ranges { of: two, .. }) => one == two,
            (Self::Grams { of: one, .. }, Self::Grams { of: two, .. }) => one == two,
            _ => false,
        }
    }

    /// Combines two conditions that must both be satisfied.
    fn narrow(&mut self, other: &Self) {
        match (&mut *self, other) {
            (Self::Texts { texts: own, .. }, Self::Texts { texts: other, .. })
                if other.len() < own.len() =>
            {
                own.clone_from(other);
            }
            (Self::Ranges { ranges: own, .. }, Self::Ranges { ranges: other, .. }) => {
                *own = Range::in_both(own, other);
            }
            (
                Self::Grams {
                    alternatives: own, ..
                },
                Self::Grams {
                    alternatives: other,
                    ..
                },
            ) if other.len() < own.len() => own.clone_from(other),
            _ => {}
        }
    }

    /// Combines two conditions of which at least one must be satisfied.
    fn widen(&mut self, other: &Self) {
        match (self, other) {
            (Self::Texts { texts: own, .. }, Self::Texts { texts: other, .. }) => {
                own.extend_from_slice(other);
            }
            (Self::Ranges { ranges: own, .. }, Self::Ranges { ranges: other, .. }) => {
                own.extend_from_slice(other);
            }
            (
                Self::Grams {
                    alternatives: own, ..
                },
                Self::Grams {
                    alternatives: other,
                    ..
                },
            ) => own.extend_from_slice(other),
            _ => {}
        }
    }
}

impl Protocols {
    pub(crate) const ALL: Self = Self((1 << PROTOCOLS.len()) - 1);

    /// Returns the empty set for an unknown name.
    pub(crate) fn of(name: &[u8]) -> Self {
        let known = PROTOCOLS.iter().position(|known| known.as_bytes() == name);
        Self(known.map_or(0, |place| 1 << place))
    }

    fn others(self) -> Self {
        Self(Self::ALL.0 & !self.0)
    }

    fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl Default for Protocols {
    fn default() -> Self {
        Self::ALL
    }
}

impl HostKey {
    fn text(&self) -> &str {
        match self {
            Self::Exact(text) | Self::Prefix(text) | Self::Suffix(text) => text,
        }
    }
}

impl PathKey {
    fn literal(text: &str, at_end: bool) -> Self {
        Self {
            steps: vec![Step::Literal(text.as_bytes().into())],
            at_end,
            answer: PathAnswer::Decided,
        }
    }

    /// Specificity of the key: the minimum number of bytes that it matches.
    fn weight(&self) -> usize {
        let bytes = self.steps.iter().map(|step| match step {
            Step::Literal(bytes) => bytes.len(),
            Step::Class(_) => 1,
        });
        bytes.sum()
    }

    /// Returns a key that matches every path.
    pub(crate) fn anything() -> Self {
        Self {
            steps: Vec::new(),
            at_end: false,
            answer: PathAnswer::Open,
        }
    }

    /// Returns one key that matches all paths that any of `keys` matches.
    pub(crate) fn common(keys: &[Self]) -> Self {
        let mut starts = keys.iter().map(|key| match key.steps.first() {
            Some(Step::Literal(bytes)) => &bytes[..],
            _ => b"",
        });
        let first = starts.next().unwrap_or_default();
        let shared = starts.map(|start| {
            let pairs = first.iter().zip(start);
            pairs.take_while(|(left, right)| left == right).count()
        });
        let length = shared.min().unwrap_or(first.len());
        Self {
            steps: vec![Step::Literal(first[..length].into())],
            ..Self::anything()
        }
    }
}

fn of_text(predicate: &TextPredicate, flavor: Flavor) -> Cover {
    let mut cover = Cover::default();
    if predicate.transform == Transform::None {
        match (&predicate.field, &predicate.test) {
            (TextField::Host | TextField::SentHost | TextField::WildcardHost, _) => {
                cover.hosts = host_key(predicate, flavor).map(|key| vec![key]);
            }
            (TextField::Path, test) => cover.paths = path_keys(test),
            (TextField::Method, TextTest::Equals(method)) => {
                cover.methods = Some(vec![method.clone()]);
            }
            (TextField::Protocol, TextTest::Equals(name)) => {
                cover.protocols = Protocols::of(name.as_bytes());
            }
            (TextField::Protocol, TextTest::Differs(name)) => {
                cover.protocols = Protocols::of(name.as_bytes()).others();
            }
            _ => {}
        }
    }
    if !cover.says_all_of(&predicate.test) {
        cover.demands.extend(demand(predicate));
    }
    cover
}

/// Returns the condition for a field that has no index dimension of its own, or for a test that the dimension does not
/// support.
fn demand(predicate: &TextPredicate) -> Option<Demand> {
    let of = TextDimension {
        field: predicate.field.clone(),
        transform: predicate.transform,
    };
    let containing = |literals: &[&[u8]]| {
        let grams = literals.iter().flat_map(|literal| literal.windows(3));
        let grams: Vec<Gram> = grams.filter_map(|gram| gram.try_into().ok()).collect();
        (!grams.is_empty()).then(|| Demand::Grams {
            of: of.clone(),
            alternatives: vec![grams],
        })
    };
    // If a field has several values, a true predicate means that at least one of them passes the test. This holds for
    // both quantifiers, `Any` and `All`.
    match &predicate.test {
        TextTest::Equals(text) => Some(Demand::Texts {
            texts: vec![text.as_bytes().into()],
            of,
        }),
        TextTest::StartsWith(text) | TextTest::EndsWith(text) | TextTest::Contains(text) => {
            containing(&[text.as_bytes()])
        }
        TextTest::Matches(regex) => {
            let literals: Vec<&[u8]> = regex.literals().iter().map(|one| &**one).collect();
            containing(&literals)
        }
        TextTest::Differs(_) => None,
    }
}

fn host_key(predicate: &TextPredicate, flavor: Flavor) -> Option<HostKey> {
    match (&predicate.field, &predicate.test) {
        (TextField::SentHost, TextTest::Equals(sent)) => {
            let name = match flavor {
                Flavor::Traditional => Host::parse(sent.as_bytes()).name,
                Flavor::TraditionalCompatible | Flavor::Expressions => {
                    host::split(sent.as_bytes()).0
                }
            };
            let name = std::str::from_utf8(name).ok()?;
            Some(HostKey::Exact(name.into()))
        }
        (TextField::Host, TextTest::Equals(host)) => Some(HostKey::Exact(host.clone())),
        (TextField::Host | TextField::WildcardHost, TextTest::StartsWith(start)) => {
            (!start.is_empty()).then(|| HostKey::Prefix(start.clone()))
        }
        (TextField::Host | TextField::WildcardHost, TextTest::EndsWith(end)) => {
            (!end.is_empty()).then(|| HostKey::Suffix(end.clone()))
        }
        _ => None,
    }
}

fn path_keys(test: &TextTest) -> Option<Vec<PathKey>> {
    match test {
        TextTest::Equals(text) => Some(vec![PathKey::literal(text, true)]),
        TextTest::StartsWith(text) => Some(vec![PathKey::literal(text, false)]),
        TextTest::Matches(regex) => {
            let starts = regex.starts();
            let keys = starts.iter().map(|start| {
                let answer = match (start.is_whole(), starts.len()) {
                    (true, 1) => PathAnswer::DecidedInAscii,
                    _ => PathAnswer::Open,
                };
                PathKey {
                    steps: start.steps().to_vec(),
                    at_end: start.is_whole() && start.ends_text(),
                    answer,
                }
            });
            let keys: Vec<_> = keys.map(PathKey::bounded).collect();
            keys.iter().all(|key| !key.steps.is_empty()).then_some(keys)
        }
        _ => None,
    }
}

impl PathKey {
    /// Cuts the key so that it has at most [`MAX_CLASSES`] classes.
    fn bounded(mut self) -> Self {
        let is_class = |step: &Step| matches!(step, Step::Class(_));
        let classes = (0..self.steps.len()).filter(|&at| is_class(&self.steps[at]));
        if let Some(end) = classes.into_iter().nth(MAX_CLASSES) {
            self.steps.truncate(end);
            self.at_end = false;
            self.answer = PathAnswer::Open;
        }
        self
    }
}

fn of_number(predicate: &NumberPredicate) -> Cover {
    let value = predicate.value;
    let ranges = match predicate.comparison {
        Comparison::Equal => Range::between(value, value),
        Comparison::Less => Range::between(i64::MIN, value.saturating_sub(1)),
        Comparison::LessOrEqual => Range::between(i64::MIN, value),
        Comparison::Greater => Range::between(value.saturating_add(1), i64::MAX),
        Comparison::GreaterOrEqual => Range::between(value, i64::MAX),
        Comparison::NotEqual => return Cover::default(),
    };
    demanding(RangeDimension::Number(predicate.field), ranges)
}

fn of_address(predicate: &AddressPredicate) -> Cover {
    let range = match predicate.test {
        AddressTest::Equals(address) => Range::of_address(address),
        AddressTest::In(block) => Range::of_block(block),
        AddressTest::Differs(_) | AddressTest::NotIn(_) => return Cover::default(),
    };
    demanding(RangeDimension::Address(predicate.field), vec![range])
}

fn demanding(of: RangeDimension, ranges: Vec<Range>) -> Cover {
    Cover {
        demands: vec![Demand::Ranges { of, ranges }],
        ..Cover::default()
    }
}

/// The part of an expression that must still be evaluated for a request that a lookup found by one of the covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// The expression must be evaluated.
    Open,
    /// The expression is true and locates no part of the path.
    Decided,
    /// The expression is true if the path key decides the path. It then locates the part of the path that the key
    /// matched.
    AsPath,
}

/// A dimension in which a lookup can completely decide a part of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dimension {
    Host,
    Path,
    Method,
    Protocol,
}

/// Returns what must still be evaluated after a lookup by the only cover of the expression. A lookup decides only
/// conjunctions with at most one part per dimension, because a cover keeps only one of two conditions on a dimension.
pub(crate) fn rest(expression: &Expression) -> Rest {
    let parts = match expression {
        Expression::All(parts) => parts,
        other => std::slice::from_ref(other),
    };
    let mut seen = Vec::with_capacity(parts.len());
    for part in parts {
        match dimension(part) {
            Some(dimension) if !seen.contains(&dimension) => seen.push(dimension),
            _ => return Rest::Open,
        }
    }
    if seen.contains(&Dimension::Path) {
        Rest::AsPath
    } else {
        Rest::Decided
    }
}

/// Returns the dimension in which a lookup completely decides a part. Returns `None` if there is no such dimension.
fn dimension(part: &Expression) -> Option<Dimension> {
    let alternatives = match part {
        Expression::Any(alternatives) => alternatives,
        other => std::slice::from_ref(other),
    };
    let mut decided = alternatives.iter().map(predicate_dimension);
    let first = decided.next()??;
    if !decided.all(|other| other == Some(first)) {
        return None;
    }
    (first != Dimension::Path || locates_one(alternatives)).then_some(first)
}

/// Whether all alternatives locate the same part of a path. Otherwise the first matching alternative decides which part
/// is located, and the index does not know the order of the alternatives.
fn locates_one(alternatives: &[Expression]) -> bool {
    if alternatives.len() == 1 {
        return true;
    }
    let tests = alternatives.iter().map(|alternative| match alternative {
        Expression::Text(predicate) => Some(&predicate.test),
        _ => None,
    });
    let mut lengths = tests.map(|test| match test {
        Some(TextTest::StartsWith(start)) => Some(Some(start.len())),
        Some(TextTest::Equals(_)) => Some(None),
        _ => None,
    });
    let Some(Some(first)) = lengths.next() else {
        return false;
    };
    lengths.all(|other| other == Some(first))
}

fn predicate_dimension(expression: &Expression) -> Option<Dimension> {
    let Expression::Text(predicate) = expression else {
        return None;
    };
    if predicate.transform != Transform::None {
        return None;
    }
    match (&predicate.field, &predicate.test) {
        (TextField::Host, TextTest::Equals(_)) => Some(Dimension::Host),
        (TextField::Host, TextTest::StartsWith(text) | TextTest::EndsWith(text)) => {
            (!text.is_empty()).then_some(Dimension::Host)
        }
        (TextField::Path, TextTest::Equals(_) | TextTest::StartsWith(_) | TextTest::Matches(_)) => {
            Some(Dimension::Path)
        }
        (TextField::Method, TextTest::Equals(_)) => Some(Dimension::Method),
        (TextField::Protocol, TextTest::Equals(_) | TextTest::Differs(_)) => {
            Some(Dimension::Protocol)
        }
        _ => None,
    }
}
