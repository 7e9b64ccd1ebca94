//! What keeps a command from its answer. A refusal is an answer and none of these.

use thiserror::Error;

/// Why a command has no answer.
#[derive(Debug, Error)]
pub(crate) enum Fault {
    /// The server, or the way to it.
    #[error("{0}")]
    Sql(#[from] sqlx::Error),
    /// A row holds what this version does not know.
    #[error("the column {column} holds {value:?}, which this version does not know")]
    Unknown {
        /// Which column.
        column: &'static str,
        /// What it holds.
        value: String,
    },
    /// Rows changed between two looks at them, so that neither could decide. The command is to start over.
    #[error("rows of {table} were in motion")]
    InMotion {
        /// Of which table.
        table: &'static str,
    },
}

/// The codes of PostgreSQL that say: nothing was done, try again.
const SERIALIZATION_FAILURE: &str = "40001";
const DEADLOCK_DETECTED: &str = "40P01";
/// The codes for a server that is not there for work: starting, stopping, read-only, out of connections.
const NOT_THERE: [&str; 5] = ["57P01", "57P02", "57P03", "25006", "53300"];
const UNDEFINED_TABLE: &str = "42P01";
const UNDEFINED_FUNCTION: &str = "42883";

impl Fault {
    fn code(&self) -> Option<String> {
        match self {
            Self::Sql(error) => error.as_database_error()?.code().map(|code| code.into_owned()),
            Self::Unknown { .. } | Self::InMotion { .. } => None,
        }
    }

    /// Whether nothing was done and trying at once may help.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::InMotion { .. } => true,
            Self::Unknown { .. } => false,
            Self::Sql(_) => {
                self.code().is_some_and(|code| code == SERIALIZATION_FAILURE || code == DEADLOCK_DETECTED)
            }
        }
    }

    /// Whether there is no server to talk to, or none that works: every other call meets the same.
    pub(super) fn is_out_of_reach(&self) -> bool {
        match self {
            Self::Sql(sqlx::Error::Io(_)) => true,
            Self::Sql(_) => self.code().is_some_and(|code| NOT_THERE.contains(&code.as_str())),
            Self::Unknown { .. } | Self::InMotion { .. } => false,
        }
    }

    /// What an operator can do about it.
    pub(super) fn hint(&self) -> &'static str {
        match (self, self.code().as_deref()) {
            (_, Some(UNDEFINED_TABLE | UNDEFINED_FUNCTION)) => {
                "run `fencepost migrate` against this database"
            }
            (_, Some(code)) if NOT_THERE.contains(&code) => {
                "is the server up, and are there connections left?"
            }
            (Self::Unknown { .. }, _) => "a newer version wrote this row: upgrade this node",
            (Self::Sql(sqlx::Error::Io(_)), _) => "can the server be reached?",
            (Self::Sql(_) | Self::InMotion { .. }, _) => "the command is safe to send again, and will be",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_connection_is_a_server_out_of_reach_and_a_strange_row_is_not() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert!(Fault::Sql(sqlx::Error::Io(refused)).is_out_of_reach());
        assert!(!Fault::Sql(sqlx::Error::RowNotFound).is_out_of_reach());
        assert!(!Fault::Unknown { column: "state", value: "x".to_owned() }.is_out_of_reach());
    }
}
