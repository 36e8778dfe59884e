//! Drives the program from outside.
#![allow(dead_code)] // no test uses all of it

use std::path::PathBuf;
use std::process::{Command, Output};
use tempfile::TempDir;

/// A folder of its own to run the program in.
pub struct Workbench(TempDir);

/// What a run left behind.
#[derive(Debug)]
pub struct Run {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Workbench {
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The program, ready to be run here.
    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_attnlearn"));
        command.current_dir(self.0.path()).args(line.split_whitespace()).env_remove("NO_COLOR");
        #[cfg(unix)]
        heedful(&mut command);
        command
    }

    /// Runs a command line without quotes.
    pub fn run(&self, line: &str) -> Run {
        self.command(line).output().expect("the program starts").into()
    }

    /// Runs a command line that must succeed.
    #[track_caller]
    pub fn good(&self, line: &str) -> Run {
        let run = self.run(line);
        assert_eq!(run.code, Some(0), "{line}: {run:?}");
        assert_eq!(run.err, "", "{line}");
        run
    }

    /// Runs a command line that must be refused: code 2, one line on standard error that says all of `what`, no new file.
    #[track_caller]
    pub fn refused(&self, line: &str, what: &[&str]) -> String {
        let before = self.files();
        let run = self.run(line);
        assert_eq!(run.code, Some(2), "{line}: {run:?}");
        assert_eq!(run.err.lines().count(), 1, "{line}: {}", run.err);
        assert!(run.err.starts_with("attnlearn: "), "{line}: {}", run.err);
        for part in what {
            assert!(run.err.contains(part), "{line}: no {part:?} in {}", run.err);
        }
        assert_eq!(self.files(), before, "{line}");
        run.err
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).expect("a writable folder");
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).expect("a file")
    }

    /// Names of all files, hidden ones too.
    pub fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).expect("a folder");
        let mut names: Vec<String> = entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

impl Run {
    /// Standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

/// Lets a program hear signals that the tests themselves were told to ignore, as jobs of a script are.
#[cfg(unix)]
fn heedful(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    // SAFETY: between fork and exec only functions may be called that a signal handler may call; `signal` is one.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(|| {
            for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGXCPU, libc::SIGHUP, libc::SIGTERM] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
}

/// A safetensors file with any header and any data.
pub fn safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

/// Examples `x` [n, k, d] and `y` [n, k, d_out] in double precision.
pub fn examples(n: usize, k: usize, d: usize, d_out: usize, x: impl Fn(usize) -> f64, y: impl Fn(usize) -> f64) -> Vec<u8> {
    let (nx, ny) = (n * k * d, n * k * d_out);
    let header = format!(
        r#"{{"x":{{"dtype":"F64","shape":[{n},{k},{d}],"data_offsets":[0,{}]}},"y":{{"dtype":"F64","shape":[{n},{k},{d_out}],"data_offsets":[{},{}]}}}}"#,
        8 * nx,
        8 * nx,
        8 * (nx + ny)
    );
    let data: Vec<u8> = (0..nx).map(x).chain((0..ny).map(y)).flat_map(f64::to_le_bytes).collect();
    safetensors(&header, &data)
}

/// A number that looks random, in [−1, 1).
pub fn noise(i: usize) -> f64 {
    let bits = (i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (bits >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}
