//! Stepped interleavings: every command that acts under some authority meets whoever takes that away, at every
//! statement there is.
//!
//! For each row of the table of authority, the takeover of a lease, of a partition or of a run (or whatever else may
//! decide about the same rows) falls between the guard and the write of a command, and between its write and
//! its commit; and the other way round. One of the two waits and is refused, or is refused at once: there are never
//! two authorities in one order of commits. And where the first of the two dies instead of committing, the other is
//! answered as if it had been alone.
//!
//! Batches are let in at once besides, named in opposite orders: a lock order that two commands do not share would end in a
//! circle, which the store gets out of by trying again and which no answer shows.
//!
//! A case in which nobody waited, or in which nobody ever gave way, proves nothing and fails. What each case came to is
//! printed as a line of a table: `cargo test … --test stepped -- --nocapture`.

#[path = "linearizability/atoms.rs"]
#[allow(dead_code, reason = "a file of the linearizability test, of which this one needs a part")]
mod atoms;
#[path = "stepped/authority.rs"]
mod authority;
#[path = "stepped/case.rs"]
mod case;
#[path = "stepped/cases.rs"]
mod cases;
#[path = "conformance/contents.rs"]
mod contents;
#[path = "conformance/database.rs"]
#[allow(dead_code, reason = "a file of the conformance test, of which this one needs a part")]
mod database;
#[path = "linearizability/history.rs"]
#[allow(dead_code, reason = "a file of the linearizability test, of which this one needs a part")]
mod history;
#[path = "stepped/judgement.rs"]
mod judgement;
#[path = "stepped/stage.rs"]
mod stage;
#[path = "linearizability/touches.rs"]
#[allow(dead_code, reason = "a file of the linearizability test, of which this one needs a part")]
mod touches;
#[path = "stepped/world.rs"]
mod world;

use std::collections::BTreeSet;

use authority::{Row, Standing, standing};
use case::{Case, Meeting};
use cases::{
    all, batches, changes, dead_letters, deadlines, failures, leases, limits, operators, overlap, pauses,
    schedulers, workers,
};
use database::Database;
use fencepost_core::store::command::CommandKind;
use judgement::{Tally, Wrong};
use stage::Stage;

