//! What a step showed, and what is wrong with it.
//!
//! Two things are asked of every step. The answers and the rows have a serial explanation by the reference
//! semantics, in the order of the commits. And, said apart from that because two commands under way at once may be
//! explained in any order: where the rival had committed before the guarded command did, that one was told so, and
//! its refusal is on record. What must stay true: a judgement is a value; whoever breaks the SQL on purpose wants
//! to read it.

use core::fmt;
use std::collections::BTreeSet;

use fencepost_core::store::reference::ReferenceStore;
use fencepost_core::store::reply::Reply;
use fencepost_core::store::tables::Contents;

use crate::atoms::atoms_of;
use crate::case::{Act, Case, Serial};
use crate::history::Operation;

/// One of the two commands of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Guarded,
    Rival,
}

impl Who {
    pub(crate) const BOTH: [Self; 2] = [Self::Guarded, Self::Rival];

    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Guarded => Self::Rival,
            Self::Rival => Self::Guarded,
        }
    }

    pub(crate) const fn act(self, case: &Case) -> &Act {
        match self {
            Self::Guarded => &case.guarded,
            Self::Rival => &case.rival,
        }
    }
}

/// What becomes of the command that was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It goes on.
    GoesOn,
    /// Its connection is cut: the server rolls it back.
    Dies,
}

/// How much of the stopped command lay before the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// Nothing: it stood before its first statement.
    AtTheStart,
    /// Some: it stood before this statement.
    Before(String),
    /// All of it: the other began when it had ended.
    Never,
}

/// What a step showed.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) who_stopped: Who,
    pub(crate) stopped: Stopped,
    pub(crate) ending: Ending,
    /// Whether the other one waited for the stopped one.
    pub(crate) waited: bool,
    /// Whether each waited for the other.
    pub(crate) deadlocked: bool,
    pub(crate) guarded: Option<Reply>,
    pub(crate) rival: Option<Reply>,
    /// Who committed first.
    pub(crate) first: Who,
    /// The rows at the end.
    pub(crate) contents: Contents,
}

/// What is wrong with a step.
#[derive(Clone, Debug)]
pub(crate) enum Wrong {
    /// A command got no answer.
    NoAnswer(Who),
    /// Each waited for the other: locks were taken in different orders.
    Deadlock,
    /// The rival had committed, and the guarded command was not told so.
    TwoAuthorities(Reply),
    /// The guarded command was refused, and nothing says so afterwards.
    NotRecorded,
    /// One after the other, the reference semantics answer otherwise, or leave other rows.
    NoExplanation(String),
}

/// A step that must not be.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) case: &'static str,
    pub(crate) seen: Box<Seen>,
    pub(crate) wrong: Wrong,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seen = &self.seen;
        writeln!(f, "{}", self.case)?;
        writeln!(f, "  stopped: {:?}, {:?}, {:?}", seen.who_stopped, seen.stopped, seen.ending)?;
        writeln!(f, "  the other waited: {}; first to commit: {:?}", seen.waited, seen.first)?;
        writeln!(f, "  the guarded command was answered {:?}", seen.guarded)?;
        writeln!(f, "  its rival was answered {:?}", seen.rival)?;
        match &self.wrong {
            Wrong::NoAnswer(who) => write!(f, "  {who:?} got no answer"),
            Wrong::Deadlock => write!(f, "  each waited for the other"),
            Wrong::TwoAuthorities(reply) => {
                write!(f, "  two authorities: the rival had committed, and it was answered {reply:?}")
            }
            Wrong::NotRecorded => write!(f, "  the refusal is not on record"),
            Wrong::NoExplanation(why) => write!(f, "  no serial explanation: {why}"),
        }
    }
}

/// What the steps of a case showed together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Steps played.
    pub(crate) steps: usize,
    /// In how many of them one waited for the other.
    pub(crate) waited: usize,
    /// In how many the guarded command gave way to its rival.
    pub(crate) refused: usize,
    /// In how many the stopped command died.
    pub(crate) died: usize,
}

impl Tally {
    pub(crate) fn note(&mut self, case: &Case, seen: &Seen) {
        self.steps += 1;
        self.waited += usize::from(seen.waited);
        self.refused += usize::from(seen.guarded.as_ref().is_some_and(|reply| case.gives_way(reply)));
        self.died += usize::from(seen.ending == Ending::Dies);
    }
}

