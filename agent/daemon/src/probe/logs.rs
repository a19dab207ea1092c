//! The kernel programs' debug lines, handed to tracing.

use aya::Ebpf;
use aya_log::{EbpfLogger, Level};
use log::{Log, Metadata, Record};

use super::load::LoadError;

/// The level that the programs are loaded with; at 0 the verifier removes their log code.
pub(crate) const fn level(debug: bool) -> u8 {
    if debug { Level::Debug as u8 } else { 0 }
}

/// Reads the programs' log ring.
pub(crate) struct Logs(EbpfLogger<Bridge>);

impl Logs {
    pub(crate) fn take(ebpf: &mut Ebpf) -> Result<Self, LoadError> {
        EbpfLogger::init_with_logger(ebpf, Bridge).map(Self).map_err(|source| LoadError::Other {
            what: "opening the programs' log".to_owned(),
            source: Box::new(source),
        })
    }

    pub(crate) fn flush(&mut self) {
        self.0.flush();
    }
}

/// aya-log writes to `log`; the agent logs with tracing.
struct Bridge;

impl Log for Bridge {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        tracing::debug!(target: "inflightd::kernel", "{}", record.args());
    }

    fn flush(&self) {}
}
