//! What is on record: read straight from the tables, past the program under test.
//!
//! Times are microseconds since 1970 UTC, by the database's clock.

use std::collections::BTreeMap;

use sqlx::PgPool;
use uuid::Uuid;

/// The tables of one run.
pub(crate) struct Ledger {
    pool: PgPool,
}

/// An execution.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(crate) struct ExecutionRow {
    pub(crate) id: Uuid,
    pub(crate) job: Uuid,
    /// Null for one that was triggered.
    pub(crate) fire: Option<i64>,
    pub(crate) state: String,
    pub(crate) key: String,
    pub(crate) token: i64,
    pub(crate) due_at: i64,
    /// Attempts that did not complete.
    pub(crate) attempts_ended: i64,
}

/// How far a job has come.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(crate) struct JobRow {
    pub(crate) id: Uuid,
    pub(crate) created_at: i64,
    pub(crate) recorded_through: i64,
}

/// What was refused: (what it was about, what was tried), and how often.
pub(crate) type Refusals = BTreeMap<(String, String), i64>;

impl Ledger {
    /// Of this database.
    pub(crate) const fn new(pool: PgPool) -> Self {
        Self { pool }
    }

    /// The database's clock.
    pub(crate) async fn now(&self) -> i64 {
        self.number("SELECT store_now(NULL)").await
    }

    /// How many partitions each scheduler owns under a lease that runs.
    pub(crate) async fn owners(&self) -> BTreeMap<String, i64> {
        let query = "SELECT n.label, count(*) FROM lease l JOIN node n ON n.id = l.owner
                     WHERE l.resource < 128 AND l.expires_at > store_now(NULL) GROUP BY n.label";
        let rows: Vec<(String, i64)> =
            sqlx::query_as(query).fetch_all(&self.pool).await.expect("the tables are there");
        rows.into_iter().collect()
    }

    /// Who leads, under a lease that runs.
    pub(crate) async fn leader(&self) -> Option<String> {
        let query = "SELECT n.label FROM lease l JOIN node n ON n.id = l.owner
                     WHERE l.resource = 128 AND l.expires_at > store_now(NULL)";
        sqlx::query_scalar(query).fetch_optional(&self.pool).await.expect("the tables are there")
    }

    /// Which of these executions run, by worker.
    pub(crate) async fn running(&self, executions: &[Uuid]) -> BTreeMap<String, Vec<Uuid>> {
        let query = "SELECT n.label, e.id FROM execution e JOIN node n ON n.id = e.owner
                     WHERE e.state = 'running' AND e.id = ANY($1) ORDER BY e.id";
        let rows: Vec<(String, Uuid)> =
            sqlx::query_as(query).bind(executions).fetch_all(&self.pool).await.expect("the tables are there");
        let mut running: BTreeMap<String, Vec<Uuid>> = BTreeMap::new();
        for (label, execution) in rows {
            running.entry(label).or_default().push(execution);
        }
        running
    }

    /// How many of these executions have completed.
    pub(crate) async fn completed(&self, executions: &[Uuid]) -> usize {
        let query = "SELECT count(*) FROM execution WHERE state = 'completed' AND id = ANY($1)";
        let count: i64 = sqlx::query_scalar(query)
            .bind(executions)
            .fetch_one(&self.pool)
            .await
            .expect("the tables are there");
        usize::try_from(count).expect("a count is not negative")
    }

