//! Progress of a long command, on standard error: a bar on a terminal, otherwise one line for each stage.

use admin::transfer::Progress as Stage;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::time::Duration;

pub(crate) struct Progress {
    /// `None` if standard error is not a terminal.
    bar: Option<ProgressBar>,
    /// Text of the last stage shown. Without a terminal, each stage is printed only once.
    said: &'static str,
}

impl Progress {
    pub(crate) fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(ProgressBar::no_length);
        if let Some(bar) = &bar {
            if let Ok(style) =
                ProgressStyle::with_template("{msg:12} {bar:40} {pos}/{len} {elapsed}")
            {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(100));
        }
        Self { bar, said: "" }
    }

    pub(crate) fn show(&mut self, stage: Stage) {
        let (text, numbers) = match stage {
            Stage::Reading => ("reading", None),
            Stage::Validating { done, total } => ("validating", Some((done, total))),
            Stage::Writing => ("writing", None),
            Stage::MakingLive => ("making live", None),
        };
        match (&self.bar, numbers) {
            (Some(bar), Some((done, total))) => {
                bar.set_message(text);
                bar.set_length(total as u64);
                bar.set_position(done as u64);
            }
            (Some(bar), None) => bar.set_message(text),
            (None, _) if text == self.said => {}
            // Nothing can be done if standard error is closed.
            (None, Some((_, total))) => {
                let _ = writeln!(std::io::stderr(), "{text} {total} entities");
            }
            (None, None) => {
                let _ = writeln!(std::io::stderr(), "{text}");
            }
        }
        self.said = text;
    }

    /// Removes the bar.
    pub(crate) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
