//! Another process's memory, read from outside, and who writes into it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::FileExt as _;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// Length of the pattern in `xtask/pair/node.py`.
const PERIOD: u64 = 251;
/// Bytes that are compared at once: whole periods.
const PIECE: u64 = PERIOD * 4096;

/// Counts in a mount namespace and a trace instance of its own, so that nobody else's tracing is
/// touched, until its stdin closes, which a killed runner's does, too.
const SCRIPT: &str = r#"
trap '' INT TERM HUP PIPE
mount -t tracefs nodev /sys/kernel/tracing && cd /sys/kernel/tracing/instances || exit
mkdir "$0" && cd "$0" || exit
echo 8192 > buffer_size_kb
call=process_vm_writev
if echo 1 > events/syscalls/sys_enter_$call/enable && echo 1 > events/syscalls/sys_exit_$call/enable
then echo counts; cat > /dev/null; echo 0 > tracing_on; cat trace
fi
cd .. && rmdir "$0"
"#;

/// How many bytes from `address` on in the memory of a process are not what the prefill writes there.
pub(super) fn wrong_bytes(pid: u32, address: u64, bytes: u64) -> Result<u64> {
    let path = format!("/proc/{pid}/mem");
    let memory = File::open(&path).with_context(|| format!("opening {path}"))?;
    let right: Vec<u8> =
        (0..PIECE).map(|at| u8::try_from(at % PERIOD + 1).unwrap_or_default()).collect();
    let mut wrong = 0;
    for at in (0..bytes).step_by(usize::try_from(PIECE)?) {
        let mut piece = vec![0; usize::try_from(PIECE.min(bytes - at))?];
        let read = memory.read_exact_at(&mut piece, address + at);
        read.with_context(|| format!("reading {path}"))?;
        // Whole pieces are equal, as a rule: counting bytes is slow.
        if !right.starts_with(&piece) {
            wrong += piece.iter().zip(&right).filter(|(is, right)| is != right).count() as u64;
        }
    }
    Ok(wrong)
}

/// A count of what is written by `process_vm_writev`, from its making on.
pub(super) struct Writes {
    shell: Child,
    trace: BufReader<ChildStdout>,
}

impl Writes {
    /// Begin to count.
    pub(super) fn count() -> Result<Self> {
        let mut shell = Command::new("unshare");
        let name = format!("cases-{}", std::process::id());
        shell.args(["--mount", "sh", "-c", SCRIPT, &name]);
        shell.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.spawn().context("starting the count of process_vm_writev")?;
        let stdout = shell.stdout.take().context("a piped stdout is always there")?;
        let mut writes = Self { shell, trace: BufReader::new(stdout) };
        let mut line = String::new();
        writes.trace.read_line(&mut line).context("counting process_vm_writev")?;
        ensure!(
            line == "counts\n",
            "process_vm_writev cannot be traced\nfix: run as root, on a kernel with CONFIG_FTRACE_SYSCALLS"
        );
        Ok(writes)
    }

    /// End, and say how many bytes were written into that process.
    pub(super) fn end(mut self, pid: u32) -> Result<u64> {
        drop(self.shell.stdin.take());
        let mut text = String::new();
        self.trace.read_to_string(&mut text).context("reading the trace")?;
        Ok(written(&text, pid))
    }
}

impl Drop for Writes {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        drop(self.shell.wait());
    }
}

/// The bytes that calls for that process have written, by the kernel's trace: each thread's exit
/// follows its entry.
fn written(trace: &str, pid: u32) -> u64 {
    let (mut inside, mut sum) = (BTreeMap::new(), 0);
    for line in trace.lines() {
        let Some((thread, call)) = line.split_once("sys_process_vm_writev") else { continue };
        // ` name-TID [CPU] flags time: `, and a name may hold anything.
        let thread = thread.split_once(" [").and_then(|(who, _)| who.rsplit_once('-'));
        let Some(thread) = thread.map(|(_, thread)| thread.trim()) else { continue };
        if let Some(arguments) = call.strip_prefix("(pid: ") {
            let target = arguments.split_once(',').map_or("", |(target, _)| target);
            let target = u32::from_str_radix(target.trim_start_matches("0x"), 16);
            inside.insert(thread, target == Ok(pid));
        } else if inside.remove(thread) == Some(true) {
            let bytes = call.strip_prefix(" -> 0x").map(str::trim);
            // A failed call gives a negative number.
            let bytes = bytes.and_then(|bytes| i64::from_str_radix(bytes, 16).ok());
            sum += bytes.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(0);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_written_into_that_process_counts() {
        let trace = "\
# tracer: nop
 python-x [y-77  [000] .....  1.0: sys_process_vm_writev(pid: 0x4d2, lvec: 0x7f, liovcnt: 1)
        other-78  [001] .....  1.1: sys_process_vm_writev(pid: 0x4d3, lvec: 0x7f, liovcnt: 1)
        other-78  [001] .....  1.2: sys_process_vm_writev -> 0x1000
 python-x [y-77  [000] .....  1.3: sys_process_vm_writev -> 0x20
 python-x [y-77  [000] .....  1.4: sys_process_vm_writev(pid: 0x4d2, lvec: 0x7f, liovcnt: 1)
 python-x [y-77  [000] .....  1.5: sys_process_vm_writev -> 0xffffffffffffffff
        third-79  [000] .....  1.6: sys_process_vm_writev -> 0x300
";
        assert_eq!(written(trace, 1234), 0x20);
    }

    #[test]
    fn memory_is_compared_with_what_belongs_there() {
        let mut memory: Vec<u8> =
            (0..PIECE + 500).map(|at| u8::try_from(at % PERIOD + 1).unwrap()).collect();
        let wrong = |memory: &[u8]| {
            let address = memory.as_ptr().expose_provenance() as u64;
            wrong_bytes(std::process::id(), address, memory.len() as u64).unwrap()
        };
        assert_eq!(wrong(&memory), 0);
        memory[3] = 0;
        memory[usize::try_from(PIECE).unwrap() + 499] ^= 1;
        assert_eq!(wrong(&memory), 2);
    }
}
