//! The progress display of a run.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::Instant;

/// The progress of one case. A terminal shows a bar until the case ends. Then one line with the duration is printed.
pub struct Progress {
    bar: ProgressBar,
    case: String,
    started: Instant,
}

impl Progress {
    pub fn start(case: &str, steps: usize) -> Self {
        let bar = if std::io::stderr().is_terminal() {
            ProgressBar::new(steps as u64)
        } else {
            ProgressBar::hidden()
        };
        if let Ok(style) = ProgressStyle::with_template("{msg:60} {bar:30} {pos}/{len}, {eta} left")
        {
            bar.set_style(style);
        }
        bar.set_message(case.to_owned());
        Self {
            bar,
            case: case.to_owned(),
            started: Instant::now(),
        }
    }

    pub fn step(&self) {
        self.bar.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        eprintln!(
            "{:60} {:6.1} s",
            self.case,
            self.started.elapsed().as_secs_f64()
        );
    }
}
