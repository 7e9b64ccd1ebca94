//! Notifications: committed work announced to whoever waits for it.
//!
//! An optimisation: everything is found by polling as well. So a listener that loses its connection says
//! nothing, tries again after a pause, and what was announced meanwhile is lost.

use std::time::Duration;

use fencepost_core::partition::PartitionId;
use sqlx::PgConnection;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::sync::mpsc;

use super::fault::Fault;

/// The channel. The payload is a partition's number.
const CHANNEL: &str = "fencepost";
/// How long a lost listener pauses.
const PAUSE: Duration = Duration::from_secs(1);
/// How many announcements may lie unread; more are dropped, since the reader scans anyway.
const UNREAD_MAX: usize = 1_024;

/// Says, with the commit, that this partition has work that may be due at once: it wakes the partition's owner a little
/// earlier than its next scan would.
pub(super) async fn notify(conn: &mut PgConnection, partition: i16) -> Result<(), Fault> {
    sqlx::query!("SELECT pg_notify($1, $2::text)", CHANNEL, partition.to_string()).execute(conn).await?;
    Ok(())
}

/// Listens for as long as the receiver is kept.
#[must_use]
pub fn listen(options: PgConnectOptions) -> mpsc::Receiver<PartitionId> {
    let (sender, receiver) = mpsc::channel(UNREAD_MAX);
    tokio::spawn(async move {
        while !sender.is_closed() {
            if let Err(error) = forward(&options, &sender).await {
                tracing::warn!(%error, "listening for notifications failed; polling goes on");
            }
            tokio::select! {
                () = sender.closed() => {}
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    });
    receiver
}

/// Forwards until the connection breaks or nobody reads.
async fn forward(options: &PgConnectOptions, sender: &mpsc::Sender<PartitionId>) -> Result<(), sqlx::Error> {
    let options = options.clone().application_name("fencepost notifications");
    let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(options);
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.listen(CHANNEL).await?;
    loop {
        let notification = tokio::select! {
            () = sender.closed() => return Ok(()),
            notification = listener.try_recv() => notification?,
        };
        let Some(notification) = notification else { return Ok(()) };
        let partition = notification.payload().parse().ok().and_then(PartitionId::new);
        match partition {
            Some(partition) => drop(sender.try_send(partition)),
            None => {
                tracing::debug!(payload = notification.payload(), "a notification that names no partition")
            }
        }
    }
}
