//! Profiles: what kind of run a seed expands to.

use core::fmt;

use fencepost_core::time::Span;

/// What kind of run a seed expands to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Profile {
    /// The one that everything is judged by.
    #[default]
    Default,
    /// The same without any fault.
    Calm,
    /// The same with every kind of fault in every run.
    Storm,
    /// Few nodes, few jobs, little time: for stores that are slow to simulate on, and for a first look.
    Small,
}

/// The sizes of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// How many schedulers.
    pub(super) schedulers: usize,
    /// How many workers.
    pub(super) workers: usize,
    /// How many jobs at least.
    pub(super) jobs: u64,
    /// How many more there may be.
    pub(super) more_jobs: u64,
    /// When everything heals, at the earliest.
    pub(super) heals_after: Span,
    /// How much later it may be.
    pub(super) heals_within: Span,
}

/// Which faults a profile's plans have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultMix {
    /// None.
    None,
    /// A random subset in each plan, in some none.
    Swarm,
    /// All.
    All,
}

impl Profile {
    /// All profiles.
    pub const ALL: [Self; 4] = [Self::Default, Self::Calm, Self::Storm, Self::Small];

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Calm => "calm",
            Self::Storm => "storm",
            Self::Small => "small",
        }
    }

    /// What it is, in a sentence.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Default => {
                "3 schedulers, 3 workers, at least 60 jobs, 10 minutes of a random subset of faults, then the heal"
            }
            Self::Calm => "the default's cluster and jobs, without any fault",
            Self::Storm => "the default's cluster and jobs, with every kind of fault in every run",
            Self::Small => {
                "2 schedulers, 2 workers, 12 jobs, 2 minutes of a random subset of faults, then the heal"
            }
        }
    }

    /// The profile of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == name)
    }

    pub(super) const fn sizes(self) -> Sizes {
        match self {
            Self::Default | Self::Calm | Self::Storm => Sizes {
                schedulers: 3,
                workers: 3,
                jobs: 60,
                more_jobs: 6,
                heals_after: Span::from_secs(600),
                heals_within: Span::from_secs(30),
            },
            Self::Small => Sizes {
                schedulers: 2,
                workers: 2,
                jobs: 12,
                more_jobs: 4,
                heals_after: Span::from_secs(120),
                heals_within: Span::from_secs(10),
            },
        }
    }

    pub(super) const fn faults(self) -> FaultMix {
        match self {
            Self::Default | Self::Small => FaultMix::Swarm,
            Self::Calm => FaultMix::None,
            Self::Storm => FaultMix::All,
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
