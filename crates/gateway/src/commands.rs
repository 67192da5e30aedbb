//! Runs the commands. A failing command reports all problems that it found, not only the first.

use crate::check::Checked;
use crate::cli::{
    CheckArgs, Command, ConfigCommand, ImportArgs, OAuth2Command, SettingsArgs, TextFormat,
    TokensCommand,
};
use crate::client::{ApiClient, ClientError};
use crate::settings::{self, Inputs, Problem, Resolved, SEARCHED_FILES, Settings};
use crate::transfer::{self, Imported, Target};
use crate::{
    check, events, explain, expr, instance, local, oauth2_transfer, plugin_list, profiles,
    revisions, start, tokens, top,
};
use admin::control::Reload;
use serde_json::Value as Json;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The problems that make a command exit with status 1, one text for each.
#[derive(Debug, Default, Clone)]
pub(crate) struct Failure {
    problems: Vec<String>,
}

impl Failure {
    pub(crate) fn new(problem: impl fmt::Display) -> Self {
        Self {
            problems: vec![problem.to_string()],
        }
    }

    /// Adds the failed action to errors of the operating system, because their texts do not name it.
    pub(crate) fn of<E: fmt::Display>(action: &str) -> impl Fn(E) -> Self {
        move |error| Self::new(format!("cannot {action}: {error}"))
    }

    pub(crate) fn add(&mut self, other: Failure) {
        self.problems.extend(other.problems);
    }

    pub(crate) fn extend(&mut self, others: impl IntoIterator<Item = Failure>) {
        others.into_iter().for_each(|other| self.add(other));
    }

    /// Returns the value of a successful outcome. If it failed, adds its problems and returns `None`.
    pub(crate) fn keep<T>(&mut self, outcome: Result<T, Failure>) -> Option<T> {
        outcome.map_err(|failure| self.add(failure)).ok()
    }

    /// Joins the problems without the prefix "error: ". The caller puts its own text in front of them.
    pub(crate) fn reasons(&self) -> String {
        let problems = self.problems.iter().map(|problem| problem.trim_end());
        problems.collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn mentions(&self, text: &str) -> bool {
        self.problems.iter().any(|problem| problem.contains(text))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }
}

impl FromIterator<String> for Failure {
    fn from_iter<I: IntoIterator<Item = String>>(problems: I) -> Self {
        Self {
            problems: problems.into_iter().collect(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.problems {
            writeln!(formatter, "error: {}", problem.trim_end())?;
        }
        Ok(())
    }
}

pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Start { file, settings } => start::run(StartInputs {
            args: settings,
            file,
        }),
        Command::Stop { timeout, settings } => stop(&settings, Duration::from_secs(timeout)),
        Command::Reload {
            timeout,
            strict,
            settings,
        } => reload(&settings, strict, Duration::from_secs(timeout)),
        Command::Upgrade { timeout, settings } => upgrade(&settings, Duration::from_secs(timeout)),
        Command::Tokens(command) => manage_tokens(command),
        Command::Events {
            from,
            json,
            settings,
        } => follow(&settings, from, json),
        Command::Check(args) | Command::Config(ConfigCommand::Parse(args)) => run_check(args),
        Command::Import(args) | Command::Config(ConfigCommand::DbImport(args)) => import(&args),
        Command::Export {
            output,
            format,
            oauth2_tokens,
            settings,
        } => export(&settings, output.as_deref(), format, oauth2_tokens),
        Command::OAuth2(command) => oauth2(&command),
        Command::Config(ConfigCommand::DbExport { file, settings }) => db_export(&settings, &file),
        Command::Explain(args) => explain::run(&args),
        Command::Expr(command) => expr::run(&command),
        Command::Revisions(command) => revisions::run(command),
        Command::Top {
            interval,
            once,
            settings,
        } => top::run(&settings, Duration::from_secs(interval.into()), once),
        Command::Profile(command) => profiles::run(&command),
        Command::Plugins { json } => plugin_list::run(json),
        Command::Settings { markdown: true } => say(&settings::page()),
        Command::Settings { markdown: false } => say(&settings::sample()),
        Command::Version => say(concat!("silverback ", env!("CARGO_PKG_VERSION"), "\n")),
    }
}

/// Arguments of `start`. A reload needs them to read the settings from the same file and flags.
#[derive(Debug)]
pub(crate) struct StartInputs {
    args: SettingsArgs,
    file: Option<PathBuf>,
}

impl StartInputs {
    pub(crate) fn resolve(&self) -> Result<Resolved, Failure> {
        resolve(&self.args, self.file.as_deref())
    }

