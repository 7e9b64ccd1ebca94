//! The publisher and the consumer against a real RabbitMQ.
//!
//! Each test has exchange and queues of its own, by a prefix of its own; those that end a broker have a
//! broker of their own. What must stay true: nothing counts as confirmed that is not in a queue, and nothing
//! confirmed and not acknowledged is lost, whatever dies in between.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fencepost::ports::{ConsumeEvent, ConsumePort, PublishPort};
use fencepost::rabbitmq::{LinkHealth, RabbitConsumer, RabbitPublisher, RabbitSettings, Topology};
use fencepost_core::event::{Delivery, MalformedMessage, PublishOutcome};
use fencepost_core::id::{DispatchNo, ExecutionId, JobId, JobVersion, Occurrence, TenantId};
use fencepost_core::job::{DeadLetters, HandlerName, HandlerRef, Payload, SCHEMA_VERSION};
use fencepost_core::limits::MESSAGE_BYTES_MAX;
use fencepost_core::message::{ExecutionMessage, MessageError};
use fencepost_core::priority::Priority;
use fencepost_core::retry::RetryPolicy;
use fencepost_core::time::{Span, Timestamp};
use fencepost_tests::throwaway::{Kind, Throwaway};
use fencepost_tests::{server_url, waiting};
use lapin::options::{BasicPublishOptions, QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(30);

/// Settings with a prefix that no other test has.
fn settings(url: &str) -> RabbitSettings {
    static TESTS: AtomicU32 = AtomicU32::new(0);
    let prefix = format!("test-{}-{}", std::process::id(), TESTS.fetch_add(1, Ordering::Relaxed));
    let mut settings = RabbitSettings::new(url.parse().expect("the script prints a URL"));
    settings.prefix = prefix.parse().expect("it is a prefix");
    settings
}

fn handler(name: &str) -> HandlerName {
    HandlerName::parse(name).expect("it is a name")
}

/// Different messages for one handler, of a job of its own.
fn messages(handler_name: &str, count: u32) -> Vec<Arc<ExecutionMessage>> {
    let job = handler_name.bytes().fold(0, |job, byte| job << 8 | u128::from(byte));
    (0..count)
        .map(|number| {
            let job = JobId::from_u128(job);
            let fire = Timestamp::EPOCH.plus(Span::from_secs(u64::from(number)));
            let occurrence = Occurrence::Scheduled { fire };
            Arc::new(ExecutionMessage {
                schema: SCHEMA_VERSION,
                execution: occurrence.execution_id(job),
                dispatch_no: DispatchNo(1),
                tenant: TenantId::from_u128(1),
                job,
                job_version: JobVersion::FIRST,
                key: occurrence.idempotency_key(job).expect("a fire has one"),
                occurrence,
                due_at: fire,
                handler: HandlerRef { name: handler(handler_name), version: 1 },
                priority: Priority::Normal,
                payload: Payload::default(),
                attempt_timeout: Span::from_secs(60),
                retry: RetryPolicy::default(),
                dead_letter: DeadLetters::On,
                dispatched_at: fire,
                publish_delay: Span::ZERO,
            })
        })
        .collect()
}

fn executions(messages: &[Arc<ExecutionMessage>]) -> BTreeSet<ExecutionId> {
    messages.iter().map(|message| message.execution).collect()
}

/// A connection of the test's own, past the code under test.
async fn open(url: &str) -> Channel {
    let connection = Connection::connect(url, ConnectionProperties::default()).await;
    connection.expect("the broker is there").create_channel().await.expect("it is open")
}

async fn next(consumer: &mut RabbitConsumer) -> ConsumeEvent {
    timeout(PATIENCE, consumer.next()).await.expect("something arrives")
}

async fn delivered(
    consumer: &mut RabbitConsumer,
) -> (Delivery, Result<Arc<ExecutionMessage>, MalformedMessage>) {
    match next(consumer).await {
        ConsumeEvent::Delivered { delivery, message } => (delivery, message),
        ConsumeEvent::Lost { epoch } => panic!("the consumer of epoch {epoch} is gone"),
    }
}

/// Takes in messages until each of these has been seen, acknowledging all; tells what was lost on the way.
async fn take_all(consumer: &mut RabbitConsumer, wanted: &[Arc<ExecutionMessage>]) -> Vec<u64> {
    let mut missing = executions(wanted);
    let mut lost = Vec::new();
    while !missing.is_empty() {
        match next(consumer).await {
            ConsumeEvent::Delivered { delivery, message } => {
                missing.remove(&message.expect("it was published by us").execution);
                consumer.ack(delivery);
            }
            ConsumeEvent::Lost { epoch } => lost.push(epoch),
        }
    }
    lost
}

/// How many messages lie ready in a queue.
async fn depth(channel: &Channel, topology: &Topology, handler_name: &str) -> u32 {
    let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    channel
        .queue_declare(
            topology.queue(&handler(handler_name), Priority::Normal),
            passive,
            FieldTable::default(),
        )
        .await
        .expect("the queue is there")
        .message_count()
}

/// Publishes until all is confirmed at once: right after a restart the first try may find a dead connection.
async fn publish_in_the_end(publisher: &RabbitPublisher, batch: &[Arc<ExecutionMessage>]) {
    waiting::until("everything is confirmed", PATIENCE, async || {
        let outcomes = publisher.publish(batch.to_vec()).await;
        outcomes.iter().all(|outcome| *outcome == PublishOutcome::Confirmed).then_some(())
    })
    .await;
    assert_eq!(publisher.health(), LinkHealth::Up);
}

#[tokio::test]
async fn what_is_confirmed_is_in_its_queue_before_any_consumer_comes() {
    let url = server_url::amqp_url();
    let settings = settings(&url);
    let publisher = RabbitPublisher::start(settings.clone());
    let batch = [messages("first", 500), messages("second", 300)].concat();
    assert_eq!(publisher.publish(batch.clone()).await, [PublishOutcome::Confirmed; 800]);
    let channel = open(&url).await;
    let topology = Topology::of(&settings);
    assert_eq!(depth(&channel, &topology, "first").await, 500);
    assert_eq!(depth(&channel, &topology, "second").await, 300);

    let mut consumer = RabbitConsumer::new(settings, vec![handler("first"), handler("second")]);
    consumer.start(100);
    take_all(&mut consumer, &batch).await;
    consumer.close().await;
    assert_eq!(depth(&channel, &topology, "first").await, 0, "all was acknowledged before the close");
    assert_eq!(depth(&channel, &topology, "second").await, 0);
}

#[tokio::test]
async fn a_message_without_a_queue_is_returned_and_its_neighbours_are_confirmed() {
    let url = server_url::amqp_url();
    let settings = settings(&url);
    let topology = Topology::of(&settings);
    let publisher = RabbitPublisher::start(settings);
    let batch = [messages("gone", 3), messages("stays", 200)].concat();
    // Declares both queues, one of which somebody deletes.
    assert_eq!(publisher.publish(batch.clone()).await, [PublishOutcome::Confirmed; 203]);
    let channel = open(&url).await;
    let gone = topology.queue(&handler("gone"), Priority::Normal);
    channel.queue_delete(gone.clone(), QueueDeleteOptions::default()).await.expect("it is there");

    let mut mixed: Vec<_> = batch[3..].to_vec();
    for (message, place) in batch[..3].iter().zip([0, 77, 199]) {
        mixed.insert(place, Arc::clone(message));
    }
    let outcomes = publisher.publish(mixed.clone()).await;
    for (message, outcome) in mixed.iter().zip(outcomes) {
        let expected = match message.handler.name.as_str() {
            "gone" => PublishOutcome::Returned,
            _stays => PublishOutcome::Confirmed,
        };
        assert_eq!(outcome, expected, "{}", message.handler.name);
    }
    let again = publisher.publish(batch[..3].to_vec()).await;
    assert_eq!(again, [PublishOutcome::Confirmed; 3], "the queue is declared anew after a return");
    assert_eq!(depth(&channel, &topology, "gone").await, 3);
}

#[tokio::test]
async fn batches_side_by_side_do_not_mix_up_their_returns() {
    let url = server_url::amqp_url();
    let settings = settings(&url);
    let topology = Topology::of(&settings);
    let publisher = RabbitPublisher::start(settings);
    assert_eq!(publisher.publish(messages("gone", 1)).await, [PublishOutcome::Confirmed]);
    let channel = open(&url).await;
    let deleted = channel
        .queue_delete(topology.queue(&handler("gone"), Priority::Normal), QueueDeleteOptions::default())
        .await;
    deleted.expect("it is there");
    let batches = futures_util::future::join_all((0..12).map(|number| {
        let handler_name = if number == 0 { "gone" } else { "stays" };
        publisher.publish(messages(handler_name, 100))
    }));
    for (number, outcomes) in batches.await.into_iter().enumerate() {
        let expected = if number == 0 { PublishOutcome::Returned } else { PublishOutcome::Confirmed };
        assert_eq!(outcomes, [expected; 100], "batch {number}");
    }
}

#[tokio::test]
async fn at_most_the_prefetch_is_unacknowledged_over_all_handlers() {
    let url = server_url::amqp_url();
    let settings = settings(&url);
    let publisher = RabbitPublisher::start(settings.clone());
    let batch = [messages("first", 20), messages("second", 20)].concat();
    assert_eq!(publisher.publish(batch).await, [PublishOutcome::Confirmed; 40]);
    let mut consumer = RabbitConsumer::new(settings.clone(), vec![handler("first"), handler("second")]);
    consumer.start(8);
    let mut open_deliveries = Vec::new();
    for _ in 0..8 {
        open_deliveries.push(delivered(&mut consumer).await.0);
    }
    let channel = open(&url).await;
    let topology = Topology::of(&settings);
    let ready = depth(&channel, &topology, "first").await + depth(&channel, &topology, "second").await;
    assert_eq!(ready, 32, "the rest waits in the queues");
    // Out of order, as runs end.
    for delivery in open_deliveries.into_iter().rev() {
        consumer.ack(delivery);
        let (_, message) = delivered(&mut consumer).await;
        assert!(message.is_ok());
    }
}

#[tokio::test]
async fn what_a_lost_consumer_had_not_acknowledged_comes_again() {
    let url = server_url::amqp_url();
    let settings = settings(&url);
    let publisher = RabbitPublisher::start(settings.clone());
    let batch = messages("ours", 10);
    assert_eq!(publisher.publish(batch.clone()).await, [PublishOutcome::Confirmed; 10]);
    let mut first = RabbitConsumer::new(settings.clone(), vec![handler("ours")]);
    first.start(10);
    for _ in 0..10 {
        let (_, message) = delivered(&mut first).await;
        assert!(message.is_ok());
    }
    drop(first);
    let mut second = RabbitConsumer::new(settings, vec![handler("ours")]);
    second.start(10);
    take_all(&mut second, &batch).await;
}

#[tokio::test]
async fn a_consumer_that_the_broker_cancels_is_replaced_under_the_next_epoch() {
    let url = server_url::amqp_url();
    let settings = settings(&url);
    let topology = Topology::of(&settings);
    let publisher = RabbitPublisher::start(settings.clone());
    let mut consumer = RabbitConsumer::new(settings, vec![handler("ours")]);
    consumer.start(10);
    assert_eq!(publisher.publish(messages("ours", 1)).await, [PublishOutcome::Confirmed]);
    let (stale, _) = delivered(&mut consumer).await;
    let channel = open(&url).await;
    let queue = topology.queue(&handler("ours"), Priority::Normal);
    channel.queue_delete(queue, QueueDeleteOptions::default()).await.expect("it is there");
    assert_eq!(next(&mut consumer).await, ConsumeEvent::Lost { epoch: stale.epoch });
    // Void, and harmless: the tag may be another delivery's by now.
    consumer.ack(stale);
    let batch = messages("ours", 5);
    waiting::until("the queue is declared anew", PATIENCE, async || {
        (publisher.publish(batch.clone()).await == [PublishOutcome::Confirmed; 5]).then_some(())
    })
    .await;
    let (fresh, _) = delivered(&mut consumer).await;
    assert!(fresh.epoch > stale.epoch);
}

#[tokio::test]
async fn a_consumer_stops_starts_again_and_acknowledges_in_between() {
    let url = server_url::amqp_url();
    let settings = settings(&url);
    let topology = Topology::of(&settings);
    let publisher = RabbitPublisher::start(settings.clone());
    let batch = messages("ours", 4);
    assert_eq!(publisher.publish(batch[..2].to_vec()).await, [PublishOutcome::Confirmed; 2]);
    let mut consumer = RabbitConsumer::new(settings, vec![handler("ours")]);
    consumer.start(10);
    let (first, _) = delivered(&mut consumer).await;
    let (second, _) = delivered(&mut consumer).await;
    consumer.stop();
    let channel = open(&url).await;
    waiting::until("nobody consumes", PATIENCE, async || {
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let queue = topology.queue(&handler("ours"), Priority::Normal);
        let queue = channel.queue_declare(queue, passive, FieldTable::default()).await.expect("it is there");
        (queue.consumer_count() == 0).then_some(())
    })
    .await;
    assert_eq!(publisher.publish(batch[2..].to_vec()).await, [PublishOutcome::Confirmed; 2]);
    assert_eq!(depth(&channel, &topology, "ours").await, 2, "nothing is delivered while stopped");
    consumer.ack(first);
    consumer.start(10);
    let (third, _) = delivered(&mut consumer).await;
    let (fourth, _) = delivered(&mut consumer).await;
    assert_eq!(third.epoch, first.epoch, "its deliveries are as valid as before");
    for delivery in [second, fourth, third] {
        consumer.ack(delivery);
    }
    consumer.close().await;
    assert_eq!(depth(&channel, &topology, "ours").await, 0, "all four were acknowledged");
}

#[tokio::test]
async fn a_message_that_cannot_be_read_is_told_and_does_not_stop_the_consumer() {
    let url = server_url::amqp_url();
    let settings = settings(&url);
    let topology = Topology::of(&settings);
    let publisher = RabbitPublisher::start(settings.clone());
    let batch = messages("ours", 1);
    assert_eq!(publisher.publish(batch.clone()).await, [PublishOutcome::Confirmed]);
    let channel = open(&url).await;
    for body in [b"not json".to_vec(), vec![b' '; MESSAGE_BYTES_MAX + 1], Vec::new()] {
        let key = topology.routing_key(&handler("ours"), Priority::Normal);
        let options = BasicPublishOptions::default();
        let sent =
            channel.basic_publish(topology.exchange(), key, options, &body, BasicProperties::default()).await;
        sent.expect("the exchange is there");
    }
    let mut consumer = RabbitConsumer::new(settings.clone(), vec![handler("ours")]);
    consumer.start(10);
    let (delivery, message) = delivered(&mut consumer).await;
    assert_eq!(message.expect("ours is good"), batch[0]);
    consumer.ack(delivery);
    let mut errors = Vec::new();
    for _ in 0..3 {
        let (delivery, message) = delivered(&mut consumer).await;
        errors.push(message.expect_err("none of these can be read").error);
        consumer.ack(delivery);
    }
    assert!(matches!(errors[0], MessageError::Malformed { .. }), "{:?}", errors[0]);
    assert_eq!(errors[1], MessageError::TooLarge { bytes: MESSAGE_BYTES_MAX + 1 });
    assert!(matches!(errors[2], MessageError::Malformed { .. }), "{:?}", errors[2]);
    consumer.close().await;
    assert_eq!(depth(&channel, &topology, "ours").await, 0, "each was acknowledged, none requeued");
}

// The scripts block their thread; publisher and consumer go on in the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_broker_killed_and_started_again_loses_nothing_that_it_confirmed() {
    let broker = Throwaway::start(Kind::Rabbitmq);
    let settings = settings(broker.url());
    let publisher = RabbitPublisher::start(settings.clone());
    publish_in_the_end(&publisher, &messages("ours", 1)).await;
    // The broker writes the queue itself down a moment after it says that it is declared, unlike messages:
    // an orderly stop makes sure of it.
    broker.stop();
    broker.start_again();
    let mut consumer = RabbitConsumer::new(settings, vec![handler("ours")]);
    consumer.start(50);
    let batch = messages("ours", 200);
    publish_in_the_end(&publisher, &batch).await;
    let (stale, _) = delivered(&mut consumer).await;

    broker.kill();
    waiting::until("the publisher notices", PATIENCE, async || {
        (publisher.health() == LinkHealth::Down).then_some(())
    })
    .await;
    let down = publisher.publish(messages("ours", 3)).await;
    assert_eq!(down, [PublishOutcome::Unknown; 3], "nobody can say, so nobody does");
    broker.start_again();

    let lost = take_all(&mut consumer, &batch).await;
    assert_eq!(lost.first(), Some(&stale.epoch), "the old consumer's end was told");
    publish_in_the_end(&publisher, &messages("ours", 10)).await;
}

// The scripts block their thread; publisher and consumer go on in the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn publisher_and_consumer_wait_for_a_broker_that_is_not_there_yet() {
    let broker = Throwaway::start(Kind::Rabbitmq);
    broker.stop();
    let settings = settings(broker.url());
    let publisher = RabbitPublisher::start(settings.clone());
    let mut consumer = RabbitConsumer::new(settings, vec![handler("ours")]);
    consumer.start(10);
    assert_eq!(publisher.health(), LinkHealth::Down);
    broker.start_again();
    let batch = messages("ours", 20);
    publish_in_the_end(&publisher, &batch).await;
    take_all(&mut consumer, &batch).await;
}
