//! That the acceptor can refuse: histories with one thing in them that no broker of ours may do.
//!
//! Each begins with the same history without it, which is accepted.

use fencepost_core::event::PublishOutcome::{self, Confirmed, Nacked, Returned, Unknown};

use crate::acceptor::{Acceptor, Refusal};
use crate::history::{Act, Actor, Down, Flag, Round, Sight};
use crate::script::{Leaving, Length, Settling};

const OURS: Actor = Actor::Foreign(0);
const THEIRS: Actor = Actor::Foreign(1);

fn round(acts: Vec<(Actor, Act)>) -> Round {
    Round { acts, ..Round::default() }
}

fn saw(mut round: Round, slot: usize, deliveries: &[(u64, u32)]) -> Round {
    let sights = deliveries.iter().map(|(tag, number)| delivered(*tag, *number)).collect();
    round.sights.insert(slot, sights);
    round
}

fn delivered(tag: u64, number: u32) -> Sight {
    Sight::Delivered { tag, number, flag: Flag::First }
}

fn published(outcomes: &[(u32, PublishOutcome)]) -> Round {
    let acts =
        outcomes.iter().map(|(number, _)| (Actor::Publisher, Act::Publish { number: *number, queue: 0 }));
    let mut round = round(acts.collect());
    round.outcomes.extend(outcomes.iter().copied());
    round
}

fn consume(actor: Actor, prefetch: u16) -> Round {
    let slot = if actor == OURS { 0 } else { 1 };
    round(vec![(actor, Act::Consume { slot, prefetch, queues: vec![0] })])
}

fn acknowledged(tags: &[u64]) -> Round {
    let act = Act::Settle { slot: 0, tags: tags.to_vec(), how: Settling::AckUpTo };
    round(vec![(OURS, act)])
}

fn operated(act: Act) -> Round {
    round(vec![(Actor::Operator, act)])
}

/// Three confirmed messages of which two are out.
fn begun() -> Acceptor {
    let mut acceptor = Acceptor::new(1, Length::Free);
    assert_eq!(
        accepts(&mut acceptor, &published(&[(1, Confirmed), (2, Confirmed), (3, Confirmed)])),
        Some(true)
    );
    assert_eq!(accepts(&mut acceptor, &saw(consume(OURS, 2), 0, &[(1, 1), (2, 2)])), Some(true));
    acceptor
}

/// Whether a round is explained, and if so, whether all that is due has come.
fn accepts(acceptor: &mut Acceptor, round: &Round) -> Option<bool> {
    match acceptor.take(round) {
        Ok(settled) => Some(settled),
        Err(Refusal::Impossible { .. }) => None,
        Err(Refusal::GivenUp) => panic!("these rounds are short"),
    }
}

#[test]
fn a_message_that_was_never_published_is_refused() {
    let mut acceptor = begun();
    assert_eq!(accepts(&mut acceptor.clone(), &saw(acknowledged(&[1]), 0, &[(3, 3)])), Some(true));
    assert_eq!(accepts(&mut acceptor, &saw(acknowledged(&[1]), 0, &[(3, 4)])), None);
}

#[test]
fn a_message_that_was_acknowledged_does_not_come_again() {
    let mut acceptor = begun();
    assert_eq!(accepts(&mut acceptor, &saw(acknowledged(&[1, 2]), 0, &[(3, 3)])), Some(true));
    assert_eq!(accepts(&mut acceptor, &saw(consume(THEIRS, 5), 1, &[(1, 1)])), None);
}

