//! Transfers entities between the store and a file, for the commands `import` and `export`, and for `config db_import`
//! and `config db_export`, as Kong calls them. The commands use the gateway that runs with the prefix. If none runs,
//! they open the store themselves, because only one process at a time can open it.

use crate::check;
use crate::cli::TextFormat;
use crate::client::{ApiClient, ClientError};
use crate::commands::{Failure, print};
use crate::control::{notices, rebuild, writer};
use crate::declarative_file::{self, Text};
use crate::plane;
use crate::progress::Progress;
use crate::settings::{Database, Settings};
use crate::start::{self, Instead};
use crate::token_store;
use admin::control::{self, Refusal};
use admin::token_transfer::import_entities;
use admin::transfer::{self, Merged, Tokens};
use model::declarative::{Counts, ExportFormat, Format, Options, format_cli_errors};
use model::{Error, ErrorCode, Object};
use plugin::NodeIdentity;
use serde_json::Value as Json;
use std::io::{self, Write};
use std::path::Path;
use store::{CommitError, Origin, Rejected, Revision, Store};
use tempfile::NamedTempFile;

/// The result of an import.
pub(crate) struct Imported {
    pub(crate) revision: u64,
    pub(crate) counts: Counts,
    pub(crate) warnings: Vec<String>,
}

/// Adds the entities of a file to the store.
pub(crate) fn import(settings: &Settings, file: &Path) -> Result<Imported, Failure> {
    let text = declarative_file::read_file(file).map_err(Failure::new)?;
    let mut progress = Progress::new();
    let imported = match ApiClient::connect(&settings.prefix) {
        Ok(client) => import_online(&client, settings, &text, &mut progress),
        Err(ClientError::NotRunning(_)) => import_offline(settings, &text, &mut progress),
        Err(error) => Err(Failure::new(error)),
    };
    progress.end();
    imported
}

/// Writes all entities. A file appears under its name only when it is complete. Only its owner can read it, because it
/// contains secrets.
pub(crate) fn export(
    settings: &Settings,
    target: Target<'_>,
    (format, with_tokens): (ExportFormat, bool),
) -> Result<(), Failure> {
    let path = match target {
        Target::Output => {
            let mut text = Vec::new();
            write(settings, format, with_tokens, &mut text)?;
            return print(&text);
        }
        Target::NewFile(path) | Target::File(path) => path,
    };
    let failed =
        |error: io::Error| Failure::new(format!("cannot write {}: {error}", path.display()));
    let exists = || {
        Failure::new(format!(
            "{} already exists.\nWill not overwrite it.",
            path.display()
        ))
    };
    if matches!(target, Target::NewFile(_)) && path.exists() {
        return Err(exists());
    }
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // The temporary file has mode 0600.
    let mut file = NamedTempFile::new_in(directory).map_err(failed)?;
    write(settings, format, with_tokens, file.as_file_mut())?;
    file.as_file().sync_all().map_err(failed)?;
    let named = match target {
        Target::NewFile(_) => file.persist_noclobber(path),
        _ => file.persist(path),
    };
    match named {
        Ok(_) => Ok(()),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Err(exists()),
        Err(error) => Err(failed(error.error)),
    }
}

