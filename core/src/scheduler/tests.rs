//! The scheduler's role, driven by hand and in a small world without faults but those a test asks for.

mod world;

mod changing;
mod chaos;
mod dispatching;
mod draining;
mod firing;
mod leases;
mod repairing;
mod sharing;
