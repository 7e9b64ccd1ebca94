//! Cases that went wrong elsewhere, as scenarios: long outages, edits, pauses, deletes with work pending, a leader that
//! comes back after days, a result that comes after the end, a replay of everything that is cut off half-way, a midnight.
//!
//! Each is a plan written by hand: a small cluster, and exactly the faults and operators that the case is about. It is run
//! with every oracle on, and what the store is left with is what the case says. The same cases go through the API on
//! the real stack, in the tests of the servers.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use fencepost_core::bug::Bugs;
use fencepost_core::execution::{ExecutionState, SkipReason};
use fencepost_core::id::{JobId, Occurrence, TenantId};
use fencepost_core::job::JobDefinition;
use fencepost_core::lease::{LeaseResource, TrustWindow};
use fencepost_core::store::change::Change;
use fencepost_core::store::command::Command;
use fencepost_core::store::reference::ReferenceStore;
use fencepost_core::store::reply::StoreReply;
use fencepost_core::store::row::{ExecutionRow, RefusedAction};
use fencepost_core::store::tables::Contents;
use fencepost_core::time::{Span, Timestamp};
use fencepost_sim::fault::FaultKind;
use fencepost_sim::plan::{
    Action, Authority, Behaviour, BehaviourKind, Creation, Definition, FaultSpec, JobIndex, JobSpec,
    NodeSlot, OperatorAction, OutsideIndex, Plan, Profile, Target, Timing, generate,
};
use fencepost_sim::sim_time::SimTime;
use fencepost_sim::store::Store;
use fencepost_sim::world::{Ended, Keep, World};

const SECOND: Span = Span::from_secs(1);
const MINUTE: Span = Span::from_secs(60);
const HOUR: Span = Span::from_secs(3_600);
const DAY: Span = Span::from_secs(24 * 3_600);

/// A store that can still be looked at when its world has ended.
#[derive(Clone)]
struct Shared(Rc<RefCell<ReferenceStore>>);

impl Store for Shared {
    fn call(&mut self, now: Timestamp, command: &Command, changes: &mut Vec<Change>) -> StoreReply {
        self.0.borrow_mut().apply(now, command, changes)
    }
}

/// What a scenario ended with.
struct Outcome {
    ended: Ended,
    rows: Contents,
}

impl Outcome {
    fn of_job(&self, job: JobId) -> impl Iterator<Item = &ExecutionRow> {
        self.rows.executions.iter().filter(move |row| row.job == job)
    }

    /// The fires of a job whose execution is in this state, ascending.
    fn fires(&self, job: JobId, state: ExecutionState) -> Vec<Timestamp> {
        let rows = self.of_job(job).filter(|row| row.state == state);
        let mut fires: Vec<Timestamp> = rows.filter_map(fire_of).collect();
        fires.sort_unstable();
        fires
    }

    /// The fires of a job that were passed over for this reason, one by one or in a stretch, within these bounds and
    /// `apart` from each other.
    fn passed_over(
        &self,
        job: JobId,
        reason: SkipReason,
        (first, last): (Timestamp, Timestamp),
        apart: Span,
    ) -> BTreeSet<Timestamp> {
        let alone = self.of_job(job).filter(|row| row.skip_reason == Some(reason)).filter_map(fire_of);
        let mut fires: BTreeSet<Timestamp> = alone.collect();
        for range in
            self.rows.skipped_ranges.iter().filter(|range| range.job == job && range.reason == reason)
        {
            let all = core::iter::successors(Some(first), |at| Some(at.plus(apart)).filter(|at| *at <= last));
            fires.extend(all.filter(|at| (range.from..=range.through).contains(at)));
        }
        fires
    }
}

fn fire_of(row: &ExecutionRow) -> Option<Timestamp> {
    match row.occurrence {
        Occurrence::Scheduled { fire } => Some(fire),
        Occurrence::Manual { .. } | Occurrence::Replay { .. } => None,
    }
}

fn time(text: &str) -> Timestamp {
    Timestamp::parse_rfc3339(text).expect("the cases name instants")
}

/// Instants from the first to the last.
fn every(apart: Span, first: &str, last: &str) -> Vec<Timestamp> {
    let last = time(last);
    core::iter::successors(Some(time(first)), |at| Some(at.plus(apart)).filter(|at| *at <= last)).collect()
}

