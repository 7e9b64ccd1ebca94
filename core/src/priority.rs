//! Priorities: which of what waits is started first when not everything can be, and that nothing starves by it.
//!
//! There are three. A priority is a share, not an order: of the starts of a worker that has all three waiting, each has at
//! least its share, so that the low ones go on however many high ones there are. [`turns`] is the rule.
//!
//! It is the job's, written where its definition is; normal is never written, so that what knows no priority reads what it
//! read before.

pub mod turns;

crate::execution::named!(
    /// Which of what waits goes first.
    #[derive(Default)]
    Priority {
        /// Five starts of eight, where all three wait.
        High = "high",
        /// Two of eight.
        #[default]
        Normal = "normal",
        /// One of eight.
        Low = "low",
    }
);

/// Something for each priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ByPriority<T>([T; 3]);

impl Priority {
    /// How many starts it has of each [`WEIGHTS_SUM`](Self::WEIGHTS_SUM), while all three have something waiting.
    #[must_use]
    pub const fn weight(self) -> u64 {
        match self {
            Self::High => 5,
            Self::Normal => 2,
            Self::Low => 1,
        }
    }

    /// The sum of all weights.
    pub const WEIGHTS_SUM: u64 = 8;

    /// As it is left out of a stored definition and of a message.
    #[must_use]
    pub const fn is_normal(&self) -> bool {
        match self {
            Self::Normal => true,
            Self::High | Self::Low => false,
        }
    }

    /// Which one a place that has become free is offered to first, by something that is spread evenly, such as an id or a
    /// count: each as often as its weight says. For decisions of the store, which keeps no turns.
    #[must_use]
    pub const fn offered_first(to: u128) -> Self {
        match to % (Self::WEIGHTS_SUM as u128) {
            3 => Self::Low,
            1 | 5 => Self::Normal,
            _ => Self::High,
        }
    }

    /// In which order a place is offered that is offered to this one first: then to the others, the highest first.
    pub fn and_then_the_others(self) -> impl Iterator<Item = Self> {
        core::iter::once(self).chain(Self::ALL.iter().copied().filter(move |other| *other != self))
    }

    /// Its place among the three, the highest first.
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::High => 0,
            Self::Normal => 1,
            Self::Low => 2,
        }
    }
}

impl<T> ByPriority<T> {
    /// One for each, the highest first.
    pub const fn new(each: [T; 3]) -> Self {
        Self(each)
    }

    /// That of one priority.
    pub const fn get(&self, priority: Priority) -> &T {
        &self.0[priority.index()]
    }

    /// That of one priority, to be changed.
    pub const fn get_mut(&mut self, priority: Priority) -> &mut T {
        &mut self.0[priority.index()]
    }

    /// All three, the highest first.
    pub fn iter(&self) -> impl Iterator<Item = (Priority, &T)> {
        Priority::ALL.iter().copied().zip(&self.0)
    }

    /// All three, the highest first, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut()
    }

    /// The same made of each.
    pub fn map<U>(&self, each: impl Fn(&T) -> U) -> ByPriority<U> {
        let [high, normal, low] = &self.0;
        ByPriority([each(high), each(normal), each(low)])
    }
}
