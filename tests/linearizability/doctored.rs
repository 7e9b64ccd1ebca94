//! Whether the harness would notice anything: histories made by hand, true ones and ones that were tampered with.
//!
//! What must stay true: a history that could have happened is explained, whatever is unknown of it; one that could
//! not is not, and is told as a timeline of those operations that have to do with it.

use fencepost_core::bug::Bugs;
use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{EffectId, NodeId};
use fencepost_core::lease::{HeldLease, LeaseResource};
use fencepost_core::partition::PartitionId;
use fencepost_core::store::command::{AcquireLeadership, AcquirePartitions, Command, Heartbeat, RenewLeases};
use fencepost_core::store::reference::ReferenceStore;
use fencepost_core::store::reply::{LeadershipReply, Reply};
use fencepost_core::store::row::{NodeRole, NodeState};
use fencepost_core::store::tables::Contents;
use fencepost_core::time::{Span, Timestamp};

use crate::atoms::atoms_of;
use crate::epoch::{Tally, has_contention};
use crate::history::Operation;
use crate::search::{Question, Verdict};
use crate::timeline::Unexplained;
use crate::universe::{START, nodes};
use crate::verdict::{STEPS_MAX, explain};

fn at(seconds: u64) -> Timestamp {
    START.plus(Span::from_secs(seconds))
}

fn lead(node: NodeId) -> Command {
    Command::AcquireLeadership(AcquireLeadership { node, nonce: EffectId(1), ttl: Span::from_secs(60) })
}

/// Under a token that was never granted: refused, and recorded in one row for all of a node's.
fn renew_in_vain(node: NodeId) -> Command {
    let held = HeldLease { resource: LeaseResource::Leadership, token: FencingToken::from_i64(7) };
    Command::RenewLeases(RenewLeases { node, ttl: Span::from_secs(60), leases: vec![held] })
}

fn report(node: NodeId) -> Command {
    Command::Heartbeat(Heartbeat {
        node,
        role: NodeRole::Worker,
        label: "a host".into(),
        schema: 1,
        state: NodeState::Active,
        capacity: 4,
        live_within: Span::from_secs(10),
    })
}

/// A history that is being made: commands take effect one after the other, and are said to have been under way from
/// one moment to another.
struct Making {
    store: ReferenceStore,
    operations: Vec<Operation>,
}

impl Making {
    fn new() -> Self {
        Self { store: ReferenceStore::new(Bugs::NONE), operations: Vec::new() }
    }

    fn next_now(&self) -> Timestamp {
        at(self.operations.len() as u64)
    }

    fn push(&mut self, command: Command, invoked: u64, over: u64, reply: Option<Reply>) {
        let (session, now) = (self.operations.len(), self.next_now());
        let answered = reply.map(|reply| (over, reply));
        self.operations.push(Operation { session, now, command, invoked, answered, over });
    }

    fn answered(mut self, command: Command, invoked: u64, over: u64) -> Self {
        let reply = self.store.apply(self.next_now(), &command, &mut Vec::new()).reply;
        self.push(command, invoked, over, Some(reply));
        self
    }

    fn unheard(mut self, command: Command, invoked: u64, over: u64) -> Self {
        self.store.apply(self.next_now(), &command, &mut Vec::new());
        self.push(command, invoked, over, None);
        self
    }

    fn lost(mut self, command: Command, invoked: u64, over: u64) -> Self {
        self.push(command, invoked, over, None);
        self
    }

    fn verdict(&self, contents: &Contents) -> Verdict {
        let start = ReferenceStore::new(Bugs::NONE);
        let atoms = atoms_of(&self.operations, &start);
        explain(&self.operations, &atoms, &start, Some(contents), &mut { STEPS_MAX })
    }

    fn is_explained(&self) -> bool {
        matches!(self.verdict(&self.store.dump()), Verdict::Explained(_))
    }

    fn timeline(&self, contents: &Contents) -> String {
        let start = ReferenceStore::new(Bugs::NONE);
        Unexplained { operations: &self.operations, start: &start, contents }.report()
    }
}

/// Two nodes ask for leadership at once, and a third one reports meanwhile.
fn two_candidates() -> Making {
    let [a, b, c] = nodes();
    Making::new().answered(lead(a), 0, 4).answered(lead(b), 1, 5).answered(report(c), 2, 3)
}

#[test]
fn what_could_have_happened_is_explained() {
    assert!(two_candidates().is_explained());
}

#[test]
fn a_doctored_answer_has_no_explanation_and_is_told_as_a_timeline() {
    let mut history = two_candidates();
    let granted = Reply::Leadership(LeadershipReply::Granted { token: FencingToken::from_i64(1) });
    history.operations[1].answered = Some((5, granted));
    assert!(!history.is_explained(), "two leaders under one token");
    let timeline = history.timeline(&history.store.dump());
    assert!(timeline.contains("!! 1 | -----"), "the doctored one is marked, and has its bar:\n{timeline}");
    assert!(timeline.contains("AcquireLeadership") && timeline.contains("Granted"), "{timeline}");
    assert!(!timeline.contains("Heartbeat"), "what has nothing to do with it is left out:\n{timeline}");
}

