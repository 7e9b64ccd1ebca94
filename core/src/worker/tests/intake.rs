//! From the delivery to the acknowledgement.

use super::*;

#[test]
fn the_first_tick_reports_liveness_and_consumes() {
    let mut hand = Hand::unbegun(config());
    let effects = hand.send(WorkerEvent::Tick);
    assert_eq!(effects.heartbeats(), [NodeState::Active]);
    assert!(matches!(effects.0[1], WorkerEffect::Consume { prefetch: 8 }));
    assert_eq!(effects.0.len(), 2);
}

#[test]
fn a_delivery_on_an_idle_worker_is_asked_for_at_once() {
    let (_, effects) = Hand::new().deliver(message(1));
    let (id, ask) = effects.acquire();
    assert_eq!(ask.items.len(), 1);
    assert_eq!(ask.items[0].execution, ExecutionId::from_u128(1));
    assert_eq!(ask.items[0].nonce, id);
    assert_eq!(ask.items[0].published_at, STORE_NOW.plus(ms(3)));
}

#[test]
fn what_arrives_while_an_acquire_is_under_way_makes_the_next_batch() {
    let mut hand = Hand::new();
    let (_, effects) = hand.deliver(message(1));
    for number in [2, 3] {
        assert_eq!(hand.deliver(message(number)).1.0, []);
    }
    hand.now = hand.now.plus(ms(7));
    let effects = hand.answer(effects.acquire().0, Reply::Acquired(vec![granted(1)]));
    let (_, ask) = effects.acquire();
    let executions: Vec<_> = ask.items.iter().map(|item| item.execution).collect();
    assert_eq!(executions, [ExecutionId::from_u128(2), ExecutionId::from_u128(3)]);
    assert_eq!(ask.items[0].held, ms(7));
}

#[test]
fn no_more_leases_are_asked_for_than_slots_are_free() {
    let mut hand = Hand::with(|config| config.slots = 2);
    hand.run(message(1));
    let (_, effects) = hand.deliver(message(2));
    let (_, _) = hand.deliver(message(3));
    let effects = hand.answer(effects.acquire().0, Reply::Acquired(vec![granted(1)]));
    assert_eq!(effects.commands(), []);
    let effects = hand.end(run_id(1, 1), HandlerResult::Completed);
    let effects = hand.answer(effects.finish().0, Reply::Finished(vec![completed()]));
    assert_eq!(effects.acquire().1.items[0].execution, ExecutionId::from_u128(3));
}

#[test]
fn a_batch_holds_no_more_than_the_setting_allows() {
    let mut hand = Hand::with(|config| config.batch = 2);
    let (_, effects) = hand.deliver(message(1));
    for number in 2..6 {
        hand.deliver(message(number));
    }
    let effects = hand.answer(effects.acquire().0, Reply::Acquired(vec![granted(1)]));
    assert_eq!(effects.acquire().1.items.len(), 2);
}

#[test]
fn an_acquire_of_unknown_outcome_is_sent_again_under_its_nonce_beside_new_ones() {
    let mut hand = Hand::new();
    let (_, effects) = hand.deliver(message(1));
    let (first, _) = effects.acquire();
    hand.deliver(message(2));
    assert_eq!(hand.unknown(first).commands(), []);
    let effects = hand.wait(ms(200));
    let (second, ask) = effects.acquire();
    let asked: Vec<_> = ask.items.iter().map(|item| (item.execution, item.nonce)).collect();
    assert_eq!(asked, [(ExecutionId::from_u128(1), first), (ExecutionId::from_u128(2), second)]);
}

#[test]
fn a_reply_of_another_kind_counts_as_unknown() {
    let mut hand = Hand::new();
    let (_, effects) = hand.deliver(message(1));
    let (first, _) = effects.acquire();
    let effects = hand.answer(first, Reply::Clock);
    assert_eq!(effects.facts(), [Fact::StoreUnknown]);
    assert_eq!(hand.wait(ms(200)).acquire().1.items[0].nonce, first);
}

#[test]
fn a_reply_with_too_few_items_counts_as_unknown() {
    let mut hand = Hand::new();
    let (_, effects) = hand.deliver(message(1));
    let effects = hand.answer(effects.acquire().0, Reply::Acquired(Vec::new()));
    assert_eq!(effects.facts(), [Fact::StoreUnknown]);
    hand.wait(ms(200)).acquire();
}

