//! The command line: what can be asked for, as clap types. What is done about it is in the other modules.

use admin::tokens::Role;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Parser)]
#[command(
    name = "silverback",
    version,
    about = "API gateway that runs Kong configurations",
    disable_version_flag = true,
    disable_help_subcommand = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the gateway, in the foreground
    Start {
        /// Declarative configuration (YAML or JSON); without one the embedded store is used
        file: Option<PathBuf>,
        #[command(flatten)]
        settings: SettingsArgs,
    },
    /// Stop the running gateway, letting requests in flight finish
    Stop {
        /// Seconds to wait for it to end
        #[arg(long, default_value_t = 60)]
        timeout: u64,
        #[command(flatten)]
        settings: SettingsArgs,
    },
    /// Make the running gateway read its settings and its declarative file again
    Reload {
        #[command(flatten)]
        settings: SettingsArgs,
    },
    /// Make the running gateway start the binary that is installed now and hand everything over to it
    Upgrade {
        /// Seconds to wait until the new process serves
        #[arg(long, default_value_t = 120)]
        timeout: u64,
        #[command(flatten)]
        settings: SettingsArgs,
    },
    /// Print what happens to the configuration of the running gateway, as it happens
    Events {
        /// The first revision to print; without it, the next one
        #[arg(long, value_name = "REVISION")]
        from: Option<u64>,
        /// Print JSON, an object per line
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        settings: SettingsArgs,
    },
    /// Say everything that starting would, without starting
    Check(CheckArgs),
    /// Make, list and revoke tokens of the Admin API
    #[command(subcommand)]
    Tokens(TokensCommand),
    /// Add the entities of a declarative configuration to the store; what is not in it stays
    Import(ImportArgs),
    /// Write all entities of the store as a declarative configuration, always in the same order
    Export {
        /// The file to write, in place of one that is there; standard output when absent
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// What to write; by the name of the file when absent
        #[arg(long)]
        format: Option<TextFormat>,
        #[command(flatten)]
        settings: SettingsArgs,
    },
    /// Kong's spelling of some commands
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Tell which route a request gets and why not another, what runs for it and where it goes
    Explain(ExplainArgs),
    /// Check, lay out and explain expressions of routes
    #[command(subcommand)]
    Expr(ExprCommand),
    /// List, show, compare and restore revisions of the configuration
    #[command(subcommand)]
    Revisions(RevisionsCommand),
    /// Print every setting with its default, as a kong.conf
    Settings {
        /// As a page in Markdown instead
        #[arg(long)]
        markdown: bool,
    },
    /// Print the version
    Version,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// The same as `check`
    Parse(CheckArgs),
    /// The same as `import`
    #[command(name = "db_import", alias = "db-import")]
    DbImport(ImportArgs),
    /// Write all entities of the store to a file that does not exist yet
    #[command(name = "db_export", alias = "db-export")]
    DbExport {
        /// The file; its name tells whether it is YAML or JSON
        #[arg(default_value = "kong.yml")]
        file: PathBuf,
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
    /// Make a token and print it, this once
    Create {
        /// Who is to have it; shown in logs and histories
        name: String,
        /// What it allows: admin or read-only
        #[arg(long, default_value_t = Role::Admin)]
        role: Role,
        #[command(flatten)]
        settings: SettingsArgs,
    },
    /// Print names, roles and times of all tokens
    List {
        #[command(flatten)]
        settings: SettingsArgs,
    },
    /// Make a token worthless from now on
    Revoke {
        name: String,
        #[command(flatten)]
        settings: SettingsArgs,
    },
}

/// Asked of the running gateway, or else of its store.
#[derive(Debug, Subcommand)]
pub(crate) enum RevisionsCommand {
    /// List revisions, newest first
    List {
        /// Only those that changed this entity, and what they changed of it
        #[arg(long, value_name = "TYPE/KEY", value_parser = type_and_key)]
        entity: Option<(String, String)>,
        /// Only those made at this time or later: RFC 3339, or seconds since 1970
        #[arg(long, value_name = "TIME")]
        since: Option<String>,
        /// Only those made at this time or earlier
        #[arg(long, value_name = "TIME")]
        until: Option<String>,
        /// How many at most
        #[arg(long, default_value_t = 20)]
        limit: usize,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Show a revision and what it changed
    Show {
        revision: u64,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Show what leads from one revision to another, older or newer
    Diff {
        from: u64,
        to: u64,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Make the state of a revision that of a new one
    Rollback {
        revision: u64,
        /// Why; kept with the new revision
        #[arg(long)]
        message: Option<String>,
        /// Only if the newest revision is this one
        #[arg(long, value_name = "REVISION")]
        expected_revision: Option<u64>,
        /// Say what would change, and change nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        output: OutputArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct OutputArgs {
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ExprCommand {
    /// Say what is wrong, and where
    Check {
        /// It is of a route of a stream protocol
        #[arg(long)]
        stream: bool,
        #[command(flatten)]
        input: ExprInput,
    },
    /// Print it in the one way that expressions are written, over several lines if it is long
    Format {
        /// How many characters a line has at most
        #[arg(long, default_value_t = 100)]
        width: u16,
        /// Write the files instead of printing
        #[arg(long, requires = "files")]
        write: bool,
        #[command(flatten)]
        input: ExprInput,
    },
    /// Say in words what it demands, and how requests are led to it
    Explain {
        /// It is of a route of a stream protocol
        #[arg(long)]
        stream: bool,
        #[command(flatten)]
        input: ExprInput,
    },
}

/// From standard input when nothing is given.
#[derive(Debug, Args)]
pub(crate) struct ExprInput {
    /// The expression
    #[arg(conflicts_with = "files")]
    pub(crate) text: Option<String>,
    /// A file that holds one; may be repeated
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

/// Asked of the running gateway, or of a declarative configuration.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The method, GET when absent, and the URL: http, https, tcp, tls or udp
    #[arg(num_args = 1..=2, required = true, value_names = ["METHOD", "URL"])]
    pub(crate) request: Vec<String>,
    /// A header of the request; may be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = header)]
    pub(crate) headers: Vec<(String, String)>,
    /// The client's address and port, such as 1.2.3.4:5
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) source: Option<String>,
    /// The listener's address and port; a port alone as :8443
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) destination: Option<String>,
    /// The server name of the TLS handshake; that of the URL when absent
    #[arg(long, value_name = "NAME")]
    pub(crate) sni: Option<String>,
    /// A route to explain in any case: its id or name
    #[arg(long, value_name = "ROUTE")]
    pub(crate) route: Option<String>,
    /// The consumer whose plugins are told: id or username
    #[arg(long, value_name = "CONSUMER")]
    pub(crate) consumer: Option<String>,
    /// How many of the routes that come closest are told
    #[arg(long, value_name = "NUMBER")]
    pub(crate) closest: Option<u16>,
    /// The declarative configuration (YAML or JSON) to ask, in place of the running gateway
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Declarative configuration (YAML or JSON); without one, that of the settings
    pub(crate) file: Option<PathBuf>,
    /// Fail if the configuration has plugins that are not implemented
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
    /// Working directory; the setting `prefix`
    #[arg(short, long, value_name = "DIRECTORY")]
    pub(crate) prefix: Option<String>,
    /// A setting; may be repeated
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
    fn a_setting_without_value_is_refused() {
        assert!(Cli::try_parse_from(["silverback", "start", "--set", "prefix"]).is_err());
    }
}
