//! `fencepost verify` on a real PostgreSQL: right rows hold, each corruption is found by its check, and it only reads.
//!
//! The rows are made by the store's own commands, at instants that the test passes in. A corruption is SQL on a copy of
//! that database in which nothing guards the rows any more. What must stay true: every check has rows to look at, and
//! a corruption that it alone is there to find.

#[path = "verify/corruptions.rs"]
mod corruptions;
#[path = "verify/stage.rs"]
pub(crate) mod stage;

use std::collections::BTreeSet;
use std::str::FromStr;

use corruptions::{CORRUPTIONS, UNGUARDED};
use fencepost::failure::Failure;
use fencepost::schema;
use fencepost::verify::{Progress, verify};
use fencepost_core::time::Timestamp;
use fencepost_core::verify::{Check, Report, Verdict, Window};
use fencepost_tests::own_database;
use fencepost_tests::server_url::database_url;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection};
use stage::Stage;

/// The URL of a test's database.
pub(crate) fn url_of(name: &str) -> String {
    let options = PgConnectOptions::from_str(&database_url()).expect("DATABASE_URL is a URL");
    String::from(options.database(name).to_url_lossy())
}

async fn connect(name: &str) -> PgConnection {
    let options = PgConnectOptions::from_str(&url_of(name)).expect("it was made from one");
    options.connect().await.expect("the database is there")
}

async fn run(connection: &mut PgConnection, statements: &str) {
    if let Err(error) = sqlx::raw_sql(AssertSqlSafe(statements.to_owned())).execute(connection).await {
        panic!("{statements}: {error}");
    }
}

async fn verified(name: &str, window: Window) -> Report {
    verify(&url_of(name), window, &Progress::default()).await.expect("the database can be read")
}

fn violated(report: &Report) -> Vec<Check> {
    report.violated().map(|check| check.check).collect()
}

#[tokio::test]
async fn rows_of_the_store_hold_and_each_corruption_is_found_by_its_check() {
    let base = Stage::worked("verify").await;
    let report = verified(&base, Window::ALL).await;
    for check in &report.checks {
        assert_eq!(check.verdict, Verdict::Holds, "{check:#?}");
    }
    let mut connection = connect(&base).await;
    run(&mut connection, UNGUARDED).await;
    connection.close().await.expect("nothing is under way");

    let copy = own_database::name("verify_copy");
    let mut wrong = Vec::new();
    for (check, name, corrupt) in CORRUPTIONS {
        let mut admin = connect("postgres").await;
        run(&mut admin, &format!("DROP DATABASE IF EXISTS {copy} WITH (FORCE)")).await;
        run(&mut admin, &format!("CREATE DATABASE {copy} TEMPLATE {base}")).await;
        let mut connection = connect(&copy).await;
        run(&mut connection, corrupt).await;
        connection.close().await.expect("nothing is under way");
        let report = verified(&copy, Window::ALL).await;
        if !violated(&report).contains(check) {
            let found: Vec<_> = report.violated().map(|check| (check.check, &check.found)).collect();
            wrong.push(format!("{name} is not found by {check}, but by {found:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let covered: BTreeSet<Check> = CORRUPTIONS.iter().map(|(check, _, _)| *check).collect();
    assert_eq!(covered, Check::ALL.iter().copied().collect(), "each check finds a corruption of its own");
    own_database::drop(&copy).await;
    own_database::drop(&base).await;
}

#[tokio::test]
async fn a_window_is_looked_at_alone_and_the_snapshot_takes_no_write() {
    let base = Stage::worked("verify_window").await;
    let at = |time: &str| Timestamp::parse_rfc3339(&format!("2026-03-02T{time}Z")).expect("an instant");
    let window = Window { from: at("08:02:00"), to: at("08:05:00") };
    let report = verified(&base, window).await;
    assert!(report.holds, "{report:#?}");
    assert_eq!(report.of(Check::NoPhantomFire).looked_at, 2, "08:02 and 08:03");
    assert_eq!(report.from, Some(window.from));

    // A session that may not write at all is enough.
    let reads_only = format!("{}&options=-c%20default_transaction_read_only%3Don", url_of(&base));
    let reads_only = if url_of(&base).contains('?') { reads_only } else { reads_only.replacen('&', "?", 1) };
    let report = verify(&reads_only, Window::ALL, &Progress::default()).await.expect("it reads only");
    assert!(report.holds);
    own_database::drop(&base).await;
}

#[tokio::test]
async fn more_rows_than_pages_hold_are_all_looked_at_and_one_wrong_one_is_found_among_them() {
    let name = own_database::name("verify_many");
    let options = own_database::create(&name).await;
    let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(options);
    schema::migrate(&pool).await.expect("an empty database can be migrated");
    pool.close().await;
    let mut connection = connect(&name).await;
    run(&mut connection, include_str!("verify/many.sql")).await;
    run(&mut connection, "SELECT make(1100, 3)").await;
    let report = verified(&name, Window::ALL).await;
    assert!(report.holds, "{report:#?}");
    assert_eq!(report.of(Check::NoLostFire).looked_at, 1_100);
    for check in [Check::NoPhantomFire, Check::LagAddsUp, Check::AttemptBounds] {
        assert_eq!(report.of(check).looked_at, 3_300, "{check}");
    }

    let last = "DELETE FROM execution WHERE (job, fire) = (SELECT job, max(fire) FROM execution
                WHERE job = (SELECT id FROM job ORDER BY id DESC LIMIT 1) GROUP BY job)";
    run(&mut connection, last).await;
    connection.close().await.expect("nothing is under way");
    let report = verified(&name, Window::ALL).await;
    assert_eq!(violated(&report), [Check::NoLostFire, Check::Conservation], "{report:#?}");
    assert_eq!(report.of(Check::NoLostFire).violations, 1);
    own_database::drop(&name).await;
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_told_and_the_rest_is_judged() {
    let base = Stage::worked("verify_unreadable").await;
    let mut connection = connect(&base).await;
    run(&mut connection, UNGUARDED).await;
    run(&mut connection, "UPDATE execution SET state = 'asleep' WHERE fire = t('08:01')").await;
    run(&mut connection, "UPDATE execution SET key = 'x' WHERE fire = t('08:03')").await;
    connection.close().await.expect("nothing is under way");
    let report = verified(&base, Window::ALL).await;
    assert!(violated(&report).contains(&Check::UniqueOccurrence), "{report:#?}");
    let told = &report.of(Check::Conservation).found;
    assert!(told.iter().any(|finding| finding.what.contains("asleep")), "{told:#?}");
    own_database::drop(&base).await;
}

#[tokio::test]
async fn a_database_without_the_schema_or_out_of_reach_is_a_service_that_is_not_there() {
    let name = own_database::name("verify_empty");
    own_database::create(&name).await;
    let failed = |url: String| async move {
        verify(&url, Window::ALL, &Progress::default()).await.expect_err("there is nothing to read")
    };
    let code = |failure: &Failure| format!("{:?}", failure.exit_code());
    let expected = format!("{:?}", std::process::ExitCode::from(69));
    let no_schema = failed(url_of(&name)).await;
    assert_eq!(code(&no_schema), expected, "{no_schema}");
    assert!(no_schema.to_string().contains("fencepost migrate"), "{no_schema}");
    let nobody = failed("postgres://nobody@127.0.0.1:1/nothing".to_owned()).await;
    assert_eq!(code(&nobody), expected, "{nobody}");
    own_database::drop(&name).await;
}
