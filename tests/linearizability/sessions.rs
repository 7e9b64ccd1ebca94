//! The sessions of a history: several stores with connections of their own, which act at once.
//!
//! Each session believes something about what is stored: the state that the history began in, and what it did
//! itself since. It draws its commands from that, so all of them reach for the same few things, with tokens
//! that were right a moment ago. A session whose store gives no answer goes on as a node would, with its next
//! command, while the one before may still be taking effect.

use std::sync::Arc;

use fencepost::postgres::{LaneSizes, PgStore};
use fencepost_core::store::StoreOutcome;
use fencepost_core::store::command::{Command, ReplayKey};
use fencepost_core::store::reference::ReferenceStore;
use fencepost_core::time::{Span, Timestamp};
use fencepost_sim::rng::{Stream, StreamKey};
use sqlx::postgres::PgConnectOptions;
use tokio::sync::Barrier;

use crate::arrange::Step;
use crate::atoms::atoms_of;
use crate::history::{Moments, Operation};
use crate::universe::Draw;

/// Most sessions of a history.
pub(crate) const SESSIONS_MAX: usize = 8;
/// Fewest.
pub(crate) const SESSIONS_MIN: usize = 3;
/// How often what the first two sessions begin with is drawn.
const DRAWS_MAX: usize = 20;
/// Commands of one session.
const COMMANDS: std::ops::RangeInclusive<u64> = 3..=6;

/// Stores that stay connected from one history, and one epoch, to the next.
pub(crate) struct Sessions {
    stores: Vec<Arc<PgStore>>,
}

impl Sessions {
    /// Stores on the database of these options.
    pub(crate) fn new(options: &PgConnectOptions) -> Self {
        let store = || Arc::new(PgStore::new(options.clone(), LaneSizes { lease: 1, work: 1 }));
        Self { stores: (0..SESSIONS_MAX).map(|_| store()).collect() }
    }

    /// Makes them forget the definitions that they have read.
    pub(crate) fn forget_definitions(&self) {
        self.stores.iter().for_each(|store| store.forget_definitions());
    }

    /// Runs the history of a seed that begins in `start` at `now`. It is counted by `moments`, which are new.
    pub(crate) async fn run(
        &self,
        seed: u64,
        start: &ReferenceStore,
        now: Timestamp,
        moments: &Arc<Moments>,
    ) -> Vec<Operation> {
        let mut stream = StreamKey::of(seed, "linearizability").open();
        let count = stream.between(SESSIONS_MIN as u64, SESSIONS_MAX as u64) as usize;
        let shared = contended(&mut Draw { stream: &mut stream, store: start, now });
        let together = Arc::new(Barrier::new(count));
        let mut running = Vec::new();
        for session in 0..count {
            let own = StreamKey::of(seed, &format!("session {session}")).open();
            let length = stream.between(*COMMANDS.start(), *COMMANDS.end()) as usize;
            let member = Member {
                session,
                store: Arc::clone(&self.stores[session]),
                stream: own,
                belief: start.clone(),
                now,
                operations: Vec::new(),
                moments: Arc::clone(moments),
            };
            let first = (session < 2).then(|| shared.clone());
            let together = Arc::clone(&together);
            running.push(tokio::spawn(member.run(first, length, together)));
        }
        let mut operations = Vec::new();
        for member in running {
            operations.extend(member.await.expect("a session does not panic"));
        }
        moments.end();
        operations.sort_by_key(|operation| operation.invoked);
        operations
    }
}

/// A command that writes and names what it writes: two sessions that send it at once certainly meet.
fn contended(draw: &mut Draw<'_>) -> Command {
    for _ in 0..DRAWS_MAX {
        let command = one_that_writes(draw);
        if meets_itself(&command, draw) {
            return command;
        }
    }
    // There may be nothing yet that the others could name.
    draw.acquire_leadership()
}

/// Whether a command names anything: a batch may be empty.
fn meets_itself(command: &Command, draw: &Draw<'_>) -> bool {
    let (command, now) = (command.clone(), draw.now);
    let operation = Operation { session: 0, now, command, invoked: 0, answered: None, over: 0 };
    atoms_of(&[operation], draw.store).iter().any(|atom| atom.shares(atom))
}

fn one_that_writes(draw: &mut Draw<'_>) -> Command {
    match draw.stream.below(9) {
        0 => draw.acquire_leadership(),
        1 => draw.renew_leases(),
        2 => draw.materialise(),
        3 => draw.remove_outbox(),
        4 => draw.acquire_executions(),
        5 => draw.renew_executions(),
        6 => draw.finish_executions(),
        7 => draw.trigger_job(),
        _ => draw.cancel_execution(),
    }
}

/// One session at work.
struct Member {
    session: usize,
    store: Arc<PgStore>,
    stream: Stream,
    belief: ReferenceStore,
    now: Timestamp,
    operations: Vec<Operation>,
    moments: Arc<Moments>,
}

impl Member {
    async fn run(mut self, first: Option<Command>, length: usize, together: Arc<Barrier>) -> Vec<Operation> {
        let mut first = first;
        for number in 0..length {
            let command = match first.take() {
                Some(command) => command,
                None => self.draw(),
            };
            self.now = self.next_now(number);
            let invoked = self.moments.next();
            if number == 0 {
                // Invoked by all before it is sent by any: these overlap, however the tasks are run.
                together.wait().await;
            }
            let outcome = self.store.execute_at(self.now, &command).await;
            let over = self.moments.next();
            let answered = match outcome {
                StoreOutcome::Replied(reply) => {
                    assert_eq!(reply.now, self.now, "the time that is passed in is the time that is used");
                    Some((over, reply.reply))
                }
                StoreOutcome::Unknown => None,
            };
            self.belief.apply(self.now, &command, &mut Vec::new());
            self.operations.push(Operation {
                session: self.session,
                now: self.now,
                command,
                invoked,
                answered,
                over,
            });
        }
        self.operations
    }

    /// Another one for each operation of a history: the session is in the last digits.
    fn next_now(&mut self, number: usize) -> Timestamp {
        let on = self.stream.long_tailed(Span::from_micros(100), Span::from_secs(3));
        let micros = self.now.plus(on).as_micros() / 100 * 100;
        let digits = i64::try_from(self.session * 10 + number).expect("a small number");
        Timestamp::from_micros(micros + digits)
    }

    fn draw(&mut self) -> Command {
        let earlier: Vec<Step> = self
            .operations
            .iter()
            .map(|operation| Step { now: operation.now, command: operation.command.clone() })
            .collect();
        let mut draw = Draw { stream: &mut self.stream, store: &self.belief, now: self.now };
        if !earlier.is_empty() && draw.chance(10) {
            let mut again = draw.stream.pick(&earlier).command.clone();
            // Asked for anew, but with the other choice of a key: by itself that would be rare.
            if let Command::ReplayDeadLetter(ask) = &mut again
                && draw.chance(50)
            {
                ask.key = match ask.key {
                    ReplayKey::Origin => ReplayKey::Own,
                    ReplayKey::Own => ReplayKey::Origin,
                };
            }
            return again;
        }
        // Rare enough as they are, dead letters are met while they are there; and so is one version more than may pile up.
        if !draw.store.tables().dead_letters().is_empty() && draw.chance(12) {
            return match draw.stream.below(10) {
                0..=5 => draw.replay_dead_letter(),
                6 => draw.replay_dead_letters(),
                _ => draw.purge_dead_letter(),
            };
        }
        if draw.chance(20)
            && let Some(more) = draw.pile_up()
        {
            return more;
        }
        draw.new_command()
    }
}
