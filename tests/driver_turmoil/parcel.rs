//! Parcels: how commands cross the simulated network.
//!
//! The core's types have no wire format, and need none here: what crosses the network is a number, and what
//! it stands for is parked in a table that both ends can reach. So delay, loss, cuts and crashes act on the
//! exchange as they would on its contents.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use fencepost_core::event::PublishOutcome;
use fencepost_core::message::ExecutionMessage;
use fencepost_core::store::command::Command;
use fencepost_core::store::reply::StoreReply;
use turmoil::net::UdpSocket;

/// What may be sent.
pub(crate) enum Parcel {
    Command(Command),
    Reply(StoreReply),
    Messages(Vec<Arc<ExecutionMessage>>),
    Outcomes(Vec<PublishOutcome>),
    Message(Arc<ExecutionMessage>),
}

/// What is parked.
#[derive(Clone, Default)]
pub(crate) struct Parcels(Arc<Mutex<Parked>>);

#[derive(Default)]
struct Parked {
    next: u64,
    parcels: BTreeMap<u64, Parcel>,
}

impl Parcels {
    /// Parks a parcel; its number is what travels.
    pub(crate) fn park(&self, parcel: Parcel) -> u64 {
        let mut parked = self.lock();
        parked.next += 1;
        let number = parked.next;
        parked.parcels.insert(number, parcel);
        number
    }

    /// Collects a parcel, once.
    pub(crate) fn collect(&self, number: u64) -> Option<Parcel> {
        self.lock().parcels.remove(&number)
    }

    fn lock(&self) -> MutexGuard<'_, Parked> {
        self.0.lock().expect("nobody panics while holding it")
    }
}

/// Asks a host and waits for its answer: for ever, if either is lost on the way.
pub(crate) async fn ask(host: &'static str, port: u16, parcels: &Parcels, parcel: Parcel) -> Parcel {
    let socket = UdpSocket::bind(("0.0.0.0", 0)).await.expect("there are ports");
    let number = parcels.park(parcel);
    socket.send_to(&number.to_be_bytes(), (host, port)).await.expect("sending does not fail, it loses");
    let mut answer = [0; 8];
    socket.recv_from(&mut answer).await.expect("the socket is open");
    parcels.collect(u64::from_be_bytes(answer)).expect("each answer is collected once")
}

/// Answers whoever asks on a port, for as long as the host lives.
pub(crate) async fn answer(
    port: u16,
    parcels: Parcels,
    mut serve: impl FnMut(Parcel) -> Parcel,
) -> turmoil::Result {
    let socket = UdpSocket::bind(("0.0.0.0", port)).await?;
    let mut question = [0; 8];
    loop {
        let (_, from) = socket.recv_from(&mut question).await?;
        let parcel = parcels.collect(u64::from_be_bytes(question)).expect("each question is collected once");
        let answer = parcels.park(serve(parcel));
        socket.send_to(&answer.to_be_bytes(), from).await?;
    }
}
