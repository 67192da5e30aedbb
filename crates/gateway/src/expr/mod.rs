//! `silverback expr`: checks, formats and explains expressions without a gateway.

mod words;

use crate::cli::{ExprCommand, ExprInput};
use crate::commands::{Failure, say, warn};
use expr::{Dialect, Expression, Parsed, Regex, Subsystem};
use std::fmt::Write as _;
use std::io::Read;
use std::path::Path;

pub(crate) fn run(command: &ExprCommand) -> Result<(), Failure> {
    match command {
        ExprCommand::Check { stream, input } => check(input, subsystem(*stream)),
        ExprCommand::Format {
            width,
            write,
            input,
        } => format(input, usize::from(*width), *write),
        ExprCommand::Explain { stream, input } => explain(input, subsystem(*stream)),
    }
}

fn subsystem(stream: bool) -> Subsystem {
    if stream {
        Subsystem::Stream
    } else {
        Subsystem::Http
    }
}

/// An expression, and the file that it was read from.
struct Text<'i> {
    text: String,
    file: Option<&'i Path>,
}

impl Text<'_> {
    /// Puts the file name in front of a problem, because there may be several files.
    fn at(&self, problem: impl std::fmt::Display) -> String {
        match self.file {
            Some(file) => format!("{}: {problem}", file.display()),
            None => problem.to_string(),
        }
    }

    fn parse(&self) -> Result<Parsed, Failure> {
        expr::parse(&self.text).map_err(|error| Failure::new(self.at(error)))
    }

    fn read(&self, subsystem: Subsystem) -> Result<Expression, Failure> {
        let mut compile = |pattern: &str| Regex::new(pattern, Dialect::Rust);
        let expression = expr::read(&self.text, subsystem, &mut compile);
        expression.map_err(|error| Failure::new(self.at(error)))
    }
}

fn texts(input: &ExprInput) -> Result<Vec<Text<'_>>, Failure> {
    if let Some(text) = input.text.clone() {
        return Ok(vec![Text { text, file: None }]);
    }
    if input.files.is_empty() {
        let mut text = String::new();
        let read = std::io::stdin().read_to_string(&mut text);
        read.map_err(|error| Failure::new(format!("cannot read an expression: {error}")))?;
        return Ok(vec![Text { text, file: None }]);
    }
    let read = input.files.iter().map(|file| {
        let text = std::fs::read_to_string(file);
        let text = text.map_err(|error| {
            let file = file.display();
            Failure::new(format!("cannot read the expression {file}: {error}"))
        })?;
        Ok(Text {
            text,
            file: Some(file),
        })
    });
    read.collect()
}

fn check(input: &ExprInput, subsystem: Subsystem) -> Result<(), Failure> {
    let mut failure = Failure::default();
    let texts = texts(input)?;
    for text in &texts {
        match text.read(subsystem) {
            Ok(expression) => {
                for warning in words::warnings(&expression) {
                    warn(&text.at(warning));
                }
            }
            Err(error) => failure.add(error),
        }
    }
    if failure.is_empty() {
        say("valid\n")
    } else {
        Err(failure)
    }
}

fn format(input: &ExprInput, width: usize, write: bool) -> Result<(), Failure> {
    let mut failure = Failure::default();
    for text in &texts(input)? {
        let formatted = match text.parse() {
            Ok(parsed) => parsed.format(width) + "\n",
            Err(error) => {
                failure.add(error);
                continue;
            }
        };
        let done = match text.file.filter(|_| write) {
            Some(_) if formatted == text.text => Ok(()),
            Some(file) => std::fs::write(file, formatted)
                .map_err(|error| Failure::new(text.at(format!("cannot be written: {error}")))),
            None => say(&formatted),
        };
        failure.extend(done.err());
    }
    if failure.is_empty() {
        Ok(())
    } else {
        Err(failure)
    }
}

fn explain(input: &ExprInput, subsystem: Subsystem) -> Result<(), Failure> {
    let mut failure = Failure::default();
    for text in &texts(input)? {
        match text.read(subsystem) {
            Ok(expression) => say(&explanation(&expression))?,
            Err(error) => failure.add(error),
        }
    }
    if failure.is_empty() {
        Ok(())
    } else {
        Err(failure)
    }
}

fn explanation(expression: &Expression) -> String {
    let mut out = format!("{expression}\n\nTrue where\n");
    words::describe(expression, 1, &mut out);
    let warnings = words::warnings(expression);
    if !warnings.is_empty() {
        out.push_str("\nCareful:\n");
        for warning in warnings {
            let _ = writeln!(out, "  - {warning}");
        }
    }
    out
}
