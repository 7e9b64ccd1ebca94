//! The ledger of fires: none made up, none lost, none skipped without a reason that the policy justifies.

use std::collections::BTreeMap;
use std::sync::Arc;

use fencepost_core::execution::SkipReason;
use fencepost_core::id::{JobId, Occurrence};
use fencepost_core::job::{JobDefinition, Standing};
use fencepost_core::lease::{HeldLease, LeaseResource};
use fencepost_core::schedule::Schedule;
use fencepost_core::schedule::misfire::MisfirePolicy;
use fencepost_core::store::change::{Change, Delta};
use fencepost_core::store::command::{Command, MaterialiseJob, lease_of};
use fencepost_core::store::row::{ExecutionRow, JobRow, JobVersionRow, SkippedRangeRow};
use fencepost_core::time::{Span, Timestamp};

use super::Commit;
use super::brief::Brief;
use super::calendars::excludes;
use super::fires::{Fires, NextFire};
use super::invariant::Invariant;
use super::leases::check_authority;
use super::mirror::Mirror;
use crate::violation::Violation;

/// What is remembered of jobs' fires.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    fires: Fires,
    /// Scheduled executions so far.
    runs: BTreeMap<JobId, u64>,
}

impl Ledger {
    /// Checks a scheduled execution's birth, before it is in the mirror.
    pub(super) fn check_birth(
        &mut self,
        commit: &Commit<'_>,
        mirror: &Mirror,
        row: &ExecutionRow,
    ) -> Result<(), Violation> {
        let Occurrence::Scheduled { fire } = row.occurrence else { return Ok(()) };
        let readable = job_of(mirror, row.job).zip(version_of(mirror, row.job, fire));
        let Some(((job, in_force), (version, definition))) = readable else {
            return Err(
                commit.broke(Invariant::NoPhantomFire, || format!("{} is of no readable job", row.id))
            );
        };
        let phantom = |why: &str| {
            commit.broke(Invariant::NoPhantomFire, || {
                format!("{fire} of {} was materialised at {}: {why}", row.job, commit.now)
            })
        };
        if fire > commit.now || row.due_at > commit.now {
            return Err(phantom("it was not due yet"));
        }
        if row.due_at != self.due(mirror, row.job, fire) {
            return Err(phantom("it is due at another instant than its place in the flex window"));
        }
        if version.standing == Standing::Paused {
            return Err(commit.broke(Invariant::PausedIsSilent, || {
                format!("{fire} of {} became an execution, and the job was paused then", row.job)
            }));
        }
        if excludes(&definition, fire) {
            return Err(phantom("a calendar excludes its day"));
        }
        if row.job_version != version.version {
            return Err(phantom("it was made under a version that does not decide about it"));
        }
        let just_before = Timestamp::from_micros(fire.as_micros() - 1);
        if self.fires.between((row.job, version.version), &definition, just_before, fire) != [fire] {
            return Err(phantom("the schedule does not yield it"));
        }
        if fire <= job.recorded_through && commit.kind_is_materialise() {
            return Err(phantom("the ledger was past it already"));
        }
        if mirror.is_skipped(row.job, fire) {
            return Err(commit.broke(Invariant::UniqueOccurrence, || {
                format!("{fire} of {} is both an execution and inside a range row", row.job)
            }));
        }
        let runs = self.runs.entry(row.job).or_default();
        *runs += 1;
        if in_force.bounds.max_runs.is_some_and(|most| *runs > most) {
            return Err(phantom("the job has had its number of runs"));
        }
        if in_force.misfire == MisfirePolicy::Skip && is_missed(&in_force, row.due_at, commit.now) {
            return Err(phantom("it was missed, and the policy skips"));
        }
        Ok(())
    }

