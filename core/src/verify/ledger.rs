//! A job's ledger against its calendar: every nominal fire up to the watermark is there once, and nothing else is.
//!
//! The ledger comes in the order of the fires, executions and ranges together. Behind what has been seen, the next
//! entry must begin with the next nominal fire. So a ledger is walked in steps for its entries, and a range of a month
//! of seconds is one step.

use std::sync::Arc;

use super::calendar::{Calendar, Next, Runs};
use super::decision::{Cut, Decision, Judged, is_missed};
use super::record::LeaseTokens;
use super::report::{Finding, Tallies};
use super::{Check, Verifier, Window, ZoneData};
use crate::execution::{ExecutionState, SkipReason};
use crate::fencing::FencingToken;
use crate::id::{ExecutionId, JobId, JobVersion};
use crate::job::{JobDefinition, Standing};
use crate::lease::LeaseResource;
use crate::schedule::Schedule;
use crate::schedule::misfire::MisfirePolicy;
use crate::store::row::{JobRow, JobState, JobVersionRow, SkippedRangeRow};
use crate::time::{Span, Timestamp};

const MADE_UP: &str =
    "find out who made it: nothing in the job's definition asks for it; cancel it if it has not run";
const LOST: &str = "trigger the job by hand if the work is still wanted, and find out who wrote to its rows";
const TWICE: &str = "compare both with what their target saw: the work may have been done twice";

/// How many lost fires of one gap are counted.
const LOST_COUNTED: usize = 1_000;

/// A scheduled execution, as the ledger has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerFire {
    /// The execution.
    pub id: ExecutionId,
    /// The nominal fire.
    pub fire: Timestamp,
    /// Under which version it was made.
    pub job_version: JobVersion,
    /// When it was due.
    pub due_at: Timestamp,
    /// When it was made, by the `now` of the command.
    pub materialised_at: Timestamp,
    /// Under which partition token.
    pub made_under: FencingToken,
    /// Where it stands.
    pub state: ExecutionState,
    /// Why it was not run.
    pub skip_reason: Option<SkipReason>,
}

impl LedgerFire {
    /// Whether it was made to run. What overlap passes over was: that is decided when it asks for its first lease.
    fn was_to_run(&self) -> bool {
        self.state != ExecutionState::Skipped || self.skip_reason == Some(SkipReason::Overlap)
    }
}

/// One entry of a job's ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedgerItem {
    /// A fire that became an execution.
    Fire(LedgerFire),
    /// A run of fires that were passed over.
    Range(SkippedRangeRow),
}

impl LedgerItem {
    /// Where it stands in the ledger: by its first fire.
    #[must_use]
    pub const fn first(&self) -> Timestamp {
        match self {
            Self::Fire(fire) => fire.fire,
            Self::Range(range) => range.from,
        }
    }
}

/// A job whose ledger is being walked.
#[derive(Debug)]
pub(super) struct JobWalk {
    job: JobRow,
    calendar: Calendar,
    window: Window,
    /// Every nominal fire up to here has been seen.
    covered: Timestamp,
    /// The last fire of the latest entry.
    reached: Option<Timestamp>,
    /// Executions that ran, so far.
    runs: u64,
    made_under: FencingToken,
    decision: Option<Decision>,
}

impl Verifier {
    /// Begins with a job; the one before was ended. `versions` ascend.
    pub fn begin_job(&mut self, job: JobRow, versions: &[JobVersionRow]) {
        debug_assert!(self.job.is_none(), "a job is ended before the next begins");
        check_versions(&mut self.tallies, &job, versions);
        let calendar = Calendar::new(versions);
        self.tallies.look(Check::NoLostFire);
        let first =
            calendar.index_at(Timestamp::MIN).and_then(|first| calendar.piece(first).definition.clone());
        let born = born(&job, first.as_deref());
        let pauses = calendar.pauses();
        if !pauses.is_empty() {
            self.pauses.insert(job.id, pauses);
        }
        self.job = Some(JobWalk {
            covered: born.max(self.window.from.minus(Span::from_micros(1))),
            window: self.window,
            reached: None,
            runs: 0,
            made_under: FencingToken::NEVER,
            decision: None,
            calendar,
            job,
        });
    }

