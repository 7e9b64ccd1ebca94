//! Faults that only a real store has, done to it for real where the plan has them.
//!
//! The world says what becomes of a command: heard, unheard, or rolled back, and why. On the reference semantics
//! that is all there is to it. Here the store under test is reached over connections that see to it: a backend
//! that is terminated while it commits, a commit that fails with SQLSTATE 40001, a server that only reads, a
//! connection that goes dead once the server has committed. What the store then reports, and what the tables
//! then hold, is for the pair to judge.
//!
//! Each of them costs a new connection, so that no more than [`MOST`] of a kind happen in one seed; the rest of a
//! long outage brings nothing new. All of it is decided by the plan and by counting: a seed repeats.

use std::collections::BTreeMap;

use fencepost_core::store::command::Command;
use fencepost_core::store::reply::StoreReply;
use fencepost_core::time::Timestamp;
use fencepost_sim::fault::FaultKind;
use sqlx::postgres::PgConnectOptions;

use crate::database::Store;
use crate::deaf_wire::DeafWire;
use crate::watch::{SERIALIZATION_FAILURE, STRIKE, TERMINATE, Watch};

/// How many strikes of each kind one seed may have.
const MOST: u32 = 3;

/// What can be done to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Strike {
    /// Its backend is terminated while it commits: nothing of it remains.
    Terminated,
    /// Its commit fails with a serialization failure, as often as it is tried.
    SerializationFailures,
    /// Its commit fails with a serialization failure once, and is tried again.
    SerializationFailureOnce,
    /// The server only reads.
    ReadOnly,
    /// It commits, and its connection is dead before anybody hears of it.
    ReplyLost,
}

impl Strike {
    pub(crate) const ALL: [Self; 5] = [
        Self::Terminated,
        Self::SerializationFailures,
        Self::SerializationFailureOnce,
        Self::ReadOnly,
        Self::ReplyLost,
    ];

    /// The one for what keeps a command from its commit.
    pub(crate) fn of(why: FaultKind) -> Self {
        if why == FaultKind::StoreSerializationFailure {
            Self::SerializationFailures
        } else if why == FaultKind::StoreReadOnly {
            Self::ReadOnly
        } else {
            Self::Terminated
        }
    }
}

/// The store under test, over connections that something will happen to.
pub(crate) struct Strikes {
    terminated: Store,
    failing: Store,
    reading: Store,
    deaf: Store,
    /// How many there were in this seed.
    done: BTreeMap<Strike, u32>,
}

impl Strikes {
    pub(crate) fn new(server: &PgConnectOptions, wire: &DeafWire) -> Self {
        let armed = |setting, value| Store::on(server.clone().options([(setting, value)]));
        Self {
            terminated: armed(STRIKE, TERMINATE),
            failing: armed(STRIKE, SERIALIZATION_FAILURE),
            reading: armed("default_transaction_read_only", "on"),
            deaf: Store::on(wire.options(server)),
            done: BTreeMap::new(),
        }
    }

    /// Whether another of this kind is wanted.
    pub(crate) fn wants(&self, strike: Strike) -> bool {
        self.done.get(&strike).is_none_or(|done| *done < MOST)
    }

    /// Executes a command, and strikes. What is still under way when its caller gives up is waited for.
    pub(crate) async fn apply(
        &mut self,
        strike: Strike,
        watch: &mut Watch,
        now: Timestamp,
        command: &Command,
    ) -> Option<StoreReply> {
        *self.done.entry(strike).or_default() += 1;
        let store = match strike {
            Strike::Terminated => &self.terminated,
            Strike::SerializationFailures => {
                watch.arm(i64::MAX).await;
                &self.failing
            }
            Strike::SerializationFailureOnce => {
                watch.arm(1).await;
                &self.failing
            }
            Strike::ReadOnly => &self.reading,
            Strike::ReplyLost => &self.deaf,
        };
        let reply = store.apply(now, command).await;
        watch.wait_for_silence().await;
        reply
    }
}
