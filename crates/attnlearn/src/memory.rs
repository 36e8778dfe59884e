//! Memory is asked for, not assumed: what there is, and one place that refuses what it does not hold.
//!
//! Every size that follows from input (a flag, a file's header, an argument) is estimated before it is taken:
//!
//! ```text
//! ask(numbers::<f64>(&[k, d]), "x", "give shorter sequences")?
//! ```
//!
//! An allocation that fails ends the program, and one that succeeds may be paid for by another program's end: so it has to be asked first.
//! On Linux what there is is the least of what the system has available, what is left of the control groups that the process is in, and
//! what is left of `ulimit -v` and `ulimit -d`. Elsewhere nothing of this can be known without asking the system in its own language,
//! and only what no machine has is refused.

use crate::words::Wording;
use crate::{Error, Result};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Less than this is given without looking.
const SMALL: u128 = 4 << 20;
/// What is left over for stacks, buffers and whatever was not estimated.
const HEAD_ROOM: u64 = 48 << 20;
/// What there is where nobody says: only what no machine has is refused.
const UNKNOWN: u64 = 1 << 40;
/// What is taken by default where nobody says.
const USUAL: u64 = 8 << 30;

/// How much memory there is, and what sets the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Available {
    /// Bytes that can still be taken.
    pub bytes: u64,
    /// Which limit is the tightest.
    pub limit: Limit,
}

/// What limits memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// What the machine has free.
    Machine,
    /// A control group: that of a container or of a batch system.
    ControlGroup,
    /// `ulimit -v`.
    AddressSpace,
    /// `ulimit -d`.
    Data,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Machine => "free",
            Self::ControlGroup => "left in the control group",
            Self::AddressSpace => "left of ulimit -v",
            Self::Data => "left of ulimit -d",
        })
    }
}

/// What can be taken now, all limits considered.
pub fn available() -> Available {
    if address_space_is_limited() {
        wake_threads();
    }
    let candidates = [
        (free_memory(), Limit::Machine),
        (control_group(), Limit::ControlGroup),
        (left_of("Max address space", "VmSize:"), Limit::AddressSpace),
        (left_of("Max data size", "VmData:"), Limit::Data),
    ];
    let known = candidates.into_iter().filter_map(|(bytes, limit)| Some(Available { bytes: bytes?, limit }));
    known.min_by_key(|a| a.bytes).unwrap_or(Available { bytes: UNKNOWN, limit: Limit::Machine })
}

/// What the machine, the control groups and `ulimit` allow this process in all: what follows from it is the same in every run on one machine.
pub fn allowed() -> u64 {
    let total = fs::read_to_string("/proc/meminfo").ok().and_then(|table| kibibytes(&table, "MemTotal:"));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = group_folders(&groups).iter().filter_map(|(folder, version)| most_of_group(folder, *version)).min();
    let limits = [total, group, left_of("Max address space", "VmSize:"), left_of("Max data size", "VmData:")];
    limits.into_iter().flatten().min().unwrap_or(USUAL)
}

/// Refuses `bytes` if there is less, saying at `place` how much is needed, how much there is, and what to do.
pub fn ask(bytes: u128, place: &str, remedy: impl Into<Wording>) -> Result<()> {
    if bytes <= SMALL {
        return Ok(());
    }
    let Available { bytes: there, limit } = available();
    // The head room is needed too: what is said to be needed is never less than what there is.
    let needed = bytes.saturating_add(HEAD_ROOM.into());
    if needed <= there.into() {
        return Ok(());
    }
    let problem = format!("{} of memory are needed and {} are {limit}", Size(needed), Size(there.into()));
    Err(Error::input(place, problem, remedy))
}

/// Bytes of an array of `T` with these sizes; the largest number there is if that overflows.
pub fn numbers<T>(sizes: &[usize]) -> u128 {
    sizes.iter().fold(size_of::<T>() as u128, |product, &size| product.saturating_mul(size as u128))
}

/// So many bytes as a 64-bit number, or the largest there is.
pub(crate) fn clamp(bytes: u128) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// `len` copies of the default; refused if there is no memory for them, whatever [`ask`] said before.
pub fn filled<T: Copy + Default>(len: usize, place: &str, remedy: &str) -> Result<Vec<T>> {
    ask(numbers::<T>(&[len]), place, remedy)?;
    let mut values = Vec::new();
    values.try_reserve_exact(len).map_err(|_| {
        let problem = format!("{} of memory are needed and were not given", Size(numbers::<T>(&[len])));
        Error::input(place, problem, remedy)
    })?;
    values.resize(len, T::default());
    Ok(values)
}