    /// The next entry of the ledger of the job that was begun, in the order of [`LedgerItem::first`].
    ///
    /// # Panics
    /// Where no job was begun, which is a mistake of the caller's.
    pub fn ledger_item(&mut self, item: LedgerItem) {
        let walk = self.job.as_mut().expect("a job was begun");
        let mut seen = Seen { tallies: &mut self.tallies, zone_data: &self.zone_data, leases: &self.leases };
        match item {
            LedgerItem::Fire(fire) => walk.fire(&mut seen, fire),
            LedgerItem::Range(range) => walk.range(&mut seen, range),
        }
    }

    /// Ends the job that was begun.
    ///
    /// # Panics
    /// Where no job was begun, which is a mistake of the caller's.
    pub fn end_job(&mut self) {
        let walk = self.job.take().expect("a job was begun");
        let mut seen = Seen { tallies: &mut self.tallies, zone_data: &self.zone_data, leases: &self.leases };
        walk.end(&mut seen);
    }
}

/// From when on a job's fires count; those at that instant do not.
fn born(job: &JobRow, first: Option<&JobDefinition>) -> Timestamp {
    match first.map(|definition| (&definition.schedule, definition.run_if_past)) {
        Some((Schedule::OneShot { at }, true)) => job.created_at.min(at.minus(Span::from_micros(1))),
        Some((
            Schedule::Cron { .. } | Schedule::Interval { .. } | Schedule::OneShot { .. } | Schedule::Manual,
            _,
        ))
        | None => job.created_at,
    }
}

/// A job's versions are all there, and the one in force is the job's own.
fn check_versions(tallies: &mut Tallies, job: &JobRow, versions: &[JobVersionRow]) {
    let expected = match job.state {
        JobState::Active => job.version.0,
        // A delete is a version without a definition.
        JobState::Deleted => job.version.0.saturating_sub(1),
    };
    let numbered = versions.iter().map(|row| row.version.0).eq(1..=expected);
    let rising = versions.iter().map(|row| row.effective_from).is_sorted();
    let in_force = versions.last().is_some_and(|last| {
        last.definition == job.definition
            && (last.standing, last.standing_since) == (job.standing, job.standing_since)
            && (job.state == JobState::Deleted || last.effective_from == job.effective_from)
    });
    let same_tenant = versions.iter().all(|row| row.tenant == job.tenant);
    if numbered && rising && in_force && same_tenant {
        return;
    }
    let what = format!(
        "its versions are {:?}, and 1 to {expected} are to be there, taking effect one after the other, the last \
         with the job's own definition and standing",
        versions.iter().map(|row| row.version.0).collect::<Vec<_>>()
    );
    let advice =
        "what was decided under a version that is gone or changed cannot be defended: compare with a backup";
    tallies.broke(Check::Conservation, Finding::of_job(job.id, what, advice));
}

/// What a walk looks at beside its job.
struct Seen<'a> {
    tallies: &'a mut Tallies,
    zone_data: &'a ZoneData,
    leases: &'a LeaseTokens,
}

impl JobWalk {
    fn id(&self) -> JobId {
        self.job.id
    }

    fn runs_so_far(&self) -> Runs {
        if self.window.is_whole() { Runs::Counted(self.runs) } else { Runs::NotCounted }
    }

