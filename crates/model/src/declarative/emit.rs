//! Writes values as YAML that people can read and that every parser understands alike. A text is unquoted if no parser
//! could misread it. A text of several lines is usually a block scalar. Equal values are always written alike.

use super::scalar;
use crate::value::{Object, Value};
use std::fmt::Write;

/// Maximum length in bytes of a key before `:`. YAML limits it to 1,024 characters.
const MAX_SIMPLE_KEY: usize = 1024;

/// Writes the fields of an object. The first field continues the current line.
pub(super) fn write_fields(out: &mut String, fields: &Object, indent: usize) {
    if fields.is_empty() {
        out.push_str("{}\n");
    }
    for (number, (name, value)) in fields.iter().enumerate() {
        if number > 0 {
            let _ = write!(out, "{:indent$}", "");
        }
        write_key(out, name, indent);
        out.push(':');
        write_value(out, value, indent);
    }
}

/// Writes a key up to its `:`. A long key needs the form `? key`, with the `:` on a line of its own.
fn write_key(out: &mut String, name: &str, indent: usize) {
    let begin = out.len();
    write_line(out, name);
    if out.len() - begin > MAX_SIMPLE_KEY {
        out.insert_str(begin, "? ");
        let _ = write!(out, "\n{:indent$}", "");
    }
}

/// Writes the value after `name:`, including the line break.
fn write_value(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Array(values) if !values.is_empty() => {
            out.push('\n');
            for value in values {
                let _ = write!(out, "{:indent$}-", "");
                write_element(out, value, indent + 2);
            }
        }
        Value::Object(fields) if !fields.is_empty() => {
            let indent = indent + 2;
            let _ = write!(out, "\n{:indent$}", "");
            write_fields(out, fields, indent);
        }
        Value::String(text) if is_block(text) => write_block(out, text, indent + 2),
        other => {
            out.push(' ');
            write_scalar(out, other);
            out.push('\n');
        }
    }
}

/// Writes a list element after its dash.
fn write_element(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            out.push(' ');
            write_fields(out, fields, indent);
        }
        // A list inside a list begins on a new line.
        other => write_value(out, other, indent),
    }
}

fn write_scalar(out: &mut String, value: &Value) {
    let _ = match value {
        Value::Null => write!(out, "~"),
        Value::Bool(value) => write!(out, "{value}"),
        Value::Int(value) => write!(out, "{value}"),
        Value::Float(value) if value.is_nan() => write!(out, ".nan"),
        Value::Float(value) if value.is_infinite() => {
            write!(out, "{}.inf", if *value < 0.0 { "-" } else { "" })
        }
        // The debug format has a point or an exponent, so that the number is parsed as a float again.
        Value::Float(value) => write!(out, "{value:?}"),
        Value::String(text) => {
            write_line(out, text);
            Ok(())
        }
        Value::Array(_) => write!(out, "[]"),
        Value::Object(_) => write!(out, "{{}}"),
    };
}

/// Whether a text is written as a block scalar, which keeps certificates and scripts readable.
fn is_block(text: &str) -> bool {
    let body = text.strip_suffix('\n').unwrap_or(text);
    body.contains('\n')
        && !body.ends_with('\n')
        // A leading blank would require an indentation indicator.
        && !body.starts_with([' ', '\n'])
        && body.chars().all(|letter| letter == '\n' || is_printable(letter))
        // Editors remove the blanks of lines that have nothing else.
        && body.lines().all(|line| line.is_empty() || !line.trim().is_empty())
}

fn write_block(out: &mut String, text: &str, indent: usize) {
    let (body, header) = match text.strip_suffix('\n') {
        Some(body) => (body, " |\n"),
        None => (text, " |-\n"),
    };
    out.push_str(header);
    for line in body.split('\n') {
        if line.is_empty() {
            out.push('\n');
        } else {
            let _ = writeln!(out, "{:indent$}{line}", "");
        }
    }
}

/// Writes a text on one line. It is unquoted if no parser could misread it, else in quotes.
fn write_line(out: &mut String, text: &str) {
    if is_bare(text) {
        out.push_str(text);
    } else if text.chars().all(is_printable) {
        let _ = write!(out, "'{}'", text.replace('\'', "''"));
    } else {
        write_escaped(out, text);
    }
}

fn is_bare(text: &str) -> bool {
    let begins_well =
        |first: char| first.is_ascii_alphanumeric() || matches!(first, '/' | '_' | '.');
    let is_harmless =
        |letter: char| letter.is_ascii_alphanumeric() || "_-./@+=;$^()~".contains(letter);
    // Other parsers also recognise dates here, and `y` and `n` as booleans below.
    let may_be_number = text.contains(|letter: char| letter.is_ascii_digit())
        && text
            .chars()
            .all(|letter| letter.is_ascii_digit() || ".-_eE+".contains(letter));
    text.starts_with(begins_well)
        && text.chars().all(is_harmless)
        && !may_be_number
        && !matches!(text, "y" | "Y" | "n" | "N")
        && !scalar::is_special(text)
}

