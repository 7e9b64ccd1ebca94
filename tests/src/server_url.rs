//! Where the tests find PostgreSQL and RabbitMQ.
//!
//! Relies on `./test`, which sets both variables, or on whoever runs a test by hand. What must stay true: a
//! test that needs a server fails without one and says how to get it; it never passes by doing nothing.

/// The URL of a PostgreSQL server where the test may create databases.
///
/// # Panics
/// Where `DATABASE_URL` is not set.
pub fn database_url() -> String {
    required("DATABASE_URL", "PostgreSQL", "scripts/throwaway-postgres start /tmp/fencepost-postgres")
}

/// The URL of a RabbitMQ broker where the test may create queues.
///
/// # Panics
/// Where `AMQP_URL` is not set.
pub fn amqp_url() -> String {
    required("AMQP_URL", "RabbitMQ", "scripts/throwaway-rabbitmq start /tmp/fencepost-rabbitmq")
}

fn required(variable: &str, server: &str, how: &str) -> String {
    match std::env::var(variable) {
        Ok(url) if !url.is_empty() => url,
        _ => panic!(
            "this test needs {server}: run `./test`, or set {variable}; `{how}` starts a server for that and \
             prints its URL"
        ),
    }
}
