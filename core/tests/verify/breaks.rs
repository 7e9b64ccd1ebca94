//! Ways to break the rows, one at a time: which check is to find it, what it is, and how.

use fencepost_core::execution::{AttemptEnd, CancelState, ExecutionState, SkipReason, WaitReason};
use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{DispatchNo, ExecutionId, JobVersion, TenantId};
use fencepost_core::store::row::{JobState, RefusedAction};
use fencepost_core::time::Span;
use fencepost_core::verify::{Check, LedgerItem, Orphan, OrphanKind, ReplayFacts};

use super::rows::{
    CANCELLED, COMPLETED, DEAD, OF_DELETED, PENDING, REPLAY, RETRYING, RUNNING, Rows, at, attempt,
    definition, fire, late_fire, orphan, outbox, token,
};

use Check as C;

type Break = (Check, &'static str, fn(&mut Rows));

pub(crate) const BREAKS: &[Break] = &[
    (C::UniqueOccurrence, "an id that does not follow from its occurrence", |rows| {
        rows.row(COMPLETED).id = ExecutionId::from_u128(7);
    }),
    (C::UniqueOccurrence, "a key that is another's", |rows| rows.row(COMPLETED).key = "another".into()),
    (C::UniqueOccurrence, "a replay with a key of nobody's", |rows| rows.row(REPLAY).key = "another".into()),
    (C::UniqueOccurrence, "two executions of one fire", |rows| {
        let LedgerItem::Fire(mut twin) = rows.ledger()[1].clone() else { panic!("it is a fire") };
        twin.id = ExecutionId::from_u128(7);
        rows.ledger().insert(2, LedgerItem::Fire(twin));
        rows.job().runs += 1;
    }),
    (C::UniqueOccurrence, "an execution inside a range", |rows| rows.range().through = at("08:14:00")),
    (C::NoPhantomFire, "a fire between two fires", |rows| {
        rows.ledger().insert(2, fire("08:02:30", 1));
        rows.job().runs += 1;
    }),
    (C::NoPhantomFire, "a fire before the job was created", |rows| {
        rows.ledger().insert(0, fire("07:59:00", 1));
        rows.job().runs += 1;
    }),
    (C::NoPhantomFire, "a fire that was made before it was due", |rows| {
        rows.fire(1).materialised_at = at("08:01:59");
    }),
    (C::NoPhantomFire, "a fire that was due before it was one", |rows| rows.fire(1).due_at = at("08:01:59")),
    (C::NoPhantomFire, "two missed fires where one makes up for all", |rows| {
        rows.range().through = at("08:12:00");
        rows.ledger().insert(4, late_fire("08:13:00", at("08:14:40")));
        rows.job().runs += 1;
    }),
    (C::NoPhantomFire, "a missed fire where those are skipped", |rows| {
        rows.define(&definition(r#"{"kind":"cron","expr":"* * * * *"}"#, r#","misfire":"skip""#));
    }),
    (C::NoPhantomFire, "a fire of a version that was in force no more", |rows| {
        rows.edit(&definition(r#"{"kind":"cron","expr":"* * * * *"}"#, ""), at("08:14:50"));
    }),
    (C::NoLostFire, "a fire that is nowhere", |rows| {
        rows.ledger().remove(1);
        rows.job().runs -= 1;
    }),
    (C::NoLostFire, "a range that ends too early", |rows| rows.range().through = at("08:12:00")),
    (C::NoLostFire, "a range that begins at no fire", |rows| rows.range().from = at("08:03:30")),
    (C::NoLostFire, "a range that ends at no fire", |rows| rows.range().through = at("08:13:30")),
    (C::NoLostFire, "the last fire up to the watermark", |rows| {
        rows.ledger().pop();
        rows.job().runs -= 1;
    }),
    (C::NoLostFire, "a watermark that lies behind the ledger", |rows| {
        let job = rows.job();
        (job.recorded_through, job.next_fire_time) = (at("08:14:00"), Some(at("08:15:00")));
    }),
    (C::NoLostFire, "a next fire that is not the next", |rows| {
        rows.job().next_fire_time = Some(at("08:17:00"));
    }),
    (C::NoLostFire, "no next fire where there is one", |rows| rows.job().next_fire_time = None),
    (C::NoLostFire, "a range that was not late", |rows| rows.range().decided_at = at("08:13:20")),
    (C::NoLostFire, "a backlog of which nothing was run", |rows| {
        rows.ledger().truncate(4);
        let range = rows.range();
        (range.through, range.decided_at) = (at("08:15:00"), at("08:15:40"));
        rows.job().runs -= 2;
    }),
    (C::NoLostFire, "a backlog of which too little was run", |rows| {
        let catch_up = r#","misfire":{"catch_up":{"cap":3}}"#;
        rows.define(&definition(r#"{"kind":"cron","expr":"* * * * *"}"#, catch_up));
    }),
    (C::NoLostFire, "a range of a version that is not there", |rows| {
        rows.range().job_version = JobVersion(9);
    }),
    (C::TokenMonotone, "a token of an execution that nobody leased", |rows| {
        rows.row(PENDING).token = token(3)
    }),
    (C::TokenMonotone, "a token that jumped", |rows| rows.row(COMPLETED).token = token(9)),
    (C::TokenMonotone, "a run under a token that was none", |rows| {
        rows.executions[COMPLETED].attempts[0].token = FencingToken::NEVER;
    }),
    (C::TokenMonotone, "a replay below its origin's token", |rows| rows.row(REPLAY).token = token(1)),
    (C::TokenMonotone, "a decision under a token above its lease", |rows| {
        rows.fire(5).made_under = token(9);
    }),
    (C::TokenMonotone, "a decision under a token that had passed", |rows| {
        rows.fire(5).made_under = token(2);
    }),
    (C::TokenMonotone, "a lease that is held under no token", |rows| {
        rows.refusals.clear();
        rows.leases[128].token = FencingToken::NEVER;
    }),
    (C::TerminalAbsorbs, "an end without a stamp", |rows| rows.row(CANCELLED).finished_at = None),
    (C::TerminalAbsorbs, "a stamp without an end", |rows| {
        rows.row(PENDING).finished_at = Some(at("08:15:05"));
    }),
    (C::TerminalAbsorbs, "a lease after the end", |rows| rows.row(COMPLETED).expires_at = at("08:02:00")),
    (C::TerminalAbsorbs, "a wait after the end", |rows| {
        rows.row(COMPLETED).next_try_at = Some(at("08:02:00"))
    }),
    (C::AtomicDispatch, "a dispatch after the end", |rows| {
        let row = outbox(rows.row(CANCELLED), at("08:03:30"));
        rows.executions[CANCELLED].outbox.push(row);
    }),
    (C::TerminalAbsorbs, "a run that ended after the end", |rows| {
        rows.executions[DEAD].attempts[1].at = at("08:02:30");
    }),
    (C::LegalTransition, "an end that has an unfinished run's record", |rows| {
        let row = attempt(rows.row(COMPLETED), AttemptEnd::Released, at("08:01:06"));
        rows.executions[COMPLETED].attempts.push(row);
    }),
    (C::LegalTransition, "a run after one that ended for good", |rows| {
        rows.executions[COMPLETED].attempts[0].end = AttemptEnd::FailedForGood;
    }),
    (C::LegalTransition, "a completion without a lease", |rows| {
        rows.row(CANCELLED).state = ExecutionState::Completed;
        let row = rows.row(CANCELLED);
        let then = at("08:03:10");
        (row.published_at, row.received_at, row.started_at) = (Some(then), Some(then), Some(then));
        (row.leased_at, row.token) = (Some(then), token(1));
        let released = attempt(row, AttemptEnd::Released, then);
        rows.executions[CANCELLED].attempts.push(released);
    }),
    (C::LegalTransition, "a retry that waits for no time", |rows| rows.row(RETRYING).next_try_at = None),
    (C::LegalTransition, "a run that nobody holds", |rows| rows.row(RUNNING).owner = None),
    (C::LegalTransition, "a reason for skipping what ran", |rows| {
        rows.row(COMPLETED).skip_reason = Some(SkipReason::Misfire);
    }),
    (C::LegalTransition, "a skip without a reason", |rows| {
        rows.row(CANCELLED).state = ExecutionState::Skipped;
    }),
    (C::LegalTransition, "a dead letter of a job that keeps none", |rows| {
        let keeps_none = definition(r#"{"kind":"cron","expr":"* * * * *"}"#, r#","dead_letter":"off""#);
        rows.executions[DEAD].definition = Some(keeps_none);
    }),
    (C::AtomicDispatch, "a pending execution that nobody dispatched", |rows| {
        rows.row(PENDING).dispatched_at = None;
    }),
    (C::AtomicDispatch, "a reason for waiting without a time", |rows| {
        rows.row(PENDING).waiting = Some(WaitReason::NoRoute);
    }),
    (C::AtomicDispatch, "an outbox row of a dispatch that was not", |rows| {
        rows.executions[PENDING].outbox[0].dispatch_no = DispatchNo(9);
    }),
    (C::AtomicDispatch, "an outbox row of nothing", |rows| rows.orphans.push(orphan())),
    (C::AttemptBounds, "an attempt that is not on record", |rows| rows.row(COMPLETED).attempts = 2),
    (C::AttemptBounds, "a loss that is not on record", |rows| rows.row(RETRYING).lost_starts = 3),
    (C::AttemptBounds, "an attempt under another's number", |rows| {
        rows.executions[COMPLETED].attempts[0].attempt = 4;
    }),
    (C::AttemptBounds, "more attempts than the version allows", |rows| {
        let once = definition(r#"{"kind":"manual"}"#, "");
        let once = once.text().replace(r#""max_attempts":2"#, r#""max_attempts":1"#);
        let once = fencepost_core::job::StoredDefinition::from_text(once.into());
        rows.executions[DEAD].definition = Some(once.into());
    }),
    (C::AttemptBounds, "a deadline that its version does not set", |rows| {
        rows.row(PENDING).deadline_at = Some(at("08:59:00"));
    }),
    (C::AttemptBounds, "a lease that was granted past the deadline", |rows| {
        let bounded = r#","deadline_ms":1000,"attempt_timeout_ms":1000"#;
        let bounded = definition(r#"{"kind":"cron","expr":"* * * * *"}"#, bounded);
        rows.executions[COMPLETED].definition = Some(bounded);
        let row = rows.row(COMPLETED);
        row.deadline_at = Some(row.due_at.plus(fencepost_core::time::Span::from_secs(1)));
    }),
    (C::DeadLetterOnce, "a dead letter without a record", |rows| rows.executions[DEAD].dead_letter = None),
    (C::DeadLetterOnce, "a record of what is not dead", |rows| {
        let letter = rows.executions[DEAD].dead_letter.clone();
        rows.executions[COMPLETED].dead_letter = letter;
    }),
    (C::DeadLetterOnce, "a record that counts otherwise", |rows| {
        rows.executions[DEAD].dead_letter.as_mut().expect("it has one").attempts = 1;
    }),
    (C::DeadLetterOnce, "a replay that is not counted", |rows| {
        let late = ReplayFacts { number: 2, materialised_at: at("08:06:00") };
        rows.executions[DEAD].replays.push(late);
    }),
    (C::DeadLetterOnce, "a replay that is not there", |rows| rows.executions[DEAD].replays.clear()),
    (C::DeadLetterOnce, "a replay of what was purged", |rows| {
        let letter = rows.executions[DEAD].dead_letter.as_mut().expect("it has one");
        (letter.purged_at, letter.error) = (Some(at("08:04:00")), None);
    }),
    (C::DeadLetterOnce, "a record of nothing", |rows| {
        rows.orphans.push(Orphan { kind: OrphanKind::DeadLetter, ..orphan() });
    }),
    (C::PausedIsSilent, "a run that began after the delete", |rows| {
        let row = rows.row(OF_DELETED);
        (row.leased_at, row.started_at) = (Some(at("08:01:40")), Some(at("08:01:40")));
    }),
    (C::PausedIsSilent, "a run that was not asked to stop", |rows| {
        rows.row(OF_DELETED).cancel = CancelState::None;
    }),
    (C::PausedIsSilent, "an execution that was made after the delete", |rows| {
        rows.executions[PENDING].job = rows.executions[OF_DELETED].job.clone();
        rows.executions[PENDING].job.as_mut().expect("it has one").partition = rows.row(PENDING).partition;
    }),
    (C::PausedIsSilent, "a next fire of a deleted job", |rows| {
        rows.jobs[1].0.next_fire_time = Some(at("08:02:00"));
    }),
    (C::Conservation, "an execution without its job", |rows| rows.executions[PENDING].job = None),
    (C::Conservation, "an execution without its version", |rows| rows.executions[PENDING].definition = None),
    (C::Conservation, "an execution of another tenant", |rows| {
        rows.row(CANCELLED).tenant = TenantId::from_u128(0xa2);
    }),
    (C::Conservation, "a replay of nothing", |rows| {
        rows.executions[REPLAY].origin = None;
    }),
    (C::Conservation, "a run that is counted and not there", |rows| rows.job().runs += 1),
    (C::Conservation, "a version that is not there", |rows| rows.job().version = JobVersion(2)),
    (C::Conservation, "a definition that is not its version's", |rows| {
        rows.job().definition = definition(r#"{"kind":"manual"}"#, "");
    }),
    (C::Conservation, "a deleted job that went on under its version", |rows| {
        rows.jobs[1].0.version = JobVersion(1);
        rows.jobs[1].0.state = JobState::Deleted;
    }),
    (C::Conservation, "a lease row that is gone", |rows| {
        rows.leases.retain(|lease| lease.resource.number() != 100);
    }),
    (C::Conservation, "an end of a run of nothing", |rows| {
        rows.orphans.push(Orphan { kind: OrphanKind::Attempt, ..orphan() });
    }),
    (C::LedgerOfRefusals, "a refusal that never happened", |rows| rows.refusals[0].count = 0),
    (C::LedgerOfRefusals, "a refusal under a token that nobody had", |rows| {
        rows.refusals[0].token = token(9)
    }),
    (C::LedgerOfRefusals, "a refusal of what leadership is not asked for", |rows| {
        rows.refusals[0].action = RefusedAction::Promote;
    }),
    (C::LedgerOfRefusals, "a refusal that names a token above the execution's", |rows| {
        rows.executions[COMPLETED].refusals[0].current = token(3);
    }),
    (C::LagAddsUp, "a message that was published before its execution was made", |rows| {
        rows.row(COMPLETED).published_at = Some(at("08:01:00"));
    }),
    (C::LagAddsUp, "a completion without a start", |rows| rows.row(COMPLETED).started_at = None),
    (C::LagAddsUp, "a lease without a receipt", |rows| rows.row(RUNNING).received_at = None),
    (C::LagAddsUp, "an end before the start", |rows| {
        let row = rows.row(COMPLETED);
        row.started_at = row.finished_at.map(|end| end.plus(Span::from_secs(1)));
    }),
];