    /// How many of these jobs have completed at least so many fires after an instant.
    pub(crate) async fn jobs_with_completed(&self, jobs: &[Uuid], after: i64, at_least: i64) -> usize {
        let query = "SELECT count(*) FROM (
                         SELECT job FROM execution
                         WHERE state = 'completed' AND job = ANY($1) AND fire > $2
                         GROUP BY job HAVING count(*) >= $3) AS enough";
        let count: i64 = sqlx::query_scalar(query)
            .bind(jobs)
            .bind(after)
            .bind(at_least)
            .fetch_one(&self.pool)
            .await
            .expect("the tables are there");
        usize::try_from(count).expect("a count is not negative")
    }

    /// Fires up to an instant that are not through: jobs that have not been recorded so far, and executions that
    /// have not ended.
    pub(crate) async fn open_through(&self, instant: i64) -> i64 {
        let query = "SELECT (SELECT count(*) FROM job WHERE next_fire_time <= $1)
                          + (SELECT count(*) FROM execution
                             WHERE fire <= $1 AND state IN ('pending', 'running', 'retry_wait'))";
        sqlx::query_scalar(query).bind(instant).fetch_one(&self.pool).await.expect("the tables are there")
    }

    /// Executions that have not ended, and dispatches that are not confirmed.
    pub(crate) async fn unfinished(&self) -> i64 {
        self.number(
            "SELECT (SELECT count(*) FROM execution WHERE state IN ('pending', 'running', 'retry_wait'))
                  + (SELECT count(*) FROM outbox_event)",
        )
        .await
    }

    /// Every job.
    pub(crate) async fn jobs(&self) -> BTreeMap<Uuid, JobRow> {
        let query = "SELECT id, created_at, recorded_through FROM job";
        let rows: Vec<JobRow> =
            sqlx::query_as(query).fetch_all(&self.pool).await.expect("the tables are there");
        rows.into_iter().map(|job| (job.id, job)).collect()
    }

    /// Every execution.
    pub(crate) async fn executions(&self) -> Vec<ExecutionRow> {
        let query = "SELECT e.id, e.job, e.fire, e.state, e.key, e.token, e.due_at,
                            (SELECT count(*) FROM attempt a WHERE a.execution = e.id) AS attempts_ended
                     FROM execution e ORDER BY e.job, e.due_at, e.id";
        sqlx::query_as(query).fetch_all(&self.pool).await.expect("the tables are there")
    }

    /// What was refused.
    pub(crate) async fn refusals(&self) -> Refusals {
        let query = "SELECT CASE WHEN resource LIKE 'execution/%' THEN 'execution'
                                 WHEN resource = 'lease/128' THEN 'leadership' ELSE 'partition' END AS about,
                            action, sum(count)::int8
                     FROM refusal GROUP BY about, action";
        let rows: Vec<(String, String, i64)> =
            sqlx::query_as(query).fetch_all(&self.pool).await.expect("the tables are there");
        rows.into_iter().map(|(about, action, count)| ((about, action), count)).collect()
    }

    /// How often a node was refused something that it asked for under a lease of leadership or a partition.
    pub(crate) async fn refused_under_leases(&self, label: &str) -> i64 {
        let query = "SELECT coalesce(sum(r.count), 0)::int8 FROM refusal r JOIN node n ON n.id = r.node
                     WHERE n.label = $1 AND r.resource LIKE 'lease/%'";
        sqlx::query_scalar(query).bind(label).fetch_one(&self.pool).await.expect("the tables are there")
    }

    /// Rows that say that something was passed over, given up, or not understood.
    pub(crate) async fn mishaps(&self) -> i64 {
        self.number(
            "SELECT (SELECT count(*) FROM skipped_range) + (SELECT count(*) FROM dead_letter)
                  + (SELECT count(*) FROM malformed_message)",
        )
        .await
    }

    /// Leases of leadership and partitions that somebody still holds.
    pub(crate) async fn held_leases(&self) -> i64 {
        self.number("SELECT count(*) FROM lease WHERE owner IS NOT NULL").await
    }

    /// Nodes that have not reported that they are gone.
    pub(crate) async fn present_nodes(&self) -> Vec<String> {
        let query = "SELECT label FROM node WHERE state <> 'offline' ORDER BY label";
        sqlx::query_scalar(query).fetch_all(&self.pool).await.expect("the tables are there")
    }

    async fn number(&self, query: &'static str) -> i64 {
        sqlx::query_scalar(query).fetch_one(&self.pool).await.expect("the tables are there")
    }
}
