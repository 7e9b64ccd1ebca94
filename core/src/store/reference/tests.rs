//! Sentences about the reference semantics.
