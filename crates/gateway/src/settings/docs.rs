//! Documents that are generated from the table of settings: the sample file and the docs page.

use super::directives::REFUSED;
use super::table::{Setting, directive_of, is_dynamic, table};
use std::fmt::Write;

/// Returns a `kong.conf` with every setting at its default, commented out.
pub(crate) fn sample() -> String {
    let mut out = String::from(
        "# Settings of Silverback, every one at its default. Lines that begin with `#` are comments;\n\
         # a `#` inside a value is written `\\#`. Flags win over SILVERBACK_* variables, those over\n\
         # KONG_* variables, those over this file. Generated: do not edit.\n",
    );
    let mut section = "";
    for setting in table().iter() {
        if setting.section != section {
            section = &setting.section;
            let _ = write!(out, "\n# {:-<78}\n", format!("{section} "));
        }
        write_sample(&mut out, setting);
    }
    out
}

fn write_sample(out: &mut String, setting: &Setting) {
    out.push('\n');
    for line in wrap(&describe(setting), 76) {
        let _ = writeln!(out, "# {line}");
    }
    let default = setting.default.as_deref().unwrap_or_default();
    let line = format!("#{} = {default}", setting.name);
    let _ = writeln!(out, "{}", line.trim_end());
}

fn describe(setting: &Setting) -> String {
    let mut text = match &setting.alias_of {
        Some(target) if setting.deprecated => format!("Deprecated name of {target}."),
        Some(target) => format!("Another name of {target}."),
        None => setting.about.clone(),
    };
    if !setting.values.is_empty() {
        let _ = write!(text, " One of: {}.", setting.values.join(", "));
    }
    if let Some([least, most]) = setting.range {
        let _ = write!(text, " From {least} to {most}.");
    }
    if let Some(reason) = &setting.no_effect {
        let _ = write!(text, " Has no effect here: {reason}.");
    }
    text
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("there is always a line");
        if !last.is_empty() && last.len() + 1 + word.len() > width {
            lines.push(word.to_owned());
        } else {
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines
}

/// Returns the docs page. Settings that work come first, because about half of Kong's have no effect here.
pub(crate) fn page() -> String {
    let mut out = String::from(
        "<!-- Generated from crates/gateway/src/settings/settings.json; a test compares. Do not edit. -->\n\n\
         # Look up a setting\n\n\
         This page lists every setting with its default, for people who set up a gateway. Names and values are those of\n\
         Kong's `kong.conf`. Settings that only Silverback has are marked (own). Each setting is also the environment\n\
         variable `KONG_<NAME>` or `SILVERBACK_<NAME>` and the option `--set <name>=<value>`:\n\
         [how to set settings](configuring.md). As a file: [kong.conf.sample](kong.conf.sample).\n\n\
         Settings of Kong that have no effect here are [at the end](#settings-without-effect).\n",
    );
    let mut section = "";
    for setting in table().iter() {
        if why_without_effect(setting).is_some() {
            continue;
        }
        if setting.section != section {
            section = &setting.section;
            let _ = write!(
                out,
                "\n## {section}\n\n| setting | type | default | meaning |\n|---|---|---|---|\n"
            );
        }
        let own = if setting.own { " (own)" } else { "" };
        let default = match setting.default.as_deref() {
            None | Some("") => "–".to_owned(),
            Some(default) => format!("`{default}`"),
        };
        let meaning = describe(setting).replace('|', "\\|");
        let _ = writeln!(
            out,
            "| `{}`{own} | {} | {default} | {meaning} |",
            setting.name,
            setting.kind.name()
        );
    }
    write_directives(&mut out);
    write_without_effect(&mut out);
    out
}

/// Returns why a setting has no effect. An alias of a setting without effect has none either.
fn why_without_effect(setting: &Setting) -> Option<&'static str> {
    let setting = table().canonical(&setting.name)?;
    setting.no_effect.as_deref()
}

/// Writes a table with one row for each reason. The row lists all settings that have no effect for that reason.
fn write_without_effect(out: &mut String) {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for setting in table().iter() {
        let Some(reason) = why_without_effect(setting) else {
            continue;
        };
        let name = format!("`{}`", setting.name);
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, names)) => names.push(name),
            None => reasons.push((reason, vec![name])),
        }
    }
    out.push_str(
        "\n## Settings without effect\n\n\
         These settings are accepted with a warning, so that a file of Kong's can stay unchanged.\n\n\
         | why | settings |\n|---|---|\n",
    );
    for (reason, names) in reasons {
        let _ = writeln!(out, "| {reason} | {} |", names.join(", "));
    }
}

fn write_directives(out: &mut String) {
    let works = |setting: &&Setting| {
        is_dynamic(&setting.name) && setting.no_effect.is_none() && setting.alias_of.is_none()
    };
    let mut working: Vec<_> = (table().iter().filter(works))
        .map(|setting| format!("`{}`", directive_of(&setting.name)))
        .collect();
    working.sort();
    working.dedup();
    let _ = write!(
        out,
        "\n## nginx's directives\n\n\
         In Kong, a setting `nginx_<block>_<directive>` puts a directive into a block of nginx's configuration. Silverback\n\
         contains no nginx, but these directives work:\n\n\
         {}.\n\n\
         They mean the same in the blocks `http`, `proxy` and `location`; the innermost block wins. File names are\n\
         relative to the prefix. Variables of nginx are not available.\n\n\
         The gateway refuses to start with these directives in any other block, because they protect something and do\n\
         not work there:\n\n\
         | directive | instead |\n|---|---|\n",
        working.join(", ")
    );
    for (directive, instead) in REFUSED {
        let _ = writeln!(out, "| `{directive}` | {instead} |");
    }
    out.push_str("\nAll other directives are ignored with a warning.\n");
}