#[test]
fn every_command_that_holds_authority_has_a_case() {
    let cases = all();
    let mut missing = Vec::new();
    for row in Row::ALL {
        if !cases.iter().any(|case| case.row == row) {
            missing.push(format!("the row {row:?} has no case"));
        }
    }
    for kind in CommandKind::ALL {
        let mut of_kind = cases.iter().filter(|case| case.guarded.command.kind() == *kind).peekable();
        match standing(*kind) {
            Standing::Under(row) if !of_kind.any(|case| case.row == row) => {
                missing.push(format!("{kind} is said to act under {row:?} and has no case there"));
            }
            Standing::HoldsNoAuthority(why) if of_kind.peek().is_some() => {
                missing.push(format!("{kind} has a case and is said to hold no authority: {why}"));
            }
            Standing::Under(_) | Standing::HoldsNoAuthority(_) => {}
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn every_case_means_what_it_says() {
    let cases = all();
    let names: BTreeSet<&str> = cases.iter().map(|case| case.name).collect();
    assert_eq!(names.len(), cases.len(), "two cases have one name");
    let misconceptions: Vec<String> = cases.iter().filter_map(Case::misconception).collect();
    assert!(misconceptions.is_empty(), "{misconceptions:#?}");
}

/// Plays these cases on a database of their own.
async fn play(purpose: &str, cases: Vec<Case>) {
    let database = Database::create(&format!("stepped_{purpose}")).await;
    let mut stage = Stage::open(&database, &[]).await;
    let mut wrong = Vec::new();
    for case in &cases {
        match stage.play(case).await {
            Ok(tally) => {
                report(case, tally);
                wrong.extend(vacuity(case, tally));
            }
            Err(violation) => wrong.push(violation.to_string()),
        }
    }
    drop(stage);
    database.remove().await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

fn report(case: &Case, tally: Tally) {
    let Tally { steps, waited, refused, died } = tally;
    eprintln!("{:<64} {steps:>3} steps {waited:>3} waited {refused:>3} gave way {died:>3} died", case.name);
}

/// Why a case proved nothing.
fn vacuity(case: &Case, tally: Tally) -> Option<String> {
    let waits = case.meeting == Meeting::Waits;
    if waits && tally.waited == 0 {
        return Some(format!("{}: vacuous: nobody waited", case.name));
    }
    if !waits && tally.waited > 0 {
        return Some(format!("{}: somebody waited, and it is said that nobody does", case.name));
    }
    if case.yields.is_some() && tally.refused == 0 {
        return Some(format!("{}: vacuous: nobody gave way", case.name));
    }
    None
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_has_one_holder_whoever_asks_when() {
    play("leases", leases::cases()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_fire_is_recorded_by_a_scheduler_that_lost_its_partition() {
    play("materialising", schedulers::materialising()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_dispatched_by_a_scheduler_that_lost_its_partition() {
    play("promoting", schedulers::promoting()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outbox_row_goes_once() {
    play("removing", schedulers::removing()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_repaired_by_a_leader_that_lost_leadership() {
    play("repairing", schedulers::repairing()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_execution_is_granted_once() {
    play("acquiring", workers::acquiring()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_lost_its_run_neither_renews_nor_ends_it() {
    play("holding", workers::holding()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_decide_by_what_is_there_when_they_commit() {
    play("operators", operators::cases()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_is_of_the_version_and_the_watermark_that_it_was_planned_on() {
    play("changes", changes::cases()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_acts_by_a_job_meets_its_change() {
    play("changed", changes::met()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_pause_reaches_meets_the_pause_and_its_resume() {
    play("paused", pauses::cases()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_is_replayed_once_per_number_and_not_after_its_purge() {
    play("dead_letters", dead_letters::cases()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_past_its_deadline_is_ended_once_whoever_comes_to_it_when() {
    play("deadlines", deadlines::cases()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_jobs_slot_has_one_holder_whoever_asks_when() {
    play("overlap", overlap::cases()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_run_under_a_limit_than_it_says_whoever_sets_it_when() {
    play("limits", limits::cases()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_failure_in_a_row_pauses_its_job_whoever_ends_what_when() {
    play("failures", failures::cases()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_take_their_rows_in_one_order() {
    let database = Database::create("stepped_crowds").await;
    let mut stage = Stage::open(&database, &[]).await;
    let (mut wrong, batches) = (Vec::new(), batches::all());
    for batch in &batches {
        match stage.crowd(&batch.case, &batch.holds).await {
            Ok(true) => {}
            Ok(false) => wrong.push(format!("{}: vacuous: not both waited", batch.case.name)),
            Err(violation) => wrong.push(violation.to_string()),
        }
    }
    drop(stage);
    database.remove().await;
    eprintln!("{} pairs of batches, both of each let in at once", batches.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_order_that_is_reversed_is_noticed() {
    let database = Database::create("stepped_reversed").await;
    let rewrites =
        [("ORDER BY i.place FOR NO KEY UPDATE OF e", "ORDER BY i.place DESC FOR NO KEY UPDATE OF e")];
    let mut stage = Stage::open(&database, &rewrites).await;
    let mut wrong = None;
    for batch in batches::all() {
        if let Err(violation) = stage.crowd(&batch.case, &batch.holds).await {
            wrong = Some(violation.wrong);
            break;
        }
    }
    drop(stage);
    database.remove().await;
    assert!(matches!(wrong, Some(Wrong::Deadlock)), "{wrong:?}");
}

/// Whether these steps would notice anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_that_is_read_without_a_lock_is_noticed() {
    let database = Database::create("stepped_broken").await;
    let mut stage = Stage::open(&database, &[("ORDER BY resource FOR KEY SHARE", "ORDER BY resource")]).await;
    let mut noticed = Vec::new();
    for case in schedulers::materialising() {
        if let Err(violation) = stage.play(&case).await {
            noticed.push((violation.case, matches!(violation.wrong, Wrong::TwoAuthorities(_))));
        }
    }
    let rewritten = stage.rewritten();
    drop(stage);
    database.remove().await;
    assert!(rewritten[0] > 0, "no guard was read");
    let expected = [
        "materialising against a takeover of the partition",
        "materialising against a release of the partition",
        "putting a job off against a takeover of the partition",
    ];
    assert_eq!(noticed, expected.map(|case| (case, true)));
}
