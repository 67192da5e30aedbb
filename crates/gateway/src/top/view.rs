//! The layout of `silverback top`, for a terminal and for plain text.

use super::model::{Order, Row as Traffic, View, Worker};
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Row, Table, Widget};

/// Width of the plain text.
const WIDTH: u16 = 120;

/// Most workers that are shown one by one.
const WORKERS: usize = 16;

/// What the user has chosen, and what is to be said.
#[derive(Debug, Default)]
pub(super) struct Shown {
    pub(super) order: Order,
    /// Whether services are shown in place of routes.
    pub(super) services: bool,
    pub(super) paused: bool,
    /// Why the newest page is missing.
    pub(super) trouble: Option<String>,
}

/// The view as lines of text, with all rows.
pub(super) fn text(view: &View, shown: &Shown) -> String {
    let rows = 6 + view.workers.len().min(WORKERS) + view.errors.len() + traffic(view, shown).len();
    let area = Rect::new(0, 0, WIDTH, u16::try_from(rows + 8).unwrap_or(u16::MAX));
    let mut buffer = Buffer::empty(area);
    draw(view, shown, area, &mut buffer);
    let mut text = String::new();
    for y in 0..area.height {
        let symbols = (0..area.width).filter_map(|x| buffer.cell((x, y)).map(|cell| cell.symbol()));
        let line: String = symbols.collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    format!("{}\n", text.trim_end())
}

pub(super) fn draw(view: &View, shown: &Shown, area: Rect, buffer: &mut Buffer) {
    let workers = height(view.workers.len().min(WORKERS));
    let errors = height(view.errors.len());
    let [head, of_workers, of_errors, of_traffic, foot] = Layout::vertical([
        Constraint::Length(5),
        Constraint::Length(workers),
        Constraint::Length(errors),
        Constraint::Min(4),
        Constraint::Length(1),
    ])
    .areas(area);
    Paragraph::new(totals(view)).render(head, buffer);
    if workers > 0 {
        table_of_workers(&view.workers).render(of_workers, buffer);
    }
    if errors > 0 {
        table_of_errors(&view.errors).render(of_errors, buffer);
    }
    table_of_traffic(view, shown).render(of_traffic, buffer);
    foot_line(shown).render(foot, buffer);
}

/// Height of a table with its title and an empty line; nothing for an empty one.
fn height(rows: usize) -> u16 {
    match rows {
        0 => 0,
        rows => u16::try_from(rows + 2).unwrap_or(u16::MAX),
    }
}

fn traffic<'v>(view: &'v View, shown: &Shown) -> &'v [Traffic] {
    if shown.services {
        &view.services
    } else {
        &view.routes
    }
}

fn totals(view: &View) -> Vec<Line<'static>> {
    let [_, ok, moved, client, server] = view.classes;
    let process = &view.process;
    vec![
        Line::from(vec![
            "requests ".bold(),
            format!("{}   ", optional(view.requests, rate)).into(),
            format!(
                "2xx {}  3xx {}  4xx {}  ",
                rate(ok),
                rate(moved),
                rate(client)
            )
            .into(),
            alarming(format!("5xx {}", rate(server)), server > 0.0),
        ]),
        Line::from(vec![
            "latency  ".bold(),
            format!("{}   ", latencies(view.latency)).into(),
            "upstream ".bold(),
            format!(
                "{}   retries {}",
                latencies(view.upstream),
                optional(view.retries, rate)
            )
            .into(),
        ]),
        Line::from(vec![
            "process  ".bold(),
            format!(
                "CPU {}  memory {}  files {} of {}  connections {} in, {} out  revision {}",
                optional(process.cores, |cores| format!("{:.0} %", cores * 100.0)),
                optional(process.memory, bytes),
                optional(process.open_files, whole),
                optional(process.max_files, whole),
                optional(view.connections, whole),
                optional(view.upstream_connections, whole),
                optional(process.revision, whole),
            )
            .into(),
        ]),
        Line::from(match process.throttled {
            Some(share) if share > 0.0 => vec![alarming(
                format!(
                    "throttled for {:.0} % of the time by the CPU quota",
                    share * 100.0
                ),
                true,
            )],
            _ => Vec::new(),
        }),
    ]
}

fn latencies(quantiles: Option<[f64; 3]>) -> String {
    let [p50, p90, p99] = match quantiles {
        Some(all) => all.map(duration),
        None => ["-", "-", "-"].map(str::to_owned),
    };
    format!("p50 {p50}  p90 {p90}  p99 {p99}")
}

fn table_of_workers(workers: &[Worker]) -> Table<'static> {
    let rows = workers.iter().take(WORKERS).map(|worker| {
        let stalled = worker.stalls > 0.0;
        let row = Row::new([
            worker.name.clone(),
            format!("{:.0} %", worker.busy * 100.0),
            optional(worker.delay, duration),
            rate(worker.stalls),
        ]);
        row.style(if stalled { alarm() } else { Style::default() })
    });
    let widths = [10, 8, 12, 10].map(Constraint::Length);
    Table::new(rows, widths).header(title(["worker", "busy", "delay p99", "stalls"]))
}

fn table_of_errors(errors: &[(String, f64)]) -> Table<'static> {
    let rows = errors
        .iter()
        .map(|(name, number)| Row::new([rate(*number), name.clone()]));
    let widths = [Constraint::Length(12), Constraint::Min(40)];
    Table::new(rows, widths).header(title(["errors", ""]))
}

