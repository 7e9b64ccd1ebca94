//! The storm: jobs are created, a worker is killed, a scheduler frozen and thawed, work ended, all drained.
//!
//! Relies on nothing but what an operator sees, and on the tables to know when to strike. What must stay true:
//! each blow falls while it hurts (calls under way, leases held), and every wait is for a condition.

use std::time::Duration;

use fencepost_core::time::{Span, Timestamp};
use fencepost_tests::waiting::until;
use uuid::Uuid;

use crate::cluster::{Cluster, DRAIN_WITHIN, LEASE, TrustWindow};
use crate::crontab;
use crate::ledger::{Ledger, Refusals};
use crate::operator::Wish;
use crate::process::Signal;
use crate::target::Target;

/// How long anything may take that is waited for. Generous: a slow machine is no failure.
const PATIENCE: Duration = Duration::from_secs(90);
/// What firing every second looks like.
const EVERY_SECOND: &str = "* * * * * *";
/// Jobs that fire every second and are answered at once.
const TICKS: u32 = 10;
/// How long the target takes over those that are not.
const PAUSES_MS: [u32; 3] = [2_000, 3_000, 4_000];
/// The job of the crontab that fires every minute, so that it can be waited for.
const EVERY_MINUTE: &str = "heartbeat-probe";
/// A call that arrived no longer ago than this will not be answered before its caller is killed.
const JUST_ARRIVED: Duration = Duration::from_millis(700);
/// What an exit may take beyond the drain: closing connections, on a machine that does much else.
const EXIT_SLACK: Duration = Duration::from_secs(5);

/// A job that fires by itself.
#[derive(Clone, Debug)]
pub(crate) struct ScheduledJob {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    pub(crate) cron: String,
}

impl ScheduledJob {
    /// Whether it fires at every whole second.
    pub(crate) fn is_every_second(&self) -> bool {
        self.cron == EVERY_SECOND
    }
}

/// What happened, for the verdict.
pub(crate) struct Story {
    pub(crate) jobs: Vec<ScheduledJob>,
    /// Up to here every fire was waited for; after it jobs were deleted.
    pub(crate) through: i64,
    /// Executions whose calls were under way when their worker was killed.
    pub(crate) caught: Vec<Uuid>,
    /// The scheduler that was frozen and thawed.
    pub(crate) thawed: String,
    /// What the processes that were not killed say was refused to them.
    pub(crate) refused: Refusals,
}

/// Lets it pass. At the end every process has ended.
pub(crate) async fn pass(
    cluster: &mut Cluster,
    ledger: &Ledger,
    target: &Target,
    trust: TrustWindow,
) -> Story {
    shares_are_fair(cluster, ledger).await;
    let jobs = create_jobs(cluster, target).await;
    let errand = Wish { name: "errand".to_owned(), cron: None, url: target.url("/slow/4000/errand") };
    let errand = cluster.operator.create(&errand).await;
    let every_second: Vec<Uuid> = jobs.iter().filter(|job| job.is_every_second()).map(|job| job.id).collect();
    runs_since(ledger, &every_second, 0, 3).await;

    let (killed, caught) = kill_a_worker(cluster, ledger, target).await;
    let (thawed, thawed_at) = freeze_the_leader(cluster, ledger).await;
    match trust {
        TrustWindow::On => {
            let every_minute = jobs.iter().filter(|job| job.name == EVERY_MINUTE).map(|job| job.id);
            runs_since(ledger, &every_minute.collect::<Vec<Uuid>>(), 0, 1).await;
        }
        TrustWindow::Off => {
            until("the thawed scheduler is refused something", PATIENCE, async || {
                (ledger.refused_under_leases(&thawed).await > 0).then_some(())
            })
            .await;
        }
    }
    shares_are_fair(cluster, ledger).await;
    until("what the killed worker was at is completed", PATIENCE, async || {
        (ledger.completed(&caught).await == caught.len()).then_some(())
    })
    .await;
    runs_since(ledger, &every_second, thawed_at, 5).await;

    let through = end_work(cluster, ledger, &jobs).await;
    drain_a_busy_worker(cluster, ledger, target, errand).await;
    let refused = refused_to(cluster).await;
    drain_the_rest(cluster, ledger, &killed).await;
    Story { jobs, through, caught, thawed, refused }
}

