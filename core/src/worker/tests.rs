//! Hand-driven tests of the worker.
