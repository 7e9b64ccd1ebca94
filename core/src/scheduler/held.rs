//! One lease as its holder sees it: under which token, and trusted until when.
//!
//! A lease whose trust has ended is *silent*: nothing is done under it any more, but renewing goes on, for
//! one that lapsed and was not replaced may be renewed. A refusal ends it.

use crate::fencing::FencingToken;
use crate::time::Monotonic;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Trusted,
    Silent,
}

/// A lease that this node holds, for all it knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) token: FencingToken,
    pub(super) trusted_until: Monotonic,
    pub(super) standing: Standing,
}

impl Held {
    pub(super) fn new(token: FencingToken, trusted_until: Monotonic, now: Monotonic) -> Self {
        let standing = if now < trusted_until { Standing::Trusted } else { Standing::Silent };
        Self { token, trusted_until, standing }
    }

    pub(super) const fn is_trusted(&self) -> bool {
        match self.standing {
            Standing::Trusted => true,
            Standing::Silent => false,
        }
    }
}
