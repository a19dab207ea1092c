//! Where values come from.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use super::draft::Draft;
use super::environment::Environment;
use super::lift::lift;
use super::problem::{ConfigError, Origin, Problem};
use super::small::{read_once, read_small};
use super::{Config, environment, standard};
use crate::cli;

/// The file that is read where no other is named, if it is there.
pub const CONFIG_FILE: &str = "/etc/inflightd/inflightd.toml";
/// Most bytes of a configuration file.
const BYTES_MAX: usize = 1 << 20;

impl Config {
    /// The configuration of `inflightd run` with these arguments, in this process's environment.
    pub fn load(run: &cli::Run) -> Result<Self, ConfigError> {
        Self::find(run.config.as_deref(), &run.flags)
    }

    /// The same for whoever has a file and flags, or neither.
    pub fn find(file: Option<&Path>, flags: &cli::Flags) -> Result<Self, ConfigError> {
        Self::assemble(Self::file(file).as_deref(), &environment::own(), flags)
    }

    /// The file that is read: the one that is named, else the usual one where it is there.
    pub fn file(named: Option<&Path>) -> Option<PathBuf> {
        let usual = || Path::new(CONFIG_FILE).exists().then(|| PathBuf::from(CONFIG_FILE));
        named.map(Path::to_owned).or_else(usual)
    }

    /// The configuration that a file gives, in this process's environment and without flags. It may
    /// be a pipe, such as standard input: it is read once.
    pub fn check(path: &Path) -> Result<Self, ConfigError> {
        let text = read(path, read_once)?;
        Self::with(Some((path, &text)), &environment::own(), &cli::Flags::default())
    }

    /// Where the agent keeps its socket: as the flag says, else the configuration.
    pub fn state_dir(flag: Option<&Path>) -> Result<PathBuf, ConfigError> {
        if let Some(flag) = flag {
            return Ok(flag.to_owned());
        }
        let path = Some(Path::new(CONFIG_FILE)).filter(|path| path.exists());
        Ok(Self::assemble(path, &environment::own(), &cli::Flags::default())?.state_dir)
    }

    pub(super) fn assemble(
        path: Option<&Path>,
        environment: &Environment,
        flags: &cli::Flags,
    ) -> Result<Self, ConfigError> {
        let text = path.map(|path| Ok((path, read(path, read_small)?))).transpose()?;
        Self::with(text.as_ref().map(|(path, text)| (*path, text.as_str())), environment, flags)
    }

    /// The same with a file that has been read: not every file can be read twice.
    fn with(
        file: Option<(&Path, &str)>,
        environment: &Environment,
        flags: &cli::Flags,
    ) -> Result<Self, ConfigError> {
        let mut config = Self::resolve(file, environment, flags)?;
        if let Some(otlp) = &mut config.otlp {
            let (headers, told) = standard::headers(environment);
            otlp.headers = headers;
            config.warnings.extend(told);
        }
        Ok(config)
    }

    fn resolve(
        file: Option<(&Path, &str)>,
        environment: &Environment,
        flags: &cli::Flags,
    ) -> Result<Self, ConfigError> {
        let mut draft = Draft::new();
        if let Some((path, text)) = file {
            draft.take_file(path, text);
        }
        standard::take_endpoint(&mut draft, environment);
        let mut warnings = environment::take(&mut draft, environment);
        take_flags(&mut draft, flags);
        warnings.extend(standard::take(&mut draft, environment));
        // Before the checks, which take the draft.
        let is_foreign = standard::is_foreign(draft.origins.get("otlp.endpoint"));
        let error = match lift(draft, warnings) {
            Err(error) if error.problems.iter().any(standard::is_foreign_at) => error,
            done => return done,
        };
        let (left, told) = standard::without_foreign(environment, &error, is_foreign);
        let mut config = Self::resolve(file, &left, flags)?;
        config.warnings.extend(told);
        Ok(config)
    }
}

fn read(
    path: &Path,
    how: impl FnOnce(&Path, usize) -> Result<Vec<u8>, String>,
) -> Result<String, ConfigError> {
    // As everywhere: a file that says nothing.
    if is_null(path) {
        return Ok(String::new());
    }
    let bad = |text: String| {
        let origin = Origin::File { path: path.to_owned(), line: 0, column: 0 };
        ConfigError::new(vec![Problem { origin, key: String::new(), value: None, text }], 0)
    };
    let bytes = how(path, BYTES_MAX).map_err(bad)?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        bad(format!("is no text: byte {at} is not UTF-8; write it as TOML"))
    })
}

/// Whether it is the null device, by whatever name.
fn is_null(path: &Path) -> bool {
    let null = rustix::fs::makedev(1, 3);
    std::fs::metadata(path)
        .is_ok_and(|found| found.file_type().is_char_device() && found.rdev() == null)
}

fn take_flags(draft: &mut Draft, given: &cli::Flags) {
    // On a command line a path begins where the shell is.
    let state_dir = given.state_dir.as_ref().map(|path| {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        path.to_string_lossy().into_owned()
    });
    let flags = [
        ("--suspect", "deadlines.suspect", &given.suspect),
        ("--stall", "deadlines.stall", &given.stall),
        ("--state-dir", "state_dir", &state_dir),
        ("--listen", "http.listen", &given.listen),
        ("--lines", "output.lines", &given.lines),
        ("--otlp", "otlp.endpoint", &given.otlp),
    ];
    for (flag, key, value) in flags {
        if let Some(text) = value {
            draft.take_text(key, text, Origin::Flag(flag));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_every_variable() {
        let listed: Vec<&str> = cli::ENVIRONMENT.split([' ', ';', '\n']).collect();
        for (name, _) in environment::VARIABLES {
            assert!(listed.contains(&name), "{name}");
        }
    }
}
