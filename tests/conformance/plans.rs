//! How PostgreSQL would execute each statement of the store, planned while the tables are empty.
//!
//! Plans are kept for as long as a connection lives, so one that suits an empty table must suit a full one.
//! What must stay true: no statement walks one of the large tables; each scan of them has an index condition.

use std::fs;
use std::path::{Path, PathBuf};

use fencepost::postgres::PLANNING;
use serde_json::Value;
use sqlx::{AssertSqlSafe, PgConnection, Row};

use crate::database::Database;

/// The tables that grow with the work.
const LARGE: [&str; 6] = ["job", "job_version", "execution", "outbox_event", "attempt", "dead_letter"];

/// A walk by intent: the sweep looks at every outbox row there is, in order, and stops at its limit. By how the
/// statement begins, and what it walks.
const WALK: (&str, &str) =
    ("SELECT o.execution, o.dispatch_no FROM outbox_event o JOIN execution e", "outbox_event_pkey");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The text of every file in a folder and in those below it.
fn sources(folder: &Path) -> String {
    let text = |path: PathBuf| {
        if path.is_dir() { sources(&path) } else { fs::read_to_string(&path).expect("text") }
    };
    let entries = fs::read_dir(folder).expect("the store's sources are there");
    entries.map(|entry| text(entry.expect("an entry").path())).collect()
}

/// The store's statements: those in `.sqlx` whose text stands in its sources. With their count of parameters.
fn statements() -> Vec<(String, usize)> {
    let sources = sources(&root().join("prod/src/postgres"));
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join(".sqlx")).expect("`.sqlx` is there") {
        let text = fs::read_to_string(entry.expect("a file").path()).expect("text");
        let known: Value = serde_json::from_str(&text).expect("`.sqlx` holds JSON");
        let statement = known["query"].as_str().expect("a statement");
        if sources.contains(statement) {
            let parameters = known["describe"]["parameters"]["Left"].as_array().map_or(0, Vec::len);
            found.push((statement.to_owned(), parameters));
        }
    }
    found.sort();
    found
}

async fn explain(connection: &mut PgConnection, statement: &str, parameters: usize) -> Value {
    let nulls =
        if parameters == 0 { String::new() } else { format!("({})", vec!["NULL"; parameters].join(", ")) };
    let prepare = format!("PREPARE looked_at AS {statement}");
    sqlx::raw_sql(AssertSqlSafe(prepare)).execute(&mut *connection).await.expect("`.sqlx` is up to date");
    let explain = format!("EXPLAIN (FORMAT JSON) EXECUTE looked_at{nulls}");
    let plan = sqlx::raw_sql(AssertSqlSafe(explain)).fetch_one(&mut *connection).await;
    sqlx::raw_sql("DEALLOCATE looked_at").execute(connection).await.expect("it was prepared");
    plan.expect("what is prepared has a plan").get(0)
}

/// Scans of large tables without an index condition.
fn walks(node: &Value, found: &mut Vec<String>) {
    let (kind, table) = (node["Node Type"].as_str().unwrap_or_default(), node["Relation Name"].as_str());
    let index = node["Index Name"].as_str().unwrap_or_default();
    let is_large = table.is_some_and(|table| LARGE.contains(&table));
    if is_large && kind.contains("Scan") && node["Index Cond"].is_null() {
        found.push(format!("{kind} of {} {index}", table.unwrap_or_default()));
    }
    for child in node["Plans"].as_array().into_iter().flatten() {
        walks(child, found);
    }
}

#[tokio::test]
async fn no_statement_walks_a_large_table() {
    let database = Database::create("plans").await;
    let mut connection = database.connect().await;
    for (name, value) in PLANNING {
        let set = format!("SET {name} = '{value}'");
        sqlx::raw_sql(AssertSqlSafe(set)).execute(&mut connection).await.expect("a setting of the server's");
    }
    let statements = statements();
    assert!(statements.len() > 40, "only {} statements were found", statements.len());
    let mut report = Vec::new();
    // Never looked at, a table counts as ten pages; vacuumed while empty, as one row.
    for known in ["nothing", "that all are empty"] {
        for (statement, parameters) in &statements {
            let plan = explain(&mut connection, statement, *parameters).await;
            let mut found = Vec::new();
            walks(&plan[0]["Plan"], &mut found);
            found.retain(|walk| !(statement.starts_with(WALK.0) && walk.ends_with(WALK.1)));
            if !found.is_empty() {
                report.push(format!("{found:?}, where the planner knows {known}, in {statement}"));
            }
        }
        sqlx::raw_sql("VACUUM ANALYZE")
            .execute(&mut connection)
            .await
            .expect("the database is the test's own");
    }
    assert!(report.is_empty(), "{report:#?}");
    drop(connection);
    database.remove().await;
}
