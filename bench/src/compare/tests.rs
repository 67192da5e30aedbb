//! Verdicts on synthetic reports with a known truth.

use super::*;
use crate::report::cases::CPU;
use crate::report::tests::synthetic;
use crate::statistics::tests::noisy;

fn find<'a>(comparison: &'a Comparison, subject: &str, quantity: &str) -> &'a Change {
    let found = comparison.changes.iter().find(|change| {
        let key = &change.key;
        (
            key.scenario.as_str(),
            key.subject.as_str(),
            key.quantity.as_str(),
        ) == ("proxy", subject, quantity)
    });
    found.unwrap()
}

/// Returns a report with four quantities of relay, silverback and nginx; more figures would take more time.
fn report(samples: usize, shift: f64, seed: u64) -> Report {
    let mut report = synthetic(1, samples, shift, seed);
    report.scenarios.truncate(1);
    report.scenarios[0].figures.truncate(12);
    report
}

#[test]
fn two_runs_of_the_same_programs_are_within_noise() {
    let comparison = compare(&report(40, 1.0, 1), &report(40, 1.0, 500_000));
    assert_eq!(comparison.changes.len(), 12);
    let moved: Vec<&Change> = (comparison.changes.iter())
        .filter(|change| change.verdict != Verdict::WithinNoise)
        .collect();
    assert!(moved.is_empty(), "{}", comparison.print(false));
    assert!(
        comparison
            .print(false)
            .contains("12 figures compared: 0 worse, 0 better, 0 that differ, 12 within noise")
    );
    assert!(!comparison.any_worse());
}

#[test]
fn a_program_that_costs_five_percent_more_is_worse_and_the_others_are_not() {
    let comparison = compare(&report(40, 1.0, 1), &report(40, 1.05, 500_000));
    let cpu = find(&comparison, "silverback", CPU);
    assert_eq!(
        (cpu.verdict, cpu.basis),
        (Verdict::Worse, Basis::Multiple("relay"))
    );
    assert!((cpu.moved - 1.05).abs() < 0.02, "{}", cpu.moved);
    assert_eq!(
        find(&comparison, "silverback", "requests").verdict,
        Verdict::Worse
    );
    assert_eq!(
        find(&comparison, "nginx", CPU).verdict,
        Verdict::WithinNoise
    );
    assert!(comparison.any_worse());
    assert_eq!(comparison.changes[0].verdict, Verdict::Worse);
    let back = compare(&report(40, 1.05, 500_000), &report(40, 1.0, 1));
    assert_eq!(find(&back, "silverback", CPU).verdict, Verdict::Better);
    assert!(!back.any_worse());
}

#[test]
fn a_machine_that_drifted_moves_the_relay_and_nothing_relative_to_it() {
    let mut after = report(40, 1.0, 500_000);
    for figure in after.scenarios[0]
        .figures
        .iter_mut()
        .filter(|figure| figure.quantity == CPU)
    {
        figure.samples = figure
            .samples
            .values()
            .iter()
            .map(|sample| sample * 1.2)
            .collect();
    }
    let comparison = compare(&report(40, 1.0, 1), &after);
    assert_eq!(
        find(&comparison, "silverback", CPU).verdict,
        Verdict::WithinNoise
    );
}

/// Returns a report with a single figure. It contains no figure of the relay or nginx to compare with.
fn single(samples: Samples, better: Better, unit: &str) -> Report {
    let mut report = report(2, 1.0, 1);
    report.scenarios[0].figures.truncate(1);
    let figure = &mut report.scenarios[0].figures[0];
    (figure.subject, figure.samples, figure.better, figure.unit) =
        ("silverback".into(), samples, better, unit.into());
    report
}

fn verdict_of(before: Samples, after: Samples, better: Better) -> (Verdict, Basis) {
    let comparison = compare(&single(before, better, "x"), &single(after, better, "x"));
    (comparison.changes[0].verdict, comparison.changes[0].basis)
}

