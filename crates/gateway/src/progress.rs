//! What a long command shows meanwhile, on standard error: a bar on a terminal, else a line for each stage.

use admin::transfer::Progress as Stage;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::time::Duration;

pub(crate) struct Progress {
    /// On a terminal.
    bar: Option<ProgressBar>,
    /// What was said last.
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
            // Nobody reads it: nothing to be done.
            (None, Some((_, total))) => {
                let _ = writeln!(std::io::stderr(), "{text} {total} entities");
            }
            (None, None) => {
                let _ = writeln!(std::io::stderr(), "{text}");
            }
        }
        self.said = text;
    }

    /// Takes the bar away.
    pub(crate) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
