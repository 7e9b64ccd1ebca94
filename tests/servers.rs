//! Against a real PostgreSQL and a real RabbitMQ.
//!
//! Relies on `DATABASE_URL` and `AMQP_URL`, as `./test` sets them. What must stay true: a test uses databases
//! and queues of its own and leaves those of others alone.

#[path = "servers/api_errors.rs"]
mod api_errors;
#[path = "servers/broker.rs"]
mod broker;
#[path = "servers/dead_letters.rs"]
mod dead_letters;
#[path = "servers/explain.rs"]
mod explain;
#[path = "servers/last_line.rs"]
mod last_line;
#[path = "servers/outbox_gauges.rs"]
mod outbox_gauges;
#[path = "servers/throwaway_servers.rs"]
mod throwaway_servers;
#[path = "servers/unsuitable.rs"]
mod unsuitable;
#[path = "servers/verify.rs"]
mod verify;
#[path = "servers/worked_cases.rs"]
mod worked_cases;
