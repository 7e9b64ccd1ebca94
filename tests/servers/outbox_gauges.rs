//! The gauges of the outbox, against a real PostgreSQL.

use std::time::Duration;

use fencepost::telemetry::outbox_backlog;
use fencepost_tests::own_database;
use sqlx::postgres::PgPoolOptions;

#[tokio::test]
async fn the_backlog_is_every_row_of_the_outbox_and_the_age_of_the_oldest() {
    let name = own_database::name("outbox_gauges");
    let options = own_database::create(&name).await;
    let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(options);
    fencepost::schema::migrate(&pool).await.expect("an empty database can be migrated");

    let empty = outbox_backlog(&pool).await.expect("the outbox can be looked at");
    assert_eq!((empty.rows, empty.oldest), (0, Duration::ZERO));

    sqlx::raw_sql(
        "INSERT INTO outbox_event
           (execution, dispatch_no, tenant, partition, created_by, created_at, next_try_at, tries)
         SELECT ('00000000-0000-0000-0000-00000000000' || n)::uuid, 1, '00000000-0000-0000-0000-000000000001', n,
           '00000000-0000-0000-0000-000000000002', store_now(NULL) - n * 60000000::int8, 0, 0
         FROM generate_series(1, 3) AS n",
    )
    .execute(&pool)
    .await
    .expect("rows may be inserted");
    let waiting = outbox_backlog(&pool).await.expect("the outbox can be looked at");
    assert_eq!(waiting.rows, 3);
    let (least, most) = (Duration::from_secs(180), Duration::from_secs(240));
    assert!((least..most).contains(&waiting.oldest), "{waiting:?}");

    pool.close().await;
    own_database::drop(&name).await;
}