/// A scenario being written.
struct Scenario {
    plan: Plan,
}

impl Scenario {
    /// A cluster of two schedulers and two workers at rest, at this instant.
    fn at(starts: &str) -> Self {
        let mut plan = generate::generate(1, Profile::Small);
        plan.starts_at = time(starts);
        plan.daylight_saving = false;
        plan.jobs.clear();
        plan.actions.clear();
        plan.faults.clear();
        plan.heal.dead.clear();
        plan.heal.drains = None;
        // How soon somebody looks again after an outage is a part of the cases, whatever is generated.
        for scheduler in &mut plan.schedulers {
            let config = &mut scheduler.config;
            config.lease_ttl = Span::from_secs(9);
            config.trust = TrustWindow::Margin(Span::from_secs(2));
            config.cycle_every = Span::from_secs(3);
            config.heartbeat_every = Span::from_secs(3);
            config.live_within = Span::from_secs(9);
            config.poll_every = Span::from_secs(4);
        }
        Self { plan }
    }

    /// For days: what is done again and again is done seldom.
    fn unhurried(mut self) -> Self {
        for scheduler in &mut self.plan.schedulers {
            let config = &mut scheduler.config;
            config.lease_ttl = MINUTE;
            config.trust = TrustWindow::Margin(Span::from_secs(10));
            config.cycle_every = Span::from_secs(20);
            config.heartbeat_every = Span::from_secs(30);
            config.live_within = Span::from_secs(90);
            config.poll_every = MINUTE;
            config.sweep_every = MINUTE;
        }
        for worker in &mut self.plan.workers {
            worker.config.heartbeat_every = MINUTE;
        }
        self
    }

    fn tenant(&self) -> TenantId {
        self.plan.tenants[0]
    }

    /// A job whose handler does this.
    fn job(&mut self, created: Creation, behaviour: BehaviourKind, definition: &str) -> (JobIndex, JobId) {
        let number = self.plan.jobs.len();
        let id = JobId::from_u128(0x1000 + number as u128);
        let behaviour = Behaviour {
            kind: behaviour,
            times: u32::MAX,
            least: Span::from_millis(10),
            most: Span::from_millis(50),
            calls: OutsideIndex(0),
        };
        let definition = Definition::Readable(Box::new(
            JobDefinition::parse(definition).expect("the cases' jobs are valid"),
        ));
        self.plan.jobs.push(JobSpec { id, tenant: 0, created, definition, behaviour });
        (JobIndex(number as u16), id)
    }

    fn act(&mut self, after: Span, what: Action) {
        let at = SimTime::ZERO.plus(after);
        self.plan.actions.push(OperatorAction {
            at,
            copies: 1,
            what,
            under: Authority::Owner,
            timing: Timing::Chance,
        });
    }

    fn strike(&mut self, kind: FaultKind, target: Target, after: Span, lasts: Span) {
        let at = SimTime::ZERO.plus(after);
        self.plan.faults.push(FaultSpec {
            kind,
            target,
            at,
            lasts,
            count: 0,
            chance_ppm: 0,
            amount: Span::ZERO,
        });
    }

    /// Runs it until this long after its beginning, and until all that is due has ended.
    fn run(mut self, lasts: Span) -> Outcome {
        self.plan.heal.at = SimTime::ZERO.plus(lasts);
        // As a file would be: what a case refers to is there.
        let plan = Plan::from_json(&self.plan.to_json()).expect("the case is a plan");
        let store = Shared(Rc::new(RefCell::new(ReferenceStore::new(Bugs::NONE))));
        let ended = World::new(&plan, Box::new(store.clone()), Bugs::NONE, Keep::Hash).run();
        assert_eq!(ended.violation, None);
        let rows = store.0.borrow().dump();
        Outcome { ended, rows }
    }
}

fn definition(name: &str, expr: &str, more: &str) -> String {
    format!(
        r#"{{"name":"{name}","handler":{{"name":"mail","version":1}},"payload":{{}},
            "schedule":{{"kind":"cron","expr":"{expr}","zone":"UTC"}}{more}}}"#
    )
}