fn table_of_traffic(view: &View, shown: &Shown) -> Table<'static> {
    let name = if shown.services { "service" } else { "route" };
    let rows = traffic(view, shown).iter().map(|one| {
        let [_, ok, moved, client, server] = one.classes;
        let row = Row::new([
            rate(one.rate),
            rate(ok),
            rate(moved),
            rate(client),
            rate(server),
            optional(one.p99, duration),
            one.name.clone(),
        ]);
        row.style(if server > 0.0 {
            alarm()
        } else {
            Style::default()
        })
    });
    let mut rows: Vec<Row<'_>> = rows.collect();
    if rows.is_empty() {
        let hint =
            "none yet: they come with the plugin prometheus (status_code_metrics, latency_metrics)";
        rows.push(Row::new(["", "", "", "", "", "", hint]));
    }
    let widths = [11, 9, 9, 9, 9, 11].map(Constraint::Length);
    let widths = widths.into_iter().chain([Constraint::Min(20)]);
    let header = title(["requests", "2xx", "3xx", "4xx", "5xx", "p99", name]);
    Table::new(rows, widths).header(header)
}

fn title<const N: usize>(names: [&'static str; N]) -> Row<'static> {
    Row::new(names).style(Style::default().bold().underlined())
}

fn foot_line(shown: &Shown) -> Paragraph<'static> {
    if let Some(trouble) = &shown.trouble {
        return Paragraph::new(alarming(trouble.clone(), true));
    }
    let order = match shown.order {
        Order::Rate => "requests",
        Order::Latency => "latency",
        Order::Errors => "errors",
    };
    let paused = if shown.paused { "PAUSED  " } else { "" };
    Paragraph::new(format!(
        "{paused}by {order}  |  r requests  l latency  e errors  s routes/services  space pause  q quit"
    ))
    .dim()
}

fn alarm() -> Style {
    Style::default().fg(Color::Red)
}

fn alarming(text: String, is_alarm: bool) -> Span<'static> {
    Span::styled(text, if is_alarm { alarm() } else { Style::default() })
}

fn optional(value: Option<f64>, format: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), format)
}

fn whole(number: f64) -> String {
    format!("{number:.0}")
}

/// A number per second.
fn rate(number: f64) -> String {
    match number {
        0.0 => "0/s".to_owned(),
        small if small < 10.0 => format!("{small:.1}/s"),
        medium if medium < 10_000.0 => format!("{medium:.0}/s"),
        large if large < 1e6 => format!("{:.1}k/s", large / 1e3),
        huge => format!("{:.2}M/s", huge / 1e6),
    }
}

fn duration(seconds: f64) -> String {
    match seconds {
        short if short < 0.001 => format!("{:.0} us", short * 1e6),
        medium if medium < 1.0 => format!("{:.1} ms", medium * 1e3),
        long => format!("{long:.2} s"),
    }
}

fn bytes(number: f64) -> String {
    match number {
        small if small < 1e9 => format!("{:.0} MiB", small / f64::from(1 << 20)),
        large => format!("{:.2} GiB", large / f64::from(1 << 30)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::model::tests::example;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    #[test]
    fn the_text_has_every_part() {
        let mut view = example();
        view.sort(Order::Rate);
        let text = text(&view, &Shown::default());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "requests 60/s   2xx 50/s  3xx 0/s  4xx 0/s  5xx 10/s"
        );
        assert!(
            lines[1].starts_with("latency  p50 500 us  p90 900 us  p99 990 us   upstream p50 -")
        );
        assert!(lines[2].contains(
            "CPU 50 %  memory 100 MiB  files 100 of 1024  connections 5 in, - out  revision 7"
        ));
        let has = |words: &[&str]| {
            lines
                .iter()
                .any(|line| line.split_whitespace().collect::<Vec<_>>() == words)
        };
        assert!(has(&["0", "50", "%", "-", "1.0/s"]), "{text}");
        assert!(
            has(&[
                "10/s",
                "answered",
                "by",
                "the",
                "gateway:",
                "connect_failed"
            ]),
            "{text}"
        );
        assert!(
            has(&["50/s", "50/s", "0/s", "0/s", "0/s", "24.8", "ms", "orders"]),
            "{text}"
        );
        assert!(
            has(&["10/s", "0/s", "0/s", "0/s", "10/s", "-", "basket"]),
            "{text}"
        );
    }

    #[test]
    fn it_fits_on_every_terminal_and_control_characters_do_nothing() {
        let mut view = example();
        view.routes[0].name = "evil\u{1b}[2J\u{7}".to_owned();
        for (width, height) in [(1, 1), (20, 3), (80, 24), (300, 100)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("memory");
            terminal
                .draw(|frame| draw(&view, &Shown::default(), frame.area(), frame.buffer_mut()))
                .expect("memory");
            let content = terminal.backend().buffer().content();
            assert!(
                content
                    .iter()
                    .all(|cell| !cell.symbol().contains(['\u{1b}', '\u{7}']))
            );
        }
    }

    #[test]
    fn trouble_is_said_and_without_traffic_there_is_a_hint() {
        let shown = Shown {
            trouble: Some("no gateway".to_owned()),
            services: true,
            ..Shown::default()
        };
        let text = text(&View::default(), &shown);
        assert!(text.contains("no gateway"), "{text}");
        assert!(text.contains("plugin prometheus"), "{text}");
    }
}