    fn fire(&mut self, seen: &mut Seen<'_>, fire: LedgerFire) {
        seen.tallies.look(Check::NoPhantomFire);
        self.decided_at(seen, fire.materialised_at);
        self.check_once(seen, fire.fire, fire.fire, Some(fire.id));
        self.check_authority(seen, fire.made_under);
        let job = self.id();
        let mut made_up = |what: String| {
            seen.tallies.broke(Check::NoPhantomFire, Finding::of_execution(job, fire.id, what, MADE_UP));
        };
        if fire.materialised_at < fire.due_at || fire.due_at < fire.fire {
            made_up(format!(
                "the fire of {} was due at {} and made at {}, too early",
                fire.fire, fire.due_at, fire.materialised_at
            ));
        }
        let decides = self.calendar.index_at(fire.fire).map(|index| self.calendar.piece(index));
        if let Some(own) = decides.and_then(|decides| decides.definition.as_deref())
            && fire.due_at >= fire.fire
        {
            // What was made before its version ended knew of no end.
            let open = fire.fire.plus(own.flex_of(job, fire.fire));
            let closed = self.calendar.due_at(job, fire.fire);
            if fire.due_at != open && fire.due_at != closed {
                made_up(format!(
                    "the fire of {} was made due at {}, and by its flex window of {} it is due at {open}",
                    fire.fire, fire.due_at, own.flex
                ));
            }
        }
        if let Some(decides) = decides.filter(|decides| fire.job_version != decides.version) {
            made_up(format!(
                "the fire of {} was made under version {}, and version {} was in force then",
                fire.fire, fire.job_version.0, decides.version.0
            ));
        }
        if decides.is_some_and(|decides| decides.standing == Standing::Paused) {
            let what = format!("the fire of {} was made, and its job was paused then", fire.fire);
            let finding = Finding::of_execution(job, fire.id, what, MADE_UP);
            seen.tallies.broke(Check::PausedIsSilent, finding);
        }
        let own = decides.and_then(|decides| decides.definition.as_deref());
        if let Some(calendar) = own.and_then(|own| own.excluded().calendar_of(fire.fire)) {
            let name = &*calendar.calendar;
            let what = format!("the fire of {} was made, and the calendar {name:?} excludes it", fire.fire);
            self.differs(
                seen,
                Check::NoPhantomFire,
                Some(fire.id),
                fire.fire,
                fire.materialised_at,
                (what, MADE_UP),
            );
        }
        if fire.skip_reason == Some(SkipReason::Overlap) && own.is_some_and(|own| !own.overlap.judges()) {
            let what = format!(
                "the fire of {} was passed over for overlap, which version {} allows",
                fire.fire, fire.job_version.0
            );
            seen.tallies.broke(Check::NoLostFire, Finding::of_execution(job, fire.id, what, LOST));
        }
        let mut made_up = |what: String| {
            seen.tallies.broke(Check::NoPhantomFire, Finding::of_execution(job, fire.id, what, MADE_UP));
        };
        let definition = self.in_force_at(fire.materialised_at);
        if let Some(definition) = &definition
            && definition.misfire == MisfirePolicy::Skip
            && is_missed(definition, fire.due_at, fire.materialised_at)
            && fire.was_to_run()
        {
            made_up(format!(
                "the fire of {} was made at {}, when it was missed, and the policy skips those",
                fire.fire, fire.materialised_at
            ));
        }
        self.check_next(seen, fire.fire, fire.materialised_at, Some(fire.id));
        if fire.was_to_run() {
            self.runs += 1;
            if let Some(decision) = &mut self.decision {
                decision.ran(fire.due_at, definition.as_ref());
            }
        }
        self.reach(fire.fire);
    }

    fn range(&mut self, seen: &mut Seen<'_>, range: SkippedRangeRow) {
        seen.tallies.look(Check::UniqueOccurrence);
        self.decided_at(seen, range.decided_at);
        self.check_once(seen, range.from, range.through, None);
        self.check_authority(seen, range.made_under);
        let job = self.id();
        let lost = |what: String| Finding::of_job(job, what, LOST);
        if range.from > range.through {
            let what = format!("a range ends at {} before it begins at {}", range.through, range.from);
            seen.tallies.broke(Check::NoLostFire, lost(what));
        }
        let index = self.calendar.index_at(range.through);
        let depends = index.is_some_and(|index| self.calendar.piece(index).depends_on_zone_data());
        let through = range.through;
        if depends && &*range.zone_data != seen.zone_data.ours {
            let what = format!(
                "{} to {through} was decided with zone data {}, and ours is {}",
                range.from, range.zone_data, seen.zone_data.ours
            );
            seen.tallies.cannot_compare(Check::NoLostFire, lost(what));
        } else {
            self.check_bounds(seen, &range);
        }
        if self.is_of_its_version(&range) {
            match (range.reason, self.in_force_at(range.decided_at)) {
                (SkipReason::Paused | SkipReason::Overlap, _) => {}
                (SkipReason::Calendar, _) => self.check_excluded(seen, &range),
                (SkipReason::Misfire, Some(definition)) => {
                    self.check_excluded(seen, &range);
                    self.check_late(seen, range, definition);
                }
                (SkipReason::Misfire, None) => {
                    let what = format!("{} to {through}: the definition cannot be read", range.from);
                    seen.tallies.cannot_compare(Check::NoLostFire, lost(what));
                }
            }
        } else {
            let what = format!(
                "{} to {through} was passed over ({}) as version {} says, and that did not stand so then",
                range.from, range.reason, range.job_version.0
            );
            seen.tallies.broke(Check::NoLostFire, lost(what));
        }
        self.reach(through);
    }

