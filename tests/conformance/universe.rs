//! The small universe that commands are drawn from, and the draws that several families share.

use std::sync::Arc;

use fencepost_core::execution::{ExecutionState, WaitReason};
use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{EffectId, ExecutionId, JobId, NodeId, TenantId};
use fencepost_core::job::StoredDefinition;
use fencepost_core::lease::{HeldLease, LeaseResource, RunId};
use fencepost_core::partition::PartitionId;
use fencepost_core::store::command::OutboxId;
use fencepost_core::store::reference::ReferenceStore;
use fencepost_core::store::row::{ExecutionRow, JobRow};
use fencepost_core::time::{Span, Timestamp};
use fencepost_sim::rng::Stream;

/// A chance in percent, as a stream takes it.
pub(crate) const fn percent(of_hundred: u32) -> u32 {
    of_hundred * 10_000
}

/// Where virtual time begins.
pub(crate) const START: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

/// What a command is drawn from: randomness, and the state that it is to meet.
pub(crate) struct Draw<'a> {
    pub(crate) stream: &'a mut Stream,
    pub(crate) store: &'a ReferenceStore,
    pub(crate) now: Timestamp,
}

/// Three nodes.
pub(crate) fn nodes() -> [NodeId; 3] {
    [0xa, 0xb, 0xc].map(NodeId::from_u128)
}

/// Two tenants, and one that is never made.
pub(crate) fn tenants() -> [TenantId; 3] {
    [0x71, 0x72, 0x73].map(TenantId::from_u128)
}

/// Six jobs.
pub(crate) fn jobs() -> [JobId; 6] {
    [1, 2, 3, 4, 5, 6]
        .map(|raw: u128| JobId::from_u128(raw.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)))
}

/// Definitions: five that can be read, three of which limit overlap, two of which pause their job after failures and two
/// of which have a deadline, and one that cannot.
pub(crate) fn definitions() -> [Arc<StoredDefinition>; 6] {
    [
        r#"{"schema":1,"definition":{"name":"a","handler":{"name":"noop"},"schedule":{"kind":"manual"},"concurrency_key":"k","pause_after_failures":2,"priority":"low"}}"#,
        r#"{"schema":1,"definition":{"name":"é","handler":{"name":"http","version":2},"payload":{"n":1.50},"schedule":{"kind":"manual"}}}"#,
        r#"{"schema":1,"definition":{"name":"s","handler":{"name":"noop"},"schedule":{"kind":"manual"},"overlap":"skip","pause_after_failures":1,"attempt_timeout_ms":1000,"deadline_ms":60000,"priority":"high"}}"#,
        r#"{"schema":1,"definition":{"name":"b","handler":{"name":"noop"},"schedule":{"kind":"manual"},"overlap":"buffer_one","attempt_timeout_ms":1000,"deadline_ms":5000,"dead_letter":"off"}}"#,
        r#"{"schema":1,"definition":{"name":"c","handler":{"name":"noop"},"schedule":{"kind":"manual"},"overlap":"cancel_running","concurrency_key":"k"}}"#,
        r#"{"schema":99,"definition":{"what":"is this"}}"#,
    ]
    .map(|text| Arc::new(StoredDefinition::from_text(text.into())))
}

/// One that names a calendar, with the days of its first version.
pub(crate) fn with_calendar() -> Arc<StoredDefinition> {
    let text = r#"{"schema":1,"definition":{"name":"h","handler":{"name":"noop"},"schedule":{"kind":"one_shot","at":"2030-01-01T00:00:00Z"},"exclude":[{"calendar":"holidays","version":1,"days":[]}]}}"#;
    Arc::new(StoredDefinition::from_text(text.into()))
}

