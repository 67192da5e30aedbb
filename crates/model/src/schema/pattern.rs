//! Translates the Lua patterns of Kong's schemas to regular expressions, which take linear time on any input. The few
//! patterns that are common in large configurations are recognised and compared without a regular expression.

use regex::bytes::Regex;

#[derive(Debug, Clone)]
pub(crate) enum Pattern {
    Exact(String),
    Prefix(String),
    Suffix(String),
    Contains(String),
    /// `^%u+$`
    UpperCase,
    /// `^[^*]*$`
    NoStar,
    /// `^[^*]*%*?[^*]*$`
    OneStarAtMost,
    Regex {
        regex: Regex,
        ecma: Option<String>,
    },
}

/// The target dialect of a translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    Rust,
    /// ECMA-262 with its `u` flag, which JSON Schema's `pattern` uses. This dialect forbids unnecessary escapes.
    Ecma,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum PatternError {
    #[error("unsupported item in Lua pattern {0:?}")]
    Unsupported(String),
    #[error(transparent)]
    Regex(#[from] regex::Error),
}

impl Pattern {
    pub(crate) fn compile(pattern: &str) -> Result<Self, PatternError> {
        match pattern {
            "^%u+$" => return Ok(Self::UpperCase),
            "^[^*]*$" => return Ok(Self::NoStar),
            "^[^*]*%*?[^*]*$" => return Ok(Self::OneStarAtMost),
            _ => {}
        }
        let anchored = pattern.starts_with('^');
        let ended = pattern.strip_suffix('$').is_some_and(|rest| {
            // An odd number of `%` escapes the `$`.
            rest.bytes().rev().take_while(|byte| *byte == b'%').count() % 2 == 0
        });
        let body = &pattern[usize::from(anchored)..pattern.len() - usize::from(ended)];
        Ok(match (literal(body), anchored, ended) {
            (Some(text), true, true) => Self::Exact(text),
            (Some(text), true, false) => Self::Prefix(text),
            (Some(text), false, true) => Self::Suffix(text),
            (Some(text), false, false) => Self::Contains(text),
            (None, ..) => Self::Regex {
                regex: Regex::new(&translate(body, anchored, ended, Dialect::Rust)?)?,
                ecma: translate(body, anchored, ended, Dialect::Ecma).ok(),
            },
        })
    }

    pub(crate) fn is_match(&self, text: &str) -> bool {
        match self {
            Self::Exact(wanted) => text == wanted,
            Self::Prefix(wanted) => text.starts_with(wanted.as_str()),
            Self::Suffix(wanted) => text.ends_with(wanted.as_str()),
            Self::Contains(wanted) => text.contains(wanted.as_str()),
            Self::UpperCase => !text.is_empty() && text.bytes().all(|b| b.is_ascii_uppercase()),
            Self::NoStar => !text.contains('*'),
            Self::OneStarAtMost => text.bytes().filter(|&b| b == b'*').count() <= 1,
            Self::Regex { regex, .. } => regex.is_match(text.as_bytes()),
        }
    }

    /// Returns the pattern in the dialect of JSON Schema, or `None` if it cannot be expressed there.
    pub(crate) fn ecma(&self) -> Option<String> {
        Some(match self {
            Self::Exact(text) => format!("^{}$", escape_ecma(text)),
            Self::Prefix(text) => format!("^{}", escape_ecma(text)),
            Self::Suffix(text) => format!("{}$", escape_ecma(text)),
            Self::Contains(text) => escape_ecma(text),
            Self::UpperCase => "^[A-Z]+$".to_owned(),
            Self::NoStar => "^[^*]*$".to_owned(),
            Self::OneStarAtMost => r"^[^*]*\*?[^*]*$".to_owned(),
            Self::Regex { ecma, .. } => return ecma.clone(),
        })
    }
}

/// Returns the only text that a pattern without anchors matches. Returns `None` if the pattern contains special
/// characters that are not escaped.
fn literal(body: &str) -> Option<String> {
    let mut text = String::new();
    let mut chars = body.chars();
    while let Some(c) = chars.next() {
        match c {
            '%' => match chars.next()? {
                c if c.is_ascii_alphanumeric() => return None,
                c => text.push(c),
            },
            '.' | '[' | ']' | '*' | '+' | '-' | '?' | '(' | ')' | '^' | '$' => return None,
            c => text.push(c),
        }
    }
    Some(text)
}

fn translate(
    body: &str,
    anchored: bool,
    ended: bool,
    dialect: Dialect,
) -> Result<String, PatternError> {
    let unsupported = || PatternError::Unsupported(body.to_owned());
    let mut regex = match dialect {
        Dialect::Rust => String::from("(?s-u)"),
        Dialect::Ecma => String::new(),
    };
    if anchored {
        regex.push('^');
    }
    let mut chars = body.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '%' => {
                let class = chars.next().ok_or_else(unsupported)?;
                regex.push_str(&class_item(class, false, dialect).ok_or_else(unsupported)?);
            }
            '[' => set(&mut chars, &mut regex, dialect).ok_or_else(unsupported)?,
            '.' if dialect == Dialect::Ecma => regex.push_str(r"[\s\S]"),
            '.' | '(' | ')' => regex.push(c),
            c => regex.push_str(&escape(c, dialect)),
        }
        match chars.peek() {
            Some('-') => {
                chars.next();
                regex.push_str("*?");
            }
            Some(&quantifier @ ('*' | '+' | '?')) if c != '(' => {
                chars.next();
                regex.push(quantifier);
            }
            _ => {}
        }
    }
    if ended {
        regex.push('$');
    }
    Ok(regex)
}

