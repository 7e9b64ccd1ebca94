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
//! more are compared at once with those at the end, and those that keep an instant say beforehand who wrote them last; and
//! what nobody heard of is tried last. A walk that takes long has most likely gone astray early on, so another one begins,
//! with each atom at some other moment of its call.

use core::hash::{Hash, Hasher};
use std::collections::{BTreeMap, BTreeSet};

use fencepost_core::store::change::{Change, Delta};
use fencepost_core::store::reference::ReferenceStore;
use fencepost_core::store::tables::Contents;
use fencepost_sim::trace::TraceHasher;

use crate::atoms::Atom;
use crate::touches::{Thing, are_found, kept_stamps};

/// After how many steps for each atom a search has gone astray, and had better begin anew.
const STEPS_PER_ATOM: u64 = 8;
/// How many it may take at the least, where it is to begin anew often: a few atoms have not many orders.
const STEPS_MIN: u64 = 1_000;

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

impl Verdict {
    /// What came of it, in a few words.
    pub(crate) fn summary(&self, atoms: &[Atom]) -> String {
        let told = |what: &str, part: &[usize]| {
            let unheard = part.iter().filter(|at| atoms[**at].answered.is_none()).count();
            format!("{what} in a part of {} atoms, {unheard} of them unheard of", part.len())
        };
        match self {
            Self::Explained(_) => "there is an explanation".to_owned(),
            Self::Impossible { part, .. } => told("there is no explanation", part),
            Self::StrangeRows => "rows are there that nobody can have written".to_owned(),
            Self::Undecided { part, .. } => told("the search was given up", part),
        }
    }
}

/// What is supposed of the atoms whose outcome nobody learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unheard {
    /// They took effect, all of them.
    TookEffect,
    /// Each may have, or not.
    Perhaps,
}

/// Atoms of which some order is looked for.
pub(crate) struct Question<'a> {
    /// All atoms of the history.
    pub(crate) atoms: &'a [Atom],
    /// Which of them can have an influence on each other.
    meetings: Meetings,
    precedence: Precedence,
    /// What the store held at its beginning.
    start: &'a ReferenceStore,
    /// What it holds at its end, if that matters.
    contents: Option<&'a Contents>,
}

/// For each atom those that must have taken effect before it, as the rows at the end tell.
///
/// A row that keeps the instant of whoever wrote it last says who that was; some keep that of the first one as well. Without
/// this a search finds out at the last writer that another one should have been, and has many others to try before
/// it comes to these two.
struct Precedence(Vec<Vec<usize>>);

impl Precedence {
    fn of(atoms: &[Atom], start: &ReferenceStore, contents: &Contents) -> Self {
        let mut before = vec![Vec::new(); atoms.len()];
        let things: BTreeSet<Thing> = atoms.iter().flat_map(Atom::writes).copied().collect();
        for thing in things {
            let stamps = |at: usize| Some((at, atoms[at].stamp_on(&thing)?));
            let stamped: Vec<_> = (0..atoms.len()).filter_map(stamps).collect();
            if stamped.len() < 2 {
                continue;
            }
            let kept = kept_stamps(start, contents, &thing);
            for (other, stamp) in stamped.iter().filter(|(at, _)| atoms[*at].answered.is_some()) {
                for (at, own) in &stamped {
                    // What one batch repeats has one stamp, and can stand side by side.
                    if stamp != own && Some(*own) == kept.last {
                        before[*at].push(*other);
                    }
                    if stamp != own && Some(*own) == kept.first {
                        before[*other].push(*at);
                    }
                }
            }
        }
        Self(before)
    }
}

/// For each two atoms whether they meet.
struct Meetings(Vec<Vec<bool>>);

impl Meetings {
    fn of(atoms: &[Atom]) -> Self {
        Self(atoms.iter().map(|one| atoms.iter().map(|other| one.meets(other)).collect()).collect())
    }

    fn between(&self, one: usize, other: usize) -> bool {
        self.0[one][other]
    }
}

impl<'a> Question<'a> {
    /// Of an order of atoms that begins in `start` and, if given, ends in `contents`.
    pub(crate) fn new(atoms: &'a [Atom], start: &'a ReferenceStore, contents: Option<&'a Contents>) -> Self {
        let precedence = match contents {
            Some(contents) => Precedence::of(atoms, start, contents),
            None => Precedence(vec![Vec::new(); atoms.len()]),
        };
        Self { atoms, meetings: Meetings::of(atoms), precedence, start, contents }
    }