    /// Checks a range row, before it is in the mirror.
    pub(super) fn check_range(
        &mut self,
        commit: &Commit<'_>,
        mirror: &Mirror,
        delta: &Delta<SkippedRangeRow>,
    ) -> Result<(), Violation> {
        let (None, Some(range)) = (&delta.before, &delta.after) else {
            return Err(
                commit.broke(Invariant::NoLostFire, || format!("a range row changed: {}", Brief(delta)))
            );
        };
        let readable = job_of(mirror, range.job).zip(version_of(mirror, range.job, range.from));
        let Some(((_, in_force), (version, definition))) = readable else {
            return Err(commit
                .broke(Invariant::NoLostFire, || format!("a range of no readable job: {}", Brief(range))));
        };
        let decides = |at| mirror.version_at(range.job, at).map(|row| row.version) == Some(range.job_version);
        if !decides(range.from) || !decides(range.through) {
            return Err(commit.broke(Invariant::NoLostFire, || {
                format!("its version does not decide about all of a range: {}", Brief(range))
            }));
        }
        let just_before = Timestamp::from_micros(range.from.as_micros() - 1);
        let key = (range.job, version.version);
        let fires = self.fires.between(key, &definition, just_before, range.through);
        let bounds_are_fires = fires.first() == Some(&range.from) && fires.last() == Some(&range.through);
        if !bounds_are_fires {
            return Err(commit.broke(Invariant::NoLostFire, || {
                format!("the bounds of a range are fires; {} holds {}", Brief(range), Brief(&fires))
            }));
        }
        let twice =
            |fire: &&Timestamp| mirror.is_executed(range.job, **fire) || mirror.is_skipped(range.job, **fire);
        if let Some(fire) = fires.iter().find(twice) {
            return Err(commit.broke(Invariant::UniqueOccurrence, || {
                format!("{fire} of {} is in the ledger already, and now inside {range:?}", range.job)
            }));
        }
        let unjustified = match (range.reason, version.standing) {
            (SkipReason::Misfire, Standing::Active) => {
                let on_time = |fire: &&Timestamp| {
                    excludes(&definition, **fire)
                        || !is_missed(&in_force, self.due(mirror, range.job, **fire), commit.latest)
                };
                fires.iter().find(on_time)
            }
            (SkipReason::Paused, Standing::Paused) => None,
            (SkipReason::Calendar, Standing::Active) => {
                fires.iter().find(|fire| !excludes(&definition, **fire))
            }
            // Overlap passes over executions, and no fire that was never made one.
            (SkipReason::Overlap, _) => fires.first(),
            (SkipReason::Misfire | SkipReason::Calendar, Standing::Paused)
            | (SkipReason::Paused, Standing::Active) => fires.first(),
        };
        if let Some(fire) = unjustified {
            return Err(commit.broke(Invariant::NoLostFire, || {
                format!(
                    "{fire} of {} was skipped at {} ({}), which is not so",
                    range.job, commit.now, range.reason
                )
            }));
        }
        Ok(())
    }

    /// Checks a job's change: its watermark moves over recorded fires alone, and the next fire is the next.
    /// Looks at the mirror after the whole command.
    pub(super) fn check_job(
        &mut self,
        commit: &Commit<'_>,
        mirror: &Mirror,
        delta: &Delta<JobRow>,
    ) -> Result<(), Violation> {
        let Some(after) = &delta.after else {
            return Err(
                commit.broke(Invariant::NoLostFire, || format!("a job disappeared: {}", Brief(delta)))
            );
        };
        // At its birth: a fire between its creation and its first watermark would be lost as well. A one-shot
        // that is to run although it is past begins before that.
        let birth = after.created_at.min(after.recorded_through);
        let from = delta.before.as_ref().map_or(birth, |before| before.recorded_through);
        if after.recorded_through < from {
            return Err(commit.broke(Invariant::NoLostFire, || {
                format!("the watermark of {} went back from {from} to {}", after.id, after.recorded_through)
            }));
        }
        let Ok(definition) = after.definition.read() else { return Ok(()) };
        let definition = Arc::clone(definition);
        // Of a job that has had all its runs no fire is nominal; the version that was in force says how many.
        let runs = self.runs.get(&after.id).copied().unwrap_or_default();
        let was_done = delta
            .before
            .as_ref()
            .and_then(|before| before.definition.read().ok())
            .is_some_and(|definition| definition.bounds.max_runs.is_some_and(|most| runs >= most));
        let fires = if was_done && !commit.kind_is_materialise() {
            Some(Vec::new())
        } else {
            self.nominal_between(mirror, after.id, from, after.recorded_through)
        };
        let Some(fires) = fires else { return Ok(()) };
        let recorded =
            |fire: &Timestamp| mirror.is_executed(after.id, *fire) || mirror.is_skipped(after.id, *fire);
        if let Some(lost) = fires.iter().find(|fire| !recorded(fire)) {
            return Err(commit.broke(Invariant::NoLostFire, || {
                format!(
                    "{lost} of {} is not in the ledger, whose watermark is {}",
                    after.id, after.recorded_through
                )
            }));
        }
        if after.state.name() == "deleted" {
            return if after.next_fire_time.is_none() {
                Ok(())
            } else {
                Err(commit
                    .broke(Invariant::NoPhantomFire, || format!("{} is deleted and still fires", after.id)))
            };
        }
        self.check_next(commit, mirror, after, &definition, runs)
    }

