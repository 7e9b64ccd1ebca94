//! Watching: what each command wrote, as PostgreSQL itself saw it.
//!
//! Triggers of this test's own database copy every row that a statement inserted, updated or deleted into one
//! table, `seen_row`, in the writer's transaction, so that what is rolled back was not written. One query after
//! each command reads what was added since; nothing is deleted before the next seed. Nine of ten rows that are
//! written are leases: they go to a table of their own, which has no columns but theirs, and are read where
//! `seen_row` says that there are some. What the rows were before is known from what was seen of them earlier, and
//! that this is all there is to know is checked at the end of each seed against the tables themselves.
//!
//! The same table is where faults strike: a constraint trigger on it fires when a transaction commits, and does
//! on connections that are armed (`simulation.strike`) what their setting says. No other connection pays for it
//! more than the look at one setting.

use std::collections::BTreeMap;
use std::fmt::Write;

use fencepost_core::store::change::Change;
use sqlx::postgres::PgRow;
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
    CREATE CONSTRAINT TRIGGER strike AFTER INSERT ON seen_row DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
        WHEN (current_setting('simulation.strike', true) <> '') EXECUTE FUNCTION strike();
";

const SEEN: &str = "SELECT * FROM seen_row WHERE number > $1 ORDER BY number";
const SEEN_LEASES: &str = "SELECT * FROM seen_lease WHERE number > $1 ORDER BY number";

/// Leases are never deleted but to be made anew, before anything is watched.
const SEE_LEASES: &str = "
    CREATE UNLOGGED TABLE seen_lease (number bigserial PRIMARY KEY, LIKE lease);
    CREATE FUNCTION see_lease() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO seen_lease (owner, token, nonce, expires_at, resource)
            SELECT owner, token, nonce, expires_at, resource FROM written;
        IF FOUND THEN
            INSERT INTO seen_row (of_table, is_gone) VALUES ('lease', TG_OP = 'DELETE');
        END IF;
        RETURN NULL;
    END $$;
";

/// The watching side of one database.
pub(crate) struct Watch {
    connection: PgConnection,
    /// Up to where `seen_row` was read, and `seen_lease`.
    through: i64,
    leases_through: i64,
    /// Every row, as it was last seen.
    rows: BTreeMap<RowKey, Stored>,
}

impl Watch {
    /// Installs the triggers.
    pub(crate) async fn install(database: &Database) -> Self {
        let mut connection = database.connect().await;
        let mut shared: BTreeMap<String, String> = BTreeMap::new();
        let (mut script, mut triggers) = (SEE_LEASES.to_owned(), String::new());
        for table in TABLES {
            let columns: Vec<(String, String)> = sqlx::query_as(
                "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute \
                 WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            )
            .bind(table)
            .fetch_all(&mut connection)
            .await
            .expect("the tables are there");
            for (deed, rows) in [("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD")] {
                writeln!(
                    triggers,
                    "CREATE TRIGGER see_{deed} AFTER {deed} ON {table} REFERENCING {rows} TABLE AS written \
                     FOR EACH STATEMENT EXECUTE FUNCTION see_{table}();"
                )
                .expect("a string takes everything");
            }
            if *table == "lease" {
                continue;
            }
            let mut names = String::new();
            for (column, kind) in columns {
                write!(names, ", {column}").expect("a string takes everything");
                let known = shared.entry(column).or_insert_with(|| kind.clone());
                assert_eq!(known, &kind, "columns of one name share one");
            }
            write!(
                script,
                "CREATE FUNCTION see_{table}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                   INSERT INTO seen_row (of_table, is_gone{names}) \
                     SELECT '{table}', TG_OP = 'DELETE'{names} FROM written; \
                   RETURN NULL; END $$;\n"
            )
            .expect("a string takes everything");
        }
        let columns: String = shared.iter().map(|(name, kind)| format!(", {name} {kind}")).collect();
        let script = format!(
            "CREATE UNLOGGED TABLE seen_row (number bigserial PRIMARY KEY, of_table text NOT NULL, \
             is_gone boolean NOT NULL{columns}); {script} {triggers} {STRIKING}"
        );
        sqlx::raw_sql(AssertSqlSafe(script)).execute(&mut connection).await.expect("triggers may be made");
        sqlx::raw_sql("SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off")
            .execute(&mut connection)
            .await
            .expect("settings that there are");
        Self { connection, through: 0, leases_through: 0, rows: BTreeMap::new() }
    }

    /// Empties every table, and begins to watch what is left: the leases.
    pub(crate) async fn empty(&mut self, database: &Database) -> Store {
        let statement = format!("TRUNCATE seen_row, seen_lease, api_key, {}", TABLES.join(", "));
        sqlx::query(AssertSqlSafe(statement)).execute(database.pool()).await.expect("nobody locks them");
        let store = database.empty_store().await;
        self.rows = Stored::all(contents::read(&mut self.connection).await);
        for (table, through) in [("seen_row", &mut self.through), ("seen_lease", &mut self.leases_through)] {
            let last = format!("SELECT coalesce(max(number), 0) FROM {table}");
            *through = sqlx::query_scalar(AssertSqlSafe(last))
                .fetch_one(&mut self.connection)
                .await
                .expect("the table is there");
        }
        store
    }

    /// What was written since the last look: each row's first state and its last, by key.
    pub(crate) async fn look(&mut self) -> BTreeMap<RowKey, Change> {
        let mut before = BTreeMap::new();
        let mut leases_too = false;
        for row in self.read(SEEN, self.through).await {
            self.through = row.get("number");
            let (table, is_gone): (&str, bool) = (row.get("of_table"), row.get("is_gone"));
            if table == "lease" {
                assert!(!is_gone, "no command deletes a lease");
                leases_too = true;
            } else {
                self.saw(Stored::read(table, &row), is_gone, &mut before);
            }
        }
        if leases_too {
            for row in self.read(SEEN_LEASES, self.leases_through).await {
                self.leases_through = row.get("number");
                self.saw(Stored::read("lease", &row), false, &mut before);
            }
        }
        let change = |(key, before): (RowKey, _)| {
            let change = Stored::change(before, self.rows.get(&key).cloned())?;
            Some((key, change))
        };
        before.into_iter().filter_map(change).collect()
    }

    async fn read(&mut self, query: &'static str, through: i64) -> Vec<PgRow> {
        sqlx::query(query).bind(through).fetch_all(&mut self.connection).await.expect("the table is there")
    }

    /// A row was written, or deleted.
    fn saw(&mut self, row: Stored, is_gone: bool, before: &mut BTreeMap<RowKey, Option<Stored>>) {
        let key = row.key();
        let earlier = if is_gone { self.rows.remove(&key) } else { self.rows.insert(key.clone(), row) };
        before.entry(key).or_insert(earlier);
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