impl Draw<'_> {
    pub(crate) fn chance(&mut self, of_hundred: u32) -> bool {
        self.stream.chance(percent(of_hundred))
    }

    pub(crate) fn node(&mut self) -> NodeId {
        *self.stream.pick(&nodes())
    }

    /// Mostly one of the two that are made.
    pub(crate) fn tenant(&mut self) -> TenantId {
        let known = if self.chance(95) { 2 } else { 3 };
        *self.stream.pick(&tenants()[..known])
    }

    pub(crate) fn job(&mut self) -> JobId {
        *self.stream.pick(&jobs())
    }

    /// Few enough that they are met again.
    pub(crate) fn nonce(&mut self) -> EffectId {
        EffectId(if self.chance(5) { u64::MAX } else { self.stream.between(1, 40) })
    }

    pub(crate) fn ttl(&mut self) -> Span {
        if self.chance(10) {
            return Span::from_secs(120);
        }
        self.stream.long_tailed(Span::from_millis(500), Span::from_secs(120))
    }

    pub(crate) fn delay(&mut self) -> Span {
        if self.chance(10) {
            return Span::ZERO;
        }
        self.stream.long_tailed(Span::from_millis(1), Span::from_secs(600))
    }

    /// By how much a fire is due after it happens: mostly not at all.
    pub(crate) fn flex(&mut self) -> Span {
        if self.chance(70) { Span::ZERO } else { Span::from_millis(self.stream.between(1, 3_000)) }
    }

    pub(crate) fn limit(&mut self) -> u32 {
        self.stream.between(0, 6) as u32
    }

    pub(crate) fn items(&mut self) -> usize {
        self.stream.between(1, 4) as usize
    }

    /// A time near now, mostly in the past.
    pub(crate) fn about_now(&mut self) -> Timestamp {
        let span = self.stream.long_tailed(Span::from_millis(1), Span::from_secs(60));
        if self.chance(85) { self.now.minus(span) } else { self.now.plus(span) }
    }

    /// One that a worker or a scheduler gives. What waits for its job's slot or for a limit is for the acquire to say,
    /// which has the job and the tenant locked.
    pub(crate) fn wait_reason(&mut self) -> WaitReason {
        let given = WaitReason::ALL.iter().copied().filter(|reason| {
            !matches!(reason, WaitReason::Buffered | WaitReason::TenantLimit | WaitReason::KeyLimit)
        });
        *self.stream.pick(&given.collect::<Vec<_>>())
    }

    /// A token near the current one, mostly it.
    pub(crate) fn token(&mut self, current: FencingToken) -> FencingToken {
        match self.stream.between(0, 99) {
            0..=84 => current,
            85..=94 => FencingToken::from_i64((current.as_i64() - 1).max(0)),
            _ => FencingToken::from_i64(current.as_i64() + 1),
        }
    }

    /// The partitions of the universe's jobs.
    pub(crate) fn partitions(&mut self) -> Vec<PartitionId> {
        let mut partitions: Vec<PartitionId> = jobs().into_iter().map(PartitionId::of).collect();
        if self.chance(30) {
            let dropped = self.stream.below(partitions.len() as u64) as usize;
            partitions.remove(dropped);
        }
        partitions.sort_unstable();
        partitions.dedup();
        partitions
    }

    /// Whoever holds something, mostly; so that guarded commands mostly pass.
    pub(crate) fn holder(&mut self, resource: LeaseResource) -> NodeId {
        let owner = self.store.tables().lease(resource).owner;
        match owner {
            Some(owner) if self.chance(85) => owner,
            _ => self.node(),
        }
    }

    /// Leases on these partitions as presented: mostly under their current tokens. Ascending.
    pub(crate) fn presented(&mut self, partitions: &[PartitionId]) -> Vec<HeldLease> {
        partitions
            .iter()
            .map(|partition| {
                let resource = LeaseResource::Partition(*partition);
                let current = self.store.tables().lease(resource).token;
                HeldLease { resource, token: self.token(current) }
            })
            .collect()
    }

    /// A job's row that fulfils something, if there is one.
    pub(crate) fn job_row(&mut self, is_wanted: impl Fn(&JobRow) -> bool) -> Option<JobRow> {
        let rows: Vec<&JobRow> = self.store.tables().jobs().iter().filter(|row| is_wanted(row)).collect();
        (!rows.is_empty()).then(|| (*self.stream.pick(&rows)).clone())
    }

    /// An execution, mostly in one of these states.
    pub(crate) fn execution_row(&mut self, states: &[ExecutionState]) -> Option<ExecutionRow> {
        let wanted = self.chance(85);
        let rows: Vec<&ExecutionRow> = self
            .store
            .tables()
            .executions()
            .iter()
            .filter(|row| !wanted || states.contains(&row.state))
            .collect();
        (!rows.is_empty()).then(|| (*self.stream.pick(&rows)).clone())
    }

    /// The id of one of those, or rarely of none.
    pub(crate) fn execution(&mut self, states: &[ExecutionState]) -> ExecutionId {
        let unknown = ExecutionId::from_u128(0xdead);
        if self.chance(3) {
            return unknown;
        }
        self.execution_row(states).map_or(unknown, |row| row.id)
    }

    /// A run, mostly the current one of an execution that runs.
    pub(crate) fn run(&mut self) -> RunId {
        let Some(row) = self.execution_row(&[ExecutionState::Running]) else {
            return RunId { execution: ExecutionId::from_u128(0xdead), token: FencingToken::from_i64(1) };
        };
        let execution = if self.chance(3) { ExecutionId::from_u128(0xdead) } else { row.id };
        RunId { execution, token: self.token(row.token) }
    }

    /// An outbox row's id, mostly of one that is there.
    pub(crate) fn outbox_id(&mut self) -> OutboxId {
        use fencepost_core::id::DispatchNo;
        let rows: Vec<OutboxId> = self
            .store
            .tables()
            .outbox()
            .iter()
            .map(|row| OutboxId { execution: row.execution, dispatch_no: row.dispatch_no })
            .collect();
        if rows.is_empty() || self.chance(10) {
            let execution = self.execution(&[ExecutionState::Pending]);
            return OutboxId { execution, dispatch_no: DispatchNo(self.stream.between(1, 3) as u32) };
        }
        *self.stream.pick(&rows)
    }
}

#[test]
fn all_definitions_but_one_can_be_read() {
    assert_eq!(
        definitions().map(|definition| definition.read().is_ok()),
        [true, true, true, true, true, false]
    );
}