    /// When a fire is due: by as much after its nominal time as the last eight bytes of its execution's id, as a number
    /// of microseconds, leave over the window of the version that decides about it. The window ends at the next fire of
    /// that version; and what is left of a version when it ends is due at its last instant.
    fn due(&mut self, mirror: &Mirror, job: JobId, fire: Timestamp) -> Timestamp {
        let versions = mirror.versions_of(job);
        let Some((version, ends)) = versions.into_iter().find(|(_, through)| fire <= *through) else {
            return fire;
        };
        let Ok(definition) = version.definition.read() else { return fire };
        if definition.flex == Span::ZERO {
            return fire;
        }
        let nearest = match self.fires.next((job, version.version), definition, fire) {
            NextFire::At(next) | NextFire::NotBefore(next) => next.since(fire),
            NextFire::Never => Span::MAX,
        };
        let window = u128::from(definition.flex.min(nearest).as_micros());
        let id = Occurrence::Scheduled { fire }.execution_id(job).as_uuid().as_u128();
        let after = (id % (1 << 64)) % window;
        fire.plus(Span::from_micros(u64::try_from(after).expect("it is below the window"))).min(ends)
    }

    /// The nominal fires of a job after `from` and at or before `until`; `None` where one of its versions that matter
    /// cannot be read.
    fn nominal_between(
        &mut self,
        mirror: &Mirror,
        job: JobId,
        from: Timestamp,
        until: Timestamp,
    ) -> Option<Vec<Timestamp>> {
        let mut all = Vec::new();
        let mut begins = Timestamp::MIN;
        for (version, through) in mirror.versions_of(job) {
            let (after, last) = (from.max(begins), until.min(through));
            begins = through;
            // A pause that has not ended decides about nothing yet.
            let is_open = version.standing == Standing::Paused && through == Timestamp::MAX;
            if after < last && !is_open {
                let definition = version.definition.read().ok()?;
                all.extend(self.fires.between((job, version.version), definition, after, last));
            }
        }
        Some(all)
    }

    /// The first nominal fire of a job after its watermark; `None` where one of its versions cannot be read.
    fn next_nominal(&mut self, mirror: &Mirror, job: &JobRow) -> Option<NextFire> {
        let mut begins = Timestamp::MIN;
        for (version, through) in mirror.versions_of(job.id) {
            let after = job.recorded_through.max(begins);
            begins = through;
            let is_open = version.standing == Standing::Paused && through == Timestamp::MAX;
            if after >= through || is_open {
                continue;
            }
            let definition = version.definition.read().ok()?;
            match self.fires.next((job.id, version.version), definition, after) {
                NextFire::At(fire) if fire <= through => return Some(NextFire::At(fire)),
                NextFire::NotBefore(horizon) if horizon < through => {
                    return Some(NextFire::NotBefore(horizon));
                }
                NextFire::At(_) | NextFire::NotBefore(_) | NextFire::Never => {}
            }
        }
        Some(NextFire::Never)
    }

