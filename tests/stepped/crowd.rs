//! The crowd at the door: two commands about the same two rows, which arrive while somebody holds both.
//!
//! Two commands that lock rows in different orders can each come to hold what the other waits for. PostgreSQL ends
//! one of them and the store tries again, so that no answer would ever show it. Here each of two rows is held by a
//! transaction of its own until both commands wait; then one row is let go, and when both wait again, the other. Whoever
//! takes them in another order than its neighbour is then certain to be caught in a circle.

use sqlx::{AssertSqlSafe, PgConnection};
use tokio::task::AbortHandle;

use super::{HOW_MANY_BLOCKED, IN_A_CIRCLE, LIMIT, Stage, is, until};
use crate::case::Case;
use crate::contents;
use crate::judgement::{Ending, Seen, Stopped, Violation, Who, judge};

impl Stage<'_> {
    /// Lets both commands of a case in at once, past two rows that are held by these statements. Says whether both
    /// waited.
    pub(crate) async fn crowd(&mut self, case: &Case, holds: &[String; 2]) -> Result<bool, Violation> {
        self.arrange(case).await;
        while self.holders.len() < holds.len() {
            self.holders.push(self.database.connect().await);
        }
        for (hold, holder) in holds.iter().zip(&mut self.holders) {
            for statement in ["BEGIN", hold.as_str()] {
                sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut *holder).await.expect("nobody holds it");
            }
        }
        let looking = &mut self.looking;
        let mut one = self.guarded.start(&case.guarded);
        let mut two = self.rival.start(&case.rival);
        let at_work = [one.abort_handle(), two.abort_handle()];
        let (mut guarded, mut rival) = (None, None);
        let mut is_over = false;
        let mut have_waited = false;
        let mut deadlocked = false;
        {
            let both_end = async {
                guarded = (&mut one).await.expect("a store does not panic");
                rival = (&mut two).await.expect("a store does not panic");
            };
            tokio::pin!(both_end);
            for holder in &mut self.holders {
                if !is_over {
                    tokio::select! {
                        () = &mut both_end => is_over = true,
                        waited = settled(looking, &at_work) => have_waited |= waited,
                    }
                }
                sqlx::raw_sql("ROLLBACK").execute(holder).await.expect("it is there until now");
            }
            if !is_over {
                tokio::select! {
                    () = &mut both_end => is_over = true,
                    () = until("both end", LIMIT, async || is(looking, IN_A_CIRCLE).await.then_some(())) => {
                        deadlocked = true;
                    }
                }
            }
            if !is_over {
                both_end.await;
            }
        }
        let seen = Seen {
            who_stopped: Who::Guarded,
            stopped: Stopped::Before("a row that is held".to_owned()),
            ending: Ending::GoesOn,
            waited: have_waited,
            deadlocked,
            guarded,
            rival,
            first: Who::Guarded,
            contents: contents::read(looking).await,
        };
        match judge(case, &seen) {
            Ok(()) => Ok(have_waited),
            Err(wrong) => Err(Violation { case: case.name, seen: Box::new(seen), wrong }),
        }
    }
}

/// Waits until both wait, or one does and the other has ended; says whether both did.
async fn settled(looking: &mut PgConnection, at_work: &[AbortHandle; 2]) -> bool {
    until("both wait", LIMIT, async || {
        let ended = at_work.iter().filter(|task| task.is_finished()).count();
        let waiting: i64 = sqlx::query_scalar(HOW_MANY_BLOCKED)
            .fetch_one(&mut *looking)
            .await
            .expect("the server of DATABASE_URL can be reached");
        (waiting == 2 || (waiting == 1 && ended == 1)).then_some(waiting == 2)
    })
    .await
}
