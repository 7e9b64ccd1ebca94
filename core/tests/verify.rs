//! Verification on rows: right ones pass every check, and each way to break them is found by exactly its check.
//!
//! What must stay true: every check has something to look at in the right rows and at least one way to break it here.

#[path = "verify/breaks.rs"]
mod breaks;
#[path = "verify/rows.rs"]
mod rows;

use std::collections::BTreeSet;
use std::sync::Arc;

use breaks::BREAKS;
use fencepost_core::execution::{ExecutionState, SkipReason};
use fencepost_core::id::JobVersion;
use fencepost_core::job::{JobDefinition, Standing, StoredDefinition};
use fencepost_core::schedule::{Day, Days, Exclusion, Exclusions, TZDATA_VERSION};
use fencepost_core::store::row::SkippedRangeRow;
use fencepost_core::verify::{Check, LedgerItem, Report, Verdict, Window, ZoneData};
use rows::{Rows, at, definition, fire, late_fire, of_version, range};

fn violated(report: &Report) -> Vec<Check> {
    report.violated().map(|check| check.check).collect()
}

#[test]
fn rows_as_the_scheduler_writes_them_pass_every_check_and_each_looks_at_some() {
    let report = Rows::right().judged(Window::ALL);
    for check in &report.checks {
        assert_eq!(check.verdict, Verdict::Holds, "{check:#?}");
    }
    assert!(report.holds);
}

