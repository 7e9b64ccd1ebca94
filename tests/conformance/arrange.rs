//! Which command comes next, and when: a weighted draw, resends of what was sent before, and a clock that
//! mostly goes on, sometimes leaps, and sometimes steps back.

use fencepost_core::store::command::Command;
use fencepost_core::time::{Span, Timestamp};

use crate::universe::Draw;

/// One step of a sequence.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) now: Timestamp,
    pub(crate) command: Command,
}

impl Draw<'_> {
    /// When the next step is.
    pub(crate) fn next_now(&mut self) -> Timestamp {
        match self.stream.between(0, 99) {
            0..=9 => self.now,
            10..=84 => self.now.plus(self.stream.long_tailed(Span::from_micros(1), Span::from_secs(5))),
            85..=93 => self.now.plus(self.stream.long_tailed(Span::from_secs(1), Span::from_secs(400))),
            _ => self.now.minus(self.stream.long_tailed(Span::from_millis(1), Span::from_secs(400))),
        }
    }

    /// What it is. `earlier` are the steps so far.
    pub(crate) fn next_command(&mut self, earlier: &[Step]) -> Command {
        if !earlier.is_empty() && self.chance(18) {
            // Recent ones first: what is resent was sent not long ago.
            let recent = &earlier[earlier.len().saturating_sub(15)..];
            return self.stream.pick(recent).command.clone();
        }
        if earlier.len() < 2 {
            return self.create_tenant();
        }
        if !self.has_jobs() {
            return self.create_job();
        }
        // By chance they would hardly reach the number at which no more may be.
        if self.chance(75)
            && let Some(more) = self.pile_up()
        {
            return more;
        }
        if self.chance(if self.has_naming_jobs() { 6 } else { 2 })
            && (self.has_naming_jobs() || !self.has_some_calendar())
        {
            return self.set_calendar();
        }
        // Rare enough as they are, they are met again while they are there.
        if !self.store.tables().dead_letters().is_empty() && self.chance(22) {
            return match self.stream.between(0, 19) {
                0..=9 => self.replay_dead_letter(),
                10..=15 => self.replay_dead_letters(),
                16..=17 => self.purge_dead_letter(),
                _ => self.delete_job(),
            };
        }
        self.new_command()
    }

    /// One that nobody has sent.
    pub(crate) fn new_command(&mut self) -> Command {
        match self.stream.between(0, 240) {
            0..=1 => Command::ReadClock,
            2..=7 => self.heartbeat(),
            8..=12 => self.acquire_leadership(),
            13..=22 => self.acquire_partitions(),
            23..=29 => self.renew_leases(),
            30..=32 => self.release_leases(),
            33..=39 => self.scan_due_jobs(),
            40..=69 => self.materialise(),
            70..=73 => self.put_off_jobs(),
            74..=83 => self.promote_due(),
            84..=91 => self.scan_outbox(),
            92..=99 => self.remove_outbox(),
            100..=103 => self.return_outbox(),
            104..=109 => self.scan_sweep(),
            110..=119 => self.repair(),
            120..=139 => self.acquire_executions(),
            140..=147 => self.renew_executions(),
            148..=165 => self.finish_executions(),
            166..=171 => self.defer_executions(),
            172..=173 => self.record_malformed(),
            174..=176 => self.create_tenant(),
            177..=185 => self.create_job(),
            186..=187 => self.delete_job(),
            188..=195 => self.trigger_job(),
            196..=199 => self.cancel_execution(),
            200..=201 => self.replay_dead_letter(),
            202 => self.replay_dead_letters(),
            203 => self.purge_dead_letter(),
            204..=205 => self.finish_executions(),
            206..=207 => self.scan_due_jobs(),
            208..=217 => self.set_pause(),
            218..=223 => self.set_limit(),
            224..=227 => self.replay_dead_letter(),
            228..=231 => self.set_calendar(),
            _ => self.change_job(),
        }
    }
}
