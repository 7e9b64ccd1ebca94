//! Which of what waits is asked for first, and that nothing starves by it.

use super::*;

fn of(number: u128, priority: Priority) -> ExecutionMessage {
    ExecutionMessage { priority, ..message(number) }
}

/// The number of the one execution that this asks for.
fn asked(effects: &Effects) -> u128 {
    let (_, ask) = effects.acquire();
    assert_eq!(ask.items.len(), 1);
    ask.items[0].execution.as_uuid().as_u128()
}

/// A worker with one slot, which execution 1 holds, and what it was delivered since.
fn busy(waiting: impl IntoIterator<Item = (u128, Priority)>) -> Hand {
    let mut hand = Hand::with(|config| config.slots = 1);
    hand.run(message(1));
    for (number, priority) in waiting {
        assert_eq!(hand.deliver(of(number, priority)).1.0, []);
    }
    hand
}

impl Hand {
    /// The run under way comes to its end; what is asked for then.
    fn finish(&mut self, number: u128) -> Effects {
        let effects = self.end(run_id(number, 1), HandlerResult::Completed);
        self.answer(effects.finish().0, Reply::Finished(vec![completed()]))
    }

    /// What is started next, one after the other, until nothing waits.
    fn drain_line(&mut self, mut running: u128) -> Vec<u128> {
        let mut started = Vec::new();
        loop {
            let effects = self.finish(running);
            if effects.commands().is_empty() {
                return started;
            }
            running = asked(&effects);
            started.push(running);
            self.answer(effects.acquire().0, Reply::Acquired(vec![granted(1)]));
        }
    }
}

#[test]
fn a_high_one_overtakes_what_came_before_it() {
    let mut hand = busy([(2, Priority::Low), (3, Priority::Low), (4, Priority::Normal), (5, Priority::High)]);
    assert_eq!(hand.drain_line(1)[0], 5);
}

#[test]
fn a_low_one_is_started_within_ten_starts_however_many_high_ones_wait() {
    let highs = (10..40).map(|number| (number, Priority::High));
    let mut hand = busy([(2, Priority::Low)].into_iter().chain(highs));
    let started = hand.drain_line(1);
    assert_eq!(started.len(), 31);
    assert!(started[..10].contains(&2), "{started:?}");
}

#[test]
fn within_a_priority_what_came_first_is_asked_for_first() {
    let mut hand = busy([(2, Priority::High), (3, Priority::High), (4, Priority::High)]);
    assert_eq!(hand.drain_line(1), [2, 3, 4]);
}

#[test]
fn a_priority_alone_has_every_slot() {
    let mut hand = Hand::new();
    let (_, effects) = hand.deliver(of(1, Priority::Low));
    for number in 2..=8 {
        hand.deliver(of(number, Priority::Low));
    }
    let effects = hand.answer(effects.acquire().0, Reply::Acquired(vec![granted(1)]));
    assert_eq!(effects.acquire().1.items.len(), 7);
}

#[test]
fn what_led_to_no_start_does_not_cost_its_priority_a_turn() {
    let mut hand = busy([(2, Priority::Low), (3, Priority::Low)]);
    (10..13).for_each(|number| drop(hand.deliver(of(number, Priority::High))));
    let started_first = {
        let effects = hand.finish(1);
        assert_eq!(asked(&effects), 10);
        let never = AcquireReply::Never { state: ExecutionState::Completed };
        hand.answer(effects.acquire().0, Reply::Acquired(vec![never]))
    };
    assert_eq!(asked(&started_first), 11, "the high one that could not run had its turn for nothing");
    assert_eq!(hand.worker.detours(), 1);
}

#[test]
fn what_must_be_asked_again_goes_before_all_others() {
    let mut hand = busy([(2, Priority::Low)]);
    let effects = hand.finish(1);
    assert_eq!(asked(&effects), 2);
    hand.deliver(of(3, Priority::High));
    hand.unknown(effects.acquire().0);
    assert_eq!(asked(&hand.wait(ms(200))), 2);
    assert_eq!(*hand.worker.waiting().get(Priority::High), 1);
}
