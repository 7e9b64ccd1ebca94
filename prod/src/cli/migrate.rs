//! `fencepost migrate`: the database's schema, up to what this version needs.

use super::say;
use crate::failure::Failure;
use crate::schema;
use crate::settings::Settings;

/// Migrates, and says what was done.
pub(super) async fn run(settings: &Settings) -> Result<(), Failure> {
    let pool = schema::connect(settings.database_url()?).await?;
    let outcome = schema::migrate(&pool).await?;
    say(&format!("the schema is at version {} ({} migrations applied now)", outcome.version, outcome.applied))
}
