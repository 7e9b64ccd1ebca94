//! The store as the world takes it: anything that executes commands one after the other.
//!
//! The reference semantics are one; PostgreSQL in simulated time is another (it must give the same trace).
//! Where the world decides that a reply is lost or that a command is rolled back, it says so, so that a store that
//! has backends to terminate and connections to cut can let it really happen. What such a store must keep to: the
//! outcome in its tables is the one that the world decided.

use fencepost_core::store::change::Change;
use fencepost_core::store::command::Command;
use fencepost_core::store::reference::ReferenceStore;
use fencepost_core::store::reply::StoreReply;
use fencepost_core::time::Timestamp;

use crate::fault::FaultKind;

/// Executes commands.
pub trait Store {
    /// Executes one command at `now`, adding what it did to `changes`.
    fn call(&mut self, now: Timestamp, command: &Command, changes: &mut Vec<Change>) -> StoreReply;

    /// The same for a command whose caller hears nothing of it: it commits, and its reply is lost. What is
    /// returned is what would have been replied.
    fn call_unheard(&mut self, now: Timestamp, command: &Command, changes: &mut Vec<Change>) -> StoreReply {
        self.call(now, command, changes)
    }

    /// A command has arrived that `why` keeps from its commit: nothing of it may remain.
    fn roll_back(&mut self, _now: Timestamp, _command: &Command, _why: FaultKind) {}
}

impl Store for ReferenceStore {
    fn call(&mut self, now: Timestamp, command: &Command, changes: &mut Vec<Change>) -> StoreReply {
        self.apply(now, command, changes)
    }
}
