//! Services and messages of `.proto` files, for plugins that convert between JSON and gRPC. A file is compiled in this
//! process when the plugin is built.

mod json;

pub(crate) use json::{JsonError, from_json, to_json};

use prost_reflect::{FileDescriptor, MessageDescriptor};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Directories for imports, after the directory of the file. Source: kong/tools/grpc.lua.
const INCLUDES: [&str; 3] = [
    "/usr/local/kong/include",
    "/usr/local/opt/protobuf/include",
    "/usr/include",
];

/// Maximum size of a file. A device or a pipe would be read for ever.
const MAX_FILE: u64 = 16 * 1024 * 1024;

/// The methods of a compiled file, by their path: `/package.Service/Method`.
#[derive(Debug)]
pub(crate) struct Services {
    methods: HashMap<String, Method>,
}

#[derive(Debug)]
pub(crate) struct Method {
    pub(crate) input: MessageDescriptor,
    pub(crate) output: MessageDescriptor,
}

/// A `.proto` file that cannot be compiled.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {reason}")]
pub(crate) struct ProtoError {
    file: String,
    reason: String,
}

impl Services {
    /// Compiles a file and its imports. Imports are relative to the directory of the file, or to Kong's directories.
    /// The files of `google/protobuf` are always there.
    pub(crate) fn compile(file: &str) -> Result<Self, ProtoError> {
        let error = |reason: String| ProtoError {
            file: file.to_owned(),
            reason,
        };
        if let Ok(found) = std::fs::metadata(file)
            && !(found.is_file() && found.len() <= MAX_FILE)
        {
            return Err(error(format!("not a file of at most {MAX_FILE} bytes")));
        }
        let (directory, name) = locate(Path::new(file));
        let includes = directory.into_iter().chain(INCLUDES.map(PathBuf::from));
        let mut compiler =
            protox::Compiler::new(includes).map_err(|cause| error(describe(&cause)))?;
        compiler
            .open_file(&name)
            .map_err(|cause| error(describe(&cause)))?;
        let pool = compiler.descriptor_pool();
        // Names in a pool have `/` on every system.
        let name = name.to_string_lossy().replace('\\', "/");
        let descriptor = pool
            .get_file_by_name(&name)
            .ok_or_else(|| error("the file was not compiled".to_owned()))?;
        let mut methods = HashMap::new();
        collect_methods(&descriptor, &mut methods, &mut HashSet::new());
        Ok(Self { methods })
    }

    pub(crate) fn method(&self, path: &str) -> Option<&Method> {
        self.methods.get(path)
    }
}

/// Splits the path of a file that exists into directory and name. Others are names below Kong's directories.
fn locate(file: &Path) -> (Option<PathBuf>, PathBuf) {
    match (file.parent(), file.file_name()) {
        (Some(directory), Some(name)) if file.exists() => {
            let directory = match directory.as_os_str().is_empty() {
                true => Path::new("."),
                false => directory,
            };
            (Some(directory.to_owned()), PathBuf::from(name))
        }
        _ => (None, file.to_owned()),
    }
}

/// The message of an error with the line, if it is known.
fn describe(error: &protox::Error) -> String {
    match error.file() {
        Some(file) => format!("{error} (in {file})"),
        None => error.to_string(),
    }
}

/// Collects the methods of a file and of its public imports.
fn collect_methods(
    file: &FileDescriptor,
    methods: &mut HashMap<String, Method>,
    seen: &mut HashSet<String>,
) {
    if !seen.insert(file.name().to_owned()) {
        return;
    }
    for import in file.public_dependencies() {
        collect_methods(&import, methods, seen);
    }
    for service in file.services() {
        for method in service.methods() {
            let path = format!("/{}/{}", service.full_name(), method.name());
            let types = Method {
                input: method.input(),
                output: method.output(),
            };
            methods.insert(path, types);
        }
    }
}

#[cfg(test)]
mod tests;