/// How many of `each` bytes may be held at a time: as many as fit in `budget` and in a part of what there is, but at least 1 and at most
/// `most`. No result may depend on it.
pub fn at_once(each: u128, budget: u64, most: usize) -> usize {
    let fit = |bytes: u64| usize::try_from(u128::from(bytes) / each.max(1)).unwrap_or(most);
    let wanted = fit(budget).min(most);
    // Only what is large is worth a look at what there is.
    let bytes = (wanted as u128).saturating_mul(each);
    if bytes <= 16 * SMALL { wanted.max(1) } else { wanted.min(fit(available().bytes / 4)).max(1) }
}

/// A number of bytes for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u128);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
        let unit = (0..UNITS.len()).find(|unit| self.0 < 1 << (10 * (unit + 1)));
        let Some(unit) = unit else { return f.write_str("more than 1024 PiB") };
        let value = self.0 as f64 / (1u64 << (10 * unit)) as f64;
        if unit == 0 || value >= 100.0 {
            write!(f, "{value:.0} {}", UNITS[unit])
        } else {
            write!(f, "{value:.1} {}", UNITS[unit])
        }
    }
}

/// Whether `ulimit -v` is set: then the stacks of threads count as well.
fn address_space_is_limited() -> bool {
    limit("Max address space").is_some()
}

/// Starts all threads, and lets each of them allocate: what they reserve of a limited address space is then taken, and seen. One of them would
/// take up other work while it waits for the others, which may ask again: from there nothing is begun.
fn wake_threads() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    if rayon::current_thread_index().is_some() {
        return;
    }
    ONCE.call_once(|| {
        rayon::broadcast(|_| drop(std::hint::black_box(vec![0_u8; 64])));
    });
}