/// Whether a character may be written unescaped in a line of YAML.
fn is_printable(letter: char) -> bool {
    matches!(letter, ' '..='~' | '\u{a0}'..='\u{2027}' | '\u{202a}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}'
        | '\u{ff00}'..='\u{fffd}' | '\u{10000}'..='\u{10ffff}')
}

fn write_escaped(out: &mut String, text: &str) {
    out.push('"');
    for letter in text.chars() {
        let _ = match letter {
            '"' | '\\' => write!(out, "\\{letter}"),
            '\n' => write!(out, "\\n"),
            '\r' => write!(out, "\\r"),
            '\t' => write!(out, "\\t"),
            letter if is_printable(letter) => write!(out, "{letter}"),
            letter => match u32::from(letter) {
                code @ ..0x100 => write!(out, "\\x{code:02x}"),
                code @ 0x100..0x10000 => write!(out, "\\u{code:04x}"),
                code => write!(out, "\\U{code:08x}"),
            },
        };
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::declarative::{Format, parse};
    use testkit::random::Random;

    fn round_trip(value: Value) {
        let mut object = Object::new();
        object.push("key", value);
        let mut text = String::new();
        write_fields(&mut text, &object, 0);
        let read = parse(text.as_bytes(), Format::Yaml);
        assert_eq!(read.as_ref(), Ok(&object), "{text}");
    }

    #[test]
    fn every_text_survives_a_round_trip() {
        for text in [
            "",
            "~",
            "yes",
            "on",
            "null",
            "1",
            "010",
            "1.5",
            ".inf",
            "1:30",
            "- a",
            "a: b",
            "a #b",
            "#a",
            "'",
            "\"",
            "it's",
            "*a",
            "&a",
            "!a",
            "{a",
            "[a",
            "%a",
            "@a",
            "`a",
            "|",
            ">",
            "a\nb",
            "a\nb\n",
            "a\n\nb\n\n",
            "\na",
            " a\nb",
            "a\n b",
            "a\n \nb",
            "a\tb",
            "\t",
            "\r\n",
            "é",
            "\u{7f}",
            "\u{85}",
            "\u{2028}",
            "\u{feff}",
            "😀",
            "\u{0}",
            "<<",
            "---",
            "...",
            "? a",
            "a:",
            ":",
            "a ",
            " a",
            "=",
            "2020-01-01",
            "0x1f",
            "/a b",
            "~/re/\\d+",
            "https://x.test:80/?a=b&c",
            "-",
            "y",
            "n",
            "a,b",
            "%",
            "a\n---\nb",
            "a\n...\nb",
            "x\u{1f}",
            "-----BEGIN X-----\nabc=\n-----END X-----\n",
        ] {
            round_trip(Value::from(text));
            round_trip(Value::Array(vec![Value::from(text), Value::from(text)]));
            let mut object = Object::new();
            object.push(text, Value::Int(1));
            object.push(format!("{text}2"), Value::from(text));
            if text != "<<" {
                round_trip(Value::Object(object));
            }
        }
    }

    #[test]
    fn long_and_multi_line_keys_survive_a_round_trip() {
        let pieces = [
            "a", "-", "b c", "'", "\"", ": ", "#", "\n", "\t", "é", "\u{85}", "?", "1",
        ];
        let mut random = Random::new(0x10_4e_55);
        for round in 0..300 {
            // The lengths around the limit matter most.
            let length = 1000 * (round % 3) + random.index(60);
            let mut key = String::new();
            while key.len() < length {
                key.push_str(random.text(&pieces[..1 + round % pieces.len()]));
            }
            let values = [
                Value::Int(1),
                Value::from("a\nb\n"),
                Value::from(key.as_str()),
                Value::Array(vec![Value::Int(1), Value::Array(vec![Value::Int(2)])]),
            ];
            for value in values {
                let inner: Object = [(key.clone(), value), ("z".to_owned(), true.into())]
                    .into_iter()
                    .collect();
                round_trip(Value::Array(vec![Value::Object(inner.clone())]));
                let outer: Object = [(key.clone(), Value::Object(inner))].into_iter().collect();
                round_trip(Value::Object(outer));
            }
        }
    }

    #[test]
    fn every_value_survives_a_round_trip() {
        let json = r#"{"a":[],"b":{},"c":[[1,[2,{"x":null}]],{"y":[{"z":{"w":1.5}}],"v":true}],"d":{"e":{"f":[-1,"s"]}},
            "g":[{}],"h":1e300,"i":9007199254740993}"#;
        round_trip(serde_json::from_str(json).expect("json"));
    }
}
