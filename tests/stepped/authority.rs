//! The table of authority: which commands act under what, row by row as the protocol has it.
//!
//! The home of that table in the tests. What must stay true: every kind of command has a place here, and every
//! place has a case; a command that is added to the core without one does not compile, and one without a case fails.

use fencepost_core::store::command::CommandKind;

/// A row of the table, named by what protects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Row {
    /// Acquire leadership or a partition: the lease row, released, expired, or further ahead than any grant reaches.
    AcquireLease,
    /// Renew and release a lease: owner and token.
    HoldLease,
    /// Materialise: partition token, job version and the expected next fire.
    Materialise,
    /// Promote a retry, dispatch again what waited: partition token and the execution's state.
    Promote,
    /// Remove an outbox row: its exact id.
    RemoveOutbox,
    /// Acquire an execution: its state, and a nonce.
    AcquireExecution,
    /// Renew and finish an execution: `Running` and its token.
    HoldExecution,
    /// Repairs of a sweep: leadership token, and what was observed on the row.
    Repair,
    /// Operators: the row's version or state, and a request id or the identity of what is made.
    Operator,
}

impl Row {
    /// All rows, in the order of the table.
    pub(crate) const ALL: [Self; 9] = [
        Self::AcquireLease,
        Self::HoldLease,
        Self::Materialise,
        Self::Promote,
        Self::RemoveOutbox,
        Self::AcquireExecution,
        Self::HoldExecution,
        Self::Repair,
        Self::Operator,
    ];
}

/// Under what a kind of command acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Under this row: it must have a case.
    Under(Row),
    /// Under nothing that could be taken away, for this reason.
    HoldsNoAuthority(&'static str),
}

/// Under what this kind of command acts.
pub(crate) const fn standing(kind: CommandKind) -> Standing {
    use Standing::{HoldsNoAuthority, Under};
    match kind {
        CommandKind::ReadClock => HoldsNoAuthority("reads the clock"),
        CommandKind::Heartbeat => HoldsNoAuthority("a report informs and grants nothing"),
        CommandKind::AcquireLeadership | CommandKind::AcquirePartitions => Under(Row::AcquireLease),
        CommandKind::RenewLeases | CommandKind::ReleaseLeases => Under(Row::HoldLease),
        CommandKind::ScanDueJobs => {
            HoldsNoAuthority("a hint: what is found is compared again when it is written")
        }
        CommandKind::Materialise | CommandKind::PutOffJobs => Under(Row::Materialise),
        CommandKind::PromoteDue => Under(Row::Promote),
        CommandKind::ScanOutbox => HoldsNoAuthority("publishing twice is harmless, so no token is asked for"),
        CommandKind::RemoveOutbox | CommandKind::ReturnOutbox => Under(Row::RemoveOutbox),
        CommandKind::ScanSweep => HoldsNoAuthority("a hint: each repair is conditional on what was observed"),
        CommandKind::Repair => Under(Row::Repair),
        CommandKind::AcquireExecutions | CommandKind::DeferExecutions => Under(Row::AcquireExecution),
        CommandKind::RenewExecutions | CommandKind::FinishExecutions => Under(Row::HoldExecution),
        CommandKind::RecordMalformed => HoldsNoAuthority("a count of messages that nobody could read"),
        CommandKind::CreateTenant
        | CommandKind::CreateJob
        | CommandKind::ChangeJob
        | CommandKind::DeleteJob
        | CommandKind::TriggerJob
        | CommandKind::CancelExecution
        | CommandKind::SetPause
        | CommandKind::ReplayDeadLetter
        | CommandKind::ReplayDeadLetters
        | CommandKind::PurgeDeadLetter
        | CommandKind::SetLimit
        | CommandKind::SetCalendar => Under(Row::Operator),
    }
}
