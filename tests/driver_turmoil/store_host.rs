//! The store's host: the reference semantics, and the store's clock. What it holds outlives a crash.

use std::sync::{Arc, Mutex};

use fencepost::ports::StorePort;
use fencepost_core::store::StoreOutcome;
use fencepost_core::store::command::Command;
use fencepost_core::store::reference::ReferenceStore;
use fencepost_core::time::{Span, Timestamp};

use crate::parcel::{Parcel, Parcels, answer, ask};

const PORT: u16 = 5432;

/// The store, as everybody shares it.
pub(crate) type SharedStore = Arc<Mutex<ReferenceStore>>;

/// When the simulation begins, by the store's clock: 2026-01-01.
pub(crate) const BEGINNING: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

/// The store's clock.
fn now() -> Timestamp {
    let elapsed = turmoil::sim_elapsed().expect("a host of the simulation asks");
    BEGINNING.plus(Span::from(elapsed))
}

/// Serves the store.
pub(crate) async fn serve(store: SharedStore, parcels: Parcels) -> turmoil::Result {
    answer(PORT, parcels, |parcel| match parcel {
        Parcel::Command(command) => {
            let mut store = store.lock().expect("nobody panics while holding it");
            Parcel::Reply(store.apply(now(), &command, &mut Vec::new()))
        }
        Parcel::Reply(_) | Parcel::Messages(_) | Parcel::Outcomes(_) | Parcel::Message(_) => {
            panic!("only commands are sent to the store")
        }
    })
    .await
}

/// The store, over the network.
pub(crate) struct RemoteStore(pub(crate) Parcels);

impl StorePort for RemoteStore {
    async fn call(&self, command: Command) -> StoreOutcome {
        match ask("store", PORT, &self.0, Parcel::Command(command)).await {
            Parcel::Reply(reply) => StoreOutcome::Replied(reply),
            Parcel::Command(_) | Parcel::Messages(_) | Parcel::Outcomes(_) | Parcel::Message(_) => {
                panic!("the store only replies")
            }
        }
    }
}
