//! The search for a serial explanation, after Wing, Gong and Lowe.
//!
//! A history is explained if its atoms can be put in one order, respecting what was answered before what was
//! asked, in which the reference semantics give every answer that was seen and end in the rows that the server
//! was left with. Atoms whose outcome nobody learnt may be anywhere from their invocation on, or nowhere.
//!
//! Linearizability is local: a history has an explanation if each of its parts that have nothing to do with each
//! other has one. So it is taken apart first, and each part is searched alone: a walk over orders, one atom at
//! a time, that remembers where it has been (what has taken effect, and the rows). What keeps it short: an atom that
//! changes nothing is placed where it first fits; the others are tried in the order of their answers, which is nearly
//! always right, but readers of a thing before its writers; only those are tried against each other that have to do
//! with each other; from a dead end it goes back to the last atom that had a say in it; rows that nobody writes any
//! more are compared at once with those at the end; and what nobody heard of is tried last.

use core::hash::{Hash, Hasher};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};

use fencepost_core::store::reference::ReferenceStore;
use fencepost_core::store::tables::Contents;

use crate::atoms::{Atom, Effect};
use crate::touches::{Thing, only, rows_of};

/// How many steps the search through one part may take. One that needs more has not been decided.
const STEPS_MAX: u64 = 3_000;

/// What came of a search.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    /// There is an order. What the store holds at its end.
    Explained(Box<ReferenceStore>),
    /// There is none for these atoms, by index. Where most of them could be put in order, `stuck` could not follow.
    Impossible {
        /// A part of the history that has no explanation.
        part: Vec<usize>,
        /// What stood next.
        stuck: Vec<usize>,
    },
    /// Rows are at the end that no atom can have written.
    StrangeRows,
    /// The search was given up in this part.
    Undecided {
        /// By index.
        part: Vec<usize>,
        /// What stood next where most could be put in order.
        stuck: Vec<usize>,
    },
}

/// Looks for an order of the atoms that begins in `start` and, if given, ends in `contents`.
pub(crate) fn explain(atoms: &[Atom], start: &ReferenceStore, contents: Option<&Contents>) -> Verdict {
    let mut state = start.clone();
    for part in parts(atoms) {
        let mut search = Search::new(atoms, &part, contents);
        match search.walk(&state) {
            Step::Found(store) => state = *store,
            Step::GivenUp => return Verdict::Undecided { part, stuck: search.stuck },
            Step::DeadEnd(_) => return Verdict::Impossible { part, stuck: search.stuck },
        }
    }
    match contents {
        Some(contents) if state.dump() != *contents => Verdict::StrangeRows,
        Some(_) | None => Verdict::Explained(Box::new(state)),
    }
}

/// The parts of a history that have nothing to do with each other.
fn parts(atoms: &[Atom]) -> Vec<Vec<usize>> {
    let mut part_of: Vec<usize> = (0..atoms.len()).collect();
    for a in 0..atoms.len() {
        for b in a + 1..atoms.len() {
            if part_of[a] != part_of[b] && atoms[a].meets(&atoms[b]) {
                let (kept, gone) = (part_of[a].min(part_of[b]), part_of[a].max(part_of[b]));
                part_of.iter_mut().filter(|part| **part == gone).for_each(|part| *part = kept);
            }
        }
    }
    let numbers: BTreeSet<usize> = part_of.iter().copied().collect();
    let members = |part: usize| (0..atoms.len()).filter(|at| part_of[*at] == part).collect();
    numbers.into_iter().map(members).collect()
}

enum Step {
    Found(Box<ReferenceStore>),
    /// No way on, because of these: they could not take effect, or left rows that were not found.
    DeadEnd(BTreeSet<usize>),
    GivenUp,
}

