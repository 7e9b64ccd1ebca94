//! The ground of one thread: a watched database, on which seed after seed is run.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fencepost::verify::{Progress, verify_on};
use fencepost_core::bug::Bugs;
use fencepost_core::store::reference::ReferenceStore;
use fencepost_core::verify::Window;
use fencepost_sim::fault::FaultKind;
use fencepost_sim::plan::{Plan, Profile, generate};
use fencepost_sim::run;
use fencepost_sim::world::{Ended, Keep, World};
use sqlx::ConnectOptions;
use tokio::runtime::{Builder, Runtime};

use crate::coverage::Coverage;
use crate::database::Database;
use crate::deaf_wire::DeafWire;
use crate::pair::{Difference, Looking, Pair};
use crate::strikes::Strikes;
use crate::watch::Watch;

/// A watched database, and what runs on it.
pub(crate) struct Ground {
    runtime: Runtime,
    database: Database,
    watch: Watch,
    wire: DeafWire,
}

impl Ground {
    pub(crate) fn new(purpose: &str) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
        let (database, watch, wire) = runtime.block_on(async {
            let database = Database::create(purpose).await;
            let watch = Watch::install(&database).await;
            let wire = DeafWire::lay(database.options()).await;
            (database, watch, wire)
        });
        Self { runtime, database, watch, wire }
    }

    /// Runs a seed here and on the reference semantics; these have `bugs` only where they are the expectation.
    ///
    /// # Errors
    /// How the two runs differ.
    pub(crate) fn run(&mut self, seed: u64, bugs: Bugs, coverage: &mut Coverage) -> Result<(), String> {
        let plan = generate::generate(seed, Profile::Default);
        let expected = run::run(&plan, Bugs::NONE, Keep::Hash).ended;
        let mut seen = self.run_here(&plan, bugs, Looking::WhereExpected, coverage);
        if let Err(late) = seen {
            let again = self.run_here(&plan, bugs, Looking::Everywhere, &mut Coverage::default());
            seen = Err(again.err().unwrap_or_else(|| format!("(and not when run again) {late}")));
        }
        let found = match seen {
            Ok(seen) if seen.hash != expected.hash || seen.violation != expected.violation => format!(
                "every step is the same, and the traces are not\n  expected {} {:#?}\n  seen {} {:#?}",
                expected.hash, expected.violation, seen.hash, seen.violation
            ),
            Ok(_) if !self.runtime.block_on(self.watch.has_seen_all()) => {
                "more was written than by the steps that were to write, or past the triggers".to_owned()
            }
            Ok(_) => match self.runtime.block_on(self.verified(&plan)) {
                Ok(()) => return Ok(()),
                Err(found) => found,
            },
            Err(difference) => difference,
        };
        Err(format!(
            "seed {seed} is not the same on PostgreSQL: {found}\n\nagain: SIMULATION_SEED={seed} \
             SIMULATION_SEEDS=1 cargo test --workspace --features fencepost-tests/servers --test simulation"
        ))
    }

    /// What a verification of the database that the run leaves behind has to say. Where the store's clock was set back
    /// and no row shows it, the order of instants misleads whoever has the rows alone.
    async fn verified(&self, plan: &Plan) -> Result<(), String> {
        let mut connection = self.database.options().connect().await.expect("the database is there");
        let report = verify_on(&mut connection, Window::ALL, &Progress::default())
            .await
            .map_err(|failure| format!("the rows cannot be verified: {failure}"))?;
        let violated: Vec<_> = report.violated().map(|check| (check.check, &check.found)).collect();
        let set_back = plan.faults.iter().any(|fault| fault.kind == FaultKind::StoreClockBack);
        if violated.is_empty() || set_back {
            Ok(())
        } else {
            Err(format!("a verification finds {violated:#?}"))
        }
    }

    fn run_here(
        &mut self,
        plan: &Plan,
        bugs: Bugs,
        looking: Looking,
        coverage: &mut Coverage,
    ) -> Result<Ended, String> {
        let store = self.runtime.block_on(self.watch.empty(&self.database));
        let pair = Pair {
            runtime: &self.runtime,
            watch: &mut self.watch,
            coverage,
            reference: ReferenceStore::new(bugs),
            store,
            strikes: Strikes::new(self.database.options(), &self.wire),
            looking,
            step: 0,
        };
        let world = || World::new(plan, Box::new(pair), Bugs::NONE, Keep::Hash).run();
        catch_unwind(AssertUnwindSafe(world)).map_err(|panic| match panic.downcast::<Difference>() {
            Ok(difference) => difference.0,
            Err(panic) => match panic.downcast::<String>() {
                Ok(text) => format!("a panic: {text}"),
                Err(_) => "a panic, told above".to_owned(),
            },
        })
    }

    pub(crate) fn remove(self) {
        self.runtime.block_on(self.database.remove());
    }
}
