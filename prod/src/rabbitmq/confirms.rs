//! Confirms: what the broker's answers to one batch mean, message by message.
//!
//! The broker hands an unroutable message back first and acknowledges it afterwards, and the client
//! attaches each message handed back to whichever confirm resolves next, not to its own. So the messages
//! handed back are gathered over the whole batch and matched by their ids. With one batch at a time on a
//! channel, all of them have been seen once all confirms have resolved: each precedes its own confirm, and
//! each confirm takes one along if there is any.

use std::collections::BTreeSet;

use fencepost_core::event::PublishOutcome;

/// What the broker answered to one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It took responsibility, or handed it back.
    Acked,
    /// It refused.
    Nacked,
    /// Nothing, as far as we know.
    None,
}

/// The outcome of each message of a batch, by its id and the answer to it.
///
/// Where answers are missing, so may messages handed back be: then an acknowledgement counts only if
/// nothing at all was handed back.
pub(super) fn settle(messages: &[(String, Answer)], handed_back: &BTreeSet<String>) -> Vec<PublishOutcome> {
    let complete = messages.iter().all(|(_, answer)| *answer != Answer::None);
    let trusted = complete || handed_back.is_empty();
    messages
        .iter()
        .map(|(id, answer)| match answer {
            Answer::Acked | Answer::Nacked if handed_back.contains(id) => PublishOutcome::Returned,
            Answer::Acked if trusted => PublishOutcome::Confirmed,
            Answer::Nacked => PublishOutcome::Nacked,
            Answer::Acked | Answer::None => PublishOutcome::Unknown,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use PublishOutcome::{Confirmed, Nacked, Returned, Unknown};

    fn batch(answers: &[Answer]) -> Vec<(String, Answer)> {
        answers.iter().enumerate().map(|(at, answer)| (at.to_string(), *answer)).collect()
    }

    fn ids(ids: &[&str]) -> BTreeSet<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    #[test]
    fn a_message_handed_back_is_returned_although_it_was_acknowledged() {
        let batch = batch(&[Answer::Acked, Answer::Acked, Answer::Nacked]);
        assert_eq!(settle(&batch, &ids(&["1"])), [Confirmed, Returned, Nacked]);
    }

    #[test]
    fn without_an_answer_nothing_is_known() {
        let batch = batch(&[Answer::Acked, Answer::None, Answer::Nacked]);
        assert_eq!(settle(&batch, &ids(&[])), [Confirmed, Unknown, Nacked]);
    }

    #[test]
    fn an_acknowledgement_does_not_count_while_returns_may_be_missing() {
        let batch = batch(&[Answer::Acked, Answer::Acked, Answer::None]);
        assert_eq!(settle(&batch, &ids(&["1"])), [Unknown, Returned, Unknown]);
    }
}
