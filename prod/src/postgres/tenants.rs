//! Tenants: made once, never changed.

use fencepost_core::store::command::CreateTenant;
use fencepost_core::store::reply::{CreateTenantReply, Reply, StoreReply};
use sqlx::PgConnection;

use super::context::Context;
use super::fault::Fault;

/// Rows of this table never change, so what stood in the way may be read afterwards.
pub(super) async fn create(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &CreateTenant,
) -> Result<StoreReply, Fault> {
    let made = sqlx::query_scalar!(
        r#"INSERT INTO tenant (id, name, created_at) SELECT $2, $3, store_now($1)
           ON CONFLICT DO NOTHING RETURNING created_at AS "now!""#,
        cx.given,
        ask.tenant.as_uuid(),
        &*ask.name,
    )
    .fetch_optional(&mut *conn)
    .await?;
    if let Some(now) = made {
        return Ok(cx.reply(now, Reply::TenantCreated(CreateTenantReply::Created)));
    }
    let known = sqlx::query_scalar!("SELECT name FROM tenant WHERE id = $1", ask.tenant.as_uuid())
        .fetch_optional(&mut *conn)
        .await?;
    let now = cx.clock(conn).await?;
    let reply = match known {
        Some(name) if *name == *ask.name => CreateTenantReply::Repeated,
        Some(_) | None => CreateTenantReply::NameTaken,
    };
    Ok(cx.reply(now, Reply::TenantCreated(reply)))
}
