//! `attnlearn man`: the manual page.

use crate::cli::{Cli, Ending};
use crate::session::to_standard_output;
use attnlearn::{Error, Result};
use clap::CommandFactory;

/// Print the manual page of the program, or of one command, in roff.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  attnlearn man > attnlearn.1
  attnlearn man learn > attnlearn-learn.1 && man ./attnlearn-learn.1")]
pub struct Args {
    /// Which command [default: the program as a whole].
    command: Option<String>,
}

impl Args {
    /// Prints it.
    pub fn run(&self) -> Result<Ending> {
        let mut program = Cli::command();
        // Gives every command the shared flags and its full name.
        program.build();
        let page = match &self.command {
            None => program,
            Some(name) => match program.find_subcommand(name) {
                Some(command) => command.clone(),
                None => return Err(Error::input(name, "is not a command", "attnlearn --help lists them")),
            },
        };
        let mut text = Vec::new();
        clap_mangen::Man::new(page)
            .source(concat!("attnlearn ", env!("CARGO_PKG_VERSION")))
            .render(&mut text)
            .map_err(|source| Error::Io { place: "manual page".into(), source })?;
        to_standard_output(&text)?;
        Ok(Ending::Done)
    }
}
