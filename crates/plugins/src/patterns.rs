//! Regexes in configurations of plugins. Kong runs them by PCRE. Here they run in linear time wherever they need no
//! backtracking; the others have limits on steps and on the length of the text, and `expr` bounds their size.

use expr::{Regex, TooManySteps};
use plugin::BuildError;

/// Regexes of one field, tried in their order.
#[derive(Debug, Default)]
pub(crate) struct Patterns(Box<[Regex]>);

impl Patterns {
    /// Compiles the entries of a field.
    pub(crate) fn compile<'p>(
        field: &'static str,
        entries: impl IntoIterator<Item = &'p str>,
    ) -> Result<Self, BuildError> {
        let compile = |pattern| {
            Regex::strict(pattern)
                .map_err(|error| BuildError::field(field, format!("'{pattern}': {error}")))
        };
        let all: Result<_, BuildError> = entries.into_iter().map(compile).collect();
        Ok(Self(all?))
    }

    /// Whether one of the regexes matches. Fails if one that is tried needs too many steps.
    pub(crate) fn search(&self, text: &[u8]) -> Result<bool, TooManySteps> {
        for regex in &self.0 {
            if regex.search(text)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
