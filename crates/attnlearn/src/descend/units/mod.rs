//! The units in which a search works: white tokens, balanced outputs.

pub(crate) mod balance;
pub(crate) mod whitening;