/// `MemAvailable` of the machine.
fn free_memory() -> Option<u64> {
    kibibytes(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

/// A soft limit of this process; `None` if there is none.
fn limit(name: &str) -> Option<u64> {
    soft_limit(&fs::read_to_string("/proc/self/limits").ok()?, name)
}

/// What is left of a limit, of which so much is used.
fn left_of(name: &str, used: &str) -> Option<u64> {
    let limit = limit(name)?;
    let used = kibibytes(&fs::read_to_string("/proc/self/status").ok()?, used)?;
    Some(limit.saturating_sub(used))
}

/// The first number after `name` in a table of `/proc`, in KiB there.
fn kibibytes(table: &str, name: &str) -> Option<u64> {
    let line = table.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

fn soft_limit(table: &str, name: &str) -> Option<u64> {
    table.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

/// What is left of the tightest control group.
fn control_group() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    group_folders(&groups).iter().filter_map(|(folder, version)| left_in_group(folder, *version)).min()
}

/// The folders of the groups that a process is in, innermost first, and the version of each hierarchy. In a container the path may be that
/// of the host; the root of the mount is then the container's group, and it is the last in the list.
fn group_folders(groups: &str) -> Vec<(PathBuf, u8)> {
    let mut folders = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (root, version) = match controllers {
            "" => (Path::new("/sys/fs/cgroup"), 2),
            names if names.split(',').any(|name| name == "memory") => (Path::new("/sys/fs/cgroup/memory"), 1),
            _ => continue,
        };
        for group in Path::new(path.trim_start_matches('/')).ancestors() {
            folders.push((root.join(group), version));
        }
    }
    folders
}

/// The limit of a group, if it has one.
fn most_of_group(folder: &Path, version: u8) -> Option<u64> {
    let name = if version == 2 { "memory.max" } else { "memory.limit_in_bytes" };
    fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok()
}

/// What a group may still take: the pages of files that nobody uses are given back before it runs out.
fn left_in_group(folder: &Path, version: u8) -> Option<u64> {
    let (used, idle) = match version {
        2 => ("memory.current", "inactive_file"),
        _ => ("memory.usage_in_bytes", "total_inactive_file"),
    };
    let most = most_of_group(folder, version)?;
    let used = fs::read_to_string(folder.join(used)).ok()?.trim().parse::<u64>().ok()?;
    let table = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let idle = table.lines().find_map(|line| line.strip_prefix(idle)?.trim().parse::<u64>().ok()).unwrap_or(0);
    Some(most.saturating_sub(used.saturating_sub(idle)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_do_not_overflow() {
        assert_eq!(numbers::<f64>(&[3, 5]), 120);
        assert_eq!(numbers::<f64>(&[]), 8);
        assert_eq!(numbers::<f64>(&[usize::MAX; 9]), u128::MAX);
        assert_eq!(numbers::<f64>(&[usize::MAX, usize::MAX, 0]), 0);
    }

    #[test]
    fn sizes_are_read_easily() {
        let text = [0, 1023, 1024, 1 << 20, 58_300_000, 204 << 30, 5 << 60, u128::MAX].map(|n| Size(n).to_string());
        assert_eq!(
            text,
            ["0 B", "1023 B", "1.0 KiB", "1.0 MiB", "55.6 MiB", "204 GiB", "more than 1024 PiB", "more than 1024 PiB"]
        );
    }

    #[test]
    fn what_nobody_has_is_refused_in_one_line() {
        let said = ask(numbers::<f64>(&[1 << 40, 1 << 20]), "keys", "ask for fewer").unwrap_err().to_string();
        assert!(said.starts_with("keys: more than 1024 PiB of memory are needed and "), "{said}");
        assert!(said.ends_with("; ask for fewer") && !said.contains('\n'), "{said}");
        assert!(filled::<f64>(1 << 58, "x", "ask for fewer").is_err());
        assert!(filled::<f64>(usize::MAX, "x", "ask for fewer").is_err());
        assert_eq!(filled::<f64>(3, "x", "").ok(), Some(vec![0.0; 3]));
        ask(1 << 23, "x", "").expect("8 MiB are there");
    }

    /// What is asked and the head room are needed, and that is said: never less than what there is.
    #[test]
    fn a_refusal_counts_the_head_room() {
        let bytes = u128::from(available().bytes) - u128::from(HEAD_ROOM) / 2;
        let said = ask(bytes, "x", "give less").unwrap_err().to_string();
        let needed = Size(bytes + u128::from(HEAD_ROOM));
        assert!(said.starts_with(&format!("x: {needed} of memory are needed and ")), "{said}");
    }

    #[test]
    fn tables_of_the_system_are_read() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max data size             unlimited            unlimited            bytes\n\
                      Max address space         3221225472           unlimited            bytes\n";
        assert_eq!(soft_limit(limits, "Max address space"), Some(3 << 30));
        assert_eq!(soft_limit(limits, "Max data size"), None);
        assert_eq!(soft_limit(limits, "Max cpu time"), None);
        assert_eq!(kibibytes("VmPeak:\t  90 kB\nVmSize:\t    8 kB\n", "VmSize:"), Some(8192));
        assert_eq!(kibibytes("VmSize:\n", "VmSize:"), None);
    }

    #[test]
    fn every_group_that_holds_the_process_counts() {
        let folders = |text: &str| group_folders(text).iter().map(|(p, v)| (p.display().to_string(), *v)).collect::<Vec<_>>();
        let both = folders("9:cpu,cpuacct:/a\n4:memory:/a/b\n0::/\n");
        let one = |path: &str, version| (path.to_owned(), version);
        let root = "/sys/fs/cgroup";
        let memory = |rest: &str| one(&format!("{root}/memory/{rest}"), 1);
        assert_eq!(both, [memory("a/b"), memory("a"), memory(""), one(&format!("{root}/"), 2)]);
        assert_eq!(folders("nonsense"), []);
    }

    /// Groups of both versions in a folder: the limit less what is used, without the idle pages of files.
    #[test]
    fn what_is_left_in_a_group() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        assert_eq!(left_in_group(folder.path(), 2), None);
        write("memory.max", "max\n");
        write("memory.current", "700\n");
        write("memory.stat", "anon 5\ninactive_file 300\ntotal_inactive_file 250\n");
        assert_eq!(left_in_group(folder.path(), 2), None);
        write("memory.max", "1000\n");
        assert_eq!(left_in_group(folder.path(), 2), Some(600));
        write("memory.limit_in_bytes", "1000\n");
        write("memory.usage_in_bytes", "2000\n");
        assert_eq!(left_in_group(folder.path(), 1), Some(0));
    }

    #[test]
    fn few_large_things_at_a_time_and_many_small_ones() {
        assert_eq!(at_once(1, 100, 8), 8);
        assert_eq!(at_once(40, 100, 8), 2);
        assert_eq!(at_once(u128::MAX, 100, 8), 1);
        assert_eq!(at_once(0, 100, 8), 8);
    }
}
