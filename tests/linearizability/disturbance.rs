//! What goes wrong while a history runs: connections cut while a commit is under way, backends terminated,
//! statements cancelled as a timeout would.

use fencepost_sim::rng::{Stream, StreamKey};
use fencepost_tests::pg_proxy::{Cut, PgProxy};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, PgConnection};

use crate::history::Moments;

/// How a history is disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Disturbance {
    /// Not at all.
    None,
    /// A connection is cut, before or after a statement is sent.
    Cut,
    /// Backends are terminated.
    Terminated,
    /// Statements are cancelled.
    Cancelled,
}

/// All that is anything.
pub(crate) const DISTURBANCES: [Disturbance; 3] =
    [Disturbance::Cut, Disturbance::Terminated, Disturbance::Cancelled];

/// Within how many invocations and answers from its beginning a history is disturbed.
const WITHIN: u64 = 50;

impl Disturbance {
    /// That of the history of a seed: half of them are left alone.
    pub(crate) fn of(seed: u64) -> Self {
        match Self::stream(seed).between(0, 9) {
            0..=4 => Self::None,
            5..=6 => Self::Cut,
            7..=8 => Self::Terminated,
            _ => Self::Cancelled,
        }
    }

    fn stream(seed: u64) -> Stream {
        StreamKey::of(seed, "disturbance").open()
    }

    /// Sets the trap of a cut: at some statement of the history.
    pub(crate) fn prepare(self, seed: u64, proxy: &PgProxy) {
        let mut stream = Self::stream(seed);
        stream.word();
        if self == Self::Cut {
            let cut = if stream.chance(500_000) { Cut::Before } else { Cut::After };
            // Half of them at a commit, where it matters most.
            let (pattern, passes) =
                if stream.chance(500_000) { ("COMMIT", stream.below(10)) } else { ("", stream.below(60)) };
            proxy.cut(pattern, passes, cut);
        }
    }
}

/// A connection that does harm.
pub(crate) struct Saboteur(PgConnection);

impl Saboteur {
    /// On the database of these options.
    pub(crate) async fn connect(options: &PgConnectOptions) -> Self {
        let options = options.clone().application_name("saboteur");
        Self(options.connect().await.expect("the server of DATABASE_URL can be reached"))
    }

    /// Terminates two backends, or cancels what they do, at some moments of a history.
    pub(crate) async fn act(&mut self, disturbance: Disturbance, seed: u64, moments: &Moments) {
        let function = match disturbance {
            Disturbance::None | Disturbance::Cut => return,
            Disturbance::Terminated => "pg_terminate_backend",
            Disturbance::Cancelled => "pg_cancel_backend",
        };
        let mut stream = StreamKey::of(seed, "saboteur").open();
        let mut when = [stream.below(WITHIN), stream.below(WITHIN)];
        when.sort_unstable();
        for moment in when {
            moments.passed(moment).await;
            let one = format!(
                "SELECT {function}(pid) FROM pg_stat_activity WHERE datname = current_database() \
                 AND application_name LIKE 'fencepost%' AND state <> 'idle' ORDER BY random() LIMIT 1"
            );
            sqlx::query(AssertSqlSafe(one)).execute(&mut self.0).await.expect("a superuser may");
        }
    }

    /// Waits until nothing of what a history asked is under way any more, heard of or not.
    pub(crate) async fn wait_for_silence(&mut self) {
        let under_way = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
             AND application_name LIKE 'fencepost%' AND state <> 'idle'";
        loop {
            let count: i64 =
                sqlx::query_scalar(under_way).fetch_one(&mut self.0).await.expect("anybody may look");
            if count == 0 {
                return;
            }
            tokio::task::yield_now().await;
        }
    }
}
