//! Fencepost's core: who may act now, how that ends, and how a half-finished transition is repaired.
//!
//! Everything here is a pure function of its inputs. No clock, no randomness, no I/O, no async and no
//! hash-ordered collection: the interpreters (`sim` and `prod`) bring the time and carry the effects out.
//!
//! Start at [`event`] and [`effect`]: what may happen to a role and what it may want done. Then the roles,
//! [`scheduler`] and [`worker`]; then [`store`], the protocol that both speak.

pub mod bug;
pub mod calendar_plan;
pub mod config;
pub mod effect;
pub mod event;
pub mod execution;
pub mod explain;
pub mod fact;
pub mod fencing;
pub mod id;
pub mod job;
pub mod job_plan;
pub mod lease;
pub mod ledger;
pub mod limits;
pub mod mark;
pub mod message;
pub mod partition;
pub mod pause;
pub mod priority;
pub mod replay;
pub mod retry;
pub mod schedule;
pub mod scheduler;
pub mod store;
pub mod time;
pub mod verify;
pub mod wakeup;
pub mod worker;
