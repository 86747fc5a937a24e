//! The memory of the machine and of this process.

use contend_engine::options;

options! {
    /// What a run does about its memory.
    pub struct MemoryOptions {
        /// Whether the workers of a run on the host take memory before each window, and touch it:
        /// half as much again as those so far have taken. Otherwise the kernel clears pages within
        /// the windows.
        "memory.set_aside" set_aside: bool = true, in ();
    }
}

/// Returns the bytes that this process may still take: what the kernel calls available, or what the
/// control group leaves, whichever is less. Returns `None` if neither is known.
pub fn available_bytes() -> Option<u64> {
    let machine = meminfo("MemAvailable:");
    let group = ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"].into_iter().find_map(|folder| {
        let number = |file: &str| std::fs::read_to_string(format!("{folder}/{file}")).ok()?.trim().parse::<u64>().ok();
        let limit = number("memory.max").or_else(|| number("memory.limit_in_bytes"))?;
        let used = number("memory.current").or_else(|| number("memory.usage_in_bytes")).unwrap_or(0);
        Some(limit.saturating_sub(used))
    });
    machine.into_iter().chain(group).min()
}

/// Returns the bytes of address space that this process may still take (`ulimit -v`), or `None` if
/// there is no limit.
pub fn address_space_left() -> Option<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    // "unlimited" is no number.
    let limit = line.split_whitespace().next()?.parse::<u64>().ok()?;
    Some(limit.saturating_sub(field_of("/proc/self/status", "VmSize:").unwrap_or(0)))
}

/// Returns whether so little memory is left that a run with growing tables must end: less than a
/// fiftieth of the machine's memory.
pub fn is_short() -> bool {
    const LEAST: u64 = 64 << 20;
    let limit = total_bytes().map_or(LEAST, |total| (total / 50).max(LEAST));
    available_bytes().is_some_and(|available| available < limit)
}

/// Returns the bytes of memory of the machine.
pub fn total_bytes() -> Option<u64> {
    meminfo("MemTotal:")
}

/// Returns the bytes of this process that are in memory, or `None` if the kernel does not tell.
pub fn resident_bytes() -> Option<u64> {
    field_of("/proc/self/status", "VmRSS:")
}

fn meminfo(field: &str) -> Option<u64> {
    field_of("/proc/meminfo", field)
}

fn field_of(file: &str, field: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(field))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_memory() {
        let (available, total) = (available_bytes().expect("available"), total_bytes().expect("total"));
        assert!(0 < available && available <= total, "{available} of {total}");
        assert!(!is_short(), "{available} of {total}");
    }
}
