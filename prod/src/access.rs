//! Tenant keys: who a request speaks for.
//!
//! A key is 32 random bytes, shown once when it is made and stored only as its SHA-256 digest. It has
//! too much entropy to be guessed, so a plain digest is enough, and looking it up is one probe of a
//! primary key. The core knows nothing of keys: it is given the tenant.

use core::fmt::Write;

use fencepost_core::id::TenantId;
use rand::TryRng;
use sha2::{Digest, Sha256};
use sqlx::PgPool;
use uuid::Uuid;

/// What every key begins with, so that one found in a log is recognised.
const PREFIX: &str = "fp_";

/// A new key, as text. To be shown once.
///
/// # Panics
/// If the operating system has no randomness to give, in which case nothing may be keyed at all.
#[must_use]
pub fn new_key() -> String {
    let mut bytes = [0_u8; 32];
    rand::rngs::SysRng.try_fill_bytes(&mut bytes).expect("the operating system provides randomness");
    bytes.iter().fold(PREFIX.to_owned(), |mut key, byte| {
        write!(key, "{byte:02x}").expect("writing to a string does not fail");
        key
    })
}

/// What is stored of a key.
#[must_use]
pub fn digest(key: &str) -> Vec<u8> {
    Sha256::digest(key.as_bytes()).to_vec()
}

/// Stores a key of a tenant, by its digest.
///
/// # Errors
/// Of the database.
pub async fn store_key(pool: &PgPool, tenant: TenantId, key: &str) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "INSERT INTO api_key (digest, tenant, created_at) VALUES ($1, $2, store_now(NULL))",
        digest(key),
        tenant.as_uuid(),
    )
    .execute(pool)
    .await
    .map(drop)
}

/// A tenant of this name that has no key yet.
///
/// # Errors
/// Of the database.
pub async fn tenant_without_key(pool: &PgPool, name: &str) -> Result<Option<TenantId>, sqlx::Error> {
    let id = sqlx::query_scalar!(
        "SELECT id FROM tenant AS t WHERE name = $1 AND NOT EXISTS (SELECT FROM api_key WHERE tenant = t.id)",
        name,
    )
    .fetch_optional(pool)
    .await?;
    Ok(id.map(TenantId::from_uuid))
}

/// The tenant of a key; `None` if there is no such key.
///
/// # Errors
/// Of the database.
pub async fn tenant_of(pool: &PgPool, key: &str) -> Result<Option<TenantId>, sqlx::Error> {
    if !key.starts_with(PREFIX) {
        return Ok(None);
    }
    let tenant: Option<Uuid> =
        sqlx::query_scalar!("SELECT tenant FROM api_key WHERE digest = $1", digest(key))
            .fetch_optional(pool)
            .await?;
    Ok(tenant.map(TenantId::from_uuid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_and_are_recognised() {
        let (one, other) = (new_key(), new_key());
        assert_ne!(one, other);
        assert!(one.starts_with("fp_") && one.len() == 67, "{one}");
    }

    #[test]
    fn the_digest_is_not_the_key() {
        let key = new_key();
        assert_eq!(digest(&key).len(), 32);
        assert_ne!(digest(&key), key.as_bytes());
    }
}
