//! The table of all settings, read from `settings.json` in this directory. The sample file, the docs page, the checks
//! and the error texts all use it. The parent module converts the values for the program.

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

/// Kong accepts every setting whose name begins with one of these prefixes. After most of them, the rest of the name is
/// an nginx directive for one block of nginx's configuration. If one prefix begins with another, the longer one must
/// come first.
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
    /// Name of the setting that this one is an alias of.
    pub(crate) alias_of: Option<String>,
    #[serde(default)]
    pub(crate) deprecated: bool,
    /// Whether the value is never shown, not even in an error.
    #[serde(default)]
    pub(crate) sensitive: bool,
    /// Whether the setting exists only in Silverback and not in Kong.
    #[serde(default)]
    pub(crate) own: bool,
    pub(crate) about: String,
    /// Reason why the setting has no effect here.
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
    /// A list separated by commas.
    Array,
    Enum,
}

/// Required form of the text of a string setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Format {
    /// A size such as `10m`, `8k` or `512`.
    Size,
    /// A time such as `30s`, `500ms`, `1m` or `60`.
    Duration,
    Count,
    Uuid,
    /// `auto` or a number from 1 to 1024.
    Workers,
    /// A number and a size, such as `4 8k`.
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

    /// Returns the setting with this name, or the one that an alias stands for.
    pub(crate) fn canonical(&self, name: &str) -> Option<&Setting> {
        let setting = self.by_name(name)?;
        match &setting.alias_of {
            Some(target) => self.by_name(target),
            None => Some(setting),
        }
    }

    /// Returns the existing name that is most similar to an unknown one, for the error text.
    pub(crate) fn nearest(&self, name: &str) -> Option<&str> {
        let known = self.settings.iter().map(|setting| setting.name.as_str());
        model::nearest(name, known)
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

/// Returns a setting's name without its dynamic prefix. For most prefixes this is the name of an nginx directive.
pub(crate) fn directive_of(name: &str) -> &str {
    let mut prefixes = DYNAMIC_PREFIXES.iter();
    let directive = prefixes.find_map(|prefix| name.strip_prefix(prefix));
    directive.unwrap_or(name)
}
