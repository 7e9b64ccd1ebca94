//! An epoch: some histories on one database, each beginning with what the one before left.
//!
//! It starts with a sequence on an empty database, command by command, so that there is something to contend for.

use std::collections::BTreeSet;
use std::sync::Arc;

use fencepost_core::bug::Bugs;
use fencepost_core::store::reference::ReferenceStore;
use fencepost_core::store::tables::Contents;
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
use crate::search::{Verdict, explain};
use crate::sessions::Sessions;
use crate::timeline::Unexplained;
use crate::universe::{Draw, START};

/// Commands before the first history.
const PRELUDE: usize = 60;

/// What a run of histories showed.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    coverage: Coverage,
    /// Commands sent.
    pub(crate) commands: usize,
    /// Outcomes that nobody learnt.
    pub(crate) unknown: usize,
    /// What left some outcome unknown.
    disturbed: BTreeSet<Disturbance>,
}

impl Tally {
    /// What never occurred and should have.
    pub(crate) fn missing(&self) -> Vec<String> {
        let undisturbed = DISTURBANCES.iter().filter(|one| !self.disturbed.contains(one));
        let undisturbed = undisturbed.map(|one| format!("an outcome unknown because of {one:?}"));
        self.coverage.missing().into_iter().chain(undisturbed).collect()
    }

    fn note(&mut self, operations: &[Operation], disturbance: Disturbance) {
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

/// Histories on one database.
pub(crate) struct Epoch {
    proxy: PgProxy,
    sessions: Sessions,
    saboteur: Saboteur,
    looking: PgConnection,
    /// What the store holds, as the explanations have it.
    state: ReferenceStore,
    now: Timestamp,
}

impl Epoch {
    /// Empties the database and brings it into the state that a seed begins with. The sessions' statements are
    /// rewritten as said.
    pub(crate) async fn begin(database: &Database, seed: u64, rewrites: &[(&str, &str)]) -> Self {
        let proxy = PgProxy::start(database.options(), rewrites).await.expect("a loopback port is free");
        let store = database.empty_store().await;
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
        Self {
            sessions: Sessions::new(&proxy.options(database.options())),
            proxy,
            saboteur: Saboteur::connect(database.options()).await,
            looking: database.connect().await,
            state,
            now,
        }
    }

    /// Runs the history of a seed; says why it has no explanation.
    pub(crate) async fn history(&mut self, seed: u64, tally: &mut Tally) -> Result<(), String> {
        let disturbance = Disturbance::of(seed);
        disturbance.prepare(seed, &self.proxy);
        let moments = Arc::new(Moments::default());
        let (operations, ()) = tokio::join!(
            self.sessions.run(seed, &self.state, self.now, &moments),
            self.saboteur.act(disturbance, seed, &moments),
        );
        self.proxy.disarm();
        self.saboteur.wait_for_silence().await;
        tally.note(&operations, disturbance);
        let contents = contents::read(&mut self.looking).await;
        let atoms = atoms_of(&operations, &self.state);
        if !has_contention(&atoms) {
            return Err("nobody met anybody in it".to_owned());
        }
        match self.explain(&operations, &atoms, &contents) {
            Verdict::Explained(state) => {
                self.state = *state;
                self.now = operations.iter().map(|operation| operation.now).max().unwrap_or(self.now);
                Ok(())
            }
            Verdict::Impossible { .. } | Verdict::StrangeRows | Verdict::Undecided { .. } => {
                let unexplained =
                    Unexplained { operations: &operations, start: &self.state, contents: &contents };
                Err(format!("({disturbance:?}) {}", unexplained.report()))
            }
        }
    }

    /// Looks for an explanation, first one without what nobody heard of and left no trace: nearly always it never
    /// took effect, and there are many ways in which it could have.
    fn explain(&self, operations: &[Operation], atoms: &[Atom], contents: &Contents) -> Verdict {
        let traces: BTreeSet<i64> =
            numbers(&format!("{contents:?}")).chain(numbers(&format!("{operations:?}"))).collect();
        let heard_or_seen = |atom: &&Atom| atom.answered.is_some() || atom.left_a_trace(&traces);
        let likely: Vec<Atom> = atoms.iter().filter(heard_or_seen).cloned().collect();
        match explain(&likely, &self.state, Some(contents)) {
            Verdict::Explained(state) => Verdict::Explained(state),
            _ if likely.len() < atoms.len() => explain(atoms, &self.state, Some(contents)),
            verdict => verdict,
        }
    }
}

/// Every number of a text.
fn numbers(text: &str) -> impl Iterator<Item = i64> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok())
}

/// Whether two atoms of different operations were under way at once and about the same.
fn has_contention(atoms: &[Atom]) -> bool {
    atoms.iter().enumerate().any(|(at, one)| {
        let others = || atoms[at + 1..].iter().filter(|other| other.operation != one.operation);
        others().any(|other| one.overlaps(other) && one.shares(other))
    })
}
