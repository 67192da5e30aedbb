//! The route tables of public APIs (`data/apis`). Each path template can be turned into a regex, an expression over
//! segments, or a sample path.

use super::one_of;
use std::fmt::Write as _;

/// A public API with known paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    GitHub,
    Stripe,
    Kubernetes,
}

/// A path with its allowed methods.
#[derive(Debug, Clone)]
pub struct Endpoint {
    pub methods: Vec<&'static str>,
    pub template: Template,
}

/// A path template with parameters.
#[derive(Debug, Clone)]
pub struct Template {
    pub text: &'static str,
    /// The segments between slashes, without the empty one before the first slash.
    pub segments: Vec<Part>,
}

/// A segment of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    Literal(&'static str),
    /// A parameter that matches one segment.
    Parameter(&'static str),
    /// Two parameters in one segment with a text between them.
    Pair {
        first: &'static str,
        between: &'static str,
        second: &'static str,
    },
    /// A parameter at the end of a template. It matches one or more segments.
    Rest(&'static str),
}

/// Sample values of parameters: names, numbers, versions, identifiers, hashes and escapes.
const VALUES: [&str; 8] = [
    "octocat",
    "42",
    "hello-world",
    "v1.2.3",
    "acct_1032D82eZvKYlo2C",
    "6dcb09b5b57875f334f61aebed695e2e4193db5e",
    "feature%2Frouter",
    "kube-system",
];

impl Api {
    pub const ALL: [Self; 3] = [Self::GitHub, Self::Stripe, Self::Kubernetes];

    /// Returns every endpoint, sorted by path.
    pub fn endpoints(self) -> Vec<Endpoint> {
        let text = match self {
            Self::GitHub => include_str!("../../data/apis/github.txt"),
            Self::Stripe => include_str!("../../data/apis/stripe.txt"),
            Self::Kubernetes => include_str!("../../data/apis/kubernetes.txt"),
        };
        text.lines().map(Endpoint::read).collect()
    }
}

impl Endpoint {
    fn read(line: &'static str) -> Self {
        let (path, methods) = line
            .split_once(' ')
            .expect("a line is a path and its methods");
        Self {
            methods: methods.split(',').collect(),
            template: Template::read(path),
        }
    }

    /// Returns a regex expression for this endpoint below `prefix`, which must not end in a slash.
    pub fn regex_expression(&self, prefix: &str) -> String {
        let regex = self.template.regex();
        let mut text = format!(r##"http.path ~ r#"^{prefix}{regex}"#"##);
        self.write_methods(&mut text);
        text
    }

    /// Returns a segment expression for this endpoint below `prefix`, which has one segment or is empty.
    pub fn segments_expression(&self, prefix: &str) -> String {
        let mut text = self.template.segments_expression(prefix);
        self.write_methods(&mut text);
        text
    }

    fn write_methods(&self, text: &mut String) {
        if let Some(methods) = one_of("http.method ==", self.methods.iter().copied()) {
            text.push_str(" && ");
            text.push_str(&methods);
        }
    }
}

impl Template {
    fn read(text: &'static str) -> Self {
        let inner = text.strip_prefix('/').expect("a path begins with a slash");
        Self {
            text,
            segments: inner.split('/').map(Part::read).collect(),
        }
    }

    /// Returns the regex that follows `~` in a route's path. Parameters become named groups. The regex is anchored at
    /// the end only, because the router anchors it at the start.
    pub fn regex(&self) -> String {
        let mut regex = String::new();
        for part in &self.segments {
            regex.push('/');
            part.write_regex(&mut regex);
        }
        regex.push('$');
        regex
    }

    /// Returns the priority of the template. If two templates match the same path, the more specific template has the
    /// greater priority.
    pub fn priority(&self) -> u16 {
        // Each literal segment sets a bit. Earlier segments have higher bits. A template has at most 12 segments.
        let bits = self.segments.iter().zip((0..12).rev());
        bits.filter(|(part, _)| matches!(part, Part::Literal(_)))
            .fold(0, |all, (_, bit)| all | 1 << bit)
    }

    /// Returns an expression without regexes that compares the number of segments and all literal segments.
    fn segments_expression(&self, prefix: &str) -> String {
        let before = usize::from(!prefix.is_empty());
        // The expression language does not count the empty segment after a final slash.
        let own = self.segments.iter();
        let count = before + own.filter(|part| **part != Part::Literal("")).count();
        let operator = match self.segments.last() {
            Some(Part::Rest(_)) => ">=",
            _ => "==",
        };
        let mut text = format!("http.path.segments.len {operator} {count}");
        if let Some(segment) = prefix.strip_prefix('/') {
            write!(text, r#" && http.path.segments.0 == "{segment}""#).expect("it is a String");
        }
        for (part, at) in self.segments.iter().zip(before..) {
            let test = match part {
                Part::Literal("") | Part::Parameter(_) | Part::Rest(_) => continue,
                Part::Literal(literal) => format!(r#"== "{literal}""#),
                Part::Pair { between, .. } => format!(r#"contains "{between}""#),
            };
            write!(text, " && http.path.segments.{at} {test}").expect("it is a String");
        }
        text
    }

    /// Returns a normalised path that matches this template. Different numbers give different paths.
    pub fn path(&self, number: usize) -> String {
        let mut path = String::new();
        for (at, part) in self.segments.iter().enumerate() {
            let mut value = VALUES[(number + at) % VALUES.len()].to_owned();
            // After the first few values, a suffix makes all paths differ.
            if number >= VALUES.len() {
                write!(value, "-{number}").expect("it is a String");
            }
            path.push('/');
            match part {
                Part::Literal(literal) => path.push_str(literal),
                Part::Parameter(_) => path.push_str(&value),
                Part::Pair { between, .. } => {
                    write!(path, "{value}{between}main").expect("it is a String");
                }
                Part::Rest(_) => write!(path, "docs/{value}/index.html").expect("it is a String"),
            }
        }
        path
    }

    /// Whether a normalised path matches the template. This uses no regexes, so that tests can compare the results of
    /// routers with it.
    pub fn takes(&self, path: &str) -> bool {
        let Some(inner) = path.strip_prefix('/') else {
            return false;
        };
        let mut given = inner.split('/');
        for part in &self.segments {
            let Some(segment) = given.next() else {
                return false;
            };
            if let Part::Rest(_) = part {
                return !segment.is_empty() || given.next().is_some();
            }
            if !part.takes(segment) {
                return false;
            }
        }
        given.next().is_none()
    }
}

impl Part {
    fn read(segment: &'static str) -> Self {
        let Some(inner) = segment.strip_prefix('{') else {
            return Self::Literal(segment);
        };
        let (first, after) = inner.split_once('}').expect("a brace is closed");
        if let Some((between, second)) = after.split_once('{') {
            return Self::Pair {
                first,
                between,
                second: second.trim_end_matches('}'),
            };
        }
        match first {
            "path" => Self::Rest(first),
            _ => Self::Parameter(first),
        }
    }

    fn write_regex(&self, regex: &mut String) {
        match self {
            Self::Literal(literal) => regex.push_str(&escaped(literal)),
            Self::Parameter(name) => {
                // Group names must not contain hyphens.
                let name = name.replace('-', "_");
                write!(regex, "(?<{name}>[^/]+)").expect("it is a String");
            }
            Self::Pair {
                first,
                between,
                second,
            } => {
                let between = escaped(between);
                write!(regex, "(?<{first}>[^/]+){between}(?<{second}>[^/]+)")
                    .expect("it is a String");
            }
            Self::Rest(name) => write!(regex, "(?<{name}>.+)").expect("it is a String"),
        }
    }

    fn takes(&self, segment: &str) -> bool {
        match self {
            Self::Literal(literal) => *literal == segment,
            Self::Parameter(_) | Self::Rest(_) => !segment.is_empty(),
            // The text may occur several times. One occurrence with text on both sides is enough.
            Self::Pair { between, .. } => segment
                .match_indices(between)
                .any(|(at, found)| at > 0 && at + found.len() < segment.len()),
        }
    }
}

/// Escapes dots, the only regex metacharacter in the literals of the tables.
fn escaped(literal: &str) -> String {
    literal.replace('.', r"\.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_becomes_a_regex_and_expressions() {
        let endpoint = Endpoint::read("/a.b/{id}/c/{base}...{head} GET,PUT");
        assert_eq!(
            endpoint.template.regex(),
            r"/a\.b/(?<id>[^/]+)/c/(?<base>[^/]+)\.\.\.(?<head>[^/]+)$"
        );
        assert_eq!(
            endpoint.segments_expression("/service-7"),
            concat!(
                r#"http.path.segments.len == 5 && http.path.segments.0 == "service-7" && http.path.segments.1 == "a.b""#,
                r#" && http.path.segments.3 == "c" && http.path.segments.4 contains "...""#,
                r#" && (http.method == "GET" || http.method == "PUT")"#
            )
        );
        assert_eq!(endpoint.template.priority(), 0b1010 << 8);
    }

    #[test]
    fn every_template_takes_the_paths_made_of_it() {
        for endpoint in Api::ALL.into_iter().flat_map(Api::endpoints) {
            assert!(!endpoint.methods.is_empty() && endpoint.template.segments.len() <= 12);
            for number in 0..VALUES.len() {
                let path = endpoint.template.path(number);
                assert!(endpoint.template.takes(&path), "{path}");
                assert!(!endpoint.template.takes(&format!("/x{path}")), "{path}");
            }
        }
    }

    #[test]
    fn the_tables_are_as_long_as_their_readme_says() {
        let lengths = Api::ALL.map(|api| {
            let endpoints = api.endpoints();
            let operations = endpoints.iter().map(|endpoint| endpoint.methods.len());
            (endpoints.len(), operations.sum::<usize>())
        });
        assert_eq!(lengths, [(811, 1223), (468, 650), (381, 999)]);
    }
}
