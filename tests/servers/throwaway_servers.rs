//! The tests' own servers keep what they promised to keep.
//!
//! A test that kills a broker proves something only if the broker comes back as a real one would: on the same
//! port, with what it had confirmed.

use std::time::Duration;

use fencepost_tests::server_url;
use fencepost_tests::throwaway::{Kind, Throwaway};
use fencepost_tests::waiting;
use lapin::options::{BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use sqlx::{Connection as _, PgConnection};

const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_killed_database_comes_back_with_what_it_committed() {
    let server = Throwaway::start(Kind::Postgres);
    let mut connection = PgConnection::connect(server.url()).await.expect("it has just started");
    sqlx::query("create table kept as select 42 as answer")
        .execute(&mut connection)
        .await
        .expect("the database is empty and ours");
    server.kill();
    server.start_again();
    let mut connection = waiting::until("PostgreSQL accepts connections again", PATIENCE, async || {
        PgConnection::connect(server.url()).await.ok()
    })
    .await;
    let answer: i32 = sqlx::query_scalar("select answer from kept")
        .fetch_one(&mut connection)
        .await
        .expect("what was committed is there");
    assert_eq!(answer, 42);
}

#[tokio::test]
async fn a_killed_broker_comes_back_with_what_it_confirmed() {
    let server = Throwaway::start(Kind::Rabbitmq);
    let reconnected = async || {
        waiting::until("RabbitMQ accepts connections", PATIENCE, async || open(server.url()).await.ok()).await
    };
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    let channel = reconnected().await;
    channel
        .queue_declare("kept".into(), durable, FieldTable::default())
        .await
        .expect("nobody else declares here");
    // It writes the queue itself down a moment after it says that it is declared: an orderly stop makes sure of it.
    server.stop();
    server.start_again();
    let channel = reconnected().await;
    channel.confirm_select(ConfirmSelectOptions::default()).await.expect("a fresh channel");
    let confirmation = channel
        .basic_publish(
            "".into(),
            "kept".into(),
            BasicPublishOptions::default(),
            b"42",
            BasicProperties::default().with_delivery_mode(2),
        )
        .await
        .expect("the channel is open")
        .await
        .expect("the broker answers");
    assert!(confirmation.is_ack());
    server.kill();
    server.start_again();
    let channel = reconnected().await;
    let kept = channel
        .basic_get("kept".into(), BasicGetOptions::default())
        .await
        .expect("the queue is durable")
        .expect("the message was confirmed");
    assert_eq!(kept.delivery.data, b"42");
}

#[tokio::test]
async fn the_servers_that_the_tests_were_given_answer() {
    let mut connection =
        PgConnection::connect(&server_url::database_url()).await.expect("DATABASE_URL names a server");
    let version: i32 = sqlx::query_scalar("select current_setting('server_version_num')::integer")
        .fetch_one(&mut connection)
        .await
        .expect("every server knows its version");
    assert!(version >= 150_000, "PostgreSQL 15 is the oldest that is supported, this is {version}");
    open(&server_url::amqp_url()).await.expect("AMQP_URL names a broker");
}

async fn open(url: &str) -> lapin::Result<Channel> {
    let connection = Connection::connect(url, ConnectionProperties::default()).await?;
    connection.create_channel().await
}
