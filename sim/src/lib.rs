//! Fencepost's simulator: the core driven from a seed, with faults, oracles and a hash of everything.
//!
//! A seed expands to a [`plan`]; a [`world`] runs it on a [`store`] and keeps a [`trace`]; the [`oracle`]s
//! watch. Relies on the core's contract alone and never on the production shell. What must stay true: inside a
//! run there are no threads, no clocks, no hash-ordered collections and no floats, so that a seed gives
//! the same trace on any machine.

pub mod campaign;
pub mod cli;
pub mod fault;
pub mod measure;
pub mod mutants;
pub mod oracle;
pub mod plan;
pub mod report;
pub mod rng;
pub mod run;
pub mod shrink;
pub mod sim_time;
pub mod stopwatch;
pub mod store;
pub mod timeline;
pub mod trace;
pub mod violation;
pub mod world;