#[test]
fn after_fourteen_hours_each_policy_runs_what_it_says_and_the_next_minute_is_on_time() {
    let mut case = Scenario::at("2026-03-02T00:00:10Z");
    let policies = [r#""fire_once""#, r#"{"catch_up":{"cap":10}}"#, r#""skip""#];
    let jobs = policies.map(|policy| {
        let more = format!(r#","misfire":{policy}"#);
        case.job(
            Creation::AtStart,
            BehaviourKind::Succeeds,
            &definition(policy.len().to_string().as_str(), "* * * * *", &more),
        )
        .1
    });
    // Down from 00:00:30 to 14:00:45: 840 fires.
    let down = HOUR.times(14).plus(Span::from_secs(15));
    case.strike(FaultKind::StoreUnavailable, Target::Store, Span::from_secs(20), down);
    let outcome = case.run(HOUR.times(14).plus(MINUTE.times(4)));

    let (first, last) = (time("2026-03-02T00:01:00Z"), time("2026-03-02T14:00:00Z"));
    for (job, run) in jobs.into_iter().zip([1_u64, 10, 0]) {
        let ran = outcome.fires(job, ExecutionState::Completed);
        let (late, after): (Vec<Timestamp>, Vec<Timestamp>) = ran.into_iter().partition(|fire| *fire <= last);
        let latest: Vec<Timestamp> = (0..run).rev().map(|back| last.minus(MINUTE.times(back))).collect();
        assert_eq!(late, latest, "the latest ones, and no others");
        let passed = outcome.passed_over(job, SkipReason::Misfire, (first, last), MINUTE);
        assert_eq!(passed.len() as u64, 840 - run, "what is passed over is in the ledger");
        assert_eq!(after[..2], [time("2026-03-02T14:01:00Z"), time("2026-03-02T14:02:00Z")]);
        for row in outcome.of_job(job).filter(|row| fire_of(row) > Some(last)) {
            assert!(row.materialised_at.since(row.due_at) < Span::from_secs(30), "on time: {row:?}");
        }
    }
}

#[test]
fn a_daily_job_that_is_edited_fires_next_by_its_new_hour_and_not_by_the_old_one() {
    let mut case = Scenario::at("2026-03-02T11:00:00Z").unhurried();
    let (index, job) =
        case.job(Creation::AtStart, BehaviourKind::Succeeds, &definition("daily", "0 23 * * *", ""));
    let to = JobDefinition::parse(&definition("daily", "0 5 * * *", "")).expect("a valid definition");
    case.act(HOUR, Action::Edit { job: index, to: Box::new(to) });
    let outcome = case.run(HOUR.times(18).plus(MINUTE.times(10)));
    assert_eq!(outcome.fires(job, ExecutionState::Completed), [time("2026-03-03T05:00:00Z")]);
    assert_eq!(outcome.of_job(job).count(), 1, "nothing at 12:00, and nothing at 23:00");
}

#[test]
fn what_a_pause_kept_from_firing_does_not_run_when_it_ends_and_is_in_the_ledger() {
    let mut case = Scenario::at("2026-03-02T00:30:00Z").unhurried();
    let (index, job) =
        case.job(Creation::AtStart, BehaviourKind::Succeeds, &definition("daily", "0 2 * * *", ""));
    case.act(MINUTE.times(30), Action::Pause { job: index });
    case.act(HOUR.times(7).plus(MINUTE.times(19)), Action::Resume { job: index });
    let outcome = case.run(DAY.plus(HOUR.times(2)));
    assert_eq!(outcome.fires(job, ExecutionState::Completed), [time("2026-03-03T02:00:00Z")]);
    let missed = time("2026-03-02T02:00:00Z");
    let passed = outcome.passed_over(job, SkipReason::Paused, (missed, missed), DAY);
    assert_eq!(passed, BTreeSet::from([missed]));
}

#[test]
fn a_leader_that_comes_back_after_five_days_of_another_enqueues_nothing_that_exists() {
    let mut case = Scenario::at("2026-03-02T00:10:00Z").unhurried();
    let (_, job) =
        case.job(Creation::AtStart, BehaviourKind::Succeeds, &definition("hourly", "0 * * * *", ""));
    // The first scheduler is alone for an hour, so it leads; it stands still for five days, and the other takes over.
    case.plan.schedulers[1].process.starts = SimTime::ZERO.plus(HOUR);
    let away = DAY.times(5);
    case.strike(FaultKind::Pause, Target::Node(NodeSlot::new(0)), HOUR.times(2), away);
    let outcome = case.run(away.plus(HOUR.times(4)));

    let leadership = outcome.rows.leases.iter().find(|row| row.resource == LeaseResource::Leadership);
    assert!(leadership.is_some_and(|row| row.token.as_i64() >= 2), "another has led: {leadership:?}");
    let fires = outcome.fires(job, ExecutionState::Completed);
    assert_eq!(
        fires[..124],
        every(HOUR, "2026-03-02T01:00:00Z", "2026-03-07T04:00:00Z")[..],
        "each fire once"
    );
    assert_eq!(outcome.of_job(job).count(), fires.len(), "and nothing else");
}

#[test]
fn what_is_pending_is_cancelled_with_its_job_and_a_new_one_of_the_name_backfills_nothing() {
    let mut case = Scenario::at("2026-03-02T00:00:30Z");
    let minutely = definition("report", "* * * * *", "");
    let (index, old) = case.job(Creation::AtStart, BehaviourKind::Succeeds, &minutely);
    let (again, new) = case.job(Creation::ByOperator, BehaviourKind::Succeeds, &minutely);
    // No message arrives, so five fires wait; then the job is deleted, and created again under its name.
    case.strike(FaultKind::BrokerOutage, Target::Broker, SECOND, MINUTE.times(7));
    case.act(MINUTE.times(5), Action::Delete { job: index });
    case.act(MINUTE.times(6), Action::Create { job: again });
    let outcome = case.run(MINUTE.times(9));

    assert_eq!(
        outcome.fires(old, ExecutionState::Cancelled),
        every(MINUTE, "2026-03-02T00:01:00Z", "2026-03-02T00:05:00Z")
    );
    assert_eq!(outcome.of_job(old).count(), 5, "and nothing after the delete");
    let fires: Vec<Timestamp> = outcome.of_job(new).filter_map(fire_of).collect();
    assert!(
        fires.iter().all(|fire| *fire >= time("2026-03-02T00:07:00Z")),
        "nothing is backfilled: {fires:?}"
    );
    assert!(!fires.is_empty(), "it fires from then on");
    assert!(outcome.rows.skipped_ranges.iter().all(|range| range.job != new));
}

#[test]
fn a_result_of_attempt_two_after_attempt_three_was_dead_lettered_reopens_nothing() {
    let mut case = Scenario::at("2026-03-02T00:00:00Z");
    let retry = r#","retry":{"max_attempts":3,"base_ms":10000,"cap_ms":10000},"attempt_timeout_ms":3600000"#;
    let (index, job) = case.job(
        Creation::AtStart,
        BehaviourKind::FailsRetryably,
        &definition("once", "30 0 0 2 3 *", retry),
    );
    let behaviour = &mut case.plan.jobs[index.index()].behaviour;
    (behaviour.least, behaviour.most) = (Span::from_secs(4), Span::from_secs(4));
    // One worker makes the first two attempts, and stands still in the second: a node that trusts its leases for ever,
    // so that its result reaches the store after all. The other one comes up meanwhile.
    // It renews nothing either, for then it would learn that its lease has passed on before it has a result; and with one
    // slot it is sent nothing while it stands still.
    case.plan.workers[0].config.trust = TrustWindow::Off;
    case.plan.workers[0].config.renew_every = HOUR;
    case.plan.workers[0].config.slots = 1;
    case.plan.workers[1].process.starts = SimTime::ZERO.plus(MINUTE);
    let first = NodeSlot::new(case.plan.schedulers.len());
    let second_attempt = case.second_attempt(Span::from_secs(4));
    case.strike(FaultKind::Pause, Target::Node(first), second_attempt.plus(SECOND), MINUTE.times(10));
    let outcome = case.run(MINUTE.times(14));

    let row = outcome.of_job(job).next().expect("it fired");
    assert_eq!((row.state, row.attempts), (ExecutionState::DeadLettered, 3));
    assert_eq!(outcome.rows.dead_letters.len(), 1);
    let refused: Vec<_> =
        outcome.rows.refusals.iter().filter(|it| it.action == RefusedAction::Finish).collect();
    assert_eq!(
        refused.len(),
        1,
        "the late result is refused, and that is on record: {:?}",
        outcome.rows.refusals
    );
}

impl Scenario {
    /// How long after the beginning the second attempt of the one execution starts, where nothing goes wrong.
    fn second_attempt(&self, runs_for: Span) -> Span {
        let calm = Self { plan: self.plan.clone() }.run(MINUTE.times(3));
        let second = calm.rows.attempts.iter().find(|row| row.attempt == 2);
        let ended = second.map(|row| row.at).expect("it is tried a second time");
        ended.since(self.plan.starts_at).minus(runs_for)
    }
}

#[test]
fn ten_thousand_dead_letters_are_replayed_once_each_however_often_that_is_asked_and_cut_off() {
    let mut case = Scenario::at("2026-03-02T00:00:00Z");
    let more = r#","retry":{"max_attempts":1},"bounds":{"max_runs":10000}"#;
    let job = case
        .job(Creation::AtStart, BehaviourKind::FailsForGood, &definition("broken", "* * * * * *", more))
        .1;
    // Pages of a thousand: the operator is gone after five of them, asks again, and again.
    let asked = Span::from_secs(10_030);
    for (after, pages) in [(Span::ZERO, 5), (SECOND, u32::MAX), (SECOND.times(2), u32::MAX)] {
        case.act(asked.plus(after), Action::ReplayAll { tenant: 0, page: 1_000, pages });
    }
    let tenant = case.tenant();
    let outcome = case.run(asked.plus(MINUTE));

    let originals = outcome.fires(job, ExecutionState::DeadLettered);
    assert_eq!(originals.len(), 10_000);
    let mut replays: BTreeMap<_, Vec<u32>> = BTreeMap::new();
    for row in outcome.of_job(job).filter(|row| row.tenant == tenant) {
        if let Occurrence::Replay { origin, number } = row.occurrence {
            replays.entry(origin).or_default().push(number);
        }
    }
    for row in outcome.of_job(job).filter(|row| fire_of(row).is_some()) {
        assert_eq!(replays.get(&row.id).map(Vec::as_slice), Some(&[1_u32][..]), "one replay of {}", row.id);
    }
}

#[test]
fn twenty_thousand_jobs_at_midnight_run_once_each_and_no_tick_of_another_is_dropped() {
    let mut case = Scenario::at("2026-03-01T23:59:00Z");
    let midnight: Vec<JobId> = (0..20_000)
        .map(|number| {
            let name = format!("daily {number}");
            case.job(Creation::AtStart, BehaviourKind::Succeeds, &definition(&name, "0 0 * * *", "")).1
        })
        .collect();
    let ticking =
        case.job(Creation::AtStart, BehaviourKind::Succeeds, &definition("ticking", "* * * * * *", "")).1;
    let outcome = case.run(MINUTE.times(4));

    let mut runs: BTreeMap<JobId, u32> = BTreeMap::new();
    for row in outcome.rows.executions.iter().filter(|row| row.job != ticking) {
        assert_eq!(
            (row.state, fire_of(row)),
            (ExecutionState::Completed, Some(time("2026-03-02T00:00:00Z")))
        );
        *runs.entry(row.job).or_default() += 1;
    }
    assert!(midnight.iter().all(|job| runs.get(job) == Some(&1)), "each once");
    let (first, last) = (time("2026-03-01T23:59:01Z"), time("2026-03-02T00:02:30Z"));
    let ticks: BTreeSet<Timestamp> = outcome.of_job(ticking).filter_map(fire_of).collect();
    let passed = outcome.passed_over(ticking, SkipReason::Misfire, (first, last), SECOND);
    for tick in every(SECOND, "2026-03-01T23:59:01Z", "2026-03-02T00:02:30Z") {
        assert!(ticks.contains(&tick) || passed.contains(&tick), "the tick of {tick} is in the ledger");
    }
    let lag = |row: &ExecutionRow| row.started_at.map(|at| at.since(row.due_at).as_millis());
    let worst = outcome.of_job(ticking).filter_map(lag).max();
    eprintln!(
        "beside 20,000 jobs at one instant the other job starts at most {worst:?} ms late; {} events",
        outcome.ended.events
    );
}
