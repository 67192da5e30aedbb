//! Fuzz target for expressions. Parsing any text must return an expression or an error. Printing or formatting an
//! expression must keep its meaning. A compiled expression that is printed and read again must give the same result.

use expr::{
    AddressField, Dialect, Expression, Fields, NoObserver, NumberField, Regex, RegexError,
    Subsystem, TextField, parse, read,
};
use std::net::IpAddr;
use std::ops::ControlFlow;

/// Maximum length of a regex. Longer ones are replaced by the empty regex, because they take too long to compile and
/// find no further errors.
const MAX_PATTERN: usize = 200;

/// Checks an expression. The first byte of the input chooses the subsystem and the line width of the layout. The text
/// of the expression follows, then the values of a request. A byte 0xFF, which never occurs in UTF-8, precedes each
/// value.
pub fn expression(data: &[u8]) {
    let Some((&first, data)) = data.split_first() else {
        return;
    };
    let subsystem = match first & 1 {
        0 => Subsystem::Http,
        _ => Subsystem::Stream,
    };
    let mut parts = data.split(|&byte| byte == 0xff);
    let text = parts.next().unwrap_or_default();
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    let parsed = match parse(text) {
        Ok(parsed) => parsed,
        Err(error) => return pointed(text, &error),
    };
    let printed = parsed.to_string();
    let again = parse(&printed).unwrap_or_else(|error| panic!("{printed}\n{error}"));
    assert_eq!(again, parsed, "{printed}");
    assert_eq!(again.to_string(), printed);
    let width = usize::from(first / 2);
    let laid_out = parsed.format(width);
    let again = parse(&laid_out).unwrap_or_else(|error| panic!("{laid_out}\n{error}"));
    assert_eq!(again, parsed, "{laid_out}");
    assert_eq!(again.format(width), laid_out);
    match read(text, subsystem, &mut regex) {
        Ok(compiled) => {
            let values = parts.collect();
            answers(&compiled, subsystem, &Request { values });
        }
        Err(error) => pointed(text, &error),
    }
}

/// Checks that the error points into the text and that the excerpt of the line is short.
fn pointed(text: &str, error: &expr::Error) {
    assert!(text.get(error.span.clone()).is_some(), "{:?}", error.span);
    assert!(error.line() > 0 && error.column() > 0);
    let shown = error.to_string();
    let excerpt = shown.lines().find(|line| {
        let line = line.trim_start_matches(|digit: char| digit.is_ascii_digit());
        line.starts_with(" | ")
    });
    let excerpt = excerpt.unwrap_or_else(|| panic!("no line in {shown}"));
    assert!(excerpt.chars().count() < 1_000, "{shown}");
}

/// Checks that a compiled expression gives the same result after it is printed and read again.
fn answers(compiled: &Expression, subsystem: Subsystem, request: &Request<'_>) {
    let shown = compiled.to_string();
    let again = read(&shown, subsystem, &mut regex);
    let again = again.unwrap_or_else(|error| panic!("{shown}\n{error}"));
    assert_eq!(again.to_string(), shown);
    let mut buffer = Vec::new();
    let answer = compiled.evaluate(request, &mut buffer, &mut NoObserver);
    let other = again.evaluate(request, &mut buffer, &mut NoObserver);
    assert_eq!(answer, other, "{shown}");
}

fn regex(pattern: &str) -> Result<Regex, RegexError> {
    let pattern = match pattern.len() {
        0..=MAX_PATTERN => pattern,
        _ => "",
    };
    Regex::new(pattern, Dialect::Rust)
}

/// A request whose text fields are the values by position: first the path, then the host, and so on. A field has no
/// value if there is none at its position.
struct Request<'d> {
    values: Vec<&'d [u8]>,
}

impl Fields for Request<'_> {
    fn text(&self, field: &TextField) -> Option<&[u8]> {
        let at = match field {
            TextField::Path => 0,
            TextField::Host => 1,
            TextField::Method => 2,
            TextField::Segments { first, .. } => *first as usize,
            _ => 3,
        };
        self.values.get(at).copied()
    }

    fn texts(&self, _field: &TextField, visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) {
        let _ = self.values.iter().try_for_each(|value| visit(value));
    }

    fn number(&self, field: NumberField) -> Option<i64> {
        match field {
            NumberField::SourcePort => Some(i64::from(u16::MAX)),
            NumberField::DestinationPort => None,
            NumberField::SegmentCount => i64::try_from(self.values.len()).ok(),
        }
    }

    fn address(&self, field: AddressField) -> Option<IpAddr> {
        let bytes = self.values.first()?.first_chunk::<4>()?;
        match field {
            AddressField::Source => Some(IpAddr::from(*bytes)),
            AddressField::Destination => None,
        }
    }
}
