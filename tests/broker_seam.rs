//! The broker's seam: whatever RabbitMQ does is among what the simulated broker may do.
//!
//! Generated scripts are played on RabbitMQ, through production's own publisher, consumer and topology and
//! past them, and an acceptor made of the simulator's broker looks for an order of things that explains what
//! was seen. `BROKER_SCRIPTS` (200) says how many scripts, `BROKER_SEED` (1) where they begin. Some have a
//! broker of their own, where there are alarms, length limits and restarts; these go in step, since what
//! happens to a broker happens to all. A search that is given up decides nothing: it is told, and more than one such
//! script in a hundred fail the run. What must stay true: a run in which some kind of thing never happened
//! fails, however well everything was explained.

#[path = "broker_seam/acceptor.rs"]
mod acceptor;
#[path = "broker_seam/doctored.rs"]
mod doctored;
#[path = "broker_seam/history.rs"]
mod history;
#[path = "broker_seam/parties.rs"]
mod parties;
#[path = "broker_seam/play.rs"]
mod play;
#[path = "broker_seam/script.rs"]
mod script;
#[path = "broker_seam/tally.rs"]
mod tally;

use std::thread;
use std::time::Instant;

use fencepost_tests::server_url;
use fencepost_tests::throwaway::{Kind, Throwaway};
use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};

use history::{Act, Down};
use play::{Explained, Failure, Player};
use script::{LENGTH_LIMIT, Length, Party, Script, Step};
use tally::Tally;

/// Scripts that meet alarms and length limits, and scripts that meet restarts.
const ALARMED: u64 = 10;
const RESTARTED: u64 = 6;
/// So many threads play the scripts of the common broker, each so many at once.
const THREADS: usize = 4;
const ABREAST: usize = 4;
/// The most windows that a script has.
const WINDOWS_MAX: usize = 14;
/// Of so many scripts the search of one may be given up.
const EXPLAINED_OF_ONE_GIVEN_UP: u64 = 100;
/// Fewer scripts than this need not show everything.
const SHOWS_EVERYTHING: u64 = 200;

type Played = Result<Explained, Failure>;

fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is a number, not `{text}`")),
        Err(_) => default,
    }
}

#[test]
fn whatever_rabbitmq_does_the_simulated_broker_may_do() {
    let (scripts, seed) = (setting("BROKER_SCRIPTS", 200), setting("BROKER_SEED", 1));
    let began = Instant::now();
    let runtime = || tokio::runtime::Runtime::new().expect("the machine has threads");
    let (common_runtime, own_runtime) = (runtime(), runtime());
    let on_their_own = ALARMED + RESTARTED;
    // However one of them ends, the other comes to its end, and its broker is removed.
    let played: Vec<Played> = thread::scope(|scope| {
        let own = scope.spawn(|| own_runtime.block_on(on_a_broker_of_their_own(seed)));
        let common = seed + on_their_own..seed + scripts.max(on_their_own);
        let threads = (0..THREADS).map(|at| {
            let (runtime, seeds) = (&common_runtime, common.clone().skip(at).step_by(THREADS));
            scope.spawn(move || runtime.block_on(ordinary(seeds)))
        });
        let threads: Vec<_> = threads.collect();
        let played = threads.into_iter().flat_map(|thread| thread.join().expect("it tells its failures"));
        let mut played: Vec<Played> = played.collect();
        println!("{} scripts on the common broker in {:.1} s", played.len(), began.elapsed().as_secs_f64());
        played.extend(own.join().expect("it tells its failures"));
        played
    });
    let count = played.len() as u64;
    let mut tally = Tally::default();
    let (mut unexplained, mut given_up, mut longest_search) = (Vec::new(), Vec::new(), 0);
    for result in played {
        match result {
            Ok(Explained { history, longest_search: states }) => {
                tally.add(&history);
                longest_search = longest_search.max(states);
            }
            Err(Failure::Unexplained { seed: script, report }) => {
                unexplained.push(format!("{report}\nto repeat it: {}", repeating(script, seed)));
            }
            Err(Failure::GivenUp { seed }) => given_up.push(seed),
        }
    }
    println!("{count} scripts in {:.1} s\n{tally}", began.elapsed().as_secs_f64());
    println!("the longest search looked at {longest_search} states; given up: {given_up:?}");
    assert!(
        unexplained.is_empty(),
        "{} scripts are not explained:\n{}",
        unexplained.len(),
        unexplained.join("\n\n")
    );
    assert!(
        given_up.len() as u64 <= count / EXPLAINED_OF_ONE_GIVEN_UP,
        "of {count} scripts the search was given up for {given_up:?}"
    );
    if scripts >= SHOWS_EVERYTHING {
        assert_eq!(tally.never(), Vec::<&str>::new(), "a run without these shows too little");
    }
}

/// What plays a script again, and as few others as may be. It repeats what is asked, not what a broker makes of it.
fn repeating(script: u64, seed: u64) -> String {
    let on_their_own = ALARMED + RESTARTED;
    let (seed, scripts) = match script.checked_sub(seed + on_their_own) {
        None => (seed, on_their_own),
        Some(_) => (script - on_their_own, on_their_own + 1),
    };
    format!(
        "BROKER_SEED={seed} BROKER_SCRIPTS={scripts} cargo test --workspace --features fencepost-tests/servers \
         --test broker_seam, with DATABASE_URL and AMQP_URL set"
    )
}

