//! Fencepost's production shell: PostgreSQL, RabbitMQ and HTTP around the core.
//!
//! Relies on the core for every decision about leases, retries, eligibility and time. What must stay true:
//! this crate carries effects out and reports what came of them; it decides nothing of its own.

pub mod access;
pub mod api;
pub mod cli;
pub mod driver;
pub mod failure;
pub mod handler;
mod listener;
pub mod logging;
pub mod ports;
pub mod postgres;
pub mod rabbitmq;
pub mod schema;
pub mod serve;
pub mod settings;
pub mod telemetry;
pub mod verify;
