//! The store as the world takes it: anything that executes commands one after the other.
//!
//! The reference semantics are one; PostgreSQL in simulated time is another (it must give the same trace).

use fencepost_core::store::change::Change;
use fencepost_core::store::command::Command;
use fencepost_core::store::reference::ReferenceStore;
use fencepost_core::store::reply::StoreReply;
use fencepost_core::time::Timestamp;

/// Executes commands.
pub trait Store {
    /// Executes one command at `now`, adding what it did to `changes`.
    fn call(&mut self, now: Timestamp, command: &Command, changes: &mut Vec<Change>) -> StoreReply;
}

impl Store for ReferenceStore {
    fn call(&mut self, now: Timestamp, command: &Command, changes: &mut Vec<Change>) -> StoreReply {
        self.apply(now, command, changes)
    }
}