    /// Whether the version that a range names was in force for all of it, and stood as the reason says.
    fn is_of_its_version(&self, range: &SkippedRangeRow) -> bool {
        let standing = match range.reason {
            SkipReason::Misfire | SkipReason::Calendar => Standing::Active,
            SkipReason::Paused => Standing::Paused,
            // Overlap passes over executions, one by one, and no fires that were never made one.
            SkipReason::Overlap => return false,
        };
        let Some(index) = self.calendar.index_at(range.from) else { return false };
        let piece = self.calendar.piece(index);
        (piece.version, piece.standing) == (range.job_version, standing)
            && range.through < self.calendar.end(index)
    }

    /// All of a range lies on days that the calendars of its version exclude where that is its reason, and otherwise on
    /// days that they do not.
    fn check_excluded(&self, seen: &mut Seen<'_>, range: &SkippedRangeRow) {
        let index = self.calendar.index_at(range.from);
        let piece = index.map(|index| self.calendar.piece(index));
        let Some((piece, definition)) = piece.and_then(|piece| Some((piece, piece.definition.as_ref()?)))
        else {
            return;
        };
        if piece.depends_on_zone_data() && &*range.zone_data != seen.zone_data.ours {
            return;
        }
        let excluded = definition.excluded();
        let is_excluded = range.reason == SkipReason::Calendar;
        let justified = match excluded.through(range.from) {
            Some(through) => is_excluded && range.through <= through,
            None => !is_excluded && range.through <= excluded.closes(range.from),
        };
        if !justified {
            let what = format!(
                "{} to {} was passed over ({}), and the calendars of version {} do not say so",
                range.from, range.through, range.reason, range.job_version.0
            );
            seen.tallies.broke(Check::NoLostFire, Finding::of_job(self.id(), what, LOST));
        }
    }

    /// The definition whose policies decided about a backlog at an instant: that of the version in force then.
    fn in_force_at(&self, at: Timestamp) -> Option<Arc<JobDefinition>> {
        self.calendar.index_at(at).and_then(|index| self.calendar.piece(index).definition.clone())
    }

    /// Both ends of a range are fires, and the first is the next.
    fn check_bounds(&mut self, seen: &mut Seen<'_>, range: &SkippedRangeRow) {
        // One that reaches into what is looked at begins before it.
        let reaches_in = self.reached.is_none() && range.from <= self.covered;
        if reaches_in {
            self.check_fire(seen, range.from, range.decided_at);
        } else {
            self.check_next(seen, range.from, range.decided_at, None);
        }
        if range.through > range.from {
            self.check_fire(seen, range.through, range.decided_at);
        }
    }

    /// Whether a bound of a range is a fire.
    fn check_fire(&self, seen: &mut Seen<'_>, fire: Timestamp, decided_at: Timestamp) {
        if self.calendar.yields(fire) == Some(false) {
            let what = format!(
                "a range that was decided at {decided_at} ends or begins at {fire}, which is no fire"
            );
            self.differs(seen, Check::NoLostFire, None, fire, decided_at, (what, LOST));
        }
    }

    /// A missed fire was late, and the policy says what becomes of it.
    fn check_late(&mut self, seen: &mut Seen<'_>, range: SkippedRangeRow, definition: Arc<JobDefinition>) {
        let last_due_at = self.calendar.due_at(self.id(), range.through);
        if is_missed(&definition, last_due_at, range.decided_at) {
            if let Some(decision) = &mut self.decision {
                decision.passed_over(range, definition, last_due_at);
            }
            return;
        }
        let what = format!(
            "{} to {} was passed over at {} as missed, within the grace of {}",
            range.from,
            range.through,
            range.decided_at,
            definition.grace()
        );
        let finding = Finding::of_job(self.id(), what, LOST);
        // It was planned at an earlier reading of the clock.
        seen.tallies.broke_by_clock(Check::NoLostFire, finding);
    }

