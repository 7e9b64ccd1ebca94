//! Every kind of fault of the catalogue really happens when it is switched on, and changes what happens.
//!
//! A fault that is planned and never strikes would make every green run a little less true.

use fencepost_core::bug::Bugs;
use fencepost_core::mark::Mark;
use fencepost_sim::fault::FaultKind;
use fencepost_sim::plan::{Profile, generate};
use fencepost_sim::run::run;
use fencepost_sim::world::Keep;

/// How many seeds a kind may take to be seen.
const SEEDS: u64 = 40;

/// What a kind needs beside it to have something to strike.
fn beside(kind: FaultKind) -> &'static [FaultKind] {
    match kind {
        FaultKind::NewNodeId => &[FaultKind::Crash],
        FaultKind::OperatorReplays | FaultKind::OperatorReplaysAll | FaultKind::OperatorPurges => {
            &[FaultKind::HandlerFailsForGood]
        }
        FaultKind::OperatorRepeats => &[FaultKind::OperatorTriggers],
        FaultKind::BrokerRedeliverUnacked | FaultKind::BrokerConsumerTimeout => &[FaultKind::HandlerSlow],
        _ => &[],
    }
}

#[test]
fn every_kind_of_fault_happens_when_it_is_switched_on() {
    let mut unseen = Vec::new();
    for kind in FaultKind::ALL.iter().copied() {
        let mut kinds = vec![kind];
        kinds.extend_from_slice(beside(kind));
        let happens = |seed| {
            let plan = generate::generate_with(seed, Profile::Small, &kinds);
            run(&plan, Bugs::NONE, Keep::Hash).ended.faults.of(kind) > 0
        };
        if !(0..SEEDS).any(happens) {
            unseen.push(kind.name());
        }
    }
    assert!(unseen.is_empty(), "planned and never seen: {unseen:?}");
}

#[test]
fn a_write_that_was_held_back_until_its_token_had_passed_on_is_refused() {
    let wanted = [Mark::MaterialiseRefused, Mark::FinishRefused];
    let mut refused = [0; 2];
    for seed in 0..SEEDS {
        let plan = generate::generate_with(seed, Profile::Small, &[FaultKind::PauseUntilFenced]);
        let run = run(&plan, Bugs::NONE, Keep::Hash);
        assert!(run.ended.violation.is_none(), "seed {seed}: {:?}", run.ended.violation);
        for (sum, mark) in refused.iter_mut().zip(wanted) {
            *sum += run.marks[mark as usize];
        }
    }
    assert!(refused.iter().all(|times| *times > 0), "{wanted:?} were refused {refused:?} times");
}

#[test]
fn a_calm_run_has_no_faults_but_herds() {
    let ended = run(&generate::generate(1, Profile::Calm), Bugs::NONE, Keep::Hash).ended;
    for (kind, count) in ended.faults.iter() {
        assert!(count == 0 || kind == FaultKind::Herd, "{kind} happened {count} times");
    }
}
