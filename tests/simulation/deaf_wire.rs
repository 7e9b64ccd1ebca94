//! A wire that goes dead when PostgreSQL answers that it has committed: the server did, and nobody hears of it.
//!
//! It knows of the protocol that a transaction is over where the server says that it executed something and
//! that no transaction is open any more. Nothing of that answer is passed on; both ends find the connection
//! closed. What must stay true: until then every byte passes unchanged, and the wire is cut after the commit and
//! never before it, so that what is seen of the tables afterwards is final.
//!
//! Relies on an unencrypted connection.

use std::io;
use std::net::SocketAddr;

use sqlx::postgres::{PgConnectOptions, PgSslMode};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The server's messages that matter here.
const COMMAND_COMPLETE: u8 = b'C';
const READY_FOR_QUERY: u8 = b'Z';
/// What [`READY_FOR_QUERY`] says where no transaction is open.
const IDLE: u8 = b'I';

/// Wires to one server. No more are laid once it is dropped.
#[derive(Debug)]
pub(crate) struct DeafWire {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for DeafWire {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl DeafWire {
    pub(crate) async fn lay(server: &PgConnectOptions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
        let address = listener.local_addr().expect("it is bound");
        let target = (server.get_host().to_owned(), server.get_port());
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect((target.0.as_str(), target.1)).await else { continue };
                tokio::spawn(relay(client, server));
            }
        });
        Self { address, task }
    }

    /// How the server is reached over such a wire.
    pub(crate) fn options(&self, server: &PgConnectOptions) -> PgConnectOptions {
        let (host, port) = (self.address.ip().to_string(), self.address.port());
        server.clone().host(&host).port(port).ssl_mode(PgSslMode::Disable)
    }
}

async fn relay(client: TcpStream, server: TcpStream) {
    if client.set_nodelay(true).is_err() || server.set_nodelay(true).is_err() {
        return;
    }
    let (mut from_client, to_client) = client.into_split();
    let (from_server, mut to_server) = server.into_split();
    tokio::select! {
        _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
        _ = pass_until_committed(BufReader::new(from_server), to_client) => {}
    }
}

/// Passes the server's answers on, each when it is whole, but for the first that ends a transaction.
async fn pass_until_committed(mut from: BufReader<OwnedReadHalf>, mut to: OwnedWriteHalf) -> io::Result<()> {
    let mut answer = Vec::new();
    let mut executed = false;
    let mut logged_in = false;
    loop {
        let kind = from.read_u8().await?;
        let length = from.read_u32().await?;
        let start = answer.len() + 5;
        answer.push(kind);
        answer.extend_from_slice(&length.to_be_bytes());
        answer.resize(start + length.saturating_sub(4) as usize, 0);
        from.read_exact(&mut answer[start..]).await?;
        executed |= kind == COMMAND_COMPLETE;
        if kind == READY_FOR_QUERY && executed && answer[start..] == [IDLE] {
            return Ok(());
        }
        // While it logs in, a client answers in the middle.
        if kind == READY_FOR_QUERY || (!logged_in && from.buffer().is_empty()) {
            to.write_all(&answer).await?;
            answer.clear();
        }
        if kind == READY_FOR_QUERY {
            (executed, logged_in) = (false, true);
        }
    }
}
