//! Whether a history has a serial explanation: the search, told what to suppose of what nobody heard of.
//!
//! An atom of unknown outcome may take effect at any time from its invocation on, or never. A search that leaves
//! this open at every step has twice as many ways per such atom, and cannot compare rows with those at the end
//! as long as one of them may still write there. So the suppositions come first: of what is committed together
//! either all took effect or nothing did. They are tried in the order of how much they differ from the likeliest,
//! which is what the rows at the end show: every operation has a time of its own, and most of what takes effect writes
//! it somewhere. A supposition under which a thing that has changed was written by nobody needs no search. If none
//! leads to an explanation, the search that leaves everything open has the last word.
//!
//! What must stay true: a history is said to be explained only by an order in which the reference semantics gave the
//! answers and the rows; a supposition only says where to look first.

use std::collections::{BTreeMap, BTreeSet};

use fencepost_core::store::reference::ReferenceStore;
use fencepost_core::store::tables::Contents;

use crate::atoms::Atom;
use crate::history::Operation;
use crate::search::{Question, Unheard, Verdict};
use crate::touches::{Thing, only, rows_of};

/// How often a search begins under one supposition, at first and at last.
const ROUNDS: [u64; 3] = [1, 6, 40];
/// How many suppositions are tried.
const SUPPOSITIONS_MAX: usize = 4_096;
/// How often the search begins that leaves everything open.
const ROUNDS_OPEN: u64 = 10;
/// How many steps are spent on one history.
pub(crate) const STEPS_MAX: u64 = 30_000;

/// Looks for a serial explanation of a history that began in `start` and, if given, ended in `contents`, in so many
/// steps, which it counts down.
pub(crate) fn explain(
    operations: &[Operation],
    atoms: &[Atom],
    start: &ReferenceStore,
    contents: Option<&Contents>,
    left: &mut u64,
) -> Verdict {
    let question = Question::new(atoms, start, contents);
    let all: Vec<usize> = (0..atoms.len()).collect();
    let units = units(atoms);
    // Where no rows are to be reached at the end, nothing is gained by supposing.
    let Some(contents) = contents else {
        return question.explain(&all, Unheard::Perhaps, ROUNDS_OPEN, left);
    };
    if units.is_empty() {
        return question.explain(&all, Unheard::TookEffect, ROUNDS[2], left);
    }
    let orphans = orphans(atoms, &units, start, contents);
    let likely = likely(operations, atoms, &units, contents);
    let mut undecided: Vec<BTreeSet<usize>> = suppositions(units.len(), &likely)
        .take(SUPPOSITIONS_MAX)
        .filter(|took_effect| orphans.iter().all(|writers| !writers.is_disjoint(took_effect)))
        .collect();
    for rounds in ROUNDS {
        let mut still = Vec::new();
        for took_effect in undecided {
            if *left == 0 {
                break;
            }
            let is_supposed = |at: &usize| took_effect.iter().any(|unit| units[*unit].contains(at));
            let is_chosen = |at: &usize| atoms[*at].answered.is_some() || is_supposed(at);
            let chosen: Vec<usize> = all.iter().copied().filter(is_chosen).collect();
            match question.explain(&chosen, Unheard::TookEffect, rounds, left) {
                Verdict::Explained(state) => return Verdict::Explained(state),
                Verdict::Undecided { .. } => still.push(took_effect),
                Verdict::Impossible { .. } | Verdict::StrangeRows => {}
            }
        }
        undecided = still;
    }
    question.explain(&all, Unheard::Perhaps, ROUNDS_OPEN, left)
}

/// The atoms without an answer, those together that take effect together or not at all.
fn units(atoms: &[Atom]) -> Vec<Vec<usize>> {
    let mut units: BTreeMap<(usize, Option<usize>), Vec<usize>> = BTreeMap::new();
    for (at, atom) in atoms.iter().enumerate().filter(|(_, atom)| atom.answered.is_none()) {
        let alone = atom.may_be_committed_alone().then_some(at);
        units.entry((atom.operation, alone)).or_default().push(at);
    }
    units.into_values().collect()
}

