//! A shell that runs the commands of one page.

use super::expected::is_as_shown;
use super::page::{Block, Way};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Time limit for a block; enough for a debug build on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Makes a block fail if any of its commands fails, without ending the shell.
const PRELUDE: &str = "exec 2>&1\ntrap 'status=$?' ERR\n";

pub(super) struct Session {
    shell: Child,
    commands: ChildStdin,
    lines: Receiver<String>,
    /// Directory with the blocks as files, and with the outputs of those in the background.
    files: TempDir,
    blocks: usize,
    background: Vec<PathBuf>,
    /// Unique text that separates the end of a block's output from the output itself.
    marker: String,
}

impl Session {
    /// Starts a shell in a directory. It finds `programs` before all other programs, and has no Kong settings except
    /// the given ones.
    pub(super) fn start(
        folder: &Path,
        programs: &Path,
        settings: &[(&str, String)],
    ) -> Result<Self, String> {
        let files = tempfile::tempdir().map_err(|error| error.to_string())?;
        let mut command = Command::new("bash");
        command
            .args(["--noprofile", "--norc"])
            .current_dir(folder)
            // A process group allows to stop all programs that the shell starts.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("KONG_") {
                command.env_remove(name);
            }
        }
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .env("PATH", format!("{}:{path}", programs.display()))
            .env("LC_ALL", "C.UTF-8")
            .env("DECK_ANALYTICS", "off")
            .envs(settings.iter().map(|(name, value)| (name, value)));
        let mut shell = command
            .spawn()
            .map_err(|error| format!("cannot run bash: {error}"))?;
        let (mut commands, output) = (
            shell.stdin.take().ok_or("bash has no input")?,
            shell.stdout.take().ok_or("bash has no output")?,
        );
        commands
            .write_all(PRELUDE.as_bytes())
            .map_err(|error| error.to_string())?;
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut line = Vec::new();
            while let Ok(1..) = output.read_until(b'\n', &mut line) {
                let text = String::from_utf8_lossy(&line).into_owned();
                line.clear();
                if sender.send(text).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            marker: format!("end of block of {}", shell.id()),
            shell,
            commands,
            lines,
            files,
            blocks: 0,
            background: Vec::new(),
        })
    }

    /// Runs a block and compares its output with the output on the page.
    pub(super) fn run(&mut self, block: &Block) -> Result<(), String> {
        self.blocks += 1;
        let file = self.files.path().join(format!("block-{}", self.blocks));
        fs::write(&file, &block.commands).map_err(|error| error.to_string())?;
        if block.way == Way::Background {
            return self.run_in_background(&file, block);
        }
        let (status, output) = self.run_to_end(&file)?;
        let has_failed = status != "0";
        if has_failed != (block.way == Way::Fails) {
            return Err(format!("ended with status {status}:\n{output}"));
        }
        match &block.output {
            Some(shown) if !is_as_shown(shown, &output) => Err(unlike(shown, &output)),
            _ => Ok(()),
        }
    }

    /// Returns the status of the last failed command, and the output.
    fn run_to_end(&mut self, file: &Path) -> Result<(String, String), String> {
        let marker = self.marker.clone();
        // The output of a command may lack a final line feed.
        self.send(&format!(
            "status=0; . '{}' </dev/null; printf '\\n{marker} %s\\n' \"$status\"\n",
            file.display()
        ))?;
        let deadline = Instant::now() + LIMIT;
        let mut output = String::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    if let Some(status) = line.strip_prefix(&marker) {
                        // Remove the line feed that precedes the marker.
                        if output.ends_with("\n\n") || output == "\n" {
                            output.pop();
                        }
                        return Ok((status.trim().to_owned(), output));
                    }
                    output.push_str(&line);
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("did not finish in time:\n{output}"));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(format!("ended the shell:\n{output}"));
                }
            }
        }
    }

    /// Starts a block and waits for the output that the page shows.
    fn run_in_background(&mut self, file: &Path, block: &Block) -> Result<(), String> {
        let output_file = file.with_extension("output");
        let done = file.with_extension("done");
        fs::write(&output_file, "").map_err(|error| error.to_string())?;
        self.send(&format!(
            "{{ . '{}'; echo \"$?\" >'{}'; }} </dev/null >'{}' 2>&1 &\n",
            file.display(),
            done.display(),
            output_file.display()
        ))?;
        self.background.push(done);
        let Some(shown) = &block.output else {
            return Ok(());
        };
        let deadline = Instant::now() + LIMIT;
        loop {
            let bytes = fs::read(&output_file).map_err(|error| error.to_string())?;
            let output = String::from_utf8_lossy(&bytes);
            if is_as_shown(shown, &output) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(unlike(shown, &output));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Ends the session. The page itself must have stopped all its background commands.
    pub(super) fn finish(self) -> Result<(), String> {
        let deadline = Instant::now() + LIMIT;
        while self.background.iter().any(|done| !done.exists()) {
            if Instant::now() > deadline {
                return Err("it leaves a program running that it has started".to_owned());
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    fn send(&mut self, text: &str) -> Result<(), String> {
        self.commands
            .write_all(text.as_bytes())
            .map_err(|error| format!("the shell has ended: {error}"))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Kill the whole process group; it may be empty already.
        let group = format!("-{}", self.shell.id());
        let _ = Command::new("kill")
            .args(["-KILL", "--", &group])
            .stderr(Stdio::null())
            .status();
        let _ = self.shell.wait();
    }
}

fn unlike(shown: &str, output: &str) -> String {
    format!("the output is not as shown\n--- shown\n{shown}--- printed\n{output}---")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(blocks: &[(Way, &str, Option<&str>)]) -> Result<(), String> {
        let folder = tempfile::tempdir().unwrap();
        let mut session = Session::start(folder.path(), folder.path(), &[])?;
        for (way, commands, output) in blocks {
            session.run(&Block {
                line: 1,
                way: *way,
                commands: (*commands).to_owned(),
                output: output.map(str::to_owned),
            })?;
        }
        session.finish()
    }

    #[test]
    fn blocks_share_a_shell() {
        let blocks = [
            (Way::Succeeds, "a=1\n", Some("")),
            (Way::Succeeds, "printf $a; echo 2 >&2\n", Some("12\n")),
            (Way::Succeeds, "printf 3\n", Some("3\n")),
        ];
        assert_eq!(run(&blocks), Ok(()));
    }

    #[test]
    fn any_command_that_fails_makes_its_block_fail() {
        assert!(run(&[(Way::Succeeds, "false\ntrue\n", None)]).is_err());
        assert_eq!(run(&[(Way::Fails, "false\ntrue\n", None)]), Ok(()));
        assert!(run(&[(Way::Fails, "true\n", None)]).is_err());
    }

    #[test]
    fn another_output_is_an_error_that_shows_both() {
        let error = run(&[(Way::Succeeds, "echo b\n", Some("a\n"))]).unwrap_err();
        assert!(error.contains("a\n--- printed\nb\n"), "{error}");
    }

    #[test]
    fn a_background_block_runs_beside_the_others_until_it_is_stopped() {
        let blocks = [
            (
                Way::Background,
                "mkfifo pipe; echo up; cat pipe\n",
                Some("up\n"),
            ),
            (Way::Succeeds, "echo end >pipe\n", None),
        ];
        assert_eq!(run(&blocks), Ok(()));
    }

    #[test]
    fn the_end_of_the_shell_is_an_error() {
        let error = run(&[(Way::Succeeds, "exit 3\n", None)]).unwrap_err();
        assert!(error.contains("ended the shell"), "{error}");
    }
}