    fn check_next(
        &mut self,
        commit: &Commit<'_>,
        mirror: &Mirror,
        job: &JobRow,
        definition: &Arc<JobDefinition>,
        runs: u64,
    ) -> Result<(), Violation> {
        let had_its_runs = definition.bounds.max_runs.is_some_and(|most| runs >= most);
        let next = if had_its_runs {
            NextFire::Never
        } else {
            match self.next_nominal(mirror, job) {
                Some(next) => next,
                None => return Ok(()),
            }
        };
        let right = match next {
            NextFire::At(fire) => job.next_fire_time == Some(fire),
            NextFire::Never => job.next_fire_time.is_none(),
            NextFire::NotBefore(horizon) => job.next_fire_time.is_none_or(|fire| {
                let just_before = Timestamp::from_micros(fire.as_micros() - 1);
                fire > horizon
                    && self
                        .nominal_between(mirror, job.id, just_before, fire)
                        .is_none_or(|fires| fires == [fire])
            }),
        };
        if right {
            return Ok(());
        }
        Err(commit.broke(Invariant::NoLostFire, || {
            format!(
                "the fire of {} after {} is {next:?}, not {:?}",
                job.id, job.recorded_through, job.next_fire_time
            )
        }))
    }

    /// Checks a whole materialisation: its authority, and what the misfire policy makes of each backlog.
    pub(super) fn check_materialise(
        &mut self,
        commit: &Commit<'_>,
        mirror: &Mirror,
        changes: &[Change],
    ) -> Result<(), Violation> {
        let Command::Materialise(ask) = commit.command else { return Ok(()) };
        for change in changes {
            let Change::Job(delta) = change else { continue };
            let Some(before) = &delta.before else { continue };
            let resource = LeaseResource::Partition(before.partition);
            let held = lease_of(&ask.leases, before.partition).map(|token| HeldLease { resource, token });
            check_authority(commit, mirror, ask.node, held)?;
            let item = ask.items.iter().find(|item| item.job == before.id);
            let expected = item.is_some_and(|item| {
                item.version == before.version && Some(item.expected_fire) == before.next_fire_time
            });
            if !expected {
                return Err(commit.broke(Invariant::FencedWrite, || not_as_expected(item, before)));
            }
        }
        for item in &ask.items {
            let made = made_of(changes, item.job);
            let ranges = ranges_of(changes, item.job);
            let Some((_, definition)) = job_of(mirror, item.job) else { continue };
            let is_late =
                |fire: &&Timestamp| is_missed(&definition, self.due(mirror, item.job, **fire), commit.now);
            let missed = made.iter().filter(is_late).count();
            let (allowed, why) = match definition.misfire {
                MisfirePolicy::FireOnce => (1, "fire_once runs one missed fire"),
                MisfirePolicy::CatchUp { cap, .. } => (cap as usize, "catch_up runs no more than its cap"),
                MisfirePolicy::Skip => (0, "skip runs no missed fire"),
            };
            if missed > allowed {
                return Err(
                    commit.broke(Invariant::NoPhantomFire, || format!("{why}, not {missed} of {}", item.job))
                );
            }
            for range in ranges.into_iter().filter(|range| range.reason == SkipReason::Misfire) {
                self.check_passed_over(commit, mirror, &definition, &made, range)?;
            }
        }
        Ok(())
    }

    /// Whether the policy justifies that these missed fires did not run.
    fn check_passed_over(
        &mut self,
        commit: &Commit<'_>,
        mirror: &Mirror,
        definition: &Arc<JobDefinition>,
        made: &[Timestamp],
        range: &SkippedRangeRow,
    ) -> Result<(), Violation> {
        let later_runs = |fire: Timestamp| made.iter().filter(|run| **run > fire).count();
        let justified = match definition.misfire {
            MisfirePolicy::Skip => true,
            // A later fire of the same backlog runs for all of them, or there is a bound on the runs.
            MisfirePolicy::FireOnce => later_runs(range.through) >= 1,
            MisfirePolicy::CatchUp { cap, window } => {
                let last_due = self.due(mirror, range.job, range.through);
                let too_old = commit.latest.since(last_due) > window;
                let caught_up = later_runs(range.through) >= cap as usize;
                let runs_ended = definition
                    .bounds
                    .max_runs
                    .is_some_and(|most| self.runs.get(&range.job).is_some_and(|runs| *runs >= most));
                too_old || caught_up || runs_ended
            }
        };
        assert!(mirror.jobs.contains_key(&range.job), "checked by its caller");
        if justified {
            return Ok(());
        }
        Err(commit.broke(Invariant::NoLostFire, || {
            format!(
                "a range was passed over against {:?}: {}; what ran: {}",
                definition.misfire,
                Brief(range),
                Brief(made)
            )
        }))
    }
}

