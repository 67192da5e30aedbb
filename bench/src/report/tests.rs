//! A synthetic report for tests, and tests of the page, the terminal output and the Markdown generated from it.

use super::cases::CPU;
use super::*;
use crate::statistics::tests::noisy;
use std::path::Path;

const SUBJECTS: [(&str, f64); 8] = [
    ("relay", 1.0),
    ("silverback", 1.9),
    ("nginx", 1.6),
    ("haproxy", 2.1),
    ("envoy", 5.5),
    ("caddy", 7.5),
    ("traefik", 9.0),
    ("kong", 13.0),
];

/// Returns a report of `cases` cases with `samples` samples of each figure. The CPU time of silverback is multiplied by
/// `shift`.
pub fn synthetic(cases: usize, samples: usize, shift: f64, seed: u64) -> Report {
    Report {
        format: FORMAT,
        started: "2026-11-20T16:00:00Z".into(),
        seconds: 4321.0,
        machine: Machine {
            cpu: "Imaginary 9000 @ 3.0 GHz".into(),
            cores: 4,
            memory_mib: 16_384,
            kernel: "6.12.0".into(),
            system: "Debian GNU/Linux 13".into(),
            pinning: [("subject", 0), ("load", 1), ("upstream", 2)]
                .map(|(name, core)| (name.into(), core))
                .into(),
        },
        versions: [("nginx", "nginx/1.28.0"), ("silverback", "0.1.0")]
            .map(|(name, version)| (name.into(), version.into()))
            .into(),
        settings: [("rounds", "100"), ("sample", "100 ms")]
            .map(|(name, value)| (name.into(), value.into()))
            .into(),
        commands: vec![
            "bench run proxy --rounds 100".into(),
            "nginx -c nginx.conf -g 'daemon off;' <&-".into(),
        ],
        notes: vec!["krakend is missing: go install <module>".into()],
        scenarios: vec![
            proxy(cases, samples, shift, seed),
            gateway(samples, seed + 10_000),
            pushes(samples, seed + 20_000),
            Scenario {
                name: "burst".into(),
                about: "Streams on one connection".into(),
                skipped: Some("no HTTP/2 yet".into()),
                ..Scenario::default()
            },
        ],
    }
}

fn figure(case: &str, subject: &str, kind: (&str, &str, Better), samples: Samples) -> Figure {
    let (quantity, unit, better) = kind;
    Figure {
        case: case.into(),
        subject: subject.into(),
        quantity: quantity.into(),
        unit: unit.into(),
        better,
        size: None,
        samples,
    }
}

fn proxy(cases: usize, samples: usize, shift: f64, seed: u64) -> Scenario {
    let mut scenario = Scenario {
        name: "proxy".into(),
        about: "One route, no plugins: what relaying costs & what it takes".into(),
        notes: vec!["load and upstream share core 1".into()],
        ..Scenario::default()
    };
    for number in 0..cases {
        let case = format!(
            "{} B, {} connections, HTTP",
            512 << (number % 4),
            8 << (number / 4)
        );
        // All subjects of a case have the same drift.
        let drift = noisy(seed + number as u64, samples, 1.0, 0.05, 0.8);
        for (index, (subject, cost)) in SUBJECTS.iter().enumerate() {
            let cost = cost * if *subject == "silverback" { shift } else { 1.0 };
            let seed = seed + 1000 + (number * 100 + index * 7) as u64;
            scenario
                .figures
                .extend(of_subject(&case, subject, cost, &drift, seed));
        }
    }
    if let Some(figure) = scenario.figures.first() {
        let case = figure.case.clone();
        scenario.latencies = SUBJECTS
            .iter()
            .map(|(subject, cost)| latency(&case, subject, 40.0 * cost))
            .collect();
    }
    scenario
}

fn of_subject(case: &str, subject: &str, cost: f64, drift: &Samples, seed: u64) -> [Figure; 4] {
    let count = drift.values().len();
    let noise = noisy(seed, count, 1.0, 0.02, 0.0);
    let cpu: Samples = (drift.values().iter().zip(noise.values()))
        .map(|(drift, noise)| 4.0 * cost * drift * noise)
        .collect();
    let rate = cpu.values().iter().map(|cpu| 9e5 / cpu).collect();
    let memory = |seed, level| noisy(seed, count, level, 0.3, 0.0);
    [
        figure(case, subject, ("requests", "1/s", Better::Higher), rate),
        figure(case, subject, (CPU, "µs", Better::Lower), cpu),
        figure(
            case,
            subject,
            ("RSS", "MiB", Better::Lower),
            memory(seed + 3, 8.0 * cost * cost),
        ),
        figure(
            case,
            subject,
            ("busy", "% of its core", Better::Neither),
            memory(seed + 4, 97.0),
        ),
    ]
}