#[test]
fn the_direction_that_is_better_decides_the_verdict() {
    let low = || noisy(1, 40, 10.0, 0.3, 0.0);
    let high = || noisy(2, 40, 12.0, 0.3, 0.0);
    assert_eq!(
        verdict_of(low(), high(), Better::Lower),
        (Verdict::Worse, Basis::Ratio)
    );
    assert_eq!(
        verdict_of(low(), high(), Better::Higher),
        (Verdict::Better, Basis::Ratio)
    );
    assert_eq!(
        verdict_of(high(), low(), Better::Higher),
        (Verdict::Worse, Basis::Ratio)
    );
    assert_eq!(
        verdict_of(high(), low(), Better::Neither),
        (Verdict::Differs, Basis::Ratio)
    );
}

#[test]
fn figures_below_zero_are_compared_by_difference() {
    let around = |seed, level| noisy(seed, 40, level, 1.0, 0.0);
    assert_eq!(
        verdict_of(around(1, -0.5), around(2, 4.0), Better::Lower),
        (Verdict::Worse, Basis::Difference)
    );
    assert_eq!(
        verdict_of(around(1, -0.5), around(2, -0.5), Better::Lower),
        (Verdict::WithinNoise, Basis::Difference)
    );
}

#[test]
fn nothing_that_stays_nothing_is_within_noise_and_nothing_that_becomes_something_is_not() {
    let level = |level: f64| Samples::from_iter([level; 20]);
    assert_eq!(
        verdict_of(level(0.0), level(0.0), Better::Lower).0,
        Verdict::WithinNoise
    );
    assert_eq!(
        verdict_of(level(0.0), level(3.0), Better::Lower).0,
        Verdict::Worse
    );
}

#[test]
fn three_samples_tell_nothing_however_far_apart() {
    let level = |level: f64, count| noisy(1, count, level, 0.1, 0.0);
    assert_eq!(
        verdict_of(level(1.0, 3), level(100.0, 3), Better::Lower).0,
        Verdict::TooFew
    );
    assert_eq!(
        verdict_of(level(1.0, 5), level(100.0, 5), Better::Lower).0,
        Verdict::Worse
    );
    assert_eq!(
        verdict_of(Samples::default(), level(1.0, 50), Better::Lower).0,
        Verdict::TooFew
    );
}

#[test]
fn memory_is_compared_by_itself() {
    let comparison = compare(&report(20, 1.0, 1), &report(20, 1.0, 2));
    assert_eq!(find(&comparison, "silverback", "RSS").basis, Basis::Ratio);
}

#[test]
fn differences_of_settings_and_figures_of_one_run_are_reported() {
    let before = report(10, 1.0, 1);
    let mut after = report(10, 1.0, 2);
    after.machine.kernel = "7.0".into();
    after.settings.insert("sample".into(), "2 s".into());
    after.scenarios[0]
        .figures
        .retain(|figure| figure.subject != "nginx");
    let comparison = compare(&before, &after);
    assert_eq!(comparison.only_before.len(), 4);
    assert!(comparison.only_after.is_empty());
    let text = comparison.print(true);
    assert!(
        text.contains("warning: kernel differs: \"6.12.0\" and \"7.0\""),
        "{text}"
    );
    assert!(
        text.contains("warning: sample differs: \"100 ms\" and \"2 s\""),
        "{text}"
    );
    assert!(text.contains("Only in the report before:\n  proxy: 512 B, 8 connections, HTTP: nginx: CPU per request"), "{text}");
    assert!(text.contains("Bonferroni"), "{text}");
}

#[test]
fn the_level_is_shared_by_all_figures() {
    let comparison = compare(&report(5, 1.0, 1), &report(5, 1.0, 2));
    assert!((1.0 - comparison.confidence - 0.05 / 12.0).abs() < 1e-12);
}