    /// The settings file that [`StartInputs::resolve`] reads.
    pub(crate) fn settings_file(&self) -> Option<&Path> {
        settings_path(self.args.conf.as_deref())
    }
}

fn resolve(args: &SettingsArgs, file: Option<&Path>) -> Result<Resolved, Failure> {
    Ok(settings::resolve(gather(args)?, file))
}

/// Resolves only the settings, for commands that talk to a running gateway.
pub(crate) fn resolved_settings(args: &SettingsArgs) -> Result<Settings, Failure> {
    accepted(resolve(args, None)?.settings)
}

pub(crate) fn accepted(settings: Result<Settings, Vec<Problem>>) -> Result<Settings, Failure> {
    settings.map_err(|problems| problems.iter().map(Problem::in_full).collect())
}

fn gather(args: &SettingsArgs) -> Result<Inputs, Failure> {
    let mut flags: Vec<_> = args
        .set
        .iter()
        .map(|(name, value)| (name.clone(), value.clone(), "--set"))
        .collect();
    if let Some(prefix) = &args.prefix {
        flags.push(("prefix".to_owned(), prefix.clone(), "--prefix"));
    }
    Ok(Inputs {
        file: settings_file(args.conf.as_deref())?,
        variables: variables(std::env::vars_os())?,
        flags,
    })
}

/// Returns the variables that are UTF-8. Fails if one that is a setting is not. The others belong to other programs.
fn variables(
    all: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Vec<(String, String)>, Failure> {
    let mut failure = Failure::default();
    let mut variables = Vec::new();
    for (name, value) in all {
        let Ok(name) = name.into_string() else {
            continue;
        };
        match (value.into_string(), settings::setting_of_variable(&name)) {
            (Ok(value), _) => variables.push((name, value)),
            (Err(_), Some(setting)) => failure.add(Failure::new(format!(
                "setting {setting} (environment variable {name}): the value is not UTF-8"
            ))),
            (Err(_), None) => {}
        }
    }
    if failure.is_empty() {
        Ok(variables)
    } else {
        Err(failure)
    }
}

fn settings_path(named: Option<&Path>) -> Option<&Path> {
    let mut searched = SEARCHED_FILES.iter().map(Path::new);
    named.or_else(|| searched.find(|path| path.exists()))
}

fn settings_file(named: Option<&Path>) -> Result<Option<(PathBuf, String)>, Failure> {
    let Some(path) = settings_path(named) else {
        return Ok(None);
    };
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some((path.to_owned(), text))),
        Err(error) => Err(Failure::new(format!(
            "cannot read the settings file {}: {error}",
            path.display()
        ))),
    }
}

fn stop(args: &SettingsArgs, timeout: Duration) -> Result<(), Failure> {
    let settings = resolved_settings(args)?;
    let pid = instance::stop(&settings.prefix, timeout).map_err(Failure::new)?;
    say(&format!("stopped process {pid}\n"))
}

fn reload(args: &SettingsArgs, strict: bool, timeout: Duration) -> Result<(), Failure> {
    let other = args.set.iter().filter(|(name, _)| name != "prefix");
    let refused: Failure = other.map(|(name, _)| only_at_start(name)).collect();
    if !refused.is_empty() {
        return Err(refused);
    }
    let settings = resolved_settings(args)?;
    let variables = variables(std::env::vars_os())?
        .into_iter()
        .filter(|(name, _)| {
            settings::setting_of_variable(name).is_some_and(|name| name != "prefix")
        });
    let given = Reload {
        settings_file: args.conf.as_deref().map(absolute).transpose()?,
        variables: variables.collect(),
        strict,
    };
    let (process, said) = reload_over_socket(&settings.prefix, &given, timeout)?;
    let warnings = said["warnings"].as_array().into_iter().flatten();
    warnings.filter_map(Json::as_str).for_each(warn);
    let loaded = loaded_configuration(&said["configuration"]).unwrap_or_default();
    say(&format!(
        "process {process} has reloaded its settings{loaded}\n"
    ))
}