/// The search through one part.
struct Search<'a> {
    atoms: &'a [Atom],
    /// What the part may write, and the rows of it at the end.
    things: BTreeSet<Thing>,
    contents: Option<Contents>,
    /// By answer, those without one last.
    order: Vec<usize>,
    /// For each atom those of the part that it can meet and that are under way at the same time.
    rivals: Vec<Vec<usize>>,
    done: Vec<bool>,
    placed: usize,
    known_left: usize,
    /// Where there was no way on, and because of what.
    been: BTreeMap<(u64, u64), BTreeSet<usize>>,
    has_turned_back: bool,
    steps: u64,
    most_placed: usize,
    stuck: Vec<usize>,
}

impl<'a> Search<'a> {
    fn new(atoms: &'a [Atom], part: &[usize], contents: Option<&Contents>) -> Self {
        let mut order = part.to_vec();
        order.sort_by_key(|at| (atoms[*at].answered.unwrap_or(u64::MAX), atoms[*at].invoked));
        let meets = |a: usize, b: usize| a != b && atoms[a].overlaps(&atoms[b]) && atoms[a].meets(&atoms[b]);
        let rivals = |a: usize| part.iter().copied().filter(|b| meets(a, *b)).collect();
        let things: BTreeSet<Thing> = part.iter().flat_map(|at| atoms[*at].writes()).copied().collect();
        Self {
            atoms,
            contents: contents.map(|contents| only(contents, &things)),
            things,
            order,
            rivals: (0..atoms.len())
                .map(|a| if part.contains(&a) { rivals(a) } else { Vec::new() })
                .collect(),
            done: vec![false; atoms.len()],
            placed: 0,
            known_left: part.iter().filter(|at| atoms[**at].answered.is_some()).count(),
            been: BTreeMap::new(),
            has_turned_back: false,
            steps: 0,
            most_placed: 0,
            stuck: Vec::new(),
        }
    }

