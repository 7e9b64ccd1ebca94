//! How fast execution messages go through a real RabbitMQ.
//!
//! `AMQP_URL=… cargo bench -p fencepost --bench broker`: for each kind of queue and each number of
//! publications under way, messages confirmed per second, and then consumed and acknowledged per second. It
//! uses queues of its own and deletes them.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use fencepost::ports::{ConsumeEvent, ConsumePort, PublishPort};
use fencepost::rabbitmq::{QueueKind, RabbitConsumer, RabbitPublisher, RabbitSettings, Topology};
use fencepost_core::event::PublishOutcome;
use fencepost_core::id::{DispatchNo, JobId, JobVersion, Occurrence, TenantId};
use fencepost_core::job::{DeadLetters, HandlerName, HandlerRef, Payload, SCHEMA_VERSION};
use fencepost_core::message::ExecutionMessage;
use fencepost_core::priority::Priority;
use fencepost_core::retry::RetryPolicy;
use fencepost_core::time::{Span, Timestamp};
use futures_util::StreamExt;
use lapin::options::QueueDeleteOptions;
use lapin::{Connection, ConnectionProperties};

const MESSAGES: u32 = 20_000;
const BATCH: usize = 500;
const PREFETCH: u32 = 512;

#[tokio::main]
async fn main() -> ExitCode {
    let Ok(url) = std::env::var("AMQP_URL") else {
        eprintln!("AMQP_URL is not set: `scripts/throwaway-rabbitmq start DIR` prints one");
        return ExitCode::from(69);
    };
    println!("{MESSAGES} messages in batches of {BATCH}, prefetch {PREFETCH}");
    for kind in [QueueKind::Classic, QueueKind::Quorum] {
        for channels in [1, 2, 4, 8] {
            measure(&url, kind, channels).await;
        }
    }
    ExitCode::SUCCESS
}

async fn measure(url: &str, kind: QueueKind, channels: usize) {
    let mut settings = RabbitSettings::new(url.parse().expect("AMQP_URL is a URL"));
    settings.prefix = format!("bench-{}-{channels}", std::process::id()).parse().expect("it is a prefix");
    settings.queue_kind = kind;
    settings.publish_channels = channels;
    let handler = HandlerName::parse("bench").expect("it is a name");
    let messages = messages(&handler);

    let publisher = RabbitPublisher::start(settings.clone());
    let warm = publisher.publish(messages[..1].to_vec()).await;
    assert_eq!(warm, [PublishOutcome::Confirmed], "the broker is there");
    let began = Instant::now();
    let confirmed: usize = futures_util::stream::iter(messages.chunks(BATCH).map(<[_]>::to_vec))
        .map(|batch| publisher.publish(batch))
        .buffer_unordered(channels)
        .map(|outcomes| outcomes.iter().filter(|outcome| **outcome == PublishOutcome::Confirmed).count())
        .fold(0, |sum, count| core::future::ready(sum + count))
        .await;
    let published = began.elapsed();

    let mut consumer = RabbitConsumer::new(settings.clone(), vec![handler.clone()]);
    let began = Instant::now();
    consumer.start(PREFETCH);
    for _ in 0..=confirmed {
        match consumer.next().await {
            ConsumeEvent::Delivered { delivery, .. } => consumer.ack(delivery),
            ConsumeEvent::Lost { .. } => println!("the consumer was lost; this figure is void"),
        }
    }
    consumer.close().await;
    let consumed = began.elapsed();

    println!(
        "{kind:?}, {channels} publications under way: {confirmed} confirmed, {:.0}/s; consumed and \
         acknowledged, {:.0}/s",
        confirmed as f64 / published.as_secs_f64(),
        confirmed as f64 / consumed.as_secs_f64(),
    );
    delete(url, &settings, &handler).await;
}

async fn delete(url: &str, settings: &RabbitSettings, handler: &HandlerName) {
    let connection = Connection::connect(url, ConnectionProperties::default()).await;
    let channel = connection.expect("it was there just now").create_channel().await.expect("it is open");
    for queue in Topology::of(settings).queues(handler) {
        channel.queue_delete(queue, QueueDeleteOptions::default()).await.expect("it is ours");
    }
}

fn messages(handler: &HandlerName) -> Vec<Arc<ExecutionMessage>> {
    let job = JobId::from_u128(1);
    (0..MESSAGES)
        .map(|number| {
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
                handler: HandlerRef { name: handler.clone(), version: 1 },
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