#[test]
fn an_outcome_that_nobody_waits_for_changes_nothing() {
    let mut hand = Hand::new();
    let (_, effects) = hand.deliver(message(1));
    let (first, _) = effects.acquire();
    hand.unknown(first);
    assert_eq!(hand.answer(first, Reply::Acquired(vec![granted(1)])).0, []);
    assert_eq!(hand.unknown(EffectId(999)).0, []);
}

#[test]
fn a_message_for_an_execution_that_ended_is_acknowledged_and_dropped() {
    for reply in [AcquireReply::Never { state: ExecutionState::Completed }, AcquireReply::Absent] {
        let mut hand = Hand::new();
        let (delivery, effects) = hand.deliver(message(1));
        let effects = hand.answer(effects.acquire().0, Reply::Acquired(vec![reply]));
        assert_eq!(effects.acks(), [delivery]);
        assert_eq!(effects.facts(), [Fact::MessageDropped { execution: ExecutionId::from_u128(1) }]);
        assert_eq!(effects.started(), []);
    }
}

#[test]
fn a_message_whose_execution_waits_for_a_recorded_reason_is_acknowledged() {
    let mut hand = Hand::new();
    let (delivery, effects) = hand.deliver(message(1));
    let reply = AcquireReply::NotNow { state: ExecutionState::RetryWait };
    let effects = hand.answer(effects.acquire().0, Reply::Acquired(vec![reply]));
    assert_eq!(effects.acks(), [delivery]);
    assert_eq!(effects.started(), []);
}

#[test]
fn a_copy_of_what_is_being_asked_for_is_acknowledged_and_not_asked_for_twice() {
    let mut hand = Hand::new();
    let (first, effects) = hand.deliver(message(1));
    let (call, _) = effects.acquire();
    let (copy, effects) = hand.deliver(message(1));
    assert_eq!(effects.acks(), [copy]);
    let effects = hand.answer(call, Reply::Acquired(vec![granted(1)]));
    assert_eq!(effects.started().len(), 1);
    assert_eq!(effects.commands(), []);
    let effects = hand.end(run_id(1, 1), HandlerResult::Completed);
    let effects = hand.answer(effects.finish().0, Reply::Finished(vec![completed()]));
    assert_eq!(effects.acks(), [first]);
}

#[test]
fn a_copy_of_a_running_execution_does_not_start_it_twice() {
    let mut hand = Hand::new();
    hand.run(message(1));
    let (copy, effects) = hand.deliver(message(1));
    assert_eq!(effects.acks(), [copy]);
    assert_eq!(effects.started(), []);
    assert_eq!(effects.commands(), []);
}

#[test]
fn a_newer_dispatch_of_a_running_execution_is_asked_about() {
    let mut hand = Hand::new();
    hand.run(message(1));
    let newer = ExecutionMessage { dispatch_no: DispatchNo(2), ..message(1) };
    let (delivery, effects) = hand.deliver(newer);
    assert_eq!(effects.acks(), []);
    let reply = AcquireReply::Never { state: ExecutionState::Running };
    let effects = hand.answer(effects.acquire().0, Reply::Acquired(vec![reply]));
    assert_eq!(effects.acks(), [delivery]);
}

#[test]
fn a_newer_dispatch_waits_until_the_question_under_way_is_answered() {
    let mut hand = Hand::new();
    let (first, effects) = hand.deliver(message(1));
    let (call, _) = effects.acquire();
    let (newer, effects) = hand.deliver(ExecutionMessage { dispatch_no: DispatchNo(2), ..message(1) });
    assert_eq!(effects.0, []);
    let (newest, effects) = hand.deliver(ExecutionMessage { dispatch_no: DispatchNo(3), ..message(1) });
    assert_eq!(effects.acks(), [newer]);
    let reply = AcquireReply::Never { state: ExecutionState::Running };
    let effects = hand.answer(call, Reply::Acquired(vec![reply]));
    assert_eq!(effects.acks(), [first]);
    let (call, ask) = effects.acquire();
    assert_eq!(ask.items[0].nonce, call);
    let effects = hand.answer(call, Reply::Acquired(vec![granted(2)]));
    assert_eq!(effects.started()[0].run, run_id(1, 2));
    let effects = hand.end(run_id(1, 2), HandlerResult::Completed);
    let effects = hand.answer(effects.finish().0, Reply::Finished(vec![completed()]));
    assert_eq!(effects.acks(), [newest]);
}

