//! The command line as clap types. The other modules run the commands.

use admin::tokens::Role;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Parser)]
#[command(
    name = "silverback",
    version,
    about = "API gateway that runs Kong configurations"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the gateway, in the foreground
    Start {
        /// Declarative configuration (YAML or JSON). Without it the gateway uses its embedded store
        file: Option<PathBuf>,
        #[command(flatten)]
        settings: SettingsArgs,
    },
    /// Stop the running gateway after its current requests
    Stop {
        /// Seconds to wait until it has ended
        #[arg(long, default_value_t = 60)]
        timeout: u64,
        #[command(flatten)]
        settings: SettingsArgs,
    },
    /// Make the running gateway read its settings and its declarative file again, and wait for the outcome
    ///
    /// The gateway reads the settings file that it was started with. It keeps the flags and the environment variables
    /// of its start: those of this command only help to find the gateway. A --conf with another file is refused.
    Reload {
        /// Seconds to wait for the outcome
        #[arg(long, default_value_t = 120)]
        timeout: u64,
        /// Refuse the reload, and change nothing, if the declarative configuration has warnings
        #[arg(long)]
        strict: bool,
        #[command(flatten)]
        settings: SettingsArgs,
    },
    /// Replace the running gateway by the installed binary without losing connections
    Upgrade {
        /// Seconds to wait until the new process serves
        #[arg(long, default_value_t = 120)]
        timeout: u64,
        #[command(flatten)]
        settings: SettingsArgs,
    },
    /// Print each change of the running gateway's configuration as it happens
    Events {
        /// First revision to print [default: the next one]
        #[arg(long, value_name = "REVISION")]
        from: Option<u64>,
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        settings: SettingsArgs,
    },
    /// Check settings, certificates and configuration without starting the gateway
    Check(CheckArgs),
    /// Create, list and revoke tokens of the Admin API
    #[command(subcommand)]
    Tokens(TokensCommand),
    /// Add the entities of a declarative configuration to the store; other entities stay
    Import(ImportArgs),
    /// Write all entities of the store as a declarative configuration, in a fixed order
    Export {
        /// File to write, replaced if it exists [default: standard output]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Format to write [default: the file's extension, else yaml]
        #[arg(long)]
        format: Option<TextFormat>,
        /// Add the OAuth2 tokens of this node, which are not configuration
        #[arg(long)]
        oauth2_tokens: bool,
        #[command(flatten)]
        settings: SettingsArgs,
    },
    /// Import and export OAuth2 tokens as lines of JSON, through the running gateway
    #[command(subcommand, name = "oauth2")]
    OAuth2(OAuth2Command),
    /// Run check, import and export by their names in Kong
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Explain which route a request gets and why, which plugins run, and where it goes
    #[command(allow_missing_positional = true)]
    Explain(ExplainArgs),
    /// Check, format and explain expressions of routes
    #[command(subcommand)]
    Expr(ExprCommand),
    /// List, show, compare and restore revisions of the configuration
    #[command(subcommand)]
    Revisions(RevisionsCommand),
    /// Show live what the running gateway does: rates, latencies, routes, workers and errors
    Top {
        /// Seconds between two readings
        #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=60))]
        interval: u32,
        /// Print one view as text, and end. It covers one interval
        #[arg(long)]
        once: bool,
        #[command(flatten)]
        settings: SettingsArgs,
    },
    /// Measure where the running gateway spends CPU time
    #[command(subcommand)]
    Profile(ProfileCommand),
    /// List the plugins of this program in the order in which they run, and whether they work
    Plugins {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print every setting with its default, in the form of a kong.conf
    Settings {
        /// Print a page in Markdown instead
        #[arg(long)]
        markdown: bool,
    },
    /// Print the version
    Version,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProfileCommand {
    /// Measure CPU time: writes a profile for pprof and a flame graph
    Cpu {
        /// Duration of the measurement
        #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=600))]
        seconds: u32,
        /// Samples per second of CPU time
        #[arg(long, value_name = "NUMBER", default_value_t = profile::DEFAULT_FREQUENCY, value_parser = clap::value_parser!(u32).range(1..=1000))]
        frequency: u32,
        /// File to write: NAME.pb.gz, NAME.svg, or NAME for both [default: silverback-cpu-TIME]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        #[command(flatten)]
        settings: SettingsArgs,
    },
    /// Explains why there is no profile of memory, and what to do
    Heap {
        #[command(flatten)]
        settings: SettingsArgs,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Does what `check` does
    Parse(CheckArgs),
    /// Does what `import` does
    #[command(name = "db_import", alias = "db-import")]
    DbImport(ImportArgs),
    /// Write all entities of the store to a file that does not exist yet
    #[command(name = "db_export", alias = "db-export")]
    DbExport {
        /// File to write, in the format of its extension (YAML or JSON)
        #[arg(default_value = "kong.yml")]
        file: PathBuf,
        #[command(flatten)]
        settings: SettingsArgs,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum OAuth2Command {
    /// Import tokens; those that are there already stay as they are
    Import {
        /// File with one token per line, as JSON in the form of the Admin API
        file: PathBuf,
        /// Number of lines at the beginning to leave out, because an earlier import has done them
        #[arg(long, value_name = "LINES", default_value_t = 0)]
        skip: u64,
        #[command(flatten)]
        settings: SettingsArgs,
    },
    /// Write all tokens, one per line
    Export {
        /// File to write, replaced if it exists [default: standard output]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        #[command(flatten)]
        settings: SettingsArgs,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum TextFormat {
    Yaml,
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// Declarative configuration (YAML or JSON)
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokensCommand {
    /// Create a token and print it; it is not shown again
    Create {
        /// Name of the person or program that uses it, shown in logs and in the history
        name: String,
        /// Permissions: admin or read-only
        #[arg(long, default_value_t = Role::Admin)]
        role: Role,
        #[command(flatten)]
        settings: SettingsArgs,
    },
    /// List all tokens with name, role and time of creation
    List {
        #[command(flatten)]
        settings: SettingsArgs,
    },
    /// Revoke a token at once
    Revoke {
        /// Name of the token
        name: String,
        #[command(flatten)]
        settings: SettingsArgs,
    },
}

/// Commands on the history of the running gateway, or of the store if no gateway runs.
#[derive(Debug, Subcommand)]
pub(crate) enum RevisionsCommand {
    /// List revisions, newest first
    List {
        /// Only revisions that changed this entity, with the changes
        #[arg(long, value_name = "TYPE/KEY", value_parser = type_and_key)]
        entity: Option<(String, String)>,
        /// Only revisions of this time or later: RFC 3339, or seconds since 1970
        #[arg(long, value_name = "TIME")]
        since: Option<String>,
        /// Only revisions of this time or earlier
        #[arg(long, value_name = "TIME")]
        until: Option<String>,
        /// Maximum number of revisions. Default: 20, or all with --json
        #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
        limit: Option<u64>,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Show a revision and its changes
    Show {
        /// Number of the revision
        revision: u64,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Show the changes from one revision to another, older or newer
    Diff {
        /// Number of the revision to start from
        from: u64,
        /// Number of the revision to compare with
        to: u64,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Restore the configuration of a revision, or some of its entities, as a new revision
    Rollback {
        /// Number of the revision to restore
        revision: u64,
        /// Restore only this entity; may be repeated
        #[arg(long = "entity", value_name = "TYPE/KEY", value_parser = type_and_key)]
        entities: Vec<(String, String)>,
        /// Reason, kept with the new revision
        #[arg(long)]
        message: Option<String>,
        /// Roll back only if this is the newest revision
        #[arg(long, value_name = "REVISION")]
        expected_revision: Option<u64>,
        /// Show the changes without making them
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        output: OutputArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct OutputArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ExprCommand {
    /// Check an expression and underline errors
    Check {
        /// The expression belongs to a route with a stream protocol
        #[arg(long)]
        stream: bool,
        #[command(flatten)]
        input: ExprInput,
    },
    /// Print an expression in its canonical form, over several lines if it is long
    Format {
        /// Maximum number of characters in a line
        #[arg(long, default_value_t = 100)]
        width: u16,
        /// Write the files instead of printing
        #[arg(long, requires = "files")]
        write: bool,
        #[command(flatten)]
        input: ExprInput,
    },
    /// Describe an expression in words
    Explain {
        /// The expression belongs to a route with a stream protocol
        #[arg(long)]
        stream: bool,
        #[command(flatten)]
        input: ExprInput,
    },
}

/// Expressions given as an argument or as files. Without either, standard input is read.
#[derive(Debug, Args)]
pub(crate) struct ExprInput {
    /// Expression [default: read from standard input]
    #[arg(conflicts_with = "files")]
    pub(crate) text: Option<String>,
    /// File with an expression; may be repeated
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

/// Arguments of `explain`: the request, and the configuration to explain it with.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Method of the request [default: GET]
    pub(crate) method: Option<String>,
    /// URL of the request (http, https, tcp, tls or udp)
    #[arg(required = true)]
    pub(crate) url: String,
    /// Header of the request; may be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = header)]
    pub(crate) headers: Vec<(String, String)>,
    /// Address and port of the client, such as 1.2.3.4:5
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) source: Option<String>,
    /// Address and port of the listener, or its port alone, such as :8443
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) destination: Option<String>,
    /// Server name of the TLS handshake [default: the host of the URL]
    #[arg(long, value_name = "NAME")]
    pub(crate) sni: Option<String>,
    /// Id or name of a route to explain even if it does not match
    #[arg(long, value_name = "ROUTE")]
    pub(crate) route: Option<String>,
    /// Id or username of the consumer whose plugins to include
    #[arg(long, value_name = "CONSUMER")]
    pub(crate) consumer: Option<String>,
    /// Number of routes to show that nearly match
    #[arg(long, value_name = "NUMBER")]
    pub(crate) closest: Option<u16>,
    /// Declarative configuration (YAML or JSON) to use instead of the running gateway
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Declarative configuration (YAML or JSON) [default: the one that the settings name, else the store]
    pub(crate) file: Option<PathBuf>,
    /// Fail if there is any warning
    #[arg(long)]
    pub(crate) strict: bool,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SettingsArgs {
    /// Settings file (kong.conf)
    #[arg(short, long, value_name = "FILE")]
    pub(crate) conf: Option<PathBuf>,
    /// Working directory (the setting prefix)
    #[arg(short, long, value_name = "DIRECTORY")]
    pub(crate) prefix: Option<String>,
    /// Value of a setting; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = name_and_value)]
    pub(crate) set: Vec<(String, String)>,
}

fn type_and_key(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once('/') {
        Some((kind, key)) if !kind.is_empty() && !key.is_empty() => {
            Ok((kind.to_owned(), key.to_owned()))
        }
        _ => Err("expected <type>/<id or name>, such as services/billing"),
    }
}

fn header(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once(':') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("expected <name>: <value>"),
    }
}

fn name_and_value(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("expected <name>=<value>"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_and_argument_has_a_description() {
        fn look(command: &clap::Command, path: &str) {
            let path = format!("{path} {}", command.get_name());
            assert!(command.get_about().is_some(), "{path}");
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{path}: {argument}");
            }
            let own = |command: &&clap::Command| command.get_name() != "help";
            for below in command.get_subcommands().filter(own) {
                look(below, &path);
            }
        }
        let mut command = Cli::command();
        command.build();
        look(&command, "");
    }

    #[test]
    fn check_and_config_parse_take_the_same_arguments() {
        for words in [
            vec!["silverback", "check", "a.yml", "--set", "x=y=z"],
            vec!["silverback", "config", "parse", "a.yml", "--set", "x=y=z"],
        ] {
            let cli = Cli::try_parse_from(words).expect("a valid command line");
            let (Command::Check(args) | Command::Config(ConfigCommand::Parse(args))) = cli.command
            else {
                panic!("another command");
            };
            assert_eq!(args.file, Some("a.yml".into()));
            assert_eq!(args.settings.set, [("x".to_owned(), "y=z".to_owned())]);
        }
    }

    #[test]
    fn a_list_of_no_revisions_is_refused() {
        let parse =
            |limit| Cli::try_parse_from(["silverback", "revisions", "list", "--limit", limit]);
        assert!(parse("1").is_ok());
        let refused = parse("0").expect_err("refused").to_string();
        assert!(refused.contains("--limit"), "{refused}");
    }

    #[test]
    fn a_setting_without_value_is_refused() {
        assert!(Cli::try_parse_from(["silverback", "start", "--set", "prefix"]).is_err());
    }
}
