//! The store protocol: every effect on durable state, as one closed set of commands.
//!
//! A [`Command`](command::Command) is one atomic call on the store (guard, then write); its answer is a
//! [`StoreReply`](reply::StoreReply): the store's `now`, read once after the locks were held, and a reply
//! of the command's own kind. What each command means is written once, in [`reference`], over the tables of
//! [`tables`]; the simulator runs on it, and PostgreSQL's SQL is tested against it.
//!
//! - [`row`]: what a row of each table holds.
//! - [`command`]: what may be asked. - [`reply`]: what may be answered.
//! - [`change`]: what a command did to which row, for the oracles.
//! - [`reference`]: what each command means.
//!
//! A batch is a list of items; each is atomic and answered on its own, in the order of the request.

pub mod change;
pub mod command;
pub mod reference;
pub mod reply;
pub mod row;
pub mod tables;

/// What became of a store call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StoreOutcome {
    /// The store answered. Refusals are inside, item by item.
    Replied(reply::StoreReply),
    /// Nobody knows whether it was applied: the connection broke, or no answer came in time. Every
    /// command is safe to send again.
    Unknown,
}
