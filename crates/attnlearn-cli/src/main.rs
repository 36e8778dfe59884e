//! The `attnlearn` program: learns attention layers from examples, at the command line.
//!
//! Raw arguments become a checked plan, and the plan is run: every command is a file with `Args`, `Args::check` and
//! `Plan::run`. Results are mapped to exit codes here and nowhere else:
//!
//! | code | meaning                                                        |
//! |------|----------------------------------------------------------------|
//! | 0    | done                                                           |
//! | 1    | ran, but did not recover (or confirm) a layer; it says why     |
//! | 2    | bad input or usage                                             |
//! | 130  | interrupted                                                    |

mod apply;
mod blocks;
mod check;
mod cli;
mod compare;
mod completions;
mod console;
mod demo;
mod errors;
mod export;
mod fit;
mod generate;
mod generate_sets;
mod heatmap;
mod import;
mod inspect;
mod inspect_sets;
mod interrupt;
#[cfg(feature = "lab")]
mod lab;
#[cfg(not(feature = "lab"))]
#[path = "lab_absent.rs"]
mod lab;
mod last_resort;
mod learn;
mod learn_watch;
mod man;
mod output;
mod page;
mod predict;
mod progress;
mod report;
mod score;
mod scores;
mod session;
mod sets;
mod signals;
mod values;
mod verify;

use cli::{Ending, Failure};
use std::process::ExitCode;

#[global_allocator]
static MEMORY: last_resort::LastResort = last_resort::LastResort;

fn main() -> ExitCode {
    quiet_parquet();
    match cli::run(std::env::args_os()) {
        Ok(Ending::Done) => ExitCode::SUCCESS,
        Ok(Ending::NotRecovered) => ExitCode::from(1),
        Err(Failure::Shown) => ExitCode::SUCCESS,
        Err(failure) => {
            console::complain(&failure.to_string());
            ExitCode::from(if failure.is_interruption() { interrupt::EXIT_CODE } else { 2 })
        }
    }
}

/// A damaged Parquet file may bring down the thread that reads it, which the library turns into an error: one line says it all.
fn quiet_parquet() {
    #[cfg(feature = "parquet")]
    {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if std::thread::current().name() != Some(attnlearn::features::PARQUET_THREAD) {
                usual(panic);
            }
        }));
    }
}
