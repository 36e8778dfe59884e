//! Build, test and benchmark commands.
fn main() {}
