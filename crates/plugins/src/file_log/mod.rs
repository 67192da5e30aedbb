//! file-log appends log records of requests and sessions to a file. Source: kong/plugins/file-log/handler.lua.

pub(crate) mod source;
#[cfg(test)]
mod tests;

use crate::line_log::{FieldTexts, LineLog};
use plugin::{BuildCx, BuildError, EndedStreamCx, LogCx, Node, Phases, Plugin, PluginDef, Scopes};
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::Arc;

const NAME: &str = "file-log";

pub(crate) fn def() -> PluginDef {
    PluginDef::bundled::<FileLog>(NAME, 9, Phases::LOG, Scopes::ALL)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    path: PathBuf,
    /// Whether the file is opened again for each record.
    reopen: bool,
    custom_fields_by_lua: FieldTexts,
}

struct FileLog {
    path: PathBuf,
    reopen: bool,
    lines: LineLog,
}

impl Plugin for FileLog {
    type Config = Config;
    type Own = ();

    fn build(config: Config, cx: &BuildCx<'_>) -> Result<Self, BuildError> {
        let Config { path, reopen, .. } = config;
        let queue = match reopen {
            true => format!("{}:reopen", path.display()),
            false => path.display().to_string(),
        };
        Ok(Self {
            lines: LineLog::new(NAME, queue, &config.custom_fields_by_lua, cx),
            path,
            reopen,
        })
    }

    fn start(&self, node: &Arc<Node>) {
        self.lines
            .start(node, node.sinks.file(&self.path, self.reopen));
    }

    fn log(&self, cx: &mut LogCx<'_, '_>, (): &mut ()) {
        self.lines.log(cx, b"");
    }

    fn log_stream(&self, cx: &mut EndedStreamCx<'_>) {
        self.lines.log_stream(cx, b"");
    }
}
