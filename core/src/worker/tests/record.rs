//! What cannot run here.

use super::*;
use crate::event::MalformedMessage;
use crate::execution::WaitReason;
use crate::message::MessageError;
use crate::store::reply::DeferReply;

fn unreadable(error: MessageError) -> Result<Arc<ExecutionMessage>, MalformedMessage> {
    let digest = uuid::Uuid::from_u128(9);
    Err(MalformedMessage { error, digest, excerpt: b"{".as_slice().into() })
}

fn garbage() -> Result<Arc<ExecutionMessage>, MalformedMessage> {
    unreadable(MessageError::Malformed { detail: "no\0 JSON".into() })
}

#[test]
fn a_malformed_message_is_acknowledged_once_it_is_recorded() {
    let mut hand = Hand::new();
    let delivery = Delivery { epoch: 1, tag: 1 };
    let effects = hand.send(WorkerEvent::Delivered { delivery, message: garbage() });
    let (call, record) = effects.malformed();
    assert_eq!(effects.acks(), []);
    assert_eq!(&*record.reason, "it is not an execution message: no JSON");
    assert_eq!(record.digest, uuid::Uuid::from_u128(9));
    let effects = hand.answer(call, Reply::MalformedRecorded);
    assert_eq!(effects.acks(), [delivery]);
    assert_eq!(effects.facts(), [Fact::MalformedMessage]);
}

#[test]
fn the_record_of_a_malformed_message_is_sent_again_until_it_is_known() {
    let mut hand = Hand::new();
    let delivery = Delivery { epoch: 1, tag: 1 };
    let effects = hand.send(WorkerEvent::Delivered { delivery, message: garbage() });
    let effects = hand.unknown(effects.malformed().0);
    assert_eq!(effects.acks(), []);
    let (call, _) = hand.wait(ms(200)).malformed();
    assert_eq!(hand.answer(call, Reply::MalformedRecorded).acks(), [delivery]);
}

#[test]
fn an_unknown_handler_or_version_is_put_off_and_then_acknowledged() {
    let mut stranger = message(1);
    stranger.handler.name = HandlerName::parse("fax").expect("a lawful name");
    let mut newer = message(1);
    newer.handler.version = 2;
    for message in [stranger, newer] {
        let mut hand = Hand::new();
        let (delivery, effects) = hand.deliver(message);
        let (call, defer) = effects.deferral();
        let (execution, reason) = (ExecutionId::from_u128(1), WaitReason::UnknownHandler);
        assert_eq!(defer.items, [(execution, reason)]);
        assert_eq!(effects.acks(), []);
        let effects = hand.answer(call, Reply::Deferred(vec![DeferReply::Recorded]));
        assert_eq!(effects.acks(), [delivery]);
        assert_eq!(effects.facts(), [Fact::Deferred { execution, reason }]);
    }
}

#[test]
fn a_deferral_of_unknown_outcome_is_sent_again() {
    let mut hand = Hand::new();
    let (delivery, effects) = hand.deliver(ExecutionMessage { schema: 9, ..message(1) });
    assert_eq!(hand.unknown(effects.deferral().0).acks(), []);
    let (call, _) = hand.wait(ms(200)).deferral();
    assert_eq!(hand.answer(call, Reply::Deferred(vec![DeferReply::Recorded])).acks(), [delivery]);
}

#[test]
fn neighbouring_schemas_are_run_and_others_put_off() {
    for (schema, runs) in [(1, false), (2, true), (3, true), (4, true), (5, false)] {
        let mut hand = Hand::with(|config| config.schema = 3);
        let (_, effects) = hand.deliver(ExecutionMessage { schema, ..message(1) });
        if runs {
            effects.acquire();
        } else {
            assert_eq!(effects.deferral().1.items[0].1, WaitReason::UnreadableMessage, "schema {schema}");
        }
    }
}

#[test]
fn a_newer_message_that_only_names_its_execution_is_put_off() {
    let mut hand = Hand::new();
    let execution = ExecutionId::from_u128(7);
    let error = MessageError::UnknownSchema { schema: 9, execution, detail: "new".into() };
    let delivery = Delivery { epoch: 1, tag: 1 };
    let effects = hand.send(WorkerEvent::Delivered { delivery, message: unreadable(error) });
    assert_eq!(effects.deferral().1.items, [(execution, WaitReason::UnreadableMessage)]);
}

#[test]
fn a_deferral_that_came_too_late_is_acknowledged_and_dropped() {
    for reply in [DeferReply::NotPending { state: ExecutionState::Completed }, DeferReply::Absent] {
        let mut hand = Hand::new();
        let (delivery, effects) = hand.deliver(ExecutionMessage { schema: 9, ..message(1) });
        let effects = hand.answer(effects.deferral().0, Reply::Deferred(vec![reply]));
        assert_eq!(effects.acks(), [delivery]);
        assert_eq!(effects.facts(), [Fact::MessageDropped { execution: ExecutionId::from_u128(1) }]);
    }
}

#[test]
fn one_command_names_each_deferred_execution_once() {
    let mut hand = Hand::new();
    let newer = |number| ExecutionMessage { schema: 9, ..message(number) };
    let (first, effects) = hand.deliver(newer(1));
    let (copy, _) = hand.deliver(newer(2));
    let (other, _) = hand.deliver(newer(2));
    let effects = hand.answer(effects.deferral().0, Reply::Deferred(vec![DeferReply::Recorded]));
    assert_eq!(effects.acks(), [first]);
    assert_eq!(effects.deferral().1.items.len(), 1);
    let effects = hand.answer(effects.deferral().0, Reply::Deferred(vec![DeferReply::Recorded]));
    assert_eq!(effects.acks(), [copy]);
    let effects = hand.answer(effects.deferral().0, Reply::Deferred(vec![DeferReply::Recorded]));
    assert_eq!(effects.acks(), [other]);
}
