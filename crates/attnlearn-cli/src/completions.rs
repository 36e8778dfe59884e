//! `attnlearn completions`: completions for a shell.

use crate::cli::{Cli, Ending};
use crate::session::to_standard_output;
use attnlearn::Result;
use clap::CommandFactory;
use clap_complete::Shell;

/// Print completions for a shell.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  attnlearn completions bash > ~/.local/share/bash-completion/completions/attnlearn
  attnlearn completions zsh > ~/.zfunc/_attnlearn
  attnlearn completions fish > ~/.config/fish/completions/attnlearn.fish")]
pub struct Args {
    /// Which shell.
    shell: Shell,
}

impl Args {
    /// Prints them.
    pub fn run(&self) -> Result<Ending> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "attnlearn", &mut text);
        to_standard_output(&text)?;
        Ok(Ending::Done)
    }
}
