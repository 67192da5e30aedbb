//! Lua patterns, which Kong's schemas are written in, as regular expressions: linear on any input. The few shapes that
//! occur in fields of large configurations are recognised and compared directly.

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
    Regex(Regex),
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
        let ended = pattern.ends_with('$') && !pattern.ends_with("%$");
        let body = &pattern[usize::from(anchored)..pattern.len() - usize::from(ended)];
        Ok(match (literal(body), anchored, ended) {
            (Some(text), true, true) => Self::Exact(text),
            (Some(text), true, false) => Self::Prefix(text),
            (Some(text), false, true) => Self::Suffix(text),
            (Some(text), false, false) => Self::Contains(text),
            (None, ..) => Self::Regex(Regex::new(&translate(body, anchored, ended)?)?),
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
            Self::Regex(regex) => regex.is_match(text.as_bytes()),
        }
    }
}

/// The text that a pattern without anchors stands for, when it is nothing but text.
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

fn translate(body: &str, anchored: bool, ended: bool) -> Result<String, PatternError> {
    let unsupported = || PatternError::Unsupported(body.to_owned());
    let mut regex = String::from("(?s-u)");
    if anchored {
        regex.push('^');
    }
    let mut chars = body.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '%' => {
                let class = chars.next().ok_or_else(unsupported)?;
                regex.push_str(&class_item(class, false).ok_or_else(unsupported)?);
            }
            '[' => set(&mut chars, &mut regex).ok_or_else(unsupported)?,
            '.' | '(' | ')' => regex.push(c),
            c => regex.push_str(&regex::escape(c.encode_utf8(&mut [0; 4]))),
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

fn set(chars: &mut std::iter::Peekable<std::str::Chars<'_>>, regex: &mut String) -> Option<()> {
    regex.push('[');
    if chars.peek() == Some(&'^') {
        chars.next();
        regex.push('^');
    }
    let mut first = true;
    loop {
        match chars.next()? {
            ']' if !first => break,
            '%' => regex.push_str(&class_item(chars.next()?, true)?),
            low => {
                let mut ahead = chars.clone();
                if ahead.next() == Some('-') && ahead.next().is_some_and(|high| high != ']') {
                    chars.next();
                    let high = chars.next()?;
                    regex.push_str(&format!("{}-{}", escape(low), escape(high)));
                } else {
                    regex.push_str(&escape(low));
                }
            }
        }
        first = false;
    }
    regex.push(']');
    Some(())
}

/// A character for use inside a set.
fn escape(c: char) -> String {
    if c.is_ascii_punctuation() {
        format!("\\{c}")
    } else {
        c.to_string()
    }
}

fn class_item(class: char, in_set: bool) -> Option<String> {
    let name = match class.to_ascii_lowercase() {
        'a' => "alpha",
        'c' => "cntrl",
        'd' => "digit",
        'l' => "lower",
        'p' => "punct",
        's' => "space",
        'u' => "upper",
        'w' => "alnum",
        'x' => "xdigit",
        c if c.is_ascii_alphanumeric() => return None,
        _ => return Some(escape(class)),
    };
    let item = if class.is_ascii_uppercase() {
        format!("[:^{name}:]")
    } else {
        format!("[:{name}:]")
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
}
