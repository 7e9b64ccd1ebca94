//! Databases of the tests' own, on whatever server `DATABASE_URL` names.
//!
//! That server may be somebody's: a test makes databases there, under names that nobody else has, and drops them. One
//! that fails leaves its database behind, to be looked at; the run as a whole (`./test`) drops what is left. Nothing
//! else on the server is touched.

use core::fmt;
use std::str::FromStr;

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection};

use crate::server_url::database_url;

/// What the name of every test's database begins with.
const PREFIX: &str = "fencepost_test_";
/// The oldest server that is supported, as `server_version_num` has it.
const OLDEST_SERVER: i32 = 150_000;

/// Why a server cannot be used for tests. As text: one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsuitable {
    /// The URL is none: wrong usage.
    Url(String),
    /// It cannot be reached, or does not answer.
    OutOfReach(String),
    /// It is too old.
    Version(String),
    /// The role may not make databases: wrong usage.
    Rights(String),
}

impl Unsuitable {
    /// The exit code of a program that ends because of it.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Url(_) | Self::Rights(_) => 64,
            Self::OutOfReach(_) | Self::Version(_) => 69,
        }
    }
}

impl fmt::Display for Unsuitable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(why) => write!(f, "DATABASE_URL is no URL of a PostgreSQL database: {why}"),
            Self::OutOfReach(why) => write!(f, "the server of DATABASE_URL is out of reach: {why}"),
            Self::Version(version) => {
                write!(f, "the server of DATABASE_URL runs PostgreSQL {version}; the tests need 15 or newer")
            }
            Self::Rights(role) => write!(
                f,
                "the role {role:?} of DATABASE_URL may not create databases, which each test does for itself: \
                 ALTER ROLE {role:?} CREATEDB, or leave DATABASE_URL unset and have a server started"
            ),
        }
    }
}

/// The name of a test's database, unless another of this process has the same purpose.
#[must_use]
pub fn name(purpose: &str) -> String {
    format!("{}{purpose}_{}", run_prefix(), std::process::id())
}

/// `./test` says which run it is, so that it finds what that run left behind.
fn run_prefix() -> String {
    let run = std::env::var("THROWAWAY_RUN").unwrap_or_else(|_| "alone".to_owned());
    format!("{PREFIX}{run}_")
}

/// Makes an empty database of this name anew.
///
/// # Panics
/// Where the server is not suitable, with the sentence that says why.
pub async fn create(name: &str) -> PgConnectOptions {
    let server = match suitable(&database_url()).await {
        Ok(server) => server,
        Err(unsuitable) => panic!("{unsuitable}"),
    };
    let mut admin = server.connect().await.expect("it has just been reached");
    execute(&mut admin, &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
    execute(&mut admin, &format!("CREATE DATABASE {name}")).await;
    admin.close().await.expect("nothing is under way");
    server.database(name)
}

/// Drops the database of this name, whoever is connected to it.
///
/// # Panics
/// Where that cannot be done.
pub async fn drop(name: &str) {
    let server = PgConnectOptions::from_str(&database_url()).expect("it was made with this URL");
    let mut admin = server.connect().await.expect("the server of DATABASE_URL can be reached");
    execute(&mut admin, &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
    admin.close().await.expect("nothing is under way");
}

/// Drops what is left of this run, and tells the names.
///
/// # Errors
/// The server is out of reach.
pub async fn sweep(url: &str) -> Result<Vec<String>, Unsuitable> {
    let server = PgConnectOptions::from_str(url).map_err(|error| Unsuitable::Url(error.to_string()))?;
    let out_of_reach = |error: sqlx::Error| Unsuitable::OutOfReach(error.to_string());
    let mut admin = server.connect().await.map_err(out_of_reach)?;
    let left: Vec<String> =
        sqlx::query_scalar("SELECT datname::text FROM pg_database WHERE starts_with(datname, $1)")
            .bind(run_prefix())
            .fetch_all(&mut admin)
            .await
            .map_err(out_of_reach)?;
    for name in &left {
        execute(&mut admin, &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
    }
    admin.close().await.map_err(out_of_reach)?;
    Ok(left)
}

/// Looks whether tests can run on a server, without writing anything.
///
/// # Errors
/// Why they cannot.
pub async fn suitable(url: &str) -> Result<PgConnectOptions, Unsuitable> {
    let server = PgConnectOptions::from_str(url).map_err(|error| Unsuitable::Url(error.to_string()))?;
    let out_of_reach = |error: sqlx::Error| Unsuitable::OutOfReach(error.to_string());
    let mut admin = server.connect().await.map_err(out_of_reach)?;
    let (version, version_name, role, may): (String, String, String, bool) = sqlx::query_as(
        "SELECT current_setting('server_version_num'), current_setting('server_version'), rolname::text,
                rolsuper OR rolcreatedb
         FROM pg_roles WHERE rolname = current_user",
    )
    .fetch_one(&mut admin)
    .await
    .map_err(out_of_reach)?;
    admin.close().await.map_err(out_of_reach)?;
    if version.parse::<i32>().is_ok_and(|version| version < OLDEST_SERVER) {
        return Err(Unsuitable::Version(version_name));
    }
    if may { Ok(server) } else { Err(Unsuitable::Rights(role)) }
}

async fn execute(admin: &mut PgConnection, statement: &str) {
    if let Err(error) = sqlx::query(AssertSqlSafe(statement.to_owned())).execute(admin).await {
        panic!("the server of DATABASE_URL refused `{statement}`: {error}");
    }
}
