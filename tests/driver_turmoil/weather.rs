//! The weather: what goes wrong on the simulated network, all of it drawn from a seed.
//!
//! A plan names each strike: what, to what, when and for how long. No two strikes are on one link, or on one host,
//! at a time, so that each can be undone by itself; at the heal all of them are over.

use core::fmt;
use std::time::Duration;

use fencepost_core::time::Span;
use fencepost_sim::rng::{Stream, StreamKey};

/// The schedulers' hosts.
pub(crate) const SCHEDULERS: [&str; 2] = ["scheduler-1", "scheduler-2"];
/// The workers' hosts.
pub(crate) const WORKERS: [&str; 2] = ["worker-1", "worker-2"];
/// The hosts that nodes call.
pub(crate) const SERVERS: [&str; 2] = ["store", "broker"];

/// When nothing has gone wrong yet.
const CALM: Span = Span::from_secs(3);
/// When everything heals.
pub(crate) const HEAL: Span = Span::from_secs(40);
/// How many strikes a plan has, at least and at most.
const STRIKES: (u64, u64) = (8, 16);
/// How long a strike lasts, at least and at most: from less than a timeout to longer than any lease.
const LASTS: (Span, Span) = (Span::from_millis(250), Span::from_secs(20));
/// A host is down for this long, at least: shorter is a bounce.
const DOWN: (Span, Span) = (Span::from_secs(1), Span::from_secs(16));
/// After how long a node that drains is started again, drained or not.
const DRAIN: (Span, Span) = (Span::from_secs(2), Span::from_secs(14));

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// A host dies, and starts again later.
    Crash,
    /// A host dies and starts again at once.
    Bounce,
    /// A node is asked to end in good order, and starts again later, whether it has ended or not.
    Drain,
    /// A link keeps what is sent over it, and delivers it all at once later.
    Hold,
    /// A link loses all that is sent over it.
    Cut,
    /// A link loses what the node sends to the server.
    CutThere,
    /// A link loses what the server sends to the node.
    CutBack,
    /// A link delivers late, now and then very late.
    Tail,
    /// A link loses some of what is sent over it.
    Loss,
}

impl Kind {
    pub(crate) const ALL: [Self; 9] = [
        Self::Crash,
        Self::Bounce,
        Self::Drain,
        Self::Hold,
        Self::Cut,
        Self::CutThere,
        Self::CutBack,
        Self::Tail,
        Self::Loss,
    ];

    /// Whether it strikes what travels in this direction.
    pub(crate) const fn strikes(self, direction: Direction) -> bool {
        match self {
            Self::Crash | Self::Bounce | Self::Drain => false,
            Self::Hold | Self::Cut | Self::Tail | Self::Loss => true,
            Self::CutThere => matches!(direction, Direction::There),
            Self::CutBack => matches!(direction, Direction::Back),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Crash => "crash",
            Self::Bounce => "bounce",
            Self::Drain => "drain",
            Self::Hold => "hold",
            Self::Cut => "cut",
            Self::CutThere => "cut to the server",
            Self::CutBack => "cut from the server",
            Self::Tail => "latency tail",
            Self::Loss => "loss",
        })
    }
}

/// Which way something travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Direction {
    /// From a node to a server.
    There,
    /// From a server to a node.
    Back,
}

/// What is struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    Host(&'static str),
    Link { node: &'static str, server: &'static str },
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => f.write_str(host),
            Self::Link { node, server } => write!(f, "{node} – {server}"),
        }
    }
}

/// One thing that goes wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strike {
    pub(crate) kind: Kind,
    pub(crate) target: Target,
    pub(crate) begins: Span,
    pub(crate) ends: Span,
}

/// Whether a strike begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Turn {
    Ends,
    Begins,
}

/// All that goes wrong in a run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) strikes: Vec<Strike>,
}

impl Plan {
    /// Nothing goes wrong.
    pub(crate) const fn fair(seed: u64) -> Self {
        Self { seed, strikes: Vec::new() }
    }

    /// The plan of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        let mut draws = StreamKey::of(seed, "turmoil").open();
        let mut plan = Self::fair(seed);
        for _ in 0..draws.between(STRIKES.0, STRIKES.1) {
            let strike = draw(&mut draws);
            let free = |other: &Strike| {
                other.target != strike.target || other.ends < strike.begins || strike.ends < other.begins
            };
            if plan.strikes.iter().all(free) {
                plan.strikes.push(strike);
            }
        }
        plan.strikes.sort_by_key(|strike| (strike.begins, strike.target));
        plan
    }

    /// What happens when, in order.
    pub(crate) fn turns(&self) -> Vec<(Span, Turn, Strike)> {
        let begins = self.strikes.iter().map(|strike| (strike.begins, Turn::Begins, *strike));
        let ends = self.strikes.iter().map(|strike| (strike.ends, Turn::Ends, *strike));
        let mut turns: Vec<_> = begins.chain(ends).collect();
        turns.sort_by_key(|(at, turn, strike)| (*at, *turn, strike.target));
        turns
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "the plan of seed {}:", self.seed)?;
        for Strike { kind, target, begins, ends } in &self.strikes {
            let (begins, ends) = (begins.to_duration().as_secs_f64(), ends.to_duration().as_secs_f64());
            writeln!(f, "  {begins:6.2} s to {ends:6.2} s  {kind}: {target}")?;
        }
        write!(f, "  {:6.2} s             everything heals", HEAL.to_duration().as_secs_f64())
    }
}

fn draw(draws: &mut Stream) -> Strike {
    let kind = *draws.pick(&Kind::ALL);
    let nodes: Vec<&'static str> = [SCHEDULERS, WORKERS].concat();
    let (target, (least, most)) = match kind {
        Kind::Crash => (Target::Host(any_host(draws, &nodes)), DOWN),
        Kind::Bounce => (Target::Host(any_host(draws, &nodes)), (Span::ZERO, Span::ZERO)),
        Kind::Drain => (Target::Host(pick(draws, &nodes)), DRAIN),
        Kind::Hold | Kind::Cut | Kind::CutThere | Kind::CutBack | Kind::Tail | Kind::Loss => {
            (Target::Link { node: pick(draws, &nodes), server: pick(draws, &SERVERS) }, LASTS)
        }
    };
    let latest = HEAL.minus(Span::from_secs(1));
    let begins = draws.span(CALM, latest);
    // To the millisecond, as the network keeps time.
    let begins = Span::from_millis(begins.as_micros() / 1_000);
    let lasts = Span::from_millis(draws.long_tailed(least, most).as_micros() / 1_000);
    Strike { kind, target, begins, ends: begins.plus(lasts).min(HEAL) }
}

fn any_host(draws: &mut Stream, nodes: &[&'static str]) -> &'static str {
    let hosts: Vec<&'static str> = [nodes, &SERVERS[..]].concat();
    pick(draws, &hosts)
}

fn pick(draws: &mut Stream, hosts: &[&'static str]) -> &'static str {
    let &host = draws.pick(hosts);
    host
}

/// The longest that a message takes in fair weather.
pub(crate) const LATENCY_MAX: Duration = Duration::from_millis(60);
/// The longest that one takes where latency has a tail; they are spread exponentially, a fifth of it on average.
pub(crate) const TAIL_MAX: Duration = Duration::from_secs(20);
/// Of how many messages one is where a link begins to lose, where it loses; half of those after it are lost too.
pub(crate) const LOSS_RATE: f64 = 0.2;
/// How likely a link that loses is to come back with the next message.
pub(crate) const REPAIR_RATE: f64 = 0.5;
