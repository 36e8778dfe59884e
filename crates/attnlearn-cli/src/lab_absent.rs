//! `attnlearn lab` in a program that was built without the experiments: says how to get them.

use crate::cli::Ending;
use crate::output::Files;
use crate::session::Session;
use attnlearn::{Error, Result};
use std::convert::Infallible;
use std::ffi::OsString;

/// Run the experiments (this program was built without them).
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  cargo run --release --features full -- lab list
  cargo install --path crates/attnlearn-cli --features full     then: attnlearn lab list")]
pub struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _any: Vec<OsString>,
}

/// There is none.
pub struct Plan(Infallible);

impl Args {
    /// Touches none.
    pub fn files(&self) -> Files {
        Files::default()
    }

    /// Refuses.
    pub fn check(self, _session: &Session) -> Result<Plan> {
        let remedy = "build it with `cargo install --path crates/attnlearn-cli --features full`";
        Err(Error::input("lab", "this program was built without the experiments", remedy))
    }
}

impl Plan {
    /// Never.
    pub fn run(self, _session: &Session) -> Result<Ending> {
        match self.0 {}
    }
}
