//! What is generated from the table of settings: the sample file and the docs page.

use super::directives::REFUSED;
use super::table::{Setting, directive_of, is_dynamic, table};
use std::fmt::Write;

/// `kong.conf` with every setting in comments at its default.
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

/// The docs page.
pub(crate) fn page() -> String {
    let mut out = String::from(
        "<!-- Generated from crates/gateway/src/settings/settings.json; a test compares. Do not edit. -->\n\n\
         # Settings\n\n\
         Names and values are those of Kong's `kong.conf`; the few that are Silverback's own are marked. Each setting is\n\
         also the environment variable `KONG_<NAME>` or `SILVERBACK_<NAME>` and the flag `--set <name>=<value>`.\n\
         How they are given: [configuring](configuring.md). As a file: [kong.conf.sample](kong.conf.sample).\n\n\
         A setting marked *no effect* is accepted with a warning, so that a deployment's file need not change.\n",
    );
    let mut section = "";
    for setting in table().iter() {
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
        let meaning = meaning.replace(" Has no effect here: ", " *No effect*: ");
        let _ = writeln!(
            out,
            "| `{}`{own} | {} | {default} | {meaning} |",
            setting.name,
            setting.kind.name()
        );
    }
    write_directives(&mut out);
    out
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
         A setting `nginx_<block>_<directive>` puts a directive into a block of the web server under Kong, which is not\n\
         there. These directives work: {}.\n\n\
         In the blocks `http`, `proxy` and `location` they mean the same; that of an inner block wins. File names are\n\
         relative to the prefix. Variables of nginx are not available.\n\n\
         These are refused at the start, since what they protect would be open without them:\n\n\
         | directive | instead |\n|---|---|\n",
        working.join(", ")
    );
    for (directive, instead) in REFUSED {
        let _ = writeln!(out, "| `{directive}` | {instead} |");
    }
    out.push_str("\nEvery other directive is accepted with a warning that it has no effect.\n");
}