    fn walk(&mut self, state: &ReferenceStore) -> Step {
        if self.known_left == 0 && self.ends_here(state) {
            return Step::Found(Box::new(state.clone()));
        }
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Step::GivenUp;
        }
        let may = self.may_be_next();
        if let Some(at) = may.iter().copied().find(|at| self.is_as_seen_and_changes_nothing(*at, state)) {
            // It is in nobody's way here, and everybody is freer once it is done: no other place is better.
            return self.go_on_with(at, state);
        }
        let mut stuck = Vec::new();
        let mut because = BTreeSet::new();
        let candidates = self.worth_trying(may);
        for at in candidates.iter().copied() {
            let Some(effect) = self.atoms[at].take_effect(state) else {
                stuck.push(at);
                because.insert(at);
                continue;
            };
            let after = match &effect {
                Effect::None => state,
                Effect::Becomes(after) => after,
            };
            match self.go_on_with(at, after) {
                Step::DeadEnd(others) if self.has_a_say(at, &others) => because.extend(others),
                // Another place of this atom changes nothing of what was in the way.
                step => return step,
            }
        }
        if let Some(first) = candidates.first().copied().filter(|at| self.atoms[*at].answered.is_none()) {
            // Only such are left, and this one may never have taken effect.
            match self.go_on_with(first, state) {
                Step::DeadEnd(others) => because.extend(others),
                step => return step,
            }
        }
        if self.placed >= self.most_placed {
            self.most_placed = self.placed;
            self.stuck = stuck;
        }
        Step::DeadEnd(because)
    }

    /// Goes on in the state that an atom has led to.
    fn go_on_with(&mut self, at: usize, after: &ReferenceStore) -> Step {
        self.place(at);
        let step = if self.can_end_from(at, after) {
            self.walk_once(after)
        } else {
            Step::DeadEnd(BTreeSet::from([at]))
        };
        if matches!(step, Step::DeadEnd(_)) {
            self.has_turned_back = true;
            self.take_back(at);
        }
        step
    }

    /// Whether an atom that waits has an influence on one of these, directly or through others that wait.
    fn has_a_say(&self, at: usize, others: &BTreeSet<usize>) -> bool {
        let mut reached = BTreeSet::from([at]);
        let mut open = vec![at];
        while let Some(one) = open.pop() {
            if others.contains(&one) {
                return true;
            }
            for other in self.order.iter().copied().filter(|other| !self.done[*other]) {
                if !reached.contains(&other) && self.atoms[one].meets(&self.atoms[other]) {
                    reached.insert(other);
                    open.push(other);
                }
            }
        }
        false
    }

    /// Whether what nobody writes after this atom is what was found at the end.
    fn can_end_from(&self, at: usize, state: &ReferenceStore) -> bool {
        let Some(contents) = &self.contents else { return true };
        let is_written_later = |thing: &Thing| {
            self.order.iter().any(|other| !self.done[*other] && self.atoms[*other].writes().contains(thing))
        };
        let settled: BTreeSet<Thing> =
            self.atoms[at].writes().iter().filter(|thing| !is_written_later(thing)).copied().collect();
        settled.is_empty() || rows_of(state.tables(), &settled) == only(contents, &settled)
    }

    fn ends_here(&self, state: &ReferenceStore) -> bool {
        self.contents.as_ref().is_none_or(|contents| self.rows(state) == *contents)
    }

    fn rows(&self, state: &ReferenceStore) -> Contents {
        rows_of(state.tables(), &self.things)
    }

    /// Goes on, unless it has been here before.
    fn walk_once(&mut self, state: &ReferenceStore) -> Step {
        // Before the first dead end it has been nowhere but on its way here.
        if !self.has_turned_back {
            return self.walk(state);
        }
        let here = (fingerprint(&self.done), fingerprint(&self.rows(state)));
        if let Some(because) = self.been.get(&here) {
            return Step::DeadEnd(because.clone());
        }
        let step = self.walk(state);
        if let Step::DeadEnd(because) = &step {
            self.been.insert(here, because.clone());
        }
        step
    }

    /// What may take effect next: nothing that was asked after something that still waits was answered.
    fn may_be_next(&self) -> Vec<usize> {
        let waiting = || self.order.iter().copied().filter(|at| !self.done[*at]);
        let first_answer = waiting().filter_map(|at| self.atoms[at].answered).min().unwrap_or(u64::MAX);
        waiting().filter(|at| self.atoms[*at].invoked < first_answer).collect()
    }

    fn is_as_seen_and_changes_nothing(&self, at: usize, state: &ReferenceStore) -> bool {
        let atom = &self.atoms[at];
        let only_reads = atom.answered.is_some() && atom.writes().is_empty();
        only_reads && matches!(atom.take_effect(state), Some(Effect::None))
    }

    /// Of what may be next, what has to do with the first, directly or through others that wait: the rest can as
    /// well come after it. What writes things that others still want to read is tried after them.
    fn worth_trying(&self, may: Vec<usize>) -> Vec<usize> {
        let Some(first) = may.first().copied() else { return may };
        let related = self.related(first);
        let mut those: Vec<usize> = may.into_iter().filter(|at| related.contains(at)).collect();
        let waiting_readers = |at: usize| {
            let reads = |rival: &&usize| !self.done[**rival] && self.atoms[at].spoils(&self.atoms[**rival]);
            self.rivals[at].iter().filter(reads).count()
        };
        those.sort_by_key(|at| (self.atoms[*at].answered.is_none(), waiting_readers(*at)));
        those
    }

    /// Those that wait and are rivals of this one, or of one of these.
    fn related(&self, first: usize) -> BTreeSet<usize> {
        let mut related = BTreeSet::from([first]);
        let mut open = vec![first];
        while let Some(at) = open.pop() {
            for rival in self.rivals[at].iter().filter(|rival| !self.done[**rival]) {
                if related.insert(*rival) {
                    open.push(*rival);
                }
            }
        }
        related
    }

    fn place(&mut self, at: usize) {
        self.done[at] = true;
        self.placed += 1;
        self.known_left -= usize::from(self.atoms[at].answered.is_some());
    }

    fn take_back(&mut self, at: usize) {
        self.done[at] = false;
        self.placed -= 1;
        self.known_left += usize::from(self.atoms[at].answered.is_some());
    }
}

fn fingerprint(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}