    /// Looks for an order of the chosen atoms, by index: so many times anew where it goes astray, and in at most so many
    /// steps, which it counts down.
    pub(crate) fn explain(&self, chosen: &[usize], unheard: Unheard, rounds: u64, left: &mut u64) -> Verdict {
        let mut state = self.start.clone();
        for part in self.parts(chosen) {
            let mut round = 0;
            state = loop {
                let least = if rounds > 1 { STEPS_MIN } else { 0 };
                let steps = STEPS_PER_ATOM.saturating_mul(part.len() as u64).max(least).min(*left);
                let mut search = Search::new(self, &part, unheard, round, steps, state.clone());
                let step = search.walk();
                *left -= steps - search.steps_left;
                round += 1;
                match step {
                    Step::Found => break search.state,
                    Step::GivenUp if round < rounds && *left > 0 => {}
                    Step::GivenUp => return Verdict::Undecided { part, stuck: search.stuck },
                    Step::DeadEnd(_) => return Verdict::Impossible { part, stuck: search.stuck },
                }
            };
        }
        match self.contents {
            Some(contents) if state.dump() != *contents => Verdict::StrangeRows,
            Some(_) | None => Verdict::Explained(Box::new(state)),
        }
    }

    /// Whether one walk over all of them finds an order, with each atom at the moment of its call that this round has it at.
    pub(crate) fn is_explained_in_round(&self, round: u64) -> bool {
        let all: Vec<usize> = (0..self.atoms.len()).collect();
        let mut search = Search::new(self, &all, Unheard::TookEffect, round, STEPS_MIN, self.start.clone());
        matches!(search.walk(), Step::Found)
    }

    /// The parts of the chosen that have nothing to do with each other.
    fn parts(&self, chosen: &[usize]) -> Vec<Vec<usize>> {
        let mut parts: Vec<Vec<usize>> = Vec::new();
        for at in chosen.iter().copied() {
            let meets = |part: &Vec<usize>| part.iter().any(|other| self.meetings.between(at, *other));
            let (mut own, apart): (Vec<Vec<usize>>, Vec<Vec<usize>>) = parts.into_iter().partition(meets);
            own.push(vec![at]);
            parts = apart;
            parts.push(own.concat());
        }
        parts.iter_mut().for_each(|part| part.sort_unstable());
        parts.sort_unstable();
        parts
    }
}

enum Step {
    /// The store is where the order ends.
    Found,
    /// No way on, because of these: they could not take effect, or left rows that were not found.
    DeadEnd(BTreeSet<usize>),
    GivenUp,
}

/// The search through one part.
struct Search<'a> {
    atoms: &'a [Atom],
    meetings: &'a Meetings,
    precedence: &'a Precedence,
    unheard: Unheard,
    /// What the store holds where the search stands.
    state: ReferenceStore,
    /// A sum over its rows, but for a constant.
    rows: u64,
    /// What the part may write.
    things: Vec<Thing>,
    /// For each atom which of these it may write.
    writes: Vec<Vec<usize>>,
    /// How many that are not done may write each of them.
    writers_left: Vec<u32>,
    /// What the store holds at the end, if that matters.
    contents: Option<&'a Contents>,
    /// In the order that is tried first.
    order: Vec<usize>,
    /// For each atom those of the part that it can meet and that are under way at the same time.
    rivals: Vec<Vec<usize>>,
    /// For each atom those of its rivals that read what it writes.
    spoiled: Vec<Vec<usize>>,
    done: Vec<bool>,
    /// A sum over what is done.
    done_sum: u64,
    /// Of the part, and not done.
    waits: Vec<bool>,
    placed: usize,
    /// How many have to take effect yet.
    needed: usize,
    /// Where there was no way on, and because of what.
    been: BTreeMap<(u64, u64), BTreeSet<usize>>,
    has_turned_back: bool,
    steps_left: u64,
    most_placed: usize,
    stuck: Vec<usize>,
}

