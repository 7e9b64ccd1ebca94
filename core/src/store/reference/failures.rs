//! Failures in a row: a job that failed too often is paused in the transaction in which the last of them failed.
//!
//! Asked once a command is through with the runs that it ends, job by job: of a batch its completions are in the row
//! when its failures are looked at. The policy is that of the version in force, since it is the job that is paused. A
//! pause that would leave more versions undecided than a scan reads is left to the next failure.

use core::cmp::Reverse;
use std::collections::BTreeSet;

use crate::bug::Bug;
use crate::execution::ExecutionState;
use crate::id::{ExecutionId, JobId};
use crate::job::Standing;
use crate::job::failures::{FailedOne, is_failure, paused_for};
use crate::job_plan::plan_change;
use crate::mark::{self, Mark};
use crate::store::command::JobChange;
use crate::store::reference::Call;
use crate::store::row::{ExecutionRow, JobState};

impl Call<'_> {
    /// Pauses the jobs of these executions, which have just failed, whose policy says so.
    pub(super) fn judge_failures(&mut self, failed: &[ExecutionId]) {
        let rows = failed.iter().filter_map(|id| self.tables.executions().get(id));
        let jobs: BTreeSet<JobId> = rows.map(|row| row.job).collect();
        for job in jobs {
            self.judge_failures_of(job);
        }
    }

    fn judge_failures_of(&mut self, id: JobId) {
        let Some(job) = self.tables.jobs.get(&id) else { return };
        let Some(most) = job.definition.pause_after_failures() else { return };
        if job.state != JobState::Active || job.standing != Standing::Active {
            return;
        }
        let Some(row) = self.failures_in_a_row(id, most as usize) else { return };
        let job = self.tables.jobs.get(&id).expect("it was read above").clone();
        let plan = plan_change(&job, None, JobChange::Pause, paused_for(&row), self.now)
            .expect("a pause is planned by the watermarks alone");
        if (plan.recorded_through.next() < plan.effective_from && self.is_behind(&job))
            || self.bugs.has(Bug::FailuresNeverPause)
        {
            return;
        }
        mark::hit(Mark::PausedForFailures);
        self.write_change(&plan, job);
    }

    /// The latest `most` executions that ended since the job stands as it does, latest first, if all of them failed.
    fn failures_in_a_row(&self, job: JobId, most: usize) -> Option<Vec<FailedOne>> {
        let standing = self.tables.jobs.get(&job)?;
        let since = self.tables.job_versions.get(&(job, standing.standing_since))?.effective_from;
        let anew = |row: &&ExecutionRow| {
            row.finished_at.is_some_and(|at| at >= since) || self.bugs.has(Bug::ResumeKeepsFailures)
        };
        let counts = |row: &&ExecutionRow| {
            is_failure(row.state)
                || (row.state == ExecutionState::Completed && !self.bugs.has(Bug::CompletionsKeepTheRow))
        };
        let of_job = self.tables.executions().iter().filter(|row| row.job == job);
        let mut latest: Vec<&ExecutionRow> = of_job.filter(counts).filter(anew).collect();
        latest.sort_by_key(|row| Reverse((row.due_at, row.id)));
        latest.truncate(most);
        if latest.len() < most || !latest.iter().all(|row| is_failure(row.state)) {
            return None;
        }
        let failed =
            |row: &ExecutionRow| FailedOne { due_at: row.due_at, id: row.id, error: row.error.clone() };
        Some(latest.into_iter().map(failed).collect())
    }
}
