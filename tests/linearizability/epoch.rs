//! An epoch: some histories on one database, each beginning with what the one before left.
//!
//! It starts with a sequence on an empty database, command by command, so that there is something to contend for.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fencepost_core::bug::Bugs;
use fencepost_core::store::reference::ReferenceStore;
use fencepost_core::time::Timestamp;
use fencepost_sim::rng::StreamKey;
use fencepost_tests::pg_proxy::PgProxy;
use sqlx::PgConnection;

use crate::arrange::Step;
use crate::atoms::{Atom, atoms_of};
use crate::contents;
use crate::coverage::Coverage;
use crate::database::Database;
use crate::disturbance::{DISTURBANCES, Disturbance, Saboteur};
use crate::history::{Moments, Operation};
use crate::search::Verdict;
use crate::sessions::Sessions;
use crate::timeline::Unexplained;
use crate::universe::{Draw, START};
use crate::verdict::{STEPS_MAX, explain};

/// Commands before the first history.
const PRELUDE: usize = 60;
/// How many of what occurred least often are told.
const RAREST: usize = 6;

/// What a run of histories showed.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Histories that were run.
    pub(crate) histories: u64,
    coverage: Coverage,
    /// Commands sent.
    pub(crate) commands: usize,
    /// Outcomes that nobody learnt.
    pub(crate) unknown: usize,
    /// What left some outcome unknown.
    disturbed: BTreeSet<Disturbance>,
    /// What the time went into.
    pub(crate) spent: Spent,
    /// The steps of the longest search, and whose it was.
    pub(crate) longest_search: (u64, u64),
    /// The histories whose search was given up.
    pub(crate) undecided: Vec<u64>,
}

/// What became of a history that is not known to be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decided {
    /// It has a serial explanation, and the next one goes on from it.
    Explained,
    /// The search was given up: what the next one would go on from is not known.
    No,
}

/// What the time went into, in the order of what is done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    /// Emptying the database and filling it.
    beginning: Duration,
    /// The sessions.
    running: Duration,
    /// Waiting until nothing is under way any more.
    silence: Duration,
    /// Reading the rows.
    reading: Duration,
    /// Looking for an explanation.
    searching: Duration,
}

impl Spent {
    fn add(&mut self, other: Self) {
        self.beginning += other.beginning;
        self.running += other.running;
        self.silence += other.silence;
        self.reading += other.reading;
        self.searching += other.searching;
    }
}

/// Adds what passed since a moment, and makes it now.
fn lap(sum: &mut Duration, since: &mut Instant) {
    *sum += since.elapsed();
    *since = Instant::now();
}

impl Tally {
    /// Adds what other histories showed.
    pub(crate) fn add(&mut self, other: Self) {
        self.histories += other.histories;
        for (label, count) in other.coverage.seen {
            *self.coverage.seen.entry(label).or_default() += count;
        }
        self.commands += other.commands;
        self.unknown += other.unknown;
        self.disturbed.extend(other.disturbed);
        self.spent.add(other.spent);
        self.longest_search = self.longest_search.max(other.longest_search);
        self.undecided.extend(other.undecided);
    }

    /// What occurred least often.
    pub(crate) fn rarest(&self) -> Vec<(&'static str, u64)> {
        self.coverage.rarest(RAREST)
    }

    /// What never occurred and should have.
    pub(crate) fn missing(&self) -> Vec<String> {
        let undisturbed = DISTURBANCES.iter().filter(|one| !self.disturbed.contains(one));
        let undisturbed = undisturbed.map(|one| format!("an outcome unknown because of {one:?}"));
        self.coverage.missing().into_iter().chain(undisturbed).collect()
    }

    fn note(&mut self, operations: &[Operation], disturbance: Disturbance) {
        self.histories += 1;
        self.commands += operations.len();
        for operation in operations {
            match &operation.answered {
                Some((_, reply)) => self.coverage.note(reply),
                None => {
                    self.unknown += 1;
                    self.disturbed.insert(disturbance);
                }
            }
        }
    }
}

/// A database and who is connected to it from one epoch to the next. An epoch gives jobs and versions that an earlier
/// one had to other definitions, so the stores begin each by forgetting them.
pub(crate) struct Ground {
    database: Database,
    proxy: PgProxy,
    sessions: Sessions,
    saboteur: Saboteur,
    looking: PgConnection,
}