#[test]
fn each_way_to_break_the_rows_is_found_by_exactly_its_check() {
    let mut wrong = Vec::new();
    for (check, name, break_them) in BREAKS {
        let mut rows = Rows::right();
        break_them(&mut rows);
        let report = rows.judged(Window::ALL);
        if violated(&report) != [*check] {
            let found: Vec<_> = report.violated().map(|check| (check.check, &check.found)).collect();
            wrong.push(format!("{name}: not {check} alone, but {found:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_check_has_a_way_to_break_it() {
    let broken: BTreeSet<Check> = BREAKS.iter().map(|(check, _, _)| *check).collect();
    assert_eq!(broken, Check::ALL.iter().copied().collect());
}

#[test]
fn a_finding_names_what_it_is_about_and_what_to_do() {
    let mut rows = Rows::right();
    rows.ledger().remove(1);
    rows.job().runs -= 1;
    let report = rows.judged(Window::ALL);
    let finding = &report.of(Check::NoLostFire).found[0];
    assert_eq!(finding.job_id, Some(rows::JOB));
    assert!(finding.what.contains("2026-03-02T08:02:00"), "{finding:?}");
    assert!(!finding.advice.is_empty());
}

#[test]
fn all_violations_are_counted_and_the_first_are_told() {
    let mut rows = Rows::right();
    let orphan = rows::orphan();
    rows.orphans = vec![orphan; 500];
    let report = rows.judged(Window::ALL);
    let found = report.of(Check::AtomicDispatch);
    assert_eq!((found.violations, found.found.len()), (500, fencepost_core::verify::FINDINGS_KEPT));
}

#[test]
fn what_other_zone_data_decided_is_not_compared() {
    let mut rows = Rows::right();
    let berlin = definition(r#"{"kind":"cron","expr":"* * * * *","zone":"Europe/Berlin"}"#, "");
    rows.define(&berlin);
    let LedgerItem::Range(range) = &mut rows.ledger()[3] else { panic!("the fourth entry is the range") };
    range.zone_data = "1999z".into();
    // No fire by our data.
    range.from = at("08:04:30");
    let decided_at = range.decided_at;
    rows.zone_data = ZoneData { ours: TZDATA_VERSION, foreign_until: Some(decided_at) };
    let report = rows.judged(Window::ALL);
    assert_eq!(report.of(Check::NoLostFire).verdict, Verdict::HoldsWhereCompared, "{report:#?}");
    assert!(report.holds);

    // In UTC no data matters.
    let utc = definition(r#"{"kind":"cron","expr":"* * * * *"}"#, "");
    rows.define(&utc);
    assert_eq!(violated(&rows.judged(Window::ALL)), [Check::NoLostFire]);
}

#[test]
fn what_the_clock_alone_tells_is_not_judged_where_it_was_set_back() {
    let mut rows = Rows::right();
    let row = rows.row(rows::OF_DELETED);
    (row.leased_at, row.started_at) = (Some(at("08:01:40")), Some(at("08:01:40")));
    assert_eq!(violated(&rows.judged(Window::ALL)), [Check::PausedIsSilent]);

    // Its first run ended later than its second, by the clock: it went back in between.
    rows.executions[rows::DEAD].attempts[0].at = at("08:02:20");
    let report = rows.judged(Window::ALL);
    assert!(report.holds, "{report:#?}");
    let silent = report.of(Check::PausedIsSilent);
    assert_eq!((silent.verdict, silent.not_compared), (Verdict::HoldsWhereCompared, 1));
    assert!(silent.uncompared[0].what.contains("the database's clock was set back"), "{silent:?}");
}

#[test]
fn a_window_leaves_out_what_lies_beyond_it() {
    let mut rows = Rows::right();
    // Lost, and before the window.
    rows.ledger().remove(1);
    let window = Window { from: at("08:06:00"), to: at("08:15:00") };
    let report = rows.judged(window);
    assert!(report.holds, "{report:#?}");
    assert_eq!(report.of(Check::NoPhantomFire).looked_at, 1, "08:14 alone");

    rows.ledger().retain(|item| matches!(item, LedgerItem::Fire(_)));
    assert_eq!(violated(&rows.judged(window)), [Check::NoLostFire]);
}

#[test]
fn a_month_of_passed_over_seconds_is_checked_at_its_bounds() {
    let mut rows = Rows::right();
    rows.define(&definition(r#"{"kind":"cron","expr":"* * * * * *"}"#, r#","misfire":"skip""#));
    let through = at("08:00:00").plus(fencepost_core::time::Span::from_secs(30 * 86_400));
    let decided_at = through.plus(fencepost_core::time::Span::from_secs(40));
    *rows.ledger() = vec![range("08:00:01", through, decided_at)];
    let job = rows.job();
    (job.runs, job.recorded_through) = (0, through);
    job.next_fire_time = Some(through.plus(fencepost_core::time::Span::from_secs(1)));
    assert!(rows.judged(Window::ALL).holds);

    let LedgerItem::Range(row) = &mut rows.ledger()[0] else { panic!("it is the range") };
    row.from = at("08:00:03");
    let report = rows.judged(Window::ALL);
    assert!(report.of(Check::NoLostFire).found[0].what.contains("2 fires"), "{report:#?}");
}

#[test]
fn an_edit_has_each_version_decide_about_its_own_time() {
    let mut rows = Rows::right();
    // From 08:03:30 on, every two minutes.
    rows.edit(&definition(r#"{"kind":"cron","expr":"*/2 * * * *"}"#, ""), at("08:03:30"));
    let ledger = rows.ledger();
    ledger.truncate(3);
    ledger.extend([fire("08:04:00", 2), fire("08:06:00", 2)]);
    let job = rows.job();
    (job.runs, job.recorded_through, job.next_fire_time) = (5, at("08:06:00"), Some(at("08:08:00")));
    let report = rows.judged(Window::ALL);
    assert!(report.holds, "{report:#?}");

    // By the old version there would be one at 08:05, by the new one none at 08:03.
    rows.ledger().insert(4, fire("08:05:00", 2));
    rows.job().runs += 1;
    assert_eq!(violated(&rows.judged(Window::ALL)), [Check::NoPhantomFire]);
}

#[test]
fn a_number_of_runs_that_is_used_up_ends_the_fires() {
    let mut rows = Rows::right();
    rows.define(&definition(r#"{"kind":"cron","expr":"* * * * *"}"#, r#","bounds":{"max_runs":3}"#));
    rows.ledger().truncate(3);
    let job = rows.job();
    (job.runs, job.recorded_through, job.next_fire_time) = (3, at("08:03:00"), None);
    let report = rows.judged(Window::ALL);
    assert!(report.holds, "{report:#?}");

    rows.ledger().push(fire("08:04:00", 1));
    let job = rows.job();
    (job.runs, job.recorded_through) = (4, at("08:04:00"));
    assert_eq!(violated(&rows.judged(Window::ALL)), [Check::NoPhantomFire]);
}

#[test]
fn a_pause_passes_over_what_falls_into_it_and_lets_nothing_begin() {
    let mut rows = Rows::right();
    // Paused from 08:04:30 to 08:13:30; 08:04 was missed, and the pass that found it ran 08:14 for it.
    rows.stand(Standing::Paused, at("08:04:30"));
    rows.stand(Standing::Active, at("08:13:30"));
    let decided_at = at("08:14:40");
    let passed_over = |from, through, reason, version| match range(from, through, decided_at) {
        LedgerItem::Range(row) => {
            LedgerItem::Range(SkippedRangeRow { reason, job_version: JobVersion(version), ..row })
        }
        LedgerItem::Fire(fire) => panic!("it is no range: {fire:?}"),
    };
    let ledger = rows.ledger();
    ledger.truncate(3);
    ledger.push(passed_over("08:04:00", at("08:04:00"), SkipReason::Misfire, 1));
    ledger.push(passed_over("08:05:00", at("08:13:00"), SkipReason::Paused, 2));
    ledger.push(of_version(late_fire("08:14:00", decided_at), 3));
    ledger.push(fire("08:15:00", 3));
    let report = rows.judged(Window::ALL);
    assert!(report.holds, "{report:#?}");

    // As missed, and not because of the pause.
    rows.ledger()[4] = passed_over("08:05:00", at("08:13:00"), SkipReason::Misfire, 2);
    assert_eq!(violated(&rows.judged(Window::ALL)), [Check::NoLostFire]);
    // A fire of the pause was made.
    rows.ledger()[4] = passed_over("08:05:00", at("08:12:00"), SkipReason::Paused, 2);
    rows.ledger().insert(5, of_version(late_fire("08:13:00", decided_at), 2));
    rows.job().runs += 1;
    assert!(violated(&rows.judged(Window::ALL)).contains(&Check::PausedIsSilent));
    rows.ledger().remove(5);
    rows.ledger()[4] = passed_over("08:05:00", at("08:13:00"), SkipReason::Paused, 2);
    rows.job().runs -= 1;
    assert!(rows.judged(Window::ALL).holds);
    // A run of a fire from before it began during it.
    rows.row(rows::COMPLETED).leased_at = Some(at("08:06:00"));
    let silent = rows.judged(Window::ALL);
    assert!(!silent.of(Check::PausedIsSilent).found.is_empty(), "{silent:#?}");
}

#[test]
fn what_overlap_passed_over_was_made_and_only_a_policy_that_limits_it_passes_over() {
    let mut rows = Rows::right();
    let fire = rows.fire(1);
    (fire.state, fire.skip_reason) = (ExecutionState::Skipped, Some(SkipReason::Overlap));
    assert_eq!(violated(&rows.judged(Window::ALL)), [Check::NoLostFire], "its version allows overlap");
    let limited = rows.job().definition.text().replace(r#""retry""#, r#""overlap":"skip","retry""#);
    rows.define(&Arc::new(StoredDefinition::from_text(limited.into())));
    let report = rows.judged(Window::ALL);
    assert!(report.holds, "{report:#?}");
}

#[test]
fn what_a_calendar_excludes_is_passed_over_for_that_reason_and_nothing_else_is() {
    let with_days = |rows: &mut Rows, days: &[&str]| {
        let days = days.iter().map(|day| Day::parse(day).expect("a date")).collect();
        let days = Days::new(days).expect("few");
        let exclusion = Exclusion { calendar: "holidays".into(), version: 1, days };
        let mut definition = JobDefinition::clone(rows.job().definition.read().expect("it is right"));
        definition.exclude = Exclusions::new(vec![exclusion]);
        rows.define(&Arc::new(StoredDefinition::of(definition)));
    };
    let mut rows = Rows::right();
    with_days(&mut rows, &["2001-01-01"]);
    let report = rows.judged(Window::ALL);
    assert!(report.holds, "{report:#?}");
    // A range that was passed over for a calendar which has another day.
    for item in rows.ledger() {
        if let LedgerItem::Range(row) = item {
            row.reason = SkipReason::Calendar;
        }
    }
    assert_eq!(violated(&rows.judged(Window::ALL)), [Check::NoLostFire]);
    // All that ran, and what was passed over as missed, although the calendar excludes the day.
    let mut rows = Rows::right();
    let day = rows.fire(1).fire.to_string()[..10].to_owned();
    with_days(&mut rows, &[&day]);
    let broken = violated(&rows.judged(Window::ALL));
    assert!(broken.contains(&Check::NoPhantomFire) && broken.contains(&Check::NoLostFire), "{broken:?}");
}

#[test]
fn a_job_that_is_paused_waits_for_no_fire_and_lacks_none() {
    let mut rows = Rows::right();
    rows.stand(Standing::Paused, at("08:15:05"));
    let job = rows.job();
    (job.recorded_through, job.next_fire_time) = (at("08:15:04"), None);
    let report = rows.judged(Window::ALL);
    assert!(report.holds, "{report:#?}");

    rows.job().next_fire_time = Some(at("08:16:00"));
    assert_eq!(violated(&rows.judged(Window::ALL)), [Check::NoLostFire]);
}
