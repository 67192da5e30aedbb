//! Every setting there is, as data: `settings.json` beside this file. The sample file, the docs page, the checks and the
//! error texts all come from it. What the values mean to the program is in the parent module.

use serde::Deserialize;
use std::collections::HashMap;
use std::sync::LazyLock;

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let settings: Vec<Setting> =
        serde_json::from_str(include_str!("settings.json")).expect("the embedded table is JSON");
    let by_name = settings
        .iter()
        .enumerate()
        .map(|(index, setting)| (setting.name.clone(), index))
        .collect();
    Table { settings, by_name }
});

/// Prefixes under which Kong accepts any name: `<prefix><directive>` puts an nginx directive into a block.
const DYNAMIC_PREFIXES: [&str; 18] = [
    "nginx_main_",
    "nginx_events_",
    "nginx_http_",
    "nginx_upstream_",
    "nginx_proxy_",
    "nginx_location_",
    "nginx_status_",
    "nginx_admin_",
    "nginx_stream_",
    "nginx_supstream_",
    "nginx_sproxy_",
    "pluginserver_",
    "vault_",
    "nginx_wasm_wasmtime_",
    "nginx_wasm_v8_",
    "nginx_wasm_wasmer_",
    "nginx_wasm_shm_kv_",
    "nginx_wasm_",
];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Setting {
    pub(crate) name: String,
    pub(crate) section: String,
    #[serde(rename = "type")]
    pub(crate) kind: Kind,
    pub(crate) default: Option<String>,
    #[serde(default)]
    pub(crate) values: Vec<String>,
    pub(crate) range: Option<[f64; 2]>,
    pub(crate) format: Option<Format>,
    /// The name that this one is another spelling of.
    pub(crate) alias_of: Option<String>,
    #[serde(default)]
    pub(crate) deprecated: bool,
    /// Never shown, not even in an error.
    #[serde(default)]
    pub(crate) sensitive: bool,
    /// Silverback's, not Kong's.
    #[serde(default)]
    pub(crate) own: bool,
    pub(crate) about: String,
    /// Why setting it changes nothing here.
    pub(crate) no_effect: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    String,
    Number,
    /// `on`, `off`, `true` or `false`.
    Boolean,
    /// `on` or `off`.
    NgxBoolean,
    /// Separated by commas.
    Array,
    Enum,
}

/// What the text of a string setting must look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Format {
    /// `10m`, `8k`, `512`.
    Size,
    /// `30s`, `500ms`, `1m`, `60`.
    Duration,
    Count,
    Uuid,
    /// `auto` or a count from 1.
    Workers,
    /// `4 8k`.
    Buffers,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::NgxBoolean => "on or off",
            Self::Array => "list",
            Self::Enum => "one of a set",
        }
    }
}

pub(crate) struct Table {
    settings: Vec<Setting>,
    by_name: HashMap<String, usize>,
}

impl Table {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Setting> {
        self.settings.iter()
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<&Setting> {
        self.by_name.get(name).map(|&index| &self.settings[index])
    }

    /// The setting that a name stands for once aliases are followed.
    pub(crate) fn canonical(&self, name: &str) -> Option<&Setting> {
        let setting = self.by_name(name)?;
        match &setting.alias_of {
            Some(target) => self.by_name(target),
            None => Some(setting),
        }
    }

    /// The known name most like an unknown one, for the error text.
    pub(crate) fn nearest(&self, name: &str) -> Option<&str> {
        let length = name.chars().count();
        // Of a short name, two other characters leave nothing to recognise.
        let most = |known: &str| 2.max(known.len() / 5).min(length / 3);
        let known = self.settings.iter().map(|setting| setting.name.as_str());
        // Names differ in at least as many characters as they differ in length, so long names are not compared.
        known
            .filter(|known| known.len().abs_diff(length) <= most(known))
            .map(|known| (distance(name, known), known))
            .filter(|(distance, known)| *distance <= most(known))
            .min()
            .map(|(_, known)| known)
    }
}

pub(crate) fn table() -> &'static Table {
    &TABLE
}

pub(crate) fn is_dynamic(name: &str) -> bool {
    DYNAMIC_PREFIXES
        .iter()
        .any(|prefix| name.len() > prefix.len() && name.starts_with(prefix))
}

/// The name of nginx's directive in the name of a setting.
pub(crate) fn directive_of(name: &str) -> &str {
    let mut prefixes = DYNAMIC_PREFIXES.iter();
    let directive = prefixes.find_map(|prefix| name.strip_prefix(prefix));
    directive.unwrap_or(name)
}

/// Levenshtein distance of two short names.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in right.iter().enumerate() {
            let substituted = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[right.len()]
}
