//! How many seeds of the default profile are simulated in a second, with every oracle on.
//!
//! `cargo bench -p fencepost-sim`; the number of seeds may be given as an argument.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;

use fencepost_core::bug::Bugs;
use fencepost_sim::campaign::{Campaign, Recheck};
use fencepost_sim::plan::{Profile, generate};
use fencepost_sim::report::Tally;
use fencepost_sim::stopwatch::Stopwatch;

fn main() {
    // `cargo bench` passes `--bench`; without it this is only a test of whether the bench compiles. A number
    // among the arguments is ours.
    let arguments: Vec<String> = std::env::args().collect();
    if !arguments.iter().any(|argument| argument == "--bench") {
        return;
    }
    let seeds = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(500_u64);
    let all = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN).get();
    plans(seeds);
    for profile in [Profile::Calm, Profile::Default, Profile::Storm] {
        simulate(profile, seeds, 1);
        if all > 1 {
            simulate(profile, seeds, all);
        }
    }
}

fn plans(seeds: u64) {
    let watch = Stopwatch::start();
    let jobs: usize = (0..seeds).map(|seed| generate::generate(seed, Profile::Default).jobs.len()).sum();
    let took = watch.elapsed().as_secs_f64();
    println!("plans: {seeds} with {jobs} jobs in {took:.2} s, {:.0} plans/s", seeds as f64 / took);
}

fn simulate(profile: Profile, seeds: u64, threads: usize) {
    let campaign = Campaign { start: 0, seeds, profile, bugs: Bugs::NONE, threads, recheck: Recheck::Never };
    let mut tally = Tally::default();
    let watch = Stopwatch::start();
    campaign.run(|run| {
        tally.add(&run);
        ControlFlow::Continue(())
    });
    let took = watch.elapsed().as_secs_f64();
    println!(
        "{profile}, {threads} threads: {seeds} seeds in {took:.2} s, {:.0} seeds/s, {:.2} million events/s, {} failures",
        seeds as f64 / took,
        tally.events as f64 / took / 1e6,
        tally.failures.len()
    );
}
