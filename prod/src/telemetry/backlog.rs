//! The outbox as operations watch it: how much waits there, of all nodes, and for how long.
//!
//! Read now and then, beside the commands and without a lock; it steers nothing. Rows stay for as long as the
//! broker has not confirmed them, so there are few unless something is wrong.

use std::time::Duration;

use sqlx::PgPool;

/// What waits in the outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// Dispatches that the broker has not confirmed.
    pub rows: u64,
    /// Age of the oldest of them; zero where there are none.
    pub oldest: Duration,
}

/// Looks at the outbox.
///
/// # Errors
/// Of the database.
pub async fn outbox_backlog(pool: &PgPool) -> Result<Backlog, sqlx::Error> {
    let row = sqlx::query!(
        r#"SELECT count(*) AS "rows!", coalesce(store_now(NULL) - min(created_at), 0) AS "oldest!"
          FROM outbox_event"#
    )
    .fetch_one(pool)
    .await?;
    let not_negative = |count: i64| u64::try_from(count).unwrap_or(0);
    Ok(Backlog { rows: not_negative(row.rows), oldest: Duration::from_micros(not_negative(row.oldest)) })
}