impl<'a> Search<'a> {
    fn new(
        question: &'a Question<'a>,
        part: &[usize],
        unheard: Unheard,
        round: u64,
        steps: u64,
        state: ReferenceStore,
    ) -> Self {
        let (atoms, meetings) = (question.atoms, &question.meetings);
        let mut order = part.to_vec();
        order.sort_by_key(|at| {
            let atom = &atoms[*at];
            let over = match unheard {
                Unheard::TookEffect => atom.likely_over,
                Unheard::Perhaps => atom.answered.unwrap_or(u64::MAX),
            };
            let likely = match round {
                0 => over,
                1 => atom.invoked,
                _ => atom.invoked + fingerprint(&(round, *at)) % over.saturating_sub(atom.invoked).max(1),
            };
            (likely, atom.invoked)
        });
        let meets = |a: usize, b: usize| a != b && atoms[a].overlaps(&atoms[b]) && meetings.between(a, b);
        let mut rivals = vec![Vec::new(); atoms.len()];
        let mut spoiled = vec![Vec::new(); atoms.len()];
        for a in part.iter().copied() {
            rivals[a] = part.iter().copied().filter(|b| meets(a, *b)).collect();
            spoiled[a] = rivals[a].iter().copied().filter(|b| atoms[a].spoils(&atoms[*b])).collect();
        }
        let things: BTreeSet<Thing> = part.iter().flat_map(|at| atoms[*at].writes()).copied().collect();
        let things: Vec<Thing> = things.into_iter().collect();
        let place = |thing: &Thing| things.binary_search(thing).expect("it is among them");
        let mut writes = vec![Vec::new(); atoms.len()];
        let mut writers_left = vec![0; things.len()];
        for at in part.iter().copied() {
            writes[at] = atoms[at].writes().iter().map(place).collect();
            writes[at].iter().for_each(|thing| writers_left[*thing] += 1);
        }
        let mut search = Self {
            atoms,
            meetings,
            precedence: &question.precedence,
            unheard,
            state,
            rows: 0,
            things,
            writes,
            writers_left,
            contents: question.contents,
            order,
            rivals,
            spoiled,
            done: vec![false; atoms.len()],
            done_sum: 0,
            waits: vec![false; atoms.len()],
            placed: 0,
            needed: 0,
            been: BTreeMap::new(),
            has_turned_back: false,
            steps_left: steps,
            most_placed: 0,
            stuck: Vec::new(),
        };
        part.iter().for_each(|at| search.waits[*at] = true);
        search.needed = part.iter().filter(|at| search.has_to_take_effect(**at)).count();
        search
    }

    fn has_to_take_effect(&self, at: usize) -> bool {
        self.atoms[at].answered.is_some() || self.unheard == Unheard::TookEffect
    }

