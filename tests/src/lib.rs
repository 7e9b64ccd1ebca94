//! What the joint tests share: they live beside this folder, one file per proof.
//!
//! Relies on all three crates. What must stay true: nothing here is needed by what is shipped.