/// Judges a step of a case.
pub(crate) fn judge(case: &Case, seen: &Seen) -> Result<(), Wrong> {
    let dead = (seen.ending == Ending::Dies && seen.stopped != Stopped::Never).then_some(seen.who_stopped);
    for who in Who::BOTH {
        if dead != Some(who) && seen.reply(who).is_none() {
            return Err(Wrong::NoAnswer(who));
        }
    }
    if seen.deadlocked {
        return Err(Wrong::Deadlock);
    }
    // Whoever died did so before its commit, and the other was alone.
    if let Some(dead) = dead {
        return seen.explain(case, &[dead.other()]).map_err(Wrong::NoExplanation);
    }
    let may_be_either =
        matches!(case.serial, Serial::EitherOrder(_)) && matches!(seen.stopped, Stopped::Before(_));
    if let (Who::Rival, Some(yields), Some(reply), false) =
        (seen.first, case.yields, &seen.guarded, may_be_either)
    {
        if !(yields.is)(reply) {
            return Err(Wrong::TwoAuthorities(reply.clone()));
        }
        let is_recorded = |action| seen.contents.refusals.iter().any(|row| row.action == action);
        if yields.recorded.is_some_and(|action| !is_recorded(action)) {
            return Err(Wrong::NotRecorded);
        }
    }
    let in_order = seen.explain(case, &[seen.first, seen.first.other()]);
    let explained = match in_order {
        Err(_) if may_be_either => seen.explain(case, &[seen.first.other(), seen.first]),
        explained => explained,
    };
    explained.map_err(Wrong::NoExplanation)
}

impl Seen {
    fn reply(&self, who: Who) -> Option<&Reply> {
        match who {
            Who::Guarded => self.guarded.as_ref(),
            Who::Rival => self.rival.as_ref(),
        }
    }

    /// Whether these, one after the other, give the answers and leave the rows that were seen; else why not.
    fn explain(&self, case: &Case, order: &[Who]) -> Result<(), String> {
        let operation = |at: usize, who: Who| {
            let act = who.act(case);
            let moment = u64::try_from(at).expect("there are two");
            Operation {
                session: at,
                now: act.now,
                command: act.command.clone(),
                invoked: moment,
                answered: self.reply(who).map(|reply| (moment, reply.clone())),
                over: moment,
            }
        };
        let operations: Vec<Operation> =
            order.iter().enumerate().map(|(at, who)| operation(at, *who)).collect();
        let mut state = case.before();
        for atom in atoms_of(&operations, &state.clone()) {
            let who = order[atom.operation];
            if atom.take_effect(&mut state).is_none() {
                return Err(self.other_answer(case, who, &state, order));
            }
        }
        let expected = state.dump();
        if expected == self.contents {
            return Ok(());
        }
        let (expected, found) = (rows(&expected), rows(&self.contents));
        let list =
            |rows: Vec<&String>| rows.into_iter().map(|row| format!("\n    {row}")).collect::<String>();
        Err(format!(
            "{order:?} leaves other rows; expected{}\n  found{}",
            list(expected.difference(&found).collect()),
            list(found.difference(&expected).collect())
        ))
    }

    fn other_answer(&self, case: &Case, who: Who, state: &ReferenceStore, order: &[Who]) -> String {
        let act = who.act(case);
        let expected = state.clone().apply(act.now, &act.command, &mut Vec::new()).reply;
        format!("in {order:?}, {who:?} would be answered {expected:?}")
    }
}

/// Every row, as text.
fn rows(contents: &Contents) -> BTreeSet<String> {
    fn each<Row: fmt::Debug>(rows: &[Row]) -> impl Iterator<Item = String> {
        rows.iter().map(|row| format!("{row:?}"))
    }
    each(&contents.tenants)
        .chain(each(&contents.leases))
        .chain(each(&contents.nodes))
        .chain(each(&contents.jobs))
        .chain(each(&contents.job_versions))
        .chain(each(&contents.executions))
        .chain(each(&contents.attempts))
        .chain(each(&contents.outbox))
        .chain(each(&contents.dead_letters))
        .chain(each(&contents.skipped_ranges))
        .chain(each(&contents.refusals))
        .chain(each(&contents.requests))
        .chain(each(&contents.malformed))
        .collect()
}
