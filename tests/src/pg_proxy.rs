//! A proxy between a store and PostgreSQL, which reads along.
//!
//! It knows of the protocol what it needs: where a message ends, what text a statement has, and which statement
//! is being executed. With that a test can do, to a store that knows nothing of it,
//!
//! - *stop* a session right before a statement, or before the commit of one that is a transaction of its own, and
//!   let it go on, or end there, when something else has happened;
//! - *cut* its connection right before a statement is sent, or right after, when the server may well execute it and
//!   nobody will ever hear;
//! - *rewrite* a statement, to see whether a proof notices.
//!
//! Statements are compared with their white space folded. What the proxy is told to look for and never sees is a
//! mistake of the test's, so every rule counts how often it took effect.
//!
//! Relies on an unencrypted connection. What must stay true: without rules, every byte passes unchanged.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use sqlx::postgres::{PgConnectOptions, PgSslMode};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader, BufWriter};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// The longest message that is believed.
const MESSAGE_MAX: usize = 64 << 20;

/// What stands for the commit of a statement that is a transaction of its own: the server has executed it, and commits
/// when it is told that no more belongs to it.
pub const COMMIT_OF_ONE: &str = "SYNC";

/// Where a cut falls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The statement is not sent.
    Before,
    /// The statement is sent, and nothing that it brings about comes back.
    After,
}

/// A place at which sessions stop.
#[derive(Debug)]
pub struct Gate {
    place: OnceLock<String>,
    reached: Semaphore,
    open: Semaphore,
    is_cut: AtomicBool,
}

impl Gate {
    fn new() -> Self {
        let (reached, open) = (Semaphore::new(0), Semaphore::new(0));
        Self { place: OnceLock::new(), reached, open, is_cut: AtomicBool::new(false) }
    }

    /// Before which statement a session stands here, or stood; nothing where none has come.
    #[must_use]
    pub fn place(&self) -> &str {
        self.place.get().map_or("", String::as_str)
    }

    /// Waits until a session stands here.
    pub async fn reached(&self) {
        self.reached.acquire().await.expect("a gate is not closed for good").forget();
    }

    /// Lets one session pass, the one that stands here or the next.
    pub fn open(&self) {
        self.open.add_permits(1);
    }

    /// Cuts the connection of the session that stands here: nothing more of it reaches the server.
    pub fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        self.open();
    }

    /// Stands here, before this statement, until it opens; what was decided then.
    async fn pass(&self, place: &str) -> Option<Cut> {
        // It springs once, so nobody stood here before.
        let _: Result<(), String> = self.place.set(place.to_owned());
        self.reached.add_permits(1);
        self.open.acquire().await.expect("a gate is not closed for good").forget();
        self.is_cut.load(Ordering::SeqCst).then_some(Cut::Before)
    }
}

/// One statement read differently.
#[derive(Debug)]
struct Rewrite {
    from: String,
    to: String,
    hits: AtomicU64,
}

#[derive(Debug)]
enum Trap {
    Gate(Arc<Gate>),
    Cut(Cut),
}

/// A trap, which springs once.
#[derive(Debug)]
struct Armed {
    pattern: String,
    /// How many executions pass before it springs.
    passes: u64,
    trap: Trap,
}

#[derive(Debug, Default)]
struct Rules {
    rewrites: Vec<Rewrite>,
    armed: Mutex<Vec<Armed>>,
    sprung: AtomicU64,
}

/// A proxy on a port of its own. Ends with its last connection when dropped.
#[derive(Debug)]
pub struct PgProxy {
    address: SocketAddr,
    rules: Arc<Rules>,
    task: JoinHandle<()>,
}