/// For each thing that is at the end otherwise than at the beginning, and was written by nobody who was answered: the
/// units that may have written it. One of them did.
fn orphans(
    atoms: &[Atom],
    units: &[Vec<usize>],
    start: &ReferenceStore,
    contents: &Contents,
) -> BTreeSet<BTreeSet<usize>> {
    let known = atoms.iter().filter(|atom| atom.answered.is_some());
    let known: BTreeSet<Thing> = known.flat_map(Atom::writes).copied().collect();
    let mut writers: BTreeMap<Thing, BTreeSet<usize>> = BTreeMap::new();
    for (unit, members) in units.iter().enumerate() {
        for thing in members.iter().flat_map(|at| atoms[*at].writes().difference(&known)) {
            writers.entry(*thing).or_default().insert(unit);
        }
    }
    let changed = writers.into_iter().filter(|(thing, _)| has_changed(thing, start, contents));
    changed.map(|(_, those)| those).collect()
}

fn has_changed(thing: &Thing, start: &ReferenceStore, contents: &Contents) -> bool {
    if let Thing::Lease(resource) = thing {
        let place = usize::from(resource.number());
        return contents.leases.get(place) != Some(start.tables().lease(*resource));
    }
    let one = BTreeSet::from([*thing]);
    rows_of(start.tables(), &one) != only(contents, &one)
}

/// The units that left a trace.
fn likely(
    operations: &[Operation],
    atoms: &[Atom],
    units: &[Vec<usize>],
    contents: &Contents,
) -> BTreeSet<usize> {
    let heard = operations.iter().filter_map(|operation| operation.answered.as_ref());
    let heard: BTreeSet<i64> =
        heard.flat_map(|(_, reply)| numbers(&format!("{reply:?}")).collect::<Vec<_>>()).collect();
    let left_one = |atom: &Atom| {
        let written = format!("{:?}", only(contents, atom.writes()));
        atom.left_a_trace(&heard) || atom.left_a_trace(&numbers(&written).collect())
    };
    let left_a_trace = |unit: &usize| units[*unit].iter().any(|at| left_one(&atoms[*at]));
    (0..units.len()).filter(left_a_trace).collect()
}

/// Every number of a text.
fn numbers(text: &str) -> impl Iterator<Item = i64> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok())
}

/// The sets of so many units, those first that differ least from the likely one.
fn suppositions(units: usize, likely: &BTreeSet<usize>) -> impl Iterator<Item = BTreeSet<usize>> {
    (0..=units).flat_map(move |different| {
        choices(units, different).map(move |turned| {
            (0..units).filter(|unit| likely.contains(unit) != turned.contains(unit)).collect()
        })
    })
}

/// Every way to choose so many of so many places, in order.
fn choices(of: usize, count: usize) -> impl Iterator<Item = Vec<usize>> {
    let mut next = (count <= of).then(|| (0..count).collect::<Vec<usize>>());
    core::iter::from_fn(move || {
        let current = next.clone()?;
        next = (0..count).rev().find(|place| current[*place] < of - count + place).map(|place| {
            let first = current[place] + 1;
            let mut after = current.clone();
            after.iter_mut().skip(place).zip(first..).for_each(|(chosen, at)| *chosen = at);
            after
        });
        Some(current)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_comes_once() {
        assert_eq!(choices(4, 2).collect::<Vec<_>>(), [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]);
        assert_eq!(choices(3, 0).count(), 1);
        assert_eq!(choices(0, 1).count(), 0);
    }

    #[test]
    fn suppositions_begin_with_the_likeliest() {
        let all: Vec<BTreeSet<usize>> = suppositions(3, &BTreeSet::from([1])).collect();
        assert_eq!(all.len(), 8);
        assert_eq!(all[0], BTreeSet::from([1]));
        assert_eq!(all[1], BTreeSet::from([0, 1]));
        assert_eq!(all[7], BTreeSet::from([0, 2]));
    }
}