    /// The entry that begins with `first` begins with the next nominal fire.
    fn check_next(
        &self,
        seen: &mut Seen<'_>,
        first: Timestamp,
        decided_at: Timestamp,
        execution: Option<ExecutionId>,
    ) {
        let (check, advice) = match execution {
            Some(_) => (Check::NoPhantomFire, MADE_UP),
            None => (Check::NoLostFire, LOST),
        };
        // Runs that were not counted did not use up a version that still has one.
        let runs = match self.runs_so_far() {
            Runs::NotCounted
                if self.calendar.index_at(first) == self.calendar.index_at(self.covered.next()) =>
            {
                Runs::Unlimited
            }
            runs @ (Runs::Counted(_) | Runs::NotCounted | Runs::Unlimited) => runs,
        };
        match self.calendar.next_after(self.covered, runs) {
            Next::At(next, _) if next == first => return,
            Next::At(next, _) if next < first => self.lost(seen, next, first, Some(decided_at)),
            Next::At(..) | Next::Never => {}
            Next::Unreadable => return self.unreadable(seen, check, first),
            Next::NotCounted => {}
        }
        let is_twice = self.reached.is_some_and(|reached| first <= reached);
        match self.calendar.yields(first) {
            Some(false) => {
                let what = format!("{first} is no fire that the version in force then yields");
                self.differs(seen, check, execution, first, decided_at, (what, advice));
            }
            Some(true) if first <= self.covered && !is_twice && execution.is_some() => {
                let what = format!("{first} lies before the job was created, at {}", self.job.created_at);
                self.differs(seen, check, execution, first, decided_at, (what, advice));
            }
            Some(true) if self.is_exhausted(first) && !is_twice => {
                let what = format!("{first} comes after the job has had all of its runs, {}", self.runs);
                self.differs(seen, check, execution, first, decided_at, (what, advice));
            }
            Some(true) | None => {}
        }
    }

    /// Whether the version that decides about an instant has had all its runs.
    fn is_exhausted(&self, at: Timestamp) -> bool {
        let index = self.calendar.index_at(at);
        let definition = index.and_then(|index| self.calendar.piece(index).definition.as_ref());
        match self.runs_so_far() {
            Runs::Counted(runs) => definition.is_some_and(|definition| definition.bounds.exhausted_by(runs)),
            Runs::NotCounted | Runs::Unlimited => false,
        }
    }

    /// The fires from `next` to before `before` are nowhere. `decided_at` is when they were passed.
    fn lost(&self, seen: &mut Seen<'_>, next: Timestamp, before: Timestamp, decided_at: Option<Timestamp>) {
        let (count, last) = self.calendar.count_between(self.covered, before, LOST_COUNTED);
        let or_more = if count == LOST_COUNTED { " or more" } else { "" };
        let what = match last {
            Some(last) if last > next => {
                format!("{count}{or_more} fires are not in the ledger: {next} to {last}")
            }
            Some(_) | None => format!("the fire of {next} is not in the ledger"),
        };
        let decided_at = decided_at.unwrap_or(next);
        self.differs(seen, Check::NoLostFire, None, next, decided_at, (what, LOST));
    }