impl Ground {
    /// Makes it. The sessions' statements are rewritten as said.
    pub(crate) async fn new(purpose: &str, rewrites: &[(&str, &str)]) -> Self {
        let database = Database::create(purpose).await;
        let proxy = PgProxy::start(database.options(), rewrites).await.expect("a loopback port is free");
        Self {
            sessions: Sessions::new(&proxy.options(database.options())),
            proxy,
            saboteur: Saboteur::connect(database.options()).await,
            looking: database.connect().await,
            database,
        }
    }

    /// Deletes the database.
    pub(crate) async fn remove(self) {
        self.database.remove().await;
    }
}

/// Histories on one database.
pub(crate) struct Epoch<'a> {
    ground: &'a mut Ground,
    /// What the store holds, as the explanations have it.
    state: ReferenceStore,
    now: Timestamp,
}

impl<'a> Epoch<'a> {
    /// Empties the database and brings it into the state that a seed begins with.
    pub(crate) async fn begin(ground: &'a mut Ground, seed: u64, tally: &mut Tally) -> Self {
        let mut since = Instant::now();
        let store = ground.database.empty_store().await;
        let mut stream = StreamKey::of(seed, "prelude").open();
        let mut state = ReferenceStore::new(Bugs::NONE);
        let mut steps: Vec<Step> = Vec::new();
        let mut now = START;
        for _ in 0..PRELUDE {
            let mut draw = Draw { stream: &mut stream, store: &state, now };
            now = draw.next_now();
            draw.now = now;
            let command = draw.next_command(&steps);
            let seen = store.apply(now, &command).await.expect("nothing disturbs the prelude");
            assert_eq!(state.apply(now, &command, &mut Vec::new()), seen, "one after the other they agree");
            steps.push(Step { now, command });
        }
        lap(&mut tally.spent.beginning, &mut since);
        ground.sessions.forget_definitions();
        Self { ground, state, now }
    }

    /// Runs the history of a seed; says why it has no explanation.
    pub(crate) async fn history(&mut self, seed: u64, tally: &mut Tally) -> Result<Decided, String> {
        let mut since = Instant::now();
        let disturbance = Disturbance::of(seed);
        disturbance.prepare(seed, &self.ground.proxy);
        let moments = Arc::new(Moments::default());
        let (operations, ()) = tokio::join!(
            self.ground.sessions.run(seed, &self.state, self.now, &moments),
            self.ground.saboteur.act(disturbance, seed, &moments),
        );
        lap(&mut tally.spent.running, &mut since);
        self.ground.proxy.disarm();
        self.ground.saboteur.wait_for_silence().await;
        lap(&mut tally.spent.silence, &mut since);
        tally.note(&operations, disturbance);
        let contents = contents::read(&mut self.ground.looking).await;
        lap(&mut tally.spent.reading, &mut since);
        let atoms = atoms_of(&operations, &self.state);
        if !has_contention(&atoms) {
            return Err("nobody met anybody in it".to_owned());
        }
        let mut left = STEPS_MAX;
        let verdict = explain(&operations, &atoms, &self.state, Some(&contents), &mut left);
        tally.longest_search = tally.longest_search.max((STEPS_MAX - left, seed));
        lap(&mut tally.spent.searching, &mut since);
        match verdict {
            Verdict::Explained(state) => {
                self.state = *state;
                self.now = operations.iter().map(|operation| operation.now).max().unwrap_or(self.now);
                Ok(Decided::Explained)
            }
            verdict @ Verdict::Undecided { .. } => {
                eprintln!("history {seed} ({disturbance:?}): {}", verdict.summary(&atoms));
                tally.undecided.push(seed);
                Ok(Decided::No)
            }
            verdict @ (Verdict::Impossible { .. } | Verdict::StrangeRows) => {
                let unexplained =
                    Unexplained { operations: &operations, start: &self.state, contents: &contents };
                let why = verdict.summary(&atoms);
                eprintln!("history {seed} ({disturbance:?}): {why}; it is being cut down");
                Err(format!("({disturbance:?}) {why}: {}", unexplained.report()))
            }
        }
    }
}

/// Whether two atoms of different operations were under way at once and about the same.
pub(crate) fn has_contention(atoms: &[Atom]) -> bool {
    atoms.iter().enumerate().any(|(at, one)| {
        let others = || atoms[at + 1..].iter().filter(|other| other.operation != one.operation);
        others().any(|other| one.overlaps(other) && one.shares(other))
    })
}
