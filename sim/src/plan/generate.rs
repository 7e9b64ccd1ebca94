//! From a seed to a plan.
//!
//! Each part draws from a stream of its own name, and each kind of fault from one of its own, so that a new
//! draw in one part leaves the others of every seed as they were.

mod calendar;
mod calendars;
mod faults;
mod job_changes;
mod jobs;
mod operators;
mod pauses;
mod priorities;
mod swarm;
mod topology;

use fencepost_core::id::TenantId;
use fencepost_core::time::Span;

use super::{DelayRange, HealSpec, NetworkSpec, NodeSlot, PLAN_FORMAT, Plan, Profile, Streams};
use crate::fault::FaultKind;
use crate::rng::{PPM, Stream, StreamKey};
use crate::sim_time::SimTime;

/// The plan of this seed.
#[must_use]
pub fn generate(seed: u64, profile: Profile) -> Plan {
    expand(seed, profile, &swarm::draw(seed, profile.faults()))
}

/// The plan of this seed, with these kinds of faults instead of those that the seed would switch on.
#[must_use]
pub fn generate_with(seed: u64, profile: Profile, kinds: &[FaultKind]) -> Plan {
    expand(seed, profile, &swarm::only(kinds))
}

fn expand(seed: u64, profile: Profile, swarm: &swarm::Swarm) -> Plan {
    let stream = |name: &str| StreamKey::of(seed, name).open();
    let sizes = profile.sizes();
    let mut draw = stream("plan/heal");
    let heal_at = SimTime::ZERO.plus(sizes.heals_after).plus(draw.span(Span::ZERO, sizes.heals_within));
    let day = calendar::draw(&mut stream("plan/calendar"), swarm, heal_at);
    let outside = topology::outside(&mut stream("plan/outside"));
    let mut tenants = stream("plan/tenants");
    let tenants: Vec<TenantId> = (0..2).map(|_| TenantId::from_u128(wide(&mut tenants))).collect();

    let schedulers = topology::schedulers(&mut stream("plan/schedulers"), sizes.schedulers, swarm);
    let mut workers = topology::workers(&mut stream("plan/workers"), sizes.workers, swarm);
    let count = sizes.jobs + stream("plan/job-count").below(sizes.more_jobs + 1);
    let mut jobs = jobs::draw(&mut stream("plan/jobs"), count as usize, &day, heal_at, swarm, outside.len());
    jobs::bound(&mut stream("plan/deadlines"), &mut jobs);
    if swarm.has(FaultKind::OperatorCalendars) {
        calendars::name(&mut stream("plan/jobs/calendars"), &mut jobs);
    }
    priorities::assign(seed, &mut jobs);
    priorities::rush(seed, &day, heal_at, &mut jobs, &mut workers);
    let ground = operators::Ground { jobs: &jobs, day: &day, heal_at, swarm };
    let actions = operators::draw(seed, &ground);
    let heal = heal(&mut draw, heal_at, sizes.schedulers, sizes.workers, swarm);

    let mut plan = Plan {
        format: PLAN_FORMAT,
        profile: profile.name().to_owned(),
        seed,
        streams: Streams::of(seed),
        starts_at: day.starts_at,
        daylight_saving: day.clocks_change,
        network: network(),
        schedulers,
        workers,
        outside,
        tenants,
        jobs,
        actions,
        faults: Vec::new(),
        heal,
    };
    plan.faults = faults::draw(seed, &plan, swarm);
    plan
}

fn network() -> NetworkSpec {
    let range = |least, most| DelayRange { least: Span::from_micros(least), most: Span::from_micros(most) };
    NetworkSpec {
        store: range(150, 2_000),
        broker: range(100, 1_500),
        outside: range(500, 20_000),
        reconnect: range(100_000, 2_000_000),
        detect: range(10_000, 10_000_000),
        notify_loss_ppm: PPM / 4,
        recode_ppm: PPM / 64,
    }
}

fn heal(draw: &mut Stream, at: SimTime, schedulers: usize, workers: usize, swarm: &swarm::Swarm) -> HealSpec {
    let mut dead = Vec::new();
    let mut drains = None;
    if swarm.any() && draw.chance(PPM / 5) {
        dead.extend((0..draw.below(schedulers as u64)).map(|index| NodeSlot::new(index as usize)));
        dead.extend((0..draw.below(workers as u64)).map(|index| NodeSlot::new(schedulers + index as usize)));
    } else if draw.chance(PPM / 4) {
        drains = Some(NodeSlot::new(draw.below((schedulers + workers) as u64) as usize));
    }
    HealSpec { at, dead, drains }
}

/// A number of 128 random bits.
fn wide(stream: &mut Stream) -> u128 {
    u128::from(stream.long()) << 64 | u128::from(stream.long())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::FaultGroup;

    #[test]
    fn a_plan_read_back_from_its_file_is_the_same() {
        for profile in Profile::ALL {
            for seed in 0..20 {
                let plan = generate(seed, profile);
                let again = Plan::from_json(&plan.to_json()).expect("a plan that was just made is valid");
                assert!(again == plan, "seed {seed} of {profile}");
            }
        }
    }

    #[test]
    fn the_default_profile_is_as_large_as_it_says() {
        for seed in 0..50 {
            let plan = generate(seed, Profile::Default);
            assert!(plan.jobs.len() >= 60 && plan.schedulers.len() == 3 && plan.workers.len() == 3);
            assert!(plan.heal.at >= SimTime::from_secs(600));
        }
    }

    #[test]
    fn a_calm_plan_has_no_faults_and_a_storm_has_all_that_are_scheduled() {
        assert!(generate(1, Profile::Calm).faults.is_empty());
        let storm = generate(1, Profile::Storm);
        for kind in FaultKind::ALL {
            let scheduled = match kind.group() {
                FaultGroup::Process
                | FaultGroup::NodeStore
                | FaultGroup::NodeBroker
                | FaultGroup::Store
                | FaultGroup::Broker
                | FaultGroup::Outside => *kind != FaultKind::NewNodeId,
                FaultGroup::Clock | FaultGroup::Handler | FaultGroup::Operator | FaultGroup::Data => false,
            };
            let there = storm.faults.iter().any(|fault| fault.kind == *kind);
            assert!(there || !scheduled, "{kind} is missing");
        }
    }

    #[test]
    fn some_swarms_are_empty_and_they_differ() {
        let kinds = |seed| {
            let mut kinds: Vec<_> =
                generate(seed, Profile::Default).faults.iter().map(|fault| fault.kind).collect();
            kinds.sort_unstable();
            kinds.dedup();
            kinds
        };
        let drawn: Vec<_> = (0..60).map(kinds).collect();
        assert!(drawn.iter().any(Vec::is_empty));
        assert!(drawn.iter().any(|kinds| kinds.len() > 20));
    }
}