/// What a plan expected of a job's row and what the row was: the values that differ first.
fn not_as_expected(item: Option<&MaterialiseJob>, before: &JobRow) -> String {
    let Some(item) = item else {
        return format!("the job was changed, and the command has no item for it: {}", Brief(before));
    };
    let mut differs = Vec::new();
    if item.version != before.version {
        differs.push(format!("expected version {}, saw {}", item.version.0, before.version.0));
    }
    if Some(item.expected_fire) != before.next_fire_time {
        let saw = before.next_fire_time.map_or("none".to_owned(), |fire| fire.to_string());
        differs.push(format!("expected the next fire {}, saw {saw}", item.expected_fire));
    }
    format!(
        "{} was materialised from a stale row: {}; the row: {}",
        before.id,
        differs.join("; "),
        Brief(before)
    )
}

fn job_of(mirror: &Mirror, job: JobId) -> Option<(&JobRow, Arc<JobDefinition>)> {
    let row = mirror.jobs.get(&job)?;
    let definition = row.definition.read().ok()?;
    Some((row, Arc::clone(definition)))
}

/// The version of a job that decides about an instant, and its definition.
fn version_of(mirror: &Mirror, job: JobId, at: Timestamp) -> Option<(&JobVersionRow, Arc<JobDefinition>)> {
    let row = mirror.version_at(job, at)?;
    let definition = row.definition.read().ok()?;
    Some((row, Arc::clone(definition)))
}

/// Whether a fire that is due then is missed when it is recorded at `now`. A one-shot that is to run although it is past
/// is not.
fn is_missed(definition: &JobDefinition, due: Timestamp, now: Timestamp) -> bool {
    let wanted_late = definition.run_if_past && matches!(definition.schedule, Schedule::OneShot { .. });
    let grace: Span = definition.misfire_grace;
    now > due.plus(grace) && !(wanted_late && definition.misfire != MisfirePolicy::Skip)
}

fn made_of(changes: &[Change], job: JobId) -> Vec<Timestamp> {
    let made = changes.iter().filter_map(|change| match change {
        Change::Execution(delta) => match (&delta.before, &delta.after) {
            (None, Some(row)) if row.job == job => match row.occurrence {
                Occurrence::Scheduled { fire } => Some(fire),
                Occurrence::Manual { .. } | Occurrence::Replay { .. } => None,
            },
            (_, _) => None,
        },
        _ => None,
    });
    made.collect()
}

fn ranges_of(changes: &[Change], job: JobId) -> Vec<&SkippedRangeRow> {
    let ranges = changes.iter().filter_map(|change| match change {
        Change::SkippedRange(delta) => delta.after.as_ref().filter(|row| row.job == job),
        _ => None,
    });
    ranges.collect()
}

#[cfg(test)]
mod tests {
    use fencepost_core::bug::{Bug, Bugs};

    use crate::mutants;
    use crate::plan::Profile;
    use crate::run::run_seed;

    #[test]
    fn a_stale_materialisation_is_told_by_the_values_that_differ() {
        let bug = Bug::MaterialiseIgnoresWatermark;
        let seed = mutants::run(bug, mutants::SEEDS, Profile::Default, 2).seed.expect("it is killed");
        let broken = run_seed(seed, Profile::Default, Bugs::only(bug)).ended.violation.expect("it broke");
        let detail = broken.detail;
        let differs = detail.split("; the row: ").next().expect("a split has a first part");
        assert!(differs.contains("expected ") && differs.contains(", saw "), "{detail}");
        assert!(detail.len() < 700, "{detail}");
    }
}
