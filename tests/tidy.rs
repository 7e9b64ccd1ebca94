//! Style is a test: the rules that a reader relies on without checking them.
