//! Where the agent's lines go.

mod alert;
mod fail;
mod line;
mod next;
mod outlet;
mod pen;
mod room;
mod text;
mod words;
mod writer;

use std::io::{self, Write};

pub use line::{
    BytesField, CoverageField, EvidenceField, Line, PeerField, RanksField, RuledOut, WorkerField,
};
pub use outlet::{Lost, Outlet, Sent, Weight};
pub use room::RoomId;
pub(crate) use words::counted;
pub use words::{size, span, whole};
pub use writer::{Writer, outcome, sights};

/// A line as people read it, in one line also where it is an alert; without a line feed.
pub fn text(line: &Line) -> String {
    text::one(line)
}

/// The form of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

impl Form {
    /// A line in this form, its line feed included.
    pub fn render(self, line: &Line) -> io::Result<String> {
        let mut text = match self {
            Self::Json => serde_json::to_string(line)?,
            Self::Text => text::render(line),
        };
        text.push('\n');
        Ok(text)
    }
}

/// Writes lines to a stream, each flushed. It waits for whoever reads them; the agent, which must
/// not, has an [`Outlet`].
pub struct Sink {
    form: Form,
    to: Box<dyn Write>,
}

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sink").field("form", &self.form).finish_non_exhaustive()
    }
}

impl Sink {
    /// A sink on a stream.
    pub fn new(form: Form, to: Box<dyn Write>) -> Self {
        Self { form, to }
    }

    /// Writes one line, whole, in one call.
    pub fn write(&mut self, line: &Line) -> io::Result<()> {
        let text = self.form.render(line)?;
        self.to.write_all(text.as_bytes())?;
        self.to.flush()
    }
}
