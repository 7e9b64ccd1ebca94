//! `fencepost tenant create`: a tenant and its first key.

use clap::Args;
use fencepost_core::id::TenantId;
use fencepost_core::job::check_text;
use fencepost_core::store::StoreOutcome;
use fencepost_core::store::command::{Command, CreateTenant};
use fencepost_core::store::reply::{CreateTenantReply, Reply};
use serde::Serialize;
use uuid::Uuid;

use super::{DatabaseArguments, say};
use crate::failure::Failure;
use crate::postgres::{LaneSizes, PgStore};
use crate::settings::Settings;
use crate::{access, schema};

/// The arguments of `tenant create`.
#[derive(Debug, Args)]
pub(super) struct Create {
    /// The tenant's name.
    name: String,
    #[command(flatten)]
    pub(super) database: DatabaseArguments,
    /// One JSON document instead of lines.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    tenant_id: TenantId,
    name: &'a str,
    key: &'a str,
}

impl Create {
    pub(super) async fn run(&self, settings: &Settings) -> Result<(), Failure> {
        check_text("name", &self.name).map_err(|error| Failure::usage(error.to_string()))?;
        let url = settings.database_url()?;
        let pool = schema::connect(url).await?;
        schema::require_current(&pool).await?;
        let tenant = TenantId::from_uuid(Uuid::new_v4());
        let store = PgStore::new(schema::options(url)?, LaneSizes::default());
        let command = Command::CreateTenant(CreateTenant { tenant, name: self.name.as_str().into() });
        let reply = match store.execute(&command).await {
            StoreOutcome::Replied(reply) => reply.reply,
            StoreOutcome::Unknown => {
                return Err(Failure::unavailable(
                    "the database does not answer; whether the tenant was made is not known",
                ));
            }
        };
        let tenant = match reply {
            Reply::TenantCreated(CreateTenantReply::Created | CreateTenantReply::Repeated) => tenant,
            // One whose first key was never seen by anybody: this run makes it.
            Reply::TenantCreated(CreateTenantReply::NameTaken) => {
                access::tenant_without_key(&pool, &self.name)
                    .await
                    .map_err(|error| Failure::unavailable(format!("the database does not answer: {error}")))?
                    .ok_or_else(|| {
                        Failure::usage(format!("there is a tenant named {:?} already", self.name))
                    })?
            }
            other => {
                return Err(Failure::internal(format!(
                    "the store answered a tenant's creation with {other:?}"
                )));
            }
        };
        let key = access::new_key();
        // Shown first: a key that is stored and was never seen is lost, and one that is shown and not stored is told.
        self.print(tenant, &key)?;
        access::store_key(&pool, tenant, &key).await.map_err(|error| {
            Failure::unavailable(format!("the key above is void, for it could not be stored: {error}"))
                .hint("run the same command again")
        })
    }

    fn print(&self, tenant: TenantId, key: &str) -> Result<(), Failure> {
        if self.json {
            let document = Document { tenant_id: tenant, name: &self.name, key };
            let text =
                serde_json::to_string(&document).map_err(|error| Failure::internal(error.to_string()))?;
            return say(&text);
        }
        say(&format!(
            "tenant {tenant} ({})\nkey    {key}\nThe key is stored only as a digest and is not shown again.",
            self.name
        ))
    }
}