/// Returns latencies with a tail that grows by the same factor with every nine.
fn latency(case: &str, subject: &str, median: f64) -> Latency {
    let steps = 400;
    let buckets = (0..steps)
        .map(|step| {
            let beyond = |step: i32| 10_f64.powf(-5.0 * f64::from(step) / f64::from(steps));
            let share = beyond(step) - beyond(step + 1);
            (
                median * 10_f64.powf(2.2 * f64::from(step) / f64::from(steps)),
                (share * 1e6) as u64 + 1,
            )
        })
        .collect();
    Latency {
        case: case.into(),
        subject: subject.into(),
        rate: 20_000.0,
        buckets,
    }
}

fn gateway(samples: usize, seed: u64) -> Scenario {
    let mut scenario = Scenario {
        name: "gateway".into(),
        about: "Routes and plugins".into(),
        ..Scenario::default()
    };
    for (index, line) in ["no plugins", "key-auth, 100 keys"].into_iter().enumerate() {
        for (step, routes) in [1.0, 100.0, 10_000.0, 100_000.0].into_iter().enumerate() {
            for (place, (subject, cost)) in SUBJECTS.iter().take(4).enumerate() {
                let level = 4.0 * cost + index as f64 + step as f64 * 0.8 * place as f64;
                let noise = noisy(
                    seed + (index * 100 + step * 10 + place) as u64,
                    samples,
                    level,
                    0.3,
                    0.2,
                );
                let mut figure = figure(
                    &format!("{line}, {routes} routes"),
                    subject,
                    (CPU, "µs", Better::Lower),
                    noise,
                );
                figure.size = Some(Size {
                    axis: "routes".into(),
                    value: routes,
                    line: line.into(),
                });
                scenario.figures.push(figure);
            }
        }
    }
    for (index, line) in ["full", "one route changed"].into_iter().enumerate() {
        for (step, routes) in [100.0, 1_000.0, 10_000.0, 100_000.0]
            .into_iter()
            .enumerate()
        {
            let level = routes / 200.0 / (1.0 + 20.0 * index as f64) + 0.4;
            let noise = noisy(
                seed + 999 + (index * 10 + step) as u64,
                samples,
                level,
                level / 15.0,
                0.2,
            );
            let mut figure = figure(
                &format!("{routes} routes: {line}"),
                "silverback",
                ("rebuild of the router", "ms", Better::Lower),
                noise,
            );
            figure.size = Some(Size {
                axis: "routes".into(),
                value: routes,
                line: line.into(),
            });
            scenario.figures.push(figure);
        }
    }
    scenario
}

fn pushes(samples: usize, seed: u64) -> Scenario {
    let mut scenario = Scenario {
        name: "config".into(),
        about: "Configuration changes under load".into(),
        ..Scenario::default()
    };
    for (index, case) in ["quiet", "pushes"].into_iter().enumerate() {
        for (place, subject) in ["silverback", "silverback before"].into_iter().enumerate() {
            let level = 30_000.0 - 4_000.0 * (index * (place + 1)) as f64;
            let seed = seed + (index * 10 + place) as u64;
            let points = noisy(seed, 400, level, 900.0, 0.5);
            scenario.figures.push(figure(
                case,
                subject,
                ("requests", "1/s", Better::Higher),
                noisy(seed + 5, samples, level, 500.0, 0.0),
            ));
            scenario.series.push(Series {
                case: case.into(),
                subject: subject.into(),
                quantity: "requests".into(),
                unit: "1/s".into(),
                points: points
                    .values()
                    .iter()
                    .enumerate()
                    .map(|(at, value)| (at as f64 * 0.05, *value))
                    .collect(),
            });
        }
    }
    scenario
}

#[test]
fn a_report_survives_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("report.json");
    let report = synthetic(2, 10, 1.0, 1);
    report.write(&path).unwrap();
    let back = Report::read(&path).unwrap();
    let texts = [&report, &back].map(|report| serde_json::to_string(report).unwrap());
    assert_eq!(texts[0], texts[1]);
    let (own, other) = (
        &report.scenarios[0].figures[0],
        &back.scenarios[0].figures[0],
    );
    assert!((own.samples.median() / other.samples.median() - 1.0).abs() < 1e-5);
}

/// Returns the error of reading a file with this text.
fn refusal(text: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("odd.json");
    std::fs::write(&path, text).unwrap();
    let error = Report::read(&path)
        .err()
        .map(|error| format!("{error:#}"))
        .unwrap();
    assert!(error.contains("odd.json"), "{error}");
    error
}

