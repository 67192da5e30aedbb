//! Describes priorities in words.

use super::{PATH_LENGTH, PLAIN_HOSTS, REGEX_PATH, Traditional};
use crate::Calculation;

/// A priority of the flavors other than `traditional`, decoded into its parts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Word {
    word: u64,
    calculation: Calculation,
}

impl Word {
    pub(crate) fn new(word: u64, calculation: Calculation) -> Self {
        Self { word, calculation }
    }

    /// Returns the number and its parts in words.
    pub(crate) fn describe(self) -> String {
        let mut parts = Vec::new();
        match self.calculation {
            Calculation::Original => self.original(&mut parts),
            Calculation::Strict => self.strict(&mut parts),
        }
        format!("priority {:#018x} ({})", self.word, parts.join(" + "))
    }

    fn bits(self, first: u32, count: u32) -> u64 {
        self.word >> first & ((1 << count) - 1)
    }

    /// Decodes the layout of [`super::Weight`]. The number of attribute types starts at bit 29, and the number of
    /// headers at bit 20. `regex_priority` starts at bit 19, and its bits are combined with theirs by OR.
    fn original(self, words: &mut Vec<String>) {
        if self.word >> 63 == 1 {
            words.push(
                "top bit: four or more attribute types, or a regex_priority out of range"
                    .to_owned(),
            );
        }
        self.flags(words);
        let kinds = self.bits(29, 3);
        if kinds > 0 {
            words.push(kinds_of(kinds));
        }
        if self.word & REGEX_PATH == 0 {
            plural(words, self.bits(20, 8), "header");
        } else if self.bits(19, 10) > 0 {
            let mixed = self.bits(19, 10);
            words.push(format!("headers and regex_priority combined: {mixed}"));
        }
        self.length(words);
    }

    fn strict(self, words: &mut Vec<String>) {
        words.push(kinds_of(self.bits(61, 3)));
        if self.word & PLAIN_HOSTS != 0 {
            words.push(ONLY_PLAIN_HOSTS.to_owned());
        }
        plural(words, self.bits(52, 8), "header");
        if self.word & REGEX_PATH != 0 {
            let priority = self.bits(19, 32);
            words.push(format!("a regex path, regex_priority {priority}"));
        }
        self.length(words);
    }

    fn flags(self, words: &mut Vec<String>) {
        if self.word & PLAIN_HOSTS != 0 {
            words.push(ONLY_PLAIN_HOSTS.to_owned());
        }
        if self.word & REGEX_PATH != 0 {
            words.push("a regex path".to_owned());
        }
    }

    fn length(self, words: &mut Vec<String>) {
        path_length(words, self.word & PATH_LENGTH);
    }
}

const ONLY_PLAIN_HOSTS: &str = "hosts without wildcards";

impl Traditional {
    pub(crate) fn describe(&self) -> Vec<String> {
        const KINDS: [(u8, &str); 7] = [
            (64, "hosts"),
            (32, "headers"),
            (16, "paths"),
            (8, "methods"),
            (4, "snis"),
            (2, "sources"),
            (1, "destinations"),
        ];
        let used = KINDS.iter().filter(|(bit, _)| self.category.0 & bit != 0);
        let used: Vec<&str> = used.map(|(_, name)| *name).collect();
        let mut words = vec![format!(
            "{}: {}",
            kinds_of(self.kinds.0.into()),
            used.join(", ")
        )];
        if self.hosts_with_port.0 {
            words.push("hosts with a port".to_owned());
        }
        for (bit, text) in [
            (4, "a wildcard host with a port"),
            (2, ONLY_PLAIN_HOSTS),
            (1, "a regex path"),
        ] {
            if self.refinement.0 & bit != 0 {
                words.push(text.to_owned());
            }
        }
        plural(&mut words, self.headers.0 as u64, "header");
        if self.refinement.0 & 1 != 0 {
            words.push(format!("regex_priority {}", self.regex_priority.0));
        }
        path_length(&mut words, self.path_length.0 as u64);
        words.push(format!(
            "if equal, the older route: created at {}",
            self.created_at
        ));
        words
    }
}

fn kinds_of(count: u64) -> String {
    match count {
        1 => "1 attribute type".to_owned(),
        _ => format!("{count} attribute types"),
    }
}

fn plural(words: &mut Vec<String>, count: u64, what: &str) {
    match count {
        0 => {}
        1 => words.push(format!("1 {what}")),
        _ => words.push(format!("{count} {what}s")),
    }
}

fn path_length(words: &mut Vec<String>, length: u64) {
    if length > 0 {
        words.push(format!("a plain path of {length} bytes"));
    }
}
