//! Cases that only matter where the SQL is broken.

use crate::authority::Row;
use crate::case::{Act, Case};
use crate::world::{
    OTHER_WORKER, WORKER, acquire, at, cancel, defer, promote, remove_outbox, return_outbox, with_pending,
    with_retry,
};

/// An old row's removal stamps its execution, and so does a return.
pub(crate) const OLD_ROW_AGAINST_ITS_RETURN: &str = "removing an old outbox row against its return";
/// The retry of an execution has an outbox row of its own.
pub(crate) const ONE_OF_TWO_ROWS: &str = "removing one of two outbox rows against a cancel";
/// The worker's grant was used up by a failure; the retry may be granted, but not to that request.
pub(crate) const RESENT_AFTER_ITS_END: &str = "an acquisition sent again after its run has failed";

fn after(mut before: Vec<Act>, acts: impl IntoIterator<Item = Act>) -> Vec<Act> {
    before.extend(acts);
    before
}

pub(crate) fn cases() -> Vec<Case> {
    let two_rows = after(with_pending(), [at(14, defer()), at(20, promote())]);
    let second_attempt = after(with_retry(), [at(20, promote())]);
    vec![
        Case::new(
            OLD_ROW_AGAINST_ITS_RETURN,
            Row::RemoveOutbox,
            with_pending(),
            at(30, remove_outbox(1)),
            at(31, return_outbox()),
        ),
        Case::new(ONE_OF_TWO_ROWS, Row::RemoveOutbox, two_rows, at(30, remove_outbox(60)), at(31, cancel())),
        Case::new(
            RESENT_AFTER_ITS_END,
            Row::AcquireExecution,
            second_attempt,
            at(30, acquire(WORKER, 7)),
            at(31, acquire(OTHER_WORKER, 8)),
        ),
    ]
}
