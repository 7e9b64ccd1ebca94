//! Moving towards fair shares, from wherever it starts.

use proptest::prelude::*;

use super::world::World;
use crate::event::SchedulerEvent;
use crate::lease::LeaseResource;
use crate::time::Span;

fn is_fair(shares: &[usize], schedulers: usize) -> bool {
    let floor = 128 / schedulers;
    let at_work: Vec<_> = shares.iter().filter(|share| **share > 0).collect();
    shares.iter().sum::<usize>() == 128
        && at_work.len() == schedulers
        && at_work.iter().all(|share| **share == floor || **share == floor + 1)
}

#[test]
fn two_schedulers_share_all_partitions_within_one() {
    let mut world = World::with(1);
    world.seconds(10);
    assert_eq!(world.shares(), [128]);
    world.start(|_| {});
    world.seconds(10);
    assert_eq!(world.shares(), [64, 64]);
    world.start(|_| {});
    world.seconds(10);
    assert_eq!(world.shares(), [43, 43, 42]);
}

#[test]
fn the_share_of_a_scheduler_that_died_goes_to_the_others() {
    let mut world = World::with(3);
    world.seconds(20);
    world.kill(1);
    world.seconds(20);
    assert_eq!(world.shares(), [64, 0, 64]);
}

#[test]
fn nothing_moves_once_shares_are_fair() {
    let mut world = World::with(5);
    world.seconds(30);
    let tokens = |world: &World| {
        LeaseResource::all().map(|resource| world.store.tables().lease(resource).token).collect::<Vec<_>>()
    };
    let before = tokens(&world);
    world.seconds(300);
    assert_eq!(tokens(&world), before);
    assert!(is_fair(&world.shares(), 5), "{:?}", world.shares());
}

#[derive(Clone, Copy, Debug)]
enum Move {
    Start,
    Kill(usize),
    Drain(usize),
    Freeze(u64),
}

fn moves() -> impl Strategy<Value = Vec<(u64, Move)>> {
    let one = prop_oneof![
        3 => Just(Move::Start),
        1 => (0..6_usize).prop_map(Move::Kill),
        1 => (0..6_usize).prop_map(Move::Drain),
        1 => (1..40_u64).prop_map(Move::Freeze),
    ];
    prop::collection::vec((0..12_000_u64, one), 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn from_any_ownership_shares_become_fair_and_stay(moves in moves(), limit in 1..64_u32) {
        let mut world = World::new();
        let mut at_work = vec![world.start(|config| config.acquire_per_cycle = limit)];
        for (pause, step) in moves {
            world.pass(Span::from_millis(pause));
            match step {
                Move::Start => at_work.push(world.start(|config| config.acquire_per_cycle = limit.max(16))),
                Move::Kill(which) if at_work.len() > 1 => world.kill(at_work.remove(which % at_work.len())),
                Move::Drain(which) if at_work.len() > 1 => {
                    world.give(at_work.remove(which % at_work.len()), SchedulerEvent::DrainRequested);
                }
                Move::Freeze(seconds) => world.freeze(Span::from_secs(seconds)),
                Move::Kill(_) | Move::Drain(_) => {}
            }
        }
        // One by one, if it must be: a cycle for each partition, after what the dead held has lapsed.
        let cycles = u64::from(128_u32.div_ceil(limit));
        world.seconds(30 + 2 * cycles + 30);
        prop_assert!(is_fair(&world.shares(), at_work.len()), "{:?}", world.shares());
        let before: Vec<_> = LeaseResource::all().map(|it| world.store.tables().lease(it).token).collect();
        world.seconds(60);
        let after: Vec<_> = LeaseResource::all().map(|it| world.store.tables().lease(it).token).collect();
        prop_assert_eq!(before, after, "nothing flaps");
        prop_assert!(world.owner(LeaseResource::Leadership).is_some());
    }
}
