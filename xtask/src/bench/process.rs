//! What the system knows about a process: its memory and its processor time.

use anyhow::{Context as _, Result};

/// The most memory that it has held so far.
pub(crate) fn peak_mb(pid: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).context("there is no /proc to ask")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).context("no VmHWM in /proc")?;
    let kibibytes: f64 = line.split_whitespace().nth(1).context("VmHWM has no number")?.parse()?;
    Ok(kibibytes / 1024.0)
}

/// User and system time, the 14th and 15th field, in hundredths of a second on every Linux there is.
pub(crate) fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("there is no /proc to ask")?;
    // The second field is a name in brackets, which may hold anything.
    let rest = stat.rsplit_once(')').context("an odd line in /proc")?.1;
    let ticks = rest.split_whitespace().skip(11).take(2).map(str::parse::<f64>).sum::<Result<f64, _>>()?;
    Ok(ticks / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_knows_our_own_memory_and_time() {
        let pid = std::process::id();
        assert!(peak_mb(pid).unwrap() > 1.0);
        assert!(cpu_seconds(pid).unwrap() >= 0.0);
    }
}
