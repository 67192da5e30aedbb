//! Programs that run in the background of a suite, and programs with a time limit.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A program that is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Process(pub(super) Child);

impl Drop for Process {
    fn drop(&mut self) {
        // The program may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    pub(super) fn start(command: &mut Command) -> Result<Self, String> {
        let child = command
            .spawn()
            .map_err(|error| format!("cannot run {:?}: {error}", command.get_program()))?;
        Ok(Self(child))
    }

    /// Starts the program and reads its error output until a line contains `marker`. Returns the text after the marker.
    pub(super) fn start_until(
        command: &mut Command,
        marker: &str,
    ) -> Result<(Self, String), String> {
        let mut process = Self::start(command.stderr(Stdio::piped()))?;
        let errors = process.0.stderr.take();
        let mut errors = BufReader::new(errors.ok_or("no error output")?);
        let mut line = String::new();
        loop {
            line.clear();
            let read = errors.read_line(&mut line);
            if read.map_err(|error| error.to_string())? == 0 {
                return Err(format!(
                    "{:?} ended before `{marker}`",
                    command.get_program()
                ));
            }
            if let Some((_, rest)) = line.split_once(marker) {
                let rest = rest.trim().to_owned();
                discard(errors);
                return Ok((process, rest));
            }
        }
    }
}

/// End of a program that has a time limit.
pub(super) enum End {
    Status(ExitStatus, String),
    /// The program exceeded the time limit and was killed.
    TooLate(String),
}

/// Runs a program until it exits, at most for `limit`. Returns its output followed by its error output.
pub(super) fn run_for(command: &mut Command, limit: Duration) -> Result<End, String> {
    let mut process = Process::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()))?;
    let output = process.0.stdout.take().ok_or("no output")?;
    let errors = process.0.stderr.take().ok_or("no error output")?;
    let output = thread::spawn(move || read_text(output));
    let errors = thread::spawn(move || read_text(errors));
    let deadline = Instant::now() + limit;
    let ended = loop {
        let ended = process.0.try_wait().map_err(|error| error.to_string())?;
        if ended.is_some() || Instant::now() > deadline {
            break ended;
        }
        thread::sleep(POLL_INTERVAL);
    };
    drop(process);
    let text = output.join().unwrap_or_default() + &errors.join().unwrap_or_default();
    Ok(match ended {
        Some(status) => End::Status(status, text),
        None => End::TooLate(text),
    })
}

fn read_text(mut from: impl Read) -> String {
    let mut bytes = Vec::new();
    // Output before a read error is still useful.
    let _ = from.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads and discards further output, so that the program never blocks on a full pipe.
fn discard(mut from: BufReader<ChildStderr>) {
    thread::spawn(move || std::io::copy(&mut from, &mut std::io::sink()));
}