/// Describes the configuration that a reload has loaded: `; revision 5: +1 ~0 -9`.
fn loaded_configuration(loaded: &Json) -> Option<String> {
    let number = |name: &str| loaded[name].as_u64();
    Some(format!(
        "; revision {}: +{} ~{} -{}",
        number("revision")?,
        number("created")?,
        number("updated")?,
        number("deleted")?
    ))
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    path.canonicalize()
        .map_err(Failure::of(&format!("read {}", path.display())))
}

/// Asks the running gateway to reload. Returns its process id and its answer.
fn reload_over_socket(
    prefix: &Path,
    given: &Reload,
    timeout: Duration,
) -> Result<(u64, Json), Failure> {
    let client = match ApiClient::connect(prefix) {
        Ok(client) => client.within(timeout),
        Err(error @ ClientError::NotRunning(_)) => {
            return Err(match instance::process(prefix) {
                Ok(process) => Failure::new(format!(
                    "process {process} is running with prefix {}, but its socket {} is missing there. `kill -HUP {process}` \
                     makes it reload; its log tells the outcome",
                    prefix.display(),
                    local::ADMIN
                )),
                Err(_) => Failure::new(error),
            });
        }
        Err(error) => return Err(Failure::new(error)),
    };
    let headers = [("content-type", "application/json")];
    let body = serde_json::to_vec(given).map_err(Failure::new)?;
    let answer = client.request("POST", "/reload", &headers, body);
    let answer = answer.map_err(Failure::new)?;
    let said = answer.json().unwrap_or_default();
    let process = said["process"].as_u64().unwrap_or_default();
    if answer.is_success() {
        return Ok((process, said));
    }
    Err(Failure::new(match said["message"].as_str() {
        Some(reason) if process > 0 => {
            format!("process {process} keeps its settings and its configuration: {reason}")
        }
        Some(message) if answer.status != 404 => message.to_owned(),
        _ => "the running gateway is an older version, which reloads only at SIGHUP; its log tells the outcome".to_owned(),
    }))
}

/// Returns the error for a `--set` flag of `reload`. The running gateway uses only the file, the variables and the
/// flags of its own start, so this flag would have no effect.
fn only_at_start(name: &str) -> String {
    format!(
        "setting {name} (flag --set): `reload` cannot set it. The gateway reads the settings file again that it was started with: \
         change {name} there, then run `silverback reload`. If it is a flag or an environment variable of `silverback start`, stop \
         the gateway and start it with the new value"
    )
}

fn upgrade(args: &SettingsArgs, timeout: Duration) -> Result<(), Failure> {
    let settings = resolved_settings(args)?;
    let (old, new) = instance::upgrade(&settings.prefix, timeout).map_err(Failure::new)?;
    say(&format!(
        "process {new} has taken over from process {old}, which ends with its last connection\n"
    ))
}

fn manage_tokens(command: TokensCommand) -> Result<(), Failure> {
    let file = |args: &SettingsArgs| Ok(resolved_settings(args)?.admin.tokens_file);
    match command {
        TokensCommand::Create {
            name,
            role,
            settings,
        } => {
            let text = tokens::create(&file(&settings)?, &name, role).map_err(Failure::new)?;
            say(&format!("{text}\n"))
        }
        TokensCommand::List { settings } => {
            let tokens = tokens::list(&file(&settings)?).map_err(Failure::new)?;
            if tokens.is_empty() {
                return say("no tokens\n");
            }
            let lines = tokens.iter().map(|token| {
                let role = token.role.to_string();
                format!("{}  {role:<9}  {}\n", token.created, token.name)
            });
            say(&lines.collect::<String>())
        }
        TokensCommand::Revoke { name, settings } => {
            tokens::revoke(&file(&settings)?, &name).map_err(Failure::new)?;
            say(&format!("the token {name} is revoked\n"))
        }
    }
}

