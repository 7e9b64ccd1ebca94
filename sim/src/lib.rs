//! Fencepost's simulator: the core driven from a seed, with faults, oracles and a hash of everything.
//!
//! Relies on the core's contract alone and never on the production shell. What must stay true: inside a
//! run there are no threads, no clocks, no hash-ordered collections and no floats, so that a seed gives
//! the same trace on any machine.
