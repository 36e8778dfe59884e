//! All experiments, in the order of the report: what frozen heads learn, then what recovery does.

mod bridge;
mod complexity;
mod conditions;
mod descent;
mod growth;
mod heads;
mod inputs;
mod means;
mod noise;
mod parity;
mod phases;
mod samples;
mod softmax;
mod structure;
mod violations;

use crate::experiment::{Entry, Of};

static ALL: [&dyn Entry; 15] = [
    &Of::<samples::Samples>::new(),
    &Of::<means::Means>::new(),
    &Of::<heads::Heads>::new(),
    &Of::<complexity::Complexity>::new(),
    &Of::<descent::Descent>::new(),
    &Of::<softmax::Softmax>::new(),
    &Of::<phases::Phases>::new(),
    &Of::<conditions::OfInitialisations>::new(),
    &Of::<structure::StructuredTeachers>::new(),
    &Of::<violations::Violations>::new(),
    &Of::<inputs::KindsOfInputs>::new(),
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