/// Scripts on the broker that everybody shares.
async fn ordinary(seeds: impl Iterator<Item = u64>) -> Vec<Played> {
    let url = server_url::amqp_url();
    let plays = seeds.map(|seed| {
        let url = url.clone();
        async move {
            let prefix = format!("seam-{}-{seed}", std::process::id());
            Player::new(&url, &prefix, Script::of(seed, Length::Free)).await.play().await
        }
    });
    stream::iter(plays).buffer_unordered(ABREAST).collect().await
}

/// Scripts during which things happen to the whole broker.
async fn on_a_broker_of_their_own(seed: u64) -> Vec<Played> {
    let broker = tokio::task::block_in_place(|| Throwaway::start(Kind::Rabbitmq));
    let limit = format!(r#"{{"max-length":{LENGTH_LIMIT},"overflow":"reject-publish"}}"#);
    control(&broker, &["set_policy", "limits", "^limited-", &limit]);
    let mut played = alarmed(&broker, seed).await;
    played.extend(restarted(&broker, seed + ALARMED).await);
    tokio::task::block_in_place(|| {
        // Nobody needs what it has, and a good end takes long.
        broker.kill();
        drop(broker);
    });
    played
}

fn control(broker: &Throwaway, words: &[&str]) {
    tokio::task::block_in_place(|| broker.control(words));
}

async fn alarmed(broker: &Throwaway, seed: u64) -> Vec<Played> {
    let players = (seed..seed + ALARMED).map(async |seed| {
        let (prefix, length) = match seed % 2 {
            0 => (format!("limited-{seed}"), Length::Limited),
            _ => (format!("free-{seed}"), Length::Free),
        };
        Player::new(broker.url(), &prefix, Script::of(seed, length)).await
    });
    let mut group = Group { players: join_all(players).await, failed: Vec::new() };
    for at in 0..WINDOWS_MAX {
        match at {
            3 => {
                control(broker, &["set_vm_memory_high_watermark", "0.0000001"]);
                group.all(async |player| player.alarm(Act::Alarm).await).await;
            }
            6 => {
                control(broker, &["set_vm_memory_high_watermark", "0.8"]);
                group.all(async |player| player.alarm(Act::AlarmOver).await).await;
            }
            _ => {}
        }
        group.all(async |player| player.window(at).await).await;
    }
    group.finish().await
}

async fn restarted(broker: &Throwaway, seed: u64) -> Vec<Played> {
    let players = (seed..seed + RESTARTED).map(async |seed| {
        let mut script = Script::of(seed, Length::Free);
        // A queue that was declared a moment before a kill is not there after it: see production's topology.
        // What workers acknowledge without being seen to multiplies what a kill may bring back.
        for window in &mut script.windows {
            window.retain(|step| match step {
                Step::DeleteQueue { .. } | Step::DeleteExchange => false,
                Step::Settle { party, .. } => matches!(script.parties[*party], Party::Foreign { .. }),
                Step::Publish { .. }
                | Step::PublishAndLeave { .. }
                | Step::Consume { .. }
                | Step::Cancel { .. }
                | Step::Leave { .. }
                | Step::Purge { .. } => true,
            });
        }
        Player::new(broker.url(), &format!("restarted-{seed}"), script).await.expect_a_kill()
    });
    let mut group = Group { players: join_all(players).await, failed: Vec::new() };
    for at in 0..WINDOWS_MAX {
        let down = match at {
            3 => Some(Down::InOrder),
            7 => Some(Down::Killed),
            _ => None,
        };
        if let Some(down) = down {
            for player in &mut group.players {
                player.before_restart(down).await;
            }
            tokio::task::block_in_place(|| {
                match down {
                    // The broker ends and begins within its runtime, which takes long to load.
                    Down::InOrder => {
                        broker.control(&["stop_app"]);
                        broker.control(&["start_app"]);
                    }
                    Down::Killed => {
                        broker.kill();
                        broker.start_again();
                    }
                }
            });
            group.all(async |player| player.after_restart().await).await;
        }
        group.all(async |player| player.window(at).await).await;
    }
    group.finish().await
}

/// Scripts that go in step.
struct Group {
    players: Vec<Player>,
    failed: Vec<Played>,
}

impl Group {
    /// Does something with everybody who has not failed yet.
    async fn all(&mut self, act: impl AsyncFn(&mut Player) -> Result<(), Failure>) {
        let act = &act;
        let acts = self.players.drain(..).map(async |mut player| act(&mut player).await.map(|()| player));
        for result in join_all(acts).await {
            match result {
                Ok(player) => self.players.push(player),
                Err(failure) => self.failed.push(Err(failure)),
            }
        }
    }

    async fn finish(self) -> Vec<Played> {
        let mut played = self.failed;
        played.extend(join_all(self.players.into_iter().map(Player::finish)).await);
        played
    }
}
