//! The same seed gives the same trace: again, from its plan's file, and beside other runs.

use fencepost_core::bug::Bugs;
use fencepost_sim::plan::{Plan, Profile, generate};
use fencepost_sim::run::{run, run_seed};
use fencepost_sim::world::Keep;

#[test]
fn a_seed_run_twice_gives_the_same_hash() {
    for seed in 0..4 {
        let once = run_seed(seed, Profile::Default, Bugs::NONE);
        let again = run_seed(seed, Profile::Default, Bugs::NONE);
        assert_eq!(once.ended.hash, again.ended.hash, "seed {seed}");
        assert_eq!(once.ended.events, again.ended.events, "seed {seed}");
        assert_eq!(once.marks, again.marks, "seed {seed}");
    }
}

#[test]
fn a_plan_from_its_file_gives_the_hash_of_its_seed() {
    for seed in 4..8 {
        let direct = run_seed(seed, Profile::Default, Bugs::NONE);
        let text = generate::generate(seed, Profile::Default).to_json();
        // The seed in the file is for people: a run must not use it.
        let mut plan = Plan::from_json(&text).expect("a plan that was just written");
        plan.seed = 999_999;
        assert_eq!(run(&plan, Bugs::NONE, Keep::Hash).ended.hash, direct.ended.hash, "seed {seed}");
    }
}

#[test]
fn keeping_the_trace_does_not_change_it() {
    let plan = generate::generate(5, Profile::Small);
    let bare = run(&plan, Bugs::NONE, Keep::Hash).ended;
    let kept = run(&plan, Bugs::NONE, Keep::Trace).ended;
    assert_eq!(bare.hash, kept.hash);
    assert!(bare.lines.is_empty() && !kept.lines.is_empty());
}

#[test]
fn seeds_differ() {
    let hash = |seed| run_seed(seed, Profile::Small, Bugs::NONE).ended.hash;
    assert_ne!(hash(1), hash(2));
}