#[test]
fn the_error_for_an_invalid_report_names_file_and_field() {
    assert!(refusal("nothing").contains("not JSON"));
    assert!(refusal("{\"gateway\": 1}").contains("no field `format`"));
    assert!(refusal("{\"format\": 2}").contains("field `format` is 2"));
    assert!(refusal("{\"format\": 1}").contains("missing field `started`"));
    let mut report = serde_json::to_value(synthetic(1, 2, 1.0, 1)).unwrap();
    report["scenarios"][0]["figures"][1]["samples"] = "many".into();
    let error = refusal(&report.to_string());
    assert!(error.contains("`scenarios[0].figures[1]`"), "{error}");
    let missing = Report::read(Path::new("/nowhere/report.json"))
        .err()
        .unwrap();
    assert!(format!("{missing:#}").contains("/nowhere/report.json"));
}

#[test]
fn the_page_has_every_case_and_is_well_formed() {
    let report = synthetic(3, 20, 1.0, 1);
    let page = html::page(&report).unwrap();
    for case in report.scenarios.iter().flat_map(Scenario::cases) {
        assert!(
            page.contains(&format!("<h3>{}</h3>", html::escape(case.name))),
            "{}",
            case.name
        );
    }
    for text in [
        "Imaginary 9000",
        "6.12.0",
        "nginx/1.28.0",
        "100 ms",
        "Skipped: no HTTP/2 yet",
        "99.99 %",
        "over time",
        "against routes",
    ] {
        assert!(page.contains(text), "{text}");
    }
    well_formed(&page);
    assert!(
        !page.contains("http://")
            || page.matches("http://").count()
                == page.matches("http://www.w3.org/2000/svg").count()
    );
}

/// Checks that every element is closed in the right order.
fn well_formed(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    let body = page.split_once("<body>").unwrap().1;
    for tag in body.split('<').skip(1) {
        let (tag, _) = tag
            .split_once('>')
            .unwrap_or_else(|| panic!("<{tag} does not end"));
        let name = tag.split([' ', '\n']).next().unwrap();
        match name.strip_prefix('/') {
            Some("body" | "html") => {}
            Some(name) => assert_eq!(open.pop(), Some(name), "{tag}"),
            None if tag.ends_with('/') => {}
            None => open.push(name),
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn text_of_a_report_is_no_markup_in_the_page() {
    let mut report = synthetic(1, 5, 1.0, 1);
    let evil = "<script>alert(\"1\" & '2')</script>";
    report.notes.push(evil.into());
    report.commands.push(evil.into());
    report.machine.cpu = evil.into();
    report.settings.insert(evil.into(), evil.into());
    let scenario = &mut report.scenarios[0];
    scenario.name = evil.into();
    scenario.about = evil.into();
    for figure in &mut scenario.figures {
        (figure.case, figure.quantity, figure.unit) = (evil.into(), evil.into(), evil.into());
        figure.subject += evil;
    }
    let page = html::page(&report).unwrap();
    assert!(!page.contains("<script"));
    well_formed(&page);
}

#[test]
fn a_report_of_nothing_and_figures_without_samples_are_shown() {
    let mut report = synthetic(1, 5, 1.0, 1);
    for figure in &mut report.scenarios[0].figures {
        figure.samples = Samples::default();
    }
    report.scenarios[0].latencies[0].buckets.clear();
    html::page(&report).unwrap();
    terminal::print(&report);
    report.scenarios.clear();
    well_formed(&html::page(&report).unwrap());
}

#[test]
fn a_large_report_makes_a_page_that_loads_quickly() {
    let [small, large] =
        [1, 4].map(|cases| html::page(&synthetic(cases, 100, 1.0, 1)).unwrap().len());
    let of_sixteen = small + (large - small) * 5;
    assert!(of_sixteen < 3_000_000, "{of_sixteen}");
}

#[test]
fn the_terminal_has_subjects_in_rows_and_says_what_was_skipped() {
    let text = terminal::print(&synthetic(1, 20, 1.0, 1));
    let heading = text
        .lines()
        .find(|line| line.contains("CPU per request"))
        .unwrap();
    let order = [
        "CPU per request µs",
        "× relay",
        "× nginx",
        "requests 1/s",
        "RSS MiB",
        "p50 µs",
        "p99.9 µs",
    ];
    let places: Vec<usize> = order
        .iter()
        .map(|column| heading.find(column).unwrap())
        .collect();
    assert!(places.is_sorted(), "{heading}");
    assert!(text.contains("skipped: no HTTP/2 yet"));
    assert!(text.contains("note: krakend is missing"));
    let silverback = text
        .lines()
        .find(|line| line.trim().starts_with("silverback"))
        .unwrap();
    assert!(silverback.contains("1.9"), "{silverback}");
}

#[test]
fn markdown_has_cases_in_rows_and_multiples_of_the_relay() {
    let text = markdown::markdown(&synthetic(2, 20, 1.0, 1), CPU);
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].starts_with("| proxy: CPU per request, µs | relay | silverback | nginx |"),
        "{text}"
    );
    assert!(lines[2].contains(" (1.9"), "{text}");
    assert_eq!(lines[0].matches('|').count(), lines[2].matches('|').count());
}
