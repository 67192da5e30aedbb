//! Bearer tokens as they are stored: lines of text with name, role, hash and creation time. This module does no I/O.
//!
//! SHA-256 is sufficient as the hash, because a token consists of 256 random bits and cannot be guessed. Slow and
//! salted hashes are needed only for passwords that people choose.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use std::fmt;
use std::str::FromStr;
use subtle::ConstantTimeEq;

/// Prefix by which people and secret scanners recognize a token.
const PREFIX: &str = "silverback_";
const HASH: &str = "sha256:";
const MAX_NAME: usize = 64;

/// The permissions of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Admin,
    ReadOnly,
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Admin => "admin",
            Self::ReadOnly => "read-only",
        })
    }
}

impl FromStr for Role {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        match text {
            "admin" => Ok(Self::Admin),
            "read-only" => Ok(Self::ReadOnly),
            _ => Err(TokenError::Role),
        }
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("a name has 1 to {MAX_NAME} letters, digits, `.`, `_`, `-` or `@`")]
    Name,
    #[error("expected the role admin or read-only")]
    Role,
    #[error("expected {HASH} and 64 hexadecimal digits")]
    Hash,
    #[error("expected name, role, hash and time")]
    Fields,
    #[error("a token `{0}` already exists")]
    Twice(String),
    #[error("the operating system provides no random numbers")]
    Random,
}

/// The stored data of a token, which does not include its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub name: String,
    pub role: Role,
    pub created: String,
    hash: [u8; 32],
}

impl Token {
    /// Creates a token. Returns it with its text, which is not stored anywhere.
    pub fn generate(name: &str, role: Role, created: String) -> Result<(Self, String), TokenError> {
        let mut random = [0; 32];
        SystemRandom::new()
            .fill(&mut random)
            .map_err(|_| TokenError::Random)?;
        let text = format!("{PREFIX}{}", HEXLOWER.encode(&random));
        let token = Self {
            name: checked_name(name)?,
            role,
            created,
            hash: hash(&text),
        };
        Ok((token, text))
    }
}

impl fmt::Display for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hash = HEXLOWER.encode(&self.hash);
        write!(
            formatter,
            "{} {} {HASH}{hash} {}",
            self.name, self.role, self.created
        )
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(line: &str) -> Result<Self, TokenError> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, role, hash, created] = words[..] else {
            return Err(TokenError::Fields);
        };
        let digits = hash.strip_prefix(HASH).ok_or(TokenError::Hash)?;
        Ok(Self {
            name: checked_name(name)?,
            role: role.parse()?,
            created: created.to_owned(),
            hash: from_hex(digits).ok_or(TokenError::Hash)?,
        })
    }
}

/// All tokens, in order of creation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tokens(Vec<Token>);

impl Tokens {
    /// Finds the token with this text. The time does not depend on how much of a hash matches: every bit of every hash
    /// is always compared.
    pub fn find(&self, text: &[u8]) -> Option<&Token> {
        let hash = digest(&SHA256, text);
        let mut found = None;
        for token in &self.0 {
            if bool::from(token.hash.ct_eq(hash.as_ref())) {
                found = Some(token);
            }
        }
        found
    }

    pub fn iter(&self) -> impl Iterator<Item = &Token> {
        self.0.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn add(&mut self, token: Token) -> Result<(), TokenError> {
        if self.0.iter().any(|present| present.name == token.name) {
            return Err(TokenError::Twice(token.name));
        }
        self.0.push(token);
        Ok(())
    }

    /// Removes a token; returns `None` if no token has this name.
    pub fn remove(&mut self, name: &str) -> Option<Token> {
        let index = self.0.iter().position(|token| token.name == name)?;
        Some(self.0.remove(index))
    }
}

/// One line per token.
impl fmt::Display for Tokens {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.0.iter()).try_for_each(|token| writeln!(formatter, "{token}"))
    }
}

/// A line with an invalid token.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {error}")]
pub struct LineError {
    line: usize,
    error: TokenError,
}

impl FromStr for Tokens {
    type Err = LineError;

    /// Skips empty lines and lines that begin with `#`.
    fn from_str(text: &str) -> Result<Self, LineError> {
        let mut tokens = Self::default();
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let added = line.parse().and_then(|token| tokens.add(token));
            added.map_err(|error| LineError {
                line: index + 1,
                error,
            })?;
        }
        Ok(tokens)
    }
}

fn checked_name(name: &str) -> Result<String, TokenError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte);
    let is_name = (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(allowed);
    is_name.then(|| name.to_owned()).ok_or(TokenError::Name)
}

fn hash(text: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    hash
}

fn from_hex(digits: &str) -> Option<[u8; 32]> {
    let bytes = HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).ok()?;
    bytes.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generate(name: &str, role: Role) -> (Token, String) {
        Token::generate(name, role, "2026-11-22T06:00:00+00:00".to_owned()).unwrap()
    }

    #[test]
    fn a_token_is_found_only_by_its_text_which_is_not_stored() {
        let (first, text) = generate("ci", Role::Admin);
        let (second, other) = generate("dashboard", Role::ReadOnly);
        let mut tokens = Tokens::default();
        tokens.add(first.clone()).unwrap();
        tokens.add(second.clone()).unwrap();
        assert_eq!(tokens.find(text.as_bytes()), Some(&first));
        assert_eq!(tokens.find(other.as_bytes()), Some(&second));
        assert_eq!(tokens.find(HEXLOWER.encode(&first.hash).as_bytes()), None);
        assert_eq!(tokens.find(&text.as_bytes()[..20]), None);
        assert_eq!(tokens.find(b""), None);
        let kept = tokens.to_string();
        assert!(!kept.contains(text.strip_prefix(PREFIX).unwrap()), "{kept}");
        assert_eq!(kept.parse(), Ok(tokens));
    }

    #[test]
    fn a_known_hash_is_read() {
        let line = "a read-only sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad now";
        let tokens: Tokens = format!("# tokens\n\n{line}\n").parse().unwrap();
        assert_eq!(tokens.find(b"abc").unwrap().role, Role::ReadOnly);
        assert_eq!(tokens.to_string(), format!("{line}\n"));
    }

    #[test]
    fn invalid_lines_are_reported() {
        let hash = "0".repeat(64);
        for (line, error) in [
            ("a admin".to_owned(), TokenError::Fields),
            (
                format!("a admin sha256:{hash} now more"),
                TokenError::Fields,
            ),
            (format!("a/b admin sha256:{hash} now"), TokenError::Name),
            (format!("a root sha256:{hash} now"), TokenError::Role),
            (format!("a admin {hash} now"), TokenError::Hash),
            (format!("a admin sha256:{hash}0 now"), TokenError::Hash),
            (
                format!("a admin sha256:{}g now", &hash[1..]),
                TokenError::Hash,
            ),
        ] {
            let wanted = LineError { line: 2, error };
            assert_eq!(format!("\n{line}").parse::<Tokens>(), Err(wanted), "{line}");
        }
        let twice = format!("a admin sha256:{hash} now\n").repeat(2);
        let error = twice.parse::<Tokens>().unwrap_err();
        assert_eq!(error.to_string(), "line 2: a token `a` already exists");
    }
}
