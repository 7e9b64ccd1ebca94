//! Overlap: what becomes of an execution that asks for its first lease while another of its job holds the slot.
//!
//! An execution holds its job's slot from its first lease until it is terminal; waiting for a retry keeps it. The policy
//! that decides is that of the asking execution's own job version.

use super::parse::DefinitionError;
use crate::schedule::misfire::MisfirePolicy;

crate::execution::named!(
    /// What becomes of an execution that asks for its first lease while another of its job holds the slot.
    #[derive(Default)]
    Overlap {
        /// It runs beside the other.
        #[default]
        Allow = "allow",
        /// It is passed over.
        Skip = "skip",
        /// The first such one waits until the slot is free; further ones are passed over.
        BufferOne = "buffer_one",
        /// The other is asked to stop, and it waits until that has ended. Of several that wait the latest stays.
        CancelRunning = "cancel_running",
    }
);

impl Overlap {
    /// Whether executions of such a version are judged by what else of their job is under way.
    #[must_use]
    pub const fn judges(self) -> bool {
        match self {
            Self::Allow => false,
            Self::Skip | Self::BufferOne | Self::CancelRunning => true,
        }
    }

    /// As it is left out of a stored definition.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Checks it against the misfire policy: what would be caught up together and could not run together is refused.
    ///
    /// # Errors
    /// [`DefinitionError`] at `/overlap`.
    pub(super) fn check(self, misfire: MisfirePolicy) -> Result<(), DefinitionError> {
        let cap = match misfire {
            MisfirePolicy::CatchUp { cap, .. } => cap,
            MisfirePolicy::FireOnce | MisfirePolicy::Skip => return Ok(()),
        };
        let (most, what) = match self {
            Self::Allow => return Ok(()),
            Self::Skip => (1, "would pass over what is caught up beside the first"),
            Self::BufferOne => (2, "would pass over what is caught up beside the first two"),
            Self::CancelRunning => (1, "would cancel what is caught up but for the latest"),
        };
        if cap > most {
            let detail = format!("{self} {what}: catch up at most {most}, not {cap}");
            return Err(DefinitionError::at("/overlap", detail));
        }
        Ok(())
    }
}
