//! `silverback top`: a live view of the running gateway, from the metrics that its local socket gives.

mod model;
mod page;
mod view;

use crate::cli::SettingsArgs;
use crate::client::ApiClient;
use crate::commands::{Failure, resolved_settings, say};
use model::{Order, View};
use page::Page;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::io::{self, IsTerminal};
use std::thread;
use std::time::{Duration, Instant};
use view::Shown;

/// Maximum time for a page of metrics.
const LIMIT: Duration = Duration::from_secs(10);

pub(crate) fn run(args: &SettingsArgs, interval: Duration, once: bool) -> Result<(), Failure> {
    let settings = resolved_settings(args)?;
    let client = ApiClient::connect(&settings.prefix).map_err(Failure::new)?;
    let mut top = Top {
        client: client.within(LIMIT),
        interval,
        last: None,
        view: View::default(),
        shown: Shown::default(),
    };
    top.read()?;
    // Nothing reads keys or moves a cursor where the output is a file or a pipe.
    if once || !io::stdout().is_terminal() {
        thread::sleep(interval);
        top.read()?;
        return say(&view::text(&top.view, &top.shown));
    }
    let mut terminal = ratatui::try_init().map_err(Failure::of("use the terminal"))?;
    let ended = top.follow(&mut terminal);
    ratatui::restore();
    ended
}

struct Top {
    client: ApiClient,
    interval: Duration,
    /// The newest page, and when it was read.
    last: Option<(Page, Instant)>,
    view: View,
    shown: Shown,
}

impl Top {
    /// Reads a page. From the second one on, computes the view.
    fn read(&mut self) -> Result<(), Failure> {
        let response = self
            .client
            .request("GET", "/metrics", &[], "")
            .map_err(Failure::new)?;
        if !response.is_success() {
            return Err(Failure::new(format!(
                "the gateway answers the request for its metrics with status {}",
                response.status
            )));
        }
        let (page, now) = (
            Page::parse(&String::from_utf8_lossy(&response.body)),
            Instant::now(),
        );
        if let Some((before, then)) = &self.last {
            let seconds = now.duration_since(*then).as_secs_f64().max(1e-3);
            self.view = View::between(before, &page, seconds);
            self.view.sort(self.shown.order);
        }
        self.last = Some((page, now));
        Ok(())
    }

    /// Shows views until the user quits.
    fn follow(&mut self, terminal: &mut DefaultTerminal) -> Result<(), Failure> {
        let mut next = Instant::now() + self.interval.min(Duration::from_secs(1));
        loop {
            terminal
                .draw(|frame| view::draw(&self.view, &self.shown, frame.area(), frame.buffer_mut()))
                .map_err(Failure::of("write to the terminal"))?;
            let wait = next.saturating_duration_since(Instant::now());
            if event::poll(wait).map_err(Failure::of("read from the terminal"))? {
                match event::read().map_err(Failure::of("read from the terminal"))? {
                    Event::Key(key)
                        if key.kind != KeyEventKind::Release && self.press(key) == Then::Quit =>
                    {
                        return Ok(());
                    }
                    _ => {}
                }
            }
            if Instant::now() >= next {
                next = Instant::now() + self.interval;
                if !self.shown.paused {
                    // A gateway that is being replaced or restarted answers again later.
                    self.shown.trouble = self.read().err().map(|failure| failure.reasons());
                }
            }
        }
    }

    fn press(&mut self, key: KeyEvent) -> Then {
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Then::Quit,
            // In raw mode, the terminal does not turn this key into a signal.
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return Then::Quit;
            }
            KeyCode::Char('r') => self.shown.order = Order::Rate,
            KeyCode::Char('l') => self.shown.order = Order::Latency,
            KeyCode::Char('e') => self.shown.order = Order::Errors,
            KeyCode::Char('s') => self.shown.services = !self.shown.services,
            KeyCode::Char(' ') => self.shown.paused = !self.shown.paused,
            _ => {}
        }
        self.view.sort(self.shown.order);
        Then::GoOn
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    GoOn,
    Quit,
}
