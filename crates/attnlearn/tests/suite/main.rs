//! All tests of the library's public face, in one program: linking it once saves minutes.
//!
//! `mutated_sets.rs` and `memory.rs` beside it watch every allocation, and are programs of their own.

mod bad_files;
mod common;
mod files;
mod held;
mod infinite_heads;
mod kinds;
mod layer;
mod models;
mod mutated_files;
mod paper;
mod parquet;
mod rooms;
mod sculpt;
mod sets;
mod transformer;