/// The destination of an export.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target<'p> {
    Output,
    /// A file, which replaces an existing one.
    File(&'p Path),
    /// A file that must not exist yet.
    NewFile(&'p Path),
}

/// Returns the requested format. If none is requested, the file extension decides, as for imports.
pub(crate) fn export_format(asked: Option<TextFormat>, file: Option<&Path>) -> ExportFormat {
    match (asked, file.and_then(Path::extension)) {
        (Some(TextFormat::Json), _) => ExportFormat::Json,
        (Some(TextFormat::Yaml), _) => ExportFormat::Yaml,
        (None, Some(extension)) if extension == "json" => ExportFormat::Json,
        (None, _) => ExportFormat::Yaml,
    }
}

/// Returns the message of the revision that an import creates. A header carries it, so it has no control characters.
fn message(text: &Text) -> String {
    let name = Path::new(declarative_file::path(&text.name).unwrap_or(&text.name)).file_name();
    let name = name.unwrap_or_default().to_string_lossy();
    format!("import of {}", name.replace(char::is_control, " "))
}

// === with the gateway of the prefix ===

fn import_online(
    client: &ApiClient,
    settings: &Settings,
    text: &Text,
    progress: &mut Progress,
) -> Result<Imported, Failure> {
    let kind = match text.format {
        Format::Json => "application/json",
        Format::Yaml | Format::Auto => "application/yaml",
    };
    let message = message(text);
    let headers = [
        ("content-type", kind),
        ("accept", "application/x-ndjson"),
        ("x-change-message", &message),
    ];
    let mut lines = client
        .lines("POST", "/import", &headers, text.bytes.clone())
        .map_err(Failure::new)?;
    let mut last = Json::Null;
    while let Some(line) = lines.next_line().map_err(Failure::new)? {
        match serde_json::from_slice(&line) {
            Ok(stage) => progress.show(stage),
            Err(_) => last = serde_json::from_slice(&line).map_err(|error| unexpected(&error))?,
        }
    }
    if lines.status != 200 {
        return Err(refused(&last, settings, text));
    }
    if let Some(error) = last.get("error") {
        return Err(refused(error, settings, text));
    }
    let number = |name: &str| last.get(name).and_then(Json::as_u64);
    let count = |name: &str| number(name).and_then(|count| usize::try_from(count).ok());
    match (
        number("revision"),
        count("created"),
        count("updated"),
        count("unchanged"),
    ) {
        (Some(revision), Some(created), Some(updated), Some(unchanged)) => Ok(Imported {
            revision,
            counts: Counts {
                created,
                updated,
                unchanged,
            },
            warnings: texts(last.get("warnings")),
        }),
        _ => Err(unexpected(&"it broke off")),
    }
}

fn texts(list: Option<&Json>) -> Vec<String> {
    let list = list.and_then(Json::as_array).into_iter().flatten();
    list.filter_map(|text| text.as_str().map(str::to_owned))
        .collect()
}

/// Converts an error response of the Admin API to a failure.
fn refused(answer: &Json, settings: &Settings, text: &Text) -> Failure {
    let message = answer.get("message").and_then(Json::as_str);
    let message = message.unwrap_or("the gateway does not say why");
    let mut error = Error::new(ErrorCode::DeclarativeConfig, message);
    if let Some(fields) = answer.get("fields")
        && let Ok(fields) = serde_json::from_value::<Object>(fields.clone())
    {
        error = error.with_fields(fields);
    }
    invalid(&error, settings, text)
}

fn invalid(error: &Error, settings: &Settings, text: &Text) -> Failure {
    let errors = format_cli_errors(error, &text.bytes, text.format, settings.model.flavor);
    Failure::new(format!("Failed importing {}:\n{errors}", text.name))
}

fn unexpected(details: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("the gateway's answer is not understood: {details}"))
}

// === with the store ===

