//! Creates texts that regexes match. Also decides whether a regex still matches a text after other text is added before
//! or after it.

use expr::Regex;
use regex_syntax::hir::{Class, Hir, HirKind, Look};

/// Maximum number of sample texts per regex.
const VARIANTS: usize = 6;

/// Maximum length of a sample text.
const MAX_LENGTH: usize = 256;

/// Preferred characters of sample texts.
const LIKED: &str = "a1x0b-_A";

/// Returns a few texts that the regex may match. The caller must check them, because look-around assertions are
/// ignored.
pub(super) fn texts(regex: &Regex) -> Vec<String> {
    let Some(parsed) = parse(regex.pattern()) else {
        return Vec::new();
    };
    let variants = (0..VARIANTS).filter_map(|variant| {
        let mut text = Vec::new();
        write(&parsed, variant, &mut text)?;
        String::from_utf8(text).ok()
    });
    let mut texts: Vec<String> = variants.collect();
    texts.dedup();
    texts
}

/// Whether a text that the regex matches still matches if any text is appended.
pub(super) fn holds_with_more_behind(regex: &Regex) -> bool {
    survives(regex, &[Look::Start, Look::StartLF, Look::StartCRLF])
}

/// Whether a text that the regex matches still matches if any text is prepended.
pub(super) fn holds_with_more_before(regex: &Regex) -> bool {
    survives(regex, &[Look::End, Look::EndLF, Look::EndCRLF])
}

/// Whether all look-around assertions of the regex are in `harmless`. The gateway may match with PCRE, but this module
/// parses every regex with `regex_syntax`. The result is therefore false if the two could understand the assertions
/// differently.
fn survives(regex: &Regex, harmless: &[Look]) -> bool {
    if !means_the_same_in_both_dialects(regex.pattern()) {
        return false;
    }
    let Some(parsed) = parse(regex.pattern()) else {
        return false;
    };
    let looks = parsed.properties().look_set();
    looks.iter().all(|look| harmless.contains(&look))
}

/// Whether PCRE and `regex_syntax` read the same look-around assertions in the pattern. That is certain if both know
/// all its escapes and no quantifier is followed by `+`, which PCRE reads as possessive.
fn means_the_same_in_both_dialects(pattern: &str) -> bool {
    let mut bytes = pattern.bytes();
    let mut repeated = false;
    while let Some(byte) = bytes.next() {
        if byte == b'\\' {
            let plain = |byte: u8| byte.is_ascii_punctuation() || b"dDwWsSA".contains(&byte);
            if !bytes.next().is_some_and(plain) {
                return false;
            }
            repeated = false;
            continue;
        }
        if byte == b'+' && repeated {
            return false;
        }
        repeated = b"*+?}".contains(&byte);
    }
    true
}

fn parse(pattern: &str) -> Option<Hir> {
    let mut parser = regex_syntax::ParserBuilder::new().utf8(false).build();
    parser.parse(pattern).ok()
}

/// Appends a text that the part matches. Variants differ in the alternatives and characters they choose, and in whether
/// they include optional repetitions.
fn write(part: &Hir, variant: usize, text: &mut Vec<u8>) -> Option<()> {
    if text.len() > MAX_LENGTH {
        return None;
    }
    match part.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => text.extend_from_slice(&literal.0),
        HirKind::Class(class) => write_one_of(class, variant, text)?,
        HirKind::Capture(group) => write(&group.sub, variant, text)?,
        HirKind::Concat(parts) => {
            for part in parts {
                write(part, variant, text)?;
            }
        }
        HirKind::Alternation(parts) => write(&parts[variant % parts.len()], variant, text)?,
        HirKind::Repetition(repeated) => {
            let wished = u32::try_from(variant % 2).unwrap_or(0);
            let most = repeated.max.unwrap_or(u32::MAX);
            for _ in 0..repeated.min.max(wished).min(most) {
                write(&repeated.sub, variant, text)?;
            }
        }
    }
    Some(())
}

fn write_one_of(class: &Class, variant: usize, text: &mut Vec<u8>) -> Option<()> {
    let holds = |character: char| match class {
        Class::Unicode(class) => class
            .ranges()
            .iter()
            .any(|range| range.start() <= character && character <= range.end()),
        Class::Bytes(class) => class
            .ranges()
            .iter()
            .any(|range| range.start() as char <= character && character <= range.end() as char),
    };
    let liked: Vec<char> = LIKED.chars().filter(|liked| holds(*liked)).collect();
    if !liked.is_empty() {
        text.push(liked[variant / 2 % liked.len()] as u8);
        return Some(());
    }
    match class {
        Class::Unicode(class) => {
            let first = class.ranges().first()?.start();
            let mut buffer = [0; 4];
            text.extend_from_slice(first.encode_utf8(&mut buffer).as_bytes());
        }
        Class::Bytes(class) => text.push(class.ranges().first()?.start()),
    }
    Some(())
}
