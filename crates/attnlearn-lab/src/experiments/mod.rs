//! All experiments, in the order of the report: what frozen heads learn, then what recovery does.

mod bridge;
mod growth;
mod noise;
mod parity;
mod phases;

use crate::experiment::{Entry, Of};

static ALL: [&dyn Entry; 5] = [
    &Of::<phases::Phases>::new(),
    &Of::<growth::Growth>::new(),
    &Of::<parity::Parity>::new(),
    &Of::<noise::Noise>::new(),
    &Of::<bridge::Bridge>::new(),
];

/// All of them.
pub fn all() -> &'static [&'static dyn Entry] {
    &ALL
}

/// The one of this name.
pub fn find(name: &str) -> Option<&'static dyn Entry> {
    ALL.iter().copied().find(|entry| entry.name() == name)
}
