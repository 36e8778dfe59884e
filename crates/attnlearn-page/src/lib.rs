//! What people see of a run: drawings ([`plot`]), numbers with their uncertainty ([`estimate`]), and pages that a browser opens ([`page`]).
//!
//! Apart from the lab, so that a program that learns layers and shows them need not be built with its experiments.

pub mod estimate;
pub mod page;
pub mod plot;

pub use estimate::{Estimate, short};
pub use page::{RunPage, Table};
