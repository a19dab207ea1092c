//! The engine side: `xtask/price/load.c`, built against the hook as engines load it.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::shell::Step;
use crate::tree::{cargo, root, target};

/// Where the built program lies.
pub(crate) fn binary() -> PathBuf {
    target().join("price-load")
}

/// The hook's library as engines load it.
pub(super) fn library() -> PathBuf {
    target().join("hook/libinflight.so")
}

/// Build the hook and the program.
pub(crate) fn build() -> Result<()> {
    compile(&root().join("xtask/price/load.c"), &binary(), &[])
}

/// Build the hook, and a program in C against it as engines load it; `also` are libraries.
pub(crate) fn compile(source: &Path, to: &Path, also: &[&str]) -> Result<()> {
    let step = Step { what: "building the hook and an engine", fix: "a C compiler is needed" };
    step.quietly(&mut cargo(&["build", "--quiet", "-p", "libinflight", "--profile", "hook"]))?;
    let folder = to.parent().with_context(|| format!("{} has no folder", to.display()))?;
    std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let libraries = target().join("hook");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-Wall", "-Werror"]).arg("-I").arg(root().join("hook/marker/include"));
    gcc.arg(source).arg("-o").arg(to);
    gcc.arg("-L").arg(&libraries).args(["-linflight", "-lpthread"]).args(also);
    gcc.arg(format!("-Wl,-rpath,{}", libraries.display()));
    step.run(&mut gcc).map(drop)
}

/// What the program said: a word, and fields.
#[derive(Debug)]
pub(super) struct Said {
    fields: BTreeMap<String, f64>,
}

impl Said {
    /// A field's number.
    pub(super) fn get(&self, field: &str) -> Result<f64> {
        self.fields.get(field).copied().with_context(|| format!("the load said no {field}"))
    }
}

/// A running engine.
pub(super) struct Load {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Load {
    /// Start a prefill; its worker is open when this returns.
    pub(super) fn start() -> Result<Self> {
        Self::with(&[])
    }

    /// Start a decode, to which rooms can be sent by its name.
    pub(super) fn decode(name: &str) -> Result<Self> {
        Self::with(&["decode", name])
    }

    fn with(args: &[&str]) -> Result<Self> {
        let mut command = Command::new(binary());
        command.args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("starting the load")?;
        let input = child.stdin.take().context("a piped stdin is always there")?;
        let output = child.stdout.take().context("a piped stdout is always there")?;
        let mut load = Self { child, input, output: BufReader::new(output) };
        load.hear("ready")?;
        Ok(load)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Give a command and wait for its answer.
    pub(super) fn tell(&mut self, command: &str) -> Result<Said> {
        writeln!(self.input, "{command}").context("telling the load")?;
        let verb = command.split_whitespace().next().unwrap_or_default();
        self.hear(verb)
    }

    fn hear(&mut self, verb: &str) -> Result<Said> {
        let mut line = String::new();
        self.output.read_line(&mut line).context("hearing the load")?;
        let Some(rest) = line.trim_end().strip_prefix('@').and_then(|l| l.strip_prefix(verb))
        else {
            bail!("the load answered {line:?} to {verb}");
        };
        let fields = rest
            .split_whitespace()
            .filter_map(|field| field.split_once('='))
            .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
            .collect();
        Ok(Said { fields })
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
