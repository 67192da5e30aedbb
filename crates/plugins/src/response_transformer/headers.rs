//! The rules for headers. Source: kong/plugins/response-transformer/header_transformer.lua.
//!
//! Whether a header is present is looked up before the first change, as in Kong. Rules that would set a header of the
//! framing are left out, because they could make the client read another message than the gateway sends. So are rules whose
//! name no header can have: clients refuse such lines, and HTTP/2 cannot send them.

use super::config::{Config, split};
use crate::headers::{is_framing, is_name};
use compact_str::CompactString;
use plugin::{HeaderValue, ResponseCx};
use smallvec::SmallVec;

#[derive(Debug, Default)]
pub(super) struct Rules {
    remove: Box<[CompactString]>,
    /// Old and new names.
    rename: Box<[(CompactString, CompactString)]>,
    replace: Box<[(CompactString, HeaderValue)]>,
    add: Box<[(CompactString, HeaderValue)]>,
    append: Box<[(CompactString, HeaderValue)]>,
}

impl Rules {
    pub(super) fn compile(config: &Config) -> Self {
        let removed = config.remove.headers.iter();
        let renamed = pairs(&config.rename.headers).filter(|(_, new)| can_set(new));
        Self {
            remove: removed
                .filter_map(|entry| Some(split(entry)?.0.into()))
                .collect(),
            rename: renamed.map(|(old, new)| (old.into(), new.into())).collect(),
            replace: values(&config.replace.headers),
            add: values(&config.add.headers),
            append: values(&config.append.headers),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.remove.is_empty()
            && self.rename.is_empty()
            && self.replace.is_empty()
            && self.add.is_empty()
            && self.append.is_empty()
    }

    pub(super) fn apply(&self, cx: &mut ResponseCx<'_, '_>) {
        let has = |name: &CompactString| cx.header(name).is_some();
        let moved = self.rename.iter().map(|(old, _)| {
            let lines = cx.header_lines(old);
            lines.map(HeaderValue::from_untrusted).collect()
        });
        let moved: SmallVec<[SmallVec<[HeaderValue; 1]>; 2]> = moved.collect();
        let replaced: SmallVec<[bool; 8]> =
            self.replace.iter().map(|(name, _)| has(name)).collect();
        let added: SmallVec<[bool; 8]> = self.add.iter().map(|(name, _)| !has(name)).collect();

        let headers = &mut cx.answer.headers;
        for name in &self.remove {
            headers.remove(name);
        }
        for ((old, new), values) in self.rename.iter().zip(moved) {
            if values.is_empty() {
                continue;
            }
            headers.remove(old);
            headers.remove(new);
            for value in values {
                headers.add(new, value);
            }
        }
        let replaced = self.replace.iter().zip(replaced);
        let added = self.add.iter().zip(added);
        for ((name, value), _) in replaced.chain(added).filter(|(_, applies)| *applies) {
            headers.set(name, value);
        }
        for (name, value) in &self.append {
            headers.add(name, value);
        }
    }
}

/// Whether a rule may set a header.
fn can_set(name: &str) -> bool {
    is_name(name) && !is_framing(name)
}

/// The entries with a name and a value.
fn pairs(entries: &[String]) -> impl Iterator<Item = (&str, &str)> {
    let pairs = entries.iter().filter_map(|entry| split(entry));
    pairs.filter(|(_, value)| !value.is_empty())
}

fn values(entries: &[String]) -> Box<[(CompactString, HeaderValue)]> {
    let pairs = pairs(entries).filter(|(name, _)| can_set(name));
    pairs
        .map(|(name, value)| (name.into(), HeaderValue::from_text(value)))
        .collect()
}
