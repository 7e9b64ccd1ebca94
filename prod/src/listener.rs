//! Where HTTP connections come in: so many at once at most, and none that keeps silent for long.
//!
//! Connections that say nothing, or half a request, would otherwise stay for ever, and take the file descriptors that
//! the database and the broker need. Whoever comes when all places are taken waits in the kernel's queue.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_io_timeout::TimeoutStream;

/// Connections at once at most: half of the file descriptors that a process has where nobody raised the limit.
const CONNECTIONS_MAX: usize = 512;
/// How long a connection may stand still, between requests too. Longer than a request may take.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// A listening socket.
pub(crate) struct Listener {
    inner: TcpListener,
    places: Arc<Semaphore>,
    silence_max: Duration,
}

impl Listener {
    /// On this socket.
    pub(crate) fn new(inner: TcpListener) -> Self {
        Self::with(inner, CONNECTIONS_MAX, SILENCE_MAX)
    }

    fn with(inner: TcpListener, connections: usize, silence_max: Duration) -> Self {
        Self { inner, places: Arc::new(Semaphore::new(connections)), silence_max }
    }
}

impl axum::serve::Listener for Listener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let place = Arc::clone(&self.places).acquire_owned().await.expect("it is never closed");
        let (stream, peer) = axum::serve::Listener::accept(&mut self.inner).await;
        let mut stream = TimeoutStream::new(stream);
        stream.set_read_timeout(Some(self.silence_max));
        stream.set_write_timeout(Some(self.silence_max));
        (Connection { stream: Box::pin(stream), _place: place }, peer)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.inner.local_addr()
    }
}

/// A connection and its place.
pub(crate) struct Connection {
    stream: Pin<Box<TimeoutStream<TcpStream>>>,
    _place: OwnedSemaphorePermit,
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream.as_mut().poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn whoever_keeps_silent_loses_the_place_and_the_next_is_served() {
        let socket = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = socket.local_addr().expect("it is bound");
        let listener = Listener::with(socket, 2, Duration::from_millis(200));
        let app = Router::new().route("/healthz", get(async || "ok\n"));
        let serving = tokio::spawn(async move { axum::serve(listener, app).await });

        let mut silent = Vec::new();
        for _ in 0..6 {
            let mut connection = TcpStream::connect(address).await.expect("the kernel takes it");
            connection.write_all(b"GET /healthz HTTP/1.1\r\nHost: a").await.expect("it is open");
            silent.push(connection);
        }
        let mut polite = TcpStream::connect(address).await.expect("the kernel takes it");
        polite
            .write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .await
            .expect("it is open");
        let mut answer = String::new();
        polite.read_to_string(&mut answer).await.expect("it is answered");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        for mut connection in silent {
            let mut rest = Vec::new();
            // Closed, in whichever way.
            let _ended = connection.read_to_end(&mut rest).await;
        }
        serving.abort();
    }
}