/// Both schedulers own half of the partitions, and one of them leads.
async fn shares_are_fair(cluster: &Cluster, ledger: &Ledger) {
    let half = 128 / i64::try_from(cluster.schedulers.len()).expect("two");
    until("each scheduler owns its share, and one leads", PATIENCE, async || {
        let owners = ledger.owners().await;
        let fair = owners.len() == cluster.schedulers.len() && owners.values().all(|share| *share == half);
        (fair && ledger.leader().await.is_some()).then_some(())
    })
    .await;
}

/// The crontab, line by line, and those that fire every second. What no cron expression can say is refused.
async fn create_jobs(cluster: &Cluster, target: &Target) -> Vec<ScheduledJob> {
    let mut wishes = Vec::new();
    for line in crontab::lines() {
        let url = target.url(&format!("/fast/{}", line.command));
        let wish = Wish { name: line.command, cron: Some(line.schedule), url };
        if wish.cron.as_deref() == Some(crontab::AT_BOOT) {
            assert_eq!(cluster.operator.is_refused(&wish).await, "/schedule/expr");
        } else {
            assert_eq!(cluster.operator.preview(&wish, "2026-01-01T00:00:00Z", 2).await.len(), 2, "{wish:?}");
            wishes.push(wish);
        }
    }
    assert!(wishes.len() >= 50, "the crontab has only {} jobs", wishes.len());
    wishes.extend((0..TICKS).map(|number| {
        let name = format!("tick-{number}");
        Wish { url: target.url(&format!("/fast/{name}")), name, cron: Some(EVERY_SECOND.to_owned()) }
    }));
    wishes.extend(PAUSES_MS.iter().map(|pause| {
        let name = format!("slow-{pause}");
        Wish { url: target.url(&format!("/slow/{pause}/{name}")), name, cron: Some(EVERY_SECOND.to_owned()) }
    }));
    let mut jobs = Vec::new();
    for wish in wishes {
        let id = cluster.operator.create(&wish).await;
        let cron = wish.cron.expect("all of these fire by themselves");
        jobs.push(ScheduledJob { id, name: wish.name, cron });
    }
    jobs
}

/// Every one of these jobs has completed so many fires after that instant.
async fn runs_since(ledger: &Ledger, jobs: &[Uuid], after: i64, fires: i64) {
    let what = format!("{} jobs have completed {fires} fires", jobs.len());
    until(&what, PATIENCE, async || {
        (ledger.jobs_with_completed(jobs, after, fires).await == jobs.len()).then_some(())
    })
    .await;
}

/// Kills a worker whose calls the target has just taken in: its name, and the executions that it was at.
async fn kill_a_worker(cluster: &mut Cluster, ledger: &Ledger, target: &Target) -> (String, Vec<Uuid>) {
    let (label, mut caught) = until("a worker is in the middle of slow calls", PATIENCE, async || {
        let waiting = target.waiting_since(JUST_ARRIVED);
        let by_worker = ledger.running(&waiting).await;
        by_worker.into_iter().find(|(_, executions)| executions.len() > 1)
    })
    .await;
    cluster.take_worker(&label).kill().await;
    // What was answered after all may have been recorded, too.
    caught.retain(|execution| !target.has_answered(*execution));
    assert!(!caught.is_empty(), "{label} was killed, and had been answered before");
    (label, caught)
}

/// Freezes the scheduler that leads until others have taken over what it held and three lease times have
/// passed; meanwhile a new worker starts. Which it was, and when it was thawed.
async fn freeze_the_leader(cluster: &mut Cluster, ledger: &Ledger) -> (String, i64) {
    let leader = until("somebody leads and owns partitions", PATIENCE, async || {
        let leader = ledger.leader().await?;
        ledger.owners().await.contains_key(&leader).then_some(leader)
    })
    .await;
    cluster.scheduler(&leader).signal(Signal::Freeze);
    let frozen_at = ledger.now().await;
    cluster.start_worker("worker-3").await;
    until("another scheduler leads and owns all partitions", PATIENCE, async || {
        let owners = ledger.owners().await;
        let other_leads = ledger.leader().await.is_some_and(|label| label != leader);
        (other_leads && !owners.contains_key(&leader) && owners.values().sum::<i64>() == 128).then_some(())
    })
    .await;
    let three_leases = i64::try_from((LEASE * 3).as_micros()).expect("seconds");
    let thawed_at = until("three lease times have passed", PATIENCE, async || {
        Some(ledger.now().await).filter(|now| *now >= frozen_at + three_leases)
    })
    .await;
    cluster.scheduler(&leader).signal(Signal::Thaw);
    (leader, thawed_at)
}

