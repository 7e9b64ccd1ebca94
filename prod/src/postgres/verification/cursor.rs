//! A cursor of the server: rows in order, a page at a time.

use std::collections::VecDeque;

use sqlx::postgres::PgRow;
use sqlx::{FromRow, PgConnection};

use super::own;
use crate::postgres::fault::Fault;
use crate::verify::Progress;

/// Rows on a page.
const PAGE: usize = 1_000;

/// Rows of one SELECT, in its order. Lives as long as the transaction that it was opened in.
pub(super) struct Cursor<Row> {
    name: &'static str,
    page: VecDeque<Row>,
    is_over: bool,
}

impl<Row> Cursor<Row>
where
    Row: for<'r> FromRow<'r, PgRow> + Send + Unpin,
{
    /// Opens a cursor over a SELECT.
    pub(super) async fn open(
        conn: &mut PgConnection,
        name: &'static str,
        select: &str,
    ) -> Result<Self, Fault> {
        let declare = own(format!("DECLARE {name} NO SCROLL CURSOR FOR {select}"));
        sqlx::raw_sql(declare).execute(conn).await?;
        Ok(Self { name, page: VecDeque::new(), is_over: false })
    }

    /// The next row, which stays.
    pub(super) async fn peek(
        &mut self,
        conn: &mut PgConnection,
        progress: &Progress,
    ) -> Result<Option<&Row>, Fault> {
        if self.page.is_empty() && !self.is_over {
            let fetch = own(format!("FETCH FORWARD {PAGE} FROM {}", self.name));
            // The statement means something else for each cursor, so it is not kept.
            let rows: Vec<Row> = sqlx::query_as(fetch).persistent(false).fetch_all(conn).await?;
            progress.read(rows.len());
            self.is_over = rows.len() < PAGE;
            self.page = rows.into();
        }
        Ok(self.page.front())
    }

    /// The next row.
    pub(super) async fn next(
        &mut self,
        conn: &mut PgConnection,
        progress: &Progress,
    ) -> Result<Option<Row>, Fault> {
        self.peek(conn, progress).await?;
        Ok(self.page.pop_front())
    }

    /// The rows of one key, where rows and keys both ascend. What lies before it belongs to nothing that is looked at.
    pub(super) async fn of<Key: Ord>(
        &mut self,
        conn: &mut PgConnection,
        progress: &Progress,
        key: &Key,
        key_of: impl Fn(&Row) -> Key,
    ) -> Result<Vec<Row>, Fault> {
        let mut found = Vec::new();
        while let Some(row) = self.peek(conn, progress).await? {
            let order = key_of(row).cmp(key);
            if order.is_gt() {
                break;
            }
            let row = self.page.pop_front().expect("it was just seen");
            if order.is_eq() {
                found.push(row);
            }
        }
        Ok(found)
    }
}
