//! Watching: what each command wrote, as PostgreSQL itself saw it.
//!
//! Triggers of this test's own database copy every row that a statement inserted, updated or deleted to a table
//! beside its own (`seen_lease` for `lease`), in the writer's transaction, so that what is rolled back was not
//! written. After a command one query per table reads what was added there since; nothing is deleted before the next
//! seed. What the rows were before is known from what was seen of them earlier, and that this is all there is to know
//! is checked at the end of each seed against the tables themselves.
//!
//! The triggers are also where faults strike. On connections that are armed (`simulation.strike`) they leave a
//! row in `struck`, whose constraint trigger fires when the transaction commits, and does what the setting says.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use fencepost_core::store::change::Change;
use sqlx::{AssertSqlSafe, PgConnection, Row};

use crate::contents;
use crate::database::{Database, Store};
use crate::stored::{RowKey, Stored, TABLES};

/// A setting of connections: what is to happen to their commits.
pub(crate) const STRIKE: &str = "simulation.strike";
/// [`STRIKE`]: the backend is terminated while it commits.
pub(crate) const TERMINATE: &str = "terminate";
/// [`STRIKE`]: the commit fails with SQLSTATE 40001 for as often as [`Watch::arm`] says.
pub(crate) const SERIALIZATION_FAILURE: &str = "serialization_failure";

const STRIKING: &str = "
    CREATE UNLOGGED TABLE struck (at_commit boolean NOT NULL);
    CREATE SEQUENCE strikes_so_far MINVALUE 0;
    -- A sequence takes nothing back: what failed is counted.
    CREATE SEQUENCE strikes_asked_for MINVALUE 0;
    CREATE FUNCTION strike() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF current_setting('simulation.strike') = 'terminate' THEN
            PERFORM pg_terminate_backend(pg_backend_pid());
        ELSIF nextval('strikes_so_far') <= (SELECT last_value FROM strikes_asked_for) THEN
            RAISE EXCEPTION 'struck' USING ERRCODE = 'serialization_failure';
        END IF;
        RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER strike AFTER INSERT ON struck DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION strike();
";

/// The watching side of one database.
pub(crate) struct Watch {
    connection: PgConnection,
    /// Up to where each table's copies were read.
    through: BTreeMap<&'static str, i64>,
    /// Every row, as it was last seen.
    rows: BTreeMap<RowKey, Stored>,
}

impl Watch {
    /// Installs the triggers.
    pub(crate) async fn install(database: &Database) -> Self {
        let mut connection = database.connect().await;
        let mut script = STRIKING.to_owned();
        for table in TABLES.iter().map(|table| table.name) {
            let columns: String = sqlx::query_scalar(
                "SELECT string_agg(attname, ', ' ORDER BY attnum) FROM pg_attribute \
                 WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped",
            )
            .bind(table)
            .fetch_one(&mut connection)
            .await
            .expect("the tables are there");
            writeln!(
                script,
                "CREATE UNLOGGED TABLE seen_{table} (number bigserial PRIMARY KEY, is_gone boolean NOT NULL, \
                   LIKE {table}); \
                 CREATE FUNCTION see_{table}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                   INSERT INTO seen_{table} (is_gone, {columns}) SELECT TG_OP = 'DELETE', {columns} FROM written; \
                   IF FOUND AND current_setting('{STRIKE}', true) <> '' THEN \
                     INSERT INTO struck VALUES (true); \
                   END IF; \
                   RETURN NULL; END $$;"
            )
            .expect("a string takes everything");
            for (deed, rows) in [("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD")] {
                writeln!(
                    script,
                    "CREATE TRIGGER see_{deed} AFTER {deed} ON {table} REFERENCING {rows} TABLE AS written \
                     FOR EACH STATEMENT EXECUTE FUNCTION see_{table}();"
                )
                .expect("a string takes everything");
            }
        }
        sqlx::raw_sql(AssertSqlSafe(script)).execute(&mut connection).await.expect("triggers may be made");
        sqlx::raw_sql("SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off")
            .execute(&mut connection)
            .await
            .expect("settings that there are");
        Self { connection, through: BTreeMap::new(), rows: BTreeMap::new() }
    }

    /// Empties every table, and begins to watch what is left: the leases.
    pub(crate) async fn empty(&mut self, database: &Database) -> Store {
        let mut statement = "TRUNCATE struck, api_key".to_owned();
        for table in TABLES.iter().map(|table| table.name) {
            write!(statement, ", {table}, seen_{table}").expect("a string takes everything");
        }
        sqlx::query(AssertSqlSafe(statement)).execute(database.pool()).await.expect("nobody locks them");
        let store = database.empty_store().await;
        self.look().await;
        self.rows = Stored::all(contents::read(&mut self.connection).await);
        store
    }

    /// What was written since the last look at these tables: each row's first state and its last, by key.
    pub(crate) async fn look_at(&mut self, tables: &BTreeSet<&'static str>) -> BTreeMap<RowKey, Change> {
        let mut before = BTreeMap::new();
        for table in TABLES.iter().filter(|table| tables.contains(table.name)) {
            let through = self.through.entry(table.name).or_default();
            let seen = sqlx::query(table.seen)
                .bind(*through)
                .fetch_all(&mut self.connection)
                .await
                .expect("the table is there");
            for row in seen {
                *through = row.get(0);
                let stored = Stored::read(table.name, &row);
                let key = stored.key();
                let earlier =
                    if row.get(1) { self.rows.remove(&key) } else { self.rows.insert(key.clone(), stored) };
                before.entry(key).or_insert(earlier);
            }
        }
        let change = |(key, before): (RowKey, _)| {
            let change = Stored::change(before, self.rows.get(&key).cloned())?;
            Some((key, change))
        };
        before.into_iter().filter_map(change).collect()
    }

    /// What was written since, anywhere.
    pub(crate) async fn look(&mut self) -> BTreeMap<RowKey, Change> {
        self.look_at(&TABLES.iter().map(|table| table.name).collect()).await
    }

    /// Whether the tables hold what was seen of them.
    pub(crate) async fn has_seen_all(&mut self) -> bool {
        Stored::all(contents::read(&mut self.connection).await) == self.rows
    }

    /// So many commits of connections armed with [`SERIALIZATION_FAILURE`] are to fail from now on.
    pub(crate) async fn arm(&mut self, failures: i64) {
        sqlx::query("SELECT setval('strikes_so_far', 0), setval('strikes_asked_for', $1)")
            .bind(failures)
            .execute(&mut self.connection)
            .await
            .expect("the sequences are there");
    }

    /// Waits until the server has let go of everything that a broken connection had under way.
    pub(crate) async fn wait_for_silence(&mut self) {
        let under_way = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
             AND application_name LIKE 'fencepost%' AND state <> 'idle'";
        loop {
            let count: i64 = sqlx::query_scalar(under_way)
                .fetch_one(&mut self.connection)
                .await
                .expect("anybody may look");
            if count == 0 {
                return;
            }
            tokio::task::yield_now().await;
        }
    }
}
