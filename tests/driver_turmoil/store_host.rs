//! The store's host: the reference semantics, and the store's clock. What it holds outlives a crash.

use std::sync::{Arc, Mutex};

use fencepost::ports::StorePort;
use fencepost_core::id::NodeId;
use fencepost_core::store::StoreOutcome;
use fencepost_core::store::command::Command;
use fencepost_core::store::reference::ReferenceStore;
use fencepost_core::store::reply::StoreReply;
use fencepost_sim::sim_time::SimTime;

use crate::parcel::{Asker, Parcel, Parcels, answer};
use crate::sightings::{Sighting, Sightings, store_clock};

const PORT: u16 = 5432;

/// The store, as everybody shares it.
#[derive(Clone)]
pub(crate) struct SharedStore {
    store: Arc<Mutex<ReferenceStore>>,
    sightings: Sightings,
}

impl SharedStore {
    pub(crate) fn new(store: ReferenceStore, sightings: Sightings) -> Self {
        Self { store: Arc::new(Mutex::new(store)), sightings }
    }

    /// Executes a command at a moment of the run.
    pub(crate) fn commit(&self, at: SimTime, node: Option<NodeId>, command: Command) -> StoreReply {
        let mut changes = Vec::new();
        let reply = self.with(|store| store.apply(store_clock(at), &command, &mut changes));
        self.sightings.add_at(at, Sighting::Committed { node, command, reply: reply.clone(), changes });
        reply
    }

    /// Looks at it, past the network.
    pub(crate) fn with<R>(&self, look: impl FnOnce(&mut ReferenceStore) -> R) -> R {
        look(&mut self.store.lock().expect("nobody panics while holding it"))
    }
}

/// Serves the store.
pub(crate) async fn serve(store: SharedStore, parcels: Parcels) -> turmoil::Result {
    answer(PORT, parcels, |parcel| match parcel {
        Parcel::Command(node, command) => Parcel::Reply(store.commit(Sightings::now(), Some(node), command)),
        Parcel::Reply(_) | Parcel::Messages(_) | Parcel::Outcomes(_) | Parcel::Message(_) => {
            panic!("only commands are sent to the store")
        }
    })
    .await
}

/// The store, over the network.
pub(crate) struct RemoteStore {
    pub(crate) asker: Asker,
    pub(crate) node: NodeId,
}

impl StorePort for RemoteStore {
    async fn call(&self, command: Command) -> StoreOutcome {
        match self.asker.ask("store", PORT, Parcel::Command(self.node, command)).await {
            Parcel::Reply(reply) => StoreOutcome::Replied(reply),
            Parcel::Command(..) | Parcel::Messages(_) | Parcel::Outcomes(_) | Parcel::Message(_) => {
                panic!("the store only replies")
            }
        }
    }
}
