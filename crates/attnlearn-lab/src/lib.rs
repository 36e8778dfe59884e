//! The lab: the questions of both papers, answered by experiments.
//!
//! An experiment ([`experiment`]) is a file in [`experiments`]: points to measure, how to measure one, and what follows from all of them: findings
//! (sentences computed from the data), figures and tables. [`run`] measures what has not been measured before, [`store`] keeps it, [`stats`] says how
//! uncertain it is, [`attnlearn_page::plot`] draws it, and [`report`] makes one page of everything.
//!
//! Rows are the same for the same seed, on any number of threads and however busy the machine: what ends a search is work, never time. Processors with other instructions or caches round
//! differently. Time is kept beside the rows.

pub mod experiment;
pub mod experiments;
pub mod features;
pub mod findings;
#[cfg(feature = "parquet")]
mod parquet;
pub mod recovery;
pub mod report;
pub mod run;
pub mod stats;
pub mod store;

pub use experiment::{Entry, Experiment, Finding, Measured, Measurements, Scale, Stance, Summary, Table};
pub use experiments::{all, find};
pub use run::{Finished, Given, Plan, Watch};
