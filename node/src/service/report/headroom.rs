//! What this machine has to spare. A reading that it does not give is absent, which says that it is not known.

use std::fs;
use std::path::Path;
use std::thread;

use relay_core::message::heartbeat::Headroom;

/// Looks now; `dir` is on the disk that counts.
pub(super) fn read(dir: &Path) -> Headroom {
    Headroom {
        mem_free_mb: fs::read_to_string("/proc/meminfo").ok().and_then(|text| memory(&text)),
        disk_free_mb: disk(dir),
        load_per_core: fs::read_to_string("/proc/loadavg").ok().and_then(|text| load(&text, cores())),
        running_tasks: 0,
        max_tasks: None,
        tags: Vec::new(),
    }
}

fn memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024)
}

fn load(loadavg: &str, cores: usize) -> Option<f64> {
    let load: f64 = loadavg.split_whitespace().next()?.parse().ok()?;
    // Hundredths, as the system gives it.
    Some((load / cores as f64 * 100.0).round() / 100.0)
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn disk(dir: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(dir).ok()?;
    Some(stat.f_bavail.checked_mul(stat.f_frsize)? >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_words_are_read() {
        assert_eq!(memory("MemTotal: 9 kB\nMemAvailable:    2097152 kB\n"), Some(2048));
        assert_eq!(memory("MemFree: 1 kB\n"), None);
        assert_eq!(load("1.50 0.2 0.1 1/2 3", 4), Some(0.38));
        assert_eq!(load("", 4), None);
    }

    #[test]
    fn this_machines_disk_is_found_and_a_missing_folder_is_not_known() {
        assert!(disk(Path::new("/")).is_some());
        assert_eq!(disk(Path::new("/nowhere/at/all")), None);
    }
}
