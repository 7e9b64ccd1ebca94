//! Dead letters after their death.

use super::*;
use crate::execution::{DeadLetterReason, ExecutionState};
use crate::job::Payload;
use crate::replay::{NotReplayable, execution_of, own_key};
use crate::store::command::{
    DeadLetterFilter, DeleteJob, OperatorRequest, PurgeDeadLetter, ReplayDeadLetter, ReplayDeadLetters,
    ReplayKey, ReplayNumber, TriggerJob,
};
use crate::store::reply::{PageReplay, PurgeReply, ReplayPage, ReplayReply};
use crate::store::row::DeadLetterRow;

const READABLE: &str =
    r#"{"schema":1,"definition":{"name":"a","handler":{"name":"noop"},"schedule":{"kind":"manual"}}}"#;
const OTHER_TENANT: TenantId = TenantId::from_u128(0x7f);
const OTHER_JOB: JobId = JobId::from_u128(0x10c);
const API: NodeId = NodeId::from_u128(0x71);

fn manual(job: JobId, key: &str) -> ExecutionId {
    Occurrence::Manual { key: key.into() }.execution_id(job)
}

fn replay(origin: ExecutionId, number: u32) -> ReplayDeadLetter {
    let number = ReplayNumber::Given(number);
    ReplayDeadLetter { tenant: TENANT, origin, number, key: ReplayKey::Origin, node: API }
}

fn next(origin: ExecutionId, request: &str, fingerprint: u128) -> ReplayDeadLetter {
    let fingerprint = uuid::Uuid::from_u128(fingerprint);
    let asked = OperatorRequest { request: request.into(), fingerprint };
    ReplayDeadLetter { number: ReplayNumber::Next(asked), ..replay(origin, 0) }
}

fn page(limit: u32) -> ReplayDeadLetters {
    ReplayDeadLetters {
        tenant: TENANT,
        filter: DeadLetterFilter::default(),
        after: None,
        limit,
        key: ReplayKey::Origin,
        node: API,
    }
}

impl World {
    /// With a job that can be read, triggered and dead-lettered once per key, a second apart.
    fn with_dead_letters(keys: &[&str]) -> (Self, Vec<ExecutionId>) {
        let mut world = Self::new();
        let job = CreateJob { definition: definition(READABLE), ..world.new_job(OTHER_JOB) };
        world.apply(Command::CreateJob(job));
        let dead = keys.iter().map(|key| world.dead_letter(OTHER_JOB, key)).collect();
        (world, dead)
    }

    fn dead_letter(&mut self, job: JobId, key: &str) -> ExecutionId {
        let id = manual(job, key);
        self.pass(secs(1));
        self.apply(Command::TriggerJob(TriggerJob {
            tenant: TENANT,
            job,
            execution: id,
            key: key.into(),
            payload: Some(Payload::from_json("{\"n\":1}").expect("the tests send JSON")),
            node: API,
        }));
        self.run_to_death(id);
        id
    }

    /// Runs an execution that is pending until it is dead-lettered.
    fn run_to_death(&mut self, id: ExecutionId) -> RunId {
        let nonce = self.nonce();
        let item = AcquireExecution { execution: id, nonce, published_at: self.now, held: Span::ZERO };
        let ask = AcquireExecutions { node: WORKER, ttl: TTL, items: vec![item] };
        let AcquireReply::Granted(grant) = self.acquire(&ask) else { panic!("it is pending") };
        let run = RunId { execution: id, token: grant.token };
        let outcome = RunOutcome::DeadLettered { reason: DeadLetterReason::NonRetryable, error: "no".into() };
        let reply = self.finish(WORKER, run, outcome);
        assert_eq!(reply, FinishReply::Applied { state: ExecutionState::DeadLettered });
        run
    }

    fn replay(&mut self, ask: ReplayDeadLetter) -> ReplayReply {
        match self.apply(Command::ReplayDeadLetter(ask)) {
            Reply::DeadLetterReplayed(reply) => reply,
            other => panic!("another reply: {other:?}"),
        }
    }

    fn replay_page(&mut self, ask: ReplayDeadLetters) -> ReplayPage {
        match self.apply(Command::ReplayDeadLetters(ask)) {
            Reply::DeadLettersReplayed(page) => page,
            other => panic!("another reply: {other:?}"),
        }
    }

    fn purge(&mut self, execution: ExecutionId) -> PurgeReply {
        match self.apply(Command::PurgeDeadLetter(PurgeDeadLetter { tenant: TENANT, execution })) {
            Reply::DeadLetterPurged(reply) => reply,
            other => panic!("another reply: {other:?}"),
        }
    }

    fn row(&self, id: ExecutionId) -> &ExecutionRow {
        self.store.tables().executions().get(&id).expect("it was made")
    }

    fn letter(&self, id: ExecutionId) -> &DeadLetterRow {
        self.store.tables().dead_letters().get(&id).expect("it was dead-lettered")
    }
}

