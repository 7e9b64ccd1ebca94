//! The verdict: what is on record and what the target saw, against a calendar.
//!
//! Relies on nothing of the program under test: the seconds are counted here, other fires come from the
//! simulator's brute-force calendar, which shares no code with the core.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};

use fencepost_core::time::Timestamp;
use fencepost_sim::oracle::calendar::fires_between;
use uuid::Uuid;

use crate::ledger::{ExecutionRow, JobRow, Ledger};
use crate::storm::{ScheduledJob, Story};
use crate::target::{Call, Target};

const SECOND: i64 = 1_000_000;

/// A run in figures.
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    jobs: usize,
    fires: usize,
    cancelled: usize,
    calls: usize,
    repeated: usize,
    caught: usize,
    refusals: i64,
    refused: String,
    /// Of the refusals, those of the thawed scheduler, under leases that had passed on.
    pub(crate) refused_to_thawed: i64,
    longest_lag: f64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} jobs, {} fires, none lost or doubled ({} cancelled by deleting their jobs); {} calls, of which {} \
             repeated under a higher token after a worker was lost ({} were under way when it was killed); {} \
             refused writes, all on record{}, {} of them to the thawed scheduler; longest lag {:.1} s",
            self.jobs,
            self.fires,
            self.cancelled,
            self.calls,
            self.repeated,
            self.caught,
            self.refusals,
            self.refused,
            self.refused_to_thawed,
            self.longest_lag,
        )
    }
}

/// Judges a run that is over.
pub(crate) async fn judge(story: &Story, ledger: &Ledger, target: &Target) -> Summary {
    let executions = ledger.executions().await;
    let calls = target.calls();
    assert_eq!(target.malformed(), Vec::<String>::new(), "every call says who it is");
    assert_eq!(ledger.mishaps().await, 0, "nothing was passed over, given up or misunderstood");
    assert_eq!(ledger.unfinished().await, 0, "nothing is left to do");

    fires_are_those_of_the_calendar(story, &ledger.jobs().await, &executions);
    let cancelled = fires_have_run(story, &executions);
    keys_tell_executions_apart(&executions);
    let repeated = calls_fit(&executions, &calls);
    for execution in &story.caught {
        assert!(calls[execution].len() > 1, "{execution} lost its worker and was not called again");
    }

    let recorded = ledger.refusals().await;
    for (what, count) in &story.refused {
        let on_record = recorded.get(what).copied().unwrap_or_default();
        assert!(on_record >= *count, "{what:?} was refused {count} times; {on_record} are on record");
    }
    let refused: Vec<String> =
        recorded.iter().map(|((about, action), count)| format!("{action} of {about} {count}")).collect();
    Summary {
        jobs: story.jobs.len(),
        fires: executions.iter().filter(|execution| execution.fire.is_some()).count(),
        cancelled,
        calls: calls.values().map(Vec::len).sum(),
        repeated,
        caught: story.caught.len(),
        refusals: recorded.values().sum(),
        refused: if refused.is_empty() { String::new() } else { format!(" ({})", refused.join(", ")) },
        refused_to_thawed: ledger.refused_under_leases(&story.thawed).await,
        longest_lag: longest_lag(&calls),
    }
}

/// One execution per nominal fire of each job: from its creation to when its fires were waited for, and beyond
/// that as far as its own record goes.
fn fires_are_those_of_the_calendar(
    story: &Story,
    jobs: &BTreeMap<Uuid, JobRow>,
    executions: &[ExecutionRow],
) {
    let mut fires: BTreeMap<Uuid, Vec<i64>> = BTreeMap::new();
    for execution in executions {
        if let Some(fire) = execution.fire {
            fires.entry(execution.job).or_default().push(fire);
        }
    }
    for fires in fires.values_mut() {
        fires.sort_unstable();
    }
    for job in &story.jobs {
        let row = &jobs[&job.id];
        let through = row.recorded_through.max(story.through);
        let nominal = nominal_fires(job, row.created_at, through);
        let recorded = fires.remove(&job.id).unwrap_or_default();
        let (nominal, recorded) = (readable(&nominal), readable(&recorded));
        assert_eq!(recorded, nominal, "the fires of {} ({})", job.name, job.cron);
        if job.is_every_second() {
            assert!(recorded.len() > 10, "{} fired only {} times", job.name, recorded.len());
        }
    }
    assert!(fires.is_empty(), "jobs that nobody created have fired: {fires:?}");
}

