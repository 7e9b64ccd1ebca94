//! Databases that cannot be used: each is refused in one sentence and left as it was.

use fencepost::failure::Failure;
use fencepost::schema;
use fencepost_tests::own_database;
use fencepost_tests::pg_proxy::{Cut, PgProxy};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection};

/// A database of this test's own.
struct Database {
    options: PgConnectOptions,
    name: String,
}

impl Database {
    async fn create(purpose: &str) -> Self {
        let name = own_database::name(&format!("unsuitable_{purpose}"));
        Self { options: own_database::create(&name).await, name }
    }

    fn options(&self) -> PgConnectOptions {
        self.options.clone()
    }

    async fn connect(&self) -> PgConnection {
        self.options().connect().await.expect("the server of DATABASE_URL can be reached")
    }

    /// The names of everything that somebody made in it.
    async fn contents(&self) -> Vec<String> {
        let mut connection = self.connect().await;
        let names = sqlx::query_scalar(
            "SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace
             UNION ALL SELECT proname::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace
             UNION ALL SELECT typname::text FROM pg_type WHERE typnamespace = 'public'::regnamespace
             ORDER BY 1",
        )
        .fetch_all(&mut connection)
        .await
        .expect("the catalogue can be read");
        connection.close().await.expect("nothing is under way");
        names
    }

    async fn remove(self) {
        own_database::drop(&self.name).await;
    }
}

/// Connects and migrates, as `fencepost migrate` does.
async fn migrate(options: &PgConnectOptions) -> Result<(), Failure> {
    migrate_at(options.to_url_lossy().as_str()).await
}

async fn migrate_at(url: &str) -> Result<(), Failure> {
    let pool = schema::connect(url).await?;
    let outcome = schema::migrate(&pool).await;
    pool.close().await;
    outcome.map(|_| ())
}

/// One sentence, and one hint at most.
fn told(outcome: Result<(), Failure>, words: &[&str]) {
    let text = outcome.expect_err("the database cannot be used").to_string();
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
    assert!(text.lines().count() <= 2, "{text}");
}

#[tokio::test]
async fn a_server_of_an_old_version_is_refused_by_its_version() {
    let database = Database::create("version").await;
    let old = [("current_setting('server_version_num')", "'140019'")];
    let proxy = PgProxy::start(&database.options(), &old).await.expect("a loopback port");
    told(migrate(&proxy.options(&database.options())).await, &["14.19", "PostgreSQL 15 or newer"]);
    assert_eq!(database.contents().await, [""; 0]);
    database.remove().await;
}

#[tokio::test]
async fn a_database_that_holds_something_else_is_left_alone() {
    let database = Database::create("taken").await;
    let mut theirs = database.connect().await;
    sqlx::query("CREATE TABLE accounts (id int)").execute(&mut theirs).await.expect("the database is ours");
    theirs.close().await.expect("nothing is under way");
    let before = database.contents().await;
    told(migrate(&database.options()).await, &["not Fencepost's", "left as it is"]);
    assert_eq!(database.contents().await, before);
    database.remove().await;
}

#[tokio::test]
async fn a_role_without_the_rights_is_told_which_are_missing() {
    let database = Database::create("rights").await;
    let mut url = database.options().to_url_lossy();
    // Any role that owns nothing: this one is on every server.
    url.query_pairs_mut().append_pair("options[role]", "pg_monitor");
    told(migrate_at(url.as_str()).await, &["lacks a right", "permission denied", "GRANT CREATE"]);
    assert_eq!(database.contents().await, [""; 0]);
    database.remove().await;
}

#[tokio::test]
async fn a_server_that_goes_away_in_the_middle_leaves_nothing_behind() {
    let database = Database::create("gone").await;
    for statement in ["CREATE TABLE IF NOT EXISTS _sqlx_migrations", "CREATE TABLE execution", "COMMIT"] {
        let proxy = PgProxy::start(&database.options(), &[]).await.expect("a loopback port");
        proxy.cut(statement, 0, Cut::Before);
        let outcome = migrate(&proxy.options(&database.options())).await;
        assert_eq!(proxy.sprung(), 1, "{statement} was executed");
        told(outcome, &[]);
        assert_eq!(database.contents().await, [""; 0], "cut before {statement}");
    }
    let proxy = PgProxy::start(&database.options(), &[]).await.expect("a loopback port");
    proxy.cut("COMMIT", 0, Cut::After);
    told(migrate(&proxy.options(&database.options())).await, &["is not known", "again"]);
    migrate(&database.options()).await.expect("what was migrated, or not, is made complete");
    database.remove().await;
}
