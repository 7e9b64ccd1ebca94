//! The records of the tables that are read by key alone, and of those with one small index.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uuid::Uuid;

use crate::fencing::FencingToken;
use crate::id::{ExecutionId, JobId, JobVersion, NodeId, PauseId, TenantId};
use crate::pause::PauseScope;
use crate::store::change::{Change, Delta};
use crate::store::row::{
    AttemptRow, CalendarRow, DeadLetterRow, JobVersionRow, LimitRow, MalformedRow, NodeRole, NodeRow,
    NodeState, PauseRow, RefusalRow, RefusedAction, RefusedResource, RequestRow, SkippedRangeRow, TenantRow,
};
use crate::store::tables::table::Record;
use crate::store::tables::work::shift;
use crate::time::Timestamp;

/// Tenants by name: a name is one tenant's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantIndex {
    pub(super) names: BTreeMap<Arc<str>, TenantId>,
}

impl Record for TenantRow {
    type Key = TenantId;
    type Index = TenantIndex;

    fn key(&self) -> TenantId {
        self.id
    }

    fn reindex(index: &mut TenantIndex, before: Option<&Self>, after: Option<&Self>) {
        if let Some(row) = before {
            index.names.remove(&row.name);
        }
        if let Some(row) = after {
            index.names.insert(Arc::clone(&row.name), row.id);
        }
    }

    fn change(delta: Delta<Self>) -> Change {
        Change::Tenant(delta)
    }
}

/// Nodes that are not offline: what a sweep looks at, and the active schedulers among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeIndex {
    pub(super) present: BTreeSet<NodeId>,
    pub(super) schedulers: BTreeSet<NodeId>,
}

impl NodeIndex {
    fn present_entry(row: &NodeRow) -> Option<NodeId> {
        match row.state {
            NodeState::Active | NodeState::Draining => Some(row.id),
            NodeState::Offline => None,
        }
    }

    fn scheduler_entry(row: &NodeRow) -> Option<NodeId> {
        (row.role == NodeRole::Scheduler && row.state == NodeState::Active).then_some(row.id)
    }
}

impl Record for NodeRow {
    type Key = NodeId;
    type Index = NodeIndex;

    fn key(&self) -> NodeId {
        self.id
    }

    fn reindex(index: &mut NodeIndex, before: Option<&Self>, after: Option<&Self>) {
        let present = NodeIndex::present_entry;
        shift(&mut index.present, before.and_then(present), after.and_then(present));
        let scheduler = NodeIndex::scheduler_entry;
        shift(&mut index.schedulers, before.and_then(scheduler), after.and_then(scheduler));
    }

    fn change(delta: Delta<Self>) -> Change {
        Change::Node(delta)
    }
}

/// Dead letters that no replay was made of yet and nobody purged, by tenant and time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadLetterIndex {
    pub(in crate::store) untouched: BTreeSet<(TenantId, Timestamp, ExecutionId)>,
}

impl DeadLetterIndex {
    fn entry(row: &DeadLetterRow) -> Option<(TenantId, Timestamp, ExecutionId)> {
        let is_untouched = row.replays == 0 && row.purged_at.is_none();
        is_untouched.then_some((row.tenant, row.at, row.execution))
    }
}

impl Record for DeadLetterRow {
    type Key = ExecutionId;
    type Index = DeadLetterIndex;

    fn key(&self) -> ExecutionId {
        self.execution
    }

    fn reindex(index: &mut DeadLetterIndex, before: Option<&Self>, after: Option<&Self>) {
        let entry = DeadLetterIndex::entry;
        shift(&mut index.untouched, before.and_then(entry), after.and_then(entry));
    }

    fn change(delta: Delta<Self>) -> Change {
        Change::DeadLetter(Box::new(delta))
    }
}

/// Pauses that have not ended, by what they reach; and those that have and still let go what they held back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PauseIndex {
    pub(in crate::store) in_force: BTreeMap<(TenantId, PauseScope), PauseId>,
    pub(in crate::store) lifting: BTreeSet<(Timestamp, PauseId)>,
}

impl Record for PauseRow {
    type Key = PauseId;
    type Index = PauseIndex;

    fn key(&self) -> PauseId {
        self.id
    }

    fn reindex(index: &mut PauseIndex, before: Option<&Self>, after: Option<&Self>) {
        if let Some(row) = before.filter(|row| row.ended.is_none()) {
            index.in_force.remove(&(row.tenant, row.scope.clone()));
        }
        if let Some(row) = after.filter(|row| row.ended.is_none()) {
            index.in_force.insert((row.tenant, row.scope.clone()), row.id);
        }
        let lifting = |row: &Self| row.lift_until.map(|until| (until, row.id));
        shift(&mut index.lifting, before.and_then(lifting), after.and_then(lifting));
    }

    fn change(delta: Delta<Self>) -> Change {
        Change::Pause(Box::new(delta))
    }
}

/// The key of a `refusal`.
pub type RefusalKey = (RefusedResource, FencingToken, NodeId, RefusedAction);

macro_rules! read_by_key_alone {
    ($($row:ident as $change:ident: $key:ty = |$it:ident| $make:expr;)+) => {
        $(impl Record for $row {
            type Key = $key;
            type Index = ();

            fn key(&self) -> $key {
                let $it = self;
                $make
            }

            fn reindex((): &mut (), _before: Option<&Self>, _after: Option<&Self>) {}

            fn change(delta: Delta<Self>) -> Change {
                Change::$change(Box::new(delta))
            }
        })+
    };
}

read_by_key_alone! {
    JobVersionRow as JobVersion: (JobId, JobVersion) = |row| (row.job, row.version);
    AttemptRow as Attempt: (ExecutionId, FencingToken) = |row| (row.execution, row.token);
    SkippedRangeRow as SkippedRange: (JobId, Timestamp) = |row| (row.job, row.from);
    RefusalRow as Refusal: RefusalKey = |row| (row.resource, row.token, row.node, row.action);
    RequestRow as Request: (TenantId, Arc<str>) = |row| (row.tenant, Arc::clone(&row.request));
    LimitRow as Limit: (TenantId, Arc<str>) = |row| (row.tenant, Arc::clone(&row.key));
    CalendarRow as Calendar: (TenantId, Arc<str>) = |row| (row.tenant, Arc::clone(&row.name));
    MalformedRow as Malformed: Uuid = |row| row.digest;
}
