//! The whole of it, with real processes: two schedulers, two workers, an API, and a target that they call.
//!
//! Jobs are created over HTTP: a crontab as one finds them, and some that fire every second. Then a worker is
//! killed in the middle of its calls, and the scheduler that leads and owns partitions is frozen for three lease
//! times and thawed again. Afterwards the database and what the target saw are compared with a calendar, and
//! `fencepost verify` has nothing to say against it.
//!
//! Relies on `DATABASE_URL` and `AMQP_URL`, and on the program `fencepost` lying beside this test, as `./test`
//! sees to. Leases are short, so that a run takes about a minute. What must stay true: one execution per fire,
//! none missing; a call that is repeated carries the key of the first and a higher token; every refused write is
//! on record; a drain ends in time and leaves nothing held.

#[path = "end_to_end/changes.rs"]
mod changes;
#[path = "end_to_end/cluster.rs"]
mod cluster;
#[path = "end_to_end/crontab.rs"]
mod crontab;
#[path = "end_to_end/grounds.rs"]
mod grounds;
#[path = "end_to_end/ledger.rs"]
mod ledger;
#[path = "end_to_end/operator.rs"]
mod operator;
#[path = "end_to_end/process.rs"]
mod process;
#[path = "end_to_end/storm.rs"]
mod storm;
#[path = "end_to_end/target.rs"]
mod target;
#[path = "end_to_end/verdict.rs"]
mod verdict;
#[path = "end_to_end/verification.rs"]
mod verification;

use std::io::Write;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::Instant;

use cluster::{Cluster, TrustWindow};
use futures_util::FutureExt;
use grounds::Grounds;
use target::Target;
use tokio::sync::Mutex;
use verdict::Summary;

/// One run after the other: leases this short need a machine that has time for them.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fire_runs_once_while_a_worker_is_killed_and_a_scheduler_frozen() {
    run("trusting", TrustWindow::On).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_trust_windows_the_tokens_alone_keep_a_thawed_scheduler_out() {
    let summary = run("tokens_alone", TrustWindow::Off).await;
    assert!(
        summary.refused_to_thawed > 0,
        "the thawed scheduler acted under its old tokens, and nothing was refused to it"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_counts_from_its_moment_and_a_pause_passes_over_what_falls_into_it() {
    let _turn = ONE_AT_A_TIME.lock().await;
    let grounds = Grounds::prepare("changes").await;
    let lived = AssertUnwindSafe(async {
        let cluster = Cluster::start(&grounds, TrustWindow::On).await;
        changes::pass(&cluster, grounds.pool()).await;
    });
    match lived.catch_unwind().await {
        Ok(()) => grounds.remove().await,
        Err(panic) => {
            eprintln!("the logs of all processes are in {}", grounds.logs().display());
            grounds.leave_logs_and_remove().await;
            resume_unwind(panic)
        }
    }
}

/// Brings everything up, lets the storm pass, judges, and leaves nothing behind.
async fn run(purpose: &str, trust: TrustWindow) -> Summary {
    let _turn = ONE_AT_A_TIME.lock().await;
    let began = Instant::now();
    let grounds = Grounds::prepare(purpose).await;
    let lived = AssertUnwindSafe(live(&grounds, trust)).catch_unwind().await;
    match lived {
        Ok(summary) => {
            grounds.remove().await;
            // Past the capture of the test's output: these figures are worth seeing when all is well.
            let line =
                format!("end-to-end, {purpose}: {summary}; {:.1} s in all\n", began.elapsed().as_secs_f64());
            std::io::stderr().write_all(line.as_bytes()).expect("there is somebody to tell");
            summary
        }
        Err(panic) => {
            let logs = grounds.logs().display().to_string();
            eprintln!("the logs of all processes are in {logs}");
            grounds.leave_logs_and_remove().await;
            resume_unwind(panic)
        }
    }
}

async fn live(grounds: &Grounds, trust: TrustWindow) -> Summary {
    let target = Target::start().await;
    let mut cluster = Cluster::start(grounds, trust).await;
    let ledger = grounds.ledger();
    let story = storm::pass(&mut cluster, &ledger, &target, trust).await;
    let summary = verdict::judge(&story, &ledger, &target).await;
    verification::holds(&grounds.environment(), trust).await;
    summary
}
