//! Commands of workers.

use std::sync::Arc;

use fencepost_core::execution::{DeadLetterReason, ExecutionState};
use fencepost_core::store::command::{
    AcquireExecution, AcquireExecutions, Command, DeferExecutions, FinishExecution, FinishExecutions,
    RenewExecutions, RunOutcome,
};
use fencepost_core::time::Span;

use crate::universe::Draw;

impl Draw<'_> {
    pub(crate) fn acquire_executions(&mut self) -> Command {
        let items = (0..self.items())
            .map(|_| AcquireExecution {
                execution: self.execution(&[ExecutionState::Pending, ExecutionState::RetryWait]),
                nonce: self.nonce(),
                published_at: self.about_now(),
                held: self.stream.long_tailed(Span::from_micros(1), Span::from_secs(60)),
            })
            .collect();
        Command::AcquireExecutions(AcquireExecutions { node: self.node(), ttl: self.ttl(), items })
    }

    pub(crate) fn renew_executions(&mut self) -> Command {
        let runs = (0..self.items()).map(|_| self.run()).collect();
        Command::RenewExecutions(RenewExecutions { node: self.node(), ttl: self.ttl(), runs })
    }

    pub(crate) fn finish_executions(&mut self) -> Command {
        let items = (0..self.items())
            .map(|_| FinishExecution {
                run: self.run(),
                outcome: self.outcome(),
                started_ago: self
                    .chance(80)
                    .then(|| self.stream.long_tailed(Span::from_micros(1), Span::from_secs(60))),
            })
            .collect();
        Command::FinishExecutions(FinishExecutions { node: self.node(), items })
    }

    fn outcome(&mut self) -> RunOutcome {
        let error: Arc<str> = Arc::from(*self.stream.pick(&["it broke", "é", ""]));
        match self.stream.between(0, 8) {
            0..=2 => RunOutcome::Completed,
            3 => RunOutcome::Retry { delay: self.delay(), error },
            4 | 8 => RunOutcome::DeadLettered { reason: *self.stream.pick(DeadLetterReason::ALL), error },
            5 => RunOutcome::Failed { error },
            6 => RunOutcome::Released,
            _ => RunOutcome::Cancelled,
        }
    }

    pub(crate) fn defer_executions(&mut self) -> Command {
        let items = (0..self.items())
            .map(|_| (self.execution(&[ExecutionState::Pending]), self.wait_reason()))
            .collect();
        Command::DeferExecutions(DeferExecutions { items, delay: self.delay() })
    }
}