    fn walk(&mut self) -> Step {
        if self.needed == 0 && self.ends_here() {
            return Step::Found;
        }
        let Some(left) = self.steps_left.checked_sub(1) else { return Step::GivenUp };
        self.steps_left = left;
        let may = self.may_be_next();
        if let Some(at) = may.iter().copied().find(|at| self.is_as_seen_and_changes_nothing(*at)) {
            // It is in nobody's way here, and everybody is freer once it is done: no other place is better.
            return self.go_on_with(at, Vec::new());
        }
        let mut stuck = Vec::new();
        let mut because = BTreeSet::new();
        let candidates = self.worth_trying(may);
        for at in candidates.iter().copied() {
            let Some(changes) = self.atoms[at].take_effect(&mut self.state) else {
                stuck.push(at);
                because.insert(at);
                continue;
            };
            match self.go_on_with(at, changes) {
                Step::DeadEnd(others) if self.has_a_say(at, &others) => because.extend(others),
                // Another place of this atom changes nothing of what was in the way.
                step => return step,
            }
        }
        if let Some(first) = candidates.first().copied().filter(|at| !self.has_to_take_effect(*at)) {
            // Only such are left, and this one may never have taken effect.
            match self.go_on_with(first, Vec::new()) {
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

    /// Goes on where an atom has led to by these changes, which are taken back if that leads nowhere.
    fn go_on_with(&mut self, at: usize, changes: Vec<Change>) -> Step {
        let rows = self.rows;
        self.rows = changes.iter().fold(rows, |sum, change| sum.wrapping_add(difference(change)));
        self.place(at);
        let step = if self.can_end_from(at) { self.walk_once() } else { Step::DeadEnd(BTreeSet::from([at])) };
        if matches!(step, Step::DeadEnd(_)) {
            self.has_turned_back = true;
            self.take_back(at);
            self.rows = rows;
            self.state.take_back(changes);
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
                if !reached.contains(&other) && self.meetings.between(one, other) {
                    reached.insert(other);
                    open.push(other);
                }
            }
        }
        false
    }

    /// Whether what nobody writes after this atom is what was found at the end.
    fn can_end_from(&self, at: usize) -> bool {
        let Some(contents) = self.contents else { return true };
        let settled = self.writes[at].iter().filter(|thing| self.writers_left[**thing] == 0);
        let settled: Vec<Thing> = settled.map(|thing| self.things[*thing]).collect();
        settled.is_empty() || are_found(&settled, self.state.tables(), contents)
    }

    fn ends_here(&self) -> bool {
        self.contents.is_none_or(|contents| are_found(&self.things, self.state.tables(), contents))
    }

    /// Goes on, unless it has been here before.
    fn walk_once(&mut self) -> Step {
        // Before the first dead end it has been nowhere but on its way here.
        if !self.has_turned_back {
            return self.walk();
        }
        let here = (self.done_sum, self.rows);
        if let Some(because) = self.been.get(&here) {
            return Step::DeadEnd(because.clone());
        }
        let step = self.walk();
        if let Step::DeadEnd(because) = &step {
            self.been.insert(here, because.clone());
        }
        step
    }

    /// What may take effect next: nothing that was asked after something that still waits was answered, and nothing
    /// that has to come after something that waits.
    fn may_be_next(&self) -> Vec<usize> {
        let waiting = || self.order.iter().copied().filter(|at| !self.done[*at]);
        let first_answer = waiting().filter_map(|at| self.atoms[at].answered).min().unwrap_or(u64::MAX);
        let is_early = |at: &usize| self.precedence.0[*at].iter().any(|other| self.waits[*other]);
        waiting().filter(|at| self.atoms[*at].invoked < first_answer && !is_early(at)).collect()
    }

    fn is_as_seen_and_changes_nothing(&mut self, at: usize) -> bool {
        let atom = &self.atoms[at];
        if atom.answered.is_none() || !atom.writes().is_empty() {
            return false;
        }
        // It writes nothing, so nothing has changed.
        atom.take_effect(&mut self.state).is_some()
    }

    /// Of what may be next, what has to do with the one that was answered first, directly or through others that wait: the
    /// rest can as well come after it. It has to be that one: another's rival might be asked only after it was answered, and
    /// has to be waited for. Where that one must wait for somebody itself, anything is worth trying. What writes things that
    /// others still want to read is tried after them.
    fn worth_trying(&self, may: Vec<usize>) -> Vec<usize> {
        let waiting = self.order.iter().copied().filter(|at| !self.done[*at]);
        let answered = waiting.filter_map(|at| Some((self.atoms[at].answered?, at)));
        let mut those = match answered.min().map(|(_, at)| at).or_else(|| may.first().copied()) {
            Some(first) if may.contains(&first) => {
                let related = self.related(first);
                may.into_iter().filter(|at| related.contains(at)).collect()
            }
            Some(_) | None => may,
        };
        let waiting_readers = |at: usize| self.spoiled[at].iter().filter(|rival| !self.done[**rival]).count();
        those.sort_by_key(|at| (!self.has_to_take_effect(*at), waiting_readers(*at)));
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
        self.done_sum = self.done_sum.wrapping_add(fingerprint(&at));
        self.waits[at] = false;
        self.placed += 1;
        self.needed -= usize::from(self.has_to_take_effect(at));
        for thing in &self.writes[at] {
            self.writers_left[*thing] -= 1;
        }
    }

    fn take_back(&mut self, at: usize) {
        self.done[at] = false;
        self.done_sum = self.done_sum.wrapping_sub(fingerprint(&at));
        self.waits[at] = true;
        self.placed -= 1;
        self.needed += usize::from(self.has_to_take_effect(at));
        for thing in &self.writes[at] {
            self.writers_left[*thing] += 1;
        }
    }
}

fn fingerprint(what: &impl Hash) -> u64 {
    let mut hasher = TraceHasher::default();
    what.hash(&mut hasher);
    hasher.finish()
}

/// By what a change changes the sum over all rows of a store.
fn difference(change: &Change) -> u64 {
    fn of<Row: Hash>(table: u8, delta: &Delta<Row>) -> u64 {
        let part = |row: &Option<Row>| row.as_ref().map_or(0, |row| fingerprint(&(table, row)));
        part(&delta.after).wrapping_sub(part(&delta.before))
    }
    match change {
        Change::Tenant(delta) => of(0, delta),
        Change::Lease(delta) => of(1, delta),
        Change::Node(delta) => of(2, delta),
        Change::Job(delta) => of(3, delta),
        Change::JobVersion(delta) => of(4, delta),
        Change::Execution(delta) => of(5, delta),
        Change::Attempt(delta) => of(6, delta),
        Change::Outbox(delta) => of(7, delta),
        Change::DeadLetter(delta) => of(8, delta),
        Change::SkippedRange(delta) => of(9, delta),
        Change::Refusal(delta) => of(10, delta),
        Change::Request(delta) => of(11, delta),
        Change::Pause(delta) => of(12, delta),
        Change::Limit(delta) => of(13, delta),
        Change::Malformed(delta) => of(14, delta),
        Change::Calendar(delta) => of(15, delta),
    }
}
