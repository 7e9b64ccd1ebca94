//! Parcels: how commands cross the simulated network.
//!
//! The core's types have no wire format, and need none here: what crosses the network is a number, and what
//! it stands for is parked in a table that both ends can reach. So delay, loss, cuts and crashes act on the
//! exchange as they would on its contents; and what was sent in which weather, and whether and when it arrived,
//! can be counted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use fencepost_core::event::PublishOutcome;
use fencepost_core::id::NodeId;
use fencepost_core::message::ExecutionMessage;
use fencepost_core::store::command::Command;
use fencepost_core::store::reply::StoreReply;
use fencepost_core::time::Span;
use fencepost_sim::sim_time::SimTime;
use turmoil::net::UdpSocket;

use crate::sightings::Sightings;
use crate::weather::{Direction, Kind, LATENCY_MAX, Target};

/// What may be sent.
pub(crate) enum Parcel {
    Command(NodeId, Command),
    Reply(StoreReply),
    Messages(Vec<Arc<ExecutionMessage>>),
    Outcomes(Vec<PublishOutcome>),
    Message(Arc<ExecutionMessage>),
}

/// The way of a parcel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) node: &'static str,
    pub(crate) server: &'static str,
    pub(crate) direction: Direction,
}

impl Route {
    fn back(self) -> Self {
        Self { direction: Direction::Back, ..self }
    }
}

/// What became of what was sent in some weather.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fates {
    /// It was sent.
    pub(crate) sent: u64,
    /// It arrived far later than in fair weather.
    pub(crate) late: u64,
    /// It never arrived.
    pub(crate) lost: u64,
}

/// What is parked.
#[derive(Clone, Default)]
pub(crate) struct Parcels(Arc<Mutex<Parked>>);

#[derive(Default)]
struct Parked {
    next: u64,
    parcels: BTreeMap<u64, (Parcel, Route, Departure)>,
    /// What strikes each link now.
    weather: BTreeMap<Target, Kind>,
    fates: BTreeMap<(Kind, &'static str), Fates>,
}

/// When a parcel was sent, and in which weather.
#[derive(Clone, Copy)]
struct Departure {
    at: SimTime,
    weather: Option<Kind>,
}

/// Later than this is later than in fair weather, whatever the network's steps add to it.
const LATE: Duration = LATENCY_MAX.saturating_mul(8);

impl Parcels {
    /// Parks a parcel that is sent now; its number is what travels.
    pub(crate) fn park(&self, parcel: Parcel, route: Route) -> u64 {
        let mut parked = self.lock();
        parked.next += 1;
        let number = parked.next;
        let link = Target::Link { node: route.node, server: route.server };
        let weather = parked.weather.get(&link).copied().filter(|kind| kind.strikes(route.direction));
        if let Some(kind) = weather {
            parked.fates.entry((kind, route.server)).or_default().sent += 1;
        }
        let departure = Departure { at: Sightings::now(), weather };
        parked.parcels.insert(number, (parcel, route, departure));
        number
    }

    /// Collects a parcel that has arrived, once.
    pub(crate) fn collect(&self, number: u64) -> Option<(Parcel, Route)> {
        let mut parked = self.lock();
        let (parcel, route, departure) = parked.parcels.remove(&number)?;
        if let Some(kind) = departure.weather
            && Sightings::now().since(departure.at) > Span::from(LATE)
        {
            parked.fates.entry((kind, route.server)).or_default().late += 1;
        }
        Some((parcel, route))
    }

    /// The weather on a link changes.
    pub(crate) fn change_weather(&self, link: Target, kind: Option<Kind>) {
        let mut parked = self.lock();
        match kind {
            Some(kind) => parked.weather.insert(link, kind),
            None => parked.weather.remove(&link),
        };
    }

    /// What became of all that was sent in foul weather, by its kind and the server at one end; to be asked when
    /// nothing is under way any more.
    pub(crate) fn fates(&self) -> BTreeMap<(Kind, &'static str), Fates> {
        let parked = self.lock();
        let mut fates = parked.fates.clone();
        for (_, route, departure) in parked.parcels.values() {
            if let Some(kind) = departure.weather {
                fates.entry((kind, route.server)).or_default().lost += 1;
            }
        }
        fates
    }

    fn lock(&self) -> MutexGuard<'_, Parked> {
        self.0.lock().expect("nobody panics while holding it")
    }
}

/// A host as one that asks others.
#[derive(Clone)]
pub(crate) struct Asker {
    pub(crate) me: &'static str,
    pub(crate) parcels: Parcels,
}

impl Asker {
    /// Asks a host and waits for its answer: for ever, if either is lost on the way.
    pub(crate) async fn ask(&self, server: &'static str, port: u16, parcel: Parcel) -> Parcel {
        let socket = UdpSocket::bind(("0.0.0.0", 0)).await.expect("there are ports");
        let route = Route { node: self.me, server, direction: Direction::There };
        let number = self.parcels.park(parcel, route);
        socket.send_to(&number.to_be_bytes(), (server, port)).await.expect("sending does not fail, it loses");
        let mut answer = [0; 16];
        loop {
            socket.recv_from(&mut answer).await.expect("the socket is open");
            let half = |at: usize| {
                u64::from_be_bytes(answer[at..at + 8].try_into().expect("eight bytes are eight bytes"))
            };
            let (question, answer) = (half(0), self.parcels.collect(half(8)));
            // What was asked long ago, from a port that is in use again, is answered too late.
            if question == number {
                return answer.expect("each answer is collected once").0;
            }
        }
    }
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
        let number = u64::from_be_bytes(question);
        let (parcel, route) = parcels.collect(number).expect("each question is collected once");
        let answer = parcels.park(serve(parcel), route.back());
        let bytes = [number.to_be_bytes(), answer.to_be_bytes()].concat();
        socket.send_to(&bytes, from).await?;
    }
}
