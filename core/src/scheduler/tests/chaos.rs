//! Random outcomes for a while, then a perfect world: everything must come to its end.
//!
//! The simulator does this with every fault there is; here it keeps the role honest about its own bookkeeping.

use proptest::prelude::*;

use super::world::{Link, World, up};
use crate::event::{PublishOutcome, SchedulerEvent};
use crate::execution::ExecutionState;
use crate::time::Span;

/// Outcomes in a cycle that the test case chose.
fn outcomes(choices: Vec<u8>) -> impl FnMut(crate::store::command::CommandKind) -> Link {
    let mut next = 0;
    move |_| {
        next += 1;
        match choices[next % choices.len()] {
            0 => Link::RequestLost,
            1 => Link::ReplyLost,
            2 => Link::Held,
            _ => Link::Up,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_came_back_everything_due_is_published_in_the_end(
        links in prop::collection::vec(prop::collection::vec(0..7_u8, 1..40), 2..4),
        answers in prop::collection::vec(0..5_u8, 0..200),
        pauses in prop::collection::vec(1..6_000_u64, 1..20),
        batch in 1..20_u32,
    ) {
        let mut world = World::new();
        for links in links {
            let node = world.start(|config| {
                config.batch = batch;
                // Nobody runs anything here; that is not to be repaired.
                config.redispatch_after = Span::from_secs(3_600);
            });
            world.link(node, outcomes(links));
        }
        world.answers = answers
            .into_iter()
            .map(|answer| match answer {
                0 => PublishOutcome::Returned,
                1 => PublishOutcome::Nacked,
                2 => PublishOutcome::Unknown,
                _ => PublishOutcome::Confirmed,
            })
            .collect();
        world.job(r#"{"kind":"cron","expr":"*/3 * * * * *"}"#, r#","misfire":{"catch_up":{"cap":100}}"#);
        for at in 0..60 {
            world.one_shot(Span::from_millis(1 + at * 150));
        }
        for (turn, pause) in pauses.into_iter().enumerate() {
            world.pass(Span::from_millis(pause));
            // What was held comes back late, and meets a role that may have gone on.
            world.answer_held(turn % world.nodes.len());
        }
        world.answers.clear();
        for node in 0..world.nodes.len() {
            world.link(node, up);
            world.let_go(node);
        }
        world.seconds(90);
        let left: Vec<_> = world.store.tables().outbox().iter().collect();
        prop_assert!(left.is_empty(), "at {}: {left:#?}", world.clock());
        let executions = world.executions();
        for row in &executions {
            prop_assert_eq!(row.state, ExecutionState::Pending);
            prop_assert!(row.waiting.is_none(), "{} waits", row.id);
            let sent = world.published.iter().any(|(_, message)| message.execution == row.id);
            prop_assert!(sent, "{} was never published", row.id);
        }
        prop_assert!(executions.len() >= 60 + 30);
        let shares = world.shares();
        prop_assert_eq!(shares.iter().sum::<usize>(), 128);
        prop_assert!(shares.iter().max().zip(shares.iter().min()).is_some_and(|(most, least)| most - least <= 1));
        for node in 0..world.nodes.len() {
            world.give(node, SchedulerEvent::DrainRequested);
            prop_assert!(world.nodes[node].drained_at.is_some());
        }
    }
}