#[test]
fn an_answer_from_the_wrong_side_of_another_has_no_explanation() {
    let [a, b, _] = nodes();
    let at_once = Making::new().answered(lead(a), 1, 3).answered(lead(b), 0, 2);
    assert!(at_once.is_explained(), "whoever was second was asked first, and both were under way");
    let apart = Making::new().answered(lead(a), 2, 3).answered(lead(b), 0, 1);
    assert!(!apart.is_explained(), "denied before anybody else had asked");
}

#[test]
fn doctored_rows_have_no_explanation_and_are_shown() {
    let history = two_candidates();
    let mut contents = history.store.dump();
    let lease = contents.leases.iter_mut().find(|row| row.resource == LeaseResource::Leadership);
    lease.expect("every resource has a row").token = FencingToken::from_i64(2);
    assert!(!matches!(history.verdict(&contents), Verdict::Explained(_)));
    let timeline = history.timeline(&contents);
    assert!(timeline.contains("  expected ") && timeline.contains("  found "), "{timeline}");
}

#[test]
fn what_nobody_heard_of_may_have_happened_or_not() {
    let [a, b, _] = nodes();
    assert!(Making::new().unheard(lead(a), 0, 1).answered(lead(b), 2, 3).is_explained());
    assert!(Making::new().lost(lead(a), 0, 1).answered(lead(b), 2, 3).is_explained());
}

#[test]
fn what_nobody_heard_of_happens_once_at_the_most_and_not_before_it_was_asked() {
    let [a, b, _] = nodes();
    let mut twice = Making::new().unheard(renew_in_vain(a), 0, 1).answered(lead(b), 2, 3);
    twice.store.apply(at(0), &renew_in_vain(a), &mut Vec::new());
    assert!(!twice.is_explained(), "recorded twice and asked once");
    let early = Making::new().unheard(lead(a), 2, 3).answered(lead(b), 0, 1);
    assert!(!early.is_explained(), "denied because of a command that was not asked yet");
}

/// The renewal needs the grant, which was asked for only after a third one's answer: that one has to go first, although it
/// has nothing to do with the renewal.
#[test]
fn whichever_atom_a_search_begins_with_it_overlooks_none_that_was_asked_later() {
    let [_, b, c] = nodes();
    let partition = |number| LeaseResource::Partition(PartitionId::new(number).expect("there is such a one"));
    let renew = |node, number, token| {
        let held = HeldLease { resource: partition(number), token: FencingToken::from_i64(token) };
        Command::RenewLeases(RenewLeases { node, ttl: Span::from_secs(60), leases: vec![held] })
    };
    let grant = AcquirePartitions { node: b, nonce: EffectId(1), ttl: Span::from_secs(60), limit: 1 };
    let history = Making::new()
        .answered(renew(c, 5, 7), 1, 2)
        .answered(Command::AcquirePartitions(grant), 3, 9)
        .answered(renew(b, 0, 1), 0, 10);
    let start = ReferenceStore::new(Bugs::NONE);
    let atoms = atoms_of(&history.operations, &start);
    let contents = history.store.dump();
    let question = Question::new(&atoms, &start, Some(&contents));
    for round in 0..10 {
        assert!(question.is_explained_in_round(round), "in round {round}");
    }
}

/// What a search that decides step by step has no end of: each may have written the row, and none can be told from it.
#[test]
fn many_unknown_writers_of_one_row_are_decided() {
    let [a, ..] = nodes();
    let mut history = Making::new();
    for round in 0..10 {
        let from = round * 2;
        history = if round % 3 == 1 {
            history.unheard(renew_in_vain(a), from, from + 1)
        } else {
            history.lost(renew_in_vain(a), from, from + 1)
        };
    }
    assert_eq!(history.store.dump().refusals[0].count, 3);
    assert!(history.is_explained());
    let mut contents = history.store.dump();
    contents.refusals[0].count = 11;
    assert!(!matches!(history.verdict(&contents), Verdict::Explained(_)), "more than were asked");
}

#[test]
fn a_run_that_shows_nothing_is_vacuous() {
    let missing = Tally::default().missing();
    assert!(missing.iter().any(|what| what.contains("Terminated")), "{missing:?}");
    assert!(missing.len() > 25, "every kind of command and every answer is missed: {missing:?}");
}

#[test]
fn a_history_in_which_nobody_meets_anybody_is_vacuous() {
    let [a, b, _] = nodes();
    let meets =
        |history: Making| has_contention(&atoms_of(&history.operations, &ReferenceStore::new(Bugs::NONE)));
    assert!(meets(two_candidates()));
    assert!(!meets(Making::new().answered(lead(a), 0, 1).answered(lead(b), 2, 3)), "one after the other");
    assert!(
        !meets(Making::new().answered(report(a), 0, 2).answered(report(b), 1, 3)),
        "about different things"
    );
}