/// After one instant, up to another.
fn nominal_fires(job: &ScheduledJob, after: i64, through: i64) -> Vec<i64> {
    if job.is_every_second() {
        let (first, last) = (after.div_euclid(SECOND) + 1, through.div_euclid(SECOND));
        (first..=last).map(|second| second * SECOND).collect()
    } else {
        fires_between(&job.cron, "UTC", None, None, after, through).expect("the API took it")
    }
}

fn readable(fires: &[i64]) -> Vec<String> {
    fires.iter().map(|fire| Timestamp::from_micros(*fire).to_string()).collect()
}

/// Everything that was waited for has completed; only what its job was deleted under may be cancelled. How many
/// were.
fn fires_have_run(story: &Story, executions: &[ExecutionRow]) -> usize {
    let mut cancelled = 0;
    for execution in executions {
        let deleted_under = execution.fire.is_some_and(|fire| fire > story.through);
        match execution.state.as_str() {
            "completed" => {}
            "cancelled" if deleted_under => cancelled += 1,
            _ => panic!("it should have completed: {execution:?}"),
        }
    }
    cancelled
}

fn keys_tell_executions_apart(executions: &[ExecutionRow]) {
    let keys: BTreeSet<&str> = executions.iter().map(|execution| execution.key.as_str()).collect();
    assert_eq!(keys.len(), executions.len(), "no two executions have one key");
}

/// Each call belongs to an execution, carries its key and its time, and a token above that of the call before;
/// what completed was called, and a call is repeated only after an attempt that is on record as ended. How many
/// were.
fn calls_fit(executions: &[ExecutionRow], calls: &BTreeMap<Uuid, Vec<Call>>) -> usize {
    let mut repeated = 0;
    let mut unknown: BTreeSet<Uuid> = calls.keys().copied().collect();
    for execution in executions {
        unknown.remove(&execution.id);
        let calls = calls.get(&execution.id).map_or(&[][..], Vec::as_slice);
        for call in calls {
            assert_eq!(call.key, execution.key, "{execution:?} was called as {call:?}");
            assert_eq!(call.scheduled.as_micros(), execution.due_at, "{execution:?} was called as {call:?}");
            assert!(call.attempt >= 1 && call.token >= 1, "{call:?}");
        }
        for pair in calls.windows(2) {
            assert!(pair[0].token < pair[1].token, "{execution:?} was called as {pair:?}");
        }
        let again = calls.len().saturating_sub(1);
        let ended = usize::try_from(execution.attempts_ended).expect("a count is not negative");
        assert!(again <= ended, "{execution:?} was called again without need: {calls:?}");
        if execution.state == "completed" {
            let last = calls.last().unwrap_or_else(|| panic!("{execution:?} has completed without a call"));
            assert_eq!(
                last.token, execution.token,
                "{execution:?} has completed, and last was called as {last:?}"
            );
            assert!(last.answered, "{execution:?} has completed without an answer");
        }
        repeated += again;
    }
    assert!(unknown.is_empty(), "calls for executions that nobody knows: {unknown:?}");
    repeated
}

/// From when it was due to its first call, in seconds, of whatever took longest.
fn longest_lag(calls: &BTreeMap<Uuid, Vec<Call>>) -> f64 {
    let lag = |calls: &Vec<Call>| calls.first().map(|call| call.arrived.since(call.scheduled).as_micros());
    let longest = calls.values().filter_map(lag).max().unwrap_or_default();
    // A few seconds in microseconds: a float holds them exactly.
    longest as f64 / SECOND as f64
}