#[test]
fn a_confirmed_message_that_is_not_there_is_due_or_miscounted() {
    let mut acceptor = begun();
    let went = round(vec![(OURS, Act::Leave { slot: 0, how: Leaving::Connection, holding: 2 })]);
    assert_eq!(accepts(&mut acceptor, &went), Some(true));
    assert_eq!(accepts(&mut acceptor.clone(), &operated(Act::Count { queue: 0, ready: 3 })), Some(true));
    assert_eq!(accepts(&mut acceptor.clone(), &operated(Act::Count { queue: 0, ready: 2 })), None);
    assert_eq!(accepts(&mut acceptor.clone(), &operated(Act::Purge { queue: 0, removed: 2 })), None);
    let all = saw(consume(THEIRS, 9), 1, &[(1, 1), (2, 2), (3, 3)]);
    assert_eq!(accepts(&mut acceptor.clone(), &all), Some(true));
    let one_less = saw(consume(THEIRS, 9), 1, &[(1, 1), (2, 2)]);
    assert_eq!(accepts(&mut acceptor, &one_less), Some(false), "the third is due");
}

#[test]
fn a_delivery_beyond_the_prefetch_is_refused() {
    let mut acceptor = begun();
    assert_eq!(accepts(&mut acceptor, &saw(Round::default(), 0, &[(3, 3)])), None);
}

#[test]
fn a_delivery_to_somebody_who_cancelled_is_refused() {
    let mut acceptor = begun();
    let mut cancelled = round(vec![(OURS, Act::Cancel { slot: 0 })]);
    assert_eq!(accepts(&mut acceptor, &cancelled), Some(true));
    cancelled = saw(acknowledged(&[1]), 0, &[(3, 3)]);
    assert_eq!(accepts(&mut acceptor, &cancelled), None);
}

#[test]
fn messages_of_one_queue_that_change_places_are_refused() {
    let mut acceptor = Acceptor::new(1, Length::Free);
    accepts(&mut acceptor, &published(&[(1, Confirmed), (2, Confirmed)])).expect("that is plain");
    assert_eq!(accepts(&mut acceptor, &saw(consume(OURS, 2), 0, &[(1, 2), (2, 1)])), None);
}

#[test]
fn what_goes_back_goes_back_to_its_place() {
    let back = |tag| Act::Settle { slot: 0, tags: vec![tag], how: Settling::NackBack };
    let mut acceptor = begun();
    let right = saw(round(vec![(OURS, back(1))]), 0, &[(3, 1)]);
    assert_eq!(accepts(&mut acceptor.clone(), &right), Some(true));
    // A broker makes room first: what waits may come before what goes back, and nothing else may.
    let overtaken = saw(round(vec![(OURS, back(1))]), 0, &[(3, 3)]);
    assert_eq!(accepts(&mut acceptor.clone(), &overtaken), Some(true));
    let both = Act::Settle { slot: 0, tags: vec![1, 2], how: Settling::NackUpToBack };
    let wrong = saw(round(vec![(OURS, both)]), 0, &[(3, 2), (4, 1)]);
    assert_eq!(accepts(&mut acceptor, &wrong), None);
}

#[test]
fn only_a_kill_brings_back_what_was_acknowledged() {
    for (down, may) in [(Down::Killed, Some(true)), (Down::InOrder, None)] {
        let mut acceptor = Acceptor::new(1, Length::Free);
        acceptor.expect_a_kill();
        assert_eq!(accepts(&mut acceptor, &published(&[(1, Confirmed), (2, Confirmed)])), Some(true));
        assert_eq!(accepts(&mut acceptor, &saw(consume(OURS, 1), 0, &[(1, 1)])), Some(true));
        assert_eq!(accepts(&mut acceptor, &saw(acknowledged(&[1]), 0, &[(2, 2)])), Some(true));
        let mut restarted = round(vec![(Actor::Operator, Act::Down(down)), (Actor::Operator, Act::Up)]);
        restarted.acts.push((OURS, Act::Ended { slot: 0, told: Sight::Lost }));
        restarted.sights.insert(0, vec![Sight::Lost]);
        assert_eq!(accepts(&mut acceptor, &restarted), Some(true));
        let comes_again = saw(consume(THEIRS, 5), 1, &[(1, 1), (2, 2)]);
        assert_eq!(accepts(&mut acceptor, &comes_again), may, "{down:?}");
    }
}

