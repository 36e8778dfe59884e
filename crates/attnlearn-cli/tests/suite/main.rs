//! All tests of the program, in one test program: linking it once saves minutes.

mod bad_input;
mod common;
mod features;
mod files;
mod kills;
mod lab;
mod learning;
mod memory;
mod models;
mod program;
mod readme;
mod round_trip;
mod signals;
mod transformer;