/// Imports into the store. The resulting configuration is built before the commit, so that a problem is reported now
/// and not at the next start.
fn import_offline(
    settings: &Settings,
    text: &Text,
    progress: &mut Progress,
) -> Result<Imported, Failure> {
    if settings.store.database != Database::Lmdb {
        return Err(Failure::new(transfer::NO_DATABASE));
    }
    let build = plane::build_settings(settings, NodeIdentity::default())?;
    let options = Options {
        context: writer::context(&settings.model, false),
        flatten_errors: false,
    };
    let origin = Origin {
        message: Some(message(text)),
        ..Origin::program("command line")
    };
    // The import will begin with an empty store if this one is damaged. A wrong file must not set the store aside.
    if Store::exists(&settings.store.path) && start::inspect(&settings.store).is_err() {
        check::read(text, &settings.model)?;
    }
    let store = start::open_store(settings, Instead::Import)?;
    let mut refusal = None;
    let done = store.transact(&mut |transaction| {
        let mut watch = |stage| progress.show(stage);
        let merged = transfer::merge(transaction, &text.bytes, text.format, &options, &mut watch);
        let merged = match merged {
            Ok(merged) => merged,
            Err(Refusal::Commit(error)) => return Err(error),
            Err(Refusal::Failure(failure)) => {
                refusal = Some(failure);
                return Err(CommitError::Abandoned);
            }
        };
        transaction.seal(&origin)?;
        let view = transaction.view()?;
        rebuild::whole(&view, None, &build).map_err(Rejected)?;
        Ok((transaction.head(), merged))
    });
    match (done, refusal) {
        (Ok((Revision(revision), mut merged)), _) => {
            import_tokens(settings, &store, &mut merged)?;
            Ok(Imported {
                revision,
                counts: merged.counts,
                warnings: {
                    let notices = notices::of(store.view().ok().as_ref(), &merged.plugins);
                    merged.all_warnings(notices)
                },
            })
        }
        (Err(_), Some(control::Failure::Error(error))) => Err(invalid(&error, settings, text)),
        (Err(_), Some(failure)) => Err(Failure::new(format!("Failed importing: {failure:?}"))),
        (Err(error), None) => Err(match error.to_error() {
            Some(error) => invalid(&error, settings, text),
            None => Failure::new(error),
        }),
    }
}

/// Imports the OAuth2 tokens of a document, whose other entities are in the store.
fn import_tokens(settings: &Settings, store: &Store, merged: &mut Merged) -> Result<(), Failure> {
    let entities = std::mem::take(&mut merged.tokens);
    if entities.is_empty() {
        return Ok(());
    }
    let tokens = token_store::open(settings)?;
    let now = writer::context(&settings.model, false).now;
    let done = import_entities(store, &*tokens, &entities, now);
    let done = done.map_err(|error| {
        Failure::new(format!(
            "the configuration is imported, its OAuth2 tokens are not: {error:?}"
        ))
    })?;
    merged.count_tokens(done);
    Ok(())
}

fn write(
    settings: &Settings,
    format: ExportFormat,
    with_tokens: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    match ApiClient::connect(&settings.prefix) {
        Ok(client) => write_online(&client, format, with_tokens, out),
        Err(ClientError::NotRunning(_)) => write_offline(settings, format, with_tokens, out),
        Err(error) => Err(Failure::new(error)),
    }
}

fn write_online(
    client: &ApiClient,
    format: ExportFormat,
    with_tokens: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let format = match format {
        ExportFormat::Yaml => "yaml",
        ExportFormat::Json => "json",
    };
    let path = format!("/export?format={format}&oauth2_tokens={with_tokens}");
    let answer = client
        .request("GET", &path, &[], "")
        .map_err(Failure::new)?;
    if !answer.is_success() {
        let said = answer.json().unwrap_or_default();
        let message = said.get("message").and_then(Json::as_str);
        return Err(Failure::new(message.unwrap_or("the gateway refuses it")));
    }
    written(out.write_all(&answer.body).and_then(|()| out.flush()))
}

fn write_offline(
    settings: &Settings,
    format: ExportFormat,
    with_tokens: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    if !Store::exists(&settings.store.path) {
        return Err(Failure::new(format!(
            "there is no store {}; the setting `prefix` (flag --prefix) names another place",
            settings.store.path.display()
        )));
    }
    let inspection = start::inspect(&settings.store)?;
    let view = inspection.view().map_err(Failure::new)?;
    let mut tokens = Tokens::default();
    if with_tokens {
        let store = token_store::open(settings)?;
        let now = writer::context(&settings.model, false).now;
        let read = Tokens::read(&|| inspection.view(), &*store, now);
        tokens = read.map_err(Failure::new)?;
    }
    let flavor = settings.model.flavor;
    transfer::export(&view, &tokens, format, flavor, out).map_err(Failure::new)?;
    written(out.flush())
}

fn written(outcome: io::Result<()>) -> Result<(), Failure> {
    outcome.map_err(|error| Failure::new(format!("cannot write the export: {error}")))
}