#[test]
fn messages_of_a_lost_consumer_that_were_not_asked_for_are_forgotten() {
    let mut hand = Hand::new();
    let (_, effects) = hand.deliver(message(1));
    let (call, _) = effects.acquire();
    hand.deliver(message(2));
    hand.lose_consumer();
    let effects = hand.answer(call, Reply::Acquired(vec![granted(1)]));
    assert_eq!(effects.commands(), []);
    let (_, effects) = hand.deliver(message(2));
    assert_eq!(effects.acquire().1.items.len(), 1);
}

#[test]
fn a_grant_for_a_lost_delivery_runs_and_is_not_acknowledged() {
    let mut hand = Hand::new();
    let (_, effects) = hand.deliver(message(1));
    hand.lose_consumer();
    let effects = hand.answer(effects.acquire().0, Reply::Acquired(vec![granted(1)]));
    assert_eq!(effects.started().len(), 1);
    let effects = hand.end(run_id(1, 1), HandlerResult::Completed);
    let effects = hand.answer(effects.finish().0, Reply::Finished(vec![completed()]));
    assert_eq!(effects.acks(), []);
}

#[test]
fn what_was_asked_for_is_asked_for_again_although_its_consumer_is_lost() {
    let mut hand = Hand::new();
    let (_, effects) = hand.deliver(message(1));
    let (call, _) = effects.acquire();
    hand.lose_consumer();
    hand.unknown(call);
    assert_eq!(hand.wait(ms(200)).acquire().1.items[0].nonce, call);
}

#[test]
fn a_redelivery_takes_the_place_of_a_lost_delivery() {
    let mut hand = Hand::new();
    let (_, effects) = hand.deliver(message(1));
    let (asking, _) = effects.acquire();
    hand.lose_consumer();
    let (again, effects) = hand.deliver(message(1));
    assert_eq!(effects.0, []);
    hand.answer(asking, Reply::Acquired(vec![granted(1)]));
    hand.lose_consumer();
    let (and_again, effects) = hand.deliver(message(1));
    assert_eq!(effects.0, []);
    let effects = hand.end(run_id(1, 1), HandlerResult::Completed);
    let effects = hand.answer(effects.finish().0, Reply::Finished(vec![completed()]));
    assert_ne!(again, and_again);
    assert_eq!(effects.acks(), [and_again]);
}

#[test]
fn a_delivery_of_a_lost_consumer_that_arrives_late_is_ignored() {
    let mut hand = Hand::new();
    hand.send(WorkerEvent::ConsumerLost { epoch: 1 });
    let (_, effects) = hand.deliver(message(1));
    assert_eq!(effects.0, []);
}

#[test]
fn a_handler_that_may_run_for_long_is_acknowledged_once_its_lease_is_known() {
    let mut hand = Hand::new();
    let long = ExecutionMessage { attempt_timeout: Span::from_secs(3_600), ..message(1) };
    let (delivery, effects) = hand.deliver(long);
    assert_eq!(effects.acks(), []);
    let effects = hand.answer(effects.acquire().0, Reply::Acquired(vec![granted(1)]));
    assert_eq!(effects.acks(), [delivery]);
    assert_eq!(effects.started().len(), 1);
    let effects = hand.end(run_id(1, 1), HandlerResult::Completed);
    let effects = hand.answer(effects.finish().0, Reply::Finished(vec![completed()]));
    assert_eq!(effects.acks(), []);
}

#[test]
fn the_consumer_is_cancelled_while_early_acknowledged_handlers_fill_the_slots() {
    let mut hand = Hand::with(|config| config.slots = 2);
    let long = |number| ExecutionMessage { attempt_timeout: Span::from_secs(3_600), ..message(number) };
    hand.run(long(1));
    let (_, effects) = hand.deliver(long(2));
    let effects = hand.answer(effects.acquire().0, Reply::Acquired(vec![granted(1)]));
    assert_eq!(effects.count(&WorkerEffect::StopConsuming), 1);
    let (_, effects) = hand.deliver(message(3));
    assert_eq!(effects.0, []);
    let effects = hand.end(run_id(1, 1), HandlerResult::Completed);
    let effects = hand.answer(effects.finish().0, Reply::Finished(vec![completed()]));
    assert_eq!(effects.count(&WorkerEffect::Consume { prefetch: 2 }), 1);
    assert_eq!(effects.acquire().1.items[0].execution, ExecutionId::from_u128(3));
}
