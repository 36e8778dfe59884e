//! All experiments, in the order of the report: what frozen heads learn, then what recovery does.

use crate::experiment::Entry;

static ALL: [&dyn Entry; 0] = [];

/// All of them.
pub fn all() -> &'static [&'static dyn Entry] {
    &ALL
}

/// The one of this name.
pub fn find(name: &str) -> Option<&'static dyn Entry> {
    ALL.iter().copied().find(|entry| entry.name() == name)
}