#[test]
fn a_replay_is_a_new_execution_of_the_same_with_the_same_key() {
    let (mut world, dead) = World::with_dead_letters(&["a"]);
    let before = world.row(dead[0]).clone();
    world.pass(secs(5));
    let made = execution_of(OTHER_JOB, dead[0], 1);
    assert_eq!(world.replay(replay(dead[0], 1)), ReplayReply::Created { execution: made, number: 1 });
    let row = world.row(made).clone();
    assert_eq!(row.occurrence, Occurrence::Replay { origin: dead[0], number: 1 });
    assert_eq!(
        (row.state, row.key.clone(), row.payload.clone(), row.job_version, row.due_at),
        (ExecutionState::Pending, before.key.clone(), before.payload.clone(), before.job_version, world.now)
    );
    assert_eq!((row.token, row.attempts), (before.token, 0));
    assert_eq!(world.row(dead[0]), &before, "what has ended stays as it ended");
    assert!(world.outbox().contains(&OutboxId { execution: made, dispatch_no: DispatchNo(1) }));
    assert_eq!(world.letter(dead[0]).replays, 1);
    assert!(world.run_to_death(made).token > before.token, "its tokens lie above its origin's");
}

#[test]
fn the_same_replay_asked_for_again_is_the_same_replay() {
    let (mut world, dead) = World::with_dead_letters(&["a"]);
    let made = execution_of(OTHER_JOB, dead[0], 1);
    world.replay(replay(dead[0], 1));
    world.pass(secs(1));
    let again = world.changes_nothing(Command::ReplayDeadLetter(replay(dead[0], 1)));
    let state = ExecutionState::Pending;
    let repeated = ReplayReply::Repeated { execution: made, number: 1, state };
    assert_eq!(again, Reply::DeadLetterReplayed(repeated));
    world.purge(dead[0]);
    assert_eq!(world.replay(replay(dead[0], 1)), repeated, "also when it could not be made any more");
    let own = ReplayDeadLetter { key: ReplayKey::Own, ..replay(dead[0], 1) };
    assert_eq!(world.replay(own), ReplayReply::OtherKey { execution: made });
}

#[test]
fn numbers_have_no_gaps() {
    let (mut world, dead) = World::with_dead_letters(&["a"]);
    for number in [0, 2, u32::MAX] {
        let reply = world.changes_nothing(Command::ReplayDeadLetter(replay(dead[0], number)));
        assert_eq!(reply, Reply::DeadLetterReplayed(ReplayReply::WrongNumber { next: 1 }));
    }
    world.replay(replay(dead[0], 1));
    assert_eq!(world.replay(replay(dead[0], 3)), ReplayReply::WrongNumber { next: 2 });
}

#[test]
fn the_next_replay_is_remembered_under_its_request() {
    let (mut world, dead) = World::with_dead_letters(&["a", "b"]);
    let [first, second] = [1, 2].map(|number| execution_of(OTHER_JOB, dead[0], number));
    assert_eq!(world.replay(next(dead[0], "r", 1)), ReplayReply::Created { execution: first, number: 1 });
    let state = ExecutionState::Pending;
    let again = world.changes_nothing(Command::ReplayDeadLetter(next(dead[0], "r", 1)));
    let repeated = ReplayReply::Repeated { execution: first, number: 1, state };
    assert_eq!(again, Reply::DeadLetterReplayed(repeated));
    assert_eq!(world.replay(next(dead[0], "r", 2)), ReplayReply::RequestReused);
    assert_eq!(world.replay(next(dead[0], "s", 1)), ReplayReply::Created { execution: second, number: 2 });
}

#[test]
fn a_later_replay_begins_above_the_tokens_of_the_earlier_ones() {
    let (mut world, dead) = World::with_dead_letters(&["a"]);
    let origin = world.row(dead[0]).token;
    world.replay(replay(dead[0], 1));
    let first = world.run_to_death(execution_of(OTHER_JOB, dead[0], 1));
    world.replay(replay(dead[0], 2));
    let second = world.row(execution_of(OTHER_JOB, dead[0], 2)).token;
    assert!(first.token > origin && second >= first.token);
}

#[test]
fn a_key_of_its_own_is_like_no_other() {
    let (mut world, dead) = World::with_dead_letters(&["a"]);
    world.replay(ReplayDeadLetter { key: ReplayKey::Own, ..replay(dead[0], 1) });
    let row = world.row(execution_of(OTHER_JOB, dead[0], 1));
    assert_eq!(row.key, own_key(OTHER_JOB, dead[0], 1));
    assert_ne!(row.key, world.row(dead[0]).key);
}