#[test]
fn a_return_needs_a_queue_that_is_missing() {
    let mut acceptor = begun();
    assert_eq!(accepts(&mut acceptor.clone(), &published(&[(4, Returned)])), None);
    let mut deleted = operated(Act::DeleteQueue { queue: 0 });
    deleted.acts.push((OURS, Act::Ended { slot: 0, told: Sight::Cancelled }));
    deleted.sights.insert(0, vec![Sight::Cancelled]);
    assert_eq!(accepts(&mut acceptor, &deleted), Some(true));
    assert_eq!(accepts(&mut acceptor.clone(), &published(&[(4, Returned)])), Some(true));
    // Declared anew, it has nothing of what it had.
    assert_eq!(accepts(&mut acceptor, &published(&[(4, Confirmed)])), Some(true));
    assert_eq!(accepts(&mut acceptor, &operated(Act::Count { queue: 0, ready: 2 })), None);
}

#[test]
fn a_refusal_needs_a_limit_that_is_reached() {
    let mut free = begun();
    assert_eq!(accepts(&mut free, &published(&[(4, Nacked)])), None);
    let mut limited = Acceptor::new(1, Length::Limited);
    let full = [(1, Confirmed), (2, Confirmed), (3, Confirmed), (4, Nacked)];
    assert_eq!(accepts(&mut limited.clone(), &published(&full)), Some(true));
    assert_eq!(accepts(&mut limited, &published(&[(1, Nacked)])), None);
}

#[test]
fn nothing_is_confirmed_during_an_alarm() {
    let mut acceptor = begun();
    assert_eq!(accepts(&mut acceptor, &operated(Act::Alarm)), Some(true));
    assert_eq!(accepts(&mut acceptor.clone(), &published(&[(4, Confirmed)])), None);
    let mut held_up = published(&[(4, Confirmed)]);
    let outcome = core::mem::take(&mut held_up.outcomes);
    assert!(accepts(&mut acceptor, &held_up).is_some());
    let mut over = operated(Act::AlarmOver);
    over.outcomes = outcome;
    assert_eq!(accepts(&mut acceptor, &over), Some(true));
}

#[test]
fn a_consumer_that_ends_without_a_cause_is_refused() {
    let mut acceptor = begun();
    let mut ended = Round::default();
    ended.sights.insert(0, vec![Sight::Lost]);
    assert_eq!(accepts(&mut acceptor, &ended), None);
}

#[test]
fn a_publication_without_an_answer_may_be_there_or_not() {
    let mut acceptor = Acceptor::new(1, Length::Free);
    assert_eq!(accepts(&mut acceptor, &published(&[(1, Unknown)])), Some(true));
    for ready in [0, 1] {
        assert_eq!(accepts(&mut acceptor.clone(), &operated(Act::Count { queue: 0, ready })), Some(true));
    }
    assert_eq!(accepts(&mut acceptor, &operated(Act::Count { queue: 0, ready: 2 })), None);
}

#[test]
fn what_a_deleted_queue_had_takes_up_room_and_comes_back_nowhere() {
    let mut acceptor = begun();
    let mut deleted = operated(Act::DeleteQueue { queue: 0 });
    deleted.acts.push((OURS, Act::Ended { slot: 0, told: Sight::Cancelled }));
    deleted.sights.insert(0, vec![Sight::Cancelled]);
    assert_eq!(accepts(&mut acceptor, &deleted), Some(true));
    assert_eq!(accepts(&mut acceptor, &published(&[(4, Confirmed)])), Some(true));
    assert_eq!(accepts(&mut acceptor, &consume(OURS, 2)), Some(true), "both places are taken");
    let back = Act::Settle { slot: 0, tags: vec![1], how: Settling::RejectBack };
    assert_eq!(accepts(&mut acceptor, &saw(round(vec![(OURS, back)]), 0, &[(3, 4)])), Some(true));
    assert_eq!(accepts(&mut acceptor.clone(), &operated(Act::Count { queue: 0, ready: 0 })), Some(true));
    assert_eq!(accepts(&mut acceptor, &operated(Act::Count { queue: 0, ready: 1 })), None);
}