/// Waits until every fire so far has run, deletes all jobs, and waits until nothing is left to do. Up to when
/// every fire was waited for.
async fn end_work(cluster: &Cluster, ledger: &Ledger, jobs: &[ScheduledJob]) -> i64 {
    let through = ledger.now().await;
    until("every fire so far has run", PATIENCE, async || {
        (ledger.open_through(through).await == 0).then_some(())
    })
    .await;
    let ticking = jobs.iter().find(|job| job.is_every_second()).expect("there are such jobs");
    let shown = cluster.operator.next_fires(ticking.id, 3).await;
    let after = Timestamp::from_micros(ledger.now().await).plus(Span::from_secs(60)).to_string();
    assert!(
        shown.len() == 3 && shown[0] > Timestamp::from_micros(through).to_string() && shown[2] < after,
        "{shown:?}"
    );
    for job in jobs {
        cluster.operator.delete(job.id).await;
    }
    assert_eq!(cluster.operator.next_fires(ticking.id, 3).await, [""; 0], "a deleted job fires no more");
    until("no execution is left live, and the outbox is empty", PATIENCE, async || {
        (ledger.unfinished().await == 0).then_some(())
    })
    .await;
    the_ledger_is_what_ran(cluster, ledger, jobs).await;
    through
}

/// What the API says became of every fire is what is in the tables, whatever the size of a page.
async fn the_ledger_is_what_ran(cluster: &Cluster, ledger: &Ledger, jobs: &[ScheduledJob]) {
    let executions = ledger.executions().await;
    for (job, page) in jobs.iter().zip([1_000, 7, 50].into_iter().cycle()) {
        let mut made: Vec<(String, Uuid)> = executions
            .iter()
            .filter(|execution| execution.job == job.id)
            .filter_map(|execution| Some((Timestamp::from_micros(execution.fire?).to_string(), execution.id)))
            .collect();
        made.sort();
        assert_eq!(cluster.operator.ledger(job.id, page).await, made, "the ledger of {}", job.name);
    }
    assert_eq!(cluster.operator.dead_letters().await, 0, "every attempt that failed was tried again");
}

/// Asks a worker to drain while it is in the middle of a call: it says that it is not ready, ends the call, and
/// goes.
async fn drain_a_busy_worker(cluster: &mut Cluster, ledger: &Ledger, target: &Target, errand: Uuid) {
    let execution = cluster.operator.trigger(errand).await;
    let label = until("the errand is under way", PATIENCE, async || {
        let waiting = target.waiting_since(JUST_ARRIVED);
        ledger.running(&waiting).await.into_keys().next()
    })
    .await;
    let mut worker = cluster.take_worker(&label);
    worker.signal(Signal::Terminate);
    let body = until("a draining worker is not ready", DRAIN_WITHIN, async || {
        worker.get("/readyz").await.filter(|(status, _)| *status == 503).map(|(_, body)| body)
    })
    .await;
    assert!(body.contains(r#""draining":true"#), "{body}");
    worker.ends_well(DRAIN_WITHIN + EXIT_SLACK).await;
    assert_eq!(ledger.completed(&[execution]).await, 1, "a drain leaves what runs the time to end");
}

/// What the processes say was refused to them.
async fn refused_to(cluster: &mut Cluster) -> Refusals {
    let mut refused = Refusals::new();
    for process in cluster.processes() {
        let (_, metrics) = process.get("/metrics").await.expect("it is running");
        for line in metrics.lines().filter_map(|line| line.strip_prefix("fencepost_writes_refused_total")) {
            let label = |name: &str| {
                let (_, rest) = line.split_once(&format!("{name}=\"")).expect("it has this label");
                rest.split('"').next().expect("a label has an end").to_owned()
            };
            let (_, count) = line.rsplit_once(' ').expect("a sample has a value");
            let count: i64 = count.parse().expect("a counter is a whole number");
            *refused.entry((label("resource"), label("action"))).or_default() += count;
        }
    }
    refused
}

/// Asks everybody else to drain: all end well and in time, and nothing is held any more.
async fn drain_the_rest(cluster: &mut Cluster, ledger: &Ledger, killed: &str) {
    for process in cluster.processes() {
        process.signal(Signal::Terminate);
    }
    for process in cluster.processes() {
        process.ends_well(DRAIN_WITHIN + EXIT_SLACK).await;
    }
    assert_eq!(ledger.held_leases().await, 0, "whoever has drained holds nothing");
    let present: Vec<String> =
        ledger.present_nodes().await.into_iter().filter(|label| label != killed).collect();
    assert!(present.is_empty(), "{present:?} drained and did not report it");
}
