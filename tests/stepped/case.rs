//! A case: two commands that are about the same thing, and what must come of them.
//!
//! One of them acts under some authority, the *guarded* one; the other, its *rival*, takes that authority away, or
//! decides about the same rows. A case says what was there before, what the two ask, and what the guarded command
//! must answer once its rival has committed. What must stay true: a case is data. Nothing in it depends on the
//! server, on the clock or on which case was played before.

use fencepost_core::bug::Bugs;
use fencepost_core::store::command::Command;
use fencepost_core::store::reference::ReferenceStore;
use fencepost_core::store::reply::Reply;
use fencepost_core::store::row::RefusedAction;
use fencepost_core::time::Timestamp;

use crate::authority::Row;

/// A command at its time.
#[derive(Clone, Debug)]
pub(crate) struct Act {
    /// By which it is judged, whenever it runs.
    pub(crate) now: Timestamp,
    /// What is asked.
    pub(crate) command: Command,
}

/// What the guarded command says when its rival was first.
#[derive(Clone, Copy)]
pub(crate) struct Yield {
    /// Whether an answer says so, with the right reason.
    pub(crate) is: fn(&Reply) -> bool,
    /// As what it is recorded, where it is.
    pub(crate) recorded: Option<RefusedAction>,
}

/// Whether the two wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meeting {
    /// In some step one waits for the other.
    Waits,
    /// They never do, for this reason.
    PassesBy(&'static str),
}

/// Which order is asked of an explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serial {
    /// That of the commits.
    CommitOrder,
    /// Either, where both were under way at once, for this reason: whoever committed first took no authority away.
    EitherOrder(&'static str),
}

/// Two commands, and what must come of them.
pub(crate) struct Case {
    /// What it is about, as a sentence.
    pub(crate) name: &'static str,
    /// The row of the table of authority that the guarded command falls under.
    pub(crate) row: Row,
    /// What happened before, one after the other.
    pub(crate) arranged: Vec<Act>,
    /// Acts under authority.
    pub(crate) guarded: Act,
    /// Takes it away.
    pub(crate) rival: Act,
    /// Where both orders end well for the guarded command: none.
    pub(crate) yields: Option<Yield>,
    pub(crate) meeting: Meeting,
    pub(crate) serial: Serial,
    /// Why the order makes no difference, where it makes none.
    pub(crate) symmetry: Option<&'static str>,
}

impl Case {
    pub(crate) fn new(name: &'static str, row: Row, arranged: Vec<Act>, guarded: Act, rival: Act) -> Self {
        let (yields, meeting, serial) = (None, Meeting::Waits, Serial::CommitOrder);
        Self { name, row, arranged, guarded, rival, yields, meeting, serial, symmetry: None }
    }

    /// The guarded command's answer when the rival was first, which is not recorded.
    pub(crate) fn yields(self, is: fn(&Reply) -> bool) -> Self {
        Self { yields: Some(Yield { is, recorded: None }), ..self }
    }

    /// The refusal of the guarded command when the rival was first, which is recorded.
    pub(crate) fn refused(self, action: RefusedAction, is: fn(&Reply) -> bool) -> Self {
        Self { yields: Some(Yield { is, recorded: Some(action) }), ..self }
    }

    /// The two never wait for each other.
    pub(crate) fn passes_by(self, why: &'static str) -> Self {
        Self { meeting: Meeting::PassesBy(why), ..self }
    }

    /// While both are under way, the order of the commits does not matter.
    pub(crate) fn in_either_order(self, why: &'static str) -> Self {
        Self { serial: Serial::EitherOrder(why), ..self }
    }

    /// Answers and rows are the same, whoever is first.
    pub(crate) fn the_same_in_both_orders(self, why: &'static str) -> Self {
        Self { symmetry: Some(why), ..self }
    }

    /// What is there before the two begin, by the reference semantics.
    pub(crate) fn before(&self) -> ReferenceStore {
        let mut store = ReferenceStore::new(Bugs::NONE);
        for act in &self.arranged {
            store.apply(act.now, &act.command, &mut Vec::new());
        }
        store
    }

    /// Whether this answer of the guarded command gives way to the rival.
    pub(crate) fn gives_way(&self, reply: &Reply) -> bool {
        self.yields.is_some_and(|yields| (yields.is)(reply))
    }

    /// Why the case does not say what it means to say, by the reference semantics: an answer given one after the
    /// other that is not the one it asks for.
    pub(crate) fn misconception(&self) -> Option<String> {
        let answer = |acts: &[&Act]| {
            let mut store = self.before();
            let mut reply = None;
            for act in acts {
                reply = Some(store.apply(act.now, &act.command, &mut Vec::new()).reply);
            }
            (reply.expect("one act at least"), store.dump())
        };
        let (alone, _) = answer(&[&self.guarded]);
        let (second, first_rival) = answer(&[&self.rival, &self.guarded]);
        let (_, first_guarded) = answer(&[&self.guarded, &self.rival]);
        if self.gives_way(&alone) {
            return Some(format!("{}: without a rival it is answered {alone:?}", self.name));
        }
        if self.yields.is_some() && !self.gives_way(&second) {
            return Some(format!("{}: after its rival it is answered {second:?}", self.name));
        }
        if self.yields.is_none() && self.symmetry.is_none() && alone == second && first_rival == first_guarded
        {
            return Some(format!("{}: the order makes no difference", self.name));
        }
        None
    }
}