fn set(
    chars: &mut std::iter::Peekable<std::str::Chars<'_>>,
    regex: &mut String,
    dialect: Dialect,
) -> Option<()> {
    regex.push('[');
    if chars.peek() == Some(&'^') {
        chars.next();
        regex.push('^');
    }
    let mut first = true;
    loop {
        match chars.next()? {
            ']' if !first => break,
            '%' => regex.push_str(&class_item(chars.next()?, true, dialect)?),
            low => {
                let mut ahead = chars.clone();
                if ahead.next() == Some('-') && ahead.next().is_some_and(|high| high != ']') {
                    chars.next();
                    let high = chars.next()?;
                    regex.push_str(&escape(low, dialect));
                    regex.push('-');
                    regex.push_str(&escape(high, dialect));
                } else if low == '-' {
                    // A literal `-` must be escaped in a set. `escape` does not do this for ECMA.
                    regex.push_str(r"\-");
                } else {
                    regex.push_str(&escape(low, dialect));
                }
            }
        }
        first = false;
    }
    regex.push(']');
    Some(())
}

/// Escapes a literal character, inside or outside of a set. Callers handle `-` in a set.
fn escape(c: char, dialect: Dialect) -> String {
    let special = match dialect {
        Dialect::Rust => c.is_ascii_punctuation(),
        Dialect::Ecma => r"^$\.*+?()[]{}|/".contains(c),
    };
    if special {
        format!("\\{c}")
    } else {
        c.to_string()
    }
}

pub(crate) fn escape_ecma(text: &str) -> String {
    text.chars().map(|c| escape(c, Dialect::Ecma)).collect()
}

fn class_item(class: char, in_set: bool, dialect: Dialect) -> Option<String> {
    let (name, ranges) = match class.to_ascii_lowercase() {
        'a' => ("alpha", "A-Za-z"),
        'c' => ("cntrl", r"\x00-\x1f\x7f"),
        'd' => ("digit", "0-9"),
        'l' => ("lower", "a-z"),
        'p' => ("punct", r"!-\/:-@\[-`\{-~"),
        's' => ("space", r"\t-\r "),
        'u' => ("upper", "A-Z"),
        'w' => ("alnum", "0-9A-Za-z"),
        'x' => ("xdigit", "0-9A-Fa-f"),
        c if c.is_ascii_alphanumeric() => return None,
        '-' if in_set => return Some(r"\-".to_owned()),
        _ => return Some(escape(class, dialect)),
    };
    let item = match (dialect, class.is_ascii_uppercase()) {
        (Dialect::Rust, true) => format!("[:^{name}:]"),
        (Dialect::Rust, false) => format!("[:{name}:]"),
        (Dialect::Ecma, false) => ranges.to_owned(),
        (Dialect::Ecma, true) if in_set => return None,
        (Dialect::Ecma, true) => format!("^{ranges}"),
    };
    Some(if in_set { item } else { format!("[{item}]") })
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    fn matches(pattern: &str, text: &str) -> bool {
        Pattern::compile(pattern).unwrap().is_match(text)
    }

    #[test]
    fn literals_and_anchors_are_compared_directly() {
        assert!(matches("//", "/a//b"));
        assert!(!matches("//", "/a/b"));
        assert!(matches("^~/", "~/a"));
        assert!(matches("%.%*$", "a.*"));
        assert!(matches("^header$", "header"));
        assert!(!matches("^header$", "headers"));
        assert!(matches("^50%%$", "50%"));
        assert!(!matches("^50%%$", "50%$"));
        assert!(matches("^5%$", "5$ more"));
        assert!(matches("a%%%$", "a%$b"));
    }

    #[test]
    fn sets_classes_and_lazy_quantifiers_are_translated() {
        assert!(matches("^[a-z][a-z%d-]-[a-z%d]+$", "my-env"));
        assert!(!matches("^[a-z][a-z%d-]-[a-z%d]+$", "x"));
        assert!(!matches("^[a-z][a-z%d-]-[a-z%d]+$", "my-"));
        assert!(matches("^[Hh][Oo][Ss][Tt]$", "hoST"));
        assert!(matches("^%d+[%.%d]*$", "3.9.1"));
        assert!(matches("^[^*&%%\\`]+$", "/tmp/é.log"));
        assert!(!matches("^[^*&%%\\`]+$", "a%b"));
    }

    #[test]
    fn patterns_are_written_for_json_schema_too() {
        for (lua, ecma) in [
            ("//", r"\/\/"),
            ("^~/", r"^~\/"),
            ("%.%*$", r"\.\*$"),
            ("^[^*]*%*?[^*]*$", r"^[^*]*\*?[^*]*$"),
            ("^[a-z][a-z%d-]-[a-z%d]+$", r"^[a-z][a-z0-9\-]*?[a-z0-9]+$"),
            ("^[^*&%%\\`]+$", r"^[^\*&%\\`]+$"),
            ("^[^:]+:.*$", r"^[^:]+:[\s\S]*$"),
            ("%-%w%S", "-[0-9A-Za-z][^\\t-\\r ]"),
        ] {
            let pattern = Pattern::compile(lua).unwrap();
            assert_eq!(pattern.ecma().as_deref(), Some(ecma), "{lua}");
        }
        assert_eq!(Pattern::compile("[%D.]x").unwrap().ecma(), None);
    }
}
