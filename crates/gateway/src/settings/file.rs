//! Parses the syntax of `kong.conf`: `name = value` lines, `#` comments, `\#` for a `#` inside a value, and a backslash
//! at the end of a line that continues in the next one. Names and values are not checked here.

/// A `name = value` line of the file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Line number, counted from 1.
    pub(crate) number: usize,
    pub(crate) name: String,
    pub(crate) value: String,
}

/// A line that is neither a setting nor a comment.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {number}: expected `name = value`, found `{text}`")]
pub(crate) struct SyntaxError {
    pub(crate) number: usize,
    text: String,
}

/// Reads every line. Wrong lines are returned too, so that all of them can be reported together.
pub(crate) fn parse(text: &str) -> (Vec<Line>, Vec<SyntaxError>) {
    let mut lines = Vec::new();
    let mut errors = Vec::new();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut rest = text.lines().enumerate();
    while let Some((index, first)) = rest.next() {
        let mut content = without_comment(first);
        while content.ends_with('\\') {
            content.pop();
            match rest.next() {
                Some((_, next)) => content.push_str(without_comment(next).trim_start()),
                None => break,
            }
        }
        let content = content.trim();
        if content.is_empty() {
            continue;
        }
        match split(content) {
            Some((name, value)) => lines.push(Line {
                number: index + 1,
                name: name.to_owned(),
                value: unquoted(value).to_owned(),
            }),
            None => errors.push(SyntaxError {
                number: index + 1,
                text: content.chars().take(60).collect(),
            }),
        }
    }
    (lines, errors)
}

fn split(content: &str) -> Option<(&str, &str)> {
    let (name, value) = content.split_once('=')?;
    let name = name.trim();
    let plain = !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    plain.then_some((name, value.trim()))
}

fn without_comment(line: &str) -> String {
    let mut content = String::with_capacity(line.len());
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' if characters.peek() == Some(&'#') => {
                characters.next();
                content.push('#');
            }
            '#' => break,
            _ => content.push(character),
        }
    }
    content.truncate(content.trim_end().len());
    content
}

fn unquoted(value: &str) -> &str {
    for quote in ['"', '\''] {
        if let Some(inner) = value
            .strip_prefix(quote)
            .and_then(|value| value.strip_suffix(quote))
        {
            return inner;
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        let (lines, errors) = parse(text);
        assert_eq!(errors, []);
        lines
            .into_iter()
            .map(|line| (line.name, line.value))
            .collect()
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn comments_blank_lines_and_spaces_are_ignored() {
        assert_eq!(
            pairs("# all\n\n  prefix=/srv/kong # here\nlog_level = info\r\n#log_level = debug\n"),
            [pair("prefix", "/srv/kong"), pair("log_level", "info")]
        );
    }

    #[test]
    fn an_escaped_hash_belongs_to_the_value() {
        assert_eq!(
            pairs(r"pg_password = pa\#ss\\word"),
            [pair("pg_password", r"pa#ss\\word")]
        );
    }

    #[test]
    fn quotes_around_a_value_are_removed() {
        assert_eq!(pairs("prefix = \"/a b\""), [pair("prefix", "/a b")]);
        assert_eq!(pairs("prefix = '"), [pair("prefix", "'")]);
    }

    #[test]
    fn a_backslash_continues_the_line() {
        assert_eq!(
            pairs("plugins = key-auth, \\\n  request-termination\n"),
            [pair("plugins", "key-auth, request-termination")]
        );
    }

    #[test]
    fn an_empty_value_is_a_value() {
        assert_eq!(pairs("prefix ="), [pair("prefix", "")]);
    }

    #[test]
    fn every_wrong_line_is_reported_with_its_number() {
        let (lines, errors) = parse("[section]\nprefix = /a\nnonsense\n= 3\n");
        assert_eq!(lines.len(), 1);
        let numbers: Vec<_> = errors.iter().map(|error| error.number).collect();
        assert_eq!(numbers, [1, 3, 4]);
        assert_eq!(
            errors[1].to_string(),
            "line 3: expected `name = value`, found `nonsense`"
        );
    }
}
