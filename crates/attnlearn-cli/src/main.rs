//! The `attnlearn` program.
fn main() {}
