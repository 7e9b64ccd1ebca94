//! What the joint tests share. The tests themselves lie beside this folder, one file per proof.
//!
//! Relies on all three crates. What must stay true: nothing here is needed by what is shipped.

pub mod own_database;
pub mod pg_proxy;
pub mod server_url;
pub mod throwaway;
pub mod waiting;
