//! Writes results into the documentation, between two markers.

use super::report::{self, Outcome};
use crate::shell;

const PAGE: &str = "docs/compatibility.md";
const BEGIN: &str = "<!-- results: written by cargo xtask compat --record -->\n";
const END: &str = "<!-- end of results -->";

pub(super) fn write(outcomes: &[Outcome]) -> Result<(), String> {
    let path = shell::root().join(PAGE);
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{PAGE}: {error}"))?;
    let text = replace(&text, &report::markdown(outcomes))
        .ok_or_else(|| format!("{PAGE} has no place for the results"))?;
    std::fs::write(&path, text).map_err(|error| format!("{PAGE}: {error}"))
}

fn replace(page: &str, results: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{results}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_take_the_place_of_the_ones_before() {
        let page = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        let new = replace(&page, "new\n").expect("both marks are there");
        assert_eq!(new, format!("a\n{BEGIN}\nnew\n\n{END}\nb\n"));
        assert_eq!(replace("a\n", "new"), None);
    }
}