fn follow(args: &SettingsArgs, from: Option<u64>, json: bool) -> Result<(), Failure> {
    let settings = resolved_settings(args)?;
    let format = if json {
        events::Format::Json
    } else {
        events::Format::Text
    };
    events::follow(&settings.prefix, from, format, warn)
}

fn run_check(args: CheckArgs) -> Result<(), Failure> {
    let resolved = resolve(&args.settings, args.file.as_deref())?;
    let of_settings = resolved.warnings.iter();
    let mut warnings: Vec<String> = of_settings.map(Problem::in_full).collect();
    let settings = accepted(resolved.settings);
    let mut checked = check::run(settings, args.file.as_deref(), &mut warnings);
    warnings.iter().for_each(|warning| warn(warning));
    if args.strict && !warnings.is_empty() {
        let mut failure = checked.err().unwrap_or_default();
        failure.add(Failure::new(check::REFUSED_WARNINGS));
        checked = Err(failure);
    }
    match checked? {
        Checked::Configuration => say("parse successful\n"),
        Checked::Store { entities, revision } => say(&format!(
            "the settings and the store are valid (entities: {entities}, revision: {revision})\n"
        )),
        Checked::SettingsOnly => say(
            "the settings are valid; no declarative configuration was checked: name its file, `silverback check FILE`\n",
        ),
    }
}

fn import(args: &ImportArgs) -> Result<(), Failure> {
    let settings = resolved_settings(&args.settings)?;
    let Imported {
        revision,
        counts,
        warnings,
    } = transfer::import(&settings, &args.file)?;
    warnings.iter().for_each(|warning| warn(warning));
    say(&format!(
        "import successful: {} created, {} updated, {} unchanged, revision {revision}\n",
        counts.created, counts.updated, counts.unchanged
    ))
}

fn export(
    args: &SettingsArgs,
    output: Option<&Path>,
    format: Option<TextFormat>,
    with_tokens: bool,
) -> Result<(), Failure> {
    let settings = resolved_settings(args)?;
    let format = transfer::export_format(format, output);
    transfer::export(
        &settings,
        output.map_or(Target::Output, Target::File),
        (format, with_tokens),
    )
}

fn oauth2(command: &OAuth2Command) -> Result<(), Failure> {
    match command {
        OAuth2Command::Import {
            file,
            skip,
            settings,
        } => oauth2_transfer::import(&resolved_settings(settings)?, file, *skip),
        OAuth2Command::Export { output, settings } => {
            oauth2_transfer::export(&resolved_settings(settings)?, output.as_deref())
        }
    }
}

fn db_export(args: &SettingsArgs, file: &Path) -> Result<(), Failure> {
    let settings = resolved_settings(args)?;
    let format = transfer::export_format(None, Some(file));
    transfer::export(&settings, Target::NewFile(file), (format, false))
}

pub(crate) fn warn(text: &str) {
    // Nothing can be done if standard error is closed.
    let _ = writeln!(io::stderr(), "warning: {text}");
}

pub(crate) fn say(text: &str) -> Result<(), Failure> {
    print(text.as_bytes())
}

/// Writes to standard output. Succeeds if the reader closes the pipe early, as `head` does.
pub(crate) fn print(bytes: &[u8]) -> Result<(), Failure> {
    let mut output = io::stdout();
    match output.write_all(bytes).and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::of("write to standard output")(error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    #[test]
    fn a_setting_that_is_not_utf_8_is_refused_with_its_variable() {
        let wrong = || OsString::from_vec(vec![b'a', 0xff]);
        let read = |name: &str| {
            variables([(name.into(), wrong()), ("PATH".into(), "/bin".into())].into_iter())
        };
        for name in ["KONG_PREFIX", "SILVERBACK_LOG_LEVEL"] {
            let refused = read(name).expect_err("refused").to_string();
            assert!(refused.contains(name), "{refused}");
        }
        let path = ("PATH".to_owned(), "/bin".to_owned());
        assert_eq!(read("OTHER").expect("not a setting"), [path]);
    }
}