    /// A difference from the calendar, unless other zone data may have made it.
    fn differs(
        &self,
        seen: &mut Seen<'_>,
        check: Check,
        execution: Option<ExecutionId>,
        fire: Timestamp,
        decided_at: Timestamp,
        (what, advice): (String, &'static str),
    ) {
        let index = self.calendar.index_at(fire);
        let depends = index.is_some_and(|index| self.calendar.piece(index).depends_on_zone_data());
        let finding = Finding { job_id: Some(self.id()), execution_id: execution, what, advice };
        if depends && !seen.zone_data.decided(decided_at) {
            let what = format!("{}; other zone data was in use then", finding.what);
            seen.tallies.cannot_compare(check, Finding { what, ..finding });
        } else {
            seen.tallies.broke(check, finding);
        }
    }

    fn unreadable(&self, seen: &mut Seen<'_>, check: Check, at: Timestamp) {
        let what = format!("the definition that decides about {at} cannot be read by this version");
        let advice = "run the verification of a version that can read it";
        seen.tallies.cannot_compare(check, Finding::of_job(self.id(), what, advice));
    }

    /// No fire stands twice in the ledger.
    fn check_once(
        &self,
        seen: &mut Seen<'_>,
        first: Timestamp,
        last: Timestamp,
        execution: Option<ExecutionId>,
    ) {
        if let Some(reached) = self.reached.filter(|reached| first <= *reached) {
            let what = format!(
                "{first} to {last} is in the ledger already, as part of what goes to {reached}, and again"
            );
            let finding = Finding { job_id: Some(self.id()), execution_id: execution, what, advice: TWICE };
            seen.tallies.broke(Check::UniqueOccurrence, finding);
        }
    }

    /// The partition's token never falls along a ledger, and the partition's lease never lies below it.
    fn check_authority(&mut self, seen: &mut Seen<'_>, made_under: FencingToken) {
        let resource = LeaseResource::Partition(self.job.partition);
        let current = seen.leases.of(resource).unwrap_or(FencingToken::NEVER);
        if made_under < self.made_under || made_under > current || made_under <= FencingToken::NEVER {
            let what = format!(
                "a decision was made under token {made_under} of {resource}, after one under {}, and its lease is at \
                 {current}",
                self.made_under
            );
            let advice = "a lease row was set back, or an owner wrote under authority that had passed on";
            seen.tallies.broke(Check::TokenMonotone, Finding::of_job(self.job.id, what, advice));
        }
        self.made_under = self.made_under.max(made_under);
    }

    fn reach(&mut self, last: Timestamp) {
        self.reached = Some(self.reached.map_or(last, |reached| reached.max(last)));
        self.covered = self.covered.max(last);
    }

    /// What is decided at another instant is another decision.
    fn decided_at(&mut self, seen: &mut Seen<'_>, at: Timestamp) {
        if let Some(before) = self.decision.as_ref().map(Decision::at).filter(|before| *before != at) {
            if before > at {
                let job = self.id();
                seen.tallies
                    .clock_was_set_back(|| format!("from {before} to {at} or before, as job {job} shows"));
            }
            self.judge(seen, Cut::Whole);
        }
        self.decision.get_or_insert_with(|| Decision::new(at));
    }

    fn judge(&mut self, seen: &mut Seen<'_>, cut: Cut) {
        if let Some(decision) = self.decision.take() {
            decision.judge(seen.tallies, Judged { job: self.job.id, runs: self.job.runs, cut });
        }
    }

    fn end(mut self, seen: &mut Seen<'_>) {
        let is_cut = self.window.to <= self.job.recorded_through;
        self.judge(seen, if is_cut { Cut::Short } else { Cut::Whole });
        let last = self.job.recorded_through.min(self.window.to.minus(Span::from_micros(1)));
        match self.calendar.next_after(self.covered, self.runs_so_far()) {
            Next::At(next, _) if next <= last => self.lost(seen, next, last.next(), None),
            Next::At(..) | Next::Never | Next::NotCounted => {}
            Next::Unreadable => self.unreadable(seen, Check::NoLostFire, self.covered),
        }
        if self.reached.is_some_and(|reached| reached > self.job.recorded_through) {
            let what = format!(
                "the watermark is {}, and the ledger goes to {}",
                self.job.recorded_through, self.covered
            );
            seen.tallies.broke(Check::NoLostFire, Finding::of_job(self.id(), what, LOST));
        }
        self.check_next_fire(seen);
        if self.window.is_whole() && self.runs != self.job.runs {
            let what =
                format!("it counts {} scheduled executions, and {} are there", self.job.runs, self.runs);
            let advice = "executions were deleted or made past the scheduler: compare with a backup";
            seen.tallies.broke(Check::Conservation, Finding::of_job(self.id(), what, advice));
        }
    }

    /// The job's next fire is the first after its watermark.
    fn check_next_fire(&self, seen: &mut Seen<'_>) {
        let next = match self.job.state {
            JobState::Deleted => {
                if let Some(next) = self.job.next_fire_time {
                    let what = format!("it is deleted, and its next fire is {next}");
                    let advice = "it must not fire again: clear its next fire";
                    seen.tallies.broke(Check::PausedIsSilent, Finding::of_job(self.id(), what, advice));
                }
                return;
            }
            JobState::Active => {
                self.calendar.next_after(self.job.recorded_through, Runs::Counted(self.job.runs))
            }
        };
        let expected = match next {
            Next::At(next, _) => Some(next),
            Next::Never | Next::NotCounted => None,
            Next::Unreadable => return self.unreadable(seen, Check::NoLostFire, self.job.recorded_through),
        };
        if expected != self.job.next_fire_time {
            let words = |fire: Option<Timestamp>| fire.map_or("none".to_owned(), |fire| fire.to_string());
            let what = format!(
                "after {} the next fire is {}, and the job waits for {}",
                self.job.recorded_through,
                words(expected),
                words(self.job.next_fire_time)
            );
            let advice =
                "create the job anew: one that waits for the wrong instant loses fires or makes them up";
            let fire = expected.or(self.job.next_fire_time).unwrap_or(self.job.recorded_through);
            self.differs(seen, Check::NoLostFire, None, fire, self.job.recorded_through, (what, advice));
        }
    }
}
