//! `fencepost verify` as it is typed: what it says of a database that was worked on, and how it exits.

use std::process::{Command, Output};
use std::time::Duration;

use fencepost_tests::{own_database, waiting};
use serde_json::Value;
use sqlx::{ConnectOptions, Connection};

use crate::cluster::TrustWindow;
use crate::process;

/// How long anything may take that is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// What it says of a database that real processes worked on: nothing is violated, and there was much to look at. With
/// trust windows there may have been no refusals, since they silence who was frozen; without them there were some.
pub(crate) async fn holds(environment: &[(&'static str, String)], trust: TrustWindow) {
    let mut worked_on =
        vec!["no-phantom-fire", "no-lost-fire", "paused-is-silent", "lag-adds-up", "conservation"];
    match trust {
        TrustWindow::On => {}
        TrustWindow::Off => worked_on.push("ledger-of-refusals"),
    }
    let report = process::run(&["verify", "--json"], environment).await;
    let report: Value = serde_json::from_str(&report).expect("it is one JSON document");
    assert_eq!(report["holds"], true, "{report:#}");
    let checks = report["checks"].as_array().expect("a list of checks");
    for id in worked_on {
        let check = checks.iter().find(|check| check["check"] == id).expect("each check is told");
        assert!(check["looked_at"].as_u64().is_some_and(|rows| rows > 0), "{check:#}");
    }
}

async fn verify(arguments: &[&str], url: &str) -> Output {
    let arguments = [&["verify"], arguments].concat();
    let environment = [("DATABASE_URL", url.to_owned())];
    process::command(arguments, &environment).output().await.expect("the program can be run")
}

fn told(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[tokio::test]
async fn verify_tells_by_its_exit_code_what_it_came_to() {
    let name = own_database::name("verify_exits");
    let options = own_database::create(&name).await;
    let url = String::from(options.to_url_lossy());
    let (code, _, told_at_all) = told(&verify(&[], &url).await);
    assert_eq!(code, Some(69), "there is no schema: {told_at_all}");

    process::run(&["migrate"], &[("DATABASE_URL", url.clone())]).await;
    let (code, table, _) = told(&verify(&[], &url).await);
    assert_eq!(code, Some(0), "{table}");
    assert!(table.contains("token-monotone") && table.contains("nothing to look at"), "{table}");

    for wrong in [
        ["--from", "yesterday"].as_slice(),
        &["--to", "2026-03-02"],
        &["--from", "2026-03-02T08:00:00Z", "--to", "2026-03-01T08:00:00Z"],
        &["--since", "2026-03-02T08:00:00Z"],
    ] {
        let (code, stdout, stderr) = told(&verify(wrong, &url).await);
        assert_eq!((code, stdout.as_str()), (Some(64), ""), "{wrong:?}: {stderr}");
    }
    let (code, _, stderr) = told(&verify(&[], "postgres://nobody@127.0.0.1:1/nothing").await);
    assert_eq!(code, Some(69), "{stderr}");

    let mut connection = options.connect().await.expect("the database is there");
    sqlx::query("DELETE FROM lease WHERE resource = 5").execute(&mut connection).await.expect("it is there");
    let (code, table, stderr) = told(&verify(&[], &url).await);
    assert_eq!(code, Some(1), "{table}{stderr}");
    assert!(
        table.contains("the lease row of partition 5 is gone") && stderr.contains("conservation"),
        "{table}{stderr}"
    );
    let (code, document, _) = told(&verify(&["--json", "--from", "2026-03-02T08:00:00Z"], &url).await);
    let document: Value = serde_json::from_str(&document).expect("it is one JSON document");
    assert_eq!((code, &document["holds"]), (Some(1), &Value::Bool(false)));
    assert_eq!((&document["from"], &document["to"]), (&"2026-03-02T08:00:00.000000Z".into(), &Value::Null));

    // It waits for a table that is locked, until it is interrupted.
    sqlx::raw_sql("BEGIN; LOCK TABLE execution").execute(&mut connection).await.expect("nobody else has it");
    let child = process::command(["verify"], &[("DATABASE_URL", url)])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the program can be run");
    let pid = child.id().expect("it runs");
    waiting::until("it waits for the table", PATIENCE, async || {
        let waits = "SELECT count(*) FROM pg_locks WHERE relation = 'execution'::regclass AND NOT granted";
        let waiting: i64 = sqlx::query_scalar(waits).fetch_one(&mut connection).await.expect("it is a view");
        (waiting > 0).then_some(())
    })
    .await;
    let interrupted = Command::new("sh").args(["-c", &format!("kill -INT {pid}")]).status();
    assert!(interrupted.expect("there is a shell").success());
    let (code, stdout, stderr) = told(&child.wait_with_output().await.expect("it ends"));
    assert_eq!((code, stdout.as_str()), (Some(130), ""), "{stderr}");
    connection.close().await.expect("nothing is under way");
    own_database::drop(&name).await;
}