impl Drop for PgProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl PgProxy {
    /// A proxy to the server of these options, with these statements rewritten: parts of a statement by what
    /// stands in their place.
    ///
    /// # Errors
    /// No port can be listened on.
    pub async fn start(server: &PgConnectOptions, rewrites: &[(&str, &str)]) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let rewrites = rewrites.iter().map(|(from, to)| Rewrite {
            from: folded(from),
            to: folded(to),
            hits: AtomicU64::new(0),
        });
        let rules = Arc::new(Rules { rewrites: rewrites.collect(), ..Rules::default() });
        let target = (server.get_host().to_owned(), server.get_port());
        let shared = Arc::clone(&rules);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect((target.0.as_str(), target.1)).await else { continue };
                tokio::spawn(relay(client, server, Arc::clone(&shared)));
            }
        });
        Ok(Self { address, rules, task })
    }

    /// The options for a client of the server's, through here.
    #[must_use]
    pub fn options(&self, server: &PgConnectOptions) -> PgConnectOptions {
        server
            .clone()
            .host(&self.address.ip().to_string())
            .port(self.address.port())
            .ssl_mode(PgSslMode::Disable)
    }

    /// Stops the execution after the next `passes` of a statement with this part in it, before it is sent. Every
    /// statement has the empty part in it, and so has [`COMMIT_OF_ONE`].
    #[must_use]
    pub fn stop_before(&self, pattern: &str, passes: u64) -> Arc<Gate> {
        let gate = Arc::new(Gate::new());
        self.arm(pattern, passes, Trap::Gate(Arc::clone(&gate)));
        gate
    }

    /// Cuts the connection at the execution after the next `passes` of a statement with this part in it.
    pub fn cut(&self, pattern: &str, passes: u64, cut: Cut) {
        self.arm(pattern, passes, Trap::Cut(cut));
    }

    fn arm(&self, pattern: &str, passes: u64, trap: Trap) {
        let armed = Armed { pattern: folded(pattern), passes, trap };
        self.rules.armed.lock().expect("no holder of this lock panics").push(armed);
    }

    /// Takes back what has not sprung.
    pub fn disarm(&self) {
        self.rules.armed.lock().expect("no holder of this lock panics").clear();
    }

    /// How many traps have sprung.
    #[must_use]
    pub fn sprung(&self) -> u64 {
        self.rules.sprung.load(Ordering::SeqCst)
    }

    /// How often each statement was rewritten, in the order given.
    #[must_use]
    pub fn rewritten(&self) -> Vec<u64> {
        self.rules.rewrites.iter().map(|rewrite| rewrite.hits.load(Ordering::SeqCst)).collect()
    }
}

/// White space as single blanks, so that a pattern need not know how a statement is broken into lines.
fn folded(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

async fn relay(client: TcpStream, server: TcpStream, rules: Arc<Rules>) {
    // A proxy that waits for more to send would make every round trip wait for the acknowledgement before it.
    if client.set_nodelay(true).is_err() || server.set_nodelay(true).is_err() {
        return;
    }
    let (from_client, mut to_client) = client.into_split();
    let (mut from_server, to_server) = server.into_split();
    let forth = Forth {
        from: BufReader::new(from_client),
        to: BufWriter::new(to_server),
        rules,
        statements: BTreeMap::new(),
        is_in_transaction: false,
        stands_alone: false,
    };
    // Whichever way ends first, by itself or by a cut, takes the other with it.
    tokio::select! {
        _ = forth.run() => {}
        _ = tokio::io::copy(&mut from_server, &mut to_client) => {}
    }
}

/// The way from the client to the server.
struct Forth {
    from: BufReader<OwnedReadHalf>,
    to: BufWriter<OwnedWriteHalf>,
    rules: Arc<Rules>,
    /// The prepared statements of this connection, folded.
    statements: BTreeMap<Vec<u8>, String>,
    is_in_transaction: bool,
    /// Whether a statement was bound that is a transaction of its own and is not over yet.
    stands_alone: bool,
}

impl Forth {
    async fn run(mut self) -> io::Result<()> {
        let start = self.body().await?;
        self.send(None, &start).await?;
        self.to.flush().await?;
        loop {
            let kind = self.from.read_u8().await?;
            let body = self.body().await?;
            let (text, body) = self.read_along(kind, body);
            let text = text.unwrap_or_default();
            let trap = if text.is_empty() { None } else { self.rules.spring(&text) };
            match trap {
                None => self.send(Some(kind), &body).await?,
                Some(Trap::Gate(gate)) => {
                    self.to.flush().await?;
                    if gate.pass(&text).await.is_some() {
                        return Ok(());
                    }
                    self.send(Some(kind), &body).await?;
                }
                Some(Trap::Cut(Cut::Before)) => return Ok(()),
                Some(Trap::Cut(Cut::After)) => {
                    self.send(Some(kind), &body).await?;
                    self.send_the_rest_of_the_request(kind).await?;
                    return self.to.flush().await;
                }
            }
            if self.from.buffer().is_empty() {
                self.to.flush().await?;
            }
        }
    }

    /// A bound statement does nothing before it is told to execute and to sync.
    async fn send_the_rest_of_the_request(&mut self, kind: u8) -> io::Result<()> {
        let mut kind = kind;
        while kind != b'Q' && kind != b'S' {
            kind = self.from.read_u8().await?;
            let body = self.body().await?;
            self.send(Some(kind), &body).await?;
        }
        Ok(())
    }

    /// What a message executes, if it does, and the message as it is to be passed on.
    fn read_along(&mut self, kind: u8, body: Vec<u8>) -> (Option<String>, Vec<u8>) {
        match kind {
            b'Q' => {
                let text = strings(&body, 1).first().map(|text| folded(&String::from_utf8_lossy(text)));
                self.note_transaction(text.as_deref().unwrap_or_default());
                (text, body)
            }
            b'P' => (None, self.parse(body)),
            b'B' => match strings(&body, 2).as_slice() {
                [_, name] => {
                    self.stands_alone = !self.is_in_transaction;
                    (self.statements.get(*name).cloned(), body)
                }
                _ => (None, body),
            },
            b'S' if self.stands_alone => {
                self.stands_alone = false;
                (Some(COMMIT_OF_ONE.to_owned()), body)
            }
            _ => (None, body),
        }
    }

    fn note_transaction(&mut self, text: &str) {
        if text.starts_with("BEGIN") {
            self.is_in_transaction = true;
        } else if text == "COMMIT" || text.starts_with("ROLLBACK") {
            self.is_in_transaction = false;
        }
    }

    fn parse(&mut self, body: Vec<u8>) -> Vec<u8> {
        let [name, text] = strings(&body, 2)[..] else { return body };
        let original = folded(&String::from_utf8_lossy(text));
        let rewritten = self.rules.rewrite(&original);
        let rest = &body[name.len() + text.len() + 2..];
        let passed_on = match &rewritten {
            Some(rewritten) => [name, b"\0", rewritten.as_bytes(), b"\0", rest].concat(),
            None => body.clone(),
        };
        // Traps know statements as the store wrote them.
        self.statements.insert(name.to_vec(), original);
        passed_on
    }

    async fn body(&mut self) -> io::Result<Vec<u8>> {
        let length = self.from.read_u32().await? as usize;
        let length = length.checked_sub(4).filter(|length| *length <= MESSAGE_MAX).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "this is not the protocol of PostgreSQL")
        })?;
        let mut body = vec![0; length];
        self.from.read_exact(&mut body).await?;
        Ok(body)
    }

    async fn send(&mut self, kind: Option<u8>, body: &[u8]) -> io::Result<()> {
        if let Some(kind) = kind {
            self.to.write_u8(kind).await?;
        }
        let length = u32::try_from(body.len() + 4).expect("it was read with such a length");
        self.to.write_u32(length).await?;
        self.to.write_all(body).await
    }
}

