//! Running other programs: a failure names the step, the command, its last lines and the fix.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::clock::Moment;
use crate::say;
use crate::watchdog::Watchdog;

/// So long after a program was ended for its time its last lines are waited for.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How many of a failed command's last lines are shown.
const TAIL: usize = 25;

/// One step of a task: what it is for, and what to do when it fails.
#[derive(Clone, Copy)]
pub(crate) struct Step<'a> {
    /// What is being done, as a person would say it.
    pub(crate) what: &'a str,
    /// What to do when the command fails.
    pub(crate) fix: &'a str,
}

impl Step<'_> {
    /// Run a command quietly and return its stdout; print a line as it begins, for some take
    /// minutes, and one with the seconds that it took.
    pub(crate) fn run(self, command: &mut Command) -> Result<String> {
        let begun = Moment::now();
        say::line(format_args!("  {} …", self.what));
        let text = self.quietly(command)?;
        self.tell(begun);
        Ok(text)
    }

    /// Run a command and return its stdout, printing nothing.
    pub(crate) fn quietly(self, command: &mut Command) -> Result<String> {
        let shown = show(command);
        let output = command.stdin(Stdio::null()).output().with_context(|| {
            format!("{}: could not start `{shown}`\nfix: {}", self.what, self.fix)
        })?;
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(out);
        }
        let err = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<&str> = out.lines().chain(err.lines()).collect();
        bail!(self.failure(&shown, output.status.to_string().as_str(), &lines))
    }

    /// Run a command whose output people want to see as it comes; return its lines and whether it
    /// ended well.
    ///
    /// stderr goes into the same stream, through `sh`, so that the order is kept. One that runs
    /// longer than `limit` is ended with all that it started, and has not ended well.
    pub(crate) fn told(
        self,
        command: &mut Command,
        limit: Duration,
    ) -> Result<(Vec<String>, bool)> {
        let shown = show(command);
        let mut child = merged(command).spawn().with_context(|| {
            format!("{}: could not start `{shown}`\nfix: {}", self.what, self.fix)
        })?;
        let out = child.stdout.take().context("a piped stdout is always there")?;
        let watchdog = Watchdog::of(&child, limit);
        let heard = hear(out);
        let mut lines = Vec::new();
        loop {
            match heard.recv_timeout(LAST_WORDS) {
                Ok(text) => {
                    let text = text.with_context(|| format!("reading the output of `{shown}`"))?;
                    let text = String::from_utf8_lossy(&text).into_owned();
                    say::line(&text);
                    lines.push(text);
                }
                // What it has started and left behind may hold the pipe for ever.
                Err(RecvTimeoutError::Timeout) if watchdog.has_bitten() => break,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if watchdog.bit() {
            say::line(format_args!("{} hung: ended after {limit:?}: `{shown}`", self.what));
        }
        let status = child.wait().with_context(|| format!("waiting for `{shown}`"))?;
        Ok((lines, status.success()))
    }

    /// Print that the step is done and the seconds since `begun`.
    pub(crate) fn tell(self, begun: Moment) {
        let took = Moment::now().seconds_after(begun);
        say::line(format_args!("  {} … {took:.1} s", self.what));
    }

    fn failure(self, shown: &str, status: &str, lines: &[&str]) -> String {
        let skip = lines.len().saturating_sub(TAIL);
        let mut text = format!("{} failed ({status}): {shown}\n", self.what);
        for line in lines.iter().skip(skip) {
            text.push_str("    ");
            text.push_str(line);
            text.push('\n');
        }
        text.push_str("fix: ");
        text.push_str(self.fix);
        text
    }
}

/// The lines of a pipe, read in a thread of its own until the pipe ends or nobody listens.
fn hear(pipe: ChildStdout) -> Receiver<std::io::Result<Vec<u8>>> {
    let (tell, heard) = mpsc::channel();
    thread::spawn(move || {
        for text in BufReader::new(pipe).split(b'\n') {
            if tell.send(text).is_err() {
                return;
            }
        }
    });
    heard
}

/// The same command with stderr sent into stdout.
fn merged(command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$0\" \"$@\" 2>&1"]).arg(command.get_program());
    shell.args(command.get_args()).stdin(Stdio::null()).stdout(Stdio::piped());
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(key, value),
            None => shell.env_remove(key),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        shell.current_dir(dir);
    }
    shell
}

/// A command as it could be typed, with the variables that it sets.
fn show(command: &Command) -> String {
    let mut words: VecDeque<String> = command
        .get_envs()
        .filter_map(|(key, value)| {
            Some(format!("{}={}", key.to_string_lossy(), value?.to_string_lossy()))
        })
        .collect();
    words.push_back(command.get_program().to_string_lossy().into_owned());
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    words.make_contiguous().join(" ")
}

/// Whether a program can be started at all, by its `--version`.
pub(crate) fn version_of(program: &str) -> Option<String> {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Step<'static> = Step { what: "a test step", fix: "do this" };

    #[test]
    fn a_failure_names_the_command_its_last_lines_and_the_fix() {
        let mut command = Command::new("sh");
        command.env("MARK", "1").args(["-c", "seq 100; echo why >&2; exit 3"]);
        let text = STEP.quietly(&mut command).unwrap_err().to_string();
        assert!(text.contains("a test step failed"), "{text}");
        assert!(text.contains("MARK=1 sh -c"), "{text}");
        assert!(text.contains("exit status: 3"), "{text}");
        assert!(text.contains("    why") && text.contains("    100"), "{text}");
        assert!(!text.contains("    50\n"), "only the last lines: {text}");
        assert!(text.ends_with("fix: do this"), "{text}");
    }

    #[test]
    fn output_comes_back_in_order_with_stderr_in_it() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two >&2; echo \"$W\""]).env("W", "three");
        let (lines, good) = STEP.told(&mut command, Duration::from_mins(10)).unwrap();
        assert_eq!(lines, ["one", "two", "three"]);
        assert!(good);
    }

    #[test]
    fn what_hangs_has_not_ended_well() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; sleep 600; echo two"]);
        let (lines, good) = STEP.told(&mut command, Duration::from_millis(300)).unwrap();
        assert_eq!(lines, ["one"]);
        assert!(!good);
    }

    #[test]
    fn an_orphan_that_holds_the_pipe_is_not_waited_for() {
        let mut command = Command::new("sh");
        // The inner shell ends at once, and its child belongs to nobody then.
        command.args(["-c", "sh -c 'sleep 30 &'; echo one; sleep 600"]);
        let begun = Moment::now();
        let (lines, good) = STEP.told(&mut command, Duration::from_millis(300)).unwrap();
        assert_eq!(lines, ["one"]);
        assert!(!good && Moment::now().seconds_after(begun) < 25.0);
    }

    #[test]
    fn a_missing_program_is_no_version() {
        assert_eq!(version_of("inflightd-no-such-program"), None);
    }
}
