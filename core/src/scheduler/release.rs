//! Giving leases back: at once from this node's view, and in the store once nothing acts under them.
//!
//! A lease that is to go is first forgotten, so that nothing new is done under it, and released when no call
//! under way presents it: overtaking one would have it refused for no reason. An unknown release is sent
//! again; it names owner and token, so a late one harms nobody.

use crate::lease::HeldLease;
use crate::scheduler::calls::{Call, Concern, Turn, View};
use crate::scheduler::pace::Pace;
use crate::store::command::{Command, ReleaseLeases};
use crate::time::Monotonic;

#[derive(Debug)]
pub(super) struct Release {
    leaving: Vec<HeldLease>,
    pace: Pace,
}

impl Release {
    pub(super) const fn new() -> Self {
        Self { leaving: Vec::new(), pace: Pace::AT_ONCE }
    }

    pub(super) fn add(&mut self, lease: HeldLease) {
        self.leaving.push(lease);
    }

    /// Whether nothing is left to be given back.
    pub(super) fn is_done(&self, view: View<'_>) -> bool {
        self.leaving.is_empty() && !view.calls.is_busy(Concern::Release)
    }

    /// When it is sent again at the latest; a call that is waited for wakes by its outcome.
    pub(super) fn wakes_at(&self, view: View<'_>) -> Monotonic {
        let waits =
            self.leaving.is_empty() || view.calls.is_busy(Concern::Release) || self.ready(view).is_empty();
        if waits { Monotonic::MAX } else { self.pace.at() }
    }

    pub(super) fn advance(&mut self, turn: &mut Turn<'_>) {
        if self.leaving.is_empty() || self.wakes_at(turn.view()) > turn.now {
            return;
        }
        let mut leases = self.ready(turn.view());
        self.leaving.retain(|lease| !leases.contains(lease));
        leases.sort_unstable();
        let command = ReleaseLeases { node: turn.config.node, leases: leases.clone() };
        turn.call(Call::ReleaseLeases { leases }, Command::ReleaseLeases(command));
    }

    /// A release was answered; refused or done, those leases are gone.
    pub(super) const fn answered(&mut self) {
        self.pace = Pace::AT_ONCE;
    }

    pub(super) fn unknown(&mut self, turn: &Turn<'_>, leases: Vec<HeldLease>) {
        let (first, most) = turn.patience();
        self.leaving.extend(leases);
        self.pace.after_unknown(turn.now, first, most);
    }

    fn ready(&self, view: View<'_>) -> Vec<HeldLease> {
        let presented = view.calls.presented();
        self.leaving.iter().copied().filter(|lease| !presented.contains(lease.resource)).collect()
    }
}
