//! What operators do to dead letters: each is replayed once per number, whoever asks when, and not once it is purged.

use fencepost_core::replay::NotReplayable;
use fencepost_core::store::command::{Command, ReplayKey};
use fencepost_core::store::reply::{PageReplay, PurgeReply, ReplayReply, Reply};

use crate::authority::Row;
use crate::case::Case;
use crate::world::*;

fn is_replayed_already(reply: &Reply) -> bool {
    matches!(reply, Reply::DeadLetterReplayed(ReplayReply::Repeated { number: 1, .. }))
}

fn is_made_under_another_key(reply: &Reply) -> bool {
    matches!(reply, Reply::DeadLetterReplayed(ReplayReply::OtherKey { .. }))
}

fn is_the_second(reply: &Reply) -> bool {
    matches!(reply, Reply::DeadLetterReplayed(ReplayReply::Created { number: 2, .. }))
}

fn is_purged_away(reply: &Reply) -> bool {
    *reply == Reply::DeadLetterReplayed(ReplayReply::Refused(NotReplayable::Purged))
}

fn is_of_a_deleted_job(reply: &Reply) -> bool {
    *reply == Reply::DeadLetterReplayed(ReplayReply::Refused(NotReplayable::JobDeleted))
}

fn is_an_empty_page(reply: &Reply) -> bool {
    matches!(reply, Reply::DeadLettersReplayed(page) if page.letters.is_empty())
}

fn is_a_page_of_refusals(reply: &Reply) -> bool {
    let Reply::DeadLettersReplayed(page) = reply else { return false };
    !page.letters.is_empty()
        && page.letters.iter().all(|(_, became)| matches!(became, PageReplay::Refused(_)))
}

fn is_purged_already(reply: &Reply) -> bool {
    *reply == Reply::DeadLetterPurged(PurgeReply::Repeated)
}

fn case(name: &'static str, guarded: Command, rival: Command) -> Case {
    Case::new(name, Row::Operator, with_dead_letter(), at(30, guarded), at(31, rival))
}

pub(crate) fn cases() -> Vec<Case> {
    let first = || replay(1, ReplayKey::Origin);
    vec![
        case("replaying a dead letter against the same replay", first(), first()).yields(is_replayed_already),
        case(
            "replaying a dead letter against its replay under a key of its own",
            first(),
            replay(1, ReplayKey::Own),
        )
        .yields(is_made_under_another_key),
        case("replaying a dead letter once more against its first replay", replay_next("r"), first())
            .yields(is_the_second),
        case("replaying a dead letter against the same request", replay_next("r"), replay_next("r"))
            .yields(is_replayed_already),
        case("replaying a dead letter against its purge", first(), purge()).yields(is_purged_away),
        case("replaying a dead letter against the end of its job", first(), delete_job())
            .yields(is_of_a_deleted_job),
        case("replaying a dead letter against a page", first(), replay_all()).yields(is_replayed_already),
        case("replaying a page against a replay", replay_all(), first()).yields(is_an_empty_page),
        case("replaying a page against a page", replay_all(), replay_all()).yields(is_an_empty_page),
        case("replaying a page against a purge", replay_all(), purge()).yields(is_an_empty_page),
        case("replaying a page against the end of the job", replay_all(), delete_job())
            .yields(is_a_page_of_refusals),
        case("purging a dead letter against its purge", purge(), purge()).yields(is_purged_already),
        case("purging a dead letter against its replay", purge(), first()),
    ]
}
