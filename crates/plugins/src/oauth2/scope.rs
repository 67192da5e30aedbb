//! The scopes that a client asks for.

use super::answer::Refusal;
use super::config::Config;
use super::parameters::Given;

/// Returns the scopes of a new token, separated by blanks. Source: kong/plugins/oauth2/access.lua retrieve_scope().
pub(super) fn granted(wanted: &Given<'_>, config: &Config) -> Result<Option<String>, Refusal> {
    let (Some(allowed), true) = (&config.scopes, wanted.is_given()) else {
        return match config.mandatory_scope && !wanted.is_given() {
            true => Err(Refusal::new("invalid_scope", "You must specify a scope")),
            false => Ok(None),
        };
    };
    let Some(wanted) = wanted.text() else {
        return Err(Refusal::new("invalid_scope", "scope must be a string"));
    };
    let mut granted = String::new();
    for word in wanted.split_ascii_whitespace() {
        if !allowed.iter().any(|allowed| allowed == word) {
            let description = format!("\"{word}\" is an invalid scope");
            return Err(Refusal::new("invalid_scope", description));
        }
        // A scope counts once, so that a client cannot make a row as long as it likes.
        if granted.split(' ').any(|before| before == word) {
            continue;
        }
        if !granted.is_empty() {
            granted.push(' ');
        }
        granted.push_str(word);
    }
    Ok((!granted.is_empty()).then_some(granted))
}

/// Whether all scopes of a token are allowed still.
pub(super) fn are_allowed(scope: Option<&str>, config: &Config) -> bool {
    let allowed = config.scopes.as_deref().unwrap_or_default();
    let mut words = scope.unwrap_or_default().split_ascii_whitespace();
    words.all(|word| allowed.iter().any(|allowed| allowed == word))
}