#[test]
fn what_cannot_be_replayed_says_why() {
    let (mut world, dead) = World::with_dead_letters(&["a", "b"]);
    let unreadable = world.dead_letter(JOB, "c");
    let refused = ReplayReply::Refused;
    let why = NotReplayable::UnreadableDefinition;
    assert_eq!(world.replay(replay(unreadable, 1)), refused(why));
    assert_eq!(world.purge(dead[0]), PurgeReply::Purged);
    assert_eq!(world.replay(replay(dead[0], 1)), refused(NotReplayable::Purged));
    let ask = DeleteJob { tenant: TENANT, job: OTHER_JOB };
    world.apply(Command::DeleteJob(ask));
    assert_eq!(world.replay(replay(dead[1], 1)), refused(NotReplayable::JobDeleted));
    let foreign = ReplayDeadLetter { tenant: OTHER_TENANT, ..replay(dead[1], 1) };
    assert_eq!(world.replay(foreign), ReplayReply::NotFound);
    assert_eq!(world.replay(replay(ExecutionId::from_u128(9), 1)), ReplayReply::NotFound);
    let (mut world, run) = World::with_run();
    let state = ExecutionState::Running;
    assert_eq!(world.replay(replay(run.execution, 1)), ReplayReply::NotDeadLettered { state });
}

#[test]
fn a_purge_leaves_a_tombstone_and_lets_replays_go_on() {
    let (mut world, dead) = World::with_dead_letters(&["a"]);
    world.replay(replay(dead[0], 1));
    world.pass(secs(3));
    assert_eq!(world.purge(dead[0]), PurgeReply::Purged);
    let letter = world.letter(dead[0]);
    assert_eq!((letter.purged_at, letter.error.clone(), letter.replays), (Some(world.now), None, 1));
    assert_eq!(world.row(execution_of(OTHER_JOB, dead[0], 1)).state, ExecutionState::Pending);
    world.pass(secs(3));
    let ask = PurgeDeadLetter { tenant: TENANT, execution: dead[0] };
    let again = world.changes_nothing(Command::PurgeDeadLetter(ask));
    assert_eq!(again, Reply::DeadLetterPurged(PurgeReply::Repeated));
    let foreign = PurgeDeadLetter { tenant: OTHER_TENANT, execution: dead[0] };
    let foreign = world.changes_nothing(Command::PurgeDeadLetter(foreign));
    assert_eq!(foreign, Reply::DeadLetterPurged(PurgeReply::NotFound));
}

#[test]
fn pages_replay_each_once_however_often_they_are_repeated() {
    let (mut world, dead) = World::with_dead_letters(&["a", "b", "c", "d", "e"]);
    let first = world.replay_page(page(2));
    assert_eq!(first.letters.iter().map(|(origin, _)| *origin).collect::<Vec<_>>(), dead[..2]);
    assert_eq!(first.next, Some((world.letter(dead[1]).at, dead[1])));
    // The connection was lost: begun anew from the start, and once more from where the first page ended.
    world.replay_page(page(2));
    world.replay_page(ReplayDeadLetters { after: first.next, ..page(2) });
    let last = world.replay_page(page(2));
    assert_eq!(last, ReplayPage { letters: Vec::new(), next: None });
    assert!(dead.iter().all(|id| world.letter(*id).replays == 1));
    let replays = world.store.tables().executions().iter();
    let replays = replays.filter(|row| matches!(row.occurrence, Occurrence::Replay { .. })).count();
    assert_eq!(replays, 5);
}

#[test]
fn a_page_takes_what_matches_and_names_what_it_passes_over() {
    let (mut world, dead) = World::with_dead_letters(&["a", "b", "c"]);
    let unreadable = world.dead_letter(JOB, "d");
    world.purge(dead[0]);
    let to = Some(world.letter(dead[2]).at);
    let filter = DeadLetterFilter { to, ..DeadLetterFilter::default() };
    let before = world.replay_page(ReplayDeadLetters { filter, ..page(10) });
    let execution = execution_of(OTHER_JOB, dead[1], 1);
    assert_eq!(before.letters, [(dead[1], PageReplay::Created { execution })]);
    let filter = DeadLetterFilter { job: Some(JOB), ..DeadLetterFilter::default() };
    let passed_over = world.replay_page(ReplayDeadLetters { filter, ..page(10) });
    let why = PageReplay::Refused(NotReplayable::UnreadableDefinition);
    assert_eq!(passed_over.letters, [(unreadable, why)]);
    let filter = DeadLetterFilter { reason: Some(DeadLetterReason::TooOld), ..DeadLetterFilter::default() };
    assert_eq!(world.replay_page(ReplayDeadLetters { filter, ..page(10) }).letters, []);
    let foreign = ReplayDeadLetters { tenant: OTHER_TENANT, ..page(10) };
    assert_eq!(world.replay_page(foreign).letters, []);
}

#[test]
fn a_late_report_reopens_no_dead_letter() {
    let (mut world, dead) = World::with_dead_letters(&["a"]);
    let current = world.row(dead[0]).token;
    let earlier = RunId { execution: dead[0], token: FencingToken::NEVER };
    let before = world.row(dead[0]).clone();
    let reply = world.finish(OTHER_WORKER, earlier, RunOutcome::Completed);
    assert_eq!(reply, FinishReply::Refused { current, state: ExecutionState::DeadLettered });
    assert_eq!(world.refusals().len(), 1);
    assert_eq!(world.row(dead[0]), &before);
}