/// The strings that a message begins with, without their ends.
fn strings(body: &[u8], count: usize) -> Vec<&[u8]> {
    body.split_inclusive(|byte| *byte == 0).take(count).filter_map(|part| part.strip_suffix(&[0])).collect()
}

impl Rules {
    fn rewrite(&self, text: &str) -> Option<String> {
        let mut rewritten = None;
        for rewrite in &self.rewrites {
            let current = rewritten.as_deref().unwrap_or(text);
            if current.contains(&rewrite.from) {
                rewrite.hits.fetch_add(1, Ordering::SeqCst);
                rewritten = Some(current.replace(&rewrite.from, &rewrite.to));
            }
        }
        rewritten
    }

    /// The trap that springs at this execution.
    fn spring(&self, text: &str) -> Option<Trap> {
        let mut armed = self.armed.lock().expect("no holder of this lock panics");
        if armed.is_empty() {
            return None;
        }
        for trap in armed.iter_mut().filter(|trap| text.contains(&trap.pattern)) {
            if trap.passes > 0 {
                trap.passes -= 1;
                continue;
            }
            trap.passes = u64::MAX;
        }
        let at = armed.iter().position(|trap| trap.passes == u64::MAX)?;
        self.sprung.fetch_add(1, Ordering::SeqCst);
        Some(armed.remove(at).trap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_end_with_a_zero() {
        assert_eq!(strings(b"name\0text\0rest", 2), [b"name", b"text"]);
        assert_eq!(strings(b"\0x\0", 2), [b"".as_slice(), b"x"]);
        assert!(strings(b"cut", 1).is_empty());
    }

    #[test]
    fn a_trap_lets_so_many_pass_and_springs_once() {
        let rules = Rules::default();
        let armed = Armed { pattern: "COMMIT".into(), passes: 1, trap: Trap::Cut(Cut::After) };
        rules.armed.lock().expect("no holder of this lock panics").push(armed);
        assert!(rules.spring("BEGIN").is_none());
        assert!(rules.spring("COMMIT").is_none());
        assert!(rules.spring("COMMIT").is_some());
        assert!(rules.spring("COMMIT").is_none());
    }

    #[test]
    fn a_statement_is_rewritten_where_it_matches() {
        let rewrite = Rewrite { from: "FOR UPDATE".into(), to: String::new(), hits: AtomicU64::new(0) };
        let rules = Rules { rewrites: vec![rewrite], ..Rules::default() };
        assert_eq!(rules.rewrite("SELECT 1 FOR UPDATE").as_deref(), Some("SELECT 1 "));
        assert_eq!(rules.rewrite("SELECT 1"), None);
    }
}
